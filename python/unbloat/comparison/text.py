"""What `compare` prints: measures down, sides across, of runs of a scenario all its figures, and the verdict in words."""

from __future__ import annotations

from unbloat.capture.file_text import flow_text
from unbloat.comparison.compare import Comparison
from unbloat.comparison.flow_measures import SAME_WITHIN
from unbloat.comparison.scenario_metrics import Section
from unbloat.text.table import table
from unbloat.text.terminal import Terminal, left, plain, right

BETTER, WORSE = "▲", "▼"


def compare_screen(terminal: Terminal, comparison: Comparison) -> None:
    """Measures down, sides across; the better and the worse end are marked."""
    label_room = max(len(line.measure.label) for line in comparison.lines) + 1
    room = max(min((terminal.width - label_room) // len(comparison.sides), 28), 12)
    terminal.line(
        terminal.style(
            left("", label_room)
            + "".join(right(plain(label), room - 2) + "  " for label in comparison.labels),
            "bold",
        ).rstrip()
    )
    for line in comparison.lines:
        if line.measure.name.startswith("share_") and not any(line.values):
            continue  # a limit that limited no side
        texts = []
        for place, value in enumerate(line.values):
            mark = BETTER if place in line.best else WORSE if place in line.worst else " "
            text = right(line.measure.text(value), room - 2) + " " + mark
            style = {BETTER: ["green"], WORSE: ["red"]}.get(mark, [])
            texts.append(terminal.style(text, *style))
        terminal.line((left(line.measure.label, label_room) + "".join(texts)).rstrip())
    terminal.line()
    terminal.line(
        terminal.style(f"{BETTER} better, {WORSE} worse by more than {SAME_WITHIN:.0%}", "dim")
    )
    for side in comparison.sides:
        terminal.wrapped(
            f"{side.label}: {plain(side.run.name)}, {flow_text(side.run, side.flow)}", "  ", "  "
        )
    for section in comparison.sections:
        terminal.line()
        section_screen(terminal, section, comparison.labels)
    terminal.line()
    terminal.wrapped(comparison.verdict)


def section_screen(terminal: Terminal, section: Section, labels: list[str]) -> None:
    """One line per figure below the name of what it is about; a column of the differences of two runs."""
    titles = [section.title, *map(plain, labels), *(["difference"] if len(labels) == 2 else [])]
    rows: list[list[str]] = []
    before = None
    for line in section.lines:
        if line.place != before:
            rows.append([line.place, *[""] * (len(titles) - 1)])
            before = line.place
        rows.append(
            [f"  {line.label}", *line.texts, *([line.difference or ""] if len(labels) == 2 else [])]
        )
    table(terminal, titles, rows)
