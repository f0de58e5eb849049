"""What `unbloat record` prints: the steps for a system, or what was recorded."""

from __future__ import annotations

from unbloat.recording.guide import guide
from unbloat.recording.record import QUIET_S, Recording, median
from unbloat.text.format import ms_text, plural, seconds_text
from unbloat.text.terminal import Terminal

FEW_PACKETS = 500
"""A transfer of ten seconds has more than that even on a slow link: 0.5 Mbit/s are 430 full segments, and their ACKs."""


def guide_screen(terminal: Terminal, system: str) -> None:
    """Steps as paragraphs; lines to type are never wrapped."""
    for line in guide(system):
        if line.startswith("     "):
            terminal.line("     " + terminal.style(line.strip(), "bold"))
        else:
            terminal.wrapped(line, "", "   " if line[:1].isdigit() else "")


def recorded(terminal: Terminal, recording: Recording) -> None:
    """How much was captured, the ping before and under load, and what to do next."""
    kept = "none dropped" if recording.dropped == 0 else f"{recording.dropped:,} dropped"
    terminal.line(
        f"{recording.path}: {plural(recording.packets, 'packet')} in {seconds_text(recording.seconds)}, {kept}"
    )
    terminal.wrapped(ping_text(recording), "", "")
    if recording.packets < FEW_PACKETS:
        terminal.wrapped(
            "There are few packets: was there a transfer on this interface meanwhile?", "", ""
        )
    terminal.line(f"next: unbloat analyze {recording.path} --report lag.html")


def ping_text(recording: Recording) -> str:
    """`ping: 24 ms before the transfer, 430 ms during it (medians), at most 1.2 s; 2 of 200 without answer`"""
    pings = recording.pings
    if not pings.before and not pings.after:
        return "ping: no answer at all; choose another host with --ping"
    before = ms_text(median(pings.before))
    if recording.seconds <= QUIET_S:
        return f"ping: {before} (median) before the transfer, which did not begin"
    if not pings.after:
        return f"ping: {before} (median) before the transfer, no answer during it"
    text = (
        f"ping: {before} before the transfer, {ms_text(median(pings.after))} during it (medians), "
        f"at most {ms_text(max(pings.after))}"
    )
    return f"{text}; {pings.lost} of {pings.sent} without answer" if pings.lost else text
