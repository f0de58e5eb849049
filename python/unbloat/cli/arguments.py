"""The command `unbloat`: reads the arguments, calls one public function per command, prints what it returns.

Exit codes: 0 fine, 1 ran but a check failed (or the lab did), 2 wrong usage, 3 an input could not be read, 5 a capture
does not show what was asked, 130 stopped by Ctrl-C.
Results go to standard output, progress and errors to standard error. Heavy imports wait until a command needs them.
"""

from __future__ import annotations

import errno
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import typer.core

from unbloat.cli import agent, corpus
from unbloat.cli.exit import FAILED, UNKNOWN, UNREADABLE, WRONG_USAGE, as_program, complain
from unbloat.cli.options import (
    Bin,
    Dask,
    Events,
    Json,
    Report,
    RunsJson,
    RunsOut,
    RunsReport,
    Samples,
    Seeds,
    Settings,
    Traces,
    own_processes,
)
from unbloat.cli.usage import PlainErrors
from unbloat.errors import AgentError, CaptureError, LabError, LinkUnknown, UnbloatError

# A disk that takes no more is about what is written, never about what is read.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
app = typer.Typer(
    cls=PlainErrors,
    help="What held a transfer back, and how much queue stood in the way: packet captures in, a verdict out.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings=SETTINGS,
)


def program() -> None:
    """Entry point of the program."""
    as_program(main)


def main() -> None:
    """A command, by the arguments of this process."""
    # A reader that has seen enough (`| head`) ends the program quietly, like any other filter.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="replace"
            )  # an old locale gets question marks, not a traceback
    try:
        app(prog_name="unbloat")
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, CaptureError) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            complain(UnbloatError(f"output cannot be written: {(error.strerror or '').lower()}"))
            sys.exit(WRONG_USAGE)
        complain(error)
        sys.exit(UNREADABLE)
    except LabError as error:
        complain(error)
        sys.exit(FAILED)
    except AgentError as error:
        complain(error)
        sys.exit(error.code)
    except LinkUnknown as error:
        complain(error)
        sys.exit(UNKNOWN)
    except UnbloatError as error:
        complain(error)
        sys.exit(WRONG_USAGE)


def version_asked(asked: bool) -> None:
    """`--version`"""
    if asked:
        from unbloat.version import __version__

        print(f"unbloat {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=version_asked, help="Print the version."),
    ] = False,
) -> None:
    """What held a transfer back, and how much queue stood in the way: packet captures in, a verdict out."""


@app.command(
    short_help="Say what held each transfer back, and since when.",
    epilog="Example: unbloat analyze upload.pcapng --report upload.html",
)
def analyze(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Captures (pcap, pcapng, .gz, .zst), stored runs, or - for standard input.",
            show_default=False,
        ),
    ],
    modem: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG",
            help="DIAG log of the capture host's modem (.qmdl, .mi2log, .dlf): its buffer and grants.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Write a self-contained page; with several captures one each, FILE-NAME.html.",
        ),
    ] = None,
    json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Store the tables as Parquet; with several captures in DIR/NAME. DIR.unbloat makes one file.",
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write each table and series as CSV; with several captures in DIR/NAME.",
        ),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Take all files as one capture, in the order of time.")
    ] = False,
    connection: Annotated[
        int | None, typer.Option(metavar="ID", min=0, help="Show one connection in full.")
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Connections in the table.")] = 10,
    sort: Annotated[
        Literal["bytes", "goodput", "rtt", "grade"],
        typer.Option(help="Order of the table, the largest (of grades the worst) first."),
    ] = "bytes",
    samples: Samples = False,
    events: Events = False,
    segments: Annotated[
        bool, typer.Option("--segments", help="With --json, --out or --csv: every segment, too.")
    ] = False,
    bin_ms: Bin = 100.0,
) -> None:
    """What held each transfer back, how much queue stood in the way, and since when."""
    from unbloat.cli.analyze import AnalyzeOptions, analyze_files

    series = chosen_series(samples, events, json)
    if segments and not (json or out or csv):
        raise typer.BadParameter("--segments belongs to --json, --out or --csv")
    series += ["segments"] if segments else []
    options = AnalyzeOptions(
        modem=modem,
        report=report,
        json=json,
        out=out,
        csv=csv,
        connection=connection,
        top=top,
        sort=sort,
        series=series,
        bin_ms=bin_ms,
    )
    raise typer.Exit(analyze_files(files, merge, options))


