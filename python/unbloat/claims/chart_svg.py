"""Charts of claims as SVG: bars or curves of ours with 95 % intervals, and the source's points as diamonds.

Colours are the page's variables, so that a chart follows its theme. Every mark has its numbers as a title, and the chart
says them all in words for readers who do not see it. Nothing is drawn that is not in the points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from unbloat.charts.svg import CHARACTER, Scale, diamond, line, number_text, text, upright
from unbloat.claims.chart import Chart, Guide, Said
from unbloat.claims.chart_points import MAX_MARKED, Drawn, Point

# Units of the drawing: as wide as a phone's screen less the page's margins, so that text is nowhere smaller than 10 px.
WIDTH, LINE_HEIGHT_PX = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 8, 38
# Curves have the label of their values above, where a long one has room.
LINES_TOP = 26
BAR, BAR_GAP, LABEL = 11, 3, 17
# Colours of the page (`--s0` …).
COLOURS = 6


def ends_of(point: Point) -> list[float]:
    """Every number that a point has to show."""
    said = [] if point.said is None else [point.said.least, point.said.most]
    ours = [] if point.ours is None else [point.ours - point.half, point.ours + point.half]
    return [*ours, *(one for one in said if one is not None)]


def value_scale(chart: Chart, series: Sequence[Drawn], begin: float, end: float) -> Scale:
    """The axis of values: from 0, unless it is logarithmic, to a little beyond the largest."""
    values = [value for one in series for point in one.points for value in ends_of(point)]
    values += [guide.at / chart.factor for guide in chart.guides if guide.axis == "y"]
    values = values or [0.0]
    if chart.log:
        above = [value for value in values if value > 0] or [1.0]
        return Scale(min(above) / 1.25, max(above) * 1.25, begin, end, True)
    least, most = min(0.0, *values), max(0.0, *values)
    room = (most - least or 1.0) * 0.06
    return Scale(least - (room if least < 0 else 0.0), most + room, begin, end)


def said_text(said: Said) -> str:
    """What the source says, in words."""
    if said.least is not None and said.most is not None:
        low, high = number_text(said.least), number_text(said.most)
        return low if low == high else f"{low} to {high}"
    if said.least is not None:
        return f"at least {number_text(said.least)}"
    return "–" if said.most is None else f"at most {number_text(said.most)}"


def point_text(chart: Chart, name: str, point: Point) -> str:
    """A point in words."""
    ours = "nothing measured" if point.ours is None else number_text(point.ours)
    half = f" ± {number_text(point.half)}" if point.half else ""
    unit = "" if chart.unit == "1" else f" {chart.unit}"
    said = "" if point.said is None else f"; {chart.points} {said_text(point.said)}{unit}"
    return f"{name}, {point.at}: ours {ours}{half}{unit}{said}"


def chart_svg(chart: Chart, series: Sequence[Drawn]) -> str:
    """The drawing."""
    return bars(chart, series) if chart.kind == "bars" else lines(chart, series)


def svg(chart: Chart, series: Sequence[Drawn], height: float, marks: Sequence[str]) -> str:
    """The whole, with what it shows in words; a curve's points are too many to be read out."""
    words = [
        point_text(chart, one.name, point)
        for one in series
        for point in one.points
        if not one.curve or point.said is not None
    ]
    label = escape(f"{chart.axis}, by {chart.x}. {'. '.join(words)}", quote=True)
    return (
        f'<svg class="chart" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {height:.0f}">'
        f"{''.join(marks)}</svg>"
    )


