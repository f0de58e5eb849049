"""A capture of this host with a ping beside it, for a bounded time: what `unbloat record FILE` does.

signal: the packets of the interface that leads to the pinged host, and the ping's answers ·
model: the first seconds are those before the transfer, the rest is under load ·
action: a capture file; the ping's delay before and under load, and how many packets the kernel dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from unbloat.errors import UnbloatError
from unbloat.recording.guide import BUFFER_KIB, KINDS, SNAP

QUIET_S = 5.0
"""Before the transfer: 25 pings, enough for a median of the RTT without load."""
MIN_S, MAX_S = 10.0, 3600.0
"""Below, hardly more than the quiet seconds remain; above, a rotating capture is better."""
PING_EVERY_S = 0.2
"""iputils refuses shorter intervals to users without root."""
LISTENS_S = 10.0
"""tcpdump opens its interface within a second; a loaded router takes longer."""
ENDS_S = 5.0
"""After the signal, tcpdump writes what it has."""
FLUSH_S = 1.2
"""The kernel hands packets over once a second."""

ANSWER = re.compile(r"^\[(\d+\.\d+)\] .*icmp_seq=(\d+) .*time=([\d.]+) ms")
SENT = re.compile(r"^(\d+) packets transmitted")
CAPTURED = re.compile(r"^(\d+) packets? captured", re.M)
DROPPED = re.compile(r"^(\d+) packets? dropped by (?:kernel|interface)", re.M)
PACKAGES = {"tcpdump": "tcpdump", "ping": "iputils-ping", "ip": "iproute2"}


@dataclass
class Pings:
    """What the ping said: RTTs in ms before the transfer and after, and how many had no answer."""

    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    sent: int = 0

    @property
    def lost(self) -> int:
        """Without an answer; the last one may still be on its way."""
        return max(self.sent - 1 - len(self.before) - len(self.after), 0)


@dataclass
class Recording:
    """What was recorded."""

    path: Path
    interface: str
    seconds: float
    packets: int
    dropped: int
    pings: Pings


def record(
    path: Path,
    seconds: float,
    host: str,
    interface: str | None,
    began: Callable[[str], None],
    now: Callable[[], None],
) -> Recording:
    """Captures into `path`. `began` is called with the interface once packets are captured, `now` when the transfer may begin.

    Ctrl-C ends the recording earlier; what was captured until then stays.
    """
    if not MIN_S <= seconds <= MAX_S:
        raise UnbloatError(f"a recording has {MIN_S:g} to {MAX_S:g} s, not {seconds:g}")
    if not sys.platform.startswith("linux"):
        raise UnbloatError("records on Linux only; without FILE it shows what to type here")
    for program, package in PACKAGES.items():
        if shutil.which(program) is None:
            raise UnbloatError(f"needs the program {program} (package {package})")
    address = address_of(host)
    device = interface or interface_to(address)
    with path.open("wb") as file, contextlib.ExitStack() as stack:
        stack.callback(remove_if_empty, path)
        for_the_caller(path)
        capture = stack.enter_context(Capture(device, file))
        began(device)
        # It ends by itself, whatever becomes of this process.
        ping = stack.enter_context(Ping(address, seconds))
        start = time.time()
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(QUIET_S)
            now()
            capture.wait(start + seconds)
        took = time.time() - start
        pings = ping.end(start + QUIET_S)
        packets, dropped = capture.end()
    return Recording(path, device, took, packets, dropped, pings)


def address_of(host: str) -> str:
    """The address of a host by its name; of an address itself."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)[0][4][0])
    except OSError as error:
        raise UnbloatError(f"--ping {host}: {error.strerror or error}") from None


