"""What a prediction costs: `python3 bench/what_if/run.py` measures, prints the table and writes its section.

signal: simulated uploads by CUBIC over a link with a full buffer, of several lengths · model: `unbloat what-if` with forty draws and all
cures, and `unbloat analyze` of the same capture, rounds interleaved, medians; `measure.c` takes time and memory · action: a section of
`bench/RESULTS.md`: seconds, as a multiple of the analysis and of the transfer's own duration, and seconds per million packets

Run it with the Python that has unbloat installed, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench.results import machine, put_section  # noqa: E402
from bench.run import Cost, measure  # noqa: E402

import unbloat  # noqa: E402
from unbloat.link.fit import DRAWS  # noqa: E402
from unbloat.prediction.cures import for_way  # noqa: E402

TITLE = "## What-if"
UNBLOAT = [sys.executable, "-m", "unbloat"]
# Of the second case, which is the one that is promised.
GOAL_S = 60.0
SCENARIO = """
name = "bench"
duration = "{seconds} s"
[link.up]
rate = "{mbps} Mbit/s"
delay = "25 ms"
queue = {{ kind = "droptail", limit = "500 KB" }}
[link.down]
rate = "200 Mbit/s"
delay = "25 ms"
[[flow]]
name = "upload"
from = "client"
to = "server"
"""


@dataclass(frozen=True)
class Case:
    """A transfer."""

    mbps: int
    seconds: int
    goal: bool = False

    def __str__(self) -> str:
        return f"{self.mbps} Mbit/s, {self.seconds} s"


CASES = (Case(4, 30), Case(10, 60, goal=True), Case(50, 60))
QUICK = (Case(4, 15),)


def capture(case: Case, folder: Path) -> tuple[Path, int]:
    """The capture of the sender, and its packets."""
    path = folder / "link.toml"
    path.write_text(SCENARIO.format(mbps=case.mbps, seconds=case.seconds))
    unbloat.simulate(path, pcap=folder / str(case))
    found = next((folder / str(case)).rglob("client.pcapng"))
    return found, int(unbloat.analyze(found).info["packets"])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a short one; nothing is written")
    given = parser.parse_args()
    where = machine()
    lines = [
        f"`unbloat what-if` with {DRAWS} draws and {len(for_way('up'))} cures, on a capture of an upload by CUBIC, beside `unbloat analyze` of it. Medians of {given.rounds} rounds.",
        "",
        "| transfer | packets | what-if, s | analyze, s | ratio | share of the transfer's time | s per million packets | memory, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            ["gcc", "-O2", "-o", str(folder / "measure"), str(HERE.parent / "measure.c")],
            check=True,
        )
        for case in QUICK if given.quick else CASES:
            file, packets = capture(case, folder)
            costs: dict[str, list[Cost]] = {"what-if": [], "analyze": []}
            for _ in range(1 if given.quick else given.rounds):
                for command, own in costs.items():
                    own.append(measure(folder, [*UNBLOAT, command, str(file), "--json"])[0])
            took_s, analyze_s = (
                statistics.median(cost.wall for cost in own) for own in costs.values()
            )
            memory_mb = statistics.median(cost.rss for cost in costs["what-if"])
            goal = ""
            if case.goal:
                goal = f" (goal {GOAL_S:.0f}: {'reached' if took_s <= GOAL_S else 'missed'})"
            cells = [
                str(case),
                f"{packets:,}",
                f"{took_s:.1f}{goal}",
                f"{analyze_s:.2f}",
                f"{took_s / analyze_s:.0f}",
                f"{100 * took_s / case.seconds:.0f} %",
                f"{took_s / packets * 1e6:.0f}",
                f"{memory_mb:.0f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    lines += ["", where]
    if not given.quick:
        put_section(TITLE, lines)


if __name__ == "__main__":
    main()
