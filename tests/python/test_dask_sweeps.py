"""Runs of a sweep on the workers of a Dask cluster are those of this machine, byte for byte, whatever happens to a worker."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dask_cluster
import pytest
from dask_cluster import (
    OTHER_VERSION,
    killed_at,
    two_machines,
    with_this,
    without_folder,
    workers_of,
)
from requirements import requires

pytest.importorskip("distributed")

import unbloat
from unbloat.scenario.sweep import RunSet
from unbloat.tasks import cluster

# Of the moments at which a worker is killed.
SEED = 20_261_129
SWEEP = """\
name = "sweep"
duration = "3 s"
[link.up]
trace = "drive.up"
delay = "20 ms"
loss = 0.01
[link.down]
rate = "20 Mbit/s"
delay = "20 ms"
[[flow]]
name = "upload"
from = "client"
[[probe]]
name = "ping"
[[expect]]
probe = "ping"
probe_rtt_ms = { p95 = { max = "10 s" } }
[sweep]
"flow.0.congestion" = ["cubic", "vegas"]
seeds = 2
"""
# An opportunity for a packet every two milliseconds, 6 Mbit/s.
TRACE = "".join(f"{ms}\n" for ms in range(2, 1001, 2))
LABELS = ["congestion=cubic, seed=1", "congestion=cubic, seed=2"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the scenario, and its trace in another one."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/drive.up").write_text(TRACE)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path


def sim(
    place: Path, *words: object, wrapped: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """`unbloat sim` of the sweep."""
    program = [*wrapped, sys.executable, "-m", "unbloat", "sim", str(place / "sweep.toml")]
    return subprocess.run(
        [*program, "--traces", str(place / "traces"), *map(str, words)],
        env=os.environ | {"PYTHONPATH": with_this(place)} | env,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def made(place: Path, name: str, *words: object) -> tuple[str, dict[str, bytes]]:
    """What a run of the sweep prints, and every file that it writes, under the same names for each run."""
    out = place / name
    done = sim(place, "--out", "now/tables", "--pcap", "now/captures", "--json", *words)
    assert done.returncode == 0, done.stderr
    (place / "now").rename(out)
    return done.stdout, files(out)


def test_a_local_cluster_gives_the_bytes_of_one_and_two_jobs(place: Path) -> None:
    one = made(place, "one", "--jobs", 1)
    assert one == made(place, "two", "--jobs", 2)
    assert one == made(place, "dask", "--dask", "local", "--jobs", 2)
    assert len(one[0].splitlines()) == 4
    assert len([name for name in one[1] if name.endswith(".pcapng")]) == 8
    assert one != made(place, "other", "--jobs", 2, "--seed", 5)


def runs(place: Path, **how: Any) -> RunSet:
    """The runs of the sweep, made by this process."""
    found = unbloat.simulate(place / "sweep.toml", traces=place / "traces", **how)
    assert isinstance(found, RunSet)
    return found


def tables(found: RunSet) -> list[Any]:
    """All that is known of runs."""
    return [
        (run.info, run.flows, run.connections, run.samples(), run.events(), run.queues, run.probes)
        for run in found
    ]


def test_workers_killed_at_random_moments_change_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = runs(place, jobs=1)
    moments = random.Random(SEED)
    for _ in range(3):
        with monkeypatch.context() as patch:
            ended = killed_at(patch, moments, moments.randrange(1, 4))
            found = runs(place, dask="local", jobs=2)
        assert len(ended) >= 4
        assert found.skipped == []
        assert found.labels == clean.labels
        assert tables(found) == tables(clean)


def at_seed_2(deed: str) -> str:
    """Python's own start file of a worker that does something instead of the run with seed 2 and CUBIC."""
    return f"""
import os, signal, sys
if "spawn_main" in " ".join(sys.orig_argv):
    from unbloat.scenario import cluster
    before = cluster.run_job
    def run_job(job, *more):
        if job.seed == 2 and "cubic" in str(job.labels):
            {deed}
        return before(job, *more)
    cluster.run_job = run_job
"""


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "its worker was ended, 4 times"),
        ("raise MemoryError('no more')", "MemoryError: no more"),
    ],
)
def test_a_run_that_fails_is_named_by_its_parameters_and_the_others_are_made(
    place: Path, deed: str, reason: str
) -> None:
    (place / "sitecustomize.py").write_text(at_seed_2(deed))
    done = sim(place, "--dask", "local", "--jobs", 2, "--out", "tables")
    assert done.returncode == 1, done.stderr
    assert f"failed: {LABELS[1]}: {reason}\n" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    stored = sorted(path.name for path in (place / "tables").iterdir())
    (place / "sitecustomize.py").unlink()
    whole = sim(place, "--jobs", 2, "--out", "whole")
    assert whole.returncode == 0
    every = sorted(path.name for path in (place / "whole").iterdir())
    assert len(every) == 4
    assert len(stored) == 3
    assert set(stored) < set(every)


def test_a_sweep_without_any_run_is_one_line(place: Path) -> None:
    (place / "sitecustomize.py").write_text(
        at_seed_2("raise MemoryError('no more')").replace('job.seed == 2 and "cubic" in', "")
    )
    done = sim(place, "--dask", "local", "--jobs", 2)
    assert done.returncode == 2
    assert done.stderr == f"unbloat: {place}/sweep.toml: {LABELS[0]}: MemoryError: no more\n"


