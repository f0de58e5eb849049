"""The slowest link in front of one flow, as `fit` finds it: rates over time, buffer, losses, and what the ends did.

signal: what `crates/fit` and the findings of `analyze` give · model: each part has its interval, or says that only a bound is known ·
action: `LinkFit`, for the command, the page, and the replays of `what-if`
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from unbloat.run.tables import Row
from unbloat.text.format import direction_id

# Of the intervals: 90 %.
LOW, HIGH = 0.05, 0.95
# Of a full packet.
PACKET_BITS = 1500 * 8

Band = tuple[float, float, float]
"""5 % quantile, median and 95 % quantile."""


@dataclass(frozen=True)
class Buffer:
    """What the queue in front of the link holds."""

    low_bytes: float
    bytes: float | None
    """None: only the lower bound is known."""
    high_bytes: float | None
    before_bytes: float | None = None
    """What it held earlier, where it had two sizes in time. The others are the later one."""
    until_s: float | None = None
    """When it surely had that size for the last time, into the transfer."""
    changed_s: float | None = None
    """When it surely had another one."""

    @property
    def size_bytes(self) -> float:
        """What is known of it: the lower bound where that is all."""
        return self.low_bytes if self.bytes is None else self.bytes


@dataclass(frozen=True)
class Beside:
    """Another flow of the capture that shares the queue."""

    id: int
    begin_s: float
    """From the first slot on."""
    end_s: float
    congestion: str | None
    """Of its sender, where it is recognised."""


@dataclass(frozen=True)
class Sharing:
    """Whether others share the queue: whether pauses of the sender, while a queue stood, are seen at the receiver."""

    found: bool
    pauses: int
    filled: float
    """The part of a pause that is seen at the receiver, the median."""
    beside: list[Beside]
    """Those that the capture has, where others share the queue. The rate is that of all of them together."""


@dataclass(frozen=True)
class Hold:
    """ACKs wait until the end of each hold: a radio that sends upwards only now and then."""

    length_ms: float
    every_ms: float
    in_long_queue: bool = False
    """Whether ACKs were held only while the queue was long. With a short one they may not be held at all."""
    from_ms: float = 0.0
    """When the first one ended, from the first arrival on."""


@dataclass(frozen=True)
class Pause:
    """The sender had nothing to send, and everything was acknowledged."""

    after_bytes: int
    """Sent before."""
    length_s: float


@dataclass(frozen=True)
class RandomLoss:
    """Losses in a short queue, which no full buffer explains."""

    losses: int
    """Moments of 20 ms with a loss."""
    segments: int
    """That were lost in them."""
    packets: int
    """That met a short queue."""
    burst: float | None = None
    """Segments of a burst in the mean; none where losses come one by one."""

    @property
    def rate(self) -> float:
        """Share of the packets."""
        return self.segments / self.packets


@dataclass(frozen=True)
class LinkFit:
    """The slowest link in front of one flow."""

    capture: str
    flow: Row
    """Its row of the table `flows`."""
    connection: Row
    start_s: float
    """Begin of the first slot, s since 1970, by the capture's clock."""
    slot_s: float
    seen_bps: list[float]
    """What each slot shows, bit/s of IP packets: the rate where `queued`, else a lower bound of it."""
    queued: list[bool]
    arrived_bps: list[float]
    """What arrived in each slot. A host that stood still hands over at once what came meanwhile."""
    draws: list[list[float]]
    """Rates over time, bit/s by slot, each of them as likely as the others."""
    drift: float
    """Mean change of the rate's logarithm from slot to slot."""
    jump: float
    """Probability that the rate jumps from one slot to the next."""
    buffer: Buffer | None
    """None where no finding of `analyze` has a size."""
    sharing: Sharing
    apart: list[int]
    """Flows that wait in a queue of their own, by id."""
    random_loss: RandomLoss | None
    """None where too few losses happened in a short queue."""
    hold: Hold | None
    """None where ACKs are not held."""
    loss_moments: int
    """Of 20 ms, at any queue."""
    initial_window: int | None
    """Segments that were sent before the first ACK; none where the capture does not show it."""
    pauses: list[Pause]
    """Of the application: none where the sender always had something to send."""

    @property
    def marked(self) -> bool:
        """Whether a queue marked packets, and the sender learned of it (ECN)."""
        return bool(self.flow["ecn_ece"])

    @property
    def duration_s(self) -> float:
        """Of all slots."""
        return self.slot_s * len(self.seen_bps)

    @property
    def queued_s(self) -> float:
        """Time of the slots whose rate was seen."""
        return self.slot_s * sum(self.queued)

    @property
    def rtt_ms(self) -> float | None:
        """The smallest round trip."""
        rtt: float | None = self.flow["rtt_ms_min"]
        return rtt

    @property
    def delay_ms(self) -> float:
        """Of a round trip, without the time that a full packet takes on the link: what a link that is made from the fit adds to it."""
        of_packet_ms = 1000 * PACKET_BITS / self.mean_bps[1]
        known = [
            *([] if self.rtt_ms is None else [self.rtt_ms - of_packet_ms]),
            # A SYN is short.
            *([] if self.flow["initial_rtt_ms"] is None else [self.flow["initial_rtt_ms"]]),
        ]
        return max(min(known, default=0.0), 0.0)

    @cached_property
    def band_bps(self) -> list[Band]:
        """The 90 % interval of the rate and its median, by slot."""
        return [quantiles(rates) for rates in zip(*self.draws, strict=True)]

    @cached_property
    def mean_bps(self) -> Band:
        """The mean rate over all slots."""
        return self.over(0, len(self.seen_bps))

    def over(self, begin: int, end: int) -> Band:
        """The mean rate from a slot to another, which is not counted."""
        return quantiles([sum(draw[begin:end]) / (end - begin) for draw in self.draws])

    @property
    def median_bps(self) -> list[float]:
        """The median of each slot."""
        return [band[1] for band in self.band_bps]

    def to_dict(self) -> Row:
        """As `--json` prints it."""
        low, middle, high = self.mean_bps
        buffer = self.buffer
        return {
            "capture": self.capture,
            "connection": self.connection["id"],
            "direction": direction_id(self.flow["id"]),
            "start_s": self.start_s,
            "duration_s": self.duration_s,
            "queued_s": self.queued_s,
            "slot_s": self.slot_s,
            "rate_bps": middle,
            "rate_bps_low": low,
            "rate_bps_high": high,
            "drift": self.drift,
            "jump": self.jump,
            "rtt_ms": self.rtt_ms,
            "buffer_bytes": buffer and buffer.bytes,
            "buffer_bytes_low": buffer and buffer.low_bytes,
            "buffer_bytes_high": buffer and buffer.high_bytes,
            "buffer_bytes_before": buffer and buffer.before_bytes,
            "buffer_until_s": buffer and buffer.until_s,
            "buffer_changed_s": buffer and buffer.changed_s,
            "hold_ms": self.hold and self.hold.length_ms,
            "hold_every_ms": self.hold and self.hold.every_ms,
            "held_in_long_queue": self.hold and self.hold.in_long_queue,
            "random_loss_rate": self.random_loss and self.random_loss.rate,
            "random_loss_burst": self.random_loss and self.random_loss.burst,
            "marked": self.marked,
            "initial_window": self.initial_window,
            "pauses_s": [one.length_s for one in self.pauses],
            "shared": self.sharing.found,
            "pauses": self.sharing.pauses,
            "pauses_filled": self.sharing.filled,
            "beside": [direction_id(one.id) for one in self.sharing.beside],
            "apart": [direction_id(one) for one in self.apart],
            "slots": [
                {
                    "t_s": at * self.slot_s,
                    "queued": queued,
                    "seen_bps": seen,
                    "arrived_bps": arrived,
                    "rate_bps_low": band[0],
                    "rate_bps": band[1],
                    "rate_bps_high": band[2],
                }
                for at, (queued, seen, arrived, band) in enumerate(
                    zip(self.queued, self.seen_bps, self.arrived_bps, self.band_bps, strict=True)
                )
            ],
        }


def quantiles(values: list[float] | tuple[float, ...]) -> Band:
    """With those of the interval between ranks rounded outwards."""
    ranked = sorted(values)
    last = len(ranked) - 1
    return (
        ranked[int(LOW * last)],
        (ranked[last // 2] + ranked[(last + 1) // 2]) / 2,
        ranked[-int(-HIGH * last // 1)],
    )
