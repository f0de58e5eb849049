"""Reads the traces that the link models are fitted to.

signal: trace files, compressed or not
model:  a trace is a list of seconds, each a list of the rates of its equal parts in bit/s: ten parts where the file
        is that fine, one part where it is not
action: one function per set
"""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

Trace = list[list[float]]

TENTHS = 10
OPPORTUNITY_BITS = 1_500 * 8
# Below this a second of a drive test counts as without transfer: the rows in question say 0 to 2 kbit/s.
NO_TRANSFER_KBPS = 100.0
# The app of the drive tests fetches file after file; between two files there are up to this many such seconds.
PAUSE_SECONDS = 2


def one_second(trace: Trace) -> list[float]:
    """The mean rate of each second."""
    return [sum(parts) / len(parts) for parts in trace]


def lines(path: Path) -> list[str]:
    """Of a file that may be compressed."""
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return file.read().splitlines()
    return path.read_text(encoding="utf-8").splitlines()


def mahimahi(path: Path) -> Trace:
    """Opportunities of 1,500 bytes, a millisecond each line; whole seconds only."""
    times = [int(line) for line in lines(path)]
    seconds = times[-1] // 1_000
    trace = [[0.0] * TENTHS for _ in range(seconds)]
    for ms in times:
        if ms < seconds * 1_000:
            trace[ms // 1_000][ms % 1_000 // (1_000 // TENTHS)] += OPPORTUNITY_BITS * TENTHS
    return trace


def without_pauses(kbps: list[float]) -> list[float]:
    """Cuts out the pauses between two downloads, and the two part-filled seconds beside each; longer gaps are outages."""
    keep = [True] * len(kbps)
    i = 0
    while i < len(kbps):
        end = i
        while end < len(kbps) and kbps[end] < NO_TRANSFER_KBPS:
            end += 1
        if 0 < end - i <= PAUSE_SECONDS:
            for k in range(max(i - 1, 0), min(end + 1, len(kbps))):
                keep[k] = False
        i = max(end, i + 1)
    return [rate for rate, kept in zip(kbps, keep, strict=True) if kept]


def drive_test(path: Path) -> tuple[list[float], float]:
    """DL_bitrate of each second with a download under way, and the share of rows on 5G."""
    rows = [line.split(",") for line in lines(path)]
    column = {name: i for i, name in enumerate(rows[0])}
    seen: dict[str, float] = {}
    for row in rows[1:]:
        # rows within one second repeat or split a measurement: the later one counts
        if row[column["State"]] == "D":
            seen[row[column["Timestamp"]]] = float(row[column["DL_bitrate"]])
    on_5g = sum(1 for row in rows[1:] if row[column["NetworkMode"]] == "5G")
    return without_pauses(list(seen.values())), on_5g / (len(rows) - 1)


def irish5g(folder: Path, prefix: str) -> tuple[Trace, int]:
    """The runs of that kind that were at least half on 5G, one after the other, and how many."""
    runs = [drive_test(path) for path in sorted(folder.glob(f"{prefix}_*.csv*"))]
    kept = [kbps for kbps, share in runs if share >= 0.5]
    return [[1_000.0 * x] for kbps in kept for x in kbps], len(kept)


def norway3g(folder: Path, prefix: str) -> tuple[Trace, int]:
    """Lines of seconds and Mbit/s at uneven times, averaged over whole seconds, and how many files."""
    trace: Trace = []
    paths = sorted(folder.glob(f"{prefix}_*"))
    for path in paths:
        points = [(float(a), float(b)) for a, b in (line.split() for line in lines(path))]
        bits = [0.0] * int(points[-1][0])
        for (begin, mbps), (end, _) in pairwise(points):
            for second in range(int(begin), min(int(end) + 1, len(bits))):
                overlap = min(end, second + 1) - max(begin, second)
                bits[second] += 1e6 * mbps * max(overlap, 0.0)
        trace.extend([x] for x in bits)
    return trace, len(paths)