def test_a_trace_that_is_not_there_skips_its_runs_as_on_this_machine(place: Path) -> None:
    text = SWEEP + '"link.up.trace" = ["drive.up", "walk.up"]\n'
    (place / "sweep.toml").write_text(text.replace("seeds = 2\n", ""))
    here, away = sim(place, "--json"), sim(place, "--json", "--dask", "local", "--jobs", 2)
    assert (here.returncode, here.stdout) == (away.returncode, away.stdout)
    assert here.stdout.count('"skipped"') == 2


def test_a_long_trace_travels_without_a_word_of_dask(place: Path) -> None:
    # Dask warns of tasks above 10 MB.
    (place / "traces/drive.up").write_text("".join(f"{ms}\n" for ms in range(2, 1_600_000)))
    done = sim(place, "--dask", "local", "--jobs", 1, "--set", "flow.0.congestion=cubic")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_wrong_scenario_is_refused_in_the_words_of_this_machine(place: Path) -> None:
    (place / "traces/drive.up").write_text("no trace\n")
    here, away = sim(place), sim(place, "--dask", "local", "--jobs", 1)
    assert here.returncode == away.returncode == 2
    assert here.stderr == away.stderr
    assert len(here.stderr.splitlines()) == 1


def refused(place: Path, address: str, *words: object) -> str:
    """The only line of a sweep that does not begin."""
    done = sim(place, "--dask", address, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    return done.stderr


def test_a_scheduler_that_does_not_answer_is_one_line(place: Path) -> None:
    line = refused(place, "tcp://127.0.0.1:1")
    assert line == "unbloat: tcp://127.0.0.1:1: no Dask scheduler answers\n"
    line = refused(place, "10.0.0.1")
    assert line.startswith("unbloat: --dask 10.0.0.1: takes local, or the address of a scheduler")
    assert "--jobs is of this machine" in refused(place, "tcp://x:1", "--jobs", 2)


def test_a_scheduler_without_workers_is_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "FIRST_WORKER_S", 0.5)
    with (
        dask_cluster.cluster(place, workers=0) as address,
        pytest.raises(unbloat.UnbloatError, match=f"{address}: the scheduler has no workers"),
    ):
        runs(place, dask=address)


def test_a_worker_of_another_version_is_named_before_the_start(place: Path) -> None:
    (place / "old").mkdir()
    (place / "old/sitecustomize.py").write_text(OTHER_VERSION)
    with dask_cluster.cluster(place, PYTHONPATH=with_this(place / "old")) as address:
        line = refused(place, address)
    assert line.startswith("unbloat: tcp://127.0.0.1:")
    assert "this worker has unbloat 0.0.1, and " in line
    assert len(line.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_worker_on_another_machine_needs_neither_scenario_nor_trace(place: Path) -> None:
    one = made(place, "one", "--jobs", 1)
    hidden = without_folder(place)
    with (
        two_machines() as (first, second),
        dask_cluster.cluster(
            place, *second, *hidden, host="10.9.8.1", scheduler_in=first
        ) as address,
    ):
        done = sim(
            place,
            "--out",
            "now/tables",
            "--pcap",
            "now/captures",
            "--json",
            "--dask",
            address,
            wrapped=tuple(first),
        )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, files(place / "now")) == one


def test_ctrl_c_ends_it_with_130_and_without_a_traceback(place: Path) -> None:
    text = SWEEP.replace('"3 s"', '"3000 s"').replace("20 ms", "1 ms")
    (place / "sweep.toml").write_text(text)
    program = [sys.executable, "-m", "unbloat", "sim", "sweep.toml", "--traces", "traces"]
    with subprocess.Popen(
        [*program, "--dask", "local", "--jobs", "2"],
        cwd=place,
        env=os.environ | {"PYTHONPATH": with_this(place)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        while len(busy := workers_of(process.pid)) < 2 or not all(map(loaded, busy)):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == err == b""


def loaded(process: int) -> bool:
    """Whether a worker has loaded the simulator."""
    try:
        return "_native" in Path(f"/proc/{process}/maps").read_text()
    except OSError:
        return False


SBATCH = Path(__file__).parents[2] / "docs/examples/cluster.sbatch"
# Stands in for Slurm's own: it runs as many copies as it is asked for, on this machine, and ends with them.
SRUN = """#!/bin/bash
count=${1#--ntasks=}
shift
[ "$1" = --overlap ] && shift
trap 'kill $(jobs -p); wait' TERM
for _ in $(seq "$count"); do "$@" & done
wait
"""


def test_the_recipe_of_slurm_gives_the_bytes_of_one_job_and_leaves_nothing(place: Path) -> None:
    one = made(place, "one", "--jobs", 1)
    programs = place / "bin"
    programs.mkdir()
    # `dask` and `unbloat` of this Python, whatever is installed.
    for name, text in {
        "srun": SRUN,
        "dask": f'#!/bin/sh\nexec {sys.executable} -m dask "$@"\n',
        "unbloat": f'#!/bin/sh\nexec {sys.executable} -m unbloat "$@"\n',
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    words = ["sim", str(place / "sweep.toml"), "--traces", str(place / "traces"), "--json"]
    done = subprocess.run(
        ["bash", str(SBATCH), *words, "--out", "now/tables", "--pcap", "now/captures"],
        env=os.environ
        | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": with_this(place),
            "SLURM_JOB_ID": "1",
            "SLURM_NTASKS": "3",
        },
        cwd=place,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, files(place / "now")) == one
    assert not [*place.glob("scheduler-*")]


@requires("shellcheck")
def test_the_recipe_of_slurm_passes_its_linter() -> None:
    done = subprocess.run(["shellcheck", str(SBATCH)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
