"""What `unbloat reproduce phones` prints and writes: a line per series, on a terminal, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbloat.phones.reproduce import CONTROL, JUDGED, SEED, Distance, Outcome
from unbloat.text.format import NOTHING, plural
from unbloat.text.table import table
from unbloat.text.terminal import Terminal

TITLES = ("series", "paper", "ours", "n", "distance", "at most", "control", "")
HEAD = """\
# Synthetic phones

The traffic of synthetic phones beside that of 15 students (QCUT, IMC 2016, section 3). Written by `make phones`
(`unbloat reproduce phones`), which [commands/reproduce.md](../commands/reproduce.md#phones) describes.

{count} Judged are {phones} phones of {days:g} days, made from seed {seed} by the population `paper` and analysed as a corpus. The
control is {control_phones} phones of {control_days:g} days of the population `plain`, to which nothing was fitted.

*paper* and *ours* are shares of values, in per cent, up to the paper's points. *distance* is the largest difference between
them, with its 95 % interval over phones; *at most* is the tolerance, fixed before. *view − truth* is the largest difference between the view and what is
true of the same phones, in hundredths.

"""
PAGE_TITLES = (
    "series", "up to", "paper, %", "ours, %", "n", "distance", "at most", "control", "view − truth", "",
)  # fmt: skip


def phones_screen(terminal: Terminal, outcomes: Sequence[Outcome]) -> None:
    """Prints it."""
    for title, group in groups(outcomes):
        terminal.line()
        terminal.wrapped(title)
        table(terminal, TITLES, [row(outcome) for outcome in group])
    terminal.line()
    terminal.wrapped(
        "paper, ours: shares of values up to the paper's points, %. distance: the largest difference, with its 95 %"
        " interval over phones. control: that of phones to which nothing was fitted."
    )
    terminal.wrapped(counted(outcomes))


def counted(outcomes: Sequence[Outcome]) -> str:
    """How many pass."""
    passed = sum(outcome.passes for outcome in outcomes)
    return f"{plural(len(outcomes), 'figure')}: {passed} pass, {len(outcomes) - passed} fail."


def groups(outcomes: Sequence[Outcome]) -> list[tuple[str, list[Outcome]]]:
    """By drawing of the paper."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        title = f"{outcome.figure.title} ({outcome.figure.source})"
        found.setdefault(title, []).append(outcome)
    return list(found.items())


def percent(values: Sequence[float]) -> str:
    """Shares."""
    return " ".join(f"{100 * value:.3g}" for value in values) or NOTHING


def with_interval(found: Distance | None) -> str:
    """A distance with its interval."""
    if found is None:
        return NOTHING
    return f"{found.distance:.2f} ({found.low:.2f}–{found.high:.2f})"


def row(outcome: Outcome) -> tuple[str, ...]:
    """One series on a terminal."""
    figure, ours = outcome.figure, outcome.ours
    return (
        figure.series,
        percent([share for _, share in figure.points]),
        percent(ours.shares if ours else ()),
        str(ours.values) if ours else "0",
        with_interval(ours),
        f"{figure.tolerance:.2f}",
        with_interval(outcome.control),
        "pass" if outcome.passes else "fail",
    )


def phones_page(outcomes: Sequence[Outcome]) -> str:
    """The page."""
    text = HEAD.format(
        count=counted(outcomes),
        phones=JUDGED.phones,
        days=JUDGED.days,
        seed=SEED,
        control_phones=CONTROL.phones,
        control_days=CONTROL.days,
    )
    for title, group in groups(outcomes):
        text += f"## {title}\n\n| {' | '.join(PAGE_TITLES)} |\n|{'---|' * len(PAGE_TITLES)}\n"
        for outcome in group:
            first, *rest, verdict = row(outcome)
            upto = " ".join(f"{x:g}" for x, _ in outcome.figure.points)
            cells = (first, upto, *rest, f"{100 * outcome.from_truth:.1f}", verdict)
            text += f"| {' | '.join(cells)} |\n"
        text += "\n"
    return text.rstrip("\n") + "\n"


def phones_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "format": 1,
        "figures": [
            {
                "view": outcome.figure.view,
                "series": outcome.figure.series,
                "x": [x for x, _ in outcome.figure.points],
                "paper": [share for _, share in outcome.figure.points],
                "tolerance": outcome.figure.tolerance,
                "ours": distance_json(outcome.ours),
                "control": distance_json(outcome.control),
                "view_from_truth": outcome.from_truth,
                "passes": outcome.passes,
            }
            for outcome in outcomes
        ],
    }


def distance_json(found: Distance | None) -> dict[str, Any] | None:
    """A distance with what it is made of."""
    if found is None:
        return None
    return {
        "shares": list(found.shares),
        "values": found.values,
        "distance": found.distance,
        "low": found.low,
        "high": found.high,
    }
