"""Does the agent with its defaults cost anything? `make never-worse`, or `python3 bench/agent/never_worse.py [--pairs N] [PATH …]`.

signal: completion times of files, on many paths (`paths.py`), without the agent and with it (`unbloat-agent serve`, no setting but
        its scope) ·
        model: pairs in alternating order, their number fixed beforehand; the 95 % interval of the mean ratio of a pair (Student's t of
        the logarithms) · action: `docs/generated/never-worse.jsonl`, a line for each pair, and the table `never-worse.md` beside it

An interrupted run goes on where it was: pairs in the file count, unless `--again` measures the chosen paths again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "agent")]

from agent_program import AgentProgram  # noqa: E402
from bench.agent import guests  # noqa: E402
from bench.agent.never_worse_page import page  # noqa: E402
from bench.agent.paths import CASES, File, GuestCase, PathCase  # noqa: E402
from uplink import Uplink  # noqa: E402

from unbloat.lab.instruments import cpu_seconds  # noqa: E402
from unbloat.lab.testbed import Testbed  # noqa: E402

LINES = ROOT / "docs" / "generated" / "never-worse.jsonl"
PAGE = LINES.with_suffix(".md")
TRANSFERS = str(ROOT / "bench" / "agent" / "transfers.py")
Line = dict[str, Any]


def transfer(case: PathCase, testbed: Testbed, file: File) -> float:
    """Seconds of one file."""
    words = (file.way, case.server, str(file.size), str(file.connections), str(file.idle_s))
    return float(testbed.ask(case.client, sys.executable, TRANSFERS, *words))


def play(
    case: PathCase, testbed: Testbed, with_agent: bool, files: tuple[File, ...]
) -> dict[str, float]:
    """The seconds of each file, by its label, and the agent's CPU seconds."""
    scope = f"scope.cgroup={testbed.cgroups[case.agent_on]}"
    agent = AgentProgram(testbed, [scope], case.agent_on)
    took = {}
    with agent, ThreadPoolExecutor(1) as pool:
        daemon = agent.serve() if with_agent else None
        used = 0.0
        for file in files:
            running = pool.submit(transfer, case, testbed, file)
            if daemon and case.upgrade_s:
                time.sleep(case.upgrade_s)
                used += cpu_seconds(daemon.pid)
                daemon = agent.serve("--take-over")
                if running.done():
                    raise RuntimeError(f"{file.label} ended before the upgrade")
            took[file.label] = running.result()
        took["cpu_s"] = used + (cpu_seconds(daemon.pid) if daemon else 0.0)
    return took


def commit() -> str:
    """The commit that is measured, `+` if the tree differs from it by more than results."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)

    changed = git("diff", "--quiet", "HEAD", "--", ".", ":!docs/generated").returncode
    return git("rev-parse", "--short=7", "HEAD").stdout.strip() + "+" * bool(changed)


@contextmanager
def made(case: PathCase, seed: int) -> Iterator[Testbed]:
    """A case's testbed, with a server for transfers."""
    with tempfile.TemporaryDirectory() as folder, case.testbed(Path(folder), seed) as testbed:
        if case.agent_on not in testbed.cgroups:
            testbed.make_cgroup(case.agent_on)
        if case.agent_on == "phone" and isinstance(testbed, Uplink):
            testbed.ip("phone", f"route add default dev {testbed.device}")
        for node in testbed.spaces:
            # What one run learnt of the path must not help the next.
            testbed.sysctl(node, "net.ipv4.tcp_no_metrics_save", "1")
        testbed.start("server", sys.executable, TRANSFERS, "serve")
        testbed.listens("server", 5300)
        yield testbed


def pair(case: PathCase, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """Two runs: with an even number first without the agent, else first with it. `number` is also the seed."""
    order = (False, True) if number % 2 == 0 else (True, False)
    runs: dict[bool, dict[str, float]] = {False: {}, True: {}}
    if not case.seeded:
        with made(case, number) as testbed:
            for with_agent in order:
                runs[with_agent] = play(case, testbed, with_agent, case.files)
        return runs[False], runs[True]
    for file in case.files:
        for with_agent in order:
            with made(case, number) as testbed:
                took = play(case, testbed, with_agent, (file,))
            took["cpu_s"] += runs[with_agent].get("cpu_s", 0.0)
            runs[with_agent] |= took
    return runs[False], runs[True]


def pairs(
    case: PathCase | GuestCase, numbers: list[int]
) -> Iterator[tuple[int, dict[str, float], dict[str, float]]]:
    """The pairs of these numbers: number, run without the agent, run with it."""
    if isinstance(case, GuestCase):
        yield from guests.pairs(case, numbers)
        return
    for number in numbers:
        yield (number, *pair(case, number))


def measured() -> list[Line]:
    """The pairs in the file."""
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def write(lines: list[Line]) -> None:
    """The pairs in the file, in place of what it has."""
    LINES.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main() -> int:
    parser = argparse.ArgumentParser(description="What the agent costs where it does not help.")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="only paths whose label contains one of these"
    )
    parser.add_argument("--pairs", type=int, help="pairs of runs on each path (default: by path)")
    parser.add_argument("--again", action="store_true", help="measure these paths again")
    parser.add_argument("--table", action="store_true", help="only write the table")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root: network namespaces and BPF", file=sys.stderr)
        return 1
    LINES.parent.mkdir(parents=True, exist_ok=True)
    chosen = [c for c in CASES if not args.paths or any(text in c.label for text in args.paths)]
    if args.again:
        labels = {case.label for case in chosen}
        write([line for line in measured() if line["path"] not in labels])
    done = {(line["path"], line["pair"]) for line in measured()}
    of = commit()
    for case in () if args.table else chosen:
        count = args.pairs or case.pairs
        numbers = [number for number in range(count) if (case.label, number) not in done]
        for number, off, on in pairs(case, numbers) if numbers else ():
            line = {"path": case.label, "pair": number, "date": date.today().isoformat()}
            with LINES.open("a") as out:
                out.write(json.dumps({**line, "commit": of, "off": off, "on": on}) + "\n")
            print(f"{number + 1} of {count}: {case.label}", flush=True)
    PAGE.write_text(page(measured()))
    print(PAGE.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
