"""`fit`: the rate of the slowest link over time, and its buffer, from one capture.

signal: one flow of the capture, the largest unless another is named · model: `crates/fit`, which draws rates over time
that all explain the arrivals; buffer and delay are findings and figures of `analyze` · action: a `LinkFit`, or
`LinkUnknown` with what is known
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Any

from unbloat.capture.analyze import analyze, check_readable, nothing_to_say
from unbloat.errors import CaptureError, LinkUnknown, UnbloatError
from unbloat.link.model import (
    Beside,
    Buffer,
    Hold,
    LinkFit,
    Pause,
    RandomLoss,
    Sharing,
    quantiles,
)
from unbloat.run.direction import flow_of, main_directions
from unbloat.run.run import Run
from unbloat.run.tables import Row
from unbloat.text.format import rate_text

DRAWS, SEED = 40, 1
MAX_DRAWS = 1000
# Where others share the queue: so many losses, most of them at so much of the largest queue, show the end of the buffer (drop-tail).
MIN_LOSSES, NEAR_FULL = 5, 0.8
# So many losses in a short queue are random ones: fewer may be overflows that a trip shortly after shows as a short queue.
MIN_RANDOM = 10
# Losses in a short queue are not random where they prefer its longer ones, by so many standard errors of a mean rank: the queue drops early.
EARLY = 3.0
# Moments of 20 ms with a random loss have so many times the lost segments that they would have by chance: losses come in bursts. P(loss |
# loss) is above five times P(loss) then, for all rates below a tenth.
MIN_BURST, MOMENT_S = 1.5, 0.020
# Of the payload of the flow that is fitted: what a flow beside it has at least, to be counted.
MIN_BESIDE = 0.05
# A flow between the same hosts waits in a queue of its own where its p95 is below this part of the median of the flow that is fitted. A
# median below so many ms, and fewer round trips, show nothing.
APART, MIN_APART_MS, MIN_APART_TRIPS = 0.25, 20.0, 20

Progress = Callable[[int, int], None]
Ends = Callable[[int], tuple[str, str, float]]
"""Sender, receiver and begin of the connection, by the id of a flow."""


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
    ends = ends_of(run)
    others = beside(run, flow, ends)
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
        apart=apart(run, flow, ends),
        random_loss=random_loss_of(found, flow),
        hold=found["hold_ms"] and Hold(*found["hold_ms"]),
        loss_moments=len(found["at_losses"]),
        initial_window=initial_window_of(found, flow),
        pauses=[Pause(*one) for one in found["pauses_s"]],
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


def ends_of(run: Run) -> Ends:
    """Sender and receiver of a flow of TCP, and when its connection begins."""
    wanted = ["id", "proto", "a_addr", "b_addr", "start_s"]
    hosts = {
        row["id"]: (row["a_addr"], row["b_addr"], row["start_s"])
        for row in run.connections.select(wanted).to_pylist()
        if row["proto"] == "tcp"
    }

    def ends(id: int) -> tuple[str, str, float]:
        a, b, start_s = hosts[id // 2]
        return (a, b, start_s) if id % 2 == 0 else (b, a, start_s)

    return ends


def beside(run: Run, flow: Row, ends: Ends) -> list[Row]:
    """Other flows from the same host or to the same host, which may share the queue."""
    sender, receiver, _ = ends(flow["id"])
    return [
        other
        for other in main_directions(run, ("active_s", "congestion_control"), tcp=True)
        if other["id"] // 2 != flow["id"] // 2
        and (other["payload_bytes"] or 0) >= MIN_BESIDE * (flow["payload_bytes"] or 0)
        and (ends(other["id"])[0] == sender or ends(other["id"])[1] == receiver)
    ]


def apart(run: Run, flow: Row, ends: Ends) -> list[int]:
    """Flows between the same hosts, during this one, that wait much less: there is a queue per flow (RFC 8290 section 1)."""
    median_ms = flow["data_queue_ms_p50"] or 0.0
    if median_ms < MIN_APART_MS:
        return []
    wanted = ("rtt_ms_count", "rtt_ms_p95", "rtt_ms_min", "active_s")
    sender, receiver, start_s = ends(flow["id"])
    end_s = start_s + flow["active_s"]

    def is_apart(other: Row) -> bool:
        its_sender, its_receiver, its_start_s = ends(other["id"])
        same = (its_sender, its_receiver) == (sender, receiver)
        during = start_s <= its_start_s and its_start_s + other["active_s"] <= end_s
        waits_ms = (other["rtt_ms_p95"] or math.inf) - (other["rtt_ms_min"] or 0.0)
        known = (other["rtt_ms_count"] or 0) >= MIN_APART_TRIPS
        return same and during and known and waits_ms < APART * median_ms

    return [
        other["id"]
        for other in main_directions(run, wanted, tcp=True)
        if other["id"] // 2 != flow["id"] // 2 and is_apart(other)
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
                values.get("buffer_bytes_before"),
                values.get("before_until_s"),
                values.get("changed_s"),
            )
    return None


def random_loss_of(found: dict[str, Any], flow: Row) -> RandomLoss | None:
    """By the losses in a short queue."""
    packets = round(found["short"] * (flow["data_packets"] or 0))
    losses, segments = found["losses_in_short"], found["segments_in_short"]
    if losses < MIN_RANDOM or packets <= segments:
        return None
    # Of as many uniform ranks.
    if found["rank_in_short"] > 0.5 + EARLY / math.sqrt(12 * losses):
        return None
    # Packets of a moment that are lost by chance, where one is.
    of_moment = (flow["goodput_bps"] or 0.0) / 8 / flow["mss_bytes"] * MOMENT_S * segments / packets
    by_chance = of_moment / -math.expm1(-of_moment)
    burst = segments / losses / by_chance
    return RandomLoss(losses, segments, packets, burst if burst >= MIN_BURST else None)


def initial_window_of(found: dict[str, Any], flow: Row) -> int | None:
    """By the bytes before the first ACK. A transfer that had no more than these shows only a lower bound."""
    first: int | None = found["first_flight_bytes"]
    if first is None or first >= flow["bytes"] or not flow["mss_bytes"]:
        return None
    mss_bytes: int = flow["mss_bytes"]
    return max(round(first / mss_bytes), 1)


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
