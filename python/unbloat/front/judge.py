"""The judge of the front: which control is how good on which link.

signal: goodput and p95 of the ping of each control, and of the sender that knows the link · model: the excess is the p95
above that sender's; a control dominates another where it is no worse in both figures and better in one · action: a `Verdict`
for each control of this project on each link

The goals, fixed before the first run: at least 95 % of the untreated goodput at no more than half of BBR's excess; on the
Pareto front; dominating cake-autorate. The peers of the first goal and of the third are at their published defaults. The
front counts every variant of their sweeps. Where queues are per flow, a ping passes the transfer; so the front is judged a
second time, by the queueing delay of the transfer's own packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unbloat.front.controls import Role
from unbloat.scenario.confidence import Spread

GOODPUT_SHARE = 0.95
"""Of the untreated goodput, at least."""
EXCESS_SHARE = 0.5
"""Of BBR's excess, at most."""
# Differences below these are none: a packet of 1,500 bytes takes 12 ms at 1 Mbit/s.
SAME_GOODPUT, SAME_MS = 0.005, 5.0


@dataclass(frozen=True)
class Point:
    """A control with one set of parameters on one link."""

    control: str
    variant: str
    role: Role
    goodput: Spread
    """bit/s."""
    p95: Spread
    """ms, of the ping."""
    flow_p95: Spread
    """ms, queueing delay of the transfer's own packets."""

    @property
    def label(self) -> str:
        """In words."""
        return self.control if self.variant == "default" else f"{self.control}, {self.variant}"


@dataclass(frozen=True)
class Field:
    """All that was measured on one link."""

    link: str
    group: str
    half: str
    bound_bps: float
    bound_ms: float
    """Goodput and p95 of the sender that knows the link."""
    points: tuple[Point, ...]

    def point(self, control: str, variant: str = "default") -> Point | None:
        """One of them."""
        return next((p for p in self.points if (p.control, p.variant) == (control, variant)), None)

    @property
    def untreated(self) -> Point | None:
        """Without any control of the queue."""
        return next((point for point in self.points if point.role == "untreated"), None)

    @property
    def ours(self) -> list[Point]:
        """Those of this project."""
        return [point for point in self.points if point.role == "ours"]

    def excess_ms(self, point: Point) -> float:
        """p95 above that of the sender that knows the link; not below zero."""
        return max(point.p95.mean - self.bound_ms, 0.0)

    def share(self, point: Point) -> float | None:
        """Goodput over the untreated one."""
        base = self.untreated
        return None if base is None else point.goodput.mean / base.goodput.mean

    def best(self, control: str) -> Point | None:
        """Of the sweep of a control: the smallest p95 that costs no more than the goal allows; else the largest goodput."""
        variants = [point for point in self.points if point.control == control]
        enough = [point for point in variants if (self.share(point) or 0.0) >= GOODPUT_SHARE]
        if enough:
            return min(enough, key=lambda point: point.p95.mean)
        return max(variants, key=lambda point: point.goodput.mean, default=None)


@dataclass(frozen=True)
class Verdict:
    """One control of this project on one link."""

    field: Field
    point: Point
    goodput_share: float | None
    """Over the untreated goodput."""
    excess_share: float | None
    """Over BBR's excess; None where that is smaller than a difference that counts."""
    reaches: bool
    """Goodput and p95 as the goal asks."""
    dominated_by: tuple[Point, ...]
    dominated_in_queue: tuple[Point, ...]
    """By the queueing delay of the transfer's own packets instead of the ping."""
    over_autorate: bool | None
    """Whether it dominates cake-autorate; None where that was not run."""

    @property
    def on_front(self) -> bool:
        """Whether nothing dominates it."""
        return not self.dominated_by


def dominates(one: Point, other: Point, own_queue: bool = False) -> bool:
    """Whether `one` is no worse in both figures and better in one, differences that do not count left aside.

    The delay is that of the ping, or with `own_queue` that of the transfer's packets.
    """
    room = SAME_GOODPUT * other.goodput.mean
    more = one.goodput.mean - other.goodput.mean
    theirs, ours = (other.flow_p95, one.flow_p95) if own_queue else (other.p95, one.p95)
    sooner = theirs.mean - ours.mean
    return more >= -room and sooner >= -SAME_MS and (more > room or sooner > SAME_MS)


def judge(field: Field, point: Point) -> Verdict:
    """One verdict."""
    bbr, autorate = field.point("bbr"), field.point("cake-autorate")
    share = field.share(point)
    excess = field.excess_ms(point)
    theirs = None if bbr is None else field.excess_ms(bbr)
    small = theirs is not None and excess <= max(EXCESS_SHARE * theirs, SAME_MS)
    others = [one for one in field.points if one is not point]
    return Verdict(
        field,
        point,
        share,
        excess / theirs if theirs and theirs > SAME_MS else None,
        small and share is not None and share >= GOODPUT_SHARE,
        tuple(one for one in others if dominates(one, point)),
        tuple(one for one in others if dominates(one, point, own_queue=True)),
        None if autorate is None else dominates(point, autorate),
    )


def verdicts(fields: Iterable[Field]) -> list[Verdict]:
    """Of every control of this project on every link."""
    return [judge(field, point) for field in fields for point in field.ours]


@dataclass(frozen=True)
class Count:
    """How often one control of this project reaches what."""

    control: str
    links: int
    reaches: int
    on_front: int
    on_queue_front: int
    """By the queueing delay of the transfer's own packets."""
    over_autorate: int


def counts(found: Sequence[Verdict]) -> list[Count]:
    """Per control."""
    names = dict.fromkeys(verdict.point.label for verdict in found)
    return [
        Count(
            name,
            len(own := [verdict for verdict in found if verdict.point.label == name]),
            sum(verdict.reaches for verdict in own),
            sum(verdict.on_front for verdict in own),
            sum(not verdict.dominated_in_queue for verdict in own),
            sum(bool(verdict.over_autorate) for verdict in own),
        )
        for name in names
    ]
