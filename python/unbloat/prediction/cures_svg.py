"""The chart of cures: goodput against the p95 of the queueing delay, each with its 90 % interval.

Up and to the left is better. Labels move down until none covers another one; every mark has its numbers as a title.
"""

from __future__ import annotations

from html import escape

from unbloat.charts.svg import CHARACTER, Scale, line, number_text, text, upright
from unbloat.prediction.predict import Predicted, WhatIf

# As wide as a phone's screen less the page's margins, so that text is nowhere smaller than 10 px there.
WIDTH, HEIGHT = 400, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 40
LABEL_PX = 13
# Shorter queues are not distinguished.
MIN_MS = 1.0


def cures_svg(found: WhatIf) -> str:
    """The drawing."""
    # The transfer as it was comes last, upon cures that leave it as it is.
    shown = (*found.cures, found.as_it_was)
    high_ms = max(one.queue_ms_p95[2] for one in shown)
    low_ms = min(max(one.queue_ms_p95[0], MIN_MS) for one in shown)
    across = Scale(low_ms / 1.3, high_ms * 1.3, LEFT, WIDTH - RIGHT, True)
    most_mbps = max(one.goodput_bps[2] for one in shown) / 1e6
    least_mbps = min(one.goodput_bps[0] for one in shown) / 1e6
    # Not from 0: cures differ by less than what they have in common. Room for labels below.
    room = max(most_mbps - least_mbps, 0.02 * most_mbps) / 5
    up = Scale(max(least_mbps - 2 * room, 0.0), most_mbps + room, HEIGHT - BOTTOM, TOP)
    marks = [upright(across, tick, TOP, HEIGHT - BOTTOM) for tick in across.ticks()]
    for tick in up.ticks():
        y = up(tick)
        marks += [
            line(LEFT, y, WIDTH - RIGHT, y, "grid"),
            text(LEFT - 5, y + 4, number_text(tick), "end"),
        ]
    marks.append(text(WIDTH - RIGHT, HEIGHT - 6, "p95 of the queueing delay, ms", "end"))
    marks.append(text(LEFT + 4, TOP + 8, "goodput, Mbit/s", "start"))
    taken: list[tuple[float, float, float]] = []
    for one in shown:
        marks += mark(one, across, up, taken)
    words = ". ".join(words_of(one) for one in shown)
    label = escape(f"Goodput against the p95 of the queueing delay. {words}", quote=True)
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(marks)}</svg>'


def mark(
    one: Predicted, across: Scale, up: Scale, taken: list[tuple[float, float, float]]
) -> list[str]:
    """A point with its interval in both directions, and its name where there is room; `taken` has the ends and heights of labels."""
    low, middle, high = (across(max(value, MIN_MS)) for value in one.queue_ms_p95)
    bottom, y, top = (up(value / 1e6) for value in one.goodput_bps)
    itself = not one.cure.where
    wide = CHARACTER * len(one.cure.name)
    # To the left of points near the right edge.
    begin = middle + 7 if middle + 7 + wide < WIDTH else middle - 7 - wide
    place = y + 4
    while any(
        begin < end and start < begin + wide and abs(place - at) < LABEL_PX
        for start, end, at in taken
    ):
        place += LABEL_PX
    taken.append((begin, begin + wide, place))
    edge = begin - 2 if begin > middle else begin + wide + 2
    leader = [line(middle, y, edge, place - 4, "grid")] if place > y + LABEL_PX else []
    return [
        f"<g><title>{escape(words_of(one))}</title>",
        *leader,
        line(low, y, high, y, "interval"),
        line(middle, bottom, middle, top, "interval"),
        f'<circle cx="{middle:.1f}" cy="{y:.1f}" r="4.5" class="{"f1" if itself else "f0"}"/>',
        text(begin, place, one.cure.name, "start", "tick place"),
        "</g>",
    ]


def words_of(one: Predicted) -> str:
    """A point in words."""
    low, middle, high = (value / 1e6 for value in one.goodput_bps)
    least, p95, most = one.queue_ms_p95
    return (
        f"{one.cure.name}: goodput {middle:.2f} Mbit/s ({low:.2f} to {high:.2f}), "
        f"p95 {p95:.0f} ms ({least:.0f} to {most:.0f})"
    )