def interface_to(host: str) -> str:
    """The interface over which this host reaches another one."""
    asked = subprocess.run(
        ["ip", "-j", "route", "get", host], capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        reason = (asked.stderr.strip().splitlines() or ["no route"])[-1].removeprefix("Error: ")
        raise UnbloatError(f"no interface leads to {host}: {reason.rstrip('.').lower()}")
    device: str = json.loads(asked.stdout)[0]["dev"]
    return device


def for_the_caller(path: Path) -> None:
    """A file made with sudo belongs to who called sudo."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if user and group and os.geteuid() == 0:
        with contextlib.suppress(OSError):
            os.chown(path, int(user), int(group))


def remove_if_empty(path: Path) -> None:
    """What failed before the first packet leaves no file."""
    if path.stat().st_size == 0:
        path.unlink()


def dying_with_us(argv: list[str]) -> list[str]:
    """The command, killed when this process dies."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL", "--", *argv] if found else argv


class Capture:
    """tcpdump. It writes to a file that we opened, since some systems confine where it writes."""

    def __init__(self, device: str, file: IO[bytes]) -> None:
        argv = ["tcpdump", "-i", device, "-n", "-s", str(SNAP), "-B", str(BUFFER_KIB)]
        if os.geteuid() == 0:
            # A change of user would void the signal that ends it with this process.
            argv += ["-Z", "root"]
        self.device = device
        self.process = subprocess.Popen(
            dying_with_us([*argv, "-U", "-w", "-", KINDS]),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            # Ctrl-C is for us; tcpdump is ended in its turn.
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        self.said = ""

    def __enter__(self) -> Capture:
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        deadline = time.monotonic() + LISTENS_S
        while "listening on" not in self.said:
            self.read()
            if self.process.poll() is not None:
                self.read()
                raise UnbloatError(self.reason())
            if time.monotonic() > deadline:
                self.__exit__()
                raise UnbloatError(f"tcpdump does not listen after {LISTENS_S:g} s")
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def read(self) -> None:
        """What it said since."""
        assert self.process.stderr is not None
        while piece := self.process.stderr.read():
            self.said += piece.decode(errors="replace")

    def reason(self) -> str:
        """Why it ended, in one line."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        text = lines[-1].removeprefix("tcpdump: ") if lines else "tcpdump ended"
        if "permission" in self.said.lower():
            return f"capturing needs root, use sudo: {text}"
        return f"tcpdump on {self.device}: {text.strip('()')}"

    def wait(self, until: float) -> None:
        """Until that time, or until it ends."""
        while (left := until - time.time()) > 0:
            if self.process.poll() is not None:
                self.read()
                raise UnbloatError(self.reason())
            time.sleep(min(left, 0.2))

    def end(self) -> tuple[int, int]:
        """Ends it; packets captured, and packets dropped."""
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(FLUSH_S)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                raise UnbloatError("tcpdump does not end") from None
        self.read()
        counted = CAPTURED.search(self.said)
        if self.process.returncode != 0 or counted is None:
            raise UnbloatError(self.reason())
        return int(counted[1]), sum(int(count) for count in DROPPED.findall(self.said))


class Ping:
    """The system's ping. It ends after its time by itself."""

    def __init__(self, host: str, seconds: float) -> None:
        argv = ["ping", "-n", "-D", "-i", f"{PING_EVERY_S:g}", "-w", str(int(seconds) + 1), host]
        self.process = subprocess.Popen(
            dying_with_us(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )

    def __enter__(self) -> Ping:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def end(self, loaded_from: float) -> Pings:
        """Ends it; what it said, by the time at which each ping was sent."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=ENDS_S)
        return read_pings(output, loaded_from)


def read_pings(output: str, loaded_from: float) -> Pings:
    """The output of ping -D. A line has the time of the answer; the ping was sent one RTT before."""
    pings = Pings()
    for line in output.splitlines():
        if answer := ANSWER.match(line):
            rtt = float(answer[3])
            sent = float(answer[1]) - rtt / 1000
            (pings.before if sent < loaded_from else pings.after).append(rtt)
        elif total := SENT.match(line):
            pings.sent = int(total[1])
    return pings


def median(values: list[float]) -> float | None:
    """None of nothing."""
    return statistics.median(values) if values else None
