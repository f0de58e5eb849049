"""Claims on the workers of a Dask cluster give the figures of this machine, digit for digit."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dask_cluster import with_this, workers_of
from made_claims import Writer

pytest.importorskip("distributed")

from unbloat.claims import claim as claims
from unbloat.claims.claim import Claim, read_claim
from unbloat.claims.repetition import SEEDS
from unbloat.claims.reproduce import reproduce
from unbloat.errors import UnbloatError
from unbloat.tasks.cluster import Cluster

LOSS = "[link.up]\nloss = 0.01\n"
# Claims of the papers that take a second or two: with captures, a table, and a trace that is not there.
FEW = ["drwa-2-hops", "post-5-rmem", "post-4-window-ceiling", "beyond-traces"]


def figures(names: list[str], **how: Any) -> list[dict[str, Any]]:
    """All outcomes of claims as `--json` prints them."""
    return [outcome.to_dict() for outcome in reproduce(names, **how)]


def test_claims_have_the_figures_of_one_and_two_jobs(tmp_path: Path) -> None:
    found = {}
    ways: dict[str, dict[str, Any]] = {
        "one": {"jobs": 1},
        "two": {"jobs": 2},
        "dask": {"jobs": 2, "dask": "local"},
    }
    for name, how in ways.items():
        store = tmp_path / f"{name}.jsonl"
        found[name] = figures(FEW, store=store, **how), store.read_bytes()
    assert found["one"] == found["two"] == found["dask"]
    states = {figure["state"] for figure in found["dask"][0]}
    assert {"held", "skipped"} <= states


@pytest.fixture
def with_seeds(written: Writer) -> Claim:
    """A made-up claim that draws random numbers: one run per seed and case."""
    claim = read_claim(written("[link.up]\n", LOSS))
    assert claim is not None
    return claim


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the tasks that end from now on."""
    ended: list[str] = []
    take = Cluster.take

    def noted(self: Cluster, key: str, future: object) -> None:
        ended.append(key)
        take(self, key, future)

    monkeypatch.setattr(Cluster, "take", noted)
    return ended


def test_seeds_are_tasks_of_their_own_and_what_is_stored_is_not_simulated_again(
    with_seeds: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = counted(monkeypatch)
    here = figures([], jobs=1, store=tmp_path / "here.jsonl")
    assert ended == []
    store = tmp_path / "away.jsonl"
    assert figures([], dask="local", jobs=2, store=store) == here
    assert store.read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    assert sorted(ended) == sorted(f"{with_seeds.id}#{place}" for place in range(SEEDS))
    ended.clear()
    assert figures([], dask="local", jobs=1, store=store) == here
    assert ended == [f"{with_seeds.id}#0"]


def test_a_claim_without_random_numbers_is_simulated_twice(
    made_up: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = counted(monkeypatch)
    assert figures([], dask="local", jobs=1) == figures([], jobs=1)
    assert ended == [f"{made_up.id}#0", f"{made_up.id}#1"]


def test_a_killed_worker_does_not_end_the_claims(
    with_seeds: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = figures([], jobs=1)
    ended = counted(monkeypatch)
    submit = Cluster.submit

    def killing(self: Cluster, client: Any) -> None:
        submit(self, client)
        if len(ended) == 3 and not killed:
            killed.append(workers_of(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    killed: list[int] = []
    monkeypatch.setattr(Cluster, "submit", killing)
    assert figures([], dask="local", jobs=2) == here
    assert len(killed) == 1


@contextlib.contextmanager
def workers_that_fail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers meanwhile raise an error with the fourth seed."""
    (folder / "sitecustomize.py").write_text(
        """
import sys
if "spawn_main" in " ".join(sys.orig_argv):
    from unbloat.claims import cluster
    before = cluster.repetition
    def repetition(claim, place, **more):
        if place == 3:
            raise MemoryError("no more")
        return before(claim, place, **more)
    cluster.repetition = repetition
"""
    )
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", with_this(folder))
        yield


def test_a_seed_that_fails_is_named_and_other_claims_are_stored(
    with_seeds: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = tmp_path / "second.toml"
    second.write_text(with_seeds.text.replace(LOSS, "[link.up]\n"))
    monkeypatch.setattr(claims, "PLACES", (tmp_path,))
    store = tmp_path / "claims.jsonl"
    (tmp_path / "modules").mkdir()
    with (
        workers_that_fail(tmp_path / "modules", monkeypatch),
        pytest.raises(UnbloatError, match=r"^made-up, seed=4: MemoryError: no more$"),
    ):
        reproduce(dask="local", jobs=2, store=store)
    assert '"second"' in store.read_text()
    assert '"made-up"' not in store.read_text()
    assert figures([], dask="local", jobs=2, store=store) == figures([], jobs=1)


def test_a_scheduler_that_does_not_answer_is_one_line() -> None:
    with pytest.raises(UnbloatError, match=r"^tcp://127\.0\.0\.1:1: no Dask scheduler answers$"):
        reproduce(FEW, dask="tcp://127.0.0.1:1")
