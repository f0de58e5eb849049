"""TCP packets of a phone as records of a pcap file, without payload: the records are as of a capture with a snap length.

Times are whole microseconds since the epoch, as pcap stores them. The checksum of IP is right; that of TCP is 0, as where
the network card computes it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# Raw IP, as of the interface of a modem (LINKTYPE_RAW).
LINKTYPE_RAW = 101
# IPv4 and TCP with the options of a SYN.
SNAP_BYTES = 128
# Payload of a full segment on a path of 1500 bytes without options.
MSS_BYTES = 1460
FIN, SYN, PUSH, ACK = 0x01, 0x02, 0x08, 0x10
# MSS 1460, then a window scale of 8: 65535 × 256 bytes, so that no window limits what is made here.
SYN_OPTIONS = bytes.fromhex("020405b4" + "01030308")
FILE_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, SNAP_BYTES, LINKTYPE_RAW)
RECORD = struct.Struct("<IIII")
IP = struct.Struct("!BBHHHBBH4s4s")
TCP_HEADER = struct.Struct("!HHIIBBHHH")
IP_WORDS = struct.Struct("!10H")
# IPv4 without options, don't fragment, TTL 64, TCP.
VERSION, FRAGMENT, TTL, TCP = 0x45, 0x4000, 64, 6
IP_BYTES, TCP_BYTES = 20, 20

Record = tuple[int, bytes]
"""Time in µs, and header and bytes of the record."""


class Acked(NamedTuple):
    """An ACK of the phone, as it was decided."""

    at_us: int
    delay_ms: float
    """Since the newest data that it acknowledges had arrived."""


@dataclass
class End:
    """One end of a connection."""

    address: bytes
    port: int
    next_seq: int
    ident: int = 0


@dataclass
class Talk:
    """The packets of one connection in the order in which they were made; `records` are sorted by the file's writer."""

    phone: End
    server: End
    records: list[Record] = field(default_factory=list)
    data: list[tuple[int, bool, int]] = field(default_factory=list)
    """Of each packet with payload: time in µs, whether from the phone, bytes."""
    acks: list[Acked] = field(default_factory=list)
    """ACKs of the server's data."""

    def send(self, at_us: int, up: bool, size_bytes: int, flags: int = ACK) -> None:
        """A packet with so much payload that acknowledges all that the other end has sent so far."""
        one, other = (self.phone, self.server) if up else (self.server, self.phone)
        options = SYN_OPTIONS if flags & SYN else b""
        head_bytes = IP_BYTES + TCP_BYTES + len(options)
        total = head_bytes + size_bytes
        acked = other.next_seq if flags & ACK else 0
        one.ident = (one.ident + 1) & 0xFFFF
        fields = [VERSION, 0, total, one.ident, FRAGMENT, TTL, TCP, 0, one.address, other.address]
        fields[7] = header_checksum(IP.pack(*fields))
        headers = IP.pack(*fields) + TCP_HEADER.pack(
            one.port,
            other.port,
            one.next_seq,
            acked,
            (TCP_BYTES + len(options)) << 2,
            flags,
            65535,
            0,
            0,
        )
        record = RECORD.pack(at_us // 1_000_000, at_us % 1_000_000, head_bytes, total)
        self.records.append((at_us, record + headers + options))
        step = size_bytes + bool(flags & (SYN | FIN))
        one.next_seq = (one.next_seq + step) & 0xFFFFFFFF
        if size_bytes:
            self.data.append((at_us, up, size_bytes))


def header_checksum(header: bytes | bytearray) -> int:
    """Of an IPv4 header without options, whose field for it is 0 (RFC 1071)."""
    total: int = sum(IP_WORDS.unpack(header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def write_pcap(path: Path, records: Iterable[Record]) -> int:
    """A file of the records, sorted by time; its first time in µs. Packets of one time stay in their order."""
    ordered = sorted(records, key=lambda record: record[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(FILE_HEADER + b"".join(data for _, data in ordered))
    return ordered[0][0]
