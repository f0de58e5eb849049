"""The known links on the kernel's own TCP, under every cure that a kernel has: the truth of `kernel_page.py`.

signal: a link of `links.py`, a cure, and the number of a run · model: the scenario that `predictions.py` simulates, run by the lab on the
real clock; the sender is CUBIC where the cure does not change it · action: a line of `docs/generated/what-if-runs.jsonl` per run, with
commit, date and kernel, and the captures of both ends where a prediction starts from the run

A run is stored as soon as it is over. One during which the machine was too busy is not stored: its figures are those of the machine.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from bench.what_if.findings import ENDS, GENERATED, rounded  # noqa: E402
from bench.what_if.links import DURATION_S, LINKS, TEST, Link, scenario  # noqa: E402
from bench.what_if.predictions import mean_bps, of_one  # noqa: E402

import unbloat  # noqa: E402
from unbloat.errors import LabError, UnbloatError  # noqa: E402
from unbloat.front.lab import commit  # noqa: E402
from unbloat.prediction.cures import AS_IT_WAS, CURES, Cure  # noqa: E402
from unbloat.prediction.pairs import figures  # noqa: E402
from unbloat.run.store import Store  # noqa: E402

STORE = GENERATED / "what-if-runs.jsonl"
CAPTURES = ROOT / "target" / "what-if-runs"
NAMES = ("link", "cure", "run")
# Raised when runs are made in another way.
METHOD = 3
RUNS = 3
# At once: with three, 1 % of the deliveries are a fifth of a millisecond late on two processors.
JOBS = 3
# Between the first runs: some that begin together delay all others by up to 80 ms.
APART_S = 5.0
SENDER = "cubic"
# 1 % of the deliveries may be as late as this.
MAX_LATE_US = 3000
# The latest delivery may be so late. A pause of the machine of 80 ms is longer than the queue that a cure leaves. BBR takes it for the path's, and has a
# longer queue for seconds. A fit takes it for an outage of the link.
MAX_LATEST_MS = 10.0
# AFC is in no kernel. CUBIC is the sender as it was.
CURES_RUN = (AS_IT_WAS, *(cure for cure in CURES if cure.name not in ("afc", SENDER)))
# A prediction starts from a run by CUBIC, or by another congestion control.
STARTS = tuple(cure for cure in CURES_RUN if cure is AS_IT_WAS or cure.congestion)
Case = tuple[Link, Cure, int]
Row = dict[str, Any]


class BusyError(LabError):
    """A run that measured itself that packets were late, or that a kernel dropped some."""


def cases(runs: int = RUNS) -> list[Case]:
    """All first runs before all second ones, and the test half first: what an ended command has of them is of use."""
    halves = sorted(LINKS, key=lambda link: link.half != TEST)
    return [(link, cure, run) for run in range(runs) for link in halves for cure in CURES_RUN]


def key(case: Case) -> tuple[str, str, str]:
    """Of a run in the store."""
    link, cure, run = case
    return link.name, cure.name, str(run)


def settings(case: Case, method: int = METHOD) -> str:
    """Names what is made. Where a cure is installed and by what command changes nothing."""
    link, cure, run = case
    what = replace(cure, where="", command="")
    return hashlib.sha256(f"{method} {SENDER} {link!r} {what!r} {run}".encode()).hexdigest()[:10]


def capture_of(case: Case, end: str, folder: Path = CAPTURES) -> Path:
    """Where the capture of a run lies."""
    return folder / f"{'-'.join(key(case)).replace(' ', '-')}-{end}.pcap"


def kernel_run(case: Case, traces: Path, captures: Path | None) -> Row:
    """One run. With a folder for its captures it is one to be stored, during which the machine did not pause. Raises `LabError` for a run that
    counts for nothing."""
    link, cure, number = case
    with tempfile.TemporaryDirectory(prefix="unbloat-what-if-") as name:
        folder = Path(name)
        path = folder / "link.toml"
        # Writes the trace, whose mean a shaper needs.
        scenario(link, SENDER, number, traces, folder)
        path.write_text(
            scenario(link, SENDER, number, traces, folder, cure, mean_bps(link, folder))
        )
        run = of_one(unbloat.lab(path, set=cure.lab_settings, pcap=folder / "captures"))
        ends = [folder / "captures" / f"{end}.pcap" for end in ENDS]
        row = row_of(run, cure) | {"figures": true_figures(*(path.read_bytes() for path in ends))}
        if captures is None:
            return row
        undisturbed(row)
        if cure in STARTS:
            captures.mkdir(parents=True, exist_ok=True)
            for end, path in zip(ENDS, ends, strict=True):
                shutil.copy(path, capture_of(case, end, captures))
        return row


def true_figures(sender: bytes, receiver: bytes) -> list[float]:
    """Goodput, and p50 and p95 of the queueing delay, by the captures of both ends."""
    goodput_bps, *queue_ms = figures(sender, receiver, DURATION_S)
    return [round(goodput_bps), *map(rounded, queue_ms)]


def row_of(run: unbloat.Run, cure: Cure) -> Row:
    """Where a run comes from. Agents must have run exactly where the cure has them, in time."""
    info = run.info
    if bool(info["agents"]) != bool(cure.sender or cure.receiver or cure.gate):
        raise LabError(f"agents that ran: {info['agents']}")
    late_us = info["lateness_us_p99"]
    if late_us is None or late_us > MAX_LATE_US or info["kernel_drops"]:
        raise BusyError(
            f"the machine was too busy: {late_us} µs late, {info['kernel_drops']} drops"
        )
    return {
        "late_ms": rounded(late_us / 1000),
        "latest_ms": rounded(info["lateness_us_max"] / 1000),
        "kernel": info["kernel"],
        "date": time.strftime("%Y-%m-%d"),
    }


def undisturbed(row: Row) -> None:
    """Raises `LabError` where the machine paused during the run."""
    if row["latest_ms"] > MAX_LATEST_MS:
        raise LabError(f"the machine paused for {row['latest_ms']:.0f} ms")


def begin_apart(turns: Synchronized[int]) -> None:
    """Waits so long that runs of this process begin between those of the others: all take the same time."""
    with turns.get_lock():
        turn, turns.value = turns.value, turns.value + 1
    time.sleep(turn * APART_S)


def make(store: Path, traces: Path, runs: int, jobs: int = JOBS, captures: Path = CAPTURES) -> None:
    """Makes what is missing, so many at once: a run takes a tenth of a processor."""
    kept = Store(store, NAMES)
    code = commit()
    todo = [case for case in cases(runs) if kept.runs(key(case), settings(case)) is None]
    context = multiprocessing.get_context("spawn")
    turns = context.Value("i", 0)
    with ProcessPoolExecutor(jobs, context, begin_apart, (turns,)) as pool:
        waiting = {pool.submit(kernel_run, case, traces, captures): case for case in todo}
        # An interruption ends with the runs that it meets, and begins no other.
        signal.signal(signal.SIGINT, lambda *_: pool.shutdown(wait=False, cancel_futures=True))
        for number, done in enumerate(as_completed(waiting), 1):
            case = waiting[done]
            named = f"{number} of {len(todo)}: {', '.join(key(case))}"
            try:
                row = done.result()
            except CancelledError:
                continue
            except UnbloatError as error:
                print(f"{named}: not stored: {error}", flush=True)
                continue
            kept.put(key(case), settings(case), [row | {"commit": code}])
            print(f"{named}: {row['figures']}", flush=True)
    kept.sort()
