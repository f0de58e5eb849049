"""Transfers side by side as data: sides, measures with their best and worst values, and the verdict in words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from unbloat.comparison.flow_measures import MEASURES, Measure, Value, best_and_worst
from unbloat.comparison.scenario_metrics import Section, sections
from unbloat.run.run import Run
from unbloat.text.format import limit_phrase, ms_text, number, rate_text, share_text

# What a reader would call the same rate; runs of one transfer over one radio cell differ by about as much.
SAME_RATE_WITHIN = 0.1
# Differences that deserve a clause of the verdict: a fifth of a round trip, five points of a share, half a point of loss.
DELAY_DIFFERS_BY = 0.2
SHARE_DIFFERS_BY = 0.05
LOSS_DIFFERS_BY = 0.005


@dataclass(frozen=True)
class Side:
    """One flow of one run, with the values of all measures."""

    label: str
    run: Run
    flow: int
    values: dict[str, Value]


@dataclass(frozen=True)
class Line:
    """One measure over all sides; `best` and `worst` are places in `values`."""

    measure: Measure
    values: list[Value]
    best: set[int]
    worst: set[int]


@dataclass(frozen=True)
class Sides:
    """Transfers side by side."""

    sides: list[Side]

    @property
    def labels(self) -> list[str]:
        """What the sides are called."""
        return [side.label for side in self.sides]

    @cached_property
    def lines(self) -> list[Line]:
        """Every measure that at least one side has a value for."""
        lines = []
        for measure in MEASURES:
            values = [side.values[measure.name] for side in self.sides]
            if any(value is not None for value in values):
                lines.append(Line(measure, values, *best_and_worst(measure, values)))
        return lines

    @cached_property
    def sections(self) -> list[Section]:
        """Of runs of a scenario all transfers, queues, probes and applications; none where a capture takes part."""
        runs = [side.run for side in self.sides]
        return (
            sections(runs) if all(run.made for run in runs) and len(set(map(id, runs))) > 1 else []
        )

    @property
    def verdict(self) -> str:
        """How the others differ from the first, one sentence each."""
        return " ".join(against(self.sides[0], side) for side in self.sides[1:])


def against(reference: Side, side: Side) -> str:
    """How one side differs from the first, in a sentence."""
    clauses = [rate_clause(reference, side)]
    worth = delay_clause(reference, side)
    if worth:
        # "but" when the rate is no better and the delay differs, or when one pays for the other.
        better_delay = value(side, "rtt_ms_p95") < value(reference, "rtt_ms_p95")
        faster = value(side, "goodput_bps") > value(reference, "goodput_bps") * (
            1 + SAME_RATE_WITHIN
        )
        clauses.append(("and " if better_delay == faster else "but ") + worth)
    clauses += window_clauses(reference, side)
    text = ", ".join(clauses[:2]) + "".join(f"; {clause}" for clause in clauses[2:])
    return f"{side.label}: {text}."


def rate_clause(reference: Side, side: Side) -> str:
    """Goodput against goodput."""
    before, now = reference.values["goodput_bps"], side.values["goodput_bps"]
    if (
        not isinstance(before, int | float)
        or not isinstance(now, int | float)
        or before == 0
        or now == 0
    ):
        return f"{rate_text(now if isinstance(now, int | float) else None)} of goodput"
    if abs(now - before) <= SAME_RATE_WITHIN * max(now, before):
        return f"{rate_text(now)}, as {reference.label}"
    times = now / before
    how = f"{number(times)} times" if times > 1 else f"1/{number(1 / times)} of"
    return f"{rate_text(now)}, {how} {reference.label}'s {rate_text(before)}"


def delay_clause(reference: Side, side: Side) -> str:
    """RTT against RTT, where both were measured and differ."""
    before, now = reference.values["rtt_ms_p95"], side.values["rtt_ms_p95"]
    if not isinstance(before, int | float) or not isinstance(now, int | float):
        return ""
    if abs(now - before) <= DELAY_DIFFERS_BY * max(now, before):
        return ""
    grades = (reference.values["grade"], side.values["grade"])
    grade = (
        f" (grade {grades[1]} instead of {grades[0]})"
        if None not in grades and grades[0] != grades[1]
        else ""
    )
    return f"RTT p95 {ms_text(now)} instead of {ms_text(before)}{grade}"


def window_clauses(reference: Side, side: Side) -> list[str]:
    """Window, losses and main limit, where they differ enough to be named."""
    clauses = []
    full = value(reference, "window_full_share"), value(side, "window_full_share")
    if abs(full[0] - full[1]) >= SHARE_DIFFERS_BY:
        clauses.append(
            f"window full {share_text(full[1])} of the time instead of {share_text(full[0])}"
        )
    loss = value(reference, "loss_rate"), value(side, "loss_rate")
    if abs(loss[0] - loss[1]) >= LOSS_DIFFERS_BY:
        clauses.append(
            f"{share_text(loss[1])} of the segments lost instead of {share_text(loss[0])}"
        )
    limits = reference.values["limit"], side.values["limit"]
    if limits[0] != limits[1] and isinstance(limits[1], str):
        rather = f" rather than {limit_phrase(limits[0])}" if isinstance(limits[0], str) else ""
        clauses.append(f"held back by {limit_phrase(limits[1])}{rather}")
    return clauses


def value(side: Side, name: str) -> float:
    """A number, 0 where it was not measured: only used where that reads as 'none'."""
    figure = side.values[name]
    return float(figure) if isinstance(figure, int | float) else 0.0
