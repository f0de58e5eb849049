"""Figures of claims in words: values in their units, bounds, differences between lab and simulator."""

from __future__ import annotations

from unbloat.claims.claim import Figure
from unbloat.claims.reproduce_in_lab import LabOutcome
from unbloat.scenario.expectations import unit_text
from unbloat.text.format import NOTHING

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
    return unit_text(name, value)


def bounds_text(figure: Figure) -> str:
    """`0.8 to 1.2`, `at least 800 KB`."""
    least = None if figure.least is None else value_text(figure, figure.least)
    most = None if figure.most is None else value_text(figure, figure.most)
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
