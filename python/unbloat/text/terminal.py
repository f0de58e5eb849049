"""Writing to a terminal, or to what is none: styles only where they can be seen, widths that fit.

`NO_COLOR` is honoured, and nothing that a capture or a file name contains can reach the terminal as a control sequence.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Sequence
from typing import TextIO

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# Text is wrapped here even on a wide screen: longer lines are hard to read.
READABLE = 100
SPARKS = "▁▂▃▄▅▆▇█"
BAR = "█"


class Terminal:
    """Where results go."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.styled = (
            stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        # Without a terminal COLUMNS decides, else the classic 80.
        self.width = max(shutil.get_terminal_size((80, 24)).columns, 40)

    def line(self, text: str = "") -> None:
        """One line."""
        self.stream.write(text + "\n")

    def style(self, text: str, *styles: str) -> str:
        """Text in a style, where that can be seen."""
        if not self.styled or not styles:
            return text
        return f"\x1b[{';'.join(STYLES[style] for style in styles)}m{text}\x1b[0m"

    def wrapped(self, text: str, first: str = "", rest: str = "") -> None:
        """A paragraph, its first line led by `first` (which may be styled) and the others by `rest`."""
        room = min(self.width, READABLE) - width(rest or first)
        for number, part in enumerate(wrap(plain(text), room)):
            self.line((rest if number else first) + part)


def plain(text: str) -> str:
    """Text without control characters; a file may be called anything."""
    return "".join(
        char if unicodedata.category(char) not in ("Cc", "Cs", "Cf") else "�" for char in text
    )


def width(text: str) -> int:
    """Cells that a text takes, styles not counted."""
    cells, escaped = 0, False
    for char in text:
        if escaped:
            escaped = char != "m"
        elif char == "\x1b":
            escaped = True
        elif not unicodedata.combining(char):
            cells += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return cells


def wrap(text: str, room: int) -> list[str]:
    """Lines no longer than `room`, broken at blanks; a number is not torn from its unit."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        for piece in [word[place : place + room] for place in range(0, len(word), room)] or [""]:
            if current and width(current) + 1 + width(piece) > room:
                lines.append(current)
                current = piece
            else:
                current = f"{current} {piece}" if current else piece
    return [*lines, current]


def left(text: str, room: int) -> str:
    """Padded on the right; what is too long ends in an ellipsis."""
    text = cut(text, room)
    return text + " " * (room - width(text))


def right(text: str, room: int) -> str:
    """Padded on the left."""
    text = cut(text, room)
    return " " * (room - width(text)) + text


def cut(text: str, room: int) -> str:
    """At most `room` cells. Styled text is never too long: it is made to measure."""
    if width(text) <= room:
        return text
    while text and width(text) > room - 1:
        text = text[:-1]
    return text + "…"


def sparkline(values: Sequence[float | None], room: int) -> str:
    """A series as blocks from 0 to its maximum, each cell the largest of what falls into it; nothing where nothing was measured."""
    if not values:
        return ""
    cells: list[float | None] = []
    count = min(room, len(values))
    for cell in range(count):
        part = values[cell * len(values) // count : (cell + 1) * len(values) // count]
        known = [value for value in part if value is not None]
        cells.append(max(known) if known else None)
    top = max((value for value in cells if value is not None), default=0.0)
    return "".join(" " if value is None else SPARKS[spark(value, top)] for value in cells)


def spark(value: float, top: float) -> int:
    """Which block."""
    return 0 if top <= 0 else min(int(value / top * len(SPARKS)), len(SPARKS) - 1)


def on_grid(
    times: Sequence[float], values: Sequence[float | None], cells: int, mean: bool = False
) -> list[float | None]:
    """The largest (or mean) value in each of `cells` equal spans of time; a span without a bin stays empty."""
    begin, length = times[0], max(times[-1] - times[0], 1e-9)
    found: list[list[float]] = [[] for _ in range(cells)]
    for time, value in zip(times, values, strict=True):
        if value is not None:
            found[min(int((time - begin) / length * cells), cells - 1)].append(value)
    return [None if not part else sum(part) / len(part) if mean else max(part) for part in found]
