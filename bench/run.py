"""The benchmark: `python3 bench/run.py` builds, generates, measures, prints the table and writes `bench/RESULTS.md`.

signal: capture files that `make_captures.c` makes, always the same bytes
model:  every tool runs on the same file in the same minutes, rounds interleaved, medians; `measure.c` takes wall time,
        CPU time and the largest resident set of each process
action: ratios: what tcptrace and tshark take over what unbloat takes, and what unbloat takes over the bare C loop

unbloat is measured twice: the whole process, Python's start included, and the native call alone, timed inside it.
tshark runs once per file, it takes minutes; with `--quick` it and everything else see a tenth of the files, and
nothing is scaled up. Run it with the Python that has unbloat installed.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.results import RESULTS, machine  # noqa: E402

SHAPES = {
    "many": "4,494,000 packets, 20,009 connections, snap length 128",
    "full": "1,114,000 full packets, 5 connections",
    "single": "1,000,000 packets, 1 connection, snap length 128",
    "oneside60": "60,000 packets, one direction of one connection",
    "oneside120": "120,000 packets, one direction of one connection",
    "oneside200": "200,000 packets, one direction of one connection",
    "many10": "449,400 packets, 2,009 connections, snap length 128",
    "full10": "111,400 full packets, 5 connections",
}
# The native pass alone: its own clock, and the process's peak before and after, so that the interpreter's share shows.
CALL = """
import json, resource, sys, time
from unbloat import _native
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = rss()
begin, cpu = time.perf_counter(), time.process_time()
result = _native.analyze(sys.argv[1:])
took, cpu = time.perf_counter() - begin, time.process_time() - cpu
json.dump({"wall": took, "cpu": cpu, "before": before, "after": rss(), "packets": result["run"]["packets"]}, sys.stdout)
"""
# Fields that a person would ask tshark for to get figures like ours.
FIELDS = (
    "frame.time_epoch ip.src ip.dst tcp.srcport tcp.dstport tcp.len tcp.analysis.ack_rtt tcp.analysis.bytes_in_flight "
    "tcp.analysis.retransmission tcp.analysis.out_of_order tcp.analysis.window_full tcp.analysis.zero_window tcp.window_size"
)


@dataclass(frozen=True)
class Cost:
    """What one run of one program cost."""

    wall: float  # seconds
    cpu: float  # seconds
    rss: float  # MB, 10⁶ bytes


def build(into: Path) -> None:
    """Compile the three small programs."""
    for name in ("make_captures", "floor", "measure"):
        command = [
            "gcc",
            "-O2",
            "-Wall",
            "-Wextra",
            "-o",
            str(into / name),
            str(HERE / f"{name}.c"),
            "-lm",
        ]
        subprocess.run(command, check=True)


def generate(shape: str, data: Path, tools: Path) -> Path:
    """The capture file of a shape; made again when the generator is younger."""
    path = data / f"{shape}.pcap"
    if not path.exists() or path.stat().st_mtime < (HERE / "make_captures.c").stat().st_mtime:
        subprocess.run([str(tools / "make_captures"), shape, str(path)], check=True)
    return path


def measure(tools: Path, command: Sequence[str]) -> tuple[Cost, str]:
    """Run a command to its end; its cost and what it printed."""
    with tempfile.NamedTemporaryFile("r") as result:
        done = subprocess.run(
            [str(tools / "measure"), result.name, *command],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            raise SystemExit(
                f"{' '.join(command[:3])} … ended with {done.returncode}: {done.stderr[-500:]}"
            )
        wall, cpu, kib = result.read().split()
    return Cost(float(wall), float(cpu), int(kib) * 1.024e-3), done.stdout


def commands(tools: Path) -> dict[str, list[str]]:
    """What is run on a file, by name; the file's path goes at the end."""
    known = {
        "floor (bare C loop)": [str(tools / "floor")],
        "unbloat, native call": [sys.executable, "-c", CALL],
    }
    known["unbloat analyze, whole process"] = [sys.executable, "-m", "unbloat", "analyze"]
    if shutil.which("tcptrace"):
        known["tcptrace -nlrW"] = ["tcptrace", "-nlrW"]
    if shutil.which("tshark"):
        fields = [word for name in FIELDS.split() for word in ("-e", name)]
        known["tshark -T fields"] = [
            "tshark",
            "-n",
            "-o",
            "tcp.desegment_tcp_streams:FALSE",
            "-T",
            "fields",
            *fields,
            "-r",
        ]
    return known


def rounds(
    files: dict[str, Path], tools: Path, count: int, slow: set[str]
) -> dict[tuple[str, str], list[Cost]]:
    """Every tool on every file, `count` times, interleaved. tshark once, and only on the files in `slow`."""
    costs: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    for n in range(count):
        for shape, path in files.items():
            for name, command in commands(tools).items():
                if name.startswith("tshark") and (n > 0 or shape not in slow):
                    continue
                cost, text = measure(tools, [*command, str(path)])
                if name == "unbloat, native call":
                    inside = json.loads(text)
                    asked = int(SHAPES[shape].split()[0].replace(",", ""))
                    if inside["packets"] != asked:
                        raise SystemExit(
                            f"{shape}: unbloat read {inside['packets']} of {asked} packets"
                        )
                    cost = Cost(inside["wall"], inside["cpu"], inside["after"] * 1.024e-3)
                costs[shape, name].append(cost)
                print(
                    f"{n + 1}/{count} {shape:11} {name:32} {cost.wall:8.2f} s {cost.rss:7.0f} MB",
                    file=sys.stderr,
                    flush=True,
                )
    return costs


