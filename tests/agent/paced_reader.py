"""A reader with a receive buffer of a given size that reads at a given rate: shared by the tests of the rate term."""

from __future__ import annotations

import subprocess
import sys

from download import Download

BUFFER = 65_536
"""What the application asks for; the kernel doubles it and takes half for its overhead."""

COUNTERS = (
    "TCPRcvQDrop",
    "TCPRcvPruned",
    "RcvPruned",
    "PruneCalled",
    "TCPZeroWindowDrop",
    "TCPToZeroWindowAdv",
    "TCPRcvCollapsed",
)

# Reads as fast as the Mbit/s of its slots say, in steps of 10 ms; 0: not at all. Asked by lines, as `READER`.
PACED = """
import socket, sys, threading, time
address, port, buffer, slot, *rates = sys.argv[1:]
s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
if int(buffer):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(buffer))
s.connect((address, int(port)))
s.setblocking(False)
rates, seen, zero = [float(rate) for rate in rates], [0], time.monotonic()
def read():
    credit, last = 0.0, time.monotonic()
    while True:
        time.sleep(0.01)
        now = time.monotonic()
        rate = rates[int((now - zero) / float(slot)) % len(rates)]
        credit, last = min(credit + (now - last) * rate * 125_000, rate * 125_000 * 0.05), now
        try:
            while credit >= 1 and (data := s.recv(int(credit))):
                seen[0] += len(data)
                credit -= len(data)
        except BlockingIOError:
            pass
threading.Thread(target=read, daemon=True).start()
for line in sys.stdin:
    match line.split():
        case ["bytes"]: print(seen[0], flush=True)
        case ["clamp"]: print(s.getsockopt(socket.IPPROTO_TCP, 10), flush=True)
        case ["buffer"]: print(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), flush=True)
        case ["set", size]: s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(size)); print("set", flush=True)
        case ["rates", *new]: rates[:] = [float(rate) for rate in new]; print("paced", flush=True)
"""


class Paced:
    """A download that is read at a pace."""

    def __init__(
        self,
        testbed: Download,
        *rates: float,
        buffer: int = BUFFER,
        slot_s: float = 0.6,
        port: int = 5301,
        version: int = 4,
    ) -> None:
        words = (
            testbed.addresses[version][1],
            str(port),
            str(buffer),
            str(slot_s),
            *map(str, rates),
        )
        argv = (sys.executable, "-c", PACED, *words)
        self.process = testbed.start("host", *argv, stdin=subprocess.PIPE)

    def ask(self, word: str) -> str:
        """Its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def bytes(self) -> int:
        """Read so far."""
        return int(self.ask("bytes"))

    def clamp(self) -> int:
        """Its socket's TCP_WINDOW_CLAMP."""
        return int(self.ask("clamp"))

    def buffer(self) -> int:
        """Its socket's SO_RCVBUF, as the kernel counts."""
        return int(self.ask("buffer"))


def counters(testbed: Download) -> dict[str, int]:
    """What the host's TCP dropped, threw away, and how often a window closed."""
    table = testbed.counters("host")
    return {name: table[f"TcpExt{name}"] for name in COUNTERS if f"TcpExt{name}" in table}
