"""What `sim` prints: of one run its transfers, queues, probes and applications; of a sweep one row per case.

Every figure comes from `run/figures.py`. Tables shrink to the width of the terminal, the figures that decide first.
"""

from __future__ import annotations

from unbloat.run.run import Run
from unbloat.run.summary import run_tables
from unbloat.scenario.expectations import Check, label_text
from unbloat.scenario.key_figures import spread_text
from unbloat.scenario.sweep import RunSet
from unbloat.text.format import (
    limit_text,
    plural,
    seconds_text,
)
from unbloat.text.table import Cells, table, tables
from unbloat.text.terminal import Terminal, cut, plain, width


def sim_screen(terminal: Terminal, runs: RunSet) -> None:
    """A single run in full, several as a table; then what was expected."""
    if len(runs) == 1:
        run_screen(terminal, runs.runs[0])
    else:
        sweep_screen(terminal, runs)
    for one in runs.skipped:
        word = "failed: " if one.failed else "skipped: "
        color = "red" if one.failed else "yellow"
        terminal.wrapped(one.text, terminal.style(word, color), " " * len(word))
    checks_screen(terminal, runs)


def run_screen(terminal: Terminal, run: Run) -> None:
    """One run."""
    size = f"{seconds_text(run.info['duration_s'])} · {plural(run.info['packets'], 'packet')} · seed {run.info['seed']}"
    terminal.line(
        f"{terminal.style(cut(plain(run.name), max(terminal.width - width(size) - 3, 12)), 'bold')} · {size}"
    )
    if run.info.get("about"):
        terminal.wrapped(str(run.info["about"]))
    for warning in run.warnings:
        terminal.wrapped(warning, terminal.style("warning: ", "yellow"), " " * 9)
    for titles, rows in run_tables(run):
        terminal.line()
        table(terminal, titles, rows, left_columns=2 if titles[1] == "figure" else 1)


def sweep_screen(terminal: Terminal, runs: RunSet) -> None:
    """One row per case: labels, then the figures that the cases have; in several tables where one does not fit."""
    cases = runs.cases
    repeated = max(len(case.runs) for case in cases)
    seeds = f" · {repeated} seeds each" if repeated > 1 else ""
    terminal.line(
        f"{terminal.style(plain(runs.name), 'bold')} · {plural(len(cases), 'case')}{seeds} · {seconds_text(runs[0].info['duration_s'])} each"
    )
    for warning in dict.fromkeys(warning for run in runs for warning in run.warnings):
        terminal.wrapped(warning, terminal.style("warning: ", "yellow"), " " * 9)
    terminal.line()
    keys = [key for key, _ in cases[0].labels] or ["run"]
    columns = runs.key_figures()
    titles = (*keys, *(title for title, _, _ in columns))
    rows: list[Cells] = [
        (
            *([value for _, value in case.labels] or [runs.name]),
            *(spread_text(case.figures.get(name), text) for _, name, text in columns),
        )
        for case in cases
    ]
    leads = runs.lead_flows([case.runs[0] for case in cases])
    if leads is not None:
        # `limit` alone would be the length of a queue, where a sweep varies that.
        titles = (*titles, "main limit")
        limits = [case.runs[0].flow(flow)["limit"] for case, flow in zip(cases, leads, strict=True)]
        rows = [(*row, limit_text(limit)) for row, limit in zip(rows, limits, strict=True)]
    tables(terminal, titles, rows, len(keys))
    if runs.lead is not None and len(runs[0].info["transfers"]) > 1:
        words = (
            f"goodput of all transfers together; RTT, queue, retrans and main limit of {runs.lead}"
        )
        terminal.wrapped(words)
    if repeated > 1:
        terminal.line(terminal.style("± half the 95 % confidence interval of the mean", "dim"))


def checks_screen(terminal: Terminal, runs: RunSet) -> None:
    """Each expectation: pass or fail."""
    if not runs.checks:
        return
    terminal.line()
    for label, checks in by_case(runs):
        failed = [check for check in checks if not check.passed]
        check = (failed or checks)[0]
        mark = terminal.style("fail", "red", "bold") if failed else terminal.style("pass", "green")
        where = f"{label}: " if label else ""
        line = f" (line {check.line})" if check.line is not None else ""
        seeds = f", {'not ' if failed else ''}with {len(failed or checks)} of {len(checks)} seeds"
        terminal.wrapped(
            f"{where}{check.text}{line}{seeds if len(checks) > 1 else ''}", f"{mark}  ", " " * 6
        )


def by_case(runs: RunSet) -> list[tuple[str, list[Check]]]:
    """Checks of runs that differ by their seed alone, together."""
    cases = {
        label_text(labels): label_text([pair for pair in labels if pair[0] != "seed"])
        for labels in runs.labels
    }
    groups: dict[tuple[object, ...], list[Check]] = {}
    for check in runs.checks:
        key = (cases[check.run], check.line, check.place, check.metric, check.statistic)
        groups.setdefault(key, []).append(check)
    return [(str(key[0]), checks) for key, checks in groups.items()]