@app.command(
    short_help="Show how to capture a connection that lags, or capture it.",
    epilog="Example: sudo unbloat record lag.pcap --for 40s",
)
def record(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Where the capture is written; without it the steps are printed.",
            show_default=False,
        ),
    ] = None,
    system: Annotated[
        Literal["linux", "macos", "windows", "android", "router"] | None,
        typer.Option("--on", help="Steps of this system; otherwise those of this one."),
    ] = None,
    length: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long, 10s to 60min.")
    ] = "40s",
    ping: Annotated[
        str, typer.Option(metavar="HOST", help="A host beyond the slow link; it is pinged.")
    ] = "1.1.1.1",
    interface: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Another interface than the one that leads to HOST."),
    ] = None,
) -> None:
    """What to type on a system to capture a connection that lags, with a ping beside it. With FILE it is done (Linux, root)."""
    from unbloat.cli.record import show_or_record

    show_or_record(file, system, length, ping, interface)


@app.command(
    short_help="Lay transfers side by side.",
    epilog="Example: unbloat compare cubic.pcapng bbr.pcapng --labels CUBIC,BBR --report cubic-bbr.html",
)
def compare(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Captures or stored runs; a single one is compared by its two directions.",
            show_default=False,
        ),
    ],
    labels: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="What to call them; the names of the files otherwise."),
    ] = None,
    connection: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Connection of each capture in turn, or one direction of it (3→, 3←); the largest otherwise.",
        ),
    ] = None,
    report: Report = None,
    json: Json = False,
) -> None:
    """Transfers side by side: two captures, a capture before and after, or the two directions of one."""
    from unbloat.cli.compare import CompareOptions, compare_files

    compare_files(
        files,
        CompareOptions(
            labels=None if labels is None else labels.split(","),
            connections=connection,
            report=report,
            json=json,
        ),
    )


@app.command(
    short_help="Find the segment of a path on which the queue stands.",
    epilog="Example: unbloat locate phone.pcapng router.pcapng server.pcapng --report path.html",
)
def locate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Captures (pcap, pcapng, .gz, .zst) of successive points of one path.",
            show_default=False,
        ),
    ],
    report: Report = None,
    json: Json = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Store the tables as Parquet.")
    ] = None,
    connection: Annotated[
        int | None,
        typer.Option(
            metavar="ID", min=0, help="Count one connection alone; clocks are those of all."
        ),
    ] = None,
    one_clock: Annotated[
        bool, typer.Option("--one-clock", help="All captures read one clock: correct nothing.")
    ] = False,
    series: Annotated[
        bool, typer.Option("--series", help="With --json: delays bin by bin and every loss, too.")
    ] = False,
    bin_ms: Bin = 100.0,
) -> None:
    """On which path segment the queue stands, in each direction, over time, and where packets were lost."""
    from unbloat.cli.locate import LocateOptions, locate_files

    if series and not json:
        raise typer.BadParameter("--series belongs to --json (--out always stores it)")
    options = LocateOptions(
        report=report,
        json=json,
        series=series,
        out=out,
        bin_ms=bin_ms,
        connection=connection,
        one_clock=one_clock,
    )
    raise typer.Exit(locate_files(files, options))


