"""Columns of text that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from unbloat.text.terminal import Terminal, cut, left, plain, right, width

Cells = Sequence[str]
# Between two columns.
GAP = 2
# Of a label, so that figures stay in sight, and it can be distinguished from others.
MAX_LABEL, MIN_LABEL = 40, 8


def table(
    terminal: Terminal,
    titles: Cells,
    rows: Sequence[Cells],
    left_columns: int = 1,
    names: Sequence[str] = (),
) -> None:
    """Columns as wide as they must be; names on the left, figures on the right, or below their names where both do not
    fit; figures with their titles, one after the other, where they alone do not fit."""
    rooms = [max(width(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
    for place in range(left_columns):
        rooms[place] = min(rooms[place], MAX_LABEL)
    over = sum(rooms) + GAP * (len(rooms) - 1) - terminal.width
    if over > 0 and (names or (left_columns > 1 and rooms[0] - over < MIN_LABEL)):
        paragraphs(terminal, titles, rows, left_columns, names)
        return
    if over > 0 and left_columns == 1 and rooms[0] - over < MIN_LABEL:
        # The name stands above its figures.
        table(
            terminal,
            ("", *titles[1:]),
            [("", *row[1:]) for row in rows],
            names=[titles[0], *(row[0] for row in rows)],
        )
        return
    rooms[0] = rooms[0] - max(over, 0)

    def line(cells: Cells) -> str:
        parts = [
            left(plain(cell), room) if place < left_columns else right(cell, room)
            for place, (cell, room) in enumerate(zip(cells, rooms, strict=True))
        ]
        return (" " * GAP).join(parts).rstrip()

    if names:
        terminal.line(terminal.style(names[0], "dim"))
    terminal.line(terminal.style(line(titles), "dim"))
    for place, row in enumerate(rows):
        if names:
            terminal.line(cut(plain(names[place + 1]), terminal.width))
        terminal.line(line(row))


def paragraphs(
    terminal: Terminal,
    titles: Cells,
    rows: Sequence[Cells],
    left_columns: int,
    names: Sequence[str],
) -> None:
    """Rows without columns: a name, and below it every figure behind its title."""
    for place, row in enumerate(rows):
        name = names[place + 1] if names else " · ".join(row[:left_columns])
        terminal.line(cut(plain(name), terminal.width))
        pairs = zip(titles[left_columns:], row[left_columns:], strict=True)
        # No line break between a title and its figure, unless it is longer than a line.
        words = [f"{title} {cell}".replace(" ", "\u00a0") for title, cell in pairs if cell]
        terminal.wrapped(" · ".join(words), " " * GAP, " " * GAP)


def tables(terminal: Terminal, titles: Cells, rows: Sequence[Cells], labels: int) -> None:
    """One table where the screen holds it, else several below each other, each with the labels on the left."""
    rest = list(range(labels, len(titles)))
    while rest:
        kept = fitting(titles, rows, terminal.width, labels, rest)
        places = [*range(labels), *kept]
        table(
            terminal,
            [titles[place] for place in places],
            [[row[place] for place in places] for row in rows],
            labels,
        )
        rest = [place for place in rest if place not in kept]
        if rest:
            terminal.line()


def fitting(
    titles: Cells, rows: Sequence[Cells], room: int, labels: int, columns: Sequence[int]
) -> list[int]:
    """Those of the columns that the screen holds beside the labels; the first of them in any case."""
    rooms = [max(width(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
    used = sum(rooms[:labels]) + GAP * labels
    kept: list[int] = []
    for place in columns:
        if not kept or used + rooms[place] <= room:
            kept.append(place)
            used += rooms[place] + GAP
    return kept
