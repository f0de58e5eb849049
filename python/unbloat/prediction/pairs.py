"""What the packets of a transfer met, by the captures at both of its ends: a truth that no other analysis of the project is in.

signal: two captures by one clock, classic pcap of Ethernet or of IP · model: a packet has the same IP id and sequence number at both
ends; what it needed beyond the fastest one is its wait · action: goodput, and p50 and p95 over time of the waits of full packets

Quantiles are those of `units::Delays`, over the time of delivery as the simulator has them: between two packets the wait is that of the first in one
half of the time, and that of the second in the other. A queue shortens by a second each second, and time counts only as long as the first packet was on its
way. By packets a queue of seconds during an outage would hardly count, for few packets are in it.

What waits in a host before its capture, in a queue discipline of its own, is in neither capture and does not count.
"""

from __future__ import annotations

import bisect
import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unbloat.errors import LabError
from unbloat.prediction.cures import Way

# Classic captures of microseconds and of nanoseconds: their magic numbers, and ns of a unit.
MAGIC = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}
FILE_BYTES, RECORD_BYTES = 24, 16
# Where the header has the kind of link, and what stands before IP on each: Ethernet, raw IP (as OpenBSD and Linux number it), IPv4.
LINK_AT = 20
LINK_BYTES = {1: 14, 12: 0, 101: 0, 228: 0}
TCP, SYN, ACK = 6, 2, 16
# Fewer have no quantiles.
MIN_PACKETS = 5
# Each packet counts for so much besides its time, so that those which arrive at one moment have quantiles too.
SAMPLE_NS = 2_000


@dataclass(frozen=True)
class Packet:
    """A TCP packet of the sender as one end's capture has it."""

    at_ns: int
    ip_id: int
    sequence: int
    payload_bytes: int


def packets(raw: bytes, way: Way = "up") -> Iterator[Packet]:
    """TCP over IPv4 of the connection that is opened first, from the host that opened it or to it; a record that is cut off ends it."""
    ns = MAGIC[struct.unpack_from("<I", raw)[0]]
    before_ip_bytes = LINK_BYTES[struct.unpack_from("<I", raw, LINK_AT)[0]]
    at, connection = FILE_BYTES, b""
    while at + RECORD_BYTES <= len(raw):
        seconds, units, size, _ = struct.unpack_from("<IIII", raw, at)
        frame = raw[at + RECORD_BYTES : at + RECORD_BYTES + size]
        at += RECORD_BYTES + size
        if at > len(raw):
            return
        ip = frame[before_ip_bytes:]
        if ip[0] >> 4 != 4 or ip[9] != TCP:
            continue
        tcp = ip[4 * (ip[0] & 15) :]
        length, ip_id = struct.unpack_from("!HH", ip, 2)
        payload_bytes = length - 4 * (ip[0] & 15) - 4 * (tcp[12] >> 4)
        if not connection and tcp[13] & (SYN | ACK) == SYN:
            connection = ends(ip, tcp, way)
        if ends(ip, tcp) == connection:
            (sequence,) = struct.unpack_from("!I", tcp, 4)
            yield Packet(seconds * 1_000_000_000 + units * ns, ip_id, sequence, payload_bytes)


def ends(ip: bytes, tcp: bytes, way: Way = "up") -> bytes:
    """Addresses and ports of a packet, or of its answers."""
    if way == "down":
        return ip[16:20] + ip[12:16] + tcp[2:4] + tcp[:2]
    return ip[12:20] + tcp[:4]


@dataclass(frozen=True)
class Wait:
    """Of a packet that arrived."""

    at_ns: int
    """When it arrived."""
    took_ns: int
    wait_ns: int
    """Longer than the fastest."""


def waits(left: Sequence[Packet], arrived: Sequence[Packet]) -> list[Wait]:
    """How much longer than the fastest each full packet took from the sender's device to the receiver's.

    A retransmission has another IP id than the first one. A shorter packet takes less time on the link, so it says nothing.
    """
    sent_ns = {(one.ip_id, one.sequence): one.at_ns for one in left if one.payload_bytes}
    full = max(one.payload_bytes for one in arrived)
    took = [
        (one.at_ns, one.at_ns - sent_ns[one.ip_id, one.sequence])
        for one in arrived
        if one.payload_bytes == full and (one.ip_id, one.sequence) in sent_ns
    ]
    least_ns = min(took_ns for _, took_ns in took)
    return [Wait(at_ns, took_ns, took_ns - least_ns) for at_ns, took_ns in took]


def quantiles_ms(found: Sequence[Wait], parts: Sequence[float]) -> list[float]:
    """Over time, in ms."""
    weights_ns = [SAMPLE_NS] * len(found)
    for at, (before, after) in enumerate(itertools.pairwise(found)):
        span_ns = min(after.at_ns - before.at_ns, before.took_ns)
        shorter_ns = before.wait_ns - after.wait_ns
        first_ns = (min(span_ns, shorter_ns) if shorter_ns > 0 else span_ns) // 2
        weights_ns[at] += first_ns
        weights_ns[at + 1] += span_ns - first_ns
    ranked = sorted((one.wait_ns, weight) for one, weight in zip(found, weights_ns, strict=True))
    sums_ns = list(itertools.accumulate(weight for _, weight in ranked))
    return [ranked[bisect.bisect_left(sums_ns, part * sums_ns[-1])][0] / 1e6 for part in parts]


def unique_bytes(arrived: Sequence[Packet]) -> int:
    """Payload that arrived, whatever arrived twice counted once."""
    data = [one for one in arrived if one.payload_bytes]
    first = data[0].sequence
    # Nothing is half the space of sequence numbers away from the first.
    spans = sorted(
        (begin, begin + one.payload_bytes)
        for one in data
        for begin in [(one.sequence - first + (1 << 31)) % (1 << 32)]
    )
    total, until = 0, 0
    for begin, end in spans:
        total += max(end - max(begin, until), 0)
        until = max(until, end)
    return total


def figures(
    sender: bytes, receiver: bytes, duration_s: float, way: Way = "up"
) -> tuple[float, float, float]:
    """Goodput in bit/s, and p50 and p95 of the queueing delay in ms, of what arrived until so long after the first packet left.

    Raises `LabError` where too little arrived.
    """
    left = list(packets(sender, way))
    end_ns = (left[0].at_ns if left else 0) + duration_s * 1e9
    arrived = [one for one in packets(receiver, way) if one.at_ns <= end_ns]
    if sum(one.payload_bytes > 0 for one in arrived) < MIN_PACKETS:
        raise LabError("the transfer delivered nothing")
    p50_ms, p95_ms = quantiles_ms(waits(left, arrived), (0.5, 0.95))
    return unique_bytes(arrived) * 8 / duration_s, p50_ms, p95_ms
