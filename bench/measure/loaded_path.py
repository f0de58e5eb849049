"""What a load did to an emulated path, whichever program it was of: from the emulator's decision log alone.

A direction is loaded while it passes packets of more than 1000 bytes with 1 % of its rate or more, of flows that have 30 KB of them
in all. Phases follow from it, so that no clock of a program is needed. Waits are those of a small packet that comes at any moment of a phase.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from statistics import fmean, median

from path import GRID_S, Queue, p95

BIN_S = 0.25
FULL_BYTES = 1000
SHARE = 0.01
# Handshakes and answers of probes are less.
BULK_BYTES = 30_000
# So many bins in a row that are loaded up begin the uploads; what then loads down is `both`.
FIRST_BINS = 4
# crusader averages over so long and takes the largest.
SMOOTHED_S = 0.4
TRIMMED = 0.05


def loaded(queue: Queue, bins: int) -> list[bool]:
    """Of each bin: whether the direction is loaded."""
    large = [n for n in queue.started if queue.size[n] > FULL_BYTES]
    flows: Counter[int] = Counter()
    for n in large:
        flows[queue.flow[n]] += queue.size[n]
    sums = [0] * bins
    for n in large:
        if flows[queue.flow[n]] >= BULK_BYTES and queue.started[n] < bins * BIN_S:
            sums[int(queue.started[n] / BIN_S)] += queue.size[n]
    return [total * 8 >= SHARE * queue.link.mbps * 1e6 * BIN_S for total in sums]


def phases(queues: dict[str, Queue], wanted: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """When the first and the last loaded bin of each phase is. Programs have them in the order down, up, both."""
    end = max(max(queue.arrived) for queue in queues.values())
    bins = math.ceil(end / BIN_S)
    down, up = (loaded(queues[way], bins) for way in ("down", "up"))
    every = range(bins)
    if wanted == ("both",):
        return spans({"both": [n for n in every if down[n] or up[n]]})
    first_up = next((n for n in every if all(up[n : n + FIRST_BINS])), bins)
    later = every[first_up + FIRST_BINS :] if "both" in wanted else ()
    first_both = next((n for n in later if down[n]), bins)
    alone = {
        "down": [n for n in every[:first_up] if down[n]],
        "up": [n for n in every[first_up:first_both] if up[n]],
        "both": [n for n in every[first_both:] if down[n] or up[n]],
    }
    return spans(alone)


def spans(bins: dict[str, list[int]]) -> dict[str, tuple[float, float]]:
    """From the first to the end of the last."""
    return {name: (of[0] * BIN_S, (of[-1] + 1) * BIN_S) for name, of in bins.items() if of}


def waits_ms(queue: Queue, probe_bytes: tuple[int, ...]) -> list[float]:
    """Of a small packet that arrives at each moment of the grid. Where the queue keeps flows apart: what the program's next probe
    waited, of this size and of a flow that has no large packet."""
    end = queue.arrived[-1]
    if not queue.link.queue:
        return queue.waits_ms(0, end)
    large = {flow for flow, size in zip(queue.flow, queue.size, strict=True) if size > FULL_BYTES}
    probes = [
        n
        for n, (flow, size) in enumerate(zip(queue.flow, queue.size, strict=True))
        if size in probe_bytes and flow not in large
    ]
    times = [queue.arrived[n] for n in probes]
    waits = []
    for step in range(int(end / GRID_S) if probes else 0):
        at = bisect.bisect_left(times, step * GRID_S)
        n = probes[min(at, len(probes) - 1)]
        waits.append((queue.started.get(n, math.inf) - queue.arrived[n]) * 1e3)
    return waits


def round_trips_ms(up: list[float], down: list[float], delay_ms: float) -> list[float]:
    """Both waits of a packet that is sent at each moment and answered at once."""
    trips = []
    for n, wait in enumerate(up):
        if math.isinf(wait):
            trips.append(wait)
            continue
        back = n + round((wait + delay_ms) / 1e3 / GRID_S)
        if back < len(down):
            trips.append(wait + down[back])
    return trips


def statistic(name: str, waits: list[float]) -> float:
    """One that a program prints. Only p95 counts what is lost, as an infinite wait: the others leave it out."""
    if name == "p95":
        return p95(waits)
    answered = [wait for wait in waits if not math.isinf(wait)]
    if name == "mean":
        return fmean(answered)
    if name == "median":
        return median(answered)
    if name == "trimmed mean":
        return fmean(sorted(answered)[: math.ceil(len(answered) * (1 - TRIMMED))])
    assert name == "largest smoothed", name
    width = round(SMOOTHED_S / GRID_S)
    pieces = (waits[n : n + width] for n in range(0, max(1, len(waits) - width), width // 8))
    kept = ([wait for wait in piece if not math.isinf(wait)] for piece in pieces)
    return max(fmean(piece) for piece in kept if len(piece) > 2)
