"""The front on a terminal: for each control of this project how often it reaches the goals, and a line per link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbloat.front.front import Front
from unbloat.front.judge import Field, Point, Verdict, counts, verdicts
from unbloat.scenario.confidence import Spread
from unbloat.scenario.unjudged import marked
from unbloat.text.format import NOTHING
from unbloat.text.table import table
from unbloat.text.terminal import Terminal

TITLES = ("link", "goodput", "p95", "/ BBR", "goal", "on the front", "autorate")


def front_screen(terminal: Terminal, front: Front) -> None:
    """Prints it."""
    found = verdicts(front.fields)
    for count in counts(found):
        terminal.line()
        terminal.wrapped(
            f"{count.control}: reaches the goal on {count.reaches} of {count.links} links, is on the"
            f" Pareto front on {count.on_front} (by the transfer's own queue on"
            f" {count.on_queue_front}), dominates cake-autorate on {count.over_autorate}"
        )
        rows = [row(verdict) for verdict in found if verdict.point.label == count.control]
        table(terminal, TITLES, rows)
    terminal.line()
    terminal.wrapped(
        "goodput: over the untreated one. p95: of a ping, above that of a sender that knows the link, in ms."
        " / BBR: the same over BBR's. goal: goodput at least 95 %, p95 at most half of BBR's."
        " on the front: whether no other control, in any variant, dominates it. autorate: whether it dominates cake-autorate."
    )
    for half in dict.fromkeys(field.half for field in front.fields):
        of_half = [field.link for field in front.fields if field.half == half]
        terminal.wrapped(f"{half} half: {len(of_half)} links")
    for name, why in front.skipped.items():
        terminal.wrapped(f"skipped: {name}: {why}")


def row(verdict: Verdict) -> tuple[str, ...]:
    """One link."""
    return (
        link_text(verdict.field.link),
        share_text(verdict.goodput_share),
        f"{verdict.field.excess_ms(verdict.point):.0f}",
        ratio_text(verdict.excess_share),
        "yes" if verdict.reaches else "no",
        by_text(verdict.dominated_by),
        {True: "yes", False: "no", None: NOTHING}[verdict.over_autorate],
    )


# Parts of the names of recorded links, and what a table has room for.
SHORT = (
    ("Driving_B_20", "drive "),
    ("Static_B_20", "static "),
    ("-driving", " drive"),
    ("-short", " short"),
    (".down", " down"),
    (".up", " up"),
)


def link_text(name: str) -> str:
    """A link's name; of a 5G drive the day and the minute."""
    if name.startswith(("Driving_B_", "Static_B_")):
        name = name[:-3].replace("_", " ").replace(" B ", "_B_")
    for long, short in SHORT:
        name = name.replace(long, short)
    return name


def share_text(share: float | None) -> str:
    """In per cent."""
    return NOTHING if share is None else f"{100 * share:.0f} %"


def ratio_text(ratio: float | None) -> str:
    """A multiple."""
    return NOTHING if ratio is None else f"{ratio:.2f} ×"


def by_text(dominating: Sequence[Point]) -> str:
    """Yes, or what dominates it; a control at its defaults is named before variants of others."""
    if not dominating:
        return "yes"
    first = min(dominating, key=lambda point: point.variant != "default")
    return f"no: {marked(first.control)}"


def front_json(front: Front) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "format": 1,
        "links": [field_json(field) for field in front.fields],
        "verdicts": [
            {
                "link": verdict.field.link,
                "control": verdict.point.control,
                "goodput_share": verdict.goodput_share,
                "excess_ms": verdict.field.excess_ms(verdict.point),
                "excess_over_bbr": verdict.excess_share,
                "reaches": verdict.reaches,
                "on_front": verdict.on_front,
                "dominated_by": [point.label for point in verdict.dominated_by],
                "dominated_in_own_queue_by": [point.label for point in verdict.dominated_in_queue],
                "dominates_autorate": verdict.over_autorate,
            }
            for verdict in verdicts(front.fields)
        ],
        "skipped": front.skipped,
    }


def field_json(field: Field) -> dict[str, Any]:
    """One link with all its points."""
    return {
        "link": field.link,
        "half": field.half,
        "bound": {"goodput_bps": field.bound_bps, "ping_p95_ms": field.bound_ms},
        "points": [point_json(point) for point in field.points],
    }


def point_json(point: Point) -> dict[str, Any]:
    """One control."""
    return {
        "control": point.control,
        "variant": point.variant,
        "role": point.role,
        "goodput_bps": spread_json(point.goodput),
        "ping_p95_ms": spread_json(point.p95),
        "queue_p95_ms": spread_json(point.flow_p95),
    }


def spread_json(found: Spread) -> dict[str, Any]:
    """Mean and interval."""
    return {"mean": found.mean, "half": found.half, "runs": found.count}
