"""Claims with several seeds: only where random numbers matter, stored, and simulated again where something changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_claims import Writer

from unbloat.claims.claim import Claim, read_claim
from unbloat.claims.judge import outcomes
from unbloat.claims.repetition import SEEDS, Repetition, repetition, repetitions
from unbloat.claims.reproduce import reproduce
from unbloat.claims.store import ClaimStore
from unbloat.errors import UnbloatError
from unbloat.scenario.simulate import simulate_all

LOSS = "[link.up]\nloss = 0.01\n"


def random_claim(written: Writer) -> Claim:
    claim = read_claim(written("[link.up]\n", LOSS))
    assert claim is not None
    return claim


def test_a_scenario_without_random_numbers_runs_once(made_up: Claim) -> None:
    assert len(repetitions(made_up)) == 1


def test_a_scenario_with_random_numbers_runs_with_ten_seeds(written: Writer) -> None:
    found = repetitions(random_claim(written))
    assert len(found) == SEEDS
    assert len({one.values[""] for one in found}) > 1
    (outcome,) = reproduce()
    assert outcome.measured is not None
    assert outcome.measured.count == SEEDS
    assert outcome.measured.half


def test_a_scenario_that_asks_for_more_seeds_gets_them(written: Writer) -> None:
    written("[link.up]\n", LOSS)
    path = written("[sweep]\n", "[sweep]\nseeds = 12\n")
    path.write_text(path.read_text().replace("[link.up]\n", LOSS))
    claim = read_claim(path)
    assert claim is not None
    assert len(repetitions(claim)) == 12


def test_what_is_stored_is_read_again(written: Writer, tmp_path: Path) -> None:
    claim = random_claim(written)
    once = repetition(claim, 0)
    assert Repetition.read(json.loads(json.dumps(once.to_dict()))) == once
    store = tmp_path / "claims.jsonl"
    (first,) = reproduce(store=store)
    (again,) = reproduce(store=store, stored=True)
    assert again.to_dict() == first.to_dict()


def test_a_claim_whose_first_seed_gives_the_same_is_not_simulated_further(
    written: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = random_claim(written)
    store = ClaimStore(tmp_path / "claims.jsonl")
    found = store.repetitions(claim)
    made: list[int] = []

    def counted(*words: object, **more: object) -> object:
        made.append(1)
        return simulate_all(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("unbloat.claims.repetition.simulate_all", counted)
    assert ClaimStore(tmp_path / "claims.jsonl").repetitions(claim) == found
    assert len(made) == 1
    # A simulator that gives something else for the first seed: all seeds are made again.
    text = store.path.read_text()
    entry = json.loads(text)
    entry["runs"][0]["values"][""][0] += 1
    store.path.write_text(json.dumps(entry) + "\n")
    assert ClaimStore(store.path).repetitions(claim) == found
    assert len(made) == 1 + SEEDS


def test_a_claim_that_changed_since_it_was_stored_is_refused(
    written: Writer, tmp_path: Path
) -> None:
    written()
    store = tmp_path / "claims.jsonl"
    (before,) = reproduce(store=store)
    written('why = "it is made up"', 'why = "in other words"')
    (after,) = reproduce(store=store, stored=True)
    assert after.value == before.value
    written('rate = "4 Mbit/s"', 'rate = "5 Mbit/s"')
    with pytest.raises(UnbloatError, match="made-up is not stored as it is now"):
        reproduce(store=store, stored=True)


RATES = ("4 Mbit/s", "8 Mbit/s")
TWO_OPEN = """
"link.down.rate" = ["4 Mbit/s", "8 Mbit/s"]
[claim]
open = ["rate", "acks"]
"""


def test_figures_are_judged_at_each_combination_of_what_the_source_leaves_open(
    written: Writer,
) -> None:
    acks = 'acks = [{ label = "each", "flow.0.receiver.ack_every" = 1 }, { label = "every other" }]'
    claim = read_claim(written("[claim]\n", acks + TWO_OPEN))
    assert claim is not None
    assert claim.open == ("rate", "acks")
    found = repetition(claim, 0)
    combinations = [f"{rate} · {ack}" for ack in ("each", "every other") for rate in RATES]
    assert set(found.values) == set(combinations)
    (outcome,) = outcomes(claim, [found])
    assert outcome.opened is not None
    assert outcome.opened.name == "rate and acks"
    assert set(outcome.opened.satisfying) <= set(combinations)
    fast, slow = (found.values[f"{rate} · each"][0] for rate in reversed(RATES))
    assert fast is not None
    assert slow is not None
    assert fast < slow
