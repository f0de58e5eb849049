"""What `unbloat sim` does once its arguments are read: simulate, then print, store or draw (`unbloat lab` ends alike)."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from unbloat.cli.exit import FAILED
from unbloat.cli.output import write_run_page, writing
from unbloat.errors import UnbloatError
from unbloat.run.json import json_line, run_object
from unbloat.run.tables import Row
from unbloat.run.write import FORMAT
from unbloat.scenario.simulate import RunOptions, simulate_all
from unbloat.scenario.sweep import RunSet
from unbloat.scenario.text import sim_screen
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal


@dataclass(frozen=True)
class ResultOptions:
    """What is done with the runs of a scenario, simulated or of the lab."""

    out: Path | None
    report: Path | None
    json: bool
    series: list[str]


def run_options(
    settings: list[str] | None,
    seed: int | None,
    seeds: int | None,
    pcap: Path | None,
    traces: Path | None,
) -> RunOptions:
    """How the runs are made, from the arguments of `sim` and `lab`."""
    return RunOptions([setting(text) for text in settings or []], seed, seeds, pcap, traces)


def simulate_file(
    file: Path,
    options: RunOptions,
    results: ResultOptions,
    jobs: int | None,
    dask: str | None = None,
) -> int:
    """`unbloat sim`; returns the exit code."""
    make_folders(options.pcap)
    with ProgressBar("simulating") as progress:
        runs = simulate_all(file, options, jobs=jobs, dask=dask, progress=progress)
    return print_and_write(runs, options, results)


def make_folders(*folders: str | os.PathLike[str] | None) -> None:
    """Before anything runs, so that a wrong path costs no time."""
    for folder in folders:
        if folder is not None:
            with writing(Path(folder)):
                Path(folder).mkdir(parents=True, exist_ok=True)


def print_and_write(runs: RunSet, options: RunOptions, results: ResultOptions) -> int:
    """What every way of running a scenario ends with; the exit code."""
    terminal = Terminal(sys.stdout)
    if results.json:
        print_json(terminal, runs, results.series)
    else:
        sim_screen(terminal, runs)
    write_files(Terminal(sys.stderr) if results.json else terminal, runs, options, results)
    fine = all(check.passed for check in runs.checks) and not any(
        one.failed for one in runs.skipped
    )
    return 0 if fine else FAILED


def setting(text: str) -> tuple[str, str]:
    """`key=value`"""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise UnbloatError(f"--set {text}: expected key=value, such as link.up.rate=4 Mbit/s")
    return key.strip(), value.strip()


def print_json(terminal: Terminal, runs: RunSet, series: list[str]) -> None:
    """An object per run, as for captures, with its labels and checks; then what was skipped."""
    from unbloat.scenario.expectations import label_text

    for run, labels in zip(runs, runs.labels, strict=True):
        checks = [check.to_dict() for check in runs.checks if check.run == label_text(labels)]
        result: Row = run_object(run, None, series) | {"labels": dict(labels), "checks": checks}
        terminal.line(json_line(result))
    for one in runs.skipped:
        terminal.line(
            json_line(
                {
                    "format": FORMAT,
                    "labels": dict(one.labels),
                    "failed" if one.failed else "skipped": one.reason,
                }
            )
        )


def write_files(notes: Terminal, runs: RunSet, options: RunOptions, results: ResultOptions) -> None:
    """Captures, tables and page."""
    if options.pcap is not None:
        for run in runs:
            for path in run.info["captures"]:
                notes.line(f"capture: {path}")
    if results.out is not None:
        with writing(results.out):
            if len(runs) == 1:
                runs[0].write(results.out)
            else:
                runs.write(results.out)
        notes.line(f"tables: {results.out}")
    if results.report is not None:
        if len(runs) == 1:
            write_run_page(runs[0], results.report)
        else:
            with writing(results.report):
                results.report.touch()
                runs.write_report(results.report)
        notes.line(f"report: {results.report}")
