"""docs/generated/claims.md and matrix.md equal a run of all claims: UNBLOAT_BLESS=1 writes them.

The lab's figures are read from docs/generated/claims-lab.json (see stored_lab.py) and compared with the present simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from generated_page import same
from stored_lab import BLESS, bless, measured, settings, stored

from unbloat.claims.claim import Claim, claims
from unbloat.claims.page import LabCell, by_claim, line, table_cells
from unbloat.claims.reproduce import FIGURE_FAILED, Outcome, reproduce, with_lab
from unbloat.claims.reproduce_in_lab import compared, simulated
from unbloat.text.format import NOTHING

DOCS = Path(__file__).parents[2] / "docs/generated"
CLAIMS = """\
# Claims

What `unbloat reproduce` gives: what the source says, what came out, between which bounds it has to lie, and the control in which it
must not. [commands/reproduce.md](../commands/reproduce.md) says what states and marks mean, each scenario why its bounds are where they
are. Claims that replay recorded traces are skipped here.

`lab` is the same figure on the kernel's own TCP, `likewise` what the simulator gives under the lab's settings (shorter runs, as the
scenario's `[claim.lab]` says), then the difference. A figure differs where the two are further apart than its tolerance.

Written by `tests/reproduce/test_written_tables.py`.
"""
MATRIX = """\
# Every cure on every link

One bulk transfer, and beside it a web page every ten seconds, a call and a ping, in the simulator; what varies is the link
and the cure. `ping` is its round trip, 50 ms of which are the path; `page` is the mean time until a page is there, `pages`
how many were there at the end; `MOS` is the call's, from 1 to 4.5. Means over three seeds; the links are the same for every
cure. The scenario files say which parameters the cures have and which of these are our choice.

Written by `tests/reproduce/test_written_tables.py` from `unbloat reproduce beyond-matrix`.
"""


@pytest.fixture(scope="module")
def in_lab() -> list[Claim]:
    found = [claim for claim in claims() if claim.lab is not None]
    bless(found)
    return found


@pytest.fixture(scope="module")
def outcomes(in_lab: list[Claim]) -> list[Outcome]:
    kept = stored()
    lab = {
        claim.id: compared(claim, measured(kept[claim.id]), simulated(claim, False, None))
        for claim in in_lab
        if claim.id in kept
    }
    return [
        outcome
        for claim in by_claim(reproduce())
        for outcome in with_lab(claim, lab.get(claim[0].claim.id, {}))
    ]


def row(cells: Sequence[str]) -> str:
    """A line of a table; a bar within a cell would end it."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def heading(claim: Sequence[Outcome]) -> str:
    of = claim[0].claim
    return f"\n## {of.title}\n\n[{of.id}.toml](../../scenarios/{of.id}.toml)"


def claim_table(claim: Sequence[Outcome]) -> str:
    of = claim[0].claim
    text = f"{heading(claim)} · {of.source} · {of.mark}\n\n"
    in_lab = any(outcome.lab is not None for outcome in claim)
    lab_titles = ["lab", "likewise", "differs by", "in the lab"] if in_lab else []
    text += row(["figure", "source says", "ours", "bounds", "control", "state", *lab_titles])
    text += "|---|--:|--:|--:|--:|---|" + ("--:|--:|--:|---|" if in_lab else "") + "\n"
    reasons = []
    for outcome in claim:
        shown = line(outcome)
        cells = [shown.name, shown.paper, shown.ours, shown.bounds, shown.control, shown.state]
        text += row([*cells, *(lab_cells(shown.lab) if in_lab else [])])
        if outcome.note:
            reasons.append(f"- {shown.name}: {outcome.note}\n")
        if outcome.lab is not None and outcome.lab.note:
            reasons.append(f"- {shown.name}, in the lab: {outcome.lab.note}\n")
    return (
        text
        + (f"\n{made(of.id)}\n" if in_lab else "")
        + ("\n" + "".join(reasons) if reasons else "")
    )


def lab_cells(cell: LabCell | None) -> list[str]:
    if cell is None:
        return [NOTHING] * 4
    return [cell.value, cell.simulator, cell.difference, cell.state]


def made(claim: str) -> str:
    entry = stored()[claim]
    late = (
        f"; packets late by {entry['late_ms']:.1f} ms (p99)" if entry["late_ms"] is not None else ""
    )
    return f"Lab: {entry['date']}, {entry['kernel'] or 'not run'}, {entry['machine']}{late}."


def matrix(claim: Sequence[Outcome]) -> str:
    cells = table_cells(claim[0].claim, claim[0].table)
    assert cells is not None
    titles, rows = cells
    text = f"{heading(claim)}\n"
    for link in dict.fromkeys(cell[0] for cell in rows):
        text += f"\n### {link}\n\n{row(titles[1:])}|---{'|--:' * (len(titles) - 2)}|\n"
        text += "".join(row(cell[1:]) for cell in rows if cell[0] == link)
    return text


def test_the_claims_in_the_manual_are_what_a_run_gives(outcomes: list[Outcome]) -> None:
    same(DOCS / "claims.md", CLAIMS + "".join(claim_table(claim) for claim in by_claim(outcomes)))


def test_the_matrix_in_the_manual_is_what_a_run_gives(outcomes: list[Outcome]) -> None:
    matrices = [
        claim for claim in by_claim(outcomes) if claim[0].claim.id.startswith("beyond-matrix")
    ]
    same(DOCS / "matrix.md", MATRIX + "".join(matrix(claim) for claim in reversed(matrices)))


def test_what_does_not_hold_has_a_reason(outcomes: list[Outcome]) -> None:
    unexplained = [
        f"{o.claim.id}: {o.figure.name}: {o.value}, {o.note}"
        for o in outcomes
        if o.state == FIGURE_FAILED and o.surprising
    ]
    assert unexplained == []


def test_what_is_stored_of_the_lab_was_measured_under_the_settings_of_today(
    in_lab: list[Claim],
) -> None:
    kept = stored()
    stale = [
        claim.id for claim in in_lab if kept.get(claim.id, {}).get("settings") != settings(claim)
    ]
    assert stale == [], f"{BLESS}={','.join(stale)} measures them again"
    assert kept.keys() == {claim.id for claim in in_lab}


def test_what_differs_in_the_lab_has_a_reason(outcomes: list[Outcome]) -> None:
    unexplained = [
        f"{o.claim.id}: {o.figure.name}: {o.lab.value}, simulator {o.lab.simulator}"
        for o in outcomes
        if o.lab is not None and o.lab.surprising
    ]
    assert unexplained == []
