"""A phone behind the emulator's modem, a server, and a notebook tethered to the phone: the testbed of the uplink's tests."""

from __future__ import annotations

import json
import select
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_program import agent_path

from unbloat.lab.instruments import Ping, Transfer
from unbloat.lab.testbed import TIMEOUT_S, Testbed

PHONE, SERVER, NOTEBOOK = "10.0.0.1", "10.0.0.2", "10.0.1.2"
PHONE6, SERVER6, NOTEBOOK6 = "fd00::1", "fd00::2", "fd00:1::2"

CUBIC = "congctl cubic"
"""From a connection's first packet on: a connection that began with BBR, before its program chose CUBIC, stays paced."""

SCENARIO = """
name = "uplink"
duration = "{duration} s"
[link.up]
{up}
delay = "{delay}"
[link.down]
{down}
delay = "{delay}"
queue = {{ kind = "droptail", limit = "2 MB" }}
[device]
gate = {gate}
firmware = {{ buffer = "{buffer}", report_every = "5 ms", {reports} }}
[[flow]]
from = "client"
{changes}
"""
OUTAGE = (("4 s", "1 kbit/s"), ("7 s", "1 Mbit/s"))
"""Three seconds in which no packet gets through."""
STEPS = (("10 s", "0.5 Mbit/s"), ("20 s", "4 Mbit/s"), ("30 s", "2 Mbit/s"))


def scenario(
    up: str = 'rate = "2 Mbit/s"',
    down: str = 'rate = "8 Mbit/s"',
    gate: str = '"none"',
    buffer: str = "1 MB",
    duration: int = 120,
    steps: tuple[tuple[str, str], ...] = (),
    more: str = "",
    delay: str = "30 ms",
    reports: str = 'report_delay = "100 ms"',
) -> str:
    """A phone's link; `steps` change the rate of the uplink at their times; `reports`: when the modem's reports come."""
    changes = [f'[[change]]\nat = "{at}"\n"link.up.rate" = "{rate}"' for at, rate in steps]
    return SCENARIO.format(
        up=up,
        down=down,
        gate=gate,
        buffer=buffer,
        duration=duration,
        delay=delay,
        reports=reports,
        changes="\n".join([*changes, more]),
    )


class Uplink(Testbed):
    """Nodes `phone`, `server` and `notebook`. With `six` pings and transfers go by IPv6."""

    def __init__(self, folder: Path, text: str, *options: str, six: bool = False) -> None:
        super().__init__(
            folder,
            "phone",
            "server",
            "notebook",
            sysctls={"net.ipv6.conf.default.disable_ipv6": "1"},
        )
        self.text, self.options, self.six = text, options, six
        self.server = SERVER6 if six else SERVER
        self.device = self.far = ""
        """The phone's end and the server's end of the emulated link."""
        self.port = 5200

    def build(self) -> None:
        """The link, the notebook's Ethernet behind the phone, routes."""
        nodes = {"client": "phone", "server": "server"}
        for device in self.emulate(self.text, *self.options, nodes=nodes):
            if device.node == 0:
                self.device = device.name
            else:
                self.far = device.name
        self.address("phone", self.device, f"{PHONE}/32")
        self.address("server", self.far, f"{SERVER}/32")
        self.ip("phone", f"route add {SERVER}/32 dev {self.device} src {PHONE} {CUBIC}")
        for behind in (PHONE, NOTEBOOK):
            self.ip("server", f"route add {behind}/32 dev {self.far} src {SERVER} {CUBIC}")
        self.veth("phone", "notebook", "lan")
        self.address("phone", "lan", "10.0.1.1/24")
        self.address("notebook", "lan", f"{NOTEBOOK}/24")
        self.ip("notebook", f"route add default via 10.0.1.1 {CUBIC}")
        self.sysctl("phone", "net.ipv4.ip_forward", "1")
        if self.six:
            self._six()
        self.go()

    def _six(self) -> None:
        """The same by IPv6."""
        for node, device, address in (
            ("phone", self.device, PHONE6),
            ("server", self.far, SERVER6),
            ("phone", "lan", "fd00:1::1"),
            ("notebook", "lan", NOTEBOOK6),
        ):
            self.sysctl(node, f"net.ipv6.conf.{device}.disable_ipv6", "0")
            self.address(node, device, f"{address}/64")
        self.ip("server", f"route add fd00:1::/64 dev {self.far} {CUBIC}")
        self.ip("notebook", f"route add ::/0 via fd00:1::1 {CUBIC}")
        self.sysctl("phone", "net.ipv6.conf.all.forwarding", "1")

    def ping(self, node: str = "phone", every_s: float = 0.1) -> Ping:
        """Pings the server from a node until it is stopped."""
        return Ping.start(self, node, self.server, every_s)

    def iperf(self, node: str, seconds: float, *options: str, server: str = "") -> Transfer:
        """iperf3 between a node and the server."""
        self.port += 1
        to = server or self.server
        return Transfer.start(self, node, "server", to, self.port, seconds, *options)

    def gate(self, program: str, *options: str) -> Gate:
        """The gate on the phone's uplink, with the emulator's telemetry unless an option names another socket."""
        if not any(option.startswith("socket=") for option in options):
            options = (f"socket={self.out / 'telemetry.sock'}", *options)
        journal = self.folder / "journal.jsonl"
        argv = (program, self.device, f"journal={journal}", *options)
        gate = Gate(self.start("phone", *argv, stdin=subprocess.PIPE))
        gate.line(TIMEOUT_S)
        return gate

    def firmware_ms(self, after_s: float = 0.0, before_s: float = 1e9) -> float:
        """Mean delay in the firmware buffer, from the emulator's log; after its end."""
        rows = [json.loads(line) for line in (self.out / "queues.jsonl").read_text().splitlines()]
        delays = [
            row["delay_ms"]
            for row in rows
            if row.get("stage") == "firmware"
            and row.get("delay_ms") is not None
            and after_s <= row["t_s"] < before_s
        ]
        return statistics.fmean(delays)

    def undone(self, node: str, journal: Path) -> None:
        """Undoes in a node what a journal lists, by the agent's own `off`; nothing is left in it."""
        self.ask(node, agent_path(), "--runtime", str(journal.parent), "off")
        assert not journal.read_text()


@dataclass
class Gate:
    """The gate's program; it writes its state twice a second."""

    process: subprocess.Popen[str]

    def line(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Its next state."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        line = self.process.stdout.readline() if ready else ""
        assert line, f"no state of the gate: {self.process.poll()} {self._errors()}"
        status: dict[str, Any] = json.loads(line)
        return status

    def _errors(self) -> str:
        if self.process.poll() is None or self.process.stderr is None:
            return ""
        return self.process.stderr.read()

    def off(self) -> dict[str, Any]:
        """Ends it as it should end; its last state."""
        assert self.process.stdin is not None
        text, errors = self.process.communicate("", timeout=TIMEOUT_S)
        assert self.process.returncode == 0, errors
        last: dict[str, Any] = json.loads(text.splitlines()[-1])
        return last
