"""A host that downloads through the emulator, the agent on it, iperf3 and ping as judges: the testbed of DRWA's tests.

The agent's scope is a cgroup of the testbed's, so that it treats no connection of the machine's own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_program import AgentProgram

from unbloat.lab.instruments import Ping
from unbloat.lab.testbed import Testbed

SCENARIO = """
name = "download"
duration = "{duration} s"
[link.up]
rate = "{up}"
delay = "{delay}"
queue = {{ kind = "droptail", limit = "1 MB" }}
[link.down]
rate = "{down}"
delay = "{delay}"
queue = {{ kind = "droptail", limit = "{queue}" }}
[[flow]]
from = "client"
{changes}
"""


def scenario(
    down: str = "8 Mbit/s",
    up: str = "2 Mbit/s",
    delay: str = "30 ms",
    queue: str = "2 MB",
    steps: tuple[tuple[str, str], ...] = (),
) -> str:
    """A link; `steps` change the rate downwards at their times."""
    changes = "\n".join(
        f'[[change]]\nat = "{at}"\n"link.down.rate" = "{rate}"' for at, rate in steps
    )
    return SCENARIO.format(
        down=down, up=up, delay=delay, queue=queue, changes=changes, duration=300
    )


class Download(Testbed):
    """Nodes `host` and `server`, the emulator between them; `net6` begins their IPv6 addresses."""

    def __init__(self, folder: Path, text: str = "", net6: str = "fd00:1") -> None:
        super().__init__(folder, "host", "server")
        self.text = text or scenario()
        self.addresses = {4: ("10.0.0.1", "10.0.0.2"), 6: (f"{net6}::1", f"{net6}::2")}
        """Of host and server, by IP version."""

    def build(self) -> None:
        """The host's programs are in a cgroup."""
        self.make_cgroup("host")
        self.emulate(self.text, nodes={"client": "host", "server": "server"})
        (host, server), (host6, server6) = self.addresses[4], self.addresses[6]
        self.address("host", "up", f"{host}/24", f"{host6}/64")
        self.address("server", "down", f"{server}/24", f"{server6}/64")
        self.go()

    @property
    def cgroup(self) -> Path:
        """The host's."""
        return self.cgroups["host"]

    @contextmanager
    def captured(self) -> Iterator[Path]:
        """What passes the host's device, in a file."""
        with self.capture("host", "up", self.folder / "up.pcap", snap=120) as path:
            yield path

    def iperf_server(self, port: int = 5201) -> None:
        """An iperf3 for any number of transfers."""
        self.start("server", "iperf3", "-s", "-p", str(port))
        self.listens("server", port)

    def download(
        self, seconds: float, *more: str, version: int = 4, port: int = 5201
    ) -> subprocess.Popen[str]:
        """A download that runs; `Goodput.of` waits for its end."""
        options = ("-R", "-t", str(seconds), "-C", "cubic", "-J", "-i", "1")
        to = self.addresses[version][1]
        return self.start("host", "iperf3", "-c", to, "-p", str(port), *options, *more)

    def ping(self, seconds: float, version: int = 4) -> Ping:
        """Ten pings a second."""
        return Ping.start(self, "host", self.addresses[version][1], seconds=seconds)

    def rtt_now(self) -> float:
        """The median of two seconds of pings, ms; infinite where none is answered."""
        return self.ping(2).done().p(0.5, after_s=0)

    def congestion(self, port: int = 5201) -> set[str]:
        """The congestion controls of the host's connections to a port."""
        return self.congestion_controls("host", "dport", "=", f":{port}")


class Agent(AgentProgram):
    """The agent for the host's cgroup; `inside`: in the host's namespace, where its uplink is the emulator's."""

    def __init__(self, testbed: Download, *settings: str, inside: bool = False) -> None:
        # Only downloads unless a setting says otherwise: the uplink's device would be this machine's own.
        # λ is what a test sets it to, and does not adapt below that: as large a least λ as the agent takes.
        others = ("uplink.mode=off", "trial.enabled=false", "receive.lambda_min=16")
        named = {setting.partition("=")[0] for setting in settings}
        defaults = [setting for setting in others if setting.partition("=")[0] not in named]
        scope = f"scope.cgroup={testbed.cgroup}"
        super().__init__(testbed, [scope, *defaults, *settings], "host" if inside else "")


def rtts(ping: Ping, after_s: float = 5.0) -> list[float]:
    """Waits for a ping's end: its RTTs after so many seconds, ms."""
    return ping.done().between(after_s)
