"""docs/generated/front.md: the goals, the verdicts, every control on every link, the scatter, and the lab."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unbloat.front.front import Front
from unbloat.front.judge import Field, Point, counts, verdicts
from unbloat.front.lab import FrontInLab
from unbloat.front.lab_page import lab_section
from unbloat.front.text import by_text, row
from unbloat.scenario.confidence import Spread
from unbloat.scenario.unjudged import marked, meaning
from unbloat.text.format import NOTHING

HEAD = """\
# The front

Goodput against queueing delay: every control on every link, beside a sender that knows the link. Written by `make front`
(`unbloat reproduce front`), which [commands/reproduce.md](../commands/reproduce.md#front) describes.

Each run is a minute of one bulk transfer in the simulator, with 50 ms of base RTT and 2 MB in front of the bottleneck. The
figures are goodput, and the p95 of a ping every 100 ms. *Excess* is that p95 above the p95 of the sender that knows
the link: what outages and packets cost, no control can take away. Where a control draws random numbers, a figure is the mean of ten
seeds with its 95 % interval. FQ-CoDel, the gate and cake-autorate have a queue per flow: there the ping passes the transfer's own
queue. *By its own queue* judges the front by the queueing delay of the transfer's own packets instead of the ping.

The goal, fixed before the first run, is at least 95 % of the untreated goodput at no more than half of BBR's excess. A
control is *on the front* if no other, in any variant of its sweep, is better in one figure and no worse in the other.

{half}
"""
HALVES = {
    (
        "tuning",
    ): "This page has the tuning half of the links: the test half is run when the law is final.",
    ("test",): "This page has the test half of the links.",
    ("test", "tuning"): "This page has both halves of the links.",
}
FIGURES = """
Cells have goodput in Mbit/s, then the excess in ms. The bound has the goodput and the p95 of the sender that knows the link.
"""


def front_page(front: Front, chart_name: str, lab: FrontInLab | None = None) -> str:
    """The page."""
    halves = tuple(sorted({field.half for field in front.fields}))
    head = HEAD.format(half=HALVES.get(halves, ""))
    text = f"\n![goodput over the excess of the p95, every control on every link]({chart_name})\n"
    text += "\n## The goal\n\n" + goals(front)
    text += "\n## Every control at its defaults\n" + FIGURES
    text += "".join(
        f"\n### {group.capitalize()}\n\n{figures(fields, lambda field, name: field.point(name))}"
        for group, fields in grouped(front.fields).items()
    )
    text += (
        "\n## The best of each sweep\n\nOf the variants that keep 95 % of the untreated goodput on the link the one with the"
        " smallest p95, else the one with the largest goodput: chosen afterwards, link by link, which favours the peers.\n"
    )
    text += "".join(
        f"\n### {group.capitalize()}, best\n\n{figures(fields, Field.best, named=True)}"
        for group, fields in grouped(front.fields).items()
    )
    if lab is not None:
        text += lab_section(lab, front.fields)
    if front.skipped:
        text += "\n## Skipped\n\n"
        text += "".join(f"- {name}: {why}\n" for name, why in front.skipped.items())
    text = marked(text)
    return head + meaning(text) + text


def grouped(fields: Sequence[Field]) -> dict[str, list[Field]]:
    """By group."""
    return {
        group: [field for field in fields if field.group == group]
        for group in dict.fromkeys(field.group for field in fields)
    }


def line(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |\n"


def goals(front: Front) -> str:
    """Counts, then a row per control of this project and link."""
    found = verdicts(front.fields)
    text = line(
        (
            "control",
            "links",
            "goal",
            "on the front",
            "on it by its own queue",
            "dominates cake-autorate",
        )
    )
    text += "|---|--:|--:|--:|--:|--:|\n"
    for count in counts(found):
        figures = (
            count.links,
            count.reaches,
            count.on_front,
            count.on_queue_front,
            count.over_autorate,
        )
        text += line((count.control, *map(str, figures)))
    text += "\n" + line(
        (
            "link",
            "control",
            "goodput / untreated",
            "excess, ms",
            "/ BBR",
            "goal",
            "on the front",
            "dominates cake-autorate",
            "on it by its own queue",
        )
    )
    text += "|---|---|--:|--:|--:|---|---|---|---|\n"
    for verdict in found:
        link, *rest = row(verdict)
        text += line((link, verdict.point.label, *rest, by_text(verdict.dominated_in_queue)))
    return text


def figures(
    fields: Sequence[Field], pick: Callable[[Field, str], Point | None], named: bool = False
) -> str:
    """A row per link, a column per control."""
    controls = list(dict.fromkeys(point.control for field in fields for point in field.points))
    text = line(("link", "bound", *controls)) + "|---|--:|" + "--:|" * len(controls) + "\n"
    for field in fields:
        bound = f"{field.bound_bps / 1e6:.2f}, {field.bound_ms:.0f}"
        cells = [cell(field, pick(field, name), named) for name in controls]
        text += line((field.link, bound, *cells))
    return text


def cell(field: Field, point: Point | None, named: bool) -> str:
    """Goodput and excess."""
    if point is None:
        return NOTHING
    excess = Spread(field.excess_ms(point), point.p95.half, point.p95.count)
    goodput = Spread(
        point.goodput.mean / 1e6, (point.goodput.half or 0.0) / 1e6, point.goodput.count
    )
    variant = f" ({point.variant})" if named and point.variant != "default" else ""
    return f"{spread_text(goodput, 2)}, {spread_text(excess, 0)}{variant}"


def spread_text(found: Spread, digits: int) -> str:
    """Mean, and the interval where there is one to see."""
    text = f"{found.mean:.{digits}f}"
    shown = f"{found.half or 0.0:.{digits}f}"
    return text if float(shown) == 0 else f"{text} ± {shown}"
