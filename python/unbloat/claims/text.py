"""`unbloat reproduce` on the terminal: one block per claim, one line per figure, and a count at the end."""

from __future__ import annotations

from collections.abc import Sequence

from unbloat.claims.judge import FIGURE_FAILED, FIGURE_PASSED, SHOWN, SKIPPED, Outcome
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
from unbloat.scenario.unjudged import marked
from unbloat.text.format import plural
from unbloat.text.terminal import Terminal, left

STYLE = {
    FIGURE_PASSED: ("green",),
    FIGURE_FAILED: ("red",),
    SHOWN: ("cyan",),
    SKIPPED: ("dim",),
}
LAB_STYLE = {AGREES: ("green",), DIFFERS: ("red",), NOT_RUN: ("dim",), FAILED: ("red",)}


def outcomes_screen(terminal: Terminal, outcomes: Sequence[Outcome]) -> None:
    """All outcomes, claim by claim."""
    last = None
    for outcome in outcomes:
        if outcome.claim is not last:
            last = outcome.claim
            heading(terminal, [one for one in outcomes if one.claim is last])
        figure = outcome.figure
        terminal.line(
            f"  {terminal.style(left(state_text(outcome.state), 9), *STYLE[outcome.state])} {marked(figure.name)}"
        )
        parts = [f"ours {spread_text(figure, outcome.measured)}"]
        if figure.expected:
            parts.insert(0, f"expected {figure.expected}")
        if figure.paper:
            parts.insert(0, f"paper {figure.paper}")
        if figure.bounds.stated:
            parts.append(f"bounds {bounds_text(figure)}")
        if figure.control is not None:
            parts.append(f"control {spread_text(figure, outcome.control_measured)}")
        parts.append(mark_text(figure))
        terminal.wrapped(" · ".join(parts), " " * 12, " " * 12)
        if figure.chosen_after:
            terminal.wrapped(f"chosen after a run: {figure.chosen_after}", " " * 12, " " * 12)
        if outcome.note:
            terminal.wrapped(outcome.note, " " * 12, " " * 12)
        if outcome.lab is not None:
            lab_lines(outcome.lab, terminal)
    counts = {state: sum(outcome.state == state for outcome in outcomes) for state in STYLE}
    terminal.line()
    parts = [
        f"{count} {state_text(state)}"
        for state, count in counts.items()
        if count or state in (FIGURE_PASSED, FIGURE_FAILED)
    ]
    claims = len({outcome.claim.id for outcome in outcomes})
    terminal.line(
        f"{plural(claims, 'claim')}, {plural(len(outcomes), 'figure')}: {', '.join(parts)}"
    )
    found = [outcome.lab for outcome in outcomes if outcome.lab is not None]
    if found:
        terminal.line(lab_counts(found))


def heading(terminal: Terminal, outcomes: Sequence[Outcome]) -> None:
    """A claim's title with its result, its source, and what the source leaves open."""
    claim, opened = outcomes[0].claim, open_text(outcomes)
    seeds = max((one.measured.count for one in outcomes if one.measured is not None), default=0)
    repeated = f" · mean of {seeds} seeds ± half the 95 % interval" if seeds > 1 else ""
    terminal.line()
    terminal.line(terminal.style(verdict_text(claim.title, outcomes), "bold"))
    terminal.line(terminal.style(f"  {claim.id} · {claim.source}{repeated}", "dim"))
    if opened is not None:
        terminal.wrapped(opened, "  ", "  ")


def lab_lines(lab: LabOutcome, terminal: Terminal) -> None:
    """A figure in the lab: what it is there, beside the simulator's, and what that makes."""
    state = terminal.style(lab.state, *LAB_STYLE[lab.state])
    if lab.value is None and lab.simulator is None:
        terminal.wrapped(f"lab {state}: {lab.note}", " " * 12, " " * 12)
        return
    parts = [
        f"lab {value_text(lab.figure, lab.value)}",
        f"simulator likewise {value_text(lab.figure, lab.simulator)}",
    ]
    if lab.difference is not None:
        parts.append(f"{difference_text(lab)} of {lab.tolerance}")
    if lab.within is not None:
        parts.append("within the bounds" if lab.within else "outside the bounds")
    terminal.wrapped(f"{' · '.join(parts)} · {state}", " " * 12, " " * 12)
    if lab.note:
        terminal.wrapped(lab.note, " " * 12, " " * 12)


def state_of_many(state: str, count: int) -> str:
    """`1 agrees`, `2 agree`"""
    return state.removesuffix("s") if count != 1 and state in (AGREES, DIFFERS) else state


def lab_counts(found: Sequence[LabOutcome]) -> str:
    """What the lab makes of all figures."""
    counts = {state: sum(one.state == state for one in found) for state in LAB_STYLE}
    parts = [f"{count} {state_of_many(state, count)}" for state, count in counts.items() if count]
    within = [one.within for one in found if one.within is not None]
    text = f"lab: {', '.join(parts)}"
    if within:
        text += f"; {sum(within)} of {plural(len(within), 'bounded figure')} within the bounds"
    late = [one.late_ms for one in found if one.late_ms is not None]
    return f"{text}; packets late by {max(late):.1f} ms at most (p99 of a run)" if late else text
