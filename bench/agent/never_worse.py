"""Does the agent with its defaults cost anything? `make never-worse`, or `python3 bench/agent/never_worse.py [--pairs N] [PATH …]`.

signal: completion times of files, on many paths (`paths.py`), without the agent and with it (`unbloat-agent serve`, no setting but
        its scope) ·
        model: pairs in alternating order, their number fixed beforehand; the 95 % interval of the mean ratio of a pair (Student's t of
        the logarithms) · action: `docs/generated/never-worse.jsonl`, a line for each pair, and the table `never-worse.md` beside it

Every path is in a guest whose clock counts instructions (`guests.py`), so that the load of the host changes nothing. An interrupted
run goes on where it was: pairs in the file count, unless `--again` measures the chosen paths again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Lock
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "agent")]

from bench.agent import guests  # noqa: E402
from bench.agent.never_worse_page import page  # noqa: E402
from bench.agent.paths import CASES  # noqa: E402

LINES = ROOT / "docs" / "generated" / "never-worse.jsonl"
PAGE = LINES.with_suffix(".md")
Line = dict[str, Any]


def commit() -> str:
    """The commit that is measured, `+` if the tree differs from it by more than results."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)

    changed = git("diff", "--quiet", "HEAD", "--", ".", ":!docs/generated").returncode
    return git("rev-parse", "--short=7", "HEAD").stdout.strip() + "+" * bool(changed)


def measured() -> list[Line]:
    """The pairs in the file."""
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def write(lines: list[Line]) -> None:
    """The pairs in the file, in place of what it has; in the order of the paths."""
    labels = [case.label for case in CASES]
    lines = sorted(lines, key=lambda line: (labels.index(line["path"]), line["pair"]))
    LINES.write_text("".join(json.dumps(line) + "\n" for line in lines))


def measure(todo: dict[int, list[int]], at_a_time: int) -> list[str]:
    """The missing pairs of each path, by its number in `CASES`; each goes to the file as it ends. Returns what failed."""
    of, lock = commit(), Lock()
    guest = guests.booted()
    groups: dict[str, list[int]] = {}
    for index in todo:
        groups.setdefault(guests.same_states(CASES[index]), []).append(index)

    def pairs(index: int, off: Path, on: Path) -> None:
        case = CASES[index]
        for number, without, with_it in guests.pairs(guest, index, case, todo[index], off, on):
            line = {"path": case.label, "pair": number, "date": date.today().isoformat()}
            line |= {"commit": of, "kernel": guest.kernel.release, "off": without, "on": with_it}
            with lock, LINES.open("a") as out:
                out.write(json.dumps(line) + "\n")
            print(f"{case.label}: pair {number} of {case.pairs}", flush=True)

    def group(indices: list[int]) -> str | None:
        try:
            with guests.states(guest, CASES[indices[0]], indices[0]) as (off, on):
                for index in indices:
                    pairs(index, off, on)
        except guests.GuestError as error:
            return f"{CASES[indices[0]].label}: {error}"
        return None

    with ThreadPoolExecutor(at_a_time) as pool:
        return [problem for problem in pool.map(group, groups.values()) if problem]


def main() -> int:
    parser = argparse.ArgumentParser(description="What the agent costs where it does not help.")
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="only paths whose label contains one of these, in this order",
    )
    parser.add_argument("--pairs", type=int, help="pairs of runs on each path (default: by path)")
    parser.add_argument("--again", action="store_true", help="measure these paths again")
    parser.add_argument("--table", action="store_true", help="only write the table")
    parser.add_argument("--at-a-time", type=int, default=1, help="guests at a time")
    args = parser.parse_args()
    LINES.parent.mkdir(parents=True, exist_ok=True)
    numbered = list(enumerate(CASES))
    chosen = [i for text in args.paths or [""] for i, case in numbered if text in case.label]
    if args.again:
        labels = {CASES[index].label for index in chosen}
        write([line for line in measured() if line["path"] not in labels])
    done = {(line["path"], line["pair"]) for line in measured()}
    todo = {
        index: [
            number
            for number in range(args.pairs or CASES[index].pairs)
            if (CASES[index].label, number) not in done
        ]
        for index in dict.fromkeys(chosen)
    }
    todo = {index: numbers for index, numbers in todo.items() if numbers}
    failed = measure(todo, args.at_a_time) if todo and not args.table else []
    write(measured())
    PAGE.write_text(page(measured()))
    print(PAGE.read_text())
    print("\n".join(failed), file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
