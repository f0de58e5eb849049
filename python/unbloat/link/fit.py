"""`fit`: the rate of the slowest link over time, and its buffer, from one capture.

signal: one flow of the capture, the largest unless another is named · model: `crates/fit`, which draws rates over time
that all explain the arrivals; buffer and delay are findings and figures of `analyze` · action: a `LinkFit`, or
`LinkUnknown` with what is known
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unbloat.capture.analyze import analyze, check_readable, nothing_to_say
from unbloat.errors import CaptureError, LinkUnknown, UnbloatError
from unbloat.run.direction import flow_of, main_directions
from unbloat.run.run import Run
from unbloat.run.tables import Row
from unbloat.text.format import direction_id, rate_text

DRAWS, SEED = 40, 1
MAX_DRAWS = 1000
# Of the intervals: 90 %.
LOW, HIGH = 0.05, 0.95

# Where others share the queue: so many losses, most of them at so much of the largest queue, show the end of the buffer (drop-tail).
MIN_LOSSES, NEAR_FULL = 5, 0.8
# So many losses in a short queue are random ones: fewer may be overflows that a trip shortly after shows as a short queue.
MIN_RANDOM = 10
# Of the payload of the flow that is fitted: what a flow beside it has at least, to be counted.
MIN_BESIDE = 0.05

Progress = Callable[[int, int], None]
Band = tuple[float, float, float]
"""5 % quantile, median and 95 % quantile."""


@dataclass(frozen=True)
class Buffer:
    """What the queue in front of the link holds."""

    low_bytes: float
    bytes: float | None
    """None: only the lower bound is known."""
    high_bytes: float | None

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


@dataclass(frozen=True)
class RandomLoss:
    """Losses in a short queue, which no full buffer explains."""

    losses: int
    packets: int
    """That met a short queue."""

    @property
    def rate(self) -> float:
        """Share of the packets."""
        return self.losses / self.packets


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
    random_loss: RandomLoss | None
    """None where too few losses happened in a short queue."""
    hold: Hold | None
    """None where ACKs are not held."""

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
            "hold_ms": self.hold and self.hold.length_ms,
            "hold_every_ms": self.hold and self.hold.every_ms,
            "held_in_long_queue": self.hold and self.hold.in_long_queue,
            "random_loss_rate": self.random_loss and self.random_loss.rate,
            "shared": self.sharing.found,
            "pauses": self.sharing.pauses,
            "pauses_filled": self.sharing.filled,
            "beside": [direction_id(one.id) for one in self.sharing.beside],
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


def fit(
    path: str | os.PathLike[str],
    *,
    connection: str | int | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
    progress: Progress | None = None,
) -> LinkFit:
    """The rate of the slowest link over time, and its buffer, from one capture beside the sender or the receiver.

    `connection` is an id, or one direction of it (`3→`, `3←`); otherwise the flow with the most payload. `draws` is the number of
    rates over time, of the random `seed`. Raises `LinkUnknown` where the transfer shows no rate, `CaptureError` for what is no
    readable capture, `UnbloatError` for a connection that is not there, and `FileNotFoundError`.
    """
    import unbloat._native as _native

    name = os.fspath(path)
    if name == "-":
        raise UnbloatError("standard input (-) cannot be fitted: a capture is read twice")
    if not 1 <= draws <= MAX_DRAWS:
        raise UnbloatError(f"draws: expected 1 to {MAX_DRAWS}, got {draws}")
    check_readable(name)
    run = analyze(name)
    flow = run.flow(chosen(run, connection))
    others = beside(run, flow)
    try:
        found: dict[str, Any] = _native.fit_rate(
            [name],
            flow["id"],
            beside=[other["id"] for other in others],
            draws=draws,
            seed=seed,
            progress=progress or nothing_to_say,
        )
    except _native.CaptureError as error:
        raise CaptureError(str(error)) from None
    if "refused" in found:
        raise LinkUnknown(f"{name}, connection {flow['id'] // 2}: {why(found, flow)}")
    return LinkFit(
        capture=name,
        flow=flow,
        connection=run.connection(flow["id"] // 2),
        start_s=found["from_s"],
        slot_s=found["width_s"],
        seen_bps=found["seen_bps"],
        queued=found["queued"],
        arrived_bps=found["arrived_bps"],
        draws=found["draws"],
        drift=found["drift"],
        jump=found["jump"],
        buffer=buffer_of_all(found) or buffer_of(run, flow["id"]),
        sharing=Sharing(
            found["shared"],
            found["pauses"],
            found["filled"],
            [beside_of(run, other, found["from_s"]) for other in others if found["shared"]],
        ),
        random_loss=random_loss_of(found, flow),
        hold=found["hold_ms"] and Hold(*found["hold_ms"]),
    )


def chosen(run: Run, connection: str | int | None) -> int:
    """The flow that is meant."""
    if connection is not None:
        flow = flow_of(run, str(connection))
        if run.connection(flow // 2)["proto"] != "tcp":
            raise UnbloatError(f"connection {flow // 2} is not TCP, so that no ACKs show its queue")
        return flow
    flows = main_directions(run, (), tcp=True)
    if not flows:
        raise LinkUnknown(f"{run.name}: no connection of TCP")
    return int(max(flows, key=lambda flow: flow["payload_bytes"] or 0)["id"])


def beside(run: Run, flow: Row) -> list[Row]:
    """Other flows from the same host or to the same host, which may share the queue."""
    hosts = {
        row["id"]: (row["a_addr"], row["b_addr"])
        for row in run.connections.select(["id", "proto", "a_addr", "b_addr"]).to_pylist()
        if row["proto"] == "tcp"
    }

    def ends(id: int) -> tuple[str, str]:
        a, b = hosts[id // 2]
        return (a, b) if id % 2 == 0 else (b, a)

    sender, receiver = ends(flow["id"])
    return [
        other
        for other in main_directions(run, ("active_s", "congestion_control"), tcp=True)
        if other["id"] // 2 != flow["id"] // 2
        and (other["payload_bytes"] or 0) >= MIN_BESIDE * (flow["payload_bytes"] or 0)
        and (ends(other["id"])[0] == sender or ends(other["id"])[1] == receiver)
    ]


def beside_of(run: Run, flow: Row, from_s: float) -> Beside:
    """When it sends, from the first slot on."""
    begin_s = run.info["start_s"] + run.connection(flow["id"] // 2)["start_s"] - from_s
    return Beside(flow["id"], begin_s, begin_s + flow["active_s"], flow["congestion_control"])


def why(found: dict[str, Any], flow: Row) -> str:
    """What is known where no rate is."""
    match found["refused"]:
        case "never full":
            return (
                f"this transfer never filled the link for long enough: a queue stood for {found['queued_s']:.1f} s, and 3 s are "
                f"needed. The link has at least {rate_text(found['at_least_bps'])}; more cannot be known from this"
            )
        case "no timestamps":
            goodput = flow["goodput_bps"]
            least = "" if goodput is None else f". The link has at least {rate_text(goodput)}"
            return (
                "TCP timestamps do not show when data arrived: too few packets, no timestamps, or a capture beside neither "
                f"host{least}; more cannot be known from this"
            )
        case _:
            return "too little arrived for a rate"


def buffer_of(run: Run, flow: int) -> Buffer | None:
    """By the finding `buffer-size`."""
    for row in run.findings.to_pylist():
        if row["rule"] == "buffer-size" and row["flow"] == flow:
            values = json.loads(row["values"])
            return Buffer(
                values["buffer_bytes_low"],
                values.get("buffer_bytes"),
                values.get("buffer_bytes_high"),
            )
    return None


def random_loss_of(found: dict[str, Any], flow: Row) -> RandomLoss | None:
    """By the losses in a short queue."""
    packets = round(found["short"] * (flow["data_packets"] or 0))
    if found["losses_in_short"] < MIN_RANDOM or packets <= found["losses_in_short"]:
        return None
    return RandomLoss(found["losses_in_short"], packets)


def buffer_of_all(found: dict[str, Any]) -> Buffer | None:
    """By what stood in the queue, of all flows that share it, at each loss. None where others do not share it, or without losses."""
    at_losses: list[float] = found["at_losses"] if found["shared"] else []
    if not at_losses:
        return None
    largest = quantiles(at_losses)[2]
    full = [queued for queued in at_losses if queued >= NEAR_FULL * largest]
    if len(full) < MIN_LOSSES or 2 * len(full) < len(at_losses):
        return Buffer(largest, None, None)
    return Buffer(*quantiles(full))


def quantiles(values: list[float] | tuple[float, ...]) -> Band:
    """With those of the interval between ranks rounded outwards."""
    ranked = sorted(values)
    last = len(ranked) - 1
    return (
        ranked[int(LOW * last)],
        (ranked[last // 2] + ranked[(last + 1) // 2]) / 2,
        ranked[-int(-HIGH * last // 1)],
    )
