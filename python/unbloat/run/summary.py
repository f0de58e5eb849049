"""The run of a scenario in tables of text: transfers, queues, probes, applications. The screen and the report show them."""

from __future__ import annotations

from collections.abc import Callable

from unbloat.run.figures import Figures, Statistics, statistics
from unbloat.run.tables import RunTables
from unbloat.text.format import (
    app_words,
    byte_text,
    count_text,
    limit_text,
    ms_range,
    ms_text,
    rate_text,
    seconds_text,
)
from unbloat.text.table import Cells


def run_tables(run: RunTables) -> list[tuple[Cells, list[Cells]]]:
    """Transfers, queues, probes and applications: titles and rows of what there is."""
    figures = Figures(run)
    stages = [row for link in figures.links for row in stage_rows(figures, link)]
    probes = [probe_row(figures, probe) for probe in figures.probes]
    apps = [row for transfer in figures.transfers for row in app_rows(figures, transfer)]
    tables: list[tuple[Cells, list[Cells]]] = [
        transfer_table(figures),
        (("queue", "p50", "p95", "max", "throughput", "dropped", "lost"), stages),
        (("probe", "p50", "p95", "p99", "max", "sent", "lost"), probes),
        (("application", "figure", "p50", "p95", "max", "times"), apps),
    ]
    return [(titles, rows) for titles, rows in tables if rows]


def transfer_table(figures: Figures) -> tuple[Cells, list[Cells]]:
    """One row per transfer."""
    titles = (
        "transfer",
        "goodput",
        "RTT p50 → p95",
        "queue p50→p95",
        "in flight",
        "retrans",
        "limit",
    )
    rows: list[Cells] = []
    for name in figures.transfers:
        flows = figures.flows(name)
        if not flows:
            if not figures.app_kinds(name):  # of a call its application reports everything
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


def stage_rows(figures: Figures, link: str) -> list[Cells]:
    """Queue, or qdisc and firmware, of one link; none where nothing went through."""
    rows: list[Cells] = []
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


def probe_row(figures: Figures, probe: str) -> Cells:
    """One row per probe."""
    times = figures.probe(probe, "rtt_ms") or figures.probe(probe, "owd_ms")
    sent, lost = figures.probe_counts(probe)
    parts = (part(times, name) for name in ("p50", "p95", "p99", "max"))
    return (probe, *parts, count_text(sent), count_text(lost))


def app_rows(figures: Figures, transfer: str) -> list[Cells]:
    """One row per kind of figure that an application reported."""
    rows: list[Cells] = []
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