def middle(costs: Sequence[Cost]) -> Cost:
    """Medians; of the resident set the largest."""
    return Cost(
        statistics.median(c.wall for c in costs),
        statistics.median(c.cpu for c in costs),
        max(c.rss for c in costs),
    )


def table(costs: dict[tuple[str, str], list[Cost]]) -> list[str]:
    """One line per file and tool, with the ratio to unbloat's native call."""
    lines = [
        "| file | tool | wall s | CPU s | max RSS MB | times the native call |",
        "|---|---|---|---|---|---|",
    ]
    for (shape, name), several in costs.items():
        cost, own = middle(several), middle(costs[shape, "unbloat, native call"])
        lines.append(
            f"| {shape} | {name} | {cost.wall:.3f} | {cost.cpu:.3f} | {cost.rss:.0f} | {cost.wall / own.wall:.2f} |"
        )
    return lines


def report(files: dict[str, Path], tools: Path, count: int) -> list[str]:
    """The whole way from a capture to a written page."""
    lines = []
    for shape in ("single", "many10", "many"):
        if shape not in files:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            page = Path(scratch) / "report.html"
            command = [
                sys.executable,
                "-m",
                "unbloat",
                "analyze",
                str(files[shape]),
                "--report",
                str(page),
            ]
            cost = middle([measure(tools, command)[0] for _ in range(count)])
            size = page.stat().st_size
        lines.append(
            f"| {shape} | {cost.wall:.2f} | {cost.cpu:.2f} | {cost.rss:.0f} | {size / 1e6:.1f} |"
        )
    return ["| file | wall s | CPU s | max RSS MB | page MB |", "|---|---|---|---|---|", *lines]


def goals(costs: dict[tuple[str, str], list[Cost]]) -> list[str]:
    """The promises, and what was measured."""

    def wall(shape: str, name: str) -> float | None:
        return middle(costs[shape, name]).wall if (shape, name) in costs else None

    lines = ["| promise | file | measured | kept |", "|---|---|---|---|"]
    for shape in dict.fromkeys(shape for shape, _ in costs):
        own = wall(shape, "unbloat, native call")
        if own is None or shape.startswith("oneside") or shape == "single":
            continue
        for text, other, least in (
            ("4 × faster than tcptrace", "tcptrace -nlrW", 4),
            ("100 × faster than tshark", "tshark -T fields", 100),
        ):
            if (theirs := wall(shape, other)) is not None:
                lines.append(
                    f"| {text} | {shape} | {theirs / own:.1f} × | {'yes' if theirs / own >= least else 'no'} |"
                )
        if floor := wall(shape, "floor (bare C loop)"):
            lines.append(
                f"| aim: 2.5 × the bare C loop | {shape} | {own / floor:.1f} × | {'yes' if own / floor <= 2.5 else 'no'} |"
            )
        rss = middle(costs[shape, "unbloat, native call"]).rss
        lines.append(
            f"| less than 100 MB resident | {shape} | {rss:.0f} MB | {'yes' if rss < 100 else 'no'} |"
        )
    small, large = (
        wall("oneside60", "unbloat, native call"),
        wall("oneside200", "unbloat, native call"),
    )
    if small and large:
        # 200/60 packets; twice that would be a curve, not noise
        kept = large / small < 2 * 200 / 60
        lines.append(
            f"| linear on one-sided captures (3.3 × the packets) | oneside | {large / small:.1f} × the time | {'yes' if kept else 'no'} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the two large files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--data", type=Path, default=HERE / "data", help="where the capture files are made"
    )
    parser.add_argument("--no-tshark", action="store_true", help="leave tshark out")
    parser.add_argument("--generate", action="store_true", help="only make the capture files")
    args = parser.parse_args()
    shapes = ["many10", "full10"] if args.quick else ["many", "full"]
    slow = set() if args.no_tshark else set(shapes)
    shapes += ["single", "oneside60", "oneside120", "oneside200"]
    where = machine(f", Python {platform.python_version()}")
    args.data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tools = Path(scratch)
        build(tools)
        files = {shape: generate(shape, args.data, tools) for shape in shapes}
        if args.generate:
            return
        # the report first: when it cannot be written, that shows before the long part
        pages = report(files, tools, min(args.rounds, 3))
        costs = rounds(files, tools, args.rounds, slow)
    text = [
        "# Benchmark results",
        "",
        "Made by `python3 bench/run.py" + (" --quick" if args.quick else "") + "`; ",
        where + ".",
        "",
    ]
    text += [
        f"- `{shape}`: {SHAPES[shape]}, {path.stat().st_size / 1e6:,.0f} MB"
        for shape, path in files.items()
    ]
    text += [
        "",
        f"Medians of {args.rounds} interleaved rounds (tshark: one); resident set: the largest.",
        "",
        *goals(costs),
        "",
    ]
    text += [
        *table(costs),
        "",
        "`unbloat analyze FILE --report page.html`, whole process:",
        "",
        *pages,
        "",
    ]
    print("\n".join(text))
    if not args.quick:
        # Sections with a heading of their own belong to the other benchmarks.
        _, heading, others = (
            RESULTS.read_text().partition("\n## ") if RESULTS.exists() else ("", "", "")
        )
        RESULTS.write_text("\n".join(text) + heading + others)


if __name__ == "__main__":
    main()
