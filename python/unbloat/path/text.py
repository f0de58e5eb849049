"""What `locate` says: stretch by stretch on a screen, and in one paragraph.

signal: a `Located` · model: none, everything was measured before; how much is worth a word is decided here · action: lines
of at most 80 columns.
"""

from __future__ import annotations

from unbloat.capture.file_text import proto_text
from unbloat.path.tables import (
    BACKWARD,
    FORWARD,
    SMALL_MS,
    STANDING_MS,
    PathTables,
)
from unbloat.path.words import (
    clock_lines,
    fact_lines,
    main_stretch,
    order_text,
    quality_lines,
    verdict,
)
from unbloat.text.format import (
    byte_text,
    count_text,
    endpoint_text,
    ms_text,
    plural,
    share_text,
)
from unbloat.text.terminal import Paper, cut, left, plain, right, sparkline, width

# Connections on the screen; the others are counted.
LISTED = 5


def path_screen(paper: Paper, located: PathTables) -> None:
    """Points, stretches in both directions, clocks, what was missed, and the verdict."""
    paper.line(paper.style(cut(plain(" – ".join(located.names)), paper.width), "bold"))
    paper.wrapped(order_text(located))
    for warning in located.warnings:
        paper.wrapped(warning, paper.style("warning: ", "yellow"), " " * 9)
    for direction in (FORWARD, BACKWARD):
        paper.line()
        direction_table(paper, located, direction)
    paper.line()
    for line in (*clock_lines(located), *fact_lines(located), *quality_lines(located)):
        paper.wrapped(line, "  ", "  ")
    connection_lines(paper, located)
    paper.line()
    paper.wrapped(verdict(located))


def direction_table(paper: Paper, located: PathTables, direction: str) -> None:
    """A line per stretch: delay, queue, its share, losses, and how the queue went over time."""
    rows = located.stretches(direction)
    names = [row.name for row in rows]
    path = located.path(direction)
    if path.row["whole_path"]:
        rows, names = [*rows, path], [*names, "whole path"]
    figures = (10, 10, 10, 10, 8, 8)
    room = max(min(max(width(plain(name)) for name in names), paper.width - sum(figures)), 10)
    word = located.way(direction)
    heads = ("least", "queue p50", "p95", "max", "share", "lost")
    title = left(word, room) + "".join(
        right(head, size) for head, size in zip(heads, figures, strict=True)
    )
    paper.line(paper.style(title, "dim"))
    # Shares of next to nothing say nothing.
    queued_at_all = (path.queue_ms or 0) >= SMALL_MS
    for name, stretch in zip(names, rows, strict=True):
        row = stretch.row
        if not row["packets"] and not row["lost_packets"]:
            paper.line(left(plain(name), room) + right("no packet", figures[0]))
            continue
        cells = (
            ms_text(row["delay_ms_min"]),
            ms_text(row["queue_ms_p50"]),
            ms_text(row["queue_ms_p95"]),
            ms_text(row["queue_ms_max"]),
            "" if row["whole_path"] or not queued_at_all else share_text(row["share"]),
            "" if row["whole_path"] else count_text(row["lost_packets"]),
        )
        text = left(plain(name), room) + "".join(
            right(c, size) for c, size in zip(cells, figures, strict=True)
        )
        queued = (
            stretch.queue_ms is not None
            and stretch.queue_ms >= STANDING_MS
            and not row["whole_path"]
        )
        paper.line(paper.style(text, "bold") if queued else text)
    worst = main_stretch(located, direction)
    if worst is not None and (worst.queue_ms or 0) >= SMALL_MS:
        values = located.delays(worst.row["id"]).column("queue_ms").to_pylist()
        label = f"  {worst.name} "
        paper.line(
            paper.style(label, "dim")
            + sparkline(values, max(paper.width - width(label) - 14, 10))
            + f" {ms_text(max((value for value in values if value is not None), default=None))} most"
        )


def connection_lines(paper: Paper, located: PathTables) -> None:
    """The largest connections, with their numbers for `--connection`."""
    rows = located.connections
    if len(rows) < 2:
        return
    paper.line()
    for row in rows[:LISTED]:
        a, b = (
            endpoint_text(row["a_addr"], row["a_port"]),
            endpoint_text(row["b_addr"], row["b_port"]),
        )
        paper.line(
            cut(
                f"{row['id']:>4}  {proto_text(row['proto'])} {a} – {b}  {byte_text(row['bytes'])}",
                paper.width,
            )
        )
    if len(rows) > LISTED:
        paper.line(paper.style(f"      and {plural(len(rows) - LISTED, 'more connection')}", "dim"))
