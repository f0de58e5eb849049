"""What `what-if` prints: the link, the check, a table of cures, and the command of the best."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from unbloat.link.model import Band
from unbloat.link.text import facts, fine, heading
from unbloat.prediction.draws import EARLY
from unbloat.prediction.predict import Predicted, WhatIf
from unbloat.text.format import NOTHING, byte_text, ms_text
from unbloat.text.table import table
from unbloat.text.terminal import Terminal, plain

TITLES = ("cure", "at the", "Mbit/s", "p50", "p95, ms", "grade", "better")
BEYOND = "*"
SENDER_NAMES = {
    "cubic": "CUBIC",
    "cubic-rfc": "CUBIC by RFC 9438",
    "newreno": "NewReno",
    "bbr": "BBR",
    "bbr3": "BBRv3",
    "htcp": "H-TCP",
    "vegas": "Vegas",
    "westwood": "Westwood+",
}


def what_if_screen(terminal: Terminal, found: WhatIf) -> None:
    """The answer."""
    terminal.line(terminal.style(plain(heading(found.fitted)), "bold"))
    for name, text in (*facts(found.fitted), *explained(found)):
        terminal.wrapped(text, f"  {name:<11}", " " * 13)
    terminal.line()
    table(terminal, TITLES, [row(one) for one in (found.as_it_was, *found.cures)])
    terminal.line()
    terminal.wrapped(best_text(found))
    terminal.wrapped(NOTE)
    if any(one.beyond for one in (found.as_it_was, *found.cures)):
        terminal.wrapped(BEYOND_NOTE)
    if found.lab:
        terminal.line()
        terminal.line(terminal.style(LAB_TITLE, "bold"))
        table(terminal, LAB_TITLES, lab_rows(found))
        for line in lab_notes(found):
            terminal.wrapped(line)


BEYOND_NOTE = f"{BEYOND} beyond the capture: a longer queue than any that was seen, in a buffer whose end was not seen."
LAB_TITLE = "On the kernel's own TCP"
LAB_TITLES = ("cure", "Mbit/s predicted", "run", "p95 predicted", "run, ms")
LAB_NOTE = (
    "run: the median, the smallest and the largest of runs of the lab on the links whose replays are nearest to the capture, "
    "by the captures at both ends. What waits in the sender's own host does not count there."
)
NOTE = (
    "Goodput, and p50 and p95 of the queueing delay in ms. Medians and 90 % intervals over the links that explain the capture. "
    "better: in how many of them the p95 is at most 80 % of that of the "
    "transfer as it was, with 90 % of its goodput. Assumed: the rate of the link does not depend on what is sent, "
    "and flows that the capture does not have do not react."
)


def lab_rows(found: WhatIf) -> list[Sequence[str]]:
    """The kernel's runs beside the prediction."""
    rows: list[Sequence[str]] = []
    for one in (found.as_it_was, *found.cures):
        ran = found.lab.get(one.cure.name, "")
        if not isinstance(ran, str):
            goodput = [outcome.goodput_bps / 1e6 for outcome in ran]
            queue_ms = [outcome.queue_ms_p95 for outcome in ran]
            rows.append(
                (
                    one.cure.name,
                    f"{one.goodput_bps[1] / 1e6:.2f}",
                    range_text(goodput, 2),
                    f"{one.queue_ms_p95[1]:.0f}",
                    range_text(queue_ms, 0),
                )
            )
    return rows


def range_text(values: Sequence[float], digits: int) -> str:
    """The median, and the smallest and largest where there are several."""
    middle = f"{median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def lab_notes(found: WhatIf) -> list[str]:
    """What the columns are, and why a cure has none."""
    whys = [f"{name} has no run: {ran}" for name, ran in found.lab.items() if isinstance(ran, str)]
    return [LAB_NOTE, *whys]


def explained(found: WhatIf) -> list[tuple[str, str]]:
    """Name and sentence of what replays show: the sender, a queue that drops early, and the check."""
    queue = queue_text(found)
    return [
        ("sender", sender_text(found)),
        *([("queue", queue)] if queue else []),
        ("check", check_text(found)),
    ]


def sender_text(found: WhatIf) -> str:
    """Its congestion control."""
    shares = [
        f"{SENDER_NAMES[name]} in {100 * share:.0f} %" for name, share in found.senders.items()
    ]
    full = found.send_buffer_bytes
    buffer = f"; its socket's buffer of {byte_text(full)} was full" if full else ""
    return f"{', '.join(shares)} of the links that explain the capture{buffer}"


def queue_text(found: WhatIf) -> str:
    """Whether the queue drops early; nothing where a drop-tail queue explains the capture alone."""
    shares = [
        f"{name} in {100 * share:.0f} %" for name, share in found.queues.items() if name in EARLY
    ]
    return (
        f"drops or marks early: {', '.join(shares)} of the links that explain the capture"
        if shares
        else ""
    )


def check_text(found: WhatIf) -> str:
    """How the replay compares."""
    was, seen = found.as_it_was, found.seen
    sides = (
        f"goodput {fine(seen.goodput_bps)}, replayed {fine(was.goodput_bps[1])}; p95 of the queue {ms_text(seen.queue_ms_p95)}, "
        f"replayed {ms_text(was.queue_ms_p95[1])}"
    )
    return f"{'not passed' if found.differs else 'passed'}: {sides}"


def row(one: Predicted) -> Sequence[str]:
    """A line of the table."""
    itself = not one.cure.where
    return (
        one.cure.name + (BEYOND if one.beyond else ""),
        one.cure.where.split()[0].rstrip(",") if one.cure.where else NOTHING,
        band_text(tuple(value / 1e6 for value in one.goodput_bps), 2),  # type: ignore[arg-type]
        f"{one.queue_ms_p50[1]:.0f}",
        band_text(one.queue_ms_p95, 0),
        one.grade or NOTHING,
        NOTHING if itself else f"{100 * one.better:.0f} %",
    )


def band_text(band: Band, digits: int) -> str:
    """Median and interval."""
    low, middle, high = band
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def best_text(found: WhatIf) -> str:
    """What to do."""
    best = found.best
    if best is None:
        return "No cure is better in most of these links."
    command = best.cure.installed(found.rate_bps)
    share = f", better in {100 * best.better:.0f} % of these links"
    return f"The shortest queue: {best.cure.name} at the {best.cure.where}{share}" + (
        f": {command}" if command else ""
    )