@app.command(
    short_help="Fit the slowest link from a capture, as a trace and a scenario.",
    epilog="Example: unbloat fit upload.pcapng --trace up.trace --write link/",
)
def fit(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A capture (pcap, pcapng, .gz, .zst) beside the sender or the receiver.",
            show_default=False,
        ),
    ],
    connection: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Another connection than the largest, or one direction of it (3→, 3←).",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.trace", help="Write the rate in mahimahi's format."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write a scenario for sim and lab, its trace, and the draws."
        ),
    ] = None,
    report: Report = None,
    draws: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Rates over time that are drawn.")
    ] = 40,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Random seed of the draws.")] = 1,
    json: Json = False,
) -> None:
    """The rate of the slowest link over time with its interval, and its buffer. It ends with 5 where the transfer never filled the link."""
    from unbloat.cli.fit import FitOptions, fit_file

    fit_file(
        file,
        FitOptions(
            connection=connection,
            trace=trace,
            write=write,
            report=report,
            draws=draws,
            seed=seed,
            json=json,
        ),
    )


@app.command(
    "what-if",
    short_help="Predict from a capture what each cure would do.",
    epilog="Example: unbloat what-if upload.pcapng --cures bbr,acks",
)
def what_if(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="A capture (pcap, pcapng, .gz, .zst) beside the sender or the receiver; further ones of the same path narrow its buffer and delay.",
            show_default=False,
        ),
    ],
    connection: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Another connection than the largest, or one direction of it (3→, 3←).",
        ),
    ] = None,
    cures: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Only these; all of the direction otherwise."),
    ] = None,
    congestion: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The sender's congestion control (cubic, newreno, bbr, bbr3, htcp, vegas, westwood); recognised otherwise.",
        ),
    ] = None,
    report: Report = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write scenarios of the links and cures, and a trace for mahimahi."
        ),
    ] = None,
    lab: Annotated[
        bool,
        typer.Option(
            "--lab",
            help="Run the transfer and each cure five times on the kernel's own TCP, in real time, as root.",
        ),
    ] = False,
    draws: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Links that each cure is tried on.")
    ] = 40,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Random seed of the links.")] = 1,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Predict although the replay differs from the capture.")
    ] = False,
    json: Json = False,
) -> None:
    """Goodput and queueing delay of a transfer under each cure, with intervals, and the command of the best. It ends with 5 where the capture does not show enough."""
    from unbloat.cli.what_if import WhatIfOptions, what_if_files

    what_if_files(
        files,
        WhatIfOptions(
            connection=connection,
            cures=cures,
            congestion=congestion,
            report=report,
            write=write,
            lab=lab,
            draws=draws,
            seed=seed,
            anyway=anyway,
            json=json,
        ),
    )


@app.command(
    short_help="Run a scenario in virtual time.",
    epilog="Example: unbloat sim upload.toml --set flow.0.congestion=bbr --report upload.html\n\n"
    "On a cluster: unbloat sim sweep.toml --seeds 20 --dask tcp://10.0.0.1:8786",
)
def sim(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A scenario (docs/scenario.md).", show_default=False),
    ],
    settings: Settings = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="Random seed.")] = None,
    seeds: Seeds = None,
    pcap: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a capture per node: DIR/NODE.pcapng.")
    ] = None,
    out: RunsOut = None,
    report: RunsReport = None,
    json: RunsJson = False,
    samples: Samples = False,
    events: Events = False,
    traces: Traces = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Runs at a time; as many as processors otherwise."),
    ] = None,
    dask: Dask = None,
) -> None:
    """Run a scenario in virtual time: transfers, queues, probes, and whether it is as expected."""
    from unbloat.cli.sim import ResultOptions, run_options, simulate_file

    series = chosen_series(samples, events, json)
    options = run_options(settings, seed, seeds, pcap, traces)
    results = ResultOptions(out=out, report=report, json=json, series=series)
    own_processes(jobs, dask)
    raise typer.Exit(simulate_file(file, options, results, jobs, dask))


def chosen_series(samples: bool, events: bool, json: bool) -> list[str]:
    """The series that JSON has besides the tables."""
    if (samples or events) and not json:
        raise typer.BadParameter(
            "--samples and --events belong to --json (--out always stores both)"
        )
    return [name for name, chosen in (("samples", samples), ("events", events)) if chosen]


