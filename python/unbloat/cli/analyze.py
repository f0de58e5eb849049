"""What each command does once its arguments are read: analyse, then print, store or draw.

Several captures are shown as far as they could be read; the others are named on standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbloat.capture.analyze import analyze_each
from unbloat.capture.connection_text import connection_screen
from unbloat.capture.file_text import file_screen
from unbloat.cli.arguments import UNREADABLE, complain
from unbloat.comparison.compare import compare, distinct, stems
from unbloat.comparison.text import compare_screen
from unbloat.errors import UnbloatError
from unbloat.run.json import json_line, run_object
from unbloat.run.open import is_run, open_run
from unbloat.run.run import Run
from unbloat.scenario.sweep import file_name
from unbloat.text.progress import Shown
from unbloat.text.terminal import Paper

# Connections whose series a report draws; one pass over the capture computes all of them.
CHARTED = 20
CHARTED_COUNTED = 5


@dataclass(frozen=True)
class Wanted:
    """What `analyze` is to do with each run."""

    report: Path | None
    json: bool
    out: Path | None
    connection: int | None
    top: int
    sort: str
    series: list[str]
    bin_ms: float

    @property
    def keep(self) -> bool:
        """Whether a second pass may be needed."""
        return bool(self.report or self.out or self.series) or self.connection is not None


def analyze_files(files: Sequence[str], merge: bool, wanted: Wanted) -> int:
    """`unbloat analyze`; returns the exit code."""
    outcomes = open_each(files, merge, wanted.keep)
    runs = [outcome for outcome in outcomes if isinstance(outcome, Run)]
    # Labels of a simulated run may hold what a file name must not: `rate=2 Mbit/s`.
    names = distinct([file_name(run.name) if run.extra else stems([run.name])[0] for run in runs])
    paper = Paper(sys.stdout)
    failed = False
    first = True
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            complain(outcome)
            failed = True
            continue
        if not first and not wanted.json:
            paper.line()
        name = names[runs.index(outcome)] if len(outcomes) > 1 else None
        show(paper, outcome, wanted, name)
        first = False
    return UNREADABLE if failed else 0


def open_each(files: Sequence[str], merge: bool, keep: bool) -> list[Run | OSError | UnbloatError]:
    """Stored runs opened, captures analysed, in the order given."""
    if merge:
        with Shown() as shown:
            return analyze_each([files], keep, shown)
    captures = [[path] for path in files if not is_run(path)]
    if sum(path == "-" for path in files) > 1:
        raise UnbloatError("standard input (-) can be read only once")
    with Shown() as shown:
        analysed = iter(analyze_each(captures, keep, shown) if captures else [])
    return [opened(path) if is_run(path) else next(analysed) for path in files]


def opened(path: str) -> Run | OSError | UnbloatError:
    """A stored run, or why it could not be read."""
    try:
        return open_run(path)
    except (OSError, UnbloatError) as error:
        return error


def show(paper: Paper, run: Run, wanted: Wanted, name: str | None) -> None:
    """One run: text or JSON, and whatever files were asked for. `name` tells the files of several runs apart."""
    if wanted.json:
        chosen = None if wanted.connection is None else [run.connection(wanted.connection)["id"]]
        paper.line(json_line(run_object(run, chosen, wanted.series, wanted.bin_ms)))
    elif wanted.connection is not None:
        connection_screen(paper, run, wanted.connection, wanted.bin_ms)
    else:
        file_screen(paper, run, wanted.top, wanted.sort)
    notes = Paper(sys.stderr) if wanted.json else paper
    if wanted.out is not None:
        path = wanted.out if name is None else inside(wanted.out, name)
        series = ["samples", "events"] + [kind for kind in wanted.series if kind == "segments"]
        with writing(path):
            run.write(path, series, wanted.bin_ms)
        notes.line(f"tables: {path}")
    if wanted.report is not None:
        path = (
            wanted.report
            if name is None
            else wanted.report.with_stem(f"{wanted.report.stem}-{name}")
        )
        write_page(run, path)
        notes.line(f"report: {path}")


def inside(out: Path, name: str) -> Path:
    """Where one of several runs is stored: DIR/NAME, or NAME.unbloat beside the others."""
    return out.with_name(f"{out.stem}-{name}.unbloat") if out.suffix == ".unbloat" else out / name


class writing:
    """Turns the operating system's refusal to write into a wrong argument, which it is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, OSError):
            raise UnbloatError(
                f"{self.path}: cannot be written: {(error.strerror or str(error)).lower()}"
            ) from None


