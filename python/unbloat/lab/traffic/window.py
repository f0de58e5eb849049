"""A receive window that never changes, on a stock kernel.

signal: what the kernel made of the clamp · model: window = free buffer × scaling ratio, at most the clamp · action:
buffer and clamp set so that both are the window asked for.

Linux computes the window as `(sk_rcvbuf − used) × scaling_ratio / 256`, never above
TCP_WINDOW_CLAMP. The ratio begins at 128 (`net/ipv4/tcp_input.c`, `tcp_measure_rcv_mss`) and is
measured again with the first full segments; then the clamp is overwritten with the whole buffer's
worth, which is how the new ratio is seen from here. SO_RCVBUF keeps autotuning away.

Differences from the simulator:
- The window starts at 64 KB at most and opens by two segments per segment received (`rcv_ssthresh`), to somewhat more than
  half until the ratio is known; there it is open from the first segment on.
- `rmem_max` is the buffer, and its ratio is the kernel's own, measured: the window may come to more than half of it.
  Only a `ratio` unlike the default is kept, by a clamp.
- The buffer holds two segments and a 64th more than the window, or the kernel would not open it whole.
- A window below 64 KB that needs no window scale is a multiple of the segment size.
- A window below 1,152 bytes is 1,152 bytes (SOCK_MIN_RCVBUF / 2); steps are those of the window scale.
"""

from __future__ import annotations

import socket
from typing import Any

from unbloat.lab.traffic.sockets import SO_RCVBUFFORCE, TCP_WINDOW_CLAMP

_OWN_RATIO = 0.5
_LEAST = 1152
# Larger than any ratio measured (0.9 with segments put together on a veth): a buffer for it is never worth more than asked for.
_LARGEST_RATIO = 0.92
_TWO_SEGMENTS = 2896
# Full-sized segments come within the first reads; where none changed the ratio until then, it is the one that it began with.
_FOUND_AFTER_READS = 20
# Later the ratio rarely moves, and the bins look after it.
_YOUNG_READS = 300


class Window:
    """Keeps one socket's window."""

    def __init__(self, law: dict[str, Any]) -> None:
        self._wanted: int | None = None
        self._buffer: int | None = None
        self._ratio: float | None = None
        self._reads = 0
        if law["kind"] != "fixed":
            return
        if law.get("window"):
            self._wanted = max(int(law["window"]), _LEAST)
        elif law.get("ratio", _OWN_RATIO) != _OWN_RATIO:
            self._wanted = max(int(law["rmem_max"] * law["ratio"]), _LEAST)
        else:
            self._buffer = int(law["rmem_max"])

    def prepare(self, sock: socket.socket) -> None:
        """Before `connect` or `listen`: the window scale is chosen from this."""
        if self._buffer is not None:
            _set_buffer(sock, self._buffer)
        if self._wanted is not None:
            _set_buffer(sock, 2 * self._wanted)
            _set_clamp(sock, self._wanted)

    def on_open(self, sock: socket.socket) -> None:
        """The connection is open; no segment has come."""
        if self._wanted is not None:
            self._fit(sock, self._wanted, _LARGEST_RATIO)

    def take_over(self, sock: socket.socket, before: Window) -> None:
        """Another law on the live connection."""
        ratio = before._ratio or _clamp(sock) / max(_buffer(sock), 1)
        if self._buffer is not None:
            _set_buffer(sock, self._buffer)
            _set_clamp(sock, round(self._buffer * ratio))
        elif self._wanted is not None:
            self._ratio = ratio
            self._fit(sock, self._wanted, ratio)

    def on_read(self, sock: socket.socket) -> None:
        """Data was read: while the connection is young the ratio is still being found."""
        if self._wanted is None or self._reads >= _YOUNG_READS:
            return
        self._reads += 1
        self.keep(sock)
        if self._reads == _FOUND_AFTER_READS and self._ratio is None:
            self._ratio = _OWN_RATIO
            self._fit(sock, self._wanted, _OWN_RATIO)

    def keep(self, sock: socket.socket) -> None:
        """Where the kernel has moved the clamp, buffer and clamp follow the new ratio."""
        if self._wanted is None:
            return
        clamp = _clamp(sock)
        if clamp != self._wanted and clamp > 0:
            self._ratio = clamp / _buffer(sock)
            self._fit(sock, self._wanted, self._ratio)

    @staticmethod
    def _fit(sock: socket.socket, wanted: int, ratio: float) -> None:
        # The kernel opens the window no further than the segment in hand leaves room (tcp_grow_window), so that a buffer of
        # exactly this size would stop one short of it.
        _set_buffer(sock, int((wanted + wanted // 64 + _TWO_SEGMENTS) / ratio))
        _set_clamp(sock, wanted)


def _clamp(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP)


def _set_clamp(sock: socket.socket, size: int) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP, size)


def _buffer(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _set_buffer(sock: socket.socket, size: int) -> None:
    # The kernel doubles what it is given.
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, -(-size // 2))
