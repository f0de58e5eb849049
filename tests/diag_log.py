"""DIAG logs made from known figures: what a modem of the simulator or of the emulator would log.

Records 0xB066 (version 24), 0xB064 (version 5) and 0xB139 (version 102), as `crates/modem` reads them, in frames of HDLC;
one of each for every batch of 40 ms, as measured of phones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BUFFER, BLOCKS, PUSCH = 0xB066, 0xB064, 0xB139
BATCH_MS = 40
# TTIs until frame numbers begin again.
CYCLE = 10_240
UNIT_NS, PARTS = 1_250_000, 49_152


@dataclass(frozen=True)
class Tti:
    """What a modem knows of one millisecond of its clock: bytes left in the buffer, and a block if there was one."""

    ms: int
    buffered: int
    granted: int = 0
    padding: int = 0


def crc(data: bytes) -> int:
    """CRC-16/X.25."""
    value = 0xFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ 0x8408 if value & 1 else value >> 1
    return value ^ 0xFFFF


def frame(message: bytes) -> bytes:
    """A frame of HDLC."""
    data = message + struct.pack("<H", crc(message))
    return data.replace(b"\x7d", b"\x7d\x5d").replace(b"\x7e", b"\x7d\x5e") + b"\x7e"


def modem_time(ns: int) -> int:
    """Units of 1.25 ms, and parts of them."""
    return ns // UNIT_NS << 16 | -(-(ns % UNIT_NS) * PARTS // UNIT_NS)


def record(code: int, at_ns: int, payload: bytes) -> bytes:
    """A message 0x10 with a record, framed."""
    length = 12 + len(payload)
    header = struct.pack("<BBHHHQ", 0x10, 0, length, length, code, modem_time(at_ns))
    return frame(header + payload)


def packed(ms: int) -> int:
    """A TTI as the MAC writes it."""
    count = ms % CYCLE
    return count // 10 << 4 | count % 10


def sub_packet(kind: int, version: int, count: int, fields: bytes) -> bytes:
    """A record of one sub-packet, filled up to four bytes."""
    size = -(-(5 + len(fields)) // 4) * 4
    return (struct.pack("<BBHBBHB", 1, 1, 0, kind, version, size, count) + fields).ljust(
        4 + size, b"\0"
    )


def buffer(samples: Sequence[Tti]) -> bytes:
    """0xB066: one logical channel; the first sample has its TTI, as in logs of phones."""
    fields = b"".join(
        struct.pack(
            "<BHBBBIIIH",
            0,
            packed(one.ms) if one is samples[0] else 0xFFFF,
            1,
            3,
            9,
            0,
            one.buffered,
            0,
            0,
        )
        for one in samples
    )
    return sub_packet(10, 24, len(samples), fields)


def blocks(samples: Sequence[Tti]) -> bytes:
    """0xB064: the blocks of these TTIs."""
    built = [one for one in samples if one.granted]
    fields = b"".join(
        struct.pack(
            "<BBBBHHBHBBB", 1, 0, 0, 0, packed(one.ms), one.granted, 1, one.padding, 0, 0, 1
        )
        + b"\x03"
        for one in built
    )
    return sub_packet(8, 5, len(built), fields)


def pusch(samples: Sequence[Tti]) -> Iterable[bytes]:
    """0xB139: the same blocks as they were sent, at most 31 in a record."""
    built = [one for one in samples if one.granted]
    reported = samples[-1].ms % CYCLE
    for start in range(0, len(built), 31):
        part = built[start : start + 31]
        header = struct.pack("<BHBHH", 102, len(part) << 9, 0, reported, 0)
        yield header + b"".join(
            struct.pack("<H6xH", one.ms % CYCLE, one.granted).ljust(68, b"\0") for one in part
        )


def log(ttis: Sequence[Tti], lost: Iterable[int] = ()) -> bytes:
    """A log of TTIs without a gap; of batches in `lost` no record arrives."""
    missing = set(lost)
    parts: list[bytes] = []
    for number, start in enumerate(range(0, len(ttis), BATCH_MS)):
        batch = ttis[start : start + BATCH_MS]
        if number in missing:
            continue
        at_ns = batch[-1].ms * 1_000_000
        parts.append(record(BUFFER, at_ns, buffer(batch)))
        if any(one.granted for one in batch):
            parts.append(record(BLOCKS, at_ns, blocks(batch)))
            parts += [record(PUSCH, at_ns, payload) for payload in pusch(batch)]
    return b"".join(parts)
