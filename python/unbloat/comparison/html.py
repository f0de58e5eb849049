"""A comparison in a notebook: the verdict and the table of measures."""

from __future__ import annotations

from html import escape

from unbloat.comparison.sides import Sides


def comparison_html(comparison: Sides) -> str:
    """The verdict and the table of measures."""
    head = "".join(f"<th>{escape(label)}</th>" for label in comparison.labels)
    rows = []
    for line in comparison.lines:
        cells = "".join(
            f"<td>{'<b>' if place in line.best else ''}{escape(line.measure.text(value))}{'</b>' if place in line.best else ''}</td>"
            for place, value in enumerate(line.values)
        )
        rows.append(f"<tr><th>{escape(line.measure.label)}</th>{cells}</tr>")
    return (
        f"<p>{escape(comparison.verdict)}</p><table><tr><th></th>{head}</tr>{''.join(rows)}</table>"
    )
