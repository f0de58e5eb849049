"""`unbloat reproduce --markdown`: every claim with its figures as a page of the docs, and the matrix of cures as another.

A summary of two pages at most stands in front: figures by their origin, then the claims of each group, with the number of
figures that fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unbloat.claims.figure import MARKS
from unbloat.claims.judge import FIGURE_FAILED, FIGURE_PASSED, SKIPPED, Outcome
from unbloat.claims.lab_store import LabEntry
from unbloat.claims.page import LabCell, by_claim, line, table_cells
from unbloat.claims.words import open_text, verdict_text
from unbloat.scenario.unjudged import meaning
from unbloat.text.format import NOTHING

# How the names of claims begin whose tables of all runs are the matrix.
OF_MATRIX = "beyond-matrix"
CLAIMS = """\
# Claims

What `unbloat reproduce` gives: what the source says, what came out, between which bounds it has to lie, and the control in which it
must not. [commands/reproduce.md](../commands/reproduce.md) says what states and marks mean, each scenario why its bounds are where they
are.

A figure that random numbers change is the mean of ten seeds, or more, ± half its 95 % interval. It passes if the whole interval lies
within the bounds and the control's reaches nowhere into them. A figure without ± is the same with every seed,
to a thousandth.

`lab` is the same figure on the kernel's own TCP, `likewise` what the simulator gives under the lab's settings (shorter runs, as the
scenario's `[claim.lab]` says), then the difference. A figure differs where the two are further apart than its tolerance.

Written by `make claims` (`unbloat reproduce --markdown`) from `claims.jsonl`, which holds the figures of every seed.
"""
MATRIX = """\
# Every cure on every link

One bulk transfer, and beside it a web page every ten seconds, a call and a ping, in the simulator; what varies is the link
and the cure. `ping` is its round trip, 50 ms of which are the path; `page` is the mean time until a page is there, `pages`
how many were there at the end; `MOS` is the call's, from 1 to 4.5. Means over ten seeds; the links are the same for every
cure. The scenario files say which parameters the cures have and which of these are our choice.

Written by `make claims` (`unbloat reproduce beyond-matrix --markdown`).
"""


def write_pages(
    outcomes: Sequence[Outcome], folder: Path, lab: Mapping[str, LabEntry]
) -> list[Path]:
    """Writes claims.md, and matrix.md where the matrix is among them; returns what was written."""
    pages = {"claims.md": claims_page(outcomes, lab)}
    if any(one.claim.id.startswith(OF_MATRIX) and one.table for one in outcomes):
        pages["matrix.md"] = matrix_page(outcomes)
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


def claims_page(outcomes: Sequence[Outcome], lab: Mapping[str, LabEntry]) -> str:
    """The summary, then a table per claim."""
    tables = "".join(claim_table(claim, lab) for claim in by_claim(outcomes))
    return CLAIMS + meaning(tables) + summary(outcomes) + tables


def matrix_page(outcomes: Sequence[Outcome]) -> str:
    """Every cure on every link, downloads first."""
    matrices = [claim for claim in by_claim(outcomes) if claim[0].claim.id.startswith(OF_MATRIX)]
    tables = "".join(matrix(claim) for claim in reversed(matrices))
    return MATRIX + meaning(tables) + tables


def row(cells: Sequence[str]) -> str:
    """A line of a table; a bar within a cell would end it."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def heading(claim: Sequence[Outcome]) -> str:
    """A claim's title with its result, and its file."""
    of = claim[0].claim
    return f"\n## {verdict_text(of.title, claim)}\n\n[{of.id}.toml](../../scenarios/{of.id}.toml)"


def counted(outcomes: Sequence[Outcome], state: str) -> int:
    """How many figures are in a state."""
    return sum(one.state == state for one in outcomes)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many figures pass, by where they come from, then by group with the claims that have a failing figure."""
    bounded = [one for one in outcomes if one.figure.bounds.stated]
    text = "\n## Summary\n\n" + row(["origin of the figure", "pass", "fail", "chosen after a run"])
    text += "|---|--:|--:|--:|\n"
    for mark in [mark for mark in MARKS if any(one.figure.mark == mark for one in bounded)]:
        own = [one for one in bounded if one.figure.mark == mark]
        counts = [counted(own, state) for state in (FIGURE_PASSED, FIGURE_FAILED)]
        chosen = sum(one.figure.chosen_after is not None for one in own)
        text += row([f"{mark}: {MARKS[mark]}", *map(str, counts), str(chosen)])
    text += "\n" + row(["group", "claims", "pass", "fail"]) + "|---|--:|--:|--:|\n"
    groups: dict[str, list[list[Outcome]]] = {}
    for claim in by_claim(outcomes):
        groups.setdefault(claim[0].claim.group, []).append(claim)
    for group, of in groups.items():
        every = [one for claim in of for one in claim]
        counts = [counted(every, state) for state in (FIGURE_PASSED, FIGURE_FAILED)]
        text += row([group, str(len(of)), *map(str, counts)])
    text += "\nClaims whose figures all pass, by group; then those with failing figures, and how many of how many fail.\n\n"
    for group, of in groups.items():
        text += f"- **{group}**: {listed(of)}\n"
    return text


def listed(claims: Sequence[Sequence[Outcome]]) -> str:
    """The claims of a group in a line."""
    passing, failing = [], []
    for claim in claims:
        failed, name = counted(claim, FIGURE_FAILED), f"`{claim[0].claim.id}`"
        if failed:
            failing.append(f"{name} {failed} of {failed + counted(claim, FIGURE_PASSED)}")
        else:
            passing.append(f"{name} (skipped)" if claim[0].state == SKIPPED else name)
    text = ", ".join(passing) or "none"
    return text + (f". **Fail**: {', '.join(failing)}." if failing else ". None fails.")


def claim_table(claim: Sequence[Outcome], lab: Mapping[str, LabEntry]) -> str:
    """A claim with a row per figure, and what is said of them below."""
    of = claim[0].claim
    seeds = max((one.measured.count for one in claim if one.measured is not None), default=0)
    samples = f" · means of {seeds} seeds" if seeds > 1 else ""
    text = f"{heading(claim)} · {of.source}{samples}\n\n"
    if (opened := open_text(claim)) is not None:
        text += f"{opened}\n\n"
    lines = [line(outcome) for outcome in claim]
    in_lab = any(outcome.lab is not None for outcome in claim)
    computed = ["expected"] if any(one.expected != NOTHING for one in lines) else []
    lab_titles = ["lab", "likewise", "differs by", "in the lab"] if in_lab else []
    titles = ["figure", "origin", "source says", *computed, "ours", "bounds", "control", "state"]
    text += row([*titles, *lab_titles])
    text += (
        f"|---|---{'|--:' * (len(titles) - 3)}|---|" + ("--:|--:|--:|---|" if in_lab else "") + "\n"
    )
    notes = []
    for outcome, shown in zip(claim, lines, strict=True):
        says = [shown.paper, *([shown.expected] if computed else [])]
        cells = [
            shown.name,
            shown.mark,
            *says,
            shown.ours,
            shown.bounds,
            shown.control,
            shown.state,
        ]
        text += row([*cells, *(lab_cells(shown.lab) if in_lab else [])])
        if shown.chosen_after:
            notes.append(f"- {shown.name}: chosen after a run: {shown.chosen_after}\n")
        if outcome.note:
            notes.append(f"- {shown.name}: {outcome.note}\n")
        if outcome.lab is not None and outcome.lab.note:
            notes.append(f"- {shown.name}, in the lab: {outcome.lab.note}\n")
    if in_lab and of.id in lab:
        text += f"\n{lab[of.id].made}\n"
    return text + ("\n" + "".join(notes) if notes else "")


def lab_cells(cell: LabCell | None) -> list[str]:
    """A figure in the lab."""
    if cell is None:
        return [NOTHING] * 4
    return [cell.value, cell.simulator, cell.difference, cell.state]


def matrix(claim: Sequence[Outcome]) -> str:
    """The table of all runs of a claim, one per link."""
    cells = table_cells(claim[0].claim, claim[0].table)
    if cells is None:
        return ""
    titles, rows = cells
    text = f"{heading(claim)}\n"
    for link in dict.fromkeys(cell[0] for cell in rows):
        text += f"\n### {link}\n\n{row(titles[1:])}|---{'|--:' * (len(titles) - 2)}|\n"
        text += "".join(row(cell[1:]) for cell in rows if cell[0] == link)
    return text
