"""One end of a TCP connection: writes what is to be sent, reads by its profile, logs its samples."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from unbloat.lab.traffic import sockets, tcp_info
from unbloat.lab.traffic.log import EventLog
from unbloat.lab.traffic.loop import READ, WRITE, Loop, now_ns
from unbloat.lab.traffic.processor import COUNT, Group
from unbloat.lab.traffic.window import Window

ENDLESS = 1 << 62

# One system call's worth: large enough for a gigabit from Python, small enough that others get their turn.
_CHUNK = 1 << 18
_NOTHING = memoryview(bytes(_CHUNK))
# The kernel takes a call's worth whole as long as its buffer is not full: of a small one only a piece may come too much.
_PIECES, _LEAST_CHUNK = 16, 1 << 12
_INTO = bytearray(1 << 20)

# Written and not sent: this many seconds of the measured rate, between these bounds. The kernel asks for more when half of
# it is gone, so on a busy machine this program may be 25 ms late before the connection feels it. In the first second, while
# the rate is being found, it only grows.
_AHEAD_S = 0.05
_AHEAD_FIRST = 1 << 18
_AHEAD_LEAST = 1 << 14
_AHEAD_MOST = 1 << 23
_AHEAD_GROWS_NS = 1_000_000_000


class Reading:
    """How fast the application reads: rates per slot, every tick what the rate allows (as the simulator's receiver)."""

    def __init__(self, profile: dict[str, Any], opened_ns: int) -> None:
        self._rates = profile["rates_bps"]
        self._slot_ns = max(round(profile["slot_s"] * 1e9), 1)
        self.tick_ns = max(round(profile["tick_s"] * 1e9), 1)
        self._opened_ns = opened_ns
        self._credit = 0.0
        self._ticks = 0

    def earned(self) -> int:
        """Bytes that the tick which now ends allows; the rate is that of the slot in which it began."""
        slot = self._ticks * self.tick_ns // self._slot_ns % len(self._rates)
        self._ticks += 1
        self._credit += self._rates[slot] * self.tick_ns / 8e9
        whole = int(self._credit)
        self._credit -= whole
        return whole

    def missed(self) -> None:
        """There was less to read than allowed: what could not be read is not saved up."""
        self._credit = 0.0


class Stream:
    """One end. `on_bytes(stream, n)` is called with what was read, `on_end(stream)` once when it is over."""

    def __init__(
        self,
        loop: Loop,
        log: EventLog,
        flow: dict[str, Any],
        side: str,
        sock: socket.socket,
        group: Group | None = None,
    ) -> None:
        self.loop, self.log, self.flow, self.side, self.sock = loop, log, flow, side, sock
        self.local = self.remote = ""
        self.opened_ns = 0
        self.pending = 0
        self.closing = False
        self.open = False
        self.over = False
        self.window = Window(flow["receiver"]["window"]) if side == "receiver" else None
        self.on_bytes: Callable[[Stream, int], None] = lambda _stream, _n: None
        self.on_open: Callable[[Stream], None] = lambda _stream: None
        self.on_end: Callable[[Stream], None] = lambda _stream: None
        # The first bytes are kept where an application asks for them; all others are not even
        # copied out of the kernel.
        self.head_wanted = 0
        self.head = b""
        # Left to the application: when it asked, how much came since, whether that was all.
        self.asked_ns = 0
        self.got = 0
        self.done = False
        self._reading: Reading | None = None
        # A process that reads in place of this one, where its processor limits it, and its pipe.
        self._group = group
        self._reader: tuple[int, int] | None = None
        self._writing = False
        self._read_over = False
        self._shut = False
        self._ahead = 0
        self._chunk = min(_CHUNK, max(flow["sender"]["buffer_bytes"] // _PIECES, _LEAST_CHUNK))
        sock.setblocking(False)

    # ------------------------------------------------------------------------------------------- opening, closing

    def connect(self, address: tuple[str, int], own: str) -> None:
        """Opens; `on_open` follows, or `on_end`."""
        self.sock.bind((own, 0))
        self.sock.connect_ex(address)
        self.loop.watch(self.sock.fileno(), WRITE, self._on_connected)

    def _on_connected(self, _events: int) -> None:
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if self.closing:
            self.drop()
            return
        if error:
            self._fail(OSError(error, f"no connection: {os.strerror(error)}"))
            return
        self.begin()

    def begin(self) -> None:
        """The connection is open."""
        self.open = True
        self.opened_ns = now_ns()
        try:
            self.local, self.remote = (
                sockets.name_of(self.sock.getsockname()),
                sockets.name_of(self.sock.getpeername()),
            )
        except OSError as error:
            self._fail(error)
            return
        self._set_ahead(_AHEAD_FIRST)
        if self.window is not None:
            self.window.on_open(self.sock)
        self.log.write(
            "connection",
            local=self.local,
            remote=self.remote,
            t_s=self.loop.seconds(self.opened_ns),
            congestion=sockets.congestion_of(self.sock),
            transfer=self.flow["name"],
            data="local" if self.side == "sender" else "remote",
        )
        profile = self.flow["receiver"]["read"] if self.side == "receiver" else None
        if self._group is not None:
            self._reader = self._group.reader(self.sock)
            self.loop.watch(self._reader[1], READ, self._on_counts)
        elif profile:
            self._reading = Reading(profile, self.opened_ns)
            self._arm_reading(1)
        self._watch()
        self.on_open(self)

    def close(self) -> None:
        """Writes no more once everything is written; the connection is over when the peer has closed, too."""
        self.closing = True
        self._pump()

    def drop(self) -> None:
        """Over, now."""
        if self.over:
            return
        if self.open:
            self.sample()
        self.over = True
        self._end_reader()
        self.loop.forget(self.sock.fileno())
        self.sock.close()
        self.on_end(self)

    def _fail(self, error: OSError) -> None:
        self.log.error(f"{self.local or self.side}: {error.strerror or error}")
        self.drop()

    # ---------------------------------------------------------------------------------------------------- writing

    def write(self, count: int) -> None:
        """So many more bytes are to be sent."""
        self.pending += count
        self._pump()

    def write_bytes(self, data: bytes) -> None:
        """These very bytes; for little ones, at the beginning."""
        try:
            self.sock.send(data)
        except OSError as error:
            self._fail(error)

    def _pump(self) -> None:
        if self.over or not self.open:
            return
        try:
            # A few chunks, then the others' turn: the loop comes back as long as a third of the buffer is free.
            for _ in range(4 * _CHUNK // self._chunk):
                if not self.pending:
                    break
                self.pending -= self.sock.send(_NOTHING[: min(self.pending, self._chunk)])
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)
            return
        if not self.pending and self.closing and not self._shut:
            self._shut = True
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError:
                self.drop()
                return
            if self._read_over:
                self.drop()
                return
        if (self.pending > 0) != self._writing:
            self._watch()

    def _watch(self) -> None:
        self._writing = self.pending > 0
        reads = self._reads_itself and not self._read_over
        events = (READ if reads else 0) | (WRITE if self._writing else 0)
        self.loop.watch(self.sock.fileno(), events, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & ~WRITE:
            if self._reads_itself:
                self._drain()
            else:
                # Reset or closed: the next tick or the process that reads finds out, and until then epoll would say so
                # again and again.
                self.loop.forget(self.sock.fileno())
                return
        if events & WRITE and not self.over:
            self._pump()

    def _set_ahead(self, size: int) -> None:
        self._ahead = size
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, size)
        except OSError:
            self.drop()

    # ---------------------------------------------------------------------------------------------------- reading

    def _take(self, most: int) -> int:
        """Reads up to so many bytes; how many, or -1 where there were none."""
        try:
            if self.head_wanted > len(self.head):
                piece = self.sock.recv(min(most, self.head_wanted - len(self.head)))
                self.head += piece
                count = len(piece)
            else:
                # MSG_TRUNC: counted and thrown away without a copy (tcp(7)).
                count = self.sock.recv_into(_INTO, min(most, len(_INTO)), socket.MSG_TRUNC)
        except BlockingIOError:
            return -1
        except OSError as error:
            if not self.closing:
                self._fail(error)
            else:
                self.drop()
            return -1
        if count == 0:
            self._on_peer_closed()
            return -1
        if self.window is not None:
            self.window.on_read(self.sock)
        return count

    def _drain(self) -> None:
        count = self._take(len(_INTO))
        if count > 0:
            self.on_bytes(self, count)

    def _arm_reading(self, tick: int) -> None:
        reading = self._reading
        assert reading is not None

        def read() -> None:
            if self.over:
                return
            left = reading.earned()
            while left > 0:
                count = self._take(left)
                if count < 0:
                    reading.missed()
                    break
                left -= count
                self.on_bytes(self, count)
            if not self.over and not self._read_over:
                self._arm_reading(tick + 1)

        self.loop.at(self.opened_ns + tick * reading.tick_ns, read)

    @property
    def _reads_itself(self) -> bool:
        return self._reading is None and self._group is None

    def _on_counts(self, _events: int) -> None:
        """What the process that reads has taken since."""
        assert self._reader is not None
        data = os.read(self._reader[1], COUNT.size * 512)
        if not data:
            self._end_reader()
            if self.closing:
                self.drop()
            else:
                self._fail(OSError("the process that reads has ended"))
        for (count,) in COUNT.iter_unpack(data):
            if count == 0:
                self._end_reader()
                self._on_peer_closed()
            else:
                if self.window is not None:
                    self.window.on_read(self.sock)
                self.on_bytes(self, count)
            if self.over:
                return

    def _end_reader(self) -> None:
        if self._reader is not None and self._group is not None:
            pid, counts = self._reader
            self._reader = None
            self.loop.forget(counts)
            os.close(counts)
            self._group.end(pid)

    def _on_peer_closed(self) -> None:
        self._read_over = True
        if self._shut:
            self.drop()
            return
        # The peer closed: close, too, once everything is written.
        self.closing = True
        if self.pending >= ENDLESS // 2:
            self.pending = 0
        self._watch()
        self._pump()

    # --------------------------------------------------------------------------------------------------- measuring

    def sample(self) -> None:
        """TCP_INFO and SO_MEMINFO, now."""
        if not self.open or self.over:
            return
        row = tcp_info.read(self.sock)
        if row is None:
            return
        self.log.write(
            "sample", local=self.local, remote=self.remote, t_s=self.loop.seconds(), **row
        )
        if self.window is not None:
            self.window.keep(self.sock)
        if self.pending and row["delivery_bps"]:
            ahead = max(_AHEAD_LEAST, min(int(row["delivery_bps"] / 8 * _AHEAD_S), _AHEAD_MOST))
            if now_ns() - self.opened_ns < _AHEAD_GROWS_NS:
                ahead = max(ahead, self._ahead)
            self._set_ahead(ahead)

    def switch_congestion(self, name: str) -> None:
        """Another congestion control takes over on the live connection."""
        if self.over:
            return
        try:
            now_runs = sockets.set_congestion(self.sock, name)
        except OSError as error:
            self.log.error(str(error.strerror))
            return
        self.log.write(
            "congestion",
            local=self.local,
            remote=self.remote,
            t_s=self.loop.seconds(),
            congestion=now_runs,
        )

    def switch_window(self, law: dict[str, Any]) -> None:
        """Another window law takes over on the live connection."""
        if self.over or self.window is None:
            return
        before, self.window = self.window, Window(law)
        self.window.take_over(self.sock, before)