def write_page(run: Run, path: Path) -> None:
    """The report; what it draws is computed in one pass first."""
    from unbloat.report import write_report

    with writing(path):
        path.touch()  # before the second pass, so that a wrong path costs no time
        # Runs of a scenario have their series; segments are in the captures, where there are any.
        run.load(charted(run), ("samples", "events", *([] if run.made else ["segments"])))
        write_report(run, path)


def charted(run: Run) -> list[int]:
    """The connections that the report draws: the largest of TCP, and of what is merely counted."""
    columns = (run.connections.column(name).to_pylist() for name in ("bytes", "id", "proto"))
    ordered = sorted(zip(*columns, strict=True), key=lambda row: (-row[0], row[1]))
    tcp = [id_ for _, id_, proto in ordered if proto == "tcp"]
    counted = [id_ for _, id_, proto in ordered if proto != "tcp"]
    return tcp[:CHARTED] + counted[:CHARTED_COUNTED]


def compare_files(
    files: Sequence[str],
    labels: Sequence[str] | None,
    flows: Sequence[int] | None,
    report: Path | None,
    json: bool,
) -> None:
    """`unbloat compare`"""
    with Shown() as shown:
        comparison = compare(*files, labels=labels, flows=flows or None, progress=shown)
    paper = Paper(sys.stdout)
    if json:
        paper.line(json_line(comparison.to_dict()))
    else:
        compare_screen(paper, comparison)
    if report is not None:
        with writing(report):
            comparison.write_report(report)
        (Paper(sys.stderr) if json else paper).line(f"report: {report}")


def show_demo(report: Path) -> None:
    """`unbloat demo`: the first capture on one screen and as a page, the others by their verdict."""
    from unbloat.bundled import samples

    paper = Paper(sys.stdout)
    outcomes = open_each([str(path) for path in samples()], merge=False, keep=True)
    runs: list[Run] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        runs.append(outcome)
    file_screen(paper, runs[0], top=3, sort="bytes")
    for run in runs[1:]:
        paper.line()
        paper.line(paper.style(run.name, "bold"))
        paper.wrapped(run.verdict, "  ", "  ")
    write_page(runs[0], report)
    paper.line()
    paper.line(f"report: {report.resolve()}")


def plot_file(file: str, out: Path, flow: int | None, bin_ms: float) -> None:
    """`unbloat plot`"""
    from unbloat.capture.plot import plot

    [outcome] = open_each([file], merge=False, keep=True)
    if isinstance(outcome, Exception):
        raise outcome
    with writing(out):
        plot(outcome, out, flow, bin_ms)
    Paper(sys.stdout).line(f"figure: {out}")


def show_list(kind: str, name: str | None) -> None:
    """`unbloat list`"""
    from unbloat.cli.list import groups, page

    paper = Paper(sys.stdout)
    if name is not None:
        for text in page(kind, name).splitlines():
            paper.line(text)
        return
    found = groups(kind)
    room = max((len(entry) for _, known in found for entry, _ in known), default=0)
    for place, (heading, known) in enumerate(found):
        if heading is not None:
            if place:
                paper.line()
            paper.line(paper.style(heading, "dim"))
        for entry, about in known:
            paper.wrapped(about, paper.style(entry.ljust(room), "bold") + "  ", " " * (room + 2))
