"""The emulator by itself between two namespaces, without the lab around it, and small programs that run in them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from unbloat.lab.requirements import found

PATIENCE_S = 30.0
ADDRESSES = {"client": "10.0.0.1", "server": "10.0.0.2"}


class Emulation:
    """`unbloat-emu run` on a scenario of client and server."""

    def __init__(self, folder: Path, text: str, *options: str) -> None:
        self.out = folder / "emu"
        file = folder / "scenario.toml"
        file.write_text(text)
        run = f"{os.getpid() % 100_000}{time.monotonic_ns() % 1_000_000}"
        self.spaces = {node: f"ub-emu-{run}-{node[0]}" for node in ADDRESSES}
        for space in self.spaces.values():
            ip("netns", "add", space)
            # Its neighbour discovery would count among the packets; not every kernel has it.
            path = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
            ip("netns", "exec", space, "sh", "-c", f"[ ! -e {path} ] || echo 1 > {path}")
        there = [
            word for node, space in self.spaces.items() for word in ("--netns", f"{node}={space}")
        ]
        self.process = subprocess.Popen(
            [
                found("unbloat-emu") or "",
                "run",
                str(file),
                "--out",
                str(self.out),
                *there,
                *options,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.zero_ns = 0

    def __enter__(self) -> Emulation:
        for device in self.event("devices")["devices"]:
            node, peer = (list(ADDRESSES)[device[end]] for end in ("node", "peer"))
            space, own, other = self.spaces[node], ADDRESSES[node], ADDRESSES[peer]
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "address", "add", f"{own}/32", "dev", device["name"])
            ip("-n", space, "route", "add", f"{other}/32", "dev", device["name"], "src", own)
        self.say("go")
        self.zero_ns = self.event("started")["t0_monotonic_ns"]
        time.sleep(max(0.0, (self.zero_ns - time.monotonic_ns()) / 1e9))
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    def say(self, word: str) -> None:
        """A word on its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def event(self, kind: str) -> dict[str, Any]:
        """The next event of a kind."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == kind:
                return event
        raise AssertionError(f"no {kind}: {self.process.stderr and self.process.stderr.read()}")

    def done(self) -> dict[str, Any]:
        """Stops it; what it summed up."""
        self.say("stop")
        summary = self.event("done")
        self.end()
        return summary

    def end(self) -> tuple[int, str]:
        """Closes its input and waits for its end: exit code and errors."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors

    def ended(self) -> tuple[int, str]:
        """Waits for an end that nobody tells it of."""
        assert self.process.stderr is not None
        code = self.process.wait(PATIENCE_S)
        return code, self.process.stderr.read()

    def start(self, node: str, *argv: str) -> subprocess.Popen[str]:
        """A program in a node's namespace."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.spaces[node], *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, node: str, *argv: str) -> str:
        """What a program says there."""
        process = self.start(node, *argv)
        out, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, f"{argv}: {errors}"
        return out

    def counter(self, node: str, name: str) -> int:
        """A counter of the kernel there."""
        lines = self.ask(node, "nstat", "-asz", name).splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(name))

    def losses(self) -> list[dict[str, Any]]:
        """Every loss that it named."""
        return [json.loads(line) for line in (self.out / "losses.jsonl").read_text().splitlines()]


def ip(*argv: str) -> None:
    """iproute2."""
    subprocess.run(["ip", *argv], check=True, capture_output=True, text=True)


def replay(folder: Path) -> subprocess.CompletedProcess[str]:
    """`unbloat-emu replay`."""
    argv = [found("unbloat-emu") or "", "replay", str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S)


# Sends 20 MB over TCP; what arrives is summed up.
SEND = """
import hashlib, random, socket, sys
data = random.Random(1).randbytes(int(sys.argv[2]))
with socket.create_connection((sys.argv[1], 5001)) as s:
    s.sendall(data)
print(hashlib.sha256(data).hexdigest())
"""
RECEIVE = """
import hashlib, socket
with socket.create_server(("", 5001)) as listening:
    s, _ = listening.accept()
    total = hashlib.sha256()
    while data := s.recv(1 << 20):
        total.update(data)
print(total.hexdigest())
"""
# So many datagrams of so many bytes, as fast as they go; how many the kernel took.
FLOOD = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
sent = 0
for _ in range(int(sys.argv[2])):
    try:
        sent += s.sendto(bytes(int(sys.argv[3])), (sys.argv[1], 9)) > 0
    except OSError:
        pass
print(sent)
"""
