"""Role `player`: adaptive video over HTTP, from nginx; one process per video flow.

SPEC: `{"role":"player", "address": OWN, "duration_s", "warmup_s", "bin_ms", "flow", "peer", "port", "out", "work", "notes":
[TEXT]}`

The law is that of the simulator's `apps/video.rs`: throughput from an answer's first bytes to its last, smoothed over
segments, a share of it used, the buffer filled up to a limit; playing stops when it runs dry and goes on when the start
buffer is there again. The buffer is reckoned, nothing is shown.

Differences from the simulator:
- An answer has nginx's header (about 200 bytes) besides the segment; the estimate counts the segment alone.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from unbloat.lab.traffic import sockets
from unbloat.lab.traffic.log import EventLog
from unbloat.lab.traffic.loop import Loop, now_ns
from unbloat.lab.traffic.page import segment_bytes
from unbloat.lab.traffic.stream import Stream

# Weight of the newest segment in the throughput estimate; the simulator's.
_NEWEST = 0.3
# Bytes of a request with its headers; the simulator's.
_REQUEST = 400
# What comes in less than this shows no rate (ExoPlayer's clock).
_SHORTEST_NS = 1_000_000
_HEADER_MOST = 4096

Report = Callable[[str, float], None]


class Player:
    """Which segment, when, and what the viewer sees of it; times are nanoseconds of any clock."""

    def __init__(self, app: dict[str, Any], report: Report) -> None:
        self._ladder = app["ladder_bps"]
        self.segment_s = app["segment_s"]
        self._segment: int = round(app["segment_s"] * 1e9)
        self._start_buffer: int = round(app["start_buffer_s"] * 1e9)
        self._max_buffer: int = round(app["max_buffer_s"] * 1e9)
        self._safety = app["safety"]
        self._report = report
        self._started = self._at = 0
        self._buffered = 0
        self._playing = False
        self._begun = False
        self._stalled_since: int | None = None
        self._estimate: float | None = None
        self._first: int | None = None
        self.rate: int = self._ladder[0]

    def start(self, now: int) -> None:
        """The viewer presses play."""
        self._started = self._at = now

    def _play(self, now: int) -> None:
        passed = now - self._at
        self._at = now
        if not self._playing:
            return
        if passed >= self._buffered:
            self._stalled_since = now - (passed - self._buffered)
            self._playing = False
            self._buffered = 0
        else:
            self._buffered -= passed

    def ask(self, now: int) -> int:
        """0: the next segment is asked for, at `rate`. Else so long until there is room for it."""
        self._play(now)
        if self._buffered + self._segment > self._max_buffer and self._playing:
            return max(self._buffered + self._segment - self._max_buffer, 1_000_000)
        if self._estimate is not None:
            budget = self._estimate * self._safety
            self.rate = next(
                (rate for rate in reversed(self._ladder) if rate <= budget), self._ladder[0]
            )
        self._first = None
        self._report("bitrate_bps", self.rate)
        return 0

    def on_first_bytes(self, now: int) -> None:
        """The answer begins."""
        if self._first is None:
            self._first = now

    def on_segment(self, now: int, size: int) -> None:
        """A segment has come whole."""
        span = now - (now if self._first is None else self._first)
        if span >= _SHORTEST_NS:
            seen = size * 8e9 / span
            self._estimate = (
                seen
                if self._estimate is None
                else self._estimate + _NEWEST * (seen - self._estimate)
            )
        self._play(now)
        self._buffered += self._segment
        if not self._playing and self._buffered >= self._start_buffer:
            self._playing = True
            if self._stalled_since is not None:
                self._report("stall_ms", (now - self._stalled_since) / 1e6)
                self._stalled_since = None
            elif not self._begun:
                self._begun = True
                self._report("startup_ms", (now - self._started) / 1e6)

    def end(self, now: int) -> None:
        """A stall that is still on is reported as far as it has come."""
        self._play(now)
        if self._stalled_since is not None:
            self._report("stall_ms", (now - self._stalled_since) / 1e6)
        elif not self._begun:
            self._report("startup_unfinished_ms", (now - self._started) / 1e6)


class Session:
    """A player on a connection."""

    def __init__(self, loop: Loop, log: EventLog, spec: dict[str, Any]) -> None:
        self._loop, self._log, self._spec, self._flow = loop, log, spec, spec["flow"]
        self._player = Player(self._flow["app"], self._report)
        self._stream: Stream | None = None
        self._started = False
        self._stopped = False
        self._size = self._left = 0

    def _report(self, name: str, value: float) -> None:
        t_s = self._loop.seconds()
        if t_s >= self._spec["warmup_s"]:
            self._log.write("app", t_s=t_s, name=name, value=value)

    def start(self) -> None:
        """The viewer presses play."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        stream = Stream(self._loop, self._log, self._flow, "receiver", sock)
        try:
            sockets.prepare(sock, self._flow, "receiver")
        except OSError as error:
            self._log.error(f"{error.strerror}; this flow does not run")
            return
        assert stream.window is not None
        stream.window.prepare(sock)
        stream.on_open = lambda _stream: self._ask()
        stream.on_bytes = self._on_bytes
        stream.on_end = lambda _stream: self._on_end()
        self._stream = stream
        self._started = True
        self._player.start(now_ns())
        stream.connect((self._spec["peer"], self._spec["port"]), self._spec["address"])

    def _ask(self) -> None:
        stream = self._stream
        if stream is None or stream.over or self._stopped:
            return
        wait = self._player.ask(now_ns())
        if wait:
            self._loop.at(now_ns() + wait, self._ask)
            return
        rate = self._player.rate
        self._size = segment_bytes(rate, self._player.segment_s)
        self._left = -1
        stream.head, stream.head_wanted = b"", _HEADER_MOST
        head = f"GET /r{rate} HTTP/1.1\r\nHost: {self._spec['peer']}:{self._spec['port']}\r\nX-Padding: "
        padding = max(_REQUEST - len(head) - 4, 0)
        stream.write_bytes(f"{head}{'x' * padding}\r\n\r\n".encode("ascii"))

    def _on_bytes(self, stream: Stream, count: int) -> None:
        now = now_ns()
        self._player.on_first_bytes(now)
        if self._left < 0:
            end = stream.head.find(b"\r\n\r\n")
            if end < 0:
                return
            if b" 200 " not in stream.head[:15]:
                status = stream.head.split(b"\r\n")[0].decode(errors="replace")
                self._log.error(f"segment refused: {status}")
                stream.drop()
                return
            self._left = self._size - (len(stream.head) - end - 4)
            # The rest is counted only.
            stream.head_wanted = 0
        else:
            self._left -= count
        if self._left <= 0:
            self._player.on_segment(now, self._size)
            self._ask()

    def _on_end(self) -> None:
        if not self._stopped and self._loop.seconds() < self._spec["duration_s"]:
            self._log.error("the connection ended")

    def sample(self) -> None:
        """The connection, now."""
        if self._stream is not None:
            self._stream.sample()
        self._log.flush()

    def stop(self) -> None:
        """The viewer goes away."""
        self._stopped = True
        if self._stream is not None:
            self._stream.close()

    def finish(self) -> None:
        """The scenario is over."""
        self.sample()
        if self._started and not self._stopped:
            self._player.end(now_ns())


def run(spec: dict[str, Any]) -> None:
    """The whole life of the process."""
    loop = Loop()
    log = EventLog(spec["out"])
    for note in spec["notes"]:
        log.error(note)
    session = Session(loop, log, spec)
    if loop.wait_for_start():
        flow = spec["flow"]
        loop.at(loop.ns(flow["start_s"]), session.start)
        if flow["stop_s"] is not None:
            loop.at(loop.ns(flow["stop_s"]), session.stop)
        bin_ns = max(round(spec["bin_ms"] * 1e6), 1_000_000)
        loop.every(loop.ns(0) + bin_ns, bin_ns, session.sample)
        loop.run(loop.ns(spec["duration_s"]))
        session.finish()
    log.close()
