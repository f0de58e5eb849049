"""Role `ping`: the system's ping, read line by line; those of one node in one process.

SPEC: `{"role":"ping", "address": OWN, "duration_s", "warmup_s", "bin_ms", "pings": [{"probe", "peer", "port", "out"}]}`

Differences from the simulator:
- A packet counts as lost where a later one was answered, or where it was sent two seconds before the end and had no answer;
  there it is known.
- When a packet without an answer was sent is reckoned from its neighbours: ping reports the time of
  answers only.
- ping waits in the kernel's ticks: the interval is up to two of them longer (50 ms becomes 55 on a kernel with 250). Intervals
  below 50 ms are made by our own packets, see datagrams.py.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from typing import Any

from unbloat.lab.traffic import sockets, subprocesses
from unbloat.lab.traffic.log import EventLog
from unbloat.lab.traffic.loop import READ, Loop, now_ns

_ANSWER = re.compile(rb"^\[(\d+)\.(\d{6})\] .* icmp_seq=(\d+) .*time=([\d.]+) ms(.*)")
_TOTAL = re.compile(rb"(\d+) packets transmitted")
_IP_ICMP = 28
_TIMEOUT_S = 2.0


class Ping:
    """One ping."""

    def __init__(self, loop: Loop, spec: dict[str, Any], own: str) -> None:
        self._loop, self._probe, self._spec, self._own = loop, spec["probe"], spec, own
        self._log = EventLog(spec["out"])
        self._process: Any = None
        self._rest = b""
        self._sent = 0
        self._complained = False
        # Sequence number, from 1: when it was sent (scenario time), and the round trip.
        self._answers: dict[int, tuple[float, float]] = {}
        self._high = 0
        self._last = 0

    def start(self) -> None:
        """At its time."""
        self._loop.at(self._loop.ns(self._probe["start_s"]), self._run)

    def _run(self) -> None:
        probe = self._probe
        argv = ["ping", "-D", "-n", "-I", self._own, "-i", f"{probe['every_s'][0]:.6f}"]
        argv += [
            "-s",
            str(max(probe["bytes"] - _IP_ICMP, 0)),
            "-Q",
            str(sockets.tos(probe["class"])),
        ]
        # A line as soon as it is there: ping writes to a pipe in lines since s20150815.
        process = subprocesses.start(
            [*argv, self._spec["peer"]], stdout=-1, stderr=-2, env={**os.environ, "LC_ALL": "C"}
        )
        assert process.stdout is not None
        self._process = process
        self._fd = process.stdout.fileno()
        fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) | os.O_NONBLOCK)
        self._loop.watch(self._fd, READ, self._on_output)

    def _on_output(self, _events: int) -> None:
        try:
            piece = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        if not piece:
            self._loop.forget(self._fd)
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._on_line(line)

    def _on_line(self, line: bytes) -> None:
        if line.startswith(b"ping: ") and not self._complained:
            # Once: it says so for every packet.
            self._complained = True
            self._log.error(line.decode(errors="replace"))
        if total := _TOTAL.search(line):
            self._sent = int(total[1])
        found = _ANSWER.match(line)
        if found is None or b"DUP" in found[5]:
            return
        realtime = int(found[1]) * 1_000_000_000 + int(found[2]) * 1000
        # The stamp is of the answer; between the two clocks lies the same now.
        monotonic = realtime - time.time_ns() + now_ns()
        low, rtt = int(found[3]), float(found[4])
        # 16 bits on the wire: the number goes on above them.
        if self._last - low > 0x8000:
            self._high += 0x10000
        self._last = low
        self._answers.setdefault(self._high + low, (self._loop.seconds(monotonic) - rtt / 1e3, rtt))

    def finish(self, end_s: float) -> None:
        """A row for every packet."""
        if self._process is not None:
            # SIGINT: it says how many it sent.
            process = self._process
            process.send_signal(signal.SIGINT)
            try:
                rest, _ = process.communicate(timeout=1)
            except Exception:  # whatever it was, it must be gone
                process.kill()
                rest = b""
            for line in (self._rest + (rest or b"")).split(b"\n"):
                self._on_line(line)
        last = max(self._answers, default=0)
        # Before the first answer and after the last one the interval is the one asked for; between, that which was kept.
        known = [(0, self._probe["start_s"] - self._probe["every_s"][0])]
        for number in range(1, max(self._sent, last) + 1):
            found = self._answers.get(number)
            if found is not None:
                known.append((number, found[0]))
            t_s, rtt = found if found is not None else (self._between(known[-1], number), None)
            if t_s >= end_s:
                break
            lost = rtt is None and (number < last or t_s < end_s - _TIMEOUT_S)
            self._log.write("probe", t_s=t_s, rtt_ms=rtt, owd_ms=None, lost=lost)
        self._log.close()

    def _between(self, before: tuple[int, float], number: int) -> float:
        after = next(
            (n for n in range(number + 1, self._last + self._high + 1) if n in self._answers), None
        )
        step: float = self._probe["every_s"][0]
        if after is not None:
            step = (self._answers[after][0] - before[1]) / (after - before[0])
        return before[1] + step * (number - before[0])


def run(spec: dict[str, Any]) -> None:
    """The whole life of the process."""
    loop = Loop()
    pings = [Ping(loop, ping, spec["address"]) for ping in spec["pings"]]
    if not loop.wait_for_start():
        return
    for ping in pings:
        ping.start()
    loop.run(loop.ns(spec["duration_s"]))
    end_s = min(loop.seconds(), spec["duration_s"])
    for ping in pings:
        ping.finish(end_s)
