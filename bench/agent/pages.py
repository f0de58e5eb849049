"""The agent's section of `bench/RESULTS.md`: medians of all rounds, with their ranges."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from bench.agent.cases import TRICKLE, Case, Figures

TITLE = "## Agent"
Results = dict[Case, list[Figures]]


def values(rounds: Sequence[Figures], name: str) -> list[float]:
    """A figure in all rounds that have it."""
    return [one[name] for one in rounds if name in one and not math.isnan(one[name])]


def cell(rounds: Sequence[Figures], name: str, form: str) -> str:
    """Median, and the range where there is one."""
    several = values(rounds, name)
    if not several:
        return "–"
    text = format(statistics.median(several), form)
    low, high = format(min(several), form), format(max(several), form)
    return text if low == high else f"{text} ({low}–{high})"


def table(results: Results, group: str, columns: Sequence[tuple[str, str, str]]) -> list[str]:
    """Rows of one group: heading, figure, format."""
    lines = [
        "| |" + "".join(f" {heading} |" for heading, _, _ in columns),
        "|---" * (len(columns) + 1) + "|",
    ]
    for case, rounds in results.items():
        if case.group == group:
            cells = (cell(rounds, name, form) for _, name, form in columns)
            lines.append(f"| {case.label} |" + "".join(f" {text} |" for text in cells))
    return lines


PER_GIGABIT = (
    ("Gbit/s", "gbit/s", ".2f"),
    ("CPU s per Gbit", "cpu s/gbit", ".3f"),
    ("of iperf3's processes", "process s/gbit", ".3f"),
    ("of BPF", "bpf s/gbit", ".4f"),
    ("µs per run", "us/run", ".2f"),
    ("runs per Gbit", "runs/gbit", ",.0f"),
    ("decisions per s", "decisions/s", ",.0f"),
)
CONNECTIONS = (
    ("connections", "connections", ",.0f"),
    ("MB of the kernel", "kernel MB", ".0f"),
    ("MB of the agent, before", "agent MB empty", ".1f"),
    ("with them", "agent MB", ".1f"),
    ("walk, ms", "walk ms", ".1f"),
    ("`status`, ms", "status ms", ".0f"),
    ("flows in it", "flows", ",.0f"),
    ("silent: CPU %", "silent cpu %", ".1f"),
    ("the agent's %", "silent agent %", ".2f"),
    ("trickle: CPU %", "trickle cpu %", ".1f"),
    ("the agent's %", "trickle agent %", ".2f"),
)


def section(results: Results, where: str) -> list[str]:
    """The whole of it."""
    lines = [
        where,
        "",
        "iperf3 over a pair of devices between two namespaces, both ends on this host. CPU: user, system and soft interrupts of the",
        "whole host from /proc/stat, without what was used before each run. BPF: `run_time_ns` in a transfer of its own.",
    ]
    groups = list(dict.fromkeys(case.group for case in results))
    for group in groups:
        if group == "connections":
            lines += [
                "",
                f"Many connections, silent and with {TRICKLE:,} messages of 1,000 bytes a second in all:",
                "",
            ]
            lines += table(results, group, CONNECTIONS)
        else:
            lines += [
                "",
                f"{group[0].upper()}{group[1:]}:",
                "",
                *table(results, group, PER_GIGABIT),
            ]
    return lines
