"""Truth and analysis side by side: queueing delay bin by bin, limits by time, losses and holes.

signal: a simulated run and the analysis of one of its captures · model: bins of the same moment, the ACK's way back
apart · action: plain figures
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import paths

from unbloat.run.run import Run

# Midnight of 2020-01-01: where the captures of the simulator begin.
EPOCH_S = 1_577_836_800.0
LIMIT_BIN_S = 0.1
# Behind a queue of a packet or two both words are right: the line between them lies at a millisecond.
ALIKE = {"congestion_window": "bottleneck"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A scenario with its truth, its captures by node, and the analysis of each."""

    name: str
    truth: Run
    captures: dict[str, Path]
    seen: dict[str, Run]


def flow(run: Run, number: int) -> Row:
    """The row of a direction."""
    return next(row for row in run.flows.to_pylist() if row["id"] == number)


def offset(seen: Run) -> float:
    """When the capture begins, in seconds of the run."""
    return float(seen.info["start_s"]) - EPOCH_S


def delay_errors(truth: Run, seen: Run, number: int, lag_s: float) -> list[float]:
    """Measured (RTT above its minimum) minus true queueing delay of each bin, in ms, the packet's own sending apart."""
    step = paths.BIN_MS / 1e3
    known = {
        round(row["t_s"] / step): row["queue_ms"]
        for row in truth.samples(bin_ms=paths.BIN_MS).to_pylist()
        if row["flow"] == number and row["queue_ms"] is not None
    }
    row = flow(seen, number)
    base = min(row["rtt_ms_min"], row["initial_rtt_ms"])
    errors = []
    for row in seen.samples(bin_ms=paths.BIN_MS).to_pylist():
        place = round((row["t_s"] + offset(seen) - lag_s) / step)
        if row["flow"] == number and row["rtt_ms"] is not None and place in known:
            errors.append(row["rtt_ms"] - base - paths.OWN_MS - known[place])
    return errors


def p95(errors: list[float]) -> float:
    """The size that 95 % of the errors stay below."""
    return quantiles([abs(error) for error in errors], n=20)[-1]


def by_time(run: Run, number: int, begin_s: float) -> dict[int, str]:
    """The limit of each tenth of a second while the application wants to send: the word that holds for most of it."""
    shares: dict[int, dict[str, float]] = {}
    for row in run.samples(bin_ms=paths.BIN_MS).to_pylist():
        if row["flow"] != number:
            continue
        at, left = row["t_s"] + begin_s, row["span_s"]
        while left > 1e-6:
            place = int(at / LIMIT_BIN_S + 1e-6)
            part = min(left, (place + 1) * LIMIT_BIN_S - at)
            if part <= 1e-9:
                break
            word = ALIKE.get(row["limit"], row["limit"])
            shares.setdefault(place, {})
            shares[place][word] = shares[place].get(word, 0.0) + part
            at, left = at + part, left - part
    last = round(paths.STOP_S / LIMIT_BIN_S)
    return {
        place: max(words, key=words.__getitem__)
        for place, words in shares.items()
        if 1 <= place < last
    }


def agreement(truth: Run, seen: Run, number: int) -> float:
    """Share of the time for which both name the same limit."""
    known, printed = by_time(truth, number, 0.0), by_time(seen, number, offset(seen))
    both = known.keys() & printed.keys()
    return sum(known[place] == printed[place] for place in both) / len(both)


def holes(truth: Run, number: int) -> int:
    """Segments that the network lost once or more often."""
    return len(
        {
            row["seq"]
            for row in truth.events().to_pylist()
            if row["flow"] == number and row["kind"].startswith("drop_")
        }
    )