def bars(chart: Chart, series: Sequence[Drawn]) -> str:
    """A group of bars for each place, with its label above."""
    begin, end = 10.0, WIDTH - RIGHT
    scale = value_scale(chart, series, begin, end)
    groups: dict[str, list[tuple[int, str, Point]]] = {}
    for n, one in enumerate(series):
        for point in one.points:
            groups.setdefault(point.at, []).append((n, one.name, point))
    rows = sum(LABEL + len(group) * (BAR + BAR_GAP) + 4 for group in groups.values())
    height = TOP + rows + BOTTOM
    marks = [upright(scale, tick, TOP, TOP + rows) for tick in scale.ticks()]
    marks += [
        upright_guide(scale(guide.at / chart.factor), TOP + rows, guide.label)
        for guide in chart.guides
    ]
    zero = scale(scale.least if scale.log else 0.0)
    y = float(TOP)
    for at, group in groups.items():
        marks.append(text(begin, y + 12, at, "start", "place"))
        y += LABEL
        for n, name, point in group:
            marks.append(bar(chart, scale, zero, y, n, name, point))
            y += BAR + BAR_GAP
        y += 4
    marks.append(text((begin + end) / 2, height - 6, chart.axis, "middle"))
    return svg(chart, series, height, marks)


def bar(chart: Chart, scale: Scale, zero: float, y: float, n: int, name: str, point: Point) -> str:
    """Ours as a bar with its interval, the source's beside it."""
    middle, inner = y + BAR / 2, ""
    if point.ours is not None:
        x = scale(point.ours)
        # A logarithmic axis has no 0 from which a bar could begin.
        if scale.log:
            inner += f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="4.5" class="f{n % COLOURS}"/>'
        else:
            inner += f'<rect x="{min(x, zero):.1f}" y="{y:.1f}" width="{abs(x - zero):.1f}" height="{BAR}" class="f{n % COLOURS}"/>'
        if point.half:
            low, high = scale(point.ours - point.half), scale(point.ours + point.half)
            inner += line(low, middle, high, middle, "interval")
            inner += line(low, y + 2, low, y + BAR - 2, "interval")
            inner += line(high, y + 2, high, y + BAR - 2, "interval")
    if point.said is not None:
        inner += said_mark(scale, point.said, middle, "ink")
    return f"<g><title>{escape(point_text(chart, name, point))}</title>{inner}</g>"


def said_mark(scale: Scale, said: Said, beside: float, kind: str, *, vertical: bool = False) -> str:
    """The source's number as a diamond, its range as a line between two, a bound as one with an arrow. `beside`: its place on
    the other axis.
    """

    def place(along: float, aside: float = 0.0) -> tuple[float, float]:
        return (beside + aside, along) if vertical else (along, beside + aside)

    ends = [scale(one) for one in (said.least, said.most) if one is not None]
    found = ""
    if len(set(ends)) == 2:
        found += line(*place(ends[0]), *place(ends[1]), "said")
    if said.least is None or said.most is None:
        # Larger values are to the right, and above: there y is smaller.
        way = 16 if (said.most is None) != vertical else -16
        tip = place(ends[0] + way)
        found += line(*place(ends[0]), *tip, "said")
        for aside in (-4, 4):
            found += line(*tip, *place(ends[0] + way * 0.7, aside), "said")
    return found + "".join(diamond(*place(one), kind) for one in dict.fromkeys(ends))


def lines(chart: Chart, series: Sequence[Drawn]) -> str:
    """Curves over places in their order: by their value where all are numbers, evenly spaced otherwise."""
    height, bottom = float(LINE_HEIGHT_PX), float(LINE_HEIGHT_PX - BOTTOM)
    scale = value_scale(chart, series, bottom, LINES_TOP)
    places = list(dict.fromkeys(point.at for one in series for point in one.points))
    across_x, ticks = place_scale(places)
    marked = [(at, across_x[at]) for at in ticks]
    if (values := numeric(places)) and len(places) > MAX_MARKED:
        own = Scale(min(values), max(values), min(across_x.values()), max(across_x.values()))
        marked = [(number_text(tick), own(tick)) for tick in own.ticks()]
    marks = [
        line(LEFT, scale(tick), WIDTH - RIGHT, scale(tick), "grid")
        + text(LEFT - 4, scale(tick) + 4, number_text(tick), "end")
        for tick in scale.ticks()
    ]
    marks += [
        text(x, bottom + 15, words, "middle") + line(x, bottom, x, bottom + 3, "grid")
        for words, x in marked
    ]
    marks += [guide_mark(chart, one, scale, places, across_x, bottom) for one in chart.guides]
    for n, one in enumerate(series):
        marks.append(curve(chart, scale, across_x, n, one))
    marks.append(text((LEFT + WIDTH - RIGHT) / 2, height - 6, chart.x, "middle"))
    marks.append(text(4, 12, chart.axis, "start"))
    return svg(chart, series, height, marks)


