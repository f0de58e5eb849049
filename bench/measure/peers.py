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

from evidence import WIDE
from loaded_path import phases, round_trips_ms, statistic, waits_ms
from path import GRID_S, Link, MeasuredPath, Queue, near, read_log
from peer_tools import RTT_MS, TOOLS, Figure, Tool

from unbloat.front.lab import commit

Case = dict[str, Any]
# Those of measure.md that stay as they are and need no trace.
LINKS = {
    "deep buffers, 8 up, 20 down": (Link(8, 300), Link(20, 600)),
    "uplink only, FQ-CoDel down": (Link(5, 400), WIDE),
    "downlink only, FQ-CoDel up": (WIDE, Link(20, 900)),
    "FQ-CoDel both ways": (WIDE, WIDE),
    "100:1": (Link(1, 60), Link(100, 1500)),
}
HEAD = f"""# unbloat measure beside other programs

Made by `make measure-peers` in network namespaces behind `unbloat-emu`: each program once on each of five links, with its own defaults. The links are those of
[measure.md](measure.md) that need no trace. Without a load the round trip is {RTT_MS} ms on each.

- *it says*: its own figure of the delay under load, in its own words. *statistic*: what that figure is.
- *added*: that figure as added delay, so a round trip less {RTT_MS} ms. *truth*: the same statistic of what a small packet waited by the emulator's decision log, in the same direction or both.
  It is of the time in which the program loaded the path: from the first to the last quarter of a second with full packets.
- *within*: the difference is at most 5 ms or 10 % of the truth.
- *s*: from its start to its end. *MB*: IP bytes over both links in that time.
- Of `p95` a lost packet is an infinite wait, as it is for `unbloat measure`. Other statistics leave lost packets out, as the programs do.
- *down*, *up* and *both* are the loads. Of `unbloat measure` the figure of *down* and *up* is of one direction. All other figures are of round trips.

| path, Mbit/s | program | load | statistic | it says | added, ms | truth, ms | error | within | s | MB |
|---|---|---|---|---|---|---|---|---|---|---|
"""
NOTES = """
One run says little of how much a program's figures vary from run to run.

## Within, of all figures

| program | within | no figure | seconds, sum | MB, sum |
|---|---|---|---|---|
"""
FIGURES = """
## What each figure is, and what it does not say

"""


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
        MeasuredPath(Path(folder), *LINKS[name], duration_s=3 * tool.max_s) as made,
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


def judged(figure: dict[str, Any]) -> bool:
    """Whether it is within the bounds; a figure that is missing is not."""
    lost = figure["added_ms"] is None and "lost" in figure["says"]
    added = math.inf if lost else figure["added_ms"]
    true = math.inf if figure["true_ms"] == "lost" else figure["true_ms"]
    return added is not None and true is not None and near(added, true)


def row(case: Case, figure: dict[str, Any]) -> str:
    """A line of the table."""
    added, true = figure["added_ms"], figure["true_ms"]
    error = "–"
    if isinstance(added, float) and isinstance(true, float):
        part = f" ({100 * (added - true) / true:+.0f} %)" if true >= 1 else ""
        error = f"{added - true:+.1f} ms{part}"
    cells = (
        *(case["path"], case["tool"], figure["phase"], figure["statistic"], figure["says"]),
        *(
            "–" if value is None else f"{value:.1f}" if isinstance(value, float) else value
            for value in (added, true)
        ),
        *(
            error,
            "yes" if judged(figure) else "no",
            f"{case['seconds']:.0f}",
            f"{case['bytes'] / 1e6:.0f}",
        ),
    )
    return f"| {' | '.join(cells)} |"


def rows(case: Case) -> list[str]:
    """Of one run; one line where it has no figure."""
    if case["figures"]:
        return [row(case, figure) for figure in case["figures"]]
    why = "no figure" if case["ended"] else "did not end, and was ended"
    size = f"{case['bytes'] / 1e6:.0f}"
    return [
        f"| {case['path']} | {case['tool']} | – | – | {why} | – | – | – | no | {case['seconds']:.0f} | {size} |"
    ]


def total(tool: Tool, cases: list[Case]) -> str:
    """A line of the table of all figures."""
    figures = [figure for case in cases for figure in case["figures"]]
    none = sum(not case["figures"] for case in cases)
    none += sum(figure["says"] == "no RPM" for figure in figures)
    within = sum(map(judged, figures))
    seconds = sum(case["seconds"] for case in cases)
    size = sum(case["bytes"] for case in cases) / 1e6
    return f"| {tool.name} | {within} of {len(figures)} | {none} | {seconds:.0f} | {size:.0f} |"


def page(cases: list[Case]) -> str:
    """All of it."""
    text = HEAD + "\n".join(line for case in cases for line in rows(case)) + "\n" + NOTES
    of = {tool.name: [case for case in cases if case["tool"] == tool.name] for tool in TOOLS}
    ran = [tool for tool in TOOLS if of[tool.name]]
    text += "\n".join(total(tool, of[tool.name]) for tool in ran) + "\n" + FIGURES
    for tool in ran:
        versions = sorted({case["version"] for case in of[tool.name]} - {""})
        named = f" ({', '.join(versions)})" if versions else ""
        text += f"- **{tool.name}**{named}: {tool.number}\n"
    out = [tool for tool in TOOLS if not of[tool.name]]
    text += "".join(f"- **{tool.name}** is left out: it was not on the PATH.\n" for tool in out)
    origins = sorted({case["origin"] for case in cases})
    return text + f"\nRuns of {'; '.join(origins)}.\n"


def read(store: Path) -> list[Case]:
    """In the order of the page."""
    text = store.read_text() if store.exists() else ""
    cases: list[Case] = [json.loads(line) for line in text.splitlines()]
    names, tools = list(LINKS), [tool.name for tool in TOOLS]
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
        for name in LINKS:
            if given.only in name and given.tool in tool.name and (name, tool.name) not in done:
                case = measured(name, tool) | {"origin": origin}
                with given.store.open("a") as store:
                    store.write(f"{json.dumps(case)}\n")
                print("\n".join(rows(case)), flush=True)
    given.page.write_text(page(read(given.store)))


if __name__ == "__main__":
    main()
