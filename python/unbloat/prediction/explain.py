"""Which links explain a capture: those whose replays are nearest to it, and whether they are near.

signal: a `LinkFit`, and the goodput and queueing delay of its transfer · model: each draw of the rate is replayed with each congestion
control that may be the sender's, with each kind of queue, and with several buffers where the end of the buffer was not seen (`draws.py`) ·
action: the replays that are nearest to the capture, as many as there are draws, and in what they differ from it

This is approximate Bayesian computation by rejection (Tavaré and others, Genetics 145, 1997). The check: their median goodput within 10 % of
the capture's, their median p95 of the queue within 20 % or 10 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from unbloat.errors import LinkUnknown
from unbloat.link.model import LinkFit
from unbloat.prediction.cures import AS_IT_WAS
from unbloat.prediction.draws import Draw, drawn, sorts
from unbloat.prediction.replay import OF_RECOGNISED, Outcome, replayed, way_of
from unbloat.text.format import ms_text, plural, rate_text

# A replay is one of the transfer where it is as near as this to the capture.
NEAR_GOODPUT, NEAR_QUEUE, NEAR_QUEUE_MS = 0.10, 0.20, 10.0
# Links per draw of the rate and likely sender: the moments at which a buffer is full depend on chance, and the p95 on whether one more
# of them is in the transfer.
TRIES = 3
# Congestion controls that are tried; those of stock kernels.
SENDERS = ("cubic", "cubic-rfc", "newreno", "bbr")
# Scales of a distance, as shares of a figure. Few losses against none at all distinguish senders that fill the buffer from
# those that do not, so that their scale is a factor.
SCALE_GOODPUT, SCALE_QUEUE, SCALE_LOSS = 0.1, 0.2, 1.0
# Below these, differences are those of single packets.
QUEUE_FLOOR_MS, LOSS_FLOOR = 5.0, 1e-4


def recognised(fitted: LinkFit) -> Sequence[str]:
    """The sender's congestion control by the law of its window, or all that are tried."""
    return OF_RECOGNISED.get(fitted.flow["congestion_control"] or "", SENDERS)


def explaining(
    fitted: LinkFit, senders: Sequence[str], seen: Outcome, seed: int, jobs: int | None
) -> list[tuple[Draw, Outcome]]:
    """As many links as there are draws, whose replays are nearest to the capture."""
    way, count = way_of(fitted), len(fitted.draws)
    links = drawn(fitted, sorts(fitted, senders), seed)
    was = replayed([(link, AS_IT_WAS) for link in links], way, jobs, None)
    # Sorts that explain nothing are not tried again.
    likely = list(dict.fromkeys(link.sort for link, _ in kept(links, was, seen, count)))
    again = drawn(fitted, likely, seed, TRIES)
    was += replayed([(link, AS_IT_WAS) for link in again], way, jobs, None)
    return kept([*links, *again], was, seen, count)


def observed(fitted: LinkFit) -> Outcome:
    """Of the capture. Where timestamps separate them, the queue is that of the data alone."""
    flow = fitted.flow
    name = "data_queue_ms" if flow["data_queue_ms_p95"] is not None else "queue_ms"
    if flow[f"{name}_p95"] is None or flow["goodput_bps"] is None:
        raise LinkUnknown(f"{fitted.capture}: no queueing delay was measured")
    return Outcome(
        flow["goodput_bps"],
        flow[f"{name}_p50"],
        flow[f"{name}_p95"],
        flow["loss_rate"] or 0.0,
        flow["grade"],
    )


def kept(
    links: Sequence[Draw], outcomes: Sequence[Outcome], seen: Outcome, count: int
) -> list[tuple[Draw, Outcome]]:
    """The links whose replays are nearest to the capture, in the order in which they were drawn."""
    ranked = sorted(range(len(links)), key=lambda at: distance(outcomes[at], seen))
    chosen: list[int] = []
    # What no capture of a long queue shows is not decided by which replay is nearer: whether a short one has holds.
    parts = [
        part
        for part in (
            [at for at in ranked if (links[at].hold is None) is free] for free in (False, True)
        )
        if part
    ]
    for number, part in enumerate(parts):
        chosen += part[: (count + number) // len(parts)]
    return [(links[at], outcomes[at]) for at in sorted(chosen)]


def distance(one: Outcome, seen: Outcome) -> float:
    """How far a replay is from the capture, in the scales above."""

    def apart(name: str, floor: float, scale: float) -> float:
        ours, theirs = (getattr(of, name) + floor for of in (one, seen))
        return abs(math.log(max(ours, 1e-9) / max(theirs, 1e-9))) / scale

    return (
        apart("goodput_bps", 0.0, SCALE_GOODPUT)
        + apart("queue_ms_p50", QUEUE_FLOOR_MS, SCALE_QUEUE)
        + apart("queue_ms_p95", QUEUE_FLOOR_MS, SCALE_QUEUE)
        + apart("loss_rate", LOSS_FLOOR, SCALE_LOSS)
    )


def differences(seen: Outcome, was: Sequence[Outcome]) -> list[str]:
    """What the check finds."""
    goodput_bps = median(one.goodput_bps for one in was)
    queue_ms = median(one.queue_ms_p95 for one in was)
    found = []
    if abs(goodput_bps - seen.goodput_bps) > NEAR_GOODPUT * seen.goodput_bps:
        found.append(
            f"its goodput was {rate_text(seen.goodput_bps)}, that of its replay is {rate_text(goodput_bps)}"
        )
    off_ms = abs(queue_ms - seen.queue_ms_p95)
    if off_ms > max(NEAR_QUEUE * seen.queue_ms_p95, NEAR_QUEUE_MS):
        found.append(
            f"the p95 of its queue was {ms_text(seen.queue_ms_p95)}, that of its replay is {ms_text(queue_ms)}"
        )
    return found


def unseen(fitted: LinkFit) -> list[str]:
    """Others in the queue that no replay can have."""
    sharing = fitted.sharing
    if not sharing.found or sharing.beside:
        return []
    return [
        f"{plural(sharing.pauses, 'pause')} of the sender were filled by flows that the capture does not have, and how they react is not known"
    ]
