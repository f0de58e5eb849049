"""Fairness in the lab: its section of docs/generated/fairness.md, its tables on a terminal, its JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbloat.fairness.lab import BothInLab, FairnessInLab, SharedInLab
from unbloat.fairness.text import YES, both_json, shared_json
from unbloat.front.lab_page import provenance, value
from unbloat.scenario.confidence import spread
from unbloat.text.format import NOTHING
from unbloat.text.table import table
from unbloat.text.terminal import Terminal

HEAD = """
## In the lab

Flows that start 10 s apart, once more in the [lab](../commands/lab.md): the same scenarios on the kernel's own TCP, over the link emulator,
for 70 or 90 s of real time. What the simulator models as the window law is unbloat-agent there. `make fairness-lab`
(`unbloat reproduce fairness --lab`) writes it. Beside each figure of the lab is that of the simulator. Jain's index and the least share are
those of the worst run.

"""
SHARED = (
    *("way", "flows", "RTT", "control", "Jain", "simulator", "least", "simulator"),
    *("RTT / base", "simulator", "fair", "RTT ok"),
)
BOTH = (
    *("control", "upload", "of alone", "simulator", "download", "simulator"),
    *("ping p95", "simulator", "goal"),
)


def fairness_lab_section(lab: FairnessInLab) -> str:
    """The section; none where the lab has no run."""
    if not lab.runs:
        return ""
    text = HEAD + markdown(SHARED, [shared_cells(one) for one in lab.shared])
    if lab.both:
        text += "\nBoth ways at once:\n\n" + markdown(BOTH, [both_cells(one) for one in lab.both])
    return f"{text}\n{provenance(lab.runs)}\n"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def shared_cells(one: SharedInLab) -> tuple[str, ...]:
    """A case of several flows."""
    way, flows, _, rtts, control = one.simulator.shared.case.key
    rtt = spread([run.rtt_share for run in one.runs])
    return (
        *(way, flows, rtts, control),
        *(index(worst(one)), index(one.simulator.jain)),
        *(f"{min(run.smallest for run in one.runs):.2f} ×", f"{one.simulator.smallest:.2f} ×"),
        *(f"{value(rtt, 1, 2)} ×", f"{one.simulator.rtt_share:.2f} ×"),
        of([run.fair for run in one.runs]),
        of([run.short for run in one.runs]),
    )


def worst(one: SharedInLab) -> float | None:
    """The smallest index of a run; None where one has none."""
    found = [run.jain for run in one.runs if run.jain is not None]
    return min(found) if len(found) == len(one.runs) else None


def index(jain: float | None) -> str:
    """Jain's."""
    return NOTHING if jain is None else f"{jain:.2f}"


def of(answers: Sequence[bool | None]) -> str:
    """Yes or no of one run; of several how many."""
    if len(answers) == 1 or None in answers:
        return YES[answers[0]]
    return f"{sum(map(bool, answers))} of {len(answers)}"


def both_cells(one: BothInLab) -> tuple[str, ...]:
    """A control of both ways at once."""
    simulator = one.simulator
    upload = spread([run.both.upload_bps for run in one.runs])
    download = spread([run.both.download_bps for run in one.runs])
    ping = spread([run.both.ping_p95_ms for run in one.runs])
    return (
        simulator.both.name,
        f"{value(upload, 1e6, 2)} Mbit/s",
        f"{value(spread([run.share for run in one.runs]), 1, 2)} ×",
        f"{simulator.share:.2f} ×",
        f"{value(download, 1e6, 2)} Mbit/s",
        f"{simulator.both.download_bps / 1e6:.2f} Mbit/s",
        f"{value(ping, 1, 0)} ms",
        f"{simulator.both.ping_p95_ms:.0f} ms",
        of([run.reaches for run in one.runs]),
    )


def fairness_lab_screen(terminal: Terminal, lab: FairnessInLab) -> None:
    """Prints it."""
    terminal.line()
    titles = ("way", "flows", "RTT", "control", "Jain", "least", "RTT / base", "fair", "RTT ok")
    rows = []
    for one in lab.shared:
        way, flows, rtts, control, jain, _, least, _, rtt, _, fair, short = shared_cells(one)
        short_name = control.removeprefix("window law, ")
        rows.append(
            (way, flows, rtts.replace(" and ", ", "), short_name, jain, least, rtt, fair, short)
        )
    table(terminal, titles, rows, left_columns=4)
    terminal.line()
    both = [both_cells(one) for one in lab.both]
    table(
        terminal,
        ("both ways", "upload", "of alone", "download", "ping p95", "goal"),
        [(row[0], row[1], row[2], row[4], row[6], row[8]) for row in both],
    )
    terminal.wrapped(
        f"In the lab; flows start 10 s apart. Jain and least are those of the worst run. {provenance(lab.runs)}"
        if lab.runs
        else "The lab has no run."
    )


def fairness_lab_json(lab: FairnessInLab) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "format": 1,
        "cases": [
            dict(zip(("way", "flows", "starts", "rtts", "control"), case.key, strict=True))
            | {
                "lab": [shared_json(run) for run in one.runs],
                "simulator": shared_json(one.simulator),
            }
            for one in lab.shared
            for case in (one.simulator.shared.case,)
        ],
        "both_ways": [
            {
                "control": one.simulator.both.name,
                "lab": [both_json(run) for run in one.runs],
                "simulator": both_json(one.simulator),
            }
            for one in lab.both
        ],
        "runs": lab.runs,
    }
