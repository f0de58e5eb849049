"""`unbloat agent …`: its arguments. One function per command, and what each calls."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from unbloat.agent.client import Place
from unbloat.cli.options import Report
from unbloat.cli.output import need_writable, writing
from unbloat.text.terminal import Terminal

app = typer.Typer(
    help="Cures for bufferbloat on this host, undone by themselves (docs/agent.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print the program's JSON.")]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The configuration; `unbloat agent defaults` prints every key."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Give a key another value, as receive.lambda=1.5; repeatable.",
    ),
]


@app.callback()
def where(
    ctx: typer.Context,
    runtime: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Where journal, lock, socket and log are; /run/unbloat-agent."
        ),
    ] = None,
    pins: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Where programs and maps are pinned; /sys/fs/bpf/unbloat."
        ),
    ] = None,
) -> None:
    """Cures for bufferbloat on this host, undone by themselves (docs/agent.md)."""
    ctx.obj = Place(runtime, pins)


@app.command(
    short_help="Say which cure would help here, and what it would change.",
    epilog="Example: sudo unbloat agent plan --live 30s --out plan.toml",
)
def plan(
    ctx: typer.Context,
    capture: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Judge this capture (pcap, pcapng, .gz, .zst); repeatable for a rotating one.",
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="With --capture: judge the traffic of the host with this address; repeatable.",
        ),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Judge this host's connections, looked at for so long; 5s otherwise.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The uplink's device; that of the default route otherwise."
        ),
    ] = None,
    telemetry: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The socket of a modem's reports; /run/unbloat/modem.sock."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the configuration that `on --config` takes."),
    ] = None,
    json: Json = False,
) -> None:
    """Look at connections, queues, settings, route and driver, or at a capture, and say which cure would help, what it would
    change, and what it expects. Nothing is changed."""
    if capture and live is not None:
        raise typer.BadParameter("--capture and --live exclude each other")
    if host and not capture:
        raise typer.BadParameter("--host needs --capture")
    become(ctx)


@app.command(
    short_help="Apply the cures, in the background.",
    epilog="Example: sudo unbloat agent on --set receive.lambda=2",
)
def on(
    ctx: typer.Context,
    config: Config = None,
    settings: Settings = None,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Wait until each cure is in place and counts the traffic in its scope, at most "
            "this long; exit code 5 if one does nothing while data flows.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Apply the cures, in the background; new settings for an agent that runs."""
    if json:
        become(ctx)
    place: Place = ctx.obj
    if place.ask("on", *words(ctx)).get("state") == "set":
        print("the agent that runs has the new settings")
    place.become("status")


@app.command(short_help="Put everything back exactly.", epilog="Example: sudo unbloat agent off")
def off(ctx: typer.Context, json: Json = False) -> None:
    """Put everything back exactly, whether an agent runs or died."""
    become(ctx)


@app.command(
    short_help="Show what it does, and every connection.",
    epilog="Example: sudo unbloat agent status",
)
def status(ctx: typer.Context, json: Json = False) -> None:
    """What it does, and every connection: RTT, smallest RTT, window wanted and offered, in flight, queue, rate, who holds
    it back."""
    become(ctx)


@app.command(
    short_help="Apply for a while: before and after.",
    epilog="Example: sudo unbloat agent run --for 60s --set receive.lambda=2 --report run.html",
)
def run(
    ctx: typer.Context,
    lasting: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long all of it takes, as 60s.")
    ],
    config: Config = None,
    settings: Settings = None,
    probe: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Ping this host meanwhile, five times a second."),
    ] = None,
    report: Report = None,
    json: Json = False,
) -> None:
    """Look at the traffic that there is, apply the cures, look again, undo: goodput and RTT before and after, and whether it
    helped. Makes no traffic of its own, unless --probe asks for pings."""
    measure(ctx.obj, words(ctx, "report", "json"), report, json)


@app.command(short_help="Watch it at work.", epilog="Example: sudo unbloat agent watch")
def watch(
    ctx: typer.Context,
    lasting: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="Leave after so long, as 10s; otherwise with q."
        ),
    ] = None,
) -> None:
    """Status twice a second, with the course of every RTT and the last lines of the log, until q or Ctrl-C."""
    from unbloat.agent.watch import watch_agent

    watch_agent(ctx.obj, None if lasting is None else span_s(lasting))


@app.command(
    short_help="Say what this kernel can do.", epilog="Example: sudo unbloat agent features"
)
def features(ctx: typer.Context, json: Json = False) -> None:
    """What this kernel can do, and what is missing: asked by trying, not by its version."""
    become(ctx)


@app.command(
    short_help="Print a configuration with every key.",
    epilog="Example: unbloat agent defaults > /etc/unbloat-agent.toml",
)
def defaults(ctx: typer.Context) -> None:
    """A configuration with every key, its default and its meaning."""
    become(ctx)


@app.command(
    short_help="Apply the cures and stay, as systemd wants it.",
    epilog="Example: sudo unbloat agent serve --config /etc/unbloat-agent.toml",
)
def serve(
    ctx: typer.Context,
    config: Config = None,
    settings: Settings = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="An agent that runs hands over without undoing anything: for upgrades.",
        ),
    ] = False,
) -> None:
    """Apply the cures and stay; the program itself takes this one's place."""
    become(ctx)


def measure(place: Place, options: Sequence[str], report: Path | None, as_json: bool) -> None:
    """Runs, shows, and writes."""
    from unbloat.agent.before_after import collect, screen

    if report is not None:
        need_writable(report)  # before a minute has passed
    measured = collect(place, options)
    if as_json:
        print(json.dumps(measured.done))
    else:
        screen(Terminal(sys.stdout), measured.done)
    if report is not None:
        from unbloat.agent.page import write_page

        with writing(report):
            info = write_page(measured, report)
        print(f"report: {info.path}", file=sys.stderr if as_json else sys.stdout)


def words(ctx: typer.Context, *without: str) -> list[str]:
    """The options of a command as words of the program's command line, which has the same ones."""
    found: list[str] = []
    for option in ctx.command.params:
        value = None if option.name in without else ctx.params.get(str(option.name))
        for one in value if isinstance(value, list | tuple) else [value]:
            if one not in (None, False):
                found += [option.opts[0]] if one is True else [option.opts[0], str(one)]
    return found


def become(ctx: typer.Context) -> NoReturn:
    """The program takes over with the same command: its text, its exit code."""
    place: Place = ctx.obj
    place.become(str(ctx.info_name), *words(ctx))


def span_s(text: str) -> float:
    """A time as `10s`, `500 ms`, `2 min`, or a bare number of seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min)?\s*", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time (10s, 500ms, 2min)")
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "min": 60.0}[found[2] or "s"]
