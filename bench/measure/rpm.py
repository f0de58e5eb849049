"""Clients of RPM side by side on the same path to `unbloat measure serve --nq`, and the round trip that the emulator's queues allow.

    sudo PYTHONPATH=tests:tests/measure .venv/bin/python bench/measure/rpm.py [--runs 3]

unbloat measure rpm (intervals of 1 s, as the others), goresponsiveness (`networkQuality`) and networkquality-rs (`mach`), each where it is
on the PATH. The truth of a handshake is the path's own 20 ms and the median wait in the queue while it was filled. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from path import ADDRESSES, Link, MeasuredPath

from unbloat.lab.testbed import output

RTT_MS = 20
# Up and down, 100 ms of buffer each.
LINKS = (Link(10, 125), Link(30, 375))
URL = f"https://{ADDRESSES['server']}:8443/.well-known/nq"
# A wait below it is no filled queue: the test's own beginning and end.
FILLED_MS = 10
MAX_S = 150


@dataclass(frozen=True)
class Found:
    """What a client says of a direction; `None`: nothing."""

    rpm: float | None
    mbps: float | None


def of_ours(out: str) -> dict[str, Found]:
    """Of our client's JSON."""
    phases = json.loads(out)["phases"]
    return {
        one["phase"]: Found(one["rpm"], one[f"goodput_{one['phase']}_bps"] / 1e6) for one in phases
    }


def of_go(out: str) -> dict[str, Found]:
    """Of goresponsiveness' text: its trimmed mean, where that is a number."""
    found = {}
    for way, part in re.findall(r"^(Down|Up)load:\n(.*?)^===", out, re.DOTALL | re.MULTILINE):
        rpm = re.search(r"RPM: +(\d+) \(Single-Sided", part)
        mbps = re.search(r"Throughput: ([\d.]+) Mbps", part)
        found[way.lower()] = Found(rpm and float(rpm[1]), mbps and float(mbps[1]))
    return found


def of_mach(out: str) -> dict[str, Found]:
    """Of networkquality-rs' JSON."""
    result = json.loads(out)
    return {
        way: Found(result[f"{way}load"]["rpm"], result[f"{way}load"]["throughput"] / 1e6)
        for way in ("down", "up")
    }


def run(words: tuple[str, ...], found_in: Callable[[str], dict[str, Found]]) -> list[str]:
    """A row of one run: what it says, and the truth of its own run."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasuredPath(Path(folder), *LINKS, duration_s=2 * MAX_S) as made,
    ):
        made.serve("--nq", "8443")
        found = found_in(output(made.start("client", *words), MAX_S))
        queues = made.queues()
    cells = []
    for way in ("down", "up"):
        waits = queues[way].waits_ms(0, queues[way].arrived[-1])
        filled = [wait for wait in waits if FILLED_MS < wait < float("inf")]
        one = found.get(way, Found(None, None))
        rpm, mbps = ("–" if x is None else f"{x:.0f}" for x in (one.rpm, one.mbps))
        cells += [rpm, f"{60_000 / (RTT_MS + median(filled)):.0f}", mbps]
    return cells


def main() -> None:
    """Runs each client so often."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="of each client")
    runs = parser.parse_args().runs
    print("| client | down: RPM | of the queue | Mbit/s | up: RPM | of the queue | Mbit/s |")
    print("|---|---|---|---|---|---|---|")
    ours = ("unbloat-measure", "rpm", URL, "--insecure", "--quick", "--json")
    go = ("networkQuality", "-rpm.timeout", "10", "-url", URL)
    mach = ("mach", "rpm", "--insecure", "--disable-aim-scores", "--config", URL)
    for words, found_in in ((ours, of_ours), (go, of_go), (mach, of_mach)):
        for _ in range(runs if shutil.which(words[0]) else 0):
            print(f"| {words[0]} | {' | '.join(run(words, found_in))} |", flush=True)


if __name__ == "__main__":
    main()
