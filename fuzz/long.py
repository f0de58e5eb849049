"""Long fuzzing that adds up: `make fuzz-long`. Every target runs, the one that has run for the shortest time first.

signal: executions that libFuzzer counts · model: none; a condition that does not hold is a defect · action: a line of
`docs/generated/fuzz.jsonl` per run with commit and date, and the page of their sums; a defect ends it with exit code 1

A run that is killed loses only itself: inputs found stay in `corpus/`, sums in the store. Executions of an older commit count:
they were of the code of their time, and the page names the newest commit of each target.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomllib

HERE = Path(__file__).resolve().parent
GENERATED = HERE.parent / "docs" / "generated"
STORE, PAGE = GENERATED / "fuzz.jsonl", GENERATED / "fuzz.md"
# Executions of all targets together, and frames of the one whose input comes from the firmware of a modem.
GOAL, GOAL_MODEM, MODEM = 1_000_000_000, 100_000_000, "modem_diag"
# An input that takes longer, or that makes a process larger, is a defect.
TIMEOUT_S, RSS_MB = 10, 600
COUNTED = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
# What the modem's target prints now and then: frames so far.
FRAMES = re.compile(r"^frames: (\d+)$", re.MULTILINE)


def targets() -> list[str]:
    """Of the crate."""
    return [one["name"] for one in tomllib.loads((HERE / "Cargo.toml").read_text())["bin"]]


def stored() -> list[dict[str, Any]]:
    """Runs so far, the oldest first."""
    return [json.loads(line) for line in STORE.read_text().splitlines()] if STORE.exists() else []


def sums(runs: list[dict[str, Any]]) -> dict[str, int]:
    """Executions of each target."""
    found: dict[str, int] = dict.fromkeys(targets(), 0)
    for run in runs:
        if run["target"] in found:
            found[run["target"]] += run["executions"]
    return found


def frames_of(runs: list[dict[str, Any]]) -> int:
    """Frames that the modem's target has read. Runs before they were counted have none."""
    return sum(run.get("frames", 0) for run in runs if run["target"] == MODEM)


def seconds_of(runs: list[dict[str, Any]]) -> dict[str, int]:
    """Time of each target."""
    found: dict[str, int] = defaultdict(int)
    for run in runs:
        found[run["target"]] += run["seconds"]
    return found


def commit() -> str:
    """The newest commit, marked where files differ from it."""
    words = ("git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*")
    return subprocess.run(
        words, cwd=HERE, capture_output=True, text=True, check=True
    ).stdout.strip()


def build() -> Path:
    """Programs of all targets; the folder."""
    if shutil.which("cargo-fuzz") is None:
        subprocess.run(["cargo", "install", "--quiet", "--locked", "cargo-fuzz"], check=True)
    subprocess.run(["cargo", "run", "--quiet", "--example", "seeds"], cwd=HERE, check=True)
    subprocess.run(
        ["cargo", "+stable", "fuzz", "build", "--sanitizer", "none"], cwd=HERE, check=True
    )
    (folder,) = (HERE / "target").glob("*-unknown-linux-*/release")
    return folder


def fuzz(program: Path, seconds: int) -> dict[str, Any] | None:
    """One run of a target; None, and what it printed, where it found a defect."""
    name = program.name
    for folder in (HERE / "corpus" / name, HERE / "artifacts" / name):
        folder.mkdir(parents=True, exist_ok=True)
    options = {
        "max_total_time": seconds,
        "timeout": TIMEOUT_S,
        "rss_limit_mb": RSS_MB,
        "print_final_stats": 1,
        "artifact_prefix": f"{HERE}/artifacts/{name}/",
    }
    words = [
        str(program),
        *(f"-{key}={value}" for key, value in options.items()),
        f"{HERE}/corpus/{name}",
    ]
    done = subprocess.run(words, cwd=HERE, capture_output=True, text=True, errors="replace")
    counted = COUNTED.search(done.stderr)
    if done.returncode != 0 or counted is None:
        print(f"{name}: ended with {done.returncode}\n{done.stderr[-3000:]}", file=sys.stderr)
        return None
    frames = FRAMES.findall(done.stderr)
    return {
        "target": name,
        "executions": int(counted[1]),
        **({"frames": int(frames[-1])} if frames else {}),
        "seconds": seconds,
        "commit": commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def write_page(runs: list[dict[str, Any]]) -> None:
    """The sums as a table."""
    counts, seconds = sums(runs), seconds_of(runs)
    newest = {run["target"]: f"{run['commit']}, {run['date']}" for run in runs}
    total = sum(counts.values())
    lines = [
        "# Fuzzing",
        "",
        "Executions of each fuzz target so far: programs that read what they were not written for, with random bytes that libFuzzer "
        "changes towards new code. Written by `make fuzz-long`, which adds to them.",
        "",
        f"All together: {total:,} of {GOAL:,}. Frames of a modem's log: {frames_of(runs):,} of {GOAL_MODEM:,}. Inputs that take over {TIMEOUT_S} s or {RSS_MB} MB are defects as well.",
        "",
        "| target | executions | s | newest commit and date |",
        "|---|---|---|---|",
        *(
            f"| {name} | {counts[name]:,} | {seconds[name]} | {newest.get(name, 'never run')} |"
            for name in sorted(counts)
        ),
    ]
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="only these")
    parser.add_argument("--seconds", type=int, default=120, help="of each run")
    parser.add_argument(
        "--runs",
        type=int,
        default=0,
        help="so many runs at most; otherwise until the goal is reached",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    args = parser.parse_args()
    if unknown := sorted(set(args.targets) - set(targets())):
        parser.error(f"no target: {', '.join(unknown)}")
    folder, left = build(), args.runs or sys.maxsize
    with ThreadPoolExecutor(args.jobs) as pool:
        while left > 0:
            runs = stored()
            counts, took_s = sums(runs), seconds_of(runs)
            if sum(counts.values()) < GOAL:
                wanted = args.targets or list(counts)
            elif frames_of(runs) < GOAL_MODEM:
                wanted = [MODEM]
            else:
                break
            chosen = sorted(wanted, key=lambda name: took_s[name])[: min(args.jobs, left)]
            left -= len(chosen)
            results = list(pool.map(lambda name: fuzz(folder / name, args.seconds), chosen))
            with STORE.open("a") as file:
                for result in results:
                    if result is not None:
                        file.write(json.dumps(result) + "\n")
            write_page(stored())
            total = sum(sums(stored()).values())
            print(f"{total:,} of {GOAL:,}: {', '.join(chosen)}", flush=True)
            if None in results:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
