"""The page of `peers.py`."""

from __future__ import annotations

import math
from typing import Any

from path import near
from peer_tools import RTT_MS, TOOLS, Tool

Case = dict[str, Any]
HEAD = f"""# unbloat measure beside other programs

Made by `make measure-peers` in network namespaces behind `unbloat-emu`: each program once on each of five links, with its own defaults. The links are those of
[measure.md](measure.md) that stay as they are and need no trace. Without a load the round trip is {RTT_MS} ms on each.

- *it says*: its own figure of the delay under load. *statistic*: what that figure is.
- *added*: that figure as added delay: of a round trip {RTT_MS} ms less.
- *truth*: the same statistic of what a small packet waited by the emulator's decision log, over the same load. It covers the load from its first to its last full packets, in steps of 0.25 s.
  Behind FQ-CoDel, it is what the program's own probes waited.
- *within*: the difference is at most 5 ms or 10 % of the truth.
- *s*: from its start to its end. *MB*: IP bytes over both links.
- *down*, *up* and *both* are the loads. For *down* and *up*, the figure of `unbloat measure` is of that direction alone. All other figures are of round trips.
- For `p95` a lost packet is an infinite wait, as it is for `unbloat measure`. The other statistics leave out what was lost, as their programs do.
- A run in which the emulator was more than 50 ms late for a packet is not kept: the machine stood still, and the log does not show what waited before it.

| path, Mbit/s | program | load | statistic | it says | added, ms | truth, ms | error | within | s | MB |
|---|---|---|---|---|---|---|---|---|---|---|
"""
TOTALS = """
## All figures

| program | within | runs without a figure | directions without one | seconds, sum | MB, sum |
|---|---|---|---|---|---|
"""
LIMITS = """
One run of each says little of how much its figures vary. `unbloat measure` was written with this emulator, the others were not.

All programs stamp their probes outside the kernel, on a machine whose two processors also run the emulator, the load and other work. What a probe waits for a processor is in
the figure and not in the truth. That is a few ms, and more where programs send or compute much. So a miss of 5 to 20 ms behind FQ-CoDel says little of a program. A largest value, as crusader's, is the most sensitive to it.
"""
OWN = """
## Over the time that unbloat measure judges

Its measurement begins when a load has grown. This is the truth of that time, for the same figures:

| path, Mbit/s | program | load | it says | truth of that time, ms | within |
|---|---|---|---|---|---|
"""
FIGURES = """
## What each figure is, and what it does not say

"""
SOURCES = """
## Where the programs come from

This repository does not fetch them. What is not on the `PATH` is left out.

- flent: from Python's or Debian's packages. It needs `netperf` and `netserver`, which Debian's main archive does not have: built from their source with `./configure --enable-demo`. With a
  server of `irtt` it probes by irtt, otherwise by netperf. It pings with `fping`.
- crusader: built from its source with `cargo build --release -p crusader`.
- iperf2: Debian's package `iperf`, 2.1.8 or later for `--bounceback`.
- goresponsiveness: built from its source with Go, as `networkQuality`.
"""


def judged(figure: dict[str, Any], truth: str = "true_ms") -> bool:
    """Whether it is within the bounds; a figure that is missing is not."""
    lost = figure["added_ms"] is None and "lost" in figure["says"]
    added = math.inf if lost else figure["added_ms"]
    true = math.inf if figure[truth] == "lost" else figure[truth]
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
    code = case["code"]
    why = f"no figure, exit code {code}" if case["ended"] else "did not end, and was ended"
    size = f"{case['bytes'] / 1e6:.0f}"
    return [
        f"| {case['path']} | {case['tool']} | – | – | {why} | – | – | – | no | {case['seconds']:.0f} | {size} |"
    ]


def total(tool: Tool, cases: list[Case]) -> str:
    """A line of the table of all figures."""
    figures = [figure for case in cases for figure in case["figures"]]
    given = [figure for figure in figures if figure["says"] != "no RPM"]
    none = sum(not case["figures"] for case in cases)
    seconds = sum(case["seconds"] for case in cases)
    size = sum(case["bytes"] for case in cases) / 1e6
    return (
        f"| {tool.name} | {sum(map(judged, given))} of {len(given)} | {none} of {len(cases)} | "
        f"{len(figures) - len(given)} | {seconds:.0f} | {size:.0f} |"
    )


def own_rows(cases: list[Case]) -> str:
    """The table of the time that a program names."""
    lines = []
    for case in cases:
        for figure in case["figures"]:
            if (true := figure["own_true_ms"]) is not None:
                cells = (case["path"], case["tool"], figure["phase"], figure["says"], str(true))
                within = "yes" if judged(figure, "own_true_ms") else "no"
                lines.append(f"| {' | '.join(cells)} | {within} |")
    return OWN + "\n".join(lines) + "\n" if lines else ""


def page(cases: list[Case]) -> str:
    """All of it."""
    text = HEAD + "\n".join(line for case in cases for line in rows(case)) + "\n"
    of = {tool.name: [case for case in cases if case["tool"] == tool.name] for tool in TOOLS}
    ran = [tool for tool in TOOLS if of[tool.name]]
    text += TOTALS + "\n".join(total(tool, of[tool.name]) for tool in ran) + "\n" + LIMITS
    text += own_rows(cases) + FIGURES
    for tool in ran:
        versions = sorted({case["version"] for case in of[tool.name]} - {""})
        named = f" ({', '.join(versions)})" if versions else ""
        text += f"- **{tool.name}**{named}: {tool.number}\n"
    out = [tool for tool in TOOLS if not of[tool.name]]
    text += "".join(f"- **{tool.name}** is left out: it was not on the `PATH`.\n" for tool in out)
    origins = sorted({case["origin"] for case in cases})
    return text + SOURCES + f"\nRuns of {'; '.join(origins)}.\n"
