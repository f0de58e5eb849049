"""`unbloat reproduce` on the terminal: one block per claim, one line per figure, and a count at the end."""

from __future__ import annotations

from collections.abc import Sequence

from unbloat.claims.reproduce import HELD, NOT_HELD, Outcome
from unbloat.claims.reproduce_in_lab import AGREES, DIFFERS, FAILED, NOT_RUN, LabOutcome
from unbloat.claims.words import bounds_text, difference_text, value_text
from unbloat.text.format import plural
from unbloat.text.terminal import Paper, left

STYLE = {"held": ("green",), "not held": ("red",), "shown": ("cyan",), "skipped": ("dim",)}
LAB_STYLE = {AGREES: ("green",), DIFFERS: ("red",), NOT_RUN: ("dim",), FAILED: ("red",)}


def outcomes_screen(paper: Paper, outcomes: Sequence[Outcome]) -> None:
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
