"""Numbers and names as a person reads them: `31.4 MB`, `4.0 Mbit/s`, `187 ms`, `[2001:db8::1]:443`.

Mbit/s is 10⁶ bit/s and MB is 10⁶ bytes, everywhere. What was never measured is `–`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

NOTHING = "–"

# name → (short words for a table cell, words for a sentence "held back by …", what it means)
LIMITS: dict[str, tuple[str, str, str]] = {
    "zero_window": (
        "zero window",
        "a closed receive window",
        "the receiver advertised no window at all: its application does not read fast enough",
    ),
    "timeout": (
        "no answer",
        "a peer or a path that did not answer",
        "no answer: from a retransmission timeout to the next new acknowledgement",
    ),
    "receive_window": (
        "receive window",
        "the receive window",
        "less than one segment of the receiver's window was left, so that the sender had to wait",
    ),
    "application": ("application", "the sending application", "the sender had nothing to send"),
    "slow_start": ("slow start", "slow start", "the sender was still doubling its rate"),
    "bufferbloat": (
        "bufferbloat",
        "a bottleneck behind a standing queue",
        "rate-limited behind a standing queue: at least 30 ms in the last second",
    ),
    "bottleneck": (
        "bottleneck",
        "the rate of the bottleneck",
        "rate-limited, with a shallow queue",
    ),
    "congestion_window": (
        "congestion",
        "the congestion window",
        "the congestion window after losses or ECN marks",
    ),
    "unknown": (
        "unknown",
        "something that the capture does not show",
        "none of the others could be shown",
    ),
}

# From two days on, minutes say nothing: such files are of several captures, or of a clock that was set.
MANY_HOURS = 48
# Letters that a prefix adds to a unit, one per factor of a thousand.
PREFIXES = ("", "k", "M", "G", "T", "P")


def number(value: float) -> str:
    """One place after the point, two below one; none above a hundred, and thousands separated."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    if abs(value) >= 99.5:
        return f"{value:.0f}"
    if abs(value) >= 0.995:
        return f"{value:.1f}"
    if 0 < abs(value) < 0.01:
        return "< 0.01"
    return "0" if value == 0 else f"{value:.2g}"


def scaled(value: float, unit: str) -> str:
    """A value with the prefix that leaves one to three places before the point."""
    for prefix in PREFIXES[:-1]:
        if abs(value) < 999.5:
            # Counts below a thousand of the plain unit are whole.
            text = f"{value:.0f}" if not prefix else number(value)
            return f"{text} {prefix}{unit}"
        value /= 1000
    return f"{number(value)} {PREFIXES[-1]}{unit}"


def byte_text(value: float | None) -> str:
    """Bytes: `812 B`, `64.0 KB`, `31.4 MB`."""
    return NOTHING if value is None else scaled(value, "B").replace(" kB", " KB")


def rate_text(value: float | None) -> str:
    """Bits per second: `4.0 Mbit/s`."""
    return NOTHING if value is None else scaled(value, "bit/s")


def ms_text(value: float | None) -> str:
    """Milliseconds, as seconds from one second on: `45 ms`, `2.1 s`."""
    if value is None:
        return NOTHING
    return (
        f"{value / 1000:.1f} s"
        if value >= 1000
        else f"{number(value) if value < 10 else f'{value:.0f}'} ms"
    )


def rtt_range(flow: Mapping[str, Any]) -> str:
    """A flow's RTT, min → p95. Of upper bounds the handshake is the minimum, and p95 has a ≤."""
    bound = flow.get("rtt_bound_ms_p95")
    if bound is None:
        return ms_range(flow["rtt_ms_min"], flow["rtt_ms_p95"])
    handshake, high = ms_text(flow["initial_rtt_ms"]), ms_text(bound)
    if handshake == high:
        return high
    return f"≤ {high}" if handshake == NOTHING else f"{handshake} → ≤ {high}"


def ms_range(low: float | None, high: float | None) -> str:
    """`45 ms → 2.1 s`, or `45 → 90 ms` when the unit is the same."""
    if low is None or high is None:
        return NOTHING
    left, right = ms_text(low), ms_text(high)
    if left == right:
        return left
    if left.split()[1] == right.split()[1]:
        left = left.split()[0]
    return f"{left} → {right}"


