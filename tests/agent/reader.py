"""Downloads whose socket can be asked: a reader inside the host, a sender of known bytes, and the windows that a capture shows."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from download import Download

from unbloat.lab.testbed import TIMEOUT_S, run

TCP_WINDOW_CLAMP = 10


# A reader that can be asked: `clamp`, `buffer`, `bytes`, `port`, `sum`, `set N`; it downloads from a `SENDER` until that one closes.
READER = f"""
import hashlib, socket, sys, threading
family, address, port, setup = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, *sys.argv[1:4]
s = socket.socket(family, socket.SOCK_STREAM)
exec(setup)
s.connect((address, int(port)))
total, seen, over = hashlib.sha256(), [0], threading.Event()
def read():
    while data := s.recv(1 << 20):
        total.update(data)
        seen[0] += len(data)
    over.set()
threading.Thread(target=read, daemon=True).start()
for word in sys.stdin:
    match word.split():
        case ["set", clamp]: s.setsockopt(socket.IPPROTO_TCP, {TCP_WINDOW_CLAMP}, int(clamp)); print("set", flush=True)
        case ["clamp"]: print(s.getsockopt(socket.IPPROTO_TCP, {TCP_WINDOW_CLAMP}), flush=True)
        case ["buffer"]: print(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), flush=True)
        case ["bytes"]: print(seen[0], flush=True)
        case ["port"]: print(s.getsockname()[1], flush=True)
        case ["sum"]: over.wait(); print(total.hexdigest(), flush=True)
        case ["close"]: s.shutdown(socket.SHUT_RDWR); break
"""
# Sends to everyone who comes: so many bytes, or bytes until it gets a word; made from a seed, cut into blocks. Says the sum of each transfer.
SENDER = """
import hashlib, random, socket, sys, threading
port, size = int(sys.argv[1]), int(sys.argv[2])
block, over = random.Random(1).randbytes(1 << 16), threading.Event()
def serve(s):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    total, sent = hashlib.sha256(), 0
    try:
        while not over.is_set() and (not size or sent < size):
            some = block[: size - sent] if size else block
            s.sendall(some)
            total.update(some)
            sent += len(some)
        s.shutdown(socket.SHUT_WR)
        print(total.hexdigest(), flush=True)
        s.recv(1)
    except OSError:
        pass
    s.close()
def listen(listening):
    while True:
        s, _ = listening.accept()
        threading.Thread(target=serve, args=(s,), daemon=True).start()
listening = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
threading.Thread(target=listen, args=(listening,), daemon=True).start()
print("listens", flush=True)
sys.stdin.readline()
over.set()
threading.Event().wait()
"""


def next_line(process: subprocess.Popen[str], timeout_s: float = TIMEOUT_S) -> str:
    """A program's next line; kills it after the timeout."""
    assert process.stdout is not None
    timer = threading.Timer(timeout_s, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    assert line, f"no line: {process.args!r}"
    return line.strip()


class Reader:
    """A download whose socket can be looked at."""

    def __init__(
        self,
        testbed: Download,
        port: int = 5301,
        version: int = 4,
        setup: str = "",
        inside: bool = True,
    ) -> None:
        argv = (
            sys.executable,
            "-c",
            READER,
            testbed.addresses[version][1],
            str(port),
            setup or "pass",
        )
        self.process = testbed.start("host", *argv, grouped=inside, stdin=subprocess.PIPE)

    def ask(self, word: str) -> str:
        """Its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return next_line(self.process)

    def clamp(self) -> int:
        """TCP_WINDOW_CLAMP of its socket, now."""
        return int(self.ask("clamp"))

    def bytes(self) -> int:
        """Received so far."""
        return int(self.ask("bytes"))


class Sender:
    """A `SENDER` in the server's namespace: `size` bytes to each reader, or bytes on end."""

    def __init__(self, testbed: Download, size: int = 0, port: int = 5301) -> None:
        argv = (sys.executable, "-c", SENDER, str(port), str(size))
        self.process = testbed.start("server", *argv, stdin=subprocess.PIPE)
        assert self.sum() == "listens"

    def end(self) -> None:
        """No more bytes than are sent already."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def sum(self) -> str:
        """What the next transfer that ended was."""
        return next_line(self.process)


def right_edges(capture: Path, port: int) -> list[int]:
    """The right edge of the window in every ACK that went to a server's port, scaled by tshark from the SYN."""
    fields = ("-e", "tcp.ack", "-e", "tcp.window_size", "-e", "tcp.flags.syn")
    where = f"tcp.dstport == {port}"
    out = run("tshark", "-r", str(capture), "-Y", where, "-T", "fields", *fields)
    rows = [line.split() for line in out.splitlines()]
    return [int(ack) + int(window) for ack, window, syn in rows if syn in ("0", "False")]
