"""What a scenario says about an end of a TCP connection, as socket options.

Differences from the simulator:
- `buffer` counts payload there; here `sk_sndbuf` is so much larger as full segments take memory. The kernel wakes a writer
  when a third of it is free, so that what is in flight goes up and down by a third; there it stands at the buffer's size.
- The data's class is the TOS of the sending socket, the ACKs' class that of the receiving one: a request has the class
  of ACKs, and an ACK of a request that of data (there it goes by what the packet is).
- What is written and not yet sent is held to a few dozen milliseconds' worth (TCP_NOTSENT_LOWAT), so that the application
  stops at its stop time; there the rest is thrown away.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

TCP_WINDOW_CLAMP = 10
TCP_CONGESTION = 13
TCP_NOTSENT_LOWAT = 25
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
SO_MAX_PACING_RATE = 47

# Class of the scenario as DSCP: EF, nothing, CS1.
_TOS = {0: 0xB8, 1: 0x00}
_TOS_LAST = 0x20

# Memory per byte of payload in full segments: 263,536 bytes in flight were seen to take 337,856 of `sk_wmem_queued`.
_PER_PAYLOAD = 1.28
# Without a size in the scenario: Linux's own maximum, in memory.
_WMEM_MAX = 4_194_304

# Names of the scenario that the kernel calls otherwise.
KERNEL_NAMES = {"newreno": "reno"}

# Far above any device's rate: paces without slowing down.
_PACED = (1 << 45).to_bytes(8, "little")


def tos(priority: int) -> int:
    """The TOS byte of a priority class."""
    return _TOS.get(priority, _TOS_LAST)


def send_memory(payload: int) -> int:
    """The send buffer that holds so much payload."""
    return payload if payload == _WMEM_MAX else round(payload * _PER_PAYLOAD)


def kernel_name(congestion: dict[str, Any]) -> str:
    """What the kernel calls a congestion control."""
    kind = str(congestion["kind"])
    return KERNEL_NAMES.get(kind, kind)


def set_congestion(sock: socket.socket, name: str) -> str:
    """Sets it and reads back what really runs."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())
    except OSError as error:
        why = (
            "is not in this kernel"
            if error.errno == errno.ENOENT
            else f"was refused ({error.strerror})"
        )
        raise OSError(error.errno, f"congestion control {name} {why}") from None
    return congestion_of(sock)


def congestion_of(sock: socket.socket) -> str:
    """What really runs."""
    return sock.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16).split(b"\0")[0].decode()


def _wmem_max() -> int:
    try:
        with open("/proc/sys/net/ipv4/tcp_wmem", encoding="ascii") as file:
            return int(file.read().split()[2])
    except (OSError, ValueError, IndexError):
        return 0


def prepare(sock: socket.socket, flow: dict[str, Any], side: str) -> None:
    """All that must be set before `connect` or `listen`; an accepted socket inherits it."""
    sender = flow["sender"]
    set_congestion(sock, kernel_name(sender["congestion"]))
    priority = sender["class"] if side == "sender" else flow["receiver"]["ack_class"]
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos(priority))
    # Small writes go at once, as in the simulator: it knows no Nagle.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # TCP_MAXSEG counts the timestamps option, which the scenario's `mss` does not.
    mss = sender["mss_bytes"] + (12 if sender["timestamps"] else 0)
    if mss != 1460:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
    if side != "sender":
        return
    memory = send_memory(sender["buffer_bytes"])
    if memory != _wmem_max():
        # The kernel doubles what it is given.
        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, max(memory // 2, 1))
    if sender["pacing"]:
        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, _PACED)


def against_route(sock: socket.socket, flow: dict[str, Any]) -> None:
    """A route's own congestion control wins over the socket's when it connects or is accepted: set again."""
    set_congestion(sock, kernel_name(flow["sender"]["congestion"]))


def name_of(address: tuple[str, int]) -> str:
    """`a:p`."""
    return f"{address[0]}:{address[1]}"
