"""The agent's daemon on the phone of an uplink's bed, and a modem's reports that can be cut off."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from modem import Modem, relay
from receive_bed import program
from uplink_bed import PATIENCE_S, Bed, ip


def space_words(space: str, *argv: str) -> list[str]:
    """A command in a network namespace; `ip netns exec` would hide the bpf file system."""
    return ["nsenter", f"--net=/run/netns/{space}", "--", *argv]


class Daemon:
    """The program in a namespace, with a runtime directory and pins of its own; without DRWA, which other tests have."""

    def __init__(self, space: str, folder: Path, *settings: str) -> None:
        self.space, self.folder = space, folder
        self.runtime, self.pins = folder / "run", Path("/sys/fs/bpf") / space
        self.settings = ["receive.enabled=false", *settings]
        self.daemon: subprocess.Popen[str] | None = None
        self.all: list[subprocess.Popen[str]] = []

    def argv(self, *words: str) -> list[str]:
        """A command line."""
        name = program("unbloat-agent", "UNBLOAT_AGENT") or "unbloat-agent"
        there = ("--runtime", str(self.runtime), "--pins", str(self.pins))
        return space_words(self.space, name, *there, *words)

    def sets(self, *settings: str) -> list[str]:
        """Settings as words of a command line."""
        return [word for setting in (*self.settings, *settings) for word in ("--set", setting)]

    def serve(self, *words: str) -> subprocess.Popen[str]:
        """Starts it; returns when its cures are attached."""
        with (self.folder / "agent.log").open("a") as log:
            argv = self.argv("serve", *words, *self.sets())
            self.daemon = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
        self.all.append(self.daemon)
        assert self.daemon.stdout is not None
        said = self.daemon.stdout.readline().strip()
        assert said == "on", f"{said}: {self.log()}"
        return self.daemon

    def log(self) -> str:
        """What it said."""
        return (self.folder / "agent.log").read_text()

    def do(self, *words: str, works: bool = True) -> str:
        """A subcommand."""
        done = subprocess.run(self.argv(*words), capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode == 0) == works, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        """`status --json`."""
        answer: dict[str, Any] = json.loads(self.do("--json", "status"))
        return answer

    def active(self) -> str:
        """Who holds uploads."""
        return str(self.status()["uplink"]["active"])

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """On the control socket."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.runtime / "control.sock"))
            s.sendall(json.dumps(question).encode() + b"\n")
            answer: dict[str, Any] = json.loads(s.makefile().readline())
            return answer

    def supervisor(self) -> int:
        """The process of its supervisor."""
        assert self.daemon is not None
        pid = self.daemon.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        (child,) = [
            int(one)
            for one in children
            if b"supervise" in Path(f"/proc/{one}/cmdline").read_bytes()
        ]
        return child

    def kill(self, supervisor: bool = False) -> None:
        """kill -9; of both, if told so."""
        assert self.daemon is not None
        if supervisor:
            os.kill(self.supervisor(), signal.SIGKILL)
        self.daemon.kill()
        self.daemon.wait(PATIENCE_S)

    def pending(self) -> str:
        """What the journal says is not undone."""
        journal = self.runtime / "journal.jsonl"
        return journal.read_text() if journal.exists() else ""

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(self.argv("off"), check=False, capture_output=True, timeout=PATIENCE_S)
        for process in self.all:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE_S)


def within(patience_s: float, wanted: Callable[[], bool]) -> float:
    """How long it took until something was so."""
    begun = time.monotonic()
    while not wanted():
        assert time.monotonic() - begun < patience_s, "it does not come"
        time.sleep(0.1)
    return time.monotonic() - begun


@contextlib.contextmanager
def phone(folder: Path, text: str, *settings: str) -> Iterator[tuple[Bed, Daemon]]:
    """A bed whose phone has a default route over the emulator, and an agent that is not started yet."""
    emulator = program("unbloat-emu", "UNBLOAT_EMU") or "unbloat-emu"
    with Bed(folder / "bed", text, emulator) as bed:
        space = bed.spaces["phone"]
        ip("-n", space, "route", "add", "default", "dev", bed.device)
        with Daemon(
            space, folder, f"uplink.telemetry={folder / 'modem.sock'}", *settings
        ) as daemon:
            yield bed, daemon


def reports(bed: Bed, folder: Path) -> Modem:
    """The bed's modem where the agent looks for it."""
    return relay(bed.out / "telemetry.sock", folder / "modem.sock")


def window(bed: Bed) -> int:
    """The window that the phone's upload is told: of the connection that has carried most."""
    argv = space_words(bed.spaces["phone"], "ss", "-HOtin", "state", "established")
    said = subprocess.run(argv, capture_output=True, text=True).stdout

    def number(line: str, key: str) -> int:
        found = re.search(rf"{key}:(\d+)", line)
        return int(found[1]) if found else 0

    told = [(number(line, "bytes_acked"), number(line, "snd_wnd")) for line in said.splitlines()]
    return max(told, default=(0, 0))[1]


def network(space: str) -> str:
    """All queue disciplines and filters of a namespace, without their counters."""
    said = subprocess.run(
        space_words(space, "tc", "qdisc", "show"), capture_output=True, text=True
    ).stdout
    devices = sorted(set(re.findall(r"dev (\S+)", said)))
    for device in devices:
        for way in ("ingress", "egress"):
            argv = space_words(space, "tc", "filter", "show", "dev", device, way)
            said += subprocess.run(argv, capture_output=True, text=True).stdout
    return said


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


def upload(bed: Bed, size: int, server: str) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """An upload whose every byte is checked: who sends, who takes."""
    taker = bed.start("server", sys.executable, "-c", TAKER)
    assert taker.stdout is not None
    taker.stdout.readline()
    return bed.start("phone", sys.executable, "-c", UPLOADER, server, str(size)), taker


def missing() -> list[str]:
    """What these tests need and is not here."""
    return [name for name in ("nsenter", "tc", "ss") if shutil.which(name) is None]
