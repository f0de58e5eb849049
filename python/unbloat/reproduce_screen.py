"""`unbloat reproduce` on the terminal: one block per claim, one line per figure, and a count at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from unbloat.claims import Figure
from unbloat.expect import unit_text
from unbloat.progress import Shown
from unbloat.reproduce import HELD, NOT_HELD, Outcome, reproduce
from unbloat.terminal import Paper, left

STYLE = {"held": ("green",), "not held": ("red",), "shown": ("cyan",), "skipped": ("dim",)}


def show(
    names: Sequence[str],
    quick: bool,
    as_json: bool,
    report: Path | None,
    traces: Path | None,
    jobs: int | None,
) -> int:
    """Runs the claims and prints them; 1 where one does not hold that is not known not to."""
    with Shown("simulating") as progress:
        outcomes = reproduce(names, quick=quick, traces=traces, jobs=jobs, progress=progress)
    if report is not None:
        from unbloat.reproduce_page import write_page

        write_page(outcomes, report)
    if as_json:
        print(json.dumps({"format": 1, "figures": [outcome.to_dict() for outcome in outcomes]}))
    else:
        table(outcomes, Paper(sys.stdout))
    return int(any(outcome.surprising for outcome in outcomes))


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


def table(outcomes: Sequence[Outcome], paper: Paper) -> None:
    """All outcomes, claim by claim."""
    last = None
    for outcome in outcomes:
        if outcome.claim is not last:
            last = outcome.claim
            paper.line()
            paper.line(paper.style(last.title, "bold"))
            paper.line(paper.style(f"  {last.id} · {last.source} · {last.mark}", "dim"))
        figure = outcome.figure
        paper.line(f"  {paper.style(left(outcome.state, 9), *STYLE[outcome.state])} {figure.name}")
        parts = [f"ours {value_text(figure, outcome.value)}"]
        if figure.paper:
            parts.insert(0, f"paper {figure.paper}")
        if figure.least is not None or figure.most is not None:
            parts.append(f"bounds {bounds_text(figure)}")
        if figure.control is not None:
            parts.append(f"control {value_text(figure, outcome.control)}")
        paper.wrapped(" · ".join(parts), " " * 12, " " * 12)
        if outcome.note:
            paper.wrapped(outcome.note, " " * 12, " " * 12)
    counts = {state: sum(outcome.state == state for outcome in outcomes) for state in STYLE}
    paper.line()
    parts = [f"{count} {state}" for state, count in counts.items() if count or state in (HELD, NOT_HELD)]
    claims = len({outcome.claim.id for outcome in outcomes})
    paper.line(f"{claims} claims, {len(outcomes)} figures: {', '.join(parts)}")
