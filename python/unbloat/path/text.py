"""What `locate` prints: segment by segment, then clocks, what the captures missed, and the verdict.

Everything was measured before. Lines have at most 80 columns.
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
    main_segment,
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
from unbloat.text.terminal import Terminal, cut, left, plain, right, sparkline, width

# Connections on the screen; the others are counted.
LISTED = 5


def path_screen(terminal: Terminal, located: PathTables) -> None:
    """Points, segments in both directions, clocks, what was missed, and the verdict."""
    terminal.line(terminal.style(cut(plain(" – ".join(located.names)), terminal.width), "bold"))
    terminal.wrapped(order_text(located))
    for warning in located.warnings:
        terminal.wrapped(warning, terminal.style("warning: ", "yellow"), " " * 9)
    for direction in (FORWARD, BACKWARD):
        terminal.line()
        direction_table(terminal, located, direction)
    terminal.line()
    for line in (*clock_lines(located), *fact_lines(located), *quality_lines(located)):
        terminal.wrapped(line, "  ", "  ")
    connection_lines(terminal, located)
    terminal.line()
    terminal.wrapped(verdict(located))


def direction_table(terminal: Terminal, located: PathTables, direction: str) -> None:
    """A line per segment: delay, queue, its share, losses, and how the queue went over time."""
    rows = located.segments(direction)
    names = [row.name for row in rows]
    path = located.path(direction)
    if path.row["whole_path"]:
        rows, names = [*rows, path], [*names, "whole path"]
    figures = (10, 10, 10, 10, 8, 8)
    room = max(min(max(width(plain(name)) for name in names), terminal.width - sum(figures)), 10)
    word = located.way(direction)
    heads = ("min delay", "queue p50", "p95", "max", "share", "lost")
    title = left(word, room) + "".join(
        right(head, size) for head, size in zip(heads, figures, strict=True)
    )
    terminal.line(terminal.style(title, "dim"))
    # Shares of next to nothing say nothing.
    queued_at_all = (path.queue_ms or 0) >= SMALL_MS
    for name, segment in zip(names, rows, strict=True):
        row = segment.row
        if not row["packets"] and not row["lost_packets"]:
            terminal.line(left(plain(name), room) + right("no packet", figures[0]))
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
            segment.queue_ms is not None
            and segment.queue_ms >= STANDING_MS
            and not row["whole_path"]
        )
        terminal.line(terminal.style(text, "bold") if queued else text)
    worst = main_segment(located, direction)
    if worst is not None and (worst.queue_ms or 0) >= SMALL_MS:
        values = located.delays(worst.row["id"]).column("queue_ms").to_pylist()
        label = f"  {worst.name} "
        terminal.line(
            terminal.style(label, "dim")
            + sparkline(values, max(terminal.width - width(label) - 14, 10))
            + f" {ms_text(max((value for value in values if value is not None), default=None))} max"
        )


def connection_lines(terminal: Terminal, located: PathTables) -> None:
    """The largest connections, with their numbers for `--connection`."""
    rows = located.connections
    if len(rows) < 2:
        return
    terminal.line()
    for row in rows[:LISTED]:
        a, b = (
            endpoint_text(row["a_addr"], row["a_port"]),
            endpoint_text(row["b_addr"], row["b_port"]),
        )
        terminal.line(
            cut(
                f"{row['id']:>4}  {proto_text(row['proto'])} {a} – {b}  {byte_text(row['bytes'])}",
                terminal.width,
            )
        )
    if len(rows) > LISTED:
        terminal.line(
            terminal.style(f"      and {plural(len(rows) - LISTED, 'more connection')}", "dim")
        )
