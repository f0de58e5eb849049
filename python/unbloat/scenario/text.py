"""What `sim` prints: of one run its transfers, queues, probes and applications; of a sweep one row per case.

signal: a `RunSet` · model: none, every figure comes from `figures.py` · action: lines; tables that shrink to what the
terminal holds, the figures that decide first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from unbloat.run.metrics import Figures, Statistics
from unbloat.run.run import Run
from unbloat.scenario.confidence import Spread
from unbloat.scenario.expectations import Check, label_text
from unbloat.scenario.sweep import RunSet
from unbloat.text.format import (
    byte_text,
    count_text,
    limit_text,
    ms_range,
    ms_text,
    number,
    plural,
    rate_text,
    seconds_text,
)
from unbloat.text.terminal import Paper, cut, left, plain, right, width

Row = Sequence[str]
# Between two columns.
GAP = 2
# Of a label, so that figures stay in sight, and it can be told from others.
LONGEST_LABEL, LEAST_LABEL = 40, 8


def sim_screen(paper: Paper, runs: RunSet) -> None:
    """A single run in full, several as a table; then what was expected."""
    if len(runs) == 1:
        run_screen(paper, runs.runs[0])
    else:
        sweep_screen(paper, runs)
    for one in runs.skipped:
        where = ", ".join(f"{key}={value}" for key, value in one.labels)
        paper.wrapped(
            f"{where}: {one.reason}" if where else one.reason,
            paper.style("skipped: ", "yellow"),
            " " * 9,
        )
    checks_screen(paper, runs)


def run_screen(paper: Paper, run: Run) -> None:
    """One run."""
    size = f"{seconds_text(run.info['duration_s'])} · {plural(run.info['packets'], 'packet')} · seed {run.info['seed']}"
    paper.line(
        f"{paper.style(cut(plain(run.name), max(paper.width - width(size) - 3, 12)), 'bold')} · {size}"
    )
    if run.info.get("about"):
        paper.wrapped(str(run.info["about"]))
    for warning in run.warnings:
        paper.wrapped(warning, paper.style("warning: ", "yellow"), " " * 9)
    for titles, rows in run_tables(run):
        paper.line()
        table(paper, titles, rows, left_columns=2 if titles[1] == "figure" else 1)


def run_tables(run: Run) -> list[tuple[Row, list[Row]]]:
    """Transfers, queues, probes and applications: titles and rows of what there is."""
    figures = Figures(run)
    stages = [row for link in figures.links for row in stage_rows(figures, link)]
    probes = [probe_row(figures, probe) for probe in figures.probes]
    apps = [row for transfer in figures.transfers for row in app_rows(figures, transfer)]
    tables: list[tuple[Row, list[Row]]] = [
        transfer_table(figures),
        (("queue", "p50", "p95", "max", "throughput", "dropped", "lost"), stages),
        (("probe", "p50", "p95", "p99", "max", "sent", "lost"), probes),
        (("application", "figure", "p50", "p95", "max", "times"), apps),
    ]
    return [(titles, rows) for titles, rows in tables if rows]


def transfer_table(figures: Figures) -> tuple[Row, list[Row]]:
    """One row per transfer."""
    titles = (
        "transfer",
        "goodput",
        "RTT p50 → p95",
        "queue p50→p95",
        "in flight",
        "resent",
        "limit",
    )
    rows: list[Row] = []
    for name in figures.transfers:
        flows = figures.flows(name)
        if not flows:
            if not figures.app_kinds(name):  # of a call its application tells everything
                rows.append((name, *["–"] * 6))
            continue
        flight = figures.in_flight_bytes(name)
        rows.append(
            (
                name if len(flows) == 1 else f"{name} ({len(flows)})",
                rate_text(figures.goodput_bps(name)),
                usual(figures.rtt_ms(name)),
                usual(figures.transfer_queue_ms(name)),
                byte_text(flight.p95 if flight else None),
                count_text(figures.sum(name, "retransmissions")),
                limit_text(figures.limit(name)),
            )
        )
    return titles, rows


def usual(of: Statistics | None) -> str:
    """`45 → 90 ms`"""
    return ms_range(of.p50, of.p95) if of else "–"


def part(of: Statistics | None, name: str, text: Callable[[float | None], str] = ms_text) -> str:
    """One figure of a distribution."""
    return text(None if of is None else getattr(of, name))


def stage_rows(figures: Figures, link: str) -> list[Row]:
    """Queue, or qdisc and firmware, of one link; none where nothing went through."""
    rows: list[Row] = []
    names = figures.stages(link)
    for stage in names:
        row = figures.stage(link, stage)
        if row is None or not row["packets"]:
            continue
        of, first = figures.stage_ms(link, stage), stage == names[0]
        rows.append(
            (
                link if stage == "queue" else f"{link} {stage}",
                part(of, "p50"),
                part(of, "p95"),
                part(of, "max"),
                rate_text(row["throughput_bps"]) if first else "",
                count_text(row["drops_overflow"] + row["drops_aqm"]) if first else "",
                count_text(row["lost_on_link"]) if first else "",
            )
        )
    return rows


def probe_row(figures: Figures, probe: str) -> Row:
    """One row per probe."""
    times = figures.probe(probe, "rtt_ms") or figures.probe(probe, "owd_ms")
    sent, lost = figures.probe_counts(probe)
    parts = (part(times, name) for name in ("p50", "p95", "p99", "max"))
    return (probe, *parts, count_text(sent), count_text(lost))


def app_rows(figures: Figures, transfer: str) -> list[Row]:
    """One row per thing that an application told."""
    from unbloat.run.metrics import statistics

    rows: list[Row] = []
    for kind in figures.app_kinds(transfer):
        of = statistics(figures.app(transfer, kind))
        if of is None:
            continue
        words, text = app_words(kind)
        rows.append(
            (transfer, words, text(of.p50), text(of.p95), text(of.max), count_text(of.count))
        )
    stalled = figures.stall_s(transfer)
    if stalled is not None:
        rows.append((transfer, "stalled in all", seconds_text(stalled), "", "", ""))
    return rows


def app_words(kind: str) -> tuple[str, Callable[[float | None], str]]:
    """A figure's name in words and how it is written; the unit is in its name."""
    for ending, text in (
        ("_ms", ms_text),
        ("_bps", rate_text),
        ("_bytes", byte_text),
        ("_s", seconds_text),
    ):
        if kind.endswith(ending):
            return kind.removesuffix(ending).replace("_", " "), text
    return kind.replace("_", " "), score_text


