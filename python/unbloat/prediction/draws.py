"""The links, senders and applications that may explain a capture: what a replay is made from.

signal: a `LinkFit` · model: what the capture shows has its interval, and what it does not show is tried in several sorts: the
sender's congestion control, whether its socket's buffer was full, and whether the queue is drop-tail, or which one that drops early · action: a list of `Draw`
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypedDict

from unbloat.link.model import Beside, Buffer, Hold, LinkFit, Pause, RandomLoss

# Where no loss shows the end of the buffer, it may be so much larger than the queue that was seen: those of phones
# hold seconds (`docs/findings/buffer-size.md`).
UNSEEN = 8.0
# So many buffers are tried then, one of each part of that range.
STRATA = 4
# Hosts hold packets up for a millisecond or two, also in the shortest round trip.
HELD_UP_MS = 2.0
# Part of the time in which a receive window that is full is one of the transfer's limits.
MIN_FULL = 0.1
# The smallest buffer: two packets, as the simulator needs them.
MIN_BUFFER_BYTES = 3000
# A sender whose bytes in flight stay so near to their maximum for half of the time, while the window has room, has a full
# socket buffer, or limits itself as BBR does: both are tried.
FLAT, MAX_UTILISATION_PCT = 0.95, 90.0
# So many moments of loss and no end of the buffer: the queue may drop early.
MIN_EARLY = 3
# Objects of a transfer in a replay (`docs/scenario.md`, `requests`). Beyond, the shortest pauses are left out.
MAX_OBJECTS = 1000
# Behind the last object: longer than any replay, and the longest pause of a scenario.
OVER_S = 3600.0

DROPTAIL = "droptail"
# Those that drop or mark early: CoDel and PIE with their defaults (RFC 8289 section 4.3, RFC 8033 section 4.2), and CoDel with a target for links
# on which a packet takes milliseconds. Their targets are 5, 15 and 20 ms; FQ-CoDel is CoDel for one flow.
CODEL, CODEL_LONG, PIE = "CoDel", "CoDel with a target of 20 ms", "PIE"
EARLY = {
    CODEL: 'kind = "codel"',
    CODEL_LONG: 'kind = "codel", target = "20 ms", interval = "200 ms"',
    PIE: 'kind = "pie"',
}


class Earlier(TypedDict, total=False):
    """Of a `Draw`."""

    before_bytes: int
    changed_s: float


@dataclass(frozen=True)
class Sort:
    """What no figure of the capture decides alone."""

    congestion: str
    """Of the sender."""
    queue: str = DROPTAIL
    """Drop-tail, or one of `EARLY`."""
    send_buffer_bytes: int | None = None
    """Of the sender's socket, where it was full."""


@dataclass(frozen=True)
class Object:
    """What the application sends without a pause."""

    bytes: int
    pause_s: float
    """Behind it."""


@dataclass(frozen=True)
class Draw:
    """One of the links that explain the capture."""

    rates_bps: Sequence[float]
    slot_s: float
    rtt_ms: float
    """Of a packet that needs no time on the link."""
    hold: Hold | None
    buffer_bytes: int
    sort: Sort
    seed: int
    beside: Sequence[Beside] = ()
    """Others that share the queue."""
    loss_rate: float = 0.0
    """Of packets that are lost at random."""
    loss_burst: float | None = None
    """Packets of a burst of losses in the mean, where they come in bursts."""
    window_bytes: int | None = None
    """The largest that the receiver advertises, where that held the sender back."""
    initial_window: int | None = None
    """Segments before the first ACK, where the capture shows them."""
    objects: Sequence[Object] = ()
    """Of the application; none where the sender always had something to send."""
    before_bytes: int | None = None
    """What the buffer held until `changed_s`, where it had two sizes in time."""
    changed_s: float = 0.0
    marks: bool = False
    """Whether both hosts use ECN, and the queue marks."""


def sorts(fitted: LinkFit, senders: Sequence[str]) -> list[Sort]:
    """All that are tried."""
    return [
        Sort(*one)
        for one in itertools.product(senders, queues(fitted), send_buffers(fitted, senders))
    ]


def queues(fitted: LinkFit) -> list[str]:
    """The kinds of queue. One that marks is no drop-tail queue, and one whose end was seen is one."""
    if fitted.marked:
        return [*EARLY]
    buffer = fitted.buffer
    ended = buffer is not None and buffer.bytes is not None
    return [DROPTAIL] if ended or fitted.loss_moments < MIN_EARLY else [DROPTAIL, *EARLY]


