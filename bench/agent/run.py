"""The agent's benchmark: `python3 bench/agent/run.py` builds the program, measures, writes its section.

signal: transfers and connections between two namespaces, without the agent and with it · model: interleaved rounds, medians and ranges;
        the machine is shared, so only figures of one run are compared · action: a section of `bench/RESULTS.md`: processors per gigabit,
        microseconds per run of a program, ten thousand connections

It needs root, iperf3 and bpftool, makes namespaces, a cgroup and pins of its own and removes them. `--quick` takes two minutes and
writes nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "lab"), str(ROOT / "tests" / "agent")]

from bench.agent import pages  # noqa: E402
from bench.agent.cases import Case, all_cases  # noqa: E402
from bench.agent.pair import Pair  # noqa: E402
from bench.emu.run import quiet  # noqa: E402
from bench.results import machine, missing, options, put_section  # noqa: E402

NEEDED = ("ip", "iperf3", "ss", "bpftool", "nsenter")


def build() -> None:
    """The program. `UNBLOAT_AGENT` names one that is built already."""
    if "UNBLOAT_AGENT" in os.environ:
        return
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "-p", "unbloat-agent"], check=True, cwd=ROOT
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    os.environ["UNBLOAT_AGENT"] = str(target / "release" / "unbloat-agent")


def rounds(cases: list[Case], count: int, wait_s: float) -> pages.Results:
    """Every case, `count` times, interleaved."""
    results: pages.Results = defaultdict(list)
    for n in range(count):
        for case in cases:
            _, wait_s = quiet(wait_s)
            try:
                figures = perform(case)
            except KeyboardInterrupt:
                print("interrupted: what was measured follows", flush=True)
                return results
            results[case].append(figures)
            text = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
            print(f"{n + 1}/{count} {case.group}: {case.label}: {text}", flush=True)
    return results


def perform(case: Case) -> dict[str, float]:
    """One run, in a testbed of its own."""
    with tempfile.TemporaryDirectory() as scratch, Pair(Path(scratch)) as testbed:
        settings = case.settings and tuple(text.format(folder=scratch) for text in case.settings)
        return case.measure(replace(case, settings=settings), testbed)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--group", action="append", help="only groups that begin so; nothing is written"
    )
    args = parser.parse_args()
    if reason := missing("network namespaces and BPF", NEEDED):
        raise SystemExit(reason)
    where, begin, count = machine(), time.monotonic(), 1 if args.quick else args.rounds
    build()
    wanted = tuple(args.group or ("",))
    cases = [case for case in all_cases(args.quick) if case.group.startswith(wanted)]
    results = rounds(cases, count, args.wait)
    took = (time.monotonic() - begin) / 60
    text = pages.section(results, f"{where}. Interleaved rounds: {count}; {took:.0f} minutes.")
    print("\n".join(text))
    if args.out:
        args.out.write_text("\n".join(text) + "\n")
    if not (args.quick or args.group):
        put_section(pages.TITLE, text)


if __name__ == "__main__":
    main()
