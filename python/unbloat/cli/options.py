"""Options of several commands, each defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Bin = Annotated[
    float,
    typer.Option(
        "--bin", metavar="MS", min=1.0, max=60_000.0, help="Length of a bin of the series, in ms."
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON instead of text (docs/format.md), a line per capture."),
]
# Of `sim`, `reproduce` and `corpus run`.
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR|local",
        help="Run on the workers of a Dask scheduler, as tcp://host:8786, or on local processes.",
    ),
]
Report = Annotated[
    Path | None, typer.Option(metavar="FILE.html", help="Write a self-contained page.")
]
Samples = Annotated[bool, typer.Option("--samples", help="With --json: the series, too.")]
Events = Annotated[bool, typer.Option("--events", help="With --json: the events, too.")]

# Of `sim` and `lab`.
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Give a key of the scenario another value; repeatable.",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Repeat each run with N seeds; means with confidence intervals.",
    ),
]
RunsOut = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Store the tables as Parquet; of a sweep in DIR/LABELS."),
]
RunsReport = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html", help="Write a self-contained page; of a sweep, runs side by side."
    ),
]
RunsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON instead of text (docs/format.md), a line per run."),
]
Traces = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Where the scenario's trace files lie, beside its own directory."
    ),
]


def own_processes(jobs: int | None, dask: str | None) -> None:
    """Refuses a number of processes for machines that have their own."""
    if jobs is not None and dask not in (None, "local"):
        raise typer.BadParameter("--jobs is of this machine; workers of a scheduler have their own")
