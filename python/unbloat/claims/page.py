"""The page of `unbloat reproduce`: every claim with its figures, as one file that holds everything it shows.

Counts stand at the top, then claims by group with a row per figure, and charts of ours beside the source's points. Reasons for the bounds and the scenario's text are
folded. Claims that show all their runs have them as a table.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from unbloat.claims.chart import READ, Chart
from unbloat.claims.chart_points import drawn
from unbloat.claims.chart_svg import COLOURS, chart_svg
from unbloat.claims.claim import Claim
from unbloat.claims.figure import MARKS, Picked
from unbloat.claims.judge import FIGURE_FAILED, FIGURE_PASSED, SHOWN, SKIPPED, Outcome
from unbloat.claims.repetition import Row
from unbloat.claims.reproduce_in_lab import AGREES, DIFFERS, FAILED, NOT_RUN, LabOutcome
from unbloat.claims.words import (
    bounds_text,
    difference_text,
    mark_text,
    open_text,
    spread_text,
    state_text,
    value_text,
    verdict_text,
)
from unbloat.report.write import ReportInfo, render_plain, save
from unbloat.scenario.expectations import unit_text
from unbloat.scenario.unjudged import MEANING, marked, meaning
from unbloat.text.format import NOTHING
from unbloat.version import __version__

# Order of the counts, with what each says of a figure.
STATES = {
    FIGURE_PASSED: "the whole interval lies within bounds stated beforehand, and none of the control's",
    FIGURE_FAILED: "not wholly within the bounds, or the control reaches into them",
    SHOWN: "without bounds: measured and shown",
    SKIPPED: "not run: a trace is not there",
}
# The same of the lab.
LAB_STATES = {
    AGREES: "in the lab as in the simulator under the same settings, within the tolerance",
    DIFFERS: "different in the lab and in the simulator; the reason is given where it is known",
    NOT_RUN: "not in the lab: no kernel can, or the lab's shorter run ends before",
    FAILED: "the lab broke off",
}
Cells = tuple[list[str], list[list[str]]]


@dataclass(frozen=True)
class LabCell:
    """A figure in the lab as the page shows it."""

    state: str
    value: str
    simulator: str
    difference: str
    note: str


@dataclass(frozen=True)
class Line:
    """A figure as the page shows it."""

    name: str
    state: str
    mark: str
    chosen_after: str
    metric: str
    paper: str
    expected: str
    ours: str
    bounds: str
    control: str
    why: str
    note: str
    lab: LabCell | None


@dataclass(frozen=True)
class Drawing:
    """A chart as the page shows it."""

    svg: Markup
    caption: str
    legend: list[tuple[int, str]]
    """Colour and name of each series."""
    points: str
    """Name of the source's points; empty where it has none."""


@dataclass(frozen=True)
class Block:
    """A claim as the page shows it."""

    claim: Claim
    title: str
    """With the number of figures that fail."""
    opened: str
    """What the source leaves open, and where all figures hold."""
    seeds: int
    lines: list[Line]
    runs: Cells | None
    charts: list[Drawing]

    @property
    def state(self) -> str:
        """The worst of its figures."""
        states = {line.state for line in self.lines}
        return next(
            state_text(state)
            for state in (FIGURE_FAILED, SKIPPED, FIGURE_PASSED, SHOWN)
            if state_text(state) in states
        )

    @property
    def computed(self) -> bool:
        """Whether any of its figures is expected by something other than the source."""
        return any(line.expected != NOTHING for line in self.lines)

    @property
    def in_lab(self) -> bool:
        """Whether any of its figures was in the lab."""
        return any(line.lab is not None for line in self.lines)


def write_page(outcomes: Sequence[Outcome], path: Path) -> ReportInfo:
    """Writes the page."""
    begun = time.perf_counter()
    blocks = [block(claim) for claim in by_claim(outcomes)]
    groups: dict[str, list[Block]] = {}
    for one in sorted(
        blocks, key=lambda one: one.claim.mark == "own"
    ):  # what others claim comes first
        groups.setdefault(one.claim.group, []).append(one)
    counts = {state: sum(outcome.state == state for outcome in outcomes) for state in STATES}
    text = render_plain(
        "reproduce.html.j2",
        tool=f"unbloat {__version__}",
        groups=groups,
        counts=[
            (state_text(state), count, STATES[state])
            for state, count in counts.items()
            if count or state in (FIGURE_PASSED, FIGURE_FAILED)
        ],
        lab_counts=lab_counts(outcomes),
        lab_made=lab_made(outcomes),
        claims=len(blocks),
        figures=len(outcomes),
        marks=MARKS,
        unjudged=MEANING.replace("*", "") if any(is_marked(one) for one in blocks) else "",
    )
    return save(text, path, begun, len(blocks), len(outcomes))


