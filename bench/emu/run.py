"""The emulator's benchmark: `python3 bench/emu/run.py` builds the programs, measures, writes its section.

signal: UDP and TCP through `floor.c`, `unbloat-emu`, and mahimahi and rattan where they are on the PATH; packets counted
        at both ends, by the emulator's log and by the kernel
model:  interleaved rounds, medians and ranges; the machine is shared, so only figures of one run are compared
action: a section of `bench/RESULTS.md`: rates, delays, speed beside the floor, traces, many queues, memory, and where
        each packet was lost

It needs root and iperf3, makes network namespaces of its own and removes them. `--quick` takes less than a minute and
writes nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "lab"), str(ROOT / "tests" / "agent")]

import udp_load  # noqa: E402
from bench.emu import pages  # noqa: E402
from bench.emu.cases import Case, Outcome, all_cases  # noqa: E402
from bench.emu.costs import busy  # noqa: E402
from bench.emu.paths import Maker, makers  # noqa: E402
from bench.results import machine, missing, options, put_section  # noqa: E402
from emulated_path import Tools  # noqa: E402

HERE = Path(__file__).resolve().parent
NEEDED = ("ip", "gcc", "iperf3", "ss")
# Share of the processors that others may use.
QUIET = 0.1


def build(into: Path, emulator: bool = True) -> Tools:
    """Compiles the programs. `UNBLOAT_EMU` names an emulator that is built already."""
    floor, udp = (
        udp_load.compiled(path, into) for path in (HERE / "floor.c", udp_load.HERE / "udp.c")
    )
    own = None
    if emulator and "UNBLOAT_EMU" in os.environ:
        own = Path(os.environ["UNBLOAT_EMU"])
    elif emulator:
        cargo = ["cargo", "build", "--release", "--quiet", "-p", "unbloat-emu"]
        subprocess.run(cargo, check=True, cwd=ROOT)
        own = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "unbloat-emu"
    if own is not None:
        os.environ["UNBLOAT_EMU"] = str(own)
    return Tools(floor, udp, own)


def perform(case: Case, name: str, maker: Maker, tools: Tools) -> Outcome:
    """One run of a case on a path, and who lost what."""
    with maker(tools, case.setting) as path:
        outcome = case.measure(path, tools)
    figures = outcome.figures
    figures["named"] = sum(path.named.values())
    figures["kernel"] = sum(path.kernel.values())
    if "sent" in figures:
        counts = (int(figures[name]) for name in ("sent", "received", "socket"))
        figures["unnamed"] = path.unnamed(*counts)
    for quantile, us in path.summary.get("lateness_us", {}).items():
        if us is not None:
            figures[f"own late {quantile}"] = us / 1000
    for reason, n in path.kernel.items():
        figures[f"kernel: {reason}"] = n
    return outcome


def rounds(
    cases: Sequence[Case], paths: dict[str, Maker], tools: Tools, count: int, wait_s: float
) -> pages.Results:
    """Every case on every path, `count` times, interleaved. Waits for a quiet machine, `wait_s`
    seconds in all."""
    results: pages.Results = defaultdict(list)
    for n, case, name in order(cases, list(paths), count):
        try:
            before, wait_s = quiet(wait_s)
            outcome = perform(case, name, case.make or paths[name], tools)
        except KeyboardInterrupt:
            print("interrupted: what was measured follows", flush=True)
            break
        except (RuntimeError, OSError, ValueError) as error:
            # Another emulator may fail where ours must not; the page says so.
            outcome = Outcome({"failed": 1.0})
            print(f"{name} failed: {error}", flush=True)
        outcome.figures["busy"] = max(before, busy())
        results[case, name].append(outcome)
        print(f"{n + 1}/{count} {case.group}: {case.label}: {name}: {brief(outcome)}", flush=True)
    return results


def order(
    cases: Sequence[Case], paths: Sequence[str], count: int
) -> Iterator[tuple[int, Case, str]]:
    """Round by round, the paths of a case one after the other."""
    for n in range(count):
        for case in cases:
            if not case.rounds or n < case.rounds:
                yield from ((n, case, name) for name in paths if not case.only or name in case.only)


def quiet(wait_s: float) -> tuple[float, float]:
    """Waits until other processes use little of the processors; their share, and the seconds
    left."""
    while (share := busy()) > QUIET and wait_s > 0:
        time.sleep(2)
        wait_s -= 2.4
    return share, wait_s


def brief(outcome: Outcome) -> str:
    """The figures of a run in a line."""
    return ", ".join(
        f"{name} {value:,.4g}"
        for name, value in outcome.figures.items()
        if value or name in ("unnamed",)
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--floor-only", action="store_true", help="leave unbloat-emu out; nothing is written"
    )
    parser.add_argument(
        "--group", action="append", help="only this group of cases; nothing is written"
    )
    args = parser.parse_args()
    if reason := missing("network namespaces and TUN devices are made", NEEDED):
        raise SystemExit(reason)
    where, begin, count = machine(), time.monotonic(), 1 if args.quick else args.rounds
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)  # mahimahi is started by another user
        tools = build(Path(scratch), not args.floor_only)
        cases = [
            c
            for c in all_cases(args.quick, Path(scratch))
            if not args.group or c.group in args.group
        ]
        results = rounds(cases, makers(tools), tools, count, args.wait)
    took = (time.monotonic() - begin) / 60
    text = pages.section(results, f"{where}. Interleaved rounds: {count}; {took:.0f} minutes.")
    print("\n".join(text))
    if args.out:
        args.out.write_text("\n".join(text) + "\n")
    if not (args.quick or args.floor_only or args.group):
        put_section(pages.TITLE, text)


if __name__ == "__main__":
    main()
