"""A panel of the study as SVG: our curves as stairs, the paper's points as diamonds of the same colour."""

from __future__ import annotations

from html import escape

from unbloat.charts.svg import Scale, diamond, line, number_text, text
from unbloat.corpus.report.study import Compared, Study

# Units of the drawing, as those of the charts of claims.
WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 40, 12, 22, 38
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def curves_svg(study: Study) -> str:
    """The drawing."""
    panel, floor = study.panel, float(HEIGHT - BOTTOM)
    across = Scale(panel.least, panel.most, LEFT, WIDTH - RIGHT, panel.log)
    up = Scale(0.0, 1.0, floor, TOP)
    marks = [
        line(LEFT, up(share), WIDTH - RIGHT, up(share), "grid")
        + text(LEFT - 4, up(share) + 4, f"{share:g}", "end")
        for share in SHARES
    ]
    ticks = across.ticks()
    marks += [
        line(across(tick), TOP, across(tick), floor, "grid")
        + text(across(tick), floor + 15, tick_text(tick), "middle")
        for tick in ticks
    ]
    marks += [curve(across, up, n, one) for n, one in enumerate(study.series)]
    marks.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, panel.axis, "middle"))
    marks.append(text(4, 12, "share with no more than x", "start"))
    words = ". ".join(
        f"{one.name}: n {one.n}" + "".join(f"; {words_of(*point)}" for point in one.points)
        for one in study.series
    )
    label = escape(f"{panel.title}, {panel.axis}. {words}", quote=True)
    return (
        f'<svg class="chart" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"{''.join(marks)}</svg>"
    )


def tick_text(tick: float) -> str:
    """A number of the axis, without an exponent."""
    return f"{tick:g}" if tick >= 1e-4 else number_text(tick)


def words_of(x: float, theirs: float, ours: float) -> str:
    """A point in words."""
    return f"at {number_text(x)} paper {theirs:.3g}, ours {ours:.3g}"


def curve(across: Scale, up: Scale, n: int, one: Compared) -> str:
    """One series."""
    found = ""
    if one.curve:
        level = up(0.0)
        steps = [f"{across(across.least):.1f},{level:.1f}"]
        for x, share in one.curve:
            steps.append(f"{across(x):.1f},{level:.1f}")
            level = up(share)
            steps.append(f"{across(x):.1f},{level:.1f}")
        steps.append(f"{across(across.most):.1f},{level:.1f}")
        found += f'<polyline points="{" ".join(steps)}" class="ours l{n}"/>'
    for x, theirs, ours in one.points:
        words = escape(f"{one.name}, {words_of(x, theirs, ours)}")
        found += f"<g><title>{words}</title>{diamond(across(x), up(theirs), f'l{n}')}</g>"
    return found
