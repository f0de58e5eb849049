"""What `unbloat sim` does once its arguments are read: simulate, then print, store or draw (`unbloat lab` ends alike)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from unbloat.cli.output import write_run_page, writing
from unbloat.errors import UnbloatError
from unbloat.run.json import json_line, run_object
from unbloat.run.tables import Row
from unbloat.run.write import FORMAT
from unbloat.scenario.simulate import simulate_all
from unbloat.scenario.sweep import RunSet
from unbloat.scenario.text import sim_screen
from unbloat.text.progress import Shown
from unbloat.text.terminal import Paper

NOT_HELD = 1


@dataclass(frozen=True)
class Asked:
    """The options of `unbloat sim`, and of `unbloat lab` where it has them."""

    set: list[str]
    seed: int | None
    seeds: int | None
    pcap: Path | None
    out: Path | None
    report: Path | None
    json: bool
    series: list[str]
    traces: Path | None
    jobs: int | None


def simulate_file(file: Path, asked: Asked) -> int:
    """`unbloat sim`; returns the exit code."""
    settings = [setting(text) for text in asked.set]
    if asked.pcap is not None:
        with writing(asked.pcap):
            asked.pcap.mkdir(parents=True, exist_ok=True)
    with Shown("simulating") as shown:
        runs = simulate_all(
            file,
            set=settings,
            seed=asked.seed,
            seeds=asked.seeds,
            pcap=asked.pcap,
            traces=asked.traces,
            jobs=asked.jobs,
            progress=shown,
        )
    return shown_and_written(runs, asked)


def shown_and_written(runs: RunSet, asked: Asked) -> int:
    """What every way of running a scenario ends with; the exit code."""
    paper = Paper(sys.stdout)
    if asked.json:
        print_json(paper, runs, asked.series)
    else:
        sim_screen(paper, runs)
    write_files(Paper(sys.stderr) if asked.json else paper, runs, asked)
    return 0 if all(check.held for check in runs.checks) else NOT_HELD


def setting(text: str) -> tuple[str, str]:
    """`key=value`"""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise UnbloatError(f"--set {text}: expected key=value, such as link.up.rate=4 Mbit/s")
    return key.strip(), value.strip()


def print_json(paper: Paper, runs: RunSet, series: list[str]) -> None:
    """An object per run, as for captures, with its labels and checks; then what was skipped."""
    from unbloat.scenario.expectations import label_text

    for run, labels in zip(runs, runs.labels, strict=True):
        checks = [check.to_dict() for check in runs.checks if check.run == label_text(labels)]
        result: Row = run_object(run, None, series) | {"labels": dict(labels), "checks": checks}
        paper.line(json_line(result))
    for one in runs.skipped:
        paper.line(json_line({"format": FORMAT, "labels": dict(one.labels), "skipped": one.reason}))


def write_files(notes: Paper, runs: RunSet, asked: Asked) -> None:
    """Captures, tables and page."""
    if asked.pcap is not None:
        for run in runs:
            for path in run.info["captures"]:
                notes.line(f"capture: {path}")
    if asked.out is not None:
        with writing(asked.out):
            if len(runs) == 1:
                runs[0].write(asked.out)
            else:
                runs.write(asked.out)
        notes.line(f"tables: {asked.out}")
    if asked.report is not None:
        if len(runs) == 1:
            write_run_page(runs[0], asked.report)
        else:
            with writing(asked.report):
                asked.report.touch()
                runs.write_report(asked.report)
        notes.line(f"report: {asked.report}")
