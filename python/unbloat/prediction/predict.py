"""`what_if`: what each cure would have done to the transfer of a capture.

signal: one capture, from which the link is fitted · model: each draw of the link is a replay in the simulator, under the
sender's own congestion control and under each cure, with the same random seed · action: a `WhatIf`, or `LinkUnknown` where
no link was fitted, or where the replay of what was does not match the capture

Which draws explain the capture is decided in `explain.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist, median
from typing import TypeVar

from unbloat.errors import LinkUnknown, UnbloatError
from unbloat.link.fit import DRAWS, SEED, fit
from unbloat.link.model import PACKET_BITS, Band, LinkFit, quantiles
from unbloat.prediction.cures import AS_IT_WAS, Cure, for_way
from unbloat.prediction.draws import Draw, longest_queue_ms
from unbloat.prediction.explain import (
    SENDERS,
    differences,
    distance,
    explaining,
    observed,
    recognised,
    unseen,
)
from unbloat.prediction.narrow import narrowed
from unbloat.prediction.replay import Case, InLab, Outcome, replayed, way_of
from unbloat.run.tables import Row

# What a replay is off by where the link is known well, on the tuning halves of `docs/generated/what-if.md` and `what-if-kernel.md`. The error of
# a queueing delay is that of its cure (`cures.py`), and so much at least; queues are whole packets. With one millisecond BBR's short queues
# missed their intervals by one to two.
ERROR_GOODPUT, ERROR_QUEUE_MS, ERROR_PACKETS = 0.05, 2.0, 1
# A normal error at the middles of ten equal parts, of which its 90 % interval is the unit.
ERRORS = [
    NormalDist().inv_cdf(part / 100) / NormalDist().inv_cdf(0.95) for part in range(5, 100, 10)
]
# Those that a user may name: too rare to be taken for the reason of a difference.
NAMED = (*SENDERS, "bbr3", "htcp", "vegas", "westwood")
# A cure is better where it leaves so much of the goodput, and its p95 is so much shorter: as far as a check distinguishes.
KEPT_GOODPUT, SHORTER = 0.9, 0.8
# The best cure is better in so many draws: more likely than not. On the tuning half 0.9 named a good one less often.
IN_MOST = 0.5

Progress = Callable[[int, int], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Predicted:
    """A cure, and what it gives on each draw."""

    cure: Cure
    outcomes: list[Outcome]
    better: float
    """Share of the draws in which its p95 is at most four fifths of that of the transfer as it was, with nine tenths of its goodput."""
    least_ms: float
    """What the queueing delay cannot be known better than."""
    beyond: bool
    """Whether its queue is longer than any that was seen, in a buffer whose end was not seen."""

    @cached_property
    def goodput_bps(self) -> Band:
        """Interval and median."""
        return spread([one.goodput_bps for one in self.outcomes], ERROR_GOODPUT, 0.0)

    @cached_property
    def queue_ms_p50(self) -> Band:
        """Of the median of the queueing delay."""
        return spread([one.queue_ms_p50 for one in self.outcomes], self.cure.error, self.least_ms)

    @cached_property
    def queue_ms_p95(self) -> Band:
        """Of the p95 of the queueing delay."""
        low, middle, high = spread(
            [one.queue_ms_p95 for one in self.outcomes], self.cure.error, self.least_ms
        )
        # A queue stands for a round trip or two more or less: after slow start, after an outage. Where p95 lies beside the end of
        # such a queue, that is the difference between two queues.
        near = [one.near_p95_ms or (one.queue_ms_p95, one.queue_ms_p95) for one in self.outcomes]
        shorter, longer = (quantiles([ends[place] for ends in near]) for place in (0, 1))
        return min(low, shorter[0]), middle, max(high, longer[2])

    @property
    def grade(self) -> str | None:
        """The one of the median draw by its p95."""
        ranked = sorted(self.outcomes, key=lambda one: one.queue_ms_p95)
        return ranked[len(ranked) // 2].grade


@dataclass(frozen=True)
class WhatIf:
    """What cures would have done."""

    fitted: LinkFit
    senders: dict[str, float]
    """Share of each congestion control among the links that explain the capture, the largest first."""
    queues: dict[str, float]
    """Share of each kind of queue."""
    send_buffers: dict[int | None, float]
    """Share of each buffer of the sender's socket, bytes; none where it was not full."""
    seen: Outcome
    """What the capture shows."""
    as_it_was: Predicted
    """Its replay."""
    cures: list[Predicted]
    differs: list[str]
    """In what the replay differs from the capture; empty where the check is passed."""
    links: list[Draw]
    """Those that explain the capture, in the order of the outcomes."""
    lab: InLab = field(default_factory=dict)
    """What `in_lab` measured; empty where it did not run."""

    def nearest(self, count: int) -> list[Draw]:
        """The links whose replays are nearest to the capture, the nearest first."""
        outcomes = self.as_it_was.outcomes
        ranked = sorted(range(len(outcomes)), key=lambda at: distance(outcomes[at], self.seen))
        return [self.links[at] for at in ranked[:count]]

    @property
    def best(self) -> Predicted | None:
        """The shortest queue of the cures that are better in most draws."""
        better = [one for one in self.cures if one.better >= IN_MOST]
        return min(better, key=lambda one: one.queue_ms_p95[1], default=None)

    @property
    def send_buffer_bytes(self) -> int | None:
        """Of the sender's socket, where it was full in most of these links."""
        return max(self.send_buffers, key=self.send_buffers.__getitem__)

    @property
    def rate_bps(self) -> float:
        """The median of the mean rate."""
        return self.fitted.mean_bps[1]

    def to_dict(self) -> Row:
        """As `--json` prints it."""
        link = self.fitted.to_dict()
        del link["slots"]
        best = self.best
        return {
            "link": link,
            "senders": self.senders,
            "queues": self.queues,
            "send_buffer_bytes": self.send_buffer_bytes,
            "differs": self.differs,
            "seen": {
                "goodput_bps": self.seen.goodput_bps,
                "queue_ms_p50": self.seen.queue_ms_p50,
                "queue_ms_p95": self.seen.queue_ms_p95,
                "loss_rate": self.seen.loss_rate,
                "grade": self.seen.grade,
            },
            "draws": len(self.as_it_was.outcomes),
            "best": best and best.cure.name,
            "predicted": [
                row(one, self.rate_bps) | lab_row(self.lab.get(one.cure.name))
                for one in (self.as_it_was, *self.cures)
            ],
        }


