"""Captures of pings and UDP, written by hand, so that every time in them is known."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

RAW_IP = 101
ICMP, UDP, ICMPV6 = 1, 17, 58


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def addresses(v6: bool, ends: tuple[int, int]) -> bytes:
    """Source and destination of hosts with these numbers."""
    if v6:
        return b"".join(bytes([0xFD, *[0] * 14, end]) for end in ends)
    return b"".join(bytes([10, 0, 0, end]) for end in ends)


def ip(v6: bool, ends: tuple[int, int], protocol: int, payload: bytes, ttl: int = 64) -> bytes:
    """A packet from the first host to the second."""
    if v6:
        head = struct.pack(">IHBB", 6 << 28, len(payload), protocol, ttl)
    else:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, ttl, protocol, 0)
    return head + addresses(v6, ends) + payload


def echo(
    v6: bool,
    reply: bool,
    sequence: int,
    identifier: int = 77,
    ttl: int = 64,
    host: int = 1,
    to: int = 2,
) -> bytes:
    """An echo request of a host to another, or its reply."""
    kind = (129 if reply else 128) if v6 else (0 if reply else 8)
    ends = (to, host) if reply else (host, to)
    body = struct.pack(">HH", identifier, sequence) + bytes(8)
    pseudo = addresses(v6, ends) + struct.pack(">II", len(body) + 4, ICMPV6) if v6 else b""
    sum_ = checksum(pseudo + struct.pack(">BBH", kind, 0, 0) + body)
    icmp = struct.pack(">BBH", kind, 0, sum_) + body
    return ip(v6, ends, ICMPV6 if v6 else ICMP, icmp, ttl)


def udp(ends: tuple[int, int], ports: tuple[int, int], payload: bytes) -> bytes:
    """A datagram in IPv4; its checksum is left out."""
    return ip(False, ends, UDP, struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload)


def write(path: Path, packets: Iterable[tuple[float, bytes]]) -> Path:
    """A capture of IP packets at these seconds."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, RAW_IP))
        for at, packet in packets:
            micros = round(at * 1e6)
            head = (micros // 1_000_000, micros % 1_000_000, len(packet), len(packet))
            file.write(struct.pack("<IIII", *head) + packet)
    return path