@app.command(
    short_help="Run a scenario on the kernel's own TCP.",
    epilog="Example: sudo unbloat lab upload.toml --set flow.0.congestion=bbr --report upload.html",
)
def lab(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|clean",
            help="A scenario (docs/scenario.md); or the word clean, which removes what dead labs left behind "
            "(a scenario of that name is ./clean).",
            show_default=False,
        ),
    ],
    settings: Settings = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Random seed of the links.")
    ] = None,
    seeds: Seeds = None,
    capture: Annotated[
        Literal["ends", "all", "none"] | None,
        typer.Option(
            help="Where packets are captured: where transfers end, at every node, nowhere."
        ),
    ] = None,
    snap: Annotated[
        int, typer.Option(metavar="BYTES", min=68, max=262_144, help="Captured of each packet.")
    ] = 120,
    pcap: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the captures: DIR/NODE.pcap.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep all raw files: what the emulator and every program wrote down.",
        ),
    ] = None,
    out: RunsOut = None,
    report: RunsReport = None,
    json: RunsJson = False,
    samples: Samples = False,
    events: Events = False,
    traces: Traces = None,
) -> None:
    """Run a scenario on the kernel's own TCP: namespaces, real programs, links emulated in user space. Needs root.

    Runs of a sweep follow one another: they take the time they take, and two at once would disturb each other.
    """
    from unbloat.cli.lab import lab_clean, lab_file
    from unbloat.cli.sim import ResultOptions, run_options
    from unbloat.lab.execute import LabOptions

    if file == "clean":
        raise typer.Exit(lab_clean())
    series = chosen_series(samples, events, json)
    options = run_options(settings, seed, seeds, pcap, traces)
    lab_options = LabOptions(keep, capture, snap)
    results = ResultOptions(out=out, report=report, json=json, series=series)
    raise typer.Exit(lab_file(Path(file), options, lab_options, results))


class LabOptionWithoutValue(typer.core.TyperCommand):
    """`--lab` alone is `--lab=whole`: what follows it is a claim, never its value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As any command, after that."""
        return super().parse_args(
            ctx, ["--lab=whole" if word == "--lab" else word for word in args]
        )


@app.command(
    cls=LabOptionWithoutValue,
    short_help="Run the papers' claims again: pass or fail, and by how much.",
    epilog="Example: unbloat reproduce drwa --report claims.html\n\n"
    "On a cluster: unbloat reproduce --store claims.jsonl --dask tcp://10.0.0.1:8786",
)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CLAIM]...",
            help="Claims, or the beginning of several (`drwa`); all without. Or `front`: every cure on every link; or `fairness`: how several flows share; or `phones`: synthetic phones beside 15 students'.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only those that take a few seconds.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    report: Report = None,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where trace files are, for claims that replay one."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Claims at a time.")] = None,
    dask: Dask = None,
    lab: Annotated[
        Literal["quick", "whole"] | None,
        typer.Option(
            metavar="[=quick]",
            help="Also in the lab, those that a kernel can make: three quarters of an hour; --lab=quick: eight minutes. front: six links, fairness: latecomers, twenty-five minutes each. Needs root.",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="front, fairness with --lab: runs of each case (default: 1)."
        ),
    ] = None,
    half: Annotated[
        Literal["tuning", "test", "both"] | None,
        typer.Option(help="front: which half of the links (default: tuning)."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Keeps every claim or case, and goes on from it after an interruption.",
        ),
    ] = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="Run nothing, show what is stored.")
    ] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Writes claims.md, and matrix.md where the matrix is run; with the lab's figures that are stored beside --store.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="front, fairness, phones: writes a page; front: a scatter beside it.",
        ),
    ] = None,
) -> None:
    """Simulate every claim of the papers and compare it with bounds stated beforehand, with a control each. `front` and
    `fairness` compare the cures with each other instead: `unbloat reproduce front --traces traces`. `phones` judges the
    population of `unbloat corpus phones`."""
    if names == ["phones"]:
        from unbloat.cli.phones import judge_phones

        others = (report, traces, lab, repeat, half, markdown)
        if quick or any(other is not None for other in others):
            raise typer.BadParameter(
                "phones takes --store, --stored, --page, --json and --jobs alone"
            )
        raise typer.Exit(judge_phones(store, page, stored, json, jobs))
    if names in (["front"], ["fairness"]):
        from unbloat.cli.front import FrontOptions, reproduce_fairness, reproduce_front

        if quick or any(one is not None for one in (report, jobs, dask, markdown)):
            raise typer.BadParameter(
                f"{names[0]} takes none of --quick, --report, --jobs, --dask, --markdown"
            )
        if lab == "quick":
            raise typer.BadParameter(f"{names[0]} does not take --lab=quick")
        if names == ["fairness"] and (half is not None or traces is not None):
            raise typer.BadParameter("fairness takes none of --half, --traces")
        if half is not None and lab is not None:
            raise typer.BadParameter("front --lab has six links of its own, no --half")
        if repeat is not None and lab is None:
            raise typer.BadParameter("--repeat needs --lab")
        given = FrontOptions(
            half or "tuning", traces, store, page, stored, json, lab is not None, repeat or 1
        )
        raise typer.Exit((reproduce_front if names == ["front"] else reproduce_fairness)(given))
    if half is not None or page is not None or repeat is not None:
        raise typer.BadParameter(
            "--half, --page and --repeat are for front and fairness, --page also for phones"
        )
    if stored and (store is None or lab is not None):
        raise typer.BadParameter("--stored needs --store, and cannot run the lab")
    if dask is not None and (lab is not None or stored):
        raise typer.BadParameter("--dask excludes --lab and --stored")
    own_processes(jobs, dask)
    from unbloat.cli.reproduce import ReproduceOptions, reproduce_claims

    options = ReproduceOptions(
        names=names or [],
        quick=quick,
        json=json,
        report=report,
        traces=traces,
        jobs=jobs,
        dask=dask,
        lab=lab,
        store=store,
        stored=stored,
        markdown=markdown,
    )
    raise typer.Exit(reproduce_claims(options))


