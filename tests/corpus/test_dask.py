"""Workers of a Dask cluster give the same bytes as processes of this machine, whatever happens to them."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask_cluster
import pytest
from dask_cluster import (
    OTHER_VERSION,
    dask_scheduler,
    killed_at,
    two_machines,
    with_this,
    without_folder,
    workers_of,
)
from results import command, final, kills, run, states

pytest.importorskip("distributed")

from unbloat.corpus import cluster as of_units
from unbloat.corpus.ledger import Ledger
from unbloat.corpus.run import RunOptions, run_corpus
from unbloat.errors import UnbloatError
from unbloat.tasks import cluster

# Of the moments at which a worker is killed.
SEED = 20_261_128


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, captures: list[Path]) -> tuple[Path, Path]:
    """Captures in folders, and the corpus of them that one process of this machine made."""
    top = tmp_path_factory.mktemp("dask")
    for number in range(8):
        folder = top / f"phones/phone{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(captures[number % len(captures)], folder / f"capture-{number}.pcapng")
    run(top / "phones", top / "clean", jobs=1)
    return top / "phones", top / "clean"


def test_a_local_cluster_gives_the_bytes_of_one_and_two_processes(
    clean: tuple[Path, Path], tmp_path: Path
) -> None:
    phones, one = clean
    run(phones, tmp_path / "two", jobs=2)
    outcome = run(phones, tmp_path / "dask", jobs=2, dask="local")
    assert (outcome.found, outcome.ran, outcome.done, outcome.errors) == (8, 8, 8, [])
    assert final(one) == final(tmp_path / "two") == final(tmp_path / "dask")
    left = {path.name for path in (tmp_path / "dask").iterdir()}
    assert left == {"corpus.json", "done", "lock", "manifest", "part", "table", "views.sql"}


def test_workers_killed_at_random_moments_change_nothing(
    clean: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phones, one = clean
    moments = random.Random(SEED)
    for round_ in range(kills(3)):
        out = tmp_path / f"killed{round_}"
        # The moment is counted in units that are done, the worker is any of those that live.
        with monkeypatch.context() as patch:
            ended = killed_at(patch, moments, moments.randrange(1, 7))
            outcome = run_corpus([phones], out, RunOptions(jobs=2, dask="local"))
        assert len(ended) >= 8
        assert outcome.errors == []
        assert final(out) == final(one)


def test_a_result_that_is_lost_with_its_worker_is_made_again(
    clean: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phones, one = clean
    take = cluster.Cluster.take
    seen: list[str] = []

    def late(self: cluster.Cluster, key: str, future: Any) -> None:
        if not seen:
            for worker in workers_of(os.getpid()):
                os.kill(worker, signal.SIGKILL)
            while future.status == "finished":
                time.sleep(0.01)
        seen.append(future.status)
        take(self, key, future)

    monkeypatch.setattr(cluster.Cluster, "take", late)
    outcome = run_corpus([phones], tmp_path / "out", RunOptions(jobs=2, dask="local"))
    assert seen[0] in ("pending", "lost")
    assert outcome.errors == []
    assert final(tmp_path / "out") == final(one)


# Stands in for a defect of the analysis: the worker dies at one capture, always.
POISON = """
import os, signal, sys
if "multiprocessing.spawn" in " ".join(sys.orig_argv) or "dask" in " ".join(sys.orig_argv):
    from unbloat.corpus import stream
    before = stream.analyse_path
    def analyse_path(path, shown, progress):
        if shown.endswith("capture-4.pcapng"):
            os.kill(os.getpid(), signal.SIGKILL)
        return before(path, shown, progress)
    stream.analyse_path = analyse_path
"""


def test_a_unit_that_ends_its_worker_twice_is_named_and_the_others_are_done(
    clean: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phones, one = clean
    (tmp_path / "sitecustomize.py").write_text(POISON)
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", with_this(tmp_path))
        outcome = run_corpus([phones], out, RunOptions(jobs=2, dask="local"))
    assert outcome.errors == [f"{phones}/phone1/capture-4.pcapng: its worker was ended, twice"]
    assert sorted(states(out).values()) == ["done"] * 7 + ["failed"]
    assert run(phones, out, retry_failed=True).ran == 1
    assert final(out) == final(one)


Start = Callable[..., str]


@pytest.fixture
def cluster_of(tmp_path: Path) -> Iterator[Start]:
    """Starts a scheduler and workers as programs; gives the scheduler's address."""
    with contextlib.ExitStack() as stack:

        def start(*wrapped: str, **how: Any) -> str:
            return stack.enter_context(dask_cluster.cluster(tmp_path, *wrapped, **how))

        yield start


def test_a_scheduler_at_an_address_gives_the_same_bytes(
    clean: tuple[Path, Path], tmp_path: Path, cluster_of: Start
) -> None:
    phones, one = clean
    out = tmp_path / "out"
    process = command("run", phones, "--out", out, "--dask", cluster_of(workers=2))
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output.startswith("8 of 8 units done, 8 now")
    assert final(out) == final(one)


def refused(phones: Path, out: Path, address: str) -> str:
    """The only line of a run that does not begin."""
    process = command("run", phones, "--out", out, "--dask", address)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 2, errors
    assert output == ""
    assert len(errors.splitlines()) == 1, errors
    assert not (out / "done").exists()
    return errors


