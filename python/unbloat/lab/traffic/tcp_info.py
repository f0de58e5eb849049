"""TCP_INFO and SO_MEMINFO of a socket, as a `sample`.

Offsets of `struct tcp_info` (Linux include/uapi/linux/tcp.h); the struct only ever grew at its end, so what lies beyond
the length that this kernel gave was not known to it and is null.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Any

SO_MEMINFO = 55
# tcp(7): bytes in the receive queue, not read yet.
_FIONREAD = 0x541B
# Long enough for every kernel so far (248 bytes in 6.18).
LENGTH = 512

_UNSET = 0x7FFFFFFF  # TCP_INFINITE_SSTHRESH
_NO_RATE = (1 << 64) - 1


def _u32(info: bytes, at: int) -> int | None:
    return struct.unpack_from("=I", info, at)[0] if at + 4 <= len(info) else None


def _u64(info: bytes, at: int) -> int | None:
    return struct.unpack_from("=Q", info, at)[0] if at + 8 <= len(info) else None


def _per(value: int | None, unit: float) -> float | None:
    """In another unit; the kernel's 0 means that there was no measurement yet."""
    return value / unit if value else None


def parse(info: bytes, memory: bytes = b"") -> dict[str, Any]:
    """The fields of a `sample` row."""
    unacked, sacked, lost, retrans = (_u32(info, at) or 0 for at in (24, 28, 32, 36))
    ssthresh = _u32(info, 76)
    rtt_min = _u32(info, 148)
    pacing = _u64(info, 104)
    delivery = _u64(info, 160)
    return {
        "cwnd_segments": _u32(info, 80),
        "ssthresh_segments": ssthresh if ssthresh is not None and ssthresh < _UNSET else None,
        "mss_bytes": _u32(info, 16),
        "srtt_ms": _per(_u32(info, 68), 1000),
        "rtt_min_ms": None if rtt_min is None or rtt_min == 0xFFFFFFFF else rtt_min / 1000,
        # tcp_packets_in_flight
        "in_flight_segments": max(unacked - sacked - lost + retrans, 0),
        "retransmits": _u32(info, 100),
        "pacing_bps": pacing * 8 if pacing and pacing != _NO_RATE else None,
        "rcv_rtt_ms": _per(_u32(info, 92), 1000),
        "rcv_space_bytes": _u32(info, 96),
        # SK_MEMINFO_WMEM_QUEUED and SK_MEMINFO_RMEM_ALLOC, both with the kernel's own overhead
        "sndbuf_used_bytes": _u32(memory, 20),
        "rcvbuf_used_bytes": _u32(memory, 0),
        "delivery_bps": delivery * 8 if delivery else None,
        "unacked_segments": unacked,
        "lost_segments": lost,
        "bytes_acked": _u64(info, 120),
        "bytes_received": _u64(info, 128),
        "not_sent_bytes": _u32(info, 144),
        "send_window_bytes": _u32(info, 228),
        "busy_s": _seconds(_u64(info, 168)),
        "rwnd_limited_s": _seconds(_u64(info, 176)),
        "sndbuf_limited_s": _seconds(_u64(info, 184)),
    }


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def read(sock: socket.socket) -> dict[str, Any] | None:
    """A sample of an open socket; None where the kernel no longer answers."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LENGTH)
        memory = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 64)
        unread = fcntl.ioctl(sock.fileno(), _FIONREAD, bytes(4))
    except OSError:
        return None
    return {**parse(info, memory), "unread_bytes": struct.unpack("=i", unread)[0]}
