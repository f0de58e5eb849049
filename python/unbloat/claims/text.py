"""`unbloat reproduce` on the terminal: one block per claim, one line per figure, and a count at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from unbloat.claims.claim import Figure
from unbloat.claims.reproduce import HELD, NOT_HELD, Extent, Outcome, reproduce
from unbloat.claims.reproduce_in_lab import AGREES, DIFFERS, FAILED, NOT_RUN, LabOutcome
from unbloat.scenario.expectations import unit_text
from unbloat.text.format import NOTHING, plural
from unbloat.text.progress import Shown
from unbloat.text.terminal import Paper, left

STYLE = {"held": ("green",), "not held": ("red",), "shown": ("cyan",), "skipped": ("dim",)}
LAB_STYLE = {AGREES: ("green",), DIFFERS: ("red",), NOT_RUN: ("dim",), FAILED: ("red",)}


def show(
    names: Sequence[str],
    quick: bool,
    as_json: bool,
    report: Path | None,
    traces: Path | None,
    jobs: int | None,
    lab: Extent | None = None,
) -> int:
    """Runs the claims and prints them; 1 where one does not hold, or differs in the lab, that is not known to."""
    with Shown("simulating") as progress, Shown("in the lab") as lab_progress:
        outcomes = reproduce(
            names,
            quick=quick,
            lab=lab,
            traces=traces,
            jobs=jobs,
            progress=progress,
            lab_progress=LabProgress(progress, lab_progress),
        )
    if report is not None:
        from unbloat.claims.page import write_page

        write_page(outcomes, report)
    if as_json:
        print(json.dumps({"format": 1, "figures": [outcome.to_dict() for outcome in outcomes]}))
    else:
        table(outcomes, Paper(sys.stdout))
    return int(any(outcome.surprising for outcome in outcomes))


class LabProgress:
    """The lab's bar, which follows the simulator's."""

    def __init__(self, before: Shown, own: Shown) -> None:
        self.before, self.own = before, own

    def __call__(self, done: int, total: int) -> None:
        """Seconds done, seconds in all."""
        self.before.close()
        self.own(done, total)


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
        if outcome.lab is not None:
            lab_lines(outcome.lab, paper)
    counts = {state: sum(outcome.state == state for outcome in outcomes) for state in STYLE}
    paper.line()
    parts = [
        f"{count} {state}" for state, count in counts.items() if count or state in (HELD, NOT_HELD)
    ]
    claims = len({outcome.claim.id for outcome in outcomes})
    paper.line(f"{claims} claims, {len(outcomes)} figures: {', '.join(parts)}")
    found = [outcome.lab for outcome in outcomes if outcome.lab is not None]
    if found:
        paper.line(lab_counts(found))


def lab_lines(lab: LabOutcome, paper: Paper) -> None:
    """A figure in the lab: what it is there, beside the simulator's, and what that makes."""
    state = paper.style(lab.state, *LAB_STYLE[lab.state])
    if lab.value is None and lab.simulator is None:
        paper.wrapped(f"lab {state}: {lab.note}", " " * 12, " " * 12)
        return
    parts = [
        f"lab {value_text(lab.figure, lab.value)}",
        f"simulator likewise {value_text(lab.figure, lab.simulator)}",
    ]
    if lab.difference is not None:
        parts.append(f"{difference_text(lab)} of {lab.tolerance}")
    if lab.within is not None:
        parts.append("within the bounds" if lab.within else "outside the bounds")
    paper.wrapped(f"{' · '.join(parts)} · {state}", " " * 12, " " * 12)
    if lab.note:
        paper.wrapped(lab.note, " " * 12, " " * 12)


def difference_text(lab: LabOutcome) -> str:
    """`+3 %`, `-12 ms`"""
    if lab.difference is None:
        return NOTHING
    if lab.figure.lab is not None and lab.figure.lab.tolerance.relative:
        return f"{lab.difference * 100:+.0f} %"
    sign = "-" if lab.difference < 0 else "+"
    return sign + value_text(lab.figure, abs(lab.difference)).removeprefix("+")


def said(state: str, count: int) -> str:
    """`1 agrees`, `2 agree`"""
    return state.removesuffix("s") if count != 1 and state in (AGREES, DIFFERS) else state


def lab_counts(found: Sequence[LabOutcome]) -> str:
    """What the lab makes of all figures."""
    counts = {state: sum(one.state == state for one in found) for state in LAB_STYLE}
    parts = [f"{count} {said(state, count)}" for state, count in counts.items() if count]
    held = [one.within for one in found if one.within is not None]
    text = f"lab: {', '.join(parts)}"
    if held:
        text += f"; {sum(held)} of {plural(len(held), 'bounded figure')} within the bounds"
    late = [one.late_ms for one in found if one.late_ms is not None]
    return f"{text}; packets late by {max(late):.1f} ms at most (p99 of a run)" if late else text
