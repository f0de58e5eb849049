"""Colour of each part, and of text upon it. Limits have those of the report of a capture (`page/pen.js`)."""

from __future__ import annotations

LIGHT, DARK = "#ffffff", "#1b2430"
LOOKS: dict[str, tuple[str, str]] = {
    "zero_window": ("#7a1420", LIGHT),
    "timeout": ("#3b3b3b", LIGHT),
    "receive_window": ("#d55e00", LIGHT),
    "application": ("#7cc4ea", "#0d2233"),
    "slow_start": ("#f0e060", "#3a3300"),
    "bufferbloat": ("#cc79a7", "#2a0a1d"),
    "bottleneck": ("#009e73", LIGHT),
    "congestion_window": ("#0b62a8", LIGHT),
    "unknown": ("#a8b0ba", DARK),
    "device": ("#7cc4ea", DARK),
    "other end": ("#d55e00", LIGHT),
    "network": ("#cc79a7", DARK),
    "no answer": ("#3b3b3b", LIGHT),
    "start of the transfer": ("#f0e060", DARK),
    # From green to red, as the badges of reports; neighbours differ in brightness as well.
    "A+": ("#00573f", LIGHT),
    "A": ("#2fae85", DARK),
    "B": ("#b5d46b", DARK),
    "C": ("#f0c94a", DARK),
    "D": ("#d96a1c", LIGHT),
    "F": ("#a3162a", LIGHT),
    "none": ("#a8b0ba", DARK),
}


def style(name: str) -> str:
    """The class of a part's colour."""
    return "p-" + name.replace(" ", "-").replace("_", "-").replace("+", "p")