def send_buffers(fitted: LinkFit, senders: Sequence[str]) -> list[int | None]:
    """None, and what was in flight where that hardly changed and nothing was lost. A sender that is recognised followed its own law."""
    flow = fitted.flow
    flat = (
        len(senders) > 1
        and not flow["retransmissions"]
        and (flow["in_flight_bytes_p50"] or 0.0) >= FLAT * (flow["in_flight_bytes_max"] or math.inf)
        and (flow["window_utilisation_pct_p95"] or 100.0) <= MAX_UTILISATION_PCT
    )
    return [None, round(flow["in_flight_bytes_max"])] if flat else [None]


def drawn(fitted: LinkFit, tried: Sequence[Sort], seed: int, tries: int = 1) -> list[Draw]:
    """Each draw of the rate with each sort, and with so many buffers from its interval, or several where its end was not seen. The first of
    several tries has the round trip as it was measured, others what hosts may have held up less."""
    random = Random(seed)
    rtt_ms = fitted.delay_ms
    links = []
    for at, rates in enumerate(fitted.draws):
        # Whether a cure that keeps the queue short meets holds is not known, where only a long queue has them.
        held = fitted.hold is not None and not (fitted.hold.in_long_queue and at % 2)
        loss_rate = drawn_loss(fitted.random_loss, random)
        for sort in tried:
            for number in range(tries):
                held_up_ms = min(random.uniform(0, HELD_UP_MS), rtt_ms) if number else 0.0
                # The size of a queue that drops early does not show.
                sizes = buffers(fitted.buffer, random)[: None if sort.queue == DROPTAIL else 1]
                links += [
                    Draw(
                        rates,
                        fitted.slot_s,
                        rtt_ms - held_up_ms,
                        fitted.hold if held else None,
                        size,
                        sort,
                        seed=(seed + at) + len(fitted.draws) * number,
                        beside=fitted.sharing.beside,
                        loss_rate=loss_rate,
                        loss_burst=fitted.random_loss.burst if fitted.random_loss else None,
                        window_bytes=window_of(fitted),
                        initial_window=fitted.initial_window,
                        objects=objects(fitted),
                        **earlier(fitted.buffer, random),
                        marks=fitted.marked,
                    )
                    for size in sizes
                ]
    return links


def earlier(buffer: Buffer | None, random: Random) -> Earlier:
    """The size of the buffer before the later one, and a moment between the last that shows the former and the first that shows the latter."""
    if (
        buffer is None
        or buffer.before_bytes is None
        or buffer.until_s is None
        or buffer.changed_s is None
    ):
        return {}
    return {
        "before_bytes": max(round(buffer.before_bytes), MIN_BUFFER_BYTES),
        "changed_s": random.uniform(buffer.until_s, buffer.changed_s),
    }


def objects(fitted: LinkFit) -> list[Object]:
    """None where the sender always had something to send."""
    pauses = fitted.pauses
    if not pauses:
        return []
    if len(pauses) >= MAX_OBJECTS:
        shortest = sorted(one.length_s for one in pauses)[len(pauses) - MAX_OBJECTS]
        pauses = [one for one in pauses if one.length_s > shortest]
    begins = [0, *(one.after_bytes for one in pauses)]
    ends = [*pauses, Pause(fitted.flow["bytes"], OVER_S)]
    return [
        Object(one.after_bytes - begin, one.length_s)
        for begin, one in zip(begins, ends, strict=True)
        if one.after_bytes > begin
    ]


def window_of(fitted: LinkFit) -> int | None:
    """The receive window, where it was full for a part of the time that counts."""
    flow = fitted.flow
    full = (flow["share_receive_window"] or 0.0) >= MIN_FULL
    return flow["rwnd_bytes_max"] if full else None


def drawn_loss(loss: RandomLoss | None, random: Random) -> float:
    """From its distribution, given what was counted (Jeffreys' prior): moments of loss, of which each has as many segments."""
    if loss is None:
        return 0.0
    share = random.betavariate(loss.losses + 0.5, loss.packets - loss.losses + 0.5)
    return min(share * loss.segments / loss.losses, 1.0)


def longest_queue_ms(fitted: LinkFit) -> float:
    """The longest that was seen."""
    return fitted.flow["data_queue_ms_max"] or fitted.flow["queue_ms_max"] or 0.0


def buffers(buffer: Buffer | None, random: Random) -> list[int]:
    """Bytes. Where only a lower bound is known, each order of magnitude above it is as likely, up to `UNSEEN`."""
    if buffer is not None and buffer.bytes is not None and buffer.high_bytes is not None:
        return [size(buffer.low_bytes, buffer.high_bytes, random.random())]
    low = MIN_BUFFER_BYTES if buffer is None else buffer.low_bytes
    return [size(low, UNSEEN * low, (at + random.random()) / STRATA) for at in range(STRATA)]


def size(low: float, high: float, share: float) -> int:
    """Between them by their logarithms."""
    return max(round(low * math.pow(high / low, share)), MIN_BUFFER_BYTES)
