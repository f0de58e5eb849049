"""Figures of claims in words: values in their units, bounds, differences between lab and simulator."""

from __future__ import annotations

from collections.abc import Sequence

from unbloat.claims.figure import Figure
from unbloat.claims.judge import FIGURE_FAILED, FIGURE_PASSED, OpenParameter, Outcome
from unbloat.claims.reproduce_in_lab import LabOutcome
from unbloat.scenario.confidence import Spread
from unbloat.scenario.expectations import unit_text
from unbloat.text.format import NOTHING, plural

# Intervals that are a smaller share of the mean are left out: no figure is printed with so many digits.
SAME = 0.001
# State of a figure in JSON → what people read.
STATE_WORDS = {"held": "pass", "not held": "fail"}


def state_text(state: str) -> str:
    """A state in words: `pass`, `fail`, `shown`, `skipped`, and the states of the lab as they are."""
    return STATE_WORDS.get(state, state)


def value_text(figure: Figure, value: float | None) -> str:
    """A figure in its unit, or as a share where two runs are related."""
    if value is None:
        return "–"
    if figure.relation == "change":
        return f"{value * 100:+.0f} %"
    if figure.relation == "ratio":
        return f"{value:.2f} ×" if value < 10 else f"{value:.0f} ×"
    metric = figure.of.metric.partition(" ")[0]
    if "share" in metric:
        return f"{value * 100:.0f} %"
    name = metric if figure.of.metric.partition(" ")[2] != "count" else "count"
    # Counted by ACKs, so the unit is not at the end of the name.
    name = "in_flight_bytes" if metric.startswith("in_flight_bytes_") else name
    return unit_text(name, value)


def spread_text(figure: Figure, found: Spread | None) -> str:
    """A mean with half its 95 % interval, where seeds differ: `1.2 Mbit/s ± 0.1`."""
    if found is None:
        return NOTHING
    text = value_text(figure, found.mean)
    if not found.half or found.half < SAME * abs(found.mean):
        return text
    return f"{text} ± {half_text(figure, found)}"


def half_text(figure: Figure, found: Spread) -> str:
    """Half an interval in the unit of its figure."""
    return value_text(figure, found.half).removeprefix("+")


def verdict_text(title: str, outcomes: Sequence[Outcome]) -> str:
    """A title that says at once how many of its figures fail."""
    bounded = [one for one in outcomes if one.state in (FIGURE_PASSED, FIGURE_FAILED)]
    failed = sum(one.state == FIGURE_FAILED for one in bounded)
    return f"{title} ({failed} of {plural(len(bounded), 'figure')} fail)" if failed else title


def mark_text(figure: Figure) -> str:
    """Where a figure comes from, and whether something was chosen after a run."""
    return figure.mark if figure.chosen_after is None else f"{figure.mark}, chosen after a run"


def open_text(outcomes: Sequence[Outcome]) -> str | None:
    """What the source leaves open, and where all figures hold at once; None where nothing is open."""
    # Of figures that are only shown none can fail.
    every = [one.opened for one in outcomes if one.opened is not None and one.figure.bounds.stated]
    if not every:
        return None
    first, *_ = every
    text = f"The source leaves {first.name} open. Of {', '.join(first.values)},"
    parts = [part_text(opened) for opened in dict.fromkeys(every)]
    if first.each is None:
        return f"{text} {parts[0]}."
    return f"{text} " + ". ".join(parts) + "."


def part_text(opened: OpenParameter) -> str:
    """Where all figures hold at once, of one group of them."""
    if not opened.satisfying:
        counts = zip(opened.values, opened.failing, strict=True)
        failing = "; ".join(f"{count} fail at {value}" for value, count in counts)
        held = f"at none of them do all figures hold at once ({failing})"
    else:
        held = f"all figures hold at once at {', '.join(opened.satisfying)}"
    held += f"; shown: {opened.shown}"
    return held if opened.each is None else f"{opened.each}: {held}"


def bounds_text(figure: Figure) -> str:
    """`0.8 to 1.2`, `at least 800 KB`."""
    least, most = (
        None if end is None else value_text(figure, end)
        for end in (figure.bounds.least, figure.bounds.most)
    )
    if least and most:
        return f"{least} to {most}"
    return f"≥ {least}" if least else f"≤ {most}" if most else "–"


def difference_text(lab: LabOutcome) -> str:
    """`+3 %`, `-12 ms`"""
    if lab.difference is None:
        return NOTHING
    if lab.figure.lab is not None and lab.figure.lab.tolerance.relative:
        return f"{lab.difference * 100:+.0f} %"
    sign = "-" if lab.difference < 0 else "+"
    return sign + value_text(lab.figure, abs(lab.difference)).removeprefix("+")
