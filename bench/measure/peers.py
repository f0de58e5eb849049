"""`make measure-peers`: measuring programs side by side on five emulated links, each beside the emulator's own log of its queues.

Each runs once on each link with its own defaults. What one says of the delay under load is compared with the same statistic of the
true waits, over the time in which it loaded the path. A program that is not on the PATH is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

from evidence import STEADY
from loaded_path import phases, round_trips_ms, statistic, waits_ms
from path import GRID_S, MeasuredPath, Queue, read_log
from peer_tools import RTT_MS, TOOLS, Figure, Tool
from peers_page import Case, page, rows

from unbloat.front.lab import commit

# A machine that stands still for a moment delays packets before the emulator has them, which its log does not show.
LATEST_US = 50_000


def truths(
    tool: Tool, queues: dict[str, Queue], figures: list[Figure], zero_unix_s: float
) -> list[dict[str, Any]]:
    """Of each figure the same statistic of the true waits, over the time of the load and over that which the program names."""
    ways = {way: waits_ms(queue, tool.probe_bytes) for way, queue in queues.items()}
    waits = ways | {"rtt": round_trips_ms(ways["up"], ways["down"], RTT_MS / 2)}
    times = phases(queues, tool.phases)
    found = []
    for figure in figures:
        own = figure.times and (figure.times[0] - zero_unix_s, figure.times[1] - zero_unix_s)
        truth = {}
        for name, span in (("true_ms", times.get(figure.phase)), ("own_true_ms", own)):
            begin, end = (round(at / GRID_S) for at in span or (0, 0))
            inside = waits[figure.of][begin:end]
            truth[name] = shown(statistic(figure.statistic, inside)) if inside else None
        found.append(truth)
    return found


def measured(name: str, tool: Tool) -> Case:
    """One run."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasuredPath(Path(folder), *STEADY[name], duration_s=3 * tool.max_s) as made,
    ):
        tool.serve(made)
        begun = time.monotonic()
        client = made.start("client", *tool.words(made), cwd=folder)
        try:
            out, errors = client.communicate(timeout=tool.max_s)
            ended = True
        except subprocess.TimeoutExpired:
            client.kill()
            out, errors = client.communicate()
            ended = False
        seconds = time.monotonic() - begun
        late_us = made.summary()["lateness_us"]
        queues = {
            way: read_log(made.out / f"{way}.decisions", link) for way, link in made.links.items()
        }
    figures = tool.figures(out) if ended else []
    pairs = zip(figures, truths(tool, queues, figures, made.zero_unix_s), strict=True)
    return {
        "path": name,
        "tool": tool.name,
        "ended": ended,
        "code": client.returncode,
        "said": "" if tool.name.startswith("unbloat") else (out + errors)[-4000:],
        "seconds": round(seconds, 1),
        "bytes": sum(queue.size[n] for queue in queues.values() for n in queue.started),
        "late_us": late_us,
        "figures": [vars(figure) | truth for figure, truth in pairs],
        "version": tool.printed_version(),
    }


def shown(truth: float | None) -> float | str | None:
    """JSON has no infinity."""
    return "lost" if truth == math.inf else truth and round(truth, 1)


def read(store: Path) -> list[Case]:
    """In the order of the page."""
    text = store.read_text() if store.exists() else ""
    cases: list[Case] = [json.loads(line) for line in text.splitlines()]
    names, tools = list(STEADY), [tool.name for tool in TOOLS]
    return sorted(cases, key=lambda case: (names.index(case["path"]), tools.index(case["tool"])))


def main() -> None:
    """Runs what the store lacks, and writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="paths whose name contains this")
    parser.add_argument("--tool", default="", help="programs whose name contains this")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--page", type=Path, required=True)
    given = parser.parse_args()
    done = {(case["path"], case["tool"]) for case in read(given.store)}
    # Of what was imported: a later change of the tree is not what runs.
    origin = f"{commit()}, {date.today().isoformat()}"
    for tool in TOOLS:
        if missing := tool.missing():
            print(f"{tool.name} is left out: {', '.join(missing)} is not on the PATH")
            continue
        for name in STEADY:
            if given.only in name and given.tool in tool.name and (name, tool.name) not in done:
                case = measured(name, tool) | {"origin": origin}
                if case["late_us"]["max"] > LATEST_US:
                    print(
                        f"| {name} | {tool.name} | the emulator was late: not kept, run it again |"
                    )
                    continue
                with given.store.open("a") as store:
                    store.write(f"{json.dumps(case)}\n")
                print("\n".join(rows(case)), flush=True)
    given.page.write_text(page(read(given.store)))


if __name__ == "__main__":
    main()
