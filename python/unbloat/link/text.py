"""What `fit` prints: the rate with its interval, the round trip, the buffer, and what to do with the files."""

from __future__ import annotations

from unbloat.link.model import Band, Hold, LinkFit, RandomLoss
from unbloat.link.trace import mahimahi
from unbloat.text.format import byte_text, direction_id, ends_text, ms_text, plural, seconds_text
from unbloat.text.terminal import Terminal, plain, sparkline

# A rate that varies by less from slot to slot is a steady one: an error of a slot.
STEADY = 1.1
MARKS_FACT = "the queue marks packets (ECN), so that it is no drop-tail queue"


def link_screen(terminal: Terminal, fitted: LinkFit, trace: str | None) -> None:
    """The link, in a few lines; `trace` is where its trace was written."""
    terminal.line(terminal.style(plain(heading(fitted)), "bold"))
    for name, text in facts(fitted):
        terminal.wrapped(text, f"  {name:<11}", " " * 13)
    rates = fitted.median_bps
    terminal.line(f"  {'over time':<11}{sparkline(rates, 48)} {fine(max(rates))} at most")
    if trace is not None:
        terminal.line()
        terminal.wrapped(f"in mahimahi's shells: {mahimahi(fitted, trace)}")


def heading(fitted: LinkFit) -> str:
    """Which flow."""
    ends = ends_text(fitted.connection, towards_a=bool(fitted.flow["id"] % 2))
    return f"{fitted.capture}, connection {fitted.connection['id']}: {ends}"


def facts(fitted: LinkFit) -> list[tuple[str, str]]:
    """Name and sentence of each parameter."""
    return [
        ("rate", rate_fact(fitted)),
        ("known", known_fact(fitted)),
        ("delay", f"{ms_text(fitted.rtt_ms)} for a round trip without a queue"),
        ("buffer", buffer_fact(fitted)),
        *([("queues", apart_fact(fitted))] if fitted.apart else []),
        *([("marks", MARKS_FACT)] if fitted.marked else []),
        *([("begin", begin_fact(fitted.initial_window))] if fitted.initial_window else []),
        *([("pauses", pauses_fact(fitted))] if fitted.pauses else []),
        *([("ACKs", held_fact(fitted.hold))] if fitted.hold else []),
        *([("lost", lost_fact(fitted.random_loss))] if fitted.random_loss else []),
        *([("shared", shared_fact(fitted))] if fitted.sharing.found else []),
    ]


def interval(band: Band) -> str:
    """A median with its interval."""
    low, middle, high = band
    return f"{fine(middle)} (90 % interval: {fine(low)} to {fine(high)})"


def fine(rate_bps: float) -> str:
    """With the digits that an interval of a per cent needs."""
    value, unit = (rate_bps / 1e6, "Mbit/s") if rate_bps < 999.5e6 else (rate_bps / 1e9, "Gbit/s")
    return f"{value:#.3g}".removesuffix(".") + f" {unit}"


def rate_fact(fitted: LinkFit) -> str:
    """Mean, and how far it goes."""
    rates = sorted(fitted.median_bps)
    low, high = rates[len(rates) // 20], rates[-1 - len(rates) // 20]
    if high < STEADY * low:
        return f"{interval(fitted.mean_bps)}, steady"
    return f"{interval(fitted.mean_bps)} in the mean; {fine(low)} to {fine(high)} in nine tenths of the time"


def known_fact(fitted: LinkFit) -> str:
    """Where the rate was seen."""
    whole, seen = seconds_text(fitted.duration_s), seconds_text(fitted.queued_s)
    if all(fitted.queued):
        return f"a queue stood for all of {whole}, and shows the rate"
    return (
        f"a queue stood for {seen} of {whole}, and shows the rate. Else what arrived is a lower bound, and the rate is "
        "taken from the time around it"
    )


def buffer_fact(fitted: LinkFit) -> str:
    """Its size, and how it is known."""
    buffer = fitted.buffer
    if buffer is None:
        return "not known: no queue stood for long enough"
    before = (
        f"; {byte_text(buffer.before_bytes)} before, until {seconds_text(buffer.until_s)} to {seconds_text(buffer.changed_s)} into the transfer"
        if buffer.before_bytes and buffer.until_s and buffer.changed_s
        else ""
    )
    if buffer.bytes is None or buffer.high_bytes is None:
        return f"at least {byte_text(buffer.low_bytes)}: no loss shows its end{before}"
    low, high = byte_text(buffer.low_bytes), byte_text(buffer.high_bytes)
    return f"{byte_text(buffer.bytes)} (90 % interval: {low} to {high}), by the queue at losses{before}"


def held_fact(hold: Hold) -> str:
    """How long ACKs wait."""
    only = (
        ", while the queue is long: half of the links have no holds" if hold.in_long_queue else ""
    )
    return (
        f"held for {ms_text(hold.length_ms)} every {ms_text(hold.every_ms)} on their way back{only}"
    )


def apart_fact(fitted: LinkFit) -> str:
    """A queue per flow, and how it is known."""
    names = ", ".join(direction_id(one) for one in fitted.apart)
    return f"one per flow: {names} waited for less than a quarter as long meanwhile"


def begin_fact(segments: int) -> str:
    """The initial window."""
    return f"the sender sent {plural(segments, 'segment')} before the first ACK"


def pauses_fact(fitted: LinkFit) -> str:
    """Of the application."""
    lengths = sorted(one.length_s for one in fitted.pauses)
    return f"the sender had nothing to send {plural(len(lengths), 'time')}, for {seconds_text(lengths[len(lengths) // 2])} in the median"


def lost_fact(loss: RandomLoss) -> str:
    """At random, and how it is known."""
    packets = f"{plural(loss.segments, 'loss', 'losses')} among {loss.packets} packets that met a short queue"
    bursts = f" in bursts of {loss.burst:.1f} in the mean" if loss.burst else ""
    return f"{100 * loss.rate:.2g} % at random{bursts}, by {packets}"


def shared_fact(fitted: LinkFit) -> str:
    """With which flows, and how it is known."""
    sharing = fitted.sharing
    known = (
        f"{100 * min(sharing.filled, 1):.0f} % of {plural(sharing.pauses, 'pause')} of the sender are seen at the receiver, while a queue "
        "stood: others filled them"
    )
    if not sharing.beside:
        return f"with flows that the capture does not have: {known}. The rate is what they left"
    names = ", ".join(direction_id(one.id) for one in sharing.beside)
    return f"with {names}: {known}. The rate is that of all together"


def written_text(draws: int) -> str:
    """What a folder holds."""
    return f"scenario.toml, link.trace and {plural(draws, 'draw')}"
