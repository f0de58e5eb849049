"""`unbloat corpus …`: its arguments, and what each command calls."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from unbloat.cli.exit import UNREADABLE
from unbloat.cli.options import Dask, own_processes
from unbloat.cli.output import need_writable
from unbloat.corpus.open import corpus
from unbloat.corpus.unit import without_credentials
from unbloat.tasks.memory import lean_memory
from unbloat.text.format import byte_text, plural
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal

app = typer.Typer(
    help="Analyse many captures, each once, and ask questions about all of them (docs/commands/corpus.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
Folder = Annotated[
    str, typer.Argument(metavar="DIR|URL", help="What --out of `run` named.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.command(
    short_help="Analyse every capture that has no result yet.",
    epilog="Example: unbloat corpus run phones/ 'old/*.tgz' --out results\n\n"
    "On a cluster: unbloat corpus run /shared/phones --out /shared/results --dask tcp://10.0.0.1:8786",
)
def run(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Folders, globs, captures, archives (tar, tgz, zip), or URLs that fsspec opens.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar="DIR|URL",
            help="Where results are stored: a folder, or an object store, as s3://bucket/results.",
            show_default=False,
        ),
    ],
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Captures at a time; as many as processors otherwise."
        ),
    ] = None,
    dask: Dask = None,
    include: Annotated[
        str | None,
        typer.Option(
            metavar="GLOB",
            help="Files of folders and archives to take, instead of those with the names of captures.",
        ),
    ] = None,
    device_from: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="What in a file's name is its device, as 'phone(\\d+)'; the folder's name otherwise.",
        ),
    ] = None,
    merge: Annotated[
        Literal["rotating"] | None,
        typer.Option(help="Files of one rotating capture are analysed as one."),
    ] = None,
    anonymise: Annotated[
        Path | None,
        typer.Option(
            metavar="KEYFILE",
            help="Store pseudonyms for addresses, devices and files, under the key of 32 bytes in a file.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Analyse so many now, the largest first."),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try again what failed in an earlier run.")
    ] = False,
    timeout_per_gb: Annotated[
        str,
        typer.Option(metavar="TIME", help="When a capture is given up, per GB, as 120s or 5min."),
    ] = "120s",
    json: Json = False,
) -> None:
    """Analyse every capture that has no result yet. Stopped at any moment, it goes on where it was."""
    lean_memory()
    from unbloat.corpus.run import RunOptions, run_corpus
    from unbloat.corpus.text import complain_all, outcome_screen

    own_processes(jobs, dask)
    options = RunOptions(
        jobs=jobs,
        include=include,
        device_from=device_from,
        merge=merge == "rotating",
        anonymise=anonymise,
        limit=limit,
        retry_failed=retry_failed,
        timeout_per_gb_s=seconds(timeout_per_gb),
        dask=dask,
    )
    try:
        with ProgressBar() as progress:
            outcome = run_corpus(sources, out, options, progress)
    except KeyboardInterrupt:
        print(
            "unbloat: stopped; what is done is stored, the same command goes on from there",
            file=sys.stderr,
        )
        raise
    where = without_credentials(out)
    complain_all(sys.stderr, outcome.shown, where)
    outcome_screen(Terminal(sys.stdout), outcome, where, json)
    raise typer.Exit(UNREADABLE if outcome.errors else 0)


def seconds(text: str) -> float:
    """A time of the command line."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h)", text)
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text}: expected a time, as 120s, 5min or 1h")
    return float(match[1]) * {"s": 1, "min": 60, "h": 3600}[match[2]]


@app.command(
    short_help="Say what is done, and name what is not.",
    epilog="Example: unbloat corpus status results",
)
def status(folder: Folder, json: Json = False) -> None:
    """What is done, how many bytes of captures that is, and every capture that could not be analysed."""
    from unbloat.corpus.text import status_screen

    status_screen(Terminal(sys.stdout), corpus(folder).status(), json)


@app.command(
    short_help="Ask a question in SQL.",
    epilog='Example: unbloat corpus query results "SELECT * FROM verdicts"',
)
def query(
    folder: Folder,
    sql: Annotated[str, typer.Argument(metavar="SQL", show_default=False)],
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per row, each on one line.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Ask a question in SQL over the tables and views of a corpus, by an embedded DuckDB."""
    from unbloat.corpus.text import rows_screen

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    names, rows = corpus(folder).answer(sql)
    rows_screen(Terminal(sys.stdout), names, rows, "json" if json else "csv" if csv else "text")


@app.command(
    short_help="Write a page about all captures.",
    epilog="Example: unbloat corpus report results --out corpus.html",
)
def report(
    folder: Folder,
    out: Annotated[Path, typer.Option(metavar="FILE.html", help="The page.", show_default=False)],
) -> None:
    """Write one page: verdicts, grades, the worst connections, and the traffic beside that of a published study."""
    from unbloat.corpus.report.page import write_page

    found = corpus(folder)
    need_writable(out)
    info = write_page(found, out)
    Terminal(sys.stdout).line(f"report: {info.path}, {byte_text(info.bytes)}")


@app.command(
    short_help="Make captures of synthetic phones, with what is true of them.",
    epilog="Example: unbloat corpus phones --out phones --devices 15 --days 1 && unbloat corpus run phones --out results",
)
def phones(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="A new or empty folder.", show_default=False)
    ],
    devices: Annotated[int, typer.Option(metavar="N", min=1, max=60_000, help="Phones.")] = 15,
    days: Annotated[
        float, typer.Option(metavar="N", min=0.01, max=366, help="Days of each; 0.5 is half a day.")
    ] = 1.0,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Another number gives other phones.")
    ] = 1,
    population: Annotated[
        Literal["paper", "plain"],
        typer.Option(help="paper: fitted to a published study of 15 phones; plain: not."),
    ] = "paper",
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Phones at a time; as many as processors otherwise."),
    ] = None,
    json: Json = False,
) -> None:
    """Make captures of phones whose sessions, flows and queues are known. The same arguments give the same bytes."""
    from unbloat.phones.make import make_phones
    from unbloat.phones.text import made_screen

    with ProgressBar("making phones") as progress:
        made = make_phones(
            out,
            population=population,
            devices=devices,
            days=days,
            seed=seed,
            jobs=jobs,
            progress=progress,
        )
    made_screen(Terminal(sys.stdout), made, str(out), json)


@app.command(
    short_help="Remove results that are out of date, or failed.",
    epilog="Example: unbloat corpus forget results --stale",
)
def forget(
    folder: Folder,
    stale: Annotated[
        bool, typer.Option("--stale", help="Of files that have changed since, and other versions.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Of what failed.")] = False,
) -> None:
    """Remove results that are out of date, or failed; never a capture."""
    if not stale and not failed:
        raise typer.BadParameter("name what is forgotten: --stale, --failed or both")
    count = corpus(folder).forget(stale, failed)
    Terminal(sys.stdout).line(f"{plural(count, 'result')} removed")