@app.command(
    short_help="Analyse the captures that come with unbloat.",
    epilog="Example: unbloat demo --report demo.html",
)
def demo(
    report: Annotated[
        Path, typer.Option(metavar="FILE.html", help="Where the page is written.")
    ] = Path("unbloat-report.html"),
) -> None:
    """Analyse the captures that come with unbloat, and write a report of a bloated upload."""
    from unbloat.cli.demo import show_demo

    show_demo(report)


@app.command(
    short_help="Draw a figure for a paper.",
    epilog="Example: unbloat plot upload.pcapng --out upload.svg",
)
def plot(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A capture, a stored run, or - for standard input.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FIGURE", help="Where to; .svg, .pdf or .png.")],
    connection: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Connection, or one direction of it (3→, 3←); the largest otherwise.",
        ),
    ] = None,
    bin_ms: Bin = 100.0,
) -> None:
    """A figure for a paper: goodput, RTT, bytes in flight against the window (needs the extra `plots`)."""
    from unbloat.cli.plot import plot_file

    plot_file(file, out, connection, bin_ms)


@app.command(
    "list",
    short_help="List rules, limits, charts, link types, algorithms, metrics, scenarios.",
    epilog="Example: unbloat list rules bufferbloat",
)
def list_(
    kind: Annotated[
        Literal["rules", "limits", "charts", "linktypes", "algorithms", "metrics", "scenarios"],
        typer.Argument(help="What to list.", show_default=False),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One of them: its manual page.", show_default=False),
    ] = None,
) -> None:
    """Every rule, limit, chart, link type, algorithm, metric or scenario; with NAME the manual page of one."""
    from unbloat.cli.list import show_list

    show_list(kind, name)