def test_a_worker_of_another_version_is_named_before_the_start(
    clean: tuple[Path, Path], tmp_path: Path, cluster_of: Start
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/sitecustomize.py").write_text(OTHER_VERSION)
    address = cluster_of(PYTHONPATH=with_this(tmp_path / "old"))
    line = refused(clean[0], tmp_path / "out", address)
    assert line.startswith("unbloat: tcp://127.0.0.1:")
    assert "this worker has unbloat 0.0.1, and " in line


def test_a_worker_without_unbloat_is_named_before_the_start(
    clean: tuple[Path, Path], tmp_path: Path, cluster_of: Start
) -> None:
    (tmp_path / "none/unbloat").mkdir(parents=True)
    (tmp_path / "none/unbloat/__init__.py").write_text("raise ImportError('not here')\n")
    address = cluster_of(PYTHONPATH=with_this(tmp_path / "none"))
    line = refused(clean[0], tmp_path / "out", address)
    assert line.startswith("unbloat: tcp://127.0.0.1:")
    assert "this worker cannot use unbloat: ImportError('not here')" in line


@pytest.mark.skipif(
    os.geteuid() != 0, reason="a worker with another folder in place of the results needs root"
)
def test_a_folder_that_is_not_shared_is_refused_before_the_start(
    clean: tuple[Path, Path], tmp_path: Path, cluster_of: Start
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    address = cluster_of(*without_folder(out))
    line = refused(clean[0], out, address)
    assert line.startswith("unbloat: tcp://127.0.0.1:")
    assert f"this worker does not share {out}: results have to be written to a folder" in line


def test_a_scheduler_that_is_not_there_is_one_line(
    clean: tuple[Path, Path], tmp_path: Path
) -> None:
    line = refused(clean[0], tmp_path / "out", "tcp://127.0.0.1:1")
    assert line == "unbloat: tcp://127.0.0.1:1: no Dask scheduler answers\n"
    line = refused(clean[0], tmp_path / "out", "10.0.0.1")
    assert line.startswith("unbloat: --dask 10.0.0.1: takes local, or the address of a scheduler")
    process = command("run", clean[0], "--out", tmp_path, "--dask", "tcp://x:1", "--jobs", 2)
    assert "--jobs is of this machine" in process.communicate(timeout=60)[1]
    assert process.returncode == 2


def test_a_scheduler_without_workers_is_one_line(
    clean: tuple[Path, Path], tmp_path: Path, cluster_of: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "FIRST_WORKER_S", 0.5)
    with pytest.raises(UnbloatError, match=r"tcp://127.0.0.1:\d+: the scheduler has no workers"):
        run_corpus([clean[0]], tmp_path / "out", RunOptions(dask=cluster_of(workers=0)))


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_the_recipe_of_two_machines_gives_the_same_bytes(
    clean: tuple[Path, Path], tmp_path: Path
) -> None:
    phones, one = clean
    with (
        two_machines() as (first, second),
        dask_cluster.cluster(tmp_path, *second, host="10.9.8.1", scheduler_in=first) as address,
    ):
        unbloat = [sys.executable, "-m", "unbloat", "corpus", "run", str(phones)]
        done = subprocess.run(
            [*first, *unbloat, "--out", str(tmp_path / "out"), "--dask", address],
            env=os.environ | {"PYTHONPATH": with_this(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert final(tmp_path / "out") == final(one)


def test_a_pipe_without_end_is_given_up_and_its_worker_started_again(
    captures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_units, "GRACE_S", 0.5)
    pipe = tmp_path / "endless.pcapng"
    os.mkfifo(pipe)
    # Both ends are held open, so that the reader sees neither data nor an end.
    held = os.open(pipe, os.O_RDWR)
    try:
        out = tmp_path / "out"
        # Time by size: the capture has more than it needs on any machine, the pipe has no size.
        options = RunOptions(jobs=1, dask="local", timeout_base_s=0.5, timeout_per_gb_s=1e9)
        outcome = run_corpus([pipe, captures[1]], out, options)
    finally:
        os.close(held)
    assert outcome.errors == [f"{pipe}: took too long and was stopped"]
    assert states(out) == {"endless.pcapng": "failed", "client.pcapng": "done"}


def test_a_scheduler_that_is_lost_ends_the_run_and_loses_nothing(
    clean: tuple[Path, Path], tmp_path: Path
) -> None:
    phones, one = clean
    out = tmp_path / "out"
    env = os.environ | {"PYTHONPATH": with_this(tmp_path)}
    scheduler, address = dask_scheduler(env)
    program = [sys.executable, "-m", "dask", "worker", address, "--nthreads", "1"]
    worker = subprocess.Popen(
        [*program, "--no-dashboard", "--host", "127.0.0.1"], env=env, stderr=subprocess.DEVNULL
    )
    try:
        process = command("run", phones, "--out", out, "--dask", address)
        while process.poll() is None and not Ledger(out).receipts():
            time.sleep(0.01)
        scheduler.kill()
        scheduler.wait()
        _, errors = process.communicate(timeout=120)
    finally:
        worker.terminate()
        worker.wait(timeout=60)
        scheduler.kill()
    assert process.returncode == 2
    assert errors == (
        f"unbloat: {address}: lost its scheduler; "
        "what is done is stored, the same command goes on from there\n"
    )
    run(phones, out)
    assert final(out) == final(one)


def test_ctrl_c_keeps_what_is_done_and_the_run_goes_on_from_there(
    clean: tuple[Path, Path], tmp_path: Path
) -> None:
    phones, one = clean
    out = tmp_path / "out"
    process = command(
        "run", phones, "--out", out, "--jobs", 1, "--dask", "local", start_new_session=True
    )
    while process.poll() is None and not Ledger(out).receipts():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors
    assert Ledger(out).receipts()
    run(phones, out, dask="local")
    assert final(out) == final(one)