def lab_row(ran: Sequence[Outcome] | str | None) -> Row:
    """What kernels gave, run by run; or why there is nothing."""
    if ran is None:
        return {}
    if isinstance(ran, str):
        return {"lab": None, "lab_why": ran}
    return {
        "lab": [
            {
                "goodput_bps": one.goodput_bps,
                "queue_ms_p50": one.queue_ms_p50,
                "queue_ms_p95": one.queue_ms_p95,
            }
            for one in ran
        ]
    }


def row(one: Predicted, rate_bps: float) -> Row:
    """A cure of the JSON."""
    found: Row = {"cure": one.cure.name}
    for name in ("goodput_bps", "queue_ms_p50", "queue_ms_p95"):
        low, middle, high = getattr(one, name)
        found |= {name: middle, f"{name}_low": low, f"{name}_high": high}
    return found | {
        "grade": one.grade,
        "better": one.better,
        "beyond_the_capture": one.beyond,
        "where": one.cure.where or None,
        "command": one.cure.installed(rate_bps) or None,
    }


def what_if(
    path: str | os.PathLike[str],
    *others: str | os.PathLike[str],
    connection: str | int | None = None,
    cures: Sequence[str] = (),
    congestion: str | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
    anyway: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """What each cure would have done to a transfer, from one capture of it beside the sender or the receiver.

    `others` are more captures of the same path: their largest connections narrow what is known of its buffer, delay and random loss.
    `connection`, `draws` and `seed` are those of `fit`. `cures` names some, otherwise all of the direction. `congestion` is the
    sender's, which is otherwise recognised. Raises what `fit` raises, and `LinkUnknown` where the replay of the transfer as it was does
    not match the capture, unless `anyway` is set.
    """
    if congestion is not None and congestion not in NAMED:
        raise UnbloatError(f"no congestion control {congestion!r}: {', '.join(NAMED)}")
    for_way("up", cures)
    fitted, contradictions = narrowed(
        fit(path, connection=connection, draws=draws, seed=seed),
        [fit(other, draws=1, seed=seed) for other in others],
    )
    way = way_of(fitted)
    chosen = for_way(way, cures)
    seen = observed(fitted)

    def explained(senders: Sequence[str]) -> tuple[list[tuple[Draw, Outcome]], list[str]]:
        nearest = explaining(fitted, senders, seen, seed, jobs)
        return nearest, differences(seen, [outcome for _, outcome in nearest])

    senders = (congestion,) if congestion else recognised(fitted)
    nearest, differs = explained(senders)
    if differs and not congestion and senders != SENDERS:
        # The law of its window was taken for that of another one.
        other, others_differ = explained(SENDERS)
        nearest, differs = (nearest, differs) if others_differ else (other, others_differ)
    differs += [*unseen(fitted), *contradictions]
    if differs and not anyway:
        raise LinkUnknown(
            f"{fitted.capture}, connection {fitted.connection['id']}: the fitted link does not explain this transfer: "
            f"{'; '.join(differs)}. What a cure does cannot be known from this (--anyway predicts all the same)"
        )
    cases: list[Case] = [(link, cure) for cure in chosen for link, _ in nearest]
    outcomes = replayed(cases, way, jobs, progress)
    was = [one for _, one in nearest]
    kept_sorts = [link.sort for link, _ in nearest]
    return WhatIf(
        fitted,
        shares(sort.congestion for sort in kept_sorts),
        shares(sort.queue for sort in kept_sorts),
        shares(sort.send_buffer_bytes for sort in kept_sorts),
        seen,
        predicted(AS_IT_WAS, was, was, fitted),
        [
            predicted(cure, outcomes[draws * at : draws * (at + 1)], was, fitted)
            for at, cure in enumerate(chosen)
        ],
        differs,
        [link for link, _ in nearest],
    )


def shares(values: Iterable[T]) -> dict[T, float]:
    """Of each value, the largest first."""
    counts = Counter(values)
    return {value: count / counts.total() for value, count in counts.most_common()}


def predicted(
    cure: Cure, outcomes: list[Outcome], was: Sequence[Outcome], fitted: LinkFit
) -> Predicted:
    """Beside the replay without a cure, draw by draw."""
    better = sum(
        one.queue_ms_p95 <= SHORTER * before.queue_ms_p95
        and one.goodput_bps >= KEPT_GOODPUT * before.goodput_bps
        for one, before in zip(outcomes, was, strict=True)
    )
    buffer = fitted.buffer
    longer = median(one.queue_ms_p95 for one in outcomes) > longest_queue_ms(fitted)
    return Predicted(
        cure,
        outcomes,
        better / len(outcomes),
        ERROR_QUEUE_MS + ERROR_PACKETS * 1000 * PACKET_BITS / fitted.mean_bps[1],
        longer and (buffer is None or buffer.bytes is None),
    )


def spread(values: Sequence[float], share: float, least: float) -> Band:
    """Of the draws, each of which has the error of a replay on a known link: so much, or a share of the value if that is more."""
    _, middle, _ = quantiles(list(values))
    off = [value + max(share * value, least) * part for value in values for part in ERRORS]
    low, _, high = quantiles(off)
    error = max(share * middle, least)
    return max(min(low, middle - error), 0.0), middle, max(high, middle + error)