def seconds_text(value: float | None) -> str:
    """A span: `61.2 s`, `12 ms`, `2 h 05 min`."""
    if value is None:
        return NOTHING
    if value < 1:
        return ms_text(value * 1000)
    if value < 600:
        return f"{value:.1f} s"
    minutes = round(value / 60)
    if minutes >= MANY_HOURS * 60:
        return f"{value / 86_400:,.0f} days"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def share_text(value: float | None) -> str:
    """A share of one in percent."""
    if value is None:
        return NOTHING
    percent = value * 100
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 10 or 99 < percent < 100 else f"{percent:.0f} %"


def count_text(value: float | None) -> str:
    """A count with its thousands separated."""
    return NOTHING if value is None else f"{value:,.0f}"


def address_text(address: str, width: int = 24) -> str:
    """An address in short: IPv6 compressed, the middle of what is still too long left out."""
    with suppress(ValueError):  # what is no IP address stays as it is
        address = ipaddress.ip_address(address).compressed
    if len(address) <= width:
        return address
    head = (width - 1) // 2
    return f"{address[:head]}…{address[-(width - 1 - head) :]}"


def endpoint_text(address: str, port: int | None, width: int = 24) -> str:
    """`10.0.0.2:443`, `[2001:db8::2]:443`; a port of 0 or none is left out."""
    text = address_text(address, width)
    if not port:
        return text
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


def direction_id(flow: int) -> str:
    """A direction as `--connection` takes it: `3→` is the data from a to b of connection 3."""
    return f"{flow // 2}{'←' if flow % 2 else '→'}"


def ends_text(connection: dict[str, Any], towards_a: bool = False, width: int = 24) -> str:
    """`a → b`, or `a ← b` when the data went towards a. What ICMP has instead of ports is its identifier."""
    icmp = connection["proto"] == "icmp"
    a, b = (
        endpoint_text(connection[f"{end}_addr"], None if icmp else connection[f"{end}_port"], width)
        for end in ("a", "b")
    )
    ends = f"{a} {'←' if towards_a else '→'} {b}"
    number_ = connection["a_port"] if icmp else 0
    return f"{ends}, id {number_}" if number_ else ends


TOO_SHORT = "too short to judge"
"""In place of the limit of a transfer that has none (`too_short` in docs/format.md)."""

LACKS = {"data": "data missing", "acks": "ACKs missing"}
"""The same for a transfer that the capture lacks too much of (`capture_lacks`)."""
LACKING = {"data": "most of its data", "acks": "most of its ACKs"}
"""What the capture lacks, in the words of a sentence."""


def no_limit_text(flow: Mapping[str, Any]) -> str | None:
    """Why a transfer has no limit, in the words of a table cell; nothing where it may have one."""
    if not flow.get("data_packets") and not flow.get("limit"):
        return "no data"
    lacks = flow.get("capture_lacks")
    return LACKS[lacks] if lacks else TOO_SHORT if flow.get("too_short") else None


LONG_PATH_MS = 100.0
"""From this base RTT on games feel the path itself, whatever the grade of the added delay (`diagnose/grade.rs`)."""


def base_rtt_of_grade(flow: Mapping[str, Any]) -> float | None:
    """The base RTT that belongs beside a grade, where the path is long: the grade is of the added delay alone."""
    low = flow.get("rtt_ms_min")
    return low if flow.get("grade") and low is not None and low > LONG_PATH_MS else None


def limit_text(name: str | None) -> str:
    """A limit in the words of a table cell."""
    return (
        NOTHING if name is None else LIMITS[name][0] if name in LIMITS else name.replace("_", " ")
    )


def limit_phrase(name: str) -> str:
    """A limit in the words of a sentence: held back by …"""
    return LIMITS[name][1] if name in LIMITS else name.replace("_", " ")


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """`1 packet`, `2 packets`; `nouns` where the plural has no s alone."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def app_words(kind: str) -> tuple[str, Callable[[float | None], str]]:
    """A figure's name in words and how it is written; the unit is in its name."""
    for ending, text in (
        ("_ms", ms_text),
        ("_bps", rate_text),
        ("_bytes", byte_text),
        ("_s", seconds_text),
    ):
        if kind.endswith(ending):
            return kind.removesuffix(ending).replace("_", " "), text
    return kind.replace("_", " "), score_text


def score_text(value: float | None) -> str:
    """A score or an index, to the second place."""
    return "–" if value is None else f"{value:.2f}"