def is_marked(block: Block) -> bool:
    """Whether it shows an algorithm without an outside judge."""
    cells = [] if block.runs is None else [cell for row in block.runs[1] for cell in row]
    return any(meaning(text) for text in (*(line.name for line in block.lines), *cells))


def lab_counts(outcomes: Sequence[Outcome]) -> list[tuple[str, int, str]]:
    """How many figures are in which state in the lab, and what that says."""
    found = [outcome.lab.state for outcome in outcomes if outcome.lab is not None]
    return [
        (state, found.count(state), meaning)
        for state, meaning in LAB_STATES.items()
        if state in found
    ]


def lab_made(outcomes: Sequence[Outcome]) -> str:
    """On which kernel, and how late packets were."""
    found = [outcome.lab for outcome in outcomes if outcome.lab is not None and outcome.lab.kernel]
    if not found:
        return ""
    late = max((one.late_ms for one in found if one.late_ms is not None), default=0.0)
    kernels = sorted({str(one.kernel) for one in found})
    return f"{', '.join(kernels)}; packets late by {late:.1f} ms at most (p99 of a run)"


def by_claim(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """The outcomes of each claim together, in their order."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.claim.id, []).append(outcome)
    return list(found.values())


def block(outcomes: Sequence[Outcome]) -> Block:
    """One claim."""
    claim = outcomes[0].claim
    return Block(
        claim,
        verdict_text(claim.title, outcomes),
        open_text(outcomes) or "",
        max((one.measured.count for one in outcomes if one.measured is not None), default=0),
        [line(outcome) for outcome in outcomes],
        table_cells(claim, outcomes[0].table),
        [] if outcomes[0].state == SKIPPED else [drawing(one, outcomes) for one in claim.charts],
    )


def drawing(chart: Chart, outcomes: Sequence[Outcome]) -> Drawing:
    """A chart drawn from the claim's outcomes."""
    series = drawn(chart, outcomes)
    said = any(point.said is not None for one in series for point in one.points)
    caption = f"Ours beside {chart.source}"
    if said or chart.guides:
        caption += f"; {READ[chart.read]}"
    caption += f". {chart.caption}" if chart.caption else "."
    return Drawing(
        # Made of numbers and escaped words.
        Markup(chart_svg(chart, series)),
        caption,
        [(n % COLOURS, one.name) for n, one in enumerate(series)],
        chart.points if said else "",
    )


def line(outcome: Outcome) -> Line:
    """One figure."""
    figure = outcome.figure
    return Line(
        marked(figure.name),
        state_text(outcome.state),
        mark_text(figure),
        figure.chosen_after or "",
        f"{figure.of.metric}{'' if figure.relation == 'value' else f', {figure.relation} of two runs'}",
        figure.paper or NOTHING,
        figure.expected or NOTHING,
        unbroken(spread_text(figure, outcome.measured)),
        unbroken(bounds_text(figure)),
        unbroken(spread_text(figure, outcome.control_measured)) if figure.control else NOTHING,
        figure.why,
        outcome.note,
        None if outcome.lab is None else lab_cell(outcome.lab),
    )


def lab_cell(lab: LabOutcome) -> LabCell:
    """One figure in the lab."""
    return LabCell(
        lab.state,
        unbroken(value_text(lab.figure, lab.value)),
        unbroken(value_text(lab.figure, lab.simulator)),
        unbroken(difference_text(lab)) if lab.difference is not None else NOTHING,
        lab.note,
    )


def unbroken(text: str) -> str:
    """No line break between a number and its unit, or a sign and its number."""
    return re.sub(r" (?=[×%A-Za-z])(?!to )|(?<=[≥≤]) ", "\u00a0", text)


def table_cells(claim: Claim, rows: Sequence[Row]) -> Cells | None:
    """All runs of a claim in text: headings, and a line per run."""
    if not rows:
        return None
    headings = [name for name, _ in rows[0].labels] + [name for name, _ in claim.columns]
    return headings, [
        [marked(value) for _, value in row.labels]
        + [cell(pick, value) for (_, pick), value in zip(claim.columns, row.values, strict=True)]
        for row in rows
    ]


def cell(pick: Picked, value: float | None) -> str:
    """A number of the table in its unit."""
    if value is None:
        return "–"
    metric, _, statistic = pick.metric.partition(" ")
    return f"{value:.1f}".removesuffix(".0") if statistic == "count" else unit_text(metric, value)
