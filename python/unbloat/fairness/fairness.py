"""`reproduce fairness`: every case, run or read from the store.

signal: goodput of each flow in each second, RTTs after the last start, pings · model: CUBIC and these controls draw no
random numbers, so that one run of a case says all (a test compares two seeds) · action: `Shared` per case, `Both` per
control of both ways at once
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbloat.fairness.cases import (
    ALONE,
    BOTH_FROM_S,
    BOTH_S,
    BOTH_WAYS,
    CASES,
    BothWays,
    Case,
)
from unbloat.front.case import digest, simulated, waits_ms
from unbloat.run.figures import Figures, statistics
from unbloat.run.run import Run
from unbloat.run.store import Store

NAMES = ("way", "flows", "starts", "rtts", "control")


@dataclass(frozen=True)
class Shared:
    """What came out of a case."""

    case: Case
    goodputs: list[list[int]]
    """kbit/s, per flow and second."""
    rtt_ms: list[float]
    """Median of each flow after the last start."""


@dataclass(frozen=True)
class Both:
    """A control with the upload alone, and beside a download."""

    name: str
    alone_bps: float
    upload_bps: float
    download_bps: float
    ping_p95_ms: float
    """Beside the download."""


@dataclass(frozen=True)
class Fairness:
    """All that was measured."""

    shared: list[Shared]
    both: list[Both]


def fairness(
    *,
    store: Path | None = None,
    cases: Sequence[Case] = (*ALONE, *CASES),
    both_ways: Sequence[BothWays] = BOTH_WAYS,
    only_stored: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Fairness:
    """Measure how flows share. With `only_stored` nothing is run."""
    kept = Store(store, NAMES)
    every: list[Case | BothWays] = [*cases, *both_ways]
    results: dict[tuple[str, ...], list[Any]] = {}
    for done, case in enumerate(every):
        if progress is not None:
            progress(done, len(every))
        runs = kept.runs(case.key, settings(case))
        if runs is None and not only_stored:
            runs = measured(case, simulated(case.scenario()))
            kept.put(case.key, settings(case), runs)
        if runs is not None:
            results[case.key] = runs
    if progress is not None:
        progress(len(every), len(every))
    return Fairness(
        [Shared(case, *results[case.key]) for case in cases if case.key in results],
        paired(both_ways, results),
    )


def settings(case: Case | BothWays) -> str:
    """Names what is simulated."""
    return digest(case.scenario())


def measured(case: Case | BothWays, run: Run) -> list[Any]:
    """What is stored of a run, in the simulator or in the lab."""
    return shared(case, run) if isinstance(case, Case) else both(run)


def shared(case: Case, run: Run) -> list[Any]:
    """Goodputs in kbit/s, per flow and second, and the flows' median RTTs."""
    figures = Figures(run)
    goodputs, rtts = [], []
    rows = run.samples().select(["flow", "t_s", "delivered_bytes", "rtt_ms"]).to_pylist()
    for flow in range(case.flows):
        ids = {row["id"] for row in figures.flows(f"flow{flow}")}
        own = [row for row in rows if row["flow"] in ids]
        series = [0] * case.duration_s
        for row in own:
            second = min(int(row["t_s"]), case.duration_s - 1)
            series[second] += round(row["delivered_bytes"] * 8 / 1000)
        after = statistics(row["rtt_ms"] for row in own if row["t_s"] >= case.last_start_s)
        goodputs.append(series)
        rtts.append(math.nan if after is None else round(after.p50, 1))
    return [goodputs, rtts]


def both(run: Run) -> list[Any]:
    """Goodput of upload and download in bit/s, and p95 of the ping."""
    figures = Figures(run)
    found = []
    rows = run.samples().select(["flow", "t_s", "delivered_bytes"]).to_pylist()
    for name in ("upload", "download"):
        ids = {row["id"] for row in figures.flows(name)}
        own = (row for row in rows if row["flow"] in ids and row["t_s"] >= BOTH_FROM_S)
        bits = sum(row["delivered_bytes"] for row in own) * 8
        found.append(round(bits / (BOTH_S - BOTH_FROM_S)))
    probes = [row for row in run.probes.to_pylist() if row["t_s"] >= BOTH_FROM_S]
    pings = statistics(waits_ms(probes, BOTH_S - 2, BOTH_S))
    return [*found, math.nan if pings is None else round(pings.p95, 1)]


def paired(both_ways: Sequence[BothWays], results: dict[tuple[str, ...], list[Any]]) -> list[Both]:
    """The upload alone and beside the download, per control."""
    found = []
    for name in dict.fromkeys(case.name for case in both_ways):
        pair = {case.download: results.get(case.key) for case in both_ways if case.name == name}
        alone, beside = pair.get(False), pair.get(True)
        if alone is not None and beside is not None:
            found.append(Both(name, alone[0], *beside))
    return found