def table(
    paper: Paper, titles: Row, rows: Sequence[Row], left_columns: int = 1, names: Sequence[str] = ()
) -> None:
    """Columns as wide as they must be; names on the left, figures on the right, or below their names where both do not
    fit; figures with their titles, one after the other, where they alone do not fit."""
    rooms = [max(width(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
    for place in range(left_columns):
        rooms[place] = min(rooms[place], LONGEST_LABEL)
    over = sum(rooms) + GAP * (len(rooms) - 1) - paper.width
    if over > 0 and (names or (left_columns > 1 and rooms[0] - over < LEAST_LABEL)):
        paragraphs(paper, titles, rows, left_columns, names)
        return
    if over > 0 and left_columns == 1 and rooms[0] - over < LEAST_LABEL:
        # The name stands above its figures.
        table(
            paper,
            ("", *titles[1:]),
            [("", *row[1:]) for row in rows],
            names=[titles[0], *(row[0] for row in rows)],
        )
        return
    rooms[0] = rooms[0] - max(over, 0)

    def line(cells: Row) -> str:
        parts = [
            left(plain(cell), room) if place < left_columns else right(cell, room)
            for place, (cell, room) in enumerate(zip(cells, rooms, strict=True))
        ]
        return (" " * GAP).join(parts).rstrip()

    if names:
        paper.line(paper.style(names[0], "dim"))
    paper.line(paper.style(line(titles), "dim"))
    for place, row in enumerate(rows):
        if names:
            paper.line(cut(plain(names[place + 1]), paper.width))
        paper.line(line(row))


def paragraphs(
    paper: Paper, titles: Row, rows: Sequence[Row], left_columns: int, names: Sequence[str]
) -> None:
    """Rows without columns: a name, and below it every figure behind its title."""
    for place, row in enumerate(rows):
        name = names[place + 1] if names else " · ".join(row[:left_columns])
        paper.line(cut(plain(name), paper.width))
        pairs = zip(titles[left_columns:], row[left_columns:], strict=True)
        # No line break between a title and its figure, unless it is longer than a line.
        told = [f"{title} {cell}".replace(" ", "\u00a0") for title, cell in pairs if cell]
        paper.wrapped(" · ".join(told), " " * GAP, " " * GAP)


def sweep_screen(paper: Paper, runs: RunSet) -> None:
    """One row per case: labels, then the figures that the cases have, as many as fit."""
    cases = runs.cases
    repeated = max(len(case.runs) for case in cases)
    seeds = f" · {repeated} seeds each" if repeated > 1 else ""
    paper.line(
        f"{paper.style(plain(runs.name), 'bold')} · {plural(len(cases), 'case')}{seeds} · {seconds_text(runs[0].info['duration_s'])} each"
    )
    for warning in dict.fromkeys(warning for run in runs for warning in run.warnings):
        paper.wrapped(warning, paper.style("warning: ", "yellow"), " " * 9)
    paper.line()
    keys = [key for key, _ in cases[0].labels] or ["run"]
    columns = key_figures(runs)
    titles = (*keys, *(title for title, _, _ in columns))
    rows: list[Row] = [
        (
            *([value for _, value in case.labels] or [runs.name]),
            *(spread_text(case.figures.get(name), text) for _, name, text in columns),
        )
        for case in cases
    ]
    leads = runs.lead_flows([case.runs[0] for case in cases])
    if leads is not None:
        titles = (*titles, "limit")
        limits = [case.runs[0].flow(flow)["limit"] for case, flow in zip(cases, leads, strict=True)]
        rows = [(*row, limit_text(limit)) for row, limit in zip(rows, limits, strict=True)]
    kept = fitting(titles, rows, paper.width, len(keys))
    table(
        paper,
        [titles[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        len(keys),
    )
    if runs.lead is not None and len(runs[0].info["transfers"]) > 1:
        words = f"goodput of all transfers together; RTT, queue, resent and limit of {runs.lead}"
        paper.wrapped(words)
    if repeated > 1:
        paper.line(paper.style("± half the 95 % confidence interval of the mean", "dim"))


def fitting(titles: Row, rows: Sequence[Row], room: int, labels: int) -> list[int]:
    """Columns that the screen holds; labels always."""
    kept: list[int] = []
    used = 0
    for place, column in enumerate(zip(titles, *rows, strict=True)):
        needed = max(width(cell) for cell in column) + GAP
        if place < labels or used + needed - GAP <= room:
            kept.append(place)
            used += needed
    return kept


def spread_text(value: Spread | None, text: Callable[[float | None], str]) -> str:
    """`4.0 ± 0.1 Mbit/s`; the interval only where there is one."""
    if value is None:
        return "–"
    shown = text(value.mean)
    if value.half is None:
        return shown
    figure, _, unit = shown.partition(" ")
    if value.half == 0:
        return f"{figure} ± 0 {unit}".rstrip()
    try:
        size = float(figure.replace(",", ""))
    except ValueError:  # "< 0.01 ms"
        return f"{shown} ± {text(value.half)}"
    # The unit's prefix is a power of ten: both figures are told in the one that suits the mean.
    scale = 10.0 ** round(math.log10(abs(value.mean / size))) if size and value.mean else 1.0
    half = number(value.half / scale)
    return f"{figure} ± {'0' if half.startswith('<') else half} {unit}".rstrip()


def score_text(value: float | None) -> str:
    """A score or an index, to the second place."""
    return "–" if value is None else f"{value:.2f}"


def mean_count_text(value: float | None) -> str:
    """A count, or the mean of several."""
    return "–" if value is None else f"{value:,.0f}" if value == round(value) else number(value)


def key_figures(runs: RunSet) -> list[tuple[str, str, Callable[[float | None], str]]]:
    """Title, name and form of the figures of a sweep's table, those that decide first."""
    run = runs.runs[0]
    figures = Figures(run)
    main = runs.lead
    found: list[tuple[str, str, Callable[[float | None], str]]] = [
        ("goodput", "total_goodput_bps", rate_text)
    ]
    if main is not None:
        found += [
            ("RTT p50", f"{main}.rtt_ms_p50", ms_text),
            ("p95", f"{main}.rtt_ms_p95", ms_text),
            ("queue p95", f"{main}.queue_ms_p95", ms_text),
        ]
    for name in figures.probes:
        kind = "rtt_ms" if figures.probe(name, "rtt_ms") else "owd_ms"
        found += [
            (f"{name} p50", f"{name}.{kind}_p50", ms_text),
            (f"{name} p95", f"{name}.{kind}_p95", ms_text),
        ]
    for name in figures.transfers:
        found += [
            ("page p50", f"{name}.page_load_ms_p50", ms_text),
            ("file", f"{name}.file_ms_mean", ms_text),
            ("response p50", f"{name}.response_ms_p50", ms_text),
            ("video", f"{name}.bitrate_bps_mean", rate_text),
            ("stalled", f"{name}.stall_s", seconds_text),
            ("MOS", f"{name}.mos", score_text),
        ]
    if len(figures.transfers) > 1:
        found.append(("fairness", "fairness", score_text))
    if main is not None:
        found.append(("resent", f"{main}.retransmissions", mean_count_text))
    have = {name for case in runs.cases for name in case.figures}
    return [one for one in found if one[1] in have]


def checks_screen(paper: Paper, runs: RunSet) -> None:
    """Each expectation, held or not."""
    if not runs.checks:
        return
    paper.line()
    for label, checks in by_case(runs):
        failed = [check for check in checks if not check.held]
        check = (failed or checks)[0]
        mark = (
            paper.style("not held", "red", "bold") if failed else paper.style("held    ", "green")
        )
        where = f"{label}: " if label else ""
        line = f" (line {check.line})" if check.line is not None else ""
        seeds = f", {'not ' if failed else ''}with {len(failed or checks)} of {len(checks)} seeds"
        paper.wrapped(
            f"{where}{check.text}{line}{seeds if len(checks) > 1 else ''}", f"{mark}  ", " " * 10
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