def numeric(places: Sequence[str]) -> list[float] | None:
    """The places as numbers; None where one is a word."""
    try:
        return [float(one) for one in places]
    except ValueError:
        return None


def place_scale(places: Sequence[str]) -> tuple[dict[str, float], list[str]]:
    """Where each place lies, and which have a label without overlapping."""
    values = numeric(places)
    begin, end = LEFT + 16.0, WIDTH - RIGHT - 16.0
    if values is None or len(values) < 2:
        step = (end - begin) / max(len(places) - 1, 1)
        found = {at: begin + n * step for n, at in enumerate(places)}
    else:
        scale = Scale(min(values), max(values), begin, end)
        found = {at: scale(value) for at, value in zip(places, values, strict=True)}
    labels, free = [], -math.inf
    for at in sorted(places, key=lambda one: found[one]):
        half = len(at) * CHARACTER / 2
        if found[at] - half > free:
            labels.append(at)
            free = found[at] + half + (4 if values is None else 14)
    return found, labels


def guide_mark(
    chart: Chart,
    guide: Guide,
    scale: Scale,
    places: Sequence[str],
    across_x: dict[str, float],
    bottom: float,
) -> str:
    """A line at a number that the source states, with its words."""
    if guide.axis == "y":
        y = scale(guide.at / chart.factor)
        return line(LEFT, y, WIDTH - RIGHT, y) + text(WIDTH - RIGHT, y - 4, guide.label, "end")
    values = numeric(places)
    if values is None:
        return ""
    ends = (
        across_x[places[values.index(min(values))]],
        across_x[places[values.index(max(values))]],
    )
    x = Scale(min(values), max(values), *ends)(guide.at)
    return upright_guide(x, bottom, guide.label, LINES_TOP)


def upright_guide(x: float, bottom: float, label: str, top: float = TOP) -> str:
    """A line from top to bottom, its words on the side that has room."""
    side, anchor = (4, "start") if x < WIDTH / 2 else (-4, "end")
    return line(x, top, x, bottom) + text(x + side, top + 10, label, anchor)


def curve(chart: Chart, scale: Scale, across_x: dict[str, float], n: int, of: Drawn) -> str:
    """Ours joined, with marks and intervals; the source's points as diamonds, joined by a thin line."""
    ours = [
        f"{across_x[point.at]:.1f},{scale(point.ours):.1f}"
        for point in of.points
        if point.ours is not None
    ]
    found = f'<polyline points="{" ".join(ours)}" class="ours l{n % COLOURS}"/>' if ours else ""
    exact = [
        f"{across_x[point.at]:.1f},{scale(point.said.least):.1f}"
        for point in of.points
        if point.said and point.said.least is not None and point.said.least == point.said.most
    ]
    if len(exact) > 1:
        found += f'<polyline points="{" ".join(exact)}" class="theirs l{n % COLOURS}"/>'
    for point in of.points:
        x, inner = across_x[point.at], ""
        if point.ours is not None and not of.curve:
            inner += f'<circle cx="{x:.1f}" cy="{scale(point.ours):.1f}" r="3.2" class="f{n % COLOURS}"/>'
        if point.ours is not None and point.half:
            low, high = scale(point.ours - point.half), scale(point.ours + point.half)
            inner += line(x, low, x, high, f"spread l{n % COLOURS}{' faint' if of.curve else ''}")
        if point.said is not None:
            inner += said_mark(scale, point.said, x, f"l{n % COLOURS}", vertical=True)
        if inner:
            found += f"<g><title>{escape(point_text(chart, of.name, point))}</title>{inner}</g>"
    return found
