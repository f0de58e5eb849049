"""tcpdump's pcap to pcapng: names the interface, keeps the drop count, cuts packets to a smaller snap length.

Only what our own captures need: little-endian microsecond pcap in, one interface out.
"""

from __future__ import annotations

import struct
from pathlib import Path


def block(kind: int, body: bytes) -> bytes:
    """One block: type, length, body padded to 32 bits, length again."""
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


def option(code: int, value: bytes) -> bytes:
    """One option, padded to 32 bits."""
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def convert(pcap: Path, interface: str, comment: str, snap: int) -> bytes:
    """The pcapng form of a pcap file."""
    raw = pcap.read_bytes()
    magic, _, _, _, _, _, linktype = struct.unpack_from("<IHHiIII", raw)
    if magic != 0xA1B2C3D4:
        raise ValueError(
            f"{pcap}: magic {magic:#x} is not that of a little-endian microsecond pcap"
        )
    ending = option(0, b"")
    section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
    section += option(1, comment.encode()) + option(4, b"unbloat samples/make") + ending
    described = (
        struct.pack("<HHI", linktype, 0, snap)
        + option(2, interface.encode())
        + option(9, b"\6")
        + ending
    )
    out = [block(0x0A0D0D0A, section), block(1, described)]
    at, when, count = 24, 0, 0
    while at + 16 <= len(raw):
        seconds, micros, kept, length = struct.unpack_from("<IIII", raw, at)
        when = seconds * 1_000_000 + micros
        data = raw[at + 16 : at + 16 + min(kept, snap)]
        out.append(
            block(
                6,
                struct.pack("<IIIII", 0, when >> 32, when & 0xFFFFFFFF, len(data), length)
                + data
                + bytes(-len(data) % 4),
            )
        )
        at += 16 + kept
        count += 1
    # isb_ifrecv and isb_ifdrop: the run is refused when tcpdump lost anything, so the second is 0.
    counts = option(4, struct.pack("<Q", count)) + option(5, struct.pack("<Q", 0)) + ending
    out.append(block(5, struct.pack("<III", 0, when >> 32, when & 0xFFFFFFFF) + counts))
    return b"".join(out)
