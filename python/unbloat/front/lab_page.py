"""The front in the lab: its section of docs/generated/front.md, its table on a terminal, its JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbloat.front.judge import Field
from unbloat.front.lab import (
    SAME_GOODPUT,
    SAME_P95,
    Difference,
    FrontInLab,
    LabRun,
    differences,
    unchanged,
)
from unbloat.front.text import field_json, link_text
from unbloat.scenario.confidence import Spread
from unbloat.text.format import NOTHING
from unbloat.text.table import table
from unbloat.text.terminal import Terminal

HEAD = f"""
## In the lab

Six links of the tuning half, fixed before the first run, once more in the [lab](../commands/lab.md): the same scenario on the
kernel's own TCP, over the link emulator, for a minute of real time. What the simulator models as the window law is unbloat-agent
there. `make front-lab` (`unbloat reproduce front --lab`) writes it.

Goodput is in Mbit/s; p95 is that of the ping, in ms. A figure differs where the lab is more than {100 * SAME_GOODPUT:.0f} % away from the
simulator's goodput, or more than {100 * SAME_P95:.0f} % from its p95. The goal is that of the front, judged from the lab's figures alone.

"""
TITLES = (
    "link",
    "control",
    "goodput",
    "simulator",
    "by",
    "p95",
    "simulator",
    "by",
    "differs in",
    "goal",
    "simulator",
)
YES_OR_NO = {True: "yes", False: "no", None: NOTHING}
# Above a millisecond the machine was too busy for the scenario, as the lab warns.
LATE_MS = 1.0


def lab_section(lab: FrontInLab, simulated: Sequence[Field]) -> str:
    """The section; none where the lab has no run."""
    if not lab.runs:
        return ""
    found = differences(lab.fields, simulated)
    rows = "".join(f"| {' | '.join(cells(one.link, one))} |\n" for one in found)
    text = f"{HEAD}| {' | '.join(TITLES)} |\n|---|---|--:|--:|--:|--:|--:|--:|---|---|---|\n{rows}"
    text += f"\n{summary(found)} {provenance(lab.runs)}{changed(lab.runs, simulated)}\n"
    reasons = [f"- {what}: {why}\n" for what, why in lab.skipped.items()]
    return text + ("\nNot run:\n\n" + "".join(reasons) if reasons else "")


def cells(link: str, one: Difference) -> tuple[str, ...]:
    """A row of the page."""
    other, (ours, theirs) = one.simulator, one.reaches or (None, None)
    return (
        link,
        one.lab.control,
        value(one.lab.goodput, 1e6, 2),
        value(other.goodput if other else None, 1e6, 2),
        by(one.goodput),
        value(one.lab.p95, 1, 0),
        value(other.p95 if other else None, 1, 0),
        by(one.p95),
        differs(one),
        YES_OR_NO[ours],
        YES_OR_NO[theirs],
    )


def value(found: Spread | None, unit: float, digits: int) -> str:
    """A mean, and the interval of several runs where there is one to see."""
    if found is None:
        return NOTHING
    text = f"{found.mean / unit:.{digits}f}"
    half = f"{(found.half or 0.0) / unit:.{digits}f}"
    return text if float(half) == 0 else f"{text} ± {half}"


def by(share: float | None) -> str:
    """A difference in per cent."""
    return NOTHING if share is None else f"{100 * share:+.0f} %"


def differs(one: Difference) -> str:
    """In what; a figure without one of the simulator's agrees with nothing."""
    return NOTHING if one.simulator is None else ", ".join(one.differs) or "nothing"


def summary(found: Sequence[Difference]) -> str:
    """How many agree."""
    compared = [one for one in found if one.simulator is not None]
    agree = sum(not one.differs for one in compared)
    return (
        f"{agree} of {len(compared)} cases agree in both figures;"
        f" goodput differs in {sum('goodput' in one.differs for one in compared)},"
        f" p95 in {sum('p95' in one.differs for one in compared)}."
    )


def changed(runs: Sequence[LabRun], simulated: Sequence[Field]) -> str:
    """Which runs are of another law than the simulator's figures beside them."""
    points = {
        (one.link, point.control): point
        for one in simulated
        for point in one.points
        if point.variant == "default"
    }
    cases = dict.fromkeys(
        f"{run['link']} ({run['control']})"
        for run in runs
        if (point := points.get((run["link"], run["control"]))) is not None
        and not unchanged(run["simulator"], (point.goodput.mean, point.p95.mean))
    )
    if not cases:
        return ""
    return f" The law has changed since the runs of {', '.join(cases)}: what differs there may be the change."


def provenance(runs: Sequence[LabRun]) -> str:
    """What was measured, when and on what."""
    made = dict.fromkeys(f"{run['date']} at {run['commit']} on {run['kernel']}" for run in runs)
    late = [run["late_ms"] for run in runs if run["late_ms"] is not None]
    text = f"{len(runs)} runs, {'; '.join(made)}."
    if late:
        busy = sum(one > LATE_MS for one in late)
        text += f" Packets were late by up to {max(late):.1f} ms (p99 of a run), in {busy} of them by more than {LATE_MS:g} ms."
    return text


def lab_screen(terminal: Terminal, lab: FrontInLab, simulated: Sequence[Field]) -> None:
    """Prints it: a table of links and controls for the lab and its differences from the simulator."""
    found = differences(lab.fields, simulated)
    titles = ("link", "control", "goodput", "by", "p95", "by", "goal")
    rows = []
    for one in found:
        _, control, goodput, _, goodput_by, p95, _, p95_by, _, goal, _ = cells(one.link, one)
        rows.append((link_text(one.link), control, goodput, goodput_by, p95, p95_by, goal))
    terminal.line()
    if rows:
        table(terminal, titles, rows, left_columns=2)
        terminal.line()
        terminal.wrapped(
            "goodput in Mbit/s, p95 of a ping in ms, in the lab; by: how far from the simulator's."
        )
        terminal.wrapped(f"{summary(found)} {provenance(lab.runs)}{changed(lab.runs, simulated)}")
    for what, why in lab.skipped.items():
        terminal.wrapped(f"skipped: {what}: {why}")


def lab_json(lab: FrontInLab, simulated: Sequence[Field]) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "links": [field_json(one) for one in lab.fields],
        "differences": [
            {
                "link": one.link,
                "control": one.lab.control,
                "goodput": one.goodput,
                "ping_p95": one.p95,
                "differs": one.differs,
                "reaches": list(one.reaches) if one.reaches else None,
            }
            for one in differences(lab.fields, simulated)
        ],
        "runs": lab.runs,
        "skipped": lab.skipped,
    }
