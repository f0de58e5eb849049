"""Times of the first and the last packet of a capture file, without reading what lies between.

The first comes from the analysis of the head of the file, packed or not. The last needs a plain file: blocks of pcapng
carry their length at both ends, so they are followed from the end. Records of pcap do not: the first place near the end
from which every record ends where the next begins, and the last where the file ends, is taken for a record.
"""

from __future__ import annotations

import io
import struct

from unbloat.corpus.stream import analyse_stream
from unbloat.errors import CaptureError

# Holds a packet for certain: one is 256 KiB at most, and a packed block of zstd 128 KiB.
HEAD_BYTES = 1 << 20
# Holds several packets of 64 KiB for certain.
TAIL_BYTES = 1 << 20
# No capture lasts longer, s; what is further away is no time.
SPAN_S = 10 * 366 * 86_400
# pcap: magic number → byte order, units per second.
MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 10**6),
    b"\xa1\xb2\xc3\xd4": (">", 10**6),
    b"\x4d\x3c\xb2\xa1": ("<", 10**9),
    b"\xa1\xb2\x3c\x4d": (">", 10**9),
}
HEADER_BYTES, RECORD_BYTES = 24, 16
SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
# Option of an interface: its resolution; microseconds without it.
RESOLUTION = 9
MAX_RECORD_BYTES = 1 << 18


def first_packet_s(path: str) -> float | None:
    """Epoch time of the first packet; None where the file has none."""
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    try:
        info, _ = analyse_stream(io.BytesIO(head), path, lambda _done: None)
    except CaptureError:
        return None
    return float(info["start_s"]) if info["packets"] else None


def last_packet_s(path: str) -> float | None:
    """Epoch time of the last packet; None where it is not known without reading the whole file."""
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
        size = file.seek(0, io.SEEK_END)
        begin = max(size - TAIL_BYTES, 0)
        file.seek(begin)
        tail = file.read()
    try:
        if head[:4] in MAGICS:
            order, unit = MAGICS[head[:4]]
            first = struct.unpack_from(order + "I", head, HEADER_BYTES)[0]
            return last_of_pcap(tail[max(HEADER_BYTES - begin, 0) :], order, unit, first)
        if head[:4] == SECTION.to_bytes(4, "big"):
            order = "<" if head[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
            return last_of_pcapng(tail, order, resolution(head, order))
    except struct.error:
        pass
    return None


def last_of_pcap(tail: bytes, order: str, unit: int, first: int) -> float | None:
    """The last record, found by its neighbours."""
    record = struct.Struct(order + "IIII")
    for begin in range(min(len(tail), 2 * MAX_RECORD_BYTES)):
        at, last_s = begin, None
        while at + RECORD_BYTES <= len(tail):
            seconds, part, stored, original = record.unpack_from(tail, at)
            if (
                stored > min(original, MAX_RECORD_BYTES)
                or part >= unit
                or abs(seconds - first) > SPAN_S
            ):
                break
            at += RECORD_BYTES + stored
            last_s = seconds + part / unit
        if at == len(tail) and last_s is not None:
            return float(last_s)
    return None


def last_of_pcapng(tail: bytes, order: str, unit: float) -> float | None:
    """The last packet block, from the end."""
    end = len(tail)
    while end >= 12:
        (length,) = struct.unpack_from(order + "I", tail, end - 4)
        begin = end - length
        if length < 12 or begin < 0:
            return None
        kind, again = struct.unpack_from(order + "II", tail, begin)
        if again != length:
            return None
        if kind == PACKET:
            _, high, low = struct.unpack_from(order + "III", tail, begin + 8)
            return float((high << 32 | low) / unit)
        end = begin
    return None


def resolution(head: bytes, order: str) -> float:
    """Units per second of the first interface."""
    at = 0
    while at + 12 <= len(head):
        kind, length = struct.unpack_from(order + "II", head, at)
        if kind == INTERFACE:
            option = at + 16
            while option + 4 < at + length - 4:
                code, size = struct.unpack_from(order + "HH", head, option)
                if code == RESOLUTION:
                    value = head[option + 4]
                    return float(2 ** (value & 0x7F) if value & 0x80 else 10**value)
                option += 4 + (size + 3) // 4 * 4
            return 1e6
        if length < 12:
            break
        at += length
    return 1e6
