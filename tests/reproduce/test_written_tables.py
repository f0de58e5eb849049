"""docs/claims.md and docs/matrix.md are what a run of all claims gives: UNBLOAT_BLESS=1 writes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from unbloat.reproduce import NOT_HELD, Outcome, reproduce
from unbloat.reproduce_page import by_claim, line, table_cells

DOCS = Path(__file__).parents[2] / "docs"
CLAIMS = """\
# Claims

What `unbloat reproduce` gives: what the source says, what came out, between which bounds it has to lie, and the control in which it
must not. [commands/reproduce.md](commands/reproduce.md) says what states and marks mean, each scenario why its bounds are where they
are. Claims that replay recorded traces are skipped here.

Written by `tests/reproduce/test_written_tables.py`.
"""
MATRIX = """\
# Every cure on every link

One bulk transfer, and beside it a web page every ten seconds, a call and a ping, in the simulator; what varies is the link
and the cure. `ping` is its round trip, 50 ms of which are the path; `page` is the mean time until a page is there, `pages`
how many were there at the end; `MOS` is the call's, from 1 to 4.5. Means over three seeds; the links are the same for every
cure. What the cures are told, and what is our choice, is written in the scenario files.

Written by `tests/reproduce/test_written_tables.py` from `unbloat reproduce beyond-matrix`.
"""


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return reproduce()


def row(cells: Sequence[str]) -> str:
    """A line of a table; a bar within a cell would end it."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def heading(claim: Sequence[Outcome]) -> str:
    of = claim[0].claim
    return f"\n## {of.title}\n\n[{of.id}.toml](../scenarios/{of.id}.toml)"


def claim_table(claim: Sequence[Outcome]) -> str:
    of = claim[0].claim
    text = f"{heading(claim)} · {of.source} · {of.mark}\n\n"
    text += (
        row(["figure", "source says", "ours", "bounds", "control", "state"]) + "|---|--:|--:|--:|--:|---|\n"
    )
    reasons = []
    for outcome in claim:
        shown = line(outcome)
        text += row([shown.name, shown.paper, shown.ours, shown.bounds, shown.control, shown.state])
        if outcome.note:
            reasons.append(f"- {shown.name}: {outcome.note}\n")
    return text + ("\n" + "".join(reasons) if reasons else "")


def matrix(claim: Sequence[Outcome]) -> str:
    cells = table_cells(claim[0].claim, claim[0].table)
    assert cells is not None
    titles, rows = cells
    text = f"{heading(claim)}\n"
    for link in dict.fromkeys(cell[0] for cell in rows):
        text += f"\n### {link}\n\n{row(titles[1:])}|---{'|--:' * (len(titles) - 2)}|\n"
        text += "".join(row(cell[1:]) for cell in rows if cell[0] == link)
    return text


def same(path: Path, text: str) -> None:
    if os.environ.get("UNBLOAT_BLESS") == "1":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_the_claims_in_the_manual_are_what_a_run_gives(outcomes: list[Outcome]) -> None:
    same(DOCS / "claims.md", CLAIMS + "".join(claim_table(claim) for claim in by_claim(outcomes)))


def test_the_matrix_in_the_manual_is_what_a_run_gives(outcomes: list[Outcome]) -> None:
    matrices = [claim for claim in by_claim(outcomes) if claim[0].claim.id.startswith("beyond-matrix")]
    same(DOCS / "matrix.md", MATRIX + "".join(matrix(claim) for claim in reversed(matrices)))


def test_what_does_not_hold_has_a_reason(outcomes: list[Outcome]) -> None:
    unexplained = [
        f"{o.claim.id}: {o.figure.name}: {o.value}, {o.note}"
        for o in outcomes
        if o.state == NOT_HELD and o.surprising
    ]
    assert unexplained == []
