"""The agent on other kernels: `make kernels`, or `python3 tests/kernels/run.py [FAMILY …]`.

signal: the newest cloud kernel of each family of Debian's archive · model: guests in QEMU without hardware
virtualization, whose clock counts instructions, so that the load of the host changes nothing · action: the agent's
features, its conformance tests, transfers with and without a cure, `off`, and kill -9; a line per kernel, case and run

Nothing is installed on the host; packages and images lie in target/kernels. It writes docs/generated/kernels.jsonl,
and the page kernels.md beside it (`table.py`). What has a line of the present agent is not run again, unless
`--again` says so.

`./check` runs less: tests/kernels/test_guests.py.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path
from typing import Any

import archive
import conformance
import machine
import prepare
import table
from table import CASES, LINES, RUNS, Line

ROOT = Path(__file__).resolve().parents[2]
# Cases of one guest, in this order.
GROUPS = (
    ("features", "conformance"),
    ("conformance-acks",),
    ("download", "download-cured"),
    ("download-existing",),
    ("upload", "upload-acks", "upload-gate"),
    ("congestion-new", "congestion"),
    ("hand-over", "without-types"),
    ("killed-agent", "killed-both"),
)
# What runs `table.RUNS` times, on which kernel.
REPEATED = {
    "6.12": ("download", "download-cured", "upload", "upload-acks", "upload-gate"),
}
# Of a case that its guest did not end.
NO_RESULT = "no result"
# What the host needs for it.
PROGRAMS = (
    *("qemu-system-x86_64", "busybox", "cpio", "unxz", "apt-get", "dpkg-deb"),
    *("iperf3", "tc", "ss", "ping", "nsenter", "cargo", "strip"),
)
PACKAGES = "qemu-system-x86 busybox-static cpio xz-utils iperf3 iproute2 iputils-ping binutils"
# Of real time, for a case; its clock does not see how long it takes.
LIMIT_S = 1800.0
# A guest that is slow is no worse, but it should end.
NICENESS = 10


def main() -> int:
    options = arguments()
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        print(f"missing: {', '.join(missing)}; apt install {PACKAGES}", file=sys.stderr)
        return 2
    wanted = options.families or list(archive.FAMILIES)
    agent = options.agent or ROOT / ".venv/bin/unbloat-agent"
    commit = agent_commit()
    lines = read(options.out)
    done = {key(line) for line in lines if line["commit"] == commit and not unfinished(line)}
    tests = (
        conformance.compiled(prepare.CACHE / "tests") if "conformance" in options.cases else None
    )
    with ThreadPoolExecutor(options.at_a_time) as threads:
        running = []
        for family in wanted:
            todo = [
                (number, cases)
                for number, cases in guests(family, options.cases)
                if options.again or any((family, number, case) not in done for case in cases)
            ]
            if not todo:
                print(f"{family}: has results of {commit}", file=sys.stderr)
                continue
            try:
                guest = prepare.guest(family, agent, programs=tests.programs if tests else ())
            except archive.Unavailable as why:
                print(f"{family}: skipped: {why}", file=sys.stderr)
                continue
            running += [threads.submit(run, family, guest, number, cases) for number, cases in todo]
        for future in as_completed(running):
            found = [
                line | {"commit": commit, "date": date.today().isoformat()}
                for line in future.result()
            ]
            new = {key(line) for line in found}
            lines = [line for line in lines if key(line) not in new] + found
            write(lines, options.out)
    return int(any("failed" in line["result"] for line in lines if line["family"] in wanted))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(archive.FAMILIES))
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--agent", type=Path, help="instead of that in .venv")
    parser.add_argument("--again", action="store_true", help="also what has results already")
    parser.add_argument("--out", type=Path, default=LINES, help="instead of docs/generated")
    parser.add_argument("--at-a-time", type=int, default=max(1, os.cpu_count() or 2))
    return parser.parse_args()


def agent_commit() -> str:
    """The last commit that changed the agent."""
    command = ["git", "log", "-1", "--format=%h", "--", "crates/agent", "crates/settings"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def guests(family: str, cases: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Numbers of runs, and the cases of one guest."""
    for number in range(1, RUNS + 1):
        for group in GROUPS:
            own = [
                case
                for case in group
                if case in cases and (number == 1 or case in REPEATED.get(family, ()))
            ]
            if own:
                yield number, own


def key(line: Line) -> tuple[str, int, str]:
    return line["family"], line["run"], line["case"]


def unfinished(line: Line) -> bool:
    """Whether the guest ended before the case did. Such a case runs again, one that failed does not."""
    return bool(line["result"].get("failed", "").startswith(NO_RESULT))


def results(ran: machine.Run, cases: list[str]) -> dict[str, dict[str, Any]]:
    """A result per case. One that is missing says why, with the end of the console."""
    missing = {"failed": f"{NO_RESULT}: {ran.why_missing()}", "console": ran.console}
    return {case: ran.cases.get(case, missing) for case in cases}


def run(family: str, guest: prepare.Guest, number: int, cases: list[str]) -> list[Line]:
    """One guest: a line per case. The run's number is the seed of its random numbers."""
    release = guest.kernel.release
    lines = []
    ran = guest.run(cases, seed=number, limit_s=LIMIT_S, boot_limit_s=LIMIT_S, niceness=NICENESS)
    for case, result in results(ran, cases).items():
        if "failed" in result:
            print(f"{release}: {case}: {result['failed']}", file=sys.stderr)
        line = {"family": family, "kernel": release, "case": case, "run": number}
        lines.append({**line, "result": result})
    return lines


def read(path: Path = LINES) -> list[Line]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(lines: list[Line], to: Path) -> None:
    order = {family: number for number, family in enumerate(archive.FAMILIES)}
    lines.sort(key=lambda line: (order[line["family"]], CASES.index(line["case"]), line["run"]))
    to.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
    to.with_suffix(".md").write_text(table.page(lines))


if __name__ == "__main__":
    sys.exit(main())
