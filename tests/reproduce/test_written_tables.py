"""docs/generated/claims.md and matrix.md show what docs/generated/claims.jsonl holds: UNBLOAT_BLESS=1 writes them.

The file holds the figures of every seed (`make claims`); the first seed of every claim is simulated again here. The lab's
figures are read from docs/generated/claims-lab.json (see stored_lab.py) and compared with the present simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from generated_page import same
from requirements import SHARED
from stored_lab import BLESS, bless, measured, settings, stored

from unbloat.claims.claim import Claim, claims
from unbloat.claims.figure import MARKS
from unbloat.claims.judge import FIGURE_FAILED, FIGURE_PASSED, Outcome
from unbloat.claims.page import LabCell, by_claim, line, table_cells
from unbloat.claims.repetition import SEEDS, repetition
from unbloat.claims.reproduce import reproduce, with_lab
from unbloat.claims.reproduce_in_lab import compared, simulated
from unbloat.claims.store import ClaimStore
from unbloat.claims.words import open_text, verdict_text
from unbloat.errors import TraceMissing
from unbloat.text.format import NOTHING

DOCS = Path(__file__).parents[2] / "docs/generated"
STORE = DOCS / "claims.jsonl"
TRACES = SHARED / "traces"
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

Written by `make claims` from `claims.jsonl`, which holds the figures of every seed.
"""
MATRIX = """\
# Every cure on every link

One bulk transfer, and beside it a web page every ten seconds, a call and a ping, in the simulator; what varies is the link
and the cure. `ping` is its round trip, 50 ms of which are the path; `page` is the mean time until a page is there, `pages`
how many were there at the end; `MOS` is the call's, from 1 to 4.5. Means over ten seeds; the links are the same for every
cure. The scenario files say which parameters the cures have and which of these are our choice.

Written by `make claims` from `unbloat reproduce beyond-matrix`.
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
        for claim in by_claim(reproduce(store=STORE, stored=True))
        for outcome in with_lab(claim, lab.get(claim[0].claim.id, {}))
    ]


def row(cells: Sequence[str]) -> str:
    """A line of a table; a bar within a cell would end it."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def heading(claim: Sequence[Outcome]) -> str:
    of = claim[0].claim
    return f"\n## {verdict_text(of.title, claim)}\n\n[{of.id}.toml](../../scenarios/{of.id}.toml)"


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many figures pass, by where they come from, then each claim in a line."""
    bounded = [one for one in outcomes if one.figure.bounds.stated]
    text = "\n## Summary\n\n" + row(["origin of the figure", "pass", "fail", "chosen after a run"])
    text += "|---|--:|--:|--:|\n"
    for mark in [mark for mark in MARKS if any(one.figure.mark == mark for one in bounded)]:
        own = [one for one in bounded if one.figure.mark == mark]
        counts = [
            sum(one.state == state for one in own) for state in (FIGURE_PASSED, FIGURE_FAILED)
        ]
        chosen = sum(one.figure.chosen_after is not None for one in own)
        text += row([f"{mark}: {MARKS[mark]}", *map(str, counts), str(chosen)])
    text += "\n" + row(["claim", "pass", "fail", "seeds"]) + "|---|--:|--:|--:|\n"
    for claim in by_claim(outcomes):
        states = [one.state for one in claim]
        cells = [str(states.count(state)) for state in (FIGURE_PASSED, FIGURE_FAILED)]
        seeds = max((one.measured.count for one in claim if one.measured), default=0)
        text += row([claim[0].claim.title, *cells, str(seeds)])
    return text


def claim_table(claim: Sequence[Outcome]) -> str:
    of = claim[0].claim
    text = f"{heading(claim)} · {of.source}\n\n"
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
    return (
        text + (f"\n{made(of.id)}\n" if in_lab else "") + ("\n" + "".join(notes) if notes else "")
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
    tables = "".join(claim_table(claim) for claim in by_claim(outcomes))
    same(DOCS / "claims.md", CLAIMS + summary(outcomes) + tables)


def test_the_matrix_in_the_manual_is_what_a_run_gives(outcomes: list[Outcome]) -> None:
    matrices = [
        claim for claim in by_claim(outcomes) if claim[0].claim.id.startswith("beyond-matrix")
    ]
    same(DOCS / "matrix.md", MATRIX + "".join(matrix(claim) for claim in reversed(matrices)))


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)
def test_what_is_stored_is_what_the_first_seed_gives_today(claim: Claim) -> None:
    try:
        first = repetition(claim, 0, TRACES)
    except TraceMissing as missing:
        pytest.skip(f"the traces are not here: {missing}")
    assert ClaimStore(STORE).read(claim)[0] == first, "`make claims` runs what has changed again"


def test_a_claim_with_random_numbers_is_stored_with_ten_seeds() -> None:
    store = ClaimStore(STORE)
    counts = {claim.id: len(store.read(claim)) for claim in claims()}
    assert {count for count in counts.values() if count != 1} != set()
    assert [name for name, count in counts.items() if 1 < count < SEEDS] == []


def test_what_does_not_hold_has_a_reason(outcomes: list[Outcome]) -> None:
    unexplained = [
        f"{o.claim.id}: {o.figure.name}: {o.value}, {o.note}"
        for o in outcomes
        if (o.state == FIGURE_FAILED and o.figure.reason is None) or o.drifted
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