@app.command(
    short_help="Say how bad a connection is, in which direction.",
    epilog="Example: unbloat measure my-server --token 5ac04a9b4db8be5a --pin d8ac84ee3bd692e8c077",
)
def measure(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="HOST[:PORT]|serve|rpm|history",
            help="Where the other side runs; or the word serve: be the other side, and print what to type on this one; or rpm: measure the responsiveness of the path to any server of RPM; or history: show what --keep kept.",
            show_default=False,
        ),
    ],
    more: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|URL]",
            help="With history: the file; with rpm: a host, or the URL of its configuration.",
            show_default=False,
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What the server speaks: own, of unbloat measure, or iperf3 or ndt7, with which only the round trip is measured, or irtt, which carries no load.",
        ),
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option(
            metavar="irtt[:PORT]",
            help="With iperf3: probes to a server of irtt on the same host, for the delay of each direction; irtt or irtt:PORT.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            "--hmac-key",
            metavar="TOKEN",
            help="The server's token, with irtt the HMAC key; the variable UNBLOAT_MEASURE_TOKEN otherwise.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A file whose first line is the token; with serve as well."
        ),
    ] = None,
    pin: Annotated[
        str | None,
        typer.Option(
            metavar="PIN",
            help="The pin of the server's key, as the server prints it; otherwise the key needs a certificate of a public authority.",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="With rpm or ndt7: take any key of the server.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="About 12 s instead of 30 to 60; with rpm: only with intervals of 1 s, as the clients in use.",
        ),
    ] = False,
    phases: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Loaded phases, as down,up; all of down,up,both otherwise."
        ),
    ] = None,
    streams: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=16, help="So many streams, instead of as many as fill the path."
        ),
    ] = None,
    cc: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Congestion control of the streams, at both ends; of several each phase is measured with each, as cubic,bbr.",
        ),
    ] = None,
    idle_gaps: Annotated[
        str | None,
        typer.Option(
            metavar="PAUSES",
            help="Instead of loads: how much longer the first packet after a pause takes, by which radios that sleep are found. quick (4 min), full (30 min), or pauses in seconds, as 1,3,10.",
        ),
    ] = None,
    max_data: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="End when this much was transferred, 2GB otherwise; with serve: the most of one client, 4GB.",
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Go on where the link seems to be metered, without a question."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Append each result to this file, a JSON object in a line."
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --keep: measure again and again, each time so long after the last beginning, as 1h.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Store the measurement as a run, for compare, plot and analyze: a directory, or a file when it ends in .unbloat.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write an HTML page: grades, delay over time, place, cures."
        ),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the headers of the test's packets in this file, as pcapng, for analyze; needs root or CAP_NET_RAW.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT", help="With serve: all addresses and port 26110 otherwise."
        ),
    ] = None,
    open: Annotated[
        bool, typer.Option("--open", help="With serve: serve every host, without a token.")
    ] = False,
    tls: Annotated[
        str | None,
        typer.Option(
            metavar="CERT,KEY",
            help="With serve: certificate and key, in PEM; a new key and its pin otherwise.",
        ),
    ] = None,
    nq: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="With serve: serve clients of RPM as well, as networkQuality, with HTTPS on this port: every host, without a token.",
        ),
    ] = None,
) -> None:
    """How much delay a transfer adds, in which direction: this host and a server of yours load the path down, up and both ways,
    and send small probes meanwhile. Prints a grade per direction and which cure to try."""
    from unbloat.cli.measure import Wanted, become, measure_and_store, show_history

    if target == "history":
        given = agent.words(ctx, "target", "more", "json")
        if given or more is None:
            raise typer.BadParameter("history takes FILE and --json, nothing else")
        show_history(Path(more), json)
        return
    if (more is not None) != (target == "rpm"):
        raise typer.BadParameter("only rpm takes URL and needs it, and only history takes FILE")
    before = [target] if more is None else [target, more]
    words = [*before, *agent.words(ctx, "target", "more", "out", "report")]
    if out is None and report is None:
        become(words)
    if target in ("serve", "rpm") or idle_gaps is not None or every is not None:
        raise typer.BadParameter("--out and --report are for one measurement under load")
    raise typer.Exit(measure_and_store(words, Wanted(out, report, json)))


# The last of the commands in the list.
app.add_typer(
    corpus.app,
    name="corpus",
    short_help="Analyse many captures, each once, and ask questions about all.",
)
app.add_typer(
    agent.app, name="agent", short_help="Cure bufferbloat on this host, undone by itself."
)

if __name__ == "__main__":
    main()
