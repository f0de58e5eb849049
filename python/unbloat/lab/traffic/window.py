"""A receive window that never changes, on a stock kernel.

signal: what the kernel made of the clamp · model: window = free buffer × scaling ratio, at most the clamp · action:
buffer and clamp set so that both are the window asked for.

Linux computes the window as `(sk_rcvbuf − used) × scaling_ratio / 256`, never above TCP_WINDOW_CLAMP. The ratio begins at
128 (`net/ipv4/tcp_input.c`, `tcp_measure_rcv_mss`) and is measured anew with the first full segments; then the clamp is
overwritten with the whole buffer's worth, which is how the new ratio is seen from here. SO_RCVBUF keeps autotuning away.

Differences from the simulator:
- The window starts at 64 KB at most and opens by two segments per segment received (`rcv_ssthresh`); there it is open from
  the first segment on.
- `rmem_max` is the buffer, and its ratio is the kernel's own, measured: the window may come to more than half of it.
  Only a `ratio` unlike the default is kept, by a clamp.
- A window below 1,152 bytes is 1,152 bytes (SOCK_MIN_RCVBUF / 2); steps are those of the window scale.
"""

from __future__ import annotations

import socket
from typing import Any

from unbloat.lab.traffic.sockets import SO_RCVBUFFORCE, TCP_WINDOW_CLAMP

_OWN_RATIO = 0.5
# Full-sized segments come within the first reads; later the ratio rarely moves, and the bins look after it.
_YOUNG_READS = 300


class Window:
    """Keeps one socket's window."""

    def __init__(self, law: dict[str, Any]) -> None:
        self._wanted: int | None = None
        self._buffer: int | None = None
        self._reads = 0
        if law["kind"] != "fixed":
            return
        if law.get("window"):
            self._wanted = int(law["window"])
        elif law.get("ratio", _OWN_RATIO) != _OWN_RATIO:
            self._wanted = int(law["rmem_max"] * law["ratio"])
        else:
            self._buffer = int(law["rmem_max"])

    def prepare(self, sock: socket.socket) -> None:
        """Before `connect` or `listen`: the window scale is chosen from this."""
        if self._buffer is not None:
            _set_buffer(sock, self._buffer)
        if self._wanted is not None:
            _set_buffer(sock, 2 * self._wanted)
            sock.setsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP, self._wanted)

    def on_read(self, sock: socket.socket) -> None:
        """Data was read: while the connection is young the ratio is still being found."""
        if self._wanted is not None and self._reads < _YOUNG_READS:
            self._reads += 1
            self.keep(sock)

    def keep(self, sock: socket.socket) -> None:
        """Where the kernel has moved the clamp, buffer and clamp follow the new ratio."""
        if self._wanted is None:
            return
        clamp = sock.getsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP)
        if clamp == max(self._wanted, 1152) or clamp <= 0:
            return
        buffer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        # Rounded up: a buffer that is worth a little more than the clamp is clamped.
        _set_buffer(sock, -(-self._wanted * buffer // clamp) + 2)
        sock.setsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP, self._wanted)


def _set_buffer(sock: socket.socket, size: int) -> None:
    # The kernel doubles what it is given.
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, -(-size // 2))
