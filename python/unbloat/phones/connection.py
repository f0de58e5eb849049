"""From the decisions about a connection to its packets, and to the round trips that were decided.

signal: exchanges or a transfer, begin, ends, the path's RTT · model: a handshake on the empty path; a request goes out in
rounds of at most ten segments, each acknowledged after its own RTT; an answer arrives at its rate, and every second
segment is acknowledged at once · action: packets in a `Talk`, and `Rise` per acknowledged round
"""

from __future__ import annotations

from typing import NamedTuple

from unbloat.phones.packets import ACK, FIN, MSS_BYTES, PUSH, SYN, Acked, Talk
from unbloat.phones.session import Bulk, Exchange, Small

# Segments of a round of a request: the initial window (RFC 6928).
ROUND_SEGMENTS = 10
# From packet to packet of a round, and of an answer of a small connection: 10 Mbit/s.
STEP_US = 1_200
# From the last answer to the FIN.
CLOSE_US = 20_000
# A flow's pause of so many seconds is as good as one of a second, which ends it; bins of 100 ms cannot distinguish them.
UNCLEAR_US = (900_000, 1_300_000)
LATER_US = 450_000


class Rise(NamedTuple):
    """A round trip that was decided."""

    at_us: int
    """When it ended."""
    rise_ms: float
    """Above the empty path's."""


def handshake(talk: Talk, at_us: int, base_us: int) -> int:
    """SYN, SYN-ACK and ACK; the time of the last."""
    talk.send(at_us, True, 0, SYN)
    talk.send(at_us + base_us, False, 0, SYN | ACK)
    talk.send(at_us + base_us + 200, True, 0)
    return at_us + base_us + 200


def close(talk: Talk, at_us: int, base_us: int) -> None:
    """The phone closes, the server answers."""
    talk.send(at_us, True, 0, FIN | ACK)
    talk.send(at_us + base_us, False, 0, FIN | ACK)
    talk.send(at_us + base_us + 200, True, 0)


def segments(size_bytes: int) -> list[int]:
    """Full segments and the rest."""
    full, rest = divmod(size_bytes, MSS_BYTES)
    return [MSS_BYTES] * full + ([rest] if rest else [])


def small(talk: Talk, what: Small, at_us: int, base_us: int) -> tuple[int, list[Rise]]:
    """A connection of small exchanges; the time of its last data."""
    now = handshake(talk, at_us, base_us)
    rises: list[Rise] = []
    asked = now
    last = {True: 0, False: 0}
    """When data last went up and came down."""
    for number, exchange in enumerate(what.exchanges):
        if number:
            now = (asked if exchange.paced else now) + round(exchange.pause_s * 1e6)
            if not exchange.paced:
                # A request would be the ACK of the answer before.
                now = clear(exchange, max(now, acked(talk)), base_us, last)
        asked = now
        now = request(talk, exchange, now, base_us, rises)
        last[True] = talk.data[-1][0]
        if exchange.down_bytes:
            begin = now + round(exchange.think_s * 1e6)
            now = answer(talk, exchange.down_bytes, begin, STEP_US, exchange.ack_ms)
            last[False] = now
    close(talk, max(now + CLOSE_US, acked(talk)), base_us)
    return max(last.values()), rises


def acked(talk: Talk) -> int:
    """When the last answer so far is acknowledged; 0 before the first."""
    return talk.acks[-1].at_us if talk.acks else 0


def clear(exchange: Exchange, at_us: int, base_us: int, last: dict[bool, int]) -> int:
    """The next time at which neither direction has a pause that is about a second long."""
    rtt_us = base_us + round(exchange.rise_ms * 1000)
    rounds = -(-len(segments(exchange.up_bytes)) // ROUND_SEGMENTS)
    answer_us = rounds * (rtt_us + ROUND_SEGMENTS * STEP_US) + round(exchange.think_s * 1e6)
    low, high = UNCLEAR_US
    while low < at_us - last[True] < high or low < at_us + answer_us - last[False] < high:
        at_us += LATER_US
    return at_us


def request(talk: Talk, exchange: Exchange, at_us: int, base_us: int, rises: list[Rise]) -> int:
    """Data of the phone, in rounds; the time of the last acknowledgement."""
    rtt_us = base_us + round(exchange.rise_ms * 1000)
    parts = segments(exchange.up_bytes)
    while parts:
        chunk, parts = parts[:ROUND_SEGMENTS], parts[ROUND_SEGMENTS:]
        for place, size in enumerate(chunk):
            talk.send(at_us + place * STEP_US, True, size, ACK | PUSH if not parts else ACK)
        at_us += (len(chunk) - 1) * STEP_US + rtt_us
        talk.send(at_us, False, 0)
        rises.append(Rise(at_us, exchange.rise_ms))
    return at_us


def answer(talk: Talk, size_bytes: int, at_us: int, step_us: float, ack_ms: float) -> int:
    """Data of the server at its rate, each second packet acknowledged after `ack_ms`; the time of the last."""
    ack_us = round(ack_ms * 1000)
    parts = segments(size_bytes)
    for place, size in enumerate(parts):
        now = at_us + round(place * step_us)
        talk.send(now, False, size)
        if place % 2 or place == len(parts) - 1:
            talk.send(now + ack_us, True, 0)
            talk.acks.append(Acked(now + ack_us, ack_us / 1000))
    return at_us + round((len(parts) - 1) * step_us)


def download(talk: Talk, what: Bulk, at_us: int, base_us: int) -> tuple[int, list[Rise]]:
    """A large download: a request, then its data at the rate that was drawn."""
    now = handshake(talk, at_us, base_us)
    rises: list[Rise] = []
    ask = Exchange(0.0, 400, what.size_bytes, 0.0, 0.05)
    now = request(talk, ask, now, base_us, rises)
    step_us = MSS_BYTES * 8e6 / what.rate_bps
    begin = now + round(ask.think_s * 1e6)
    now = answer(talk, what.size_bytes, begin, step_us, what.ack_ms)
    close(talk, max(now + CLOSE_US, acked(talk)), base_us)
    return now, rises
