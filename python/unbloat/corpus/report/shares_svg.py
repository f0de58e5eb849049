"""Shares of one as SVG: bars of the same length, or a column for each hour, cut into parts with a colour each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from unbloat.charts.svg import CHARACTER, Scale, line, text
from unbloat.corpus.report.looks import style
from unbloat.corpus.report.shares import Part
from unbloat.text.format import share_text

# Units of the drawing, as those of the charts of claims.
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 400, 4, 6, 4, 22
BAR, LABEL, GAP = 18, 17, 6
COLUMNS_HEIGHT, COLUMNS_LEFT, HOURS = 190, 40, 24

Bar = tuple[str, Sequence[Part], str]
"""A label, the parts, and by which measure they are drawn."""
Words = Callable[[str], str]


def part_text(part: Part, measure: str, words: Words) -> str:
    """A part in words."""
    share = part.shares[measure]
    interval = (
        "" if share.low is None else f" ({share_text(share.low)} to {share_text(share.high)})"
    )
    return f"{words(part.name)} {share_text(share.share)}{interval}"


def whole(label: str, height: float, marks: Sequence[str]) -> str:
    """The drawing, with what it shows in words."""
    return (
        f'<svg class="chart" role="img" aria-label="{escape(label, quote=True)}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}">{"".join(marks)}</svg>'
    )


def bars_svg(title: str, bars: Sequence[Bar], words: Words) -> str:
    """A bar for each row, its label above."""
    across = Scale(0.0, 1.0, LEFT, WIDTH - RIGHT)
    floor = TOP + len(bars) * (LABEL + BAR + GAP)
    marks = [
        line(across(tick), TOP, across(tick), floor, "grid")
        + text(across(tick), floor + 14, f"{tick:.0%}".replace("%", " %"), "middle")
        for tick in (0.25, 0.5, 0.75)
    ]
    said = []
    y = float(TOP)
    for label, parts, measure in bars:
        marks.append(text(LEFT, y + 12, label, "start", "place"))
        y += LABEL
        begin = 0.0
        for part in parts:
            share = part.shares[measure].share
            left, right = across(begin), across(begin + share)
            begin += share
            inside = share_text(share)
            inner = f'<rect x="{left:.1f}" y="{y:.1f}" width="{right - left:.1f}" height="{BAR}" class="part {style(part.name)}"/>'
            if right - left > (len(inside) + 1) * CHARACTER:
                inner += text(
                    (left + right) / 2, y + 13, inside, "middle", f"in-{style(part.name)}"
                )
            marks.append(f"<g><title>{escape(part_text(part, measure, words))}</title>{inner}</g>")
        said.append(f"{label}: " + ", ".join(part_text(part, measure, words) for part in parts))
        y += BAR + GAP
    return whole(f"{title}. {'. '.join(said)}", floor + BOTTOM, marks)


def hours_svg(title: str, hours: Mapping[str, Sequence[Part]], measure: str, words: Words) -> str:
    """A column for each hour of the day; none where nothing began."""
    floor = float(COLUMNS_HEIGHT - BOTTOM)
    up = Scale(0.0, 1.0, floor, 8.0)
    step = (WIDTH - RIGHT - COLUMNS_LEFT) / HOURS
    marks = [
        line(COLUMNS_LEFT, up(share), WIDTH - RIGHT, up(share), "grid")
        + text(COLUMNS_LEFT - 4, up(share) + 4, f"{share:.0%}".replace("%", " %"), "end")
        for share in (0.0, 0.5, 1.0)
    ]
    said = []
    for hour in range(HOURS):
        x = COLUMNS_LEFT + hour * step
        if hour % 3 == 0:
            marks.append(text(x + step / 2, floor + 15, f"{hour:02}", "middle"))
        parts = hours.get(f"{hour:02}", ())
        begin = 0.0
        for part in parts:
            share = part.shares[measure].share
            top, bottom = up(begin + share), up(begin)
            begin += share
            name = escape(f"{hour:02} h: {part_text(part, measure, words)}")
            marks.append(
                f'<rect x="{x + 1:.1f}" y="{top:.1f}" width="{step - 2:.1f}" height="{bottom - top:.1f}" '
                f'class="part {style(part.name)}"><title>{name}</title></rect>'
            )
        if parts:
            listed = ", ".join(part_text(part, measure, words) for part in parts)
            said.append(f"{hour:02} h: {listed}")
    return whole(f"{title}. {'. '.join(said)}", COLUMNS_HEIGHT, marks)
