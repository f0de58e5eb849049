"""What `compare` prints: measures down, sides across, and the verdict in words."""

from __future__ import annotations

from unbloat.compare import Comparison
from unbloat.screens import flow_text
from unbloat.terminal import Paper, left, plain, right


def compare_screen(paper: Paper, comparison: Comparison) -> None:
    """Measures down, sides across; + marks the better end, − the worse."""
    label_room = max(len(line.measure.label) for line in comparison.lines) + 1
    room = max(min((paper.width - label_room) // len(comparison.sides), 28), 12)
    paper.line(
        paper.style(
            left("", label_room)
            + "".join(right(plain(label), room - 2) + "  " for label in comparison.labels),
            "bold",
        ).rstrip()
    )
    for line in comparison.lines:
        texts = []
        for place, value in enumerate(line.values):
            mark = "+" if place in line.best else "−" if place in line.worst else " "
            text = right(line.measure.text(value), room - 2) + " " + mark
            style = {"+": ["green"], "−": ["red"]}.get(mark, [])
            texts.append(paper.style(text, *style))
        paper.line((left(line.measure.label, label_room) + "".join(texts)).rstrip())
    paper.line()
    for side in comparison.sides:
        paper.wrapped(f"{side.label}: {plain(side.run.name)}, {flow_text(side.run, side.flow)}", "  ", "  ")
    paper.line()
    paper.wrapped(comparison.verdict)
