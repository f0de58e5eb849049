"""Whether a run is as its scenario expects.

An expectation that names no flow, probe or link is about every one that has the figure, and fails where none has. There
is one `Check` per bound and place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unbloat.run.figures import Figures
from unbloat.run.metrics import figure
from unbloat.run.run import Run
from unbloat.text.format import byte_text, ms_text, number, rate_text, seconds_text, share_text


@dataclass(frozen=True)
class Check:
    """One bound on one figure."""

    run: str
    """Labels of the run; empty for a file without a sweep."""
    line: int | None
    """Line of the expectation in the scenario."""
    place: str
    """Flow, probe or link; empty for the run as a whole."""
    metric: str
    statistic: str | None
    value: float | None
    """None: never measured, so it fails."""
    least: float | None
    most: float | None

    @property
    def passed(self) -> bool:
        """Whether the figure lies within its bounds."""
        if self.value is None:
            return False
        return (self.least is None or self.value >= self.least) and (
            self.most is None or self.value <= self.most
        )

    @property
    def held(self) -> bool:
        """`passed`, as JSON names it."""
        return self.passed

    @property
    def text(self) -> str:
        """`probe0: probe_rtt_ms p95 45 ms, at most 200 ms`"""
        name = f"{self.metric} {self.statistic}" if self.statistic else self.metric
        bounds = [
            f"{word} {unit_text(self.metric, bound)}"
            for word, bound in (("at least", self.least), ("at most", self.most))
            if bound is not None
        ]
        value = "was never measured" if self.value is None else unit_text(self.metric, self.value)
        where = f"{self.place}: " if self.place else ""
        return f"{where}{name} {value}, expected {' and '.join(bounds)}"

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "run": self.run,
            "line": self.line,
            "place": self.place,
            "metric": self.metric,
            "statistic": self.statistic,
            "value": self.value,
            "min": self.least,
            "max": self.most,
            "held": self.passed,
        }


def unit_text(name: str, value: float) -> str:
    """A figure in the unit that its name ends in."""
    for ending, text in (
        ("_bps", rate_text),
        ("_ms", ms_text),
        ("_bytes", byte_text),
        ("_s", seconds_text),
        ("_rate", share_text),
    ):
        if name.endswith(ending):
            return text(value)
    if name.startswith("flow_share_"):
        return share_text(value)
    # Scores and indices are read to the second place.
    if value == round(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else number(value)


def checked(
    run: Run, labels: Sequence[tuple[str, str]], expectations: Sequence[dict[str, Any]]
) -> list[Check]:
    """Every bound that speaks of this run."""
    checks: list[Check] = []
    figures = Figures(run)
    for expectation in expectations:
        if not all(tuple(wanted) in labels for wanted in expectation["run"]):
            continue
        for bound in expectation["bounds"]:
            for place in places(figures, expectation, bound):
                value = figure(figures, bound["metric"], place, bound["statistic"])
                checks.append(
                    Check(
                        label_text(labels),
                        expectation["line"],
                        place,
                        bound["metric"],
                        bound["statistic"],
                        value,
                        bound["min"],
                        bound["max"],
                    )
                )
    return checks


def places(figures: Figures, expectation: dict[str, Any], bound: dict[str, Any]) -> list[str]:
    """What a bound is about: the one named, or all that have the figure; the first of them where none has."""
    on = bound["on"]
    if on == "run":
        return [""]
    if expectation[on] is not None:
        return [expectation[on]]
    every = {"flow": figures.transfers, "probe": figures.probes, "link": figures.links}[on]
    known = [
        name
        for name in every
        if figure(figures, bound["metric"], name, bound["statistic"]) is not None
    ]
    return known or [*every[:1]] or [on]


def label_text(labels: Sequence[tuple[str, str]]) -> str:
    """`congestion=cubic rate=2 Mbit/s`"""
    return ", ".join(f"{key}={value}" for key, value in labels)
