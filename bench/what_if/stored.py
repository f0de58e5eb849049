"""Runs over the known links that are stored one by one, and a page of them: what `findings.py` and `fits.py` have in common.

signal: a function that measures a run, and a number that is raised when it measures in another way · model: a run is named by
its link, congestion control and number · action: what is missing is made, on all processors, and the page is written
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.what_if.links import CONGESTION, LINKS, RUNS, Link

from unbloat.phones.upload import SIMULATED_EPOCH_NS, packets
from unbloat.run.store import Store

NAMES = ("link", "congestion", "run")
Case = tuple[Link, str, int]
Stored = Sequence[tuple[Case, dict[str, Any]]]


def cases(runs: int = RUNS) -> list[Case]:
    """All runs, or the first of each link and congestion control."""
    return [(link, by, run) for link in LINKS for by in CONGESTION for run in range(runs)]


def key(case: Case) -> tuple[str, str, str]:
    """Of a run in the store."""
    link, by, run = case
    return link.name, by, str(run)


def settings_of(method: int, case: Case) -> str:
    """Names what is made."""
    return hashlib.sha256(f"{method} {case!r}".encode()).hexdigest()[:10]


def stored_by(method: int, store: Path, count: int = RUNS) -> list[tuple[Case, dict[str, Any]]]:
    """Runs that are stored."""
    kept = Store(store, NAMES)
    return [
        (case, runs[0])
        for case in cases(count)
        if (runs := kept.runs(key(case), settings_of(method, case)))
    ]


def make(
    method: int,
    measured: Callable[[Case, Path], dict[str, Any]],
    store: Path,
    traces: Path,
    jobs: int,
    count: int = RUNS,
) -> None:
    """Makes what is missing."""
    kept = Store(store, NAMES)
    todo = [
        case for case in cases(count) if kept.runs(key(case), settings_of(method, case)) is None
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for case, row in zip(todo, pool.map(measured, todo, [traces] * len(todo)), strict=True):
            kept.put(key(case), settings_of(method, case), [row])
            print(*key(case), flush=True)
    kept.sort()


def main_of(
    about: str | None,
    method: int,
    measured: Callable[[Case, Path], dict[str, Any]],
    page: Callable[[Stored], str],
    store: Path,
    page_path: Path,
    count: int = RUNS,
) -> None:
    """The command: `about` is its help, the paths are where the store and the page lie, `count` is runs of each kind."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of traces")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--store", type=Path, default=store)
    parser.add_argument("--page", type=Path, default=page_path)
    given = parser.parse_args()
    make(method, measured, given.store, given.traces, given.jobs, count)
    given.page.write_text(page(stored_by(method, given.store, count)))


def first_connection(raw: bytes) -> Iterator[tuple[int, int]]:
    """Of the first connection's packets from the client: when each arrived, ns since the begin of the run, and its bytes."""
    first = b""
    for ns, data, wire_bytes in packets(raw):
        # Addresses and ports: the SYN comes from the client.
        ends = data[12:24]
        first = first or ends
        if ends == first:
            yield ns - SIMULATED_EPOCH_NS, wire_bytes
