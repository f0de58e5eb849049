"""The agent's daemon on the phone of an uplink, and a modem's reports that can be cut off."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_program import AgentProgram
from modem import Modem, relay
from uplink import Uplink

from unbloat.lab.testbed import TIMEOUT_S, Testbed, until


class Daemon(AgentProgram):
    """The agent in a namespace, without DRWA, which other tests cover."""

    def __init__(self, testbed: Testbed, node: str, *settings: str) -> None:
        super().__init__(testbed, ["receive.enabled=false", *settings], node)


def within(timeout_s: float, happened: Callable[[], object]) -> float:
    """Waits for something that asks the agent: how long it took, s."""
    return until(happened, timeout_s, every_s=0.1)


@contextmanager
def phone(folder: Path, text: str, *settings: str) -> Iterator[tuple[Uplink, Daemon]]:
    """A phone with a default route over the emulator, and an agent that is not started yet."""
    with Uplink(folder / "testbed", text) as testbed:
        testbed.ip("phone", f"route add default dev {testbed.device}")
        telemetry = f"uplink.telemetry={folder / 'modem.sock'}"
        with Daemon(testbed, "phone", telemetry, *settings) as daemon:
            yield testbed, daemon


def reports(testbed: Uplink, folder: Path) -> Modem:
    """The testbed's modem where the agent looks for it."""
    return relay(testbed.out / "telemetry.sock", folder / "modem.sock")


def window(testbed: Uplink) -> int:
    """The window advertised to the phone's upload: to the connection that has carried most."""
    shown = testbed.ask("phone", "ss", "-HOtin", "state", "established")

    def number(line: str, key: str) -> int:
        found = re.search(rf"{key}:(\d+)", line)
        return int(found[1]) if found else 0

    advertised = [
        (number(line, "bytes_acked"), number(line, "snd_wnd")) for line in shown.splitlines()
    ]
    return max(advertised, default=(0, 0))[1]


def network(testbed: Uplink) -> str:
    """All queue disciplines and filters of the phone, without their counters."""
    shown = testbed.ask("phone", "tc", "qdisc", "show")
    for device in sorted(set(re.findall(r"dev (\S+)", shown))):
        for hook in ("ingress", "egress"):
            argv = testbed.argv("phone", "tc", "filter", "show", "dev", device, hook)
            # A device without a hook is an error of tc's.
            shown += subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    return shown


# Sends so many bytes, made from a seed, with CUBIC; says their sum when the other side has all of them.
UPLOADER = """
import hashlib, random, socket, sys
data = random.Random(2).randbytes(int(sys.argv[2]))
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
s.connect((sys.argv[1], 5400))
s.sendall(data)
s.shutdown(socket.SHUT_WR)
s.recv(1)
print(hashlib.sha256(data).hexdigest(), flush=True)
"""
# Takes all bytes of one connection; says their sum.
TAKER = """
import hashlib, socket
with socket.create_server(("0.0.0.0", 5400)) as listening:
    print("listens", flush=True)
    s, _ = listening.accept()
    total = hashlib.sha256()
    while data := s.recv(1 << 16):
        total.update(data)
    print(total.hexdigest(), flush=True)
"""


def upload(
    testbed: Uplink, size: int, server: str
) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """An upload whose every byte is checked: who sends, who takes."""
    taker = testbed.start("server", sys.executable, "-c", TAKER)
    assert taker.stdout is not None
    taker.stdout.readline()
    return testbed.start("phone", sys.executable, "-c", UPLOADER, server, str(size)), taker
