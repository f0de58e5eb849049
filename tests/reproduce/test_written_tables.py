"""docs/generated/claims.md and matrix.md show what docs/generated/claims.jsonl holds; `make claims` writes both.

The file holds the figures of every seed (`make claims`); the first seed of every claim is simulated again here. The lab's
figures are read from docs/generated/claims-lab.json (see stored_lab.py) and compared with the present simulator.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from generated_page import same
from requirements import SHARED
from stored_lab import BLESS, PATH, bless

from unbloat.claims.claim import Claim, claims
from unbloat.claims.judge import FIGURE_FAILED, Outcome
from unbloat.claims.lab_store import lab_settings, read_lab, with_stored_lab
from unbloat.claims.markdown import claims_page, matrix_page
from unbloat.claims.repetition import SEEDS, repetition
from unbloat.claims.reproduce import reproduce
from unbloat.claims.store import ClaimStore
from unbloat.errors import TraceMissing

DOCS = Path(__file__).parents[2] / "docs/generated"
STORE = DOCS / "claims.jsonl"
TRACES = SHARED / "traces"
# Two pages: what a reader takes in before the tables.
MAX_LINES, MAX_WORDS = 110, 1_000


@pytest.fixture(scope="module")
def in_lab() -> list[Claim]:
    found = [claim for claim in claims() if claim.lab is not None]
    bless(found)
    return found


@pytest.fixture(scope="module")
def outcomes(in_lab: list[Claim]) -> list[Outcome]:
    kept = read_lab(PATH)
    return with_stored_lab(
        reproduce(store=STORE, stored=True),
        {claim.id: kept[claim.id] for claim in in_lab if claim.id in kept},
    )


def test_the_claims_in_the_manual_are_what_is_stored(outcomes: list[Outcome]) -> None:
    same(DOCS / "claims.md", claims_page(outcomes, read_lab(PATH)))


def test_the_summary_in_front_has_two_pages_at_most(outcomes: list[Outcome]) -> None:
    front = claims_page(outcomes, {}).split("\n## ")
    summary = front[0] + front[1]
    assert front[1].startswith("Summary")
    assert len(summary.splitlines()) <= MAX_LINES
    assert len(summary.split()) <= MAX_WORDS


def test_the_matrix_in_the_manual_is_what_is_stored(outcomes: list[Outcome]) -> None:
    same(DOCS / "matrix.md", matrix_page(outcomes))


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
    kept = read_lab(PATH)
    stale = [
        claim.id
        for claim in in_lab
        if claim.id not in kept or kept[claim.id].settings != lab_settings(claim)
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
