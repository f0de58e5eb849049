"""`docs/judges.md`: our figure, tshark's, tcptrace's and the truth, one table for each measure.

signal: a directory of pairs · model: per pair and end, what each of the three says and what happened
· action: Markdown; a figure that is not the truth is bold, rows of nothing but zeros are left out
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import judges
import ours

INTRODUCTION = """# Judges

What unbloat, tshark and tcptrace say of the same captures, beside what really happened.

`tests/truth` sends real TCP transfers (Linux at both ends) through a relay. The relay delays, queues, drops, reorders and
duplicates packets as configured, and logs what it did to each of them. tcpdump runs at either end. The truth is the
relay's log and the kernels' own counters, never a capture. The scenarios are in `tests/truth/generate.py`.

Figures vary from run to run, because two real TCP stacks on a real machine react to each other: this page is one run,
written by `UNBLOAT_BLESS=1 pytest tests/truth`. The tests compare every run with its own truth.

**Bold**: not the truth. A dash: no such figure, or no such truth. Rows of nothing but zeros are left out.
"""

NONE = "–"
Figure = int | float | str | None


@dataclass(frozen=True)
class Opinions:
    """Everything that is known of one pair at one end."""

    name: str
    end: str
    truth: dict[str, Any]
    figures: dict[str, Any]
    shark: list[judges.Figures]
    trace: list[judges.Figures]
    replies: list[judges.Figures]  # tcptrace's, of the direction without data

    @property
    def path(self) -> dict[str, Any]:
        known: dict[str, Any] = self.truth["path"]
        return known

    @property
    def at_sender(self) -> bool:
        return self.end == "sender"


@dataclass(frozen=True)
class Measure:
    """One table."""

    title: str
    about: str
    row: Callable[[Opinions], tuple[Figure, Figure, Figure, Figure]]
    slack: int = 0  # by how much a figure may differ and still be right


def total(rows: list[judges.Figures], field: str) -> int:
    return int(sum(row.get(field) or 0 for row in rows))


def span(low: float | None, high: float | None) -> Figure:
    """Two times in ms."""
    return None if low is None or high is None else f"{low:.0f} – {high:.0f}"


def rtts(o: Opinions) -> tuple[Figure, Figure, Figure, Figure]:
    shark = [f["rtt_ms"] for f in o.shark if f["rtt_ms"]]
    trace = [(f["RTT min"], f["RTT max"]) for f in o.trace if f.get("RTT samples")]
    least, longest = o.truth["rtt_ms_min"], o.path["transit_ms"]["max"]
    return (
        span(o.figures["rtt_ms_min"], o.figures["rtt_ms_max"]),
        span(min(r[0] for r in shark), max(r[2] for r in shark)) if shark else None,
        span(min(r[0] for r in trace), max(r[1] for r in trace)) if trace else None,
        span(least, least + longest - o.truth["transit_ms_base"]),
    )


MEASURES = (
    Measure(
        "Retransmissions",
        "Data segments sent again. At the receiver a retransmitted segment counts when something newer arrived before it: the "
        "others cannot be distinguished from first transmissions.",
        lambda o: (
            o.figures["retransmissions"],
            total(o.shark, "retransmissions"),
            total(o.trace, "rexmt data pkts"),
            o.truth["retransmissions"]
            if o.at_sender
            else o.path["retransmitted_visible_at_receiver"],
        ),
    ),
    Measure(
        "Reordering",
        "First transmissions that arrived behind newer data. At the sender the truth is what the returning ACKs "
        "reported. Linux compresses ACKs, so not every late segment shows.",
        lambda o: (
            o.figures["out_of_order"],
            total(o.shark, "out_of_order"),
            total(o.trace, "outoforder pkts"),
            o.path["late_reported" if o.at_sender else "late"],
        ),
    ),
    Measure(
        "Round-trip time",
        "Smallest and largest, in ms. Truth: the path's own, and that with the longest delay of a data segment added. "
        "The wait of an ACK on its way back is not in it, so the largest value may be longer.",
        rtts,
    ),
    Measure(
        "Window full",
        "How often the sender filled the receiver's window, and for how long. There is no true count of packets; for "
        "`small-window` the kernel's share of time is compared in the tests.",
        lambda o: (
            f"{o.figures['window_full_count']} ({o.figures['window_full_s']:.1f} s)"
            if o.figures["window_full_count"] or o.figures["window_full_s"] >= 0.05
            else 0,
            total(o.shark, "window_full"),
            None,
            None,
        ),
    ),
    Measure(
        "Zero windows",
        "How often the receiver closed its window. tshark and tcptrace count every ACK that says so.",
        lambda o: (
            o.figures["zero_window_count"],
            total(o.shark, "zero_windows"),
            total(o.replies, "zero win adv"),
            o.truth["receiver_counters"].get("TcpExtTCPToZeroWindowAdv", 0),
        ),
    ),
    Measure(
        "Probes of a zero window",
        "Linux probes with no byte at all, one below the next; tshark takes that for a keep-alive.",
        lambda o: (
            o.figures["zero_window_probes"],
            total(o.shark, "zero_window_probes"),
            total(o.trace, "zwnd probe pkts"),
            o.truth["sender_counters"].get("TcpExtTCPWinProbe", 0),
        ),
    ),
    Measure(
        "Bytes in flight",
        "Largest value, SACKed bytes not subtracted. Ours is always the sender's view, found from the receiver's end by "
        "timestamp echoes; the truth is what the relay saw the sender do. tcptrace counts one byte more, which is no error.",
        lambda o: (
            o.figures["in_flight_plain_bytes_max"],
            max((f["in_flight_max"] for f in o.shark), default=None),
            int(max((f["max owin"] for f in o.trace), default=0)),
            o.path["in_flight_plain_max"] if o.at_sender else None,
        ),
        slack=1,
    ),
)


def gather(pairs: Path, name: str, end: str) -> Opinions:
    """Ask all three about one capture."""
    truth = json.loads((pairs / name / "truth.json").read_text())
    path = pairs / name / f"{truth[end]}.pcap"
    shark = [f for key, f in judges.tshark(path).items() if key[3] == ours.PORT]
    both = [(f, b) if key[3] == ours.PORT else (b, f) for key, f, b in judges.tcptrace(path)]
    return Opinions(
        name, end, truth, ours.figures(path), shark, [f for f, _ in both], [b for _, b in both]
    )


def cell(figure: Figure, truth: Figure, slack: int) -> str:
    """A number; bold where it is known to be wrong."""
    if figure is None:
        return NONE
    if not isinstance(figure, int):
        return str(figure)
    wrong = isinstance(truth, int) and abs(figure - truth) > slack
    return f"**{figure:,}**" if wrong else f"{figure:,}"


def page(opinions: list[Opinions]) -> str:
    """The whole page."""
    lines = INTRODUCTION.splitlines()
    for measure in MEASURES:
        lines += ["", f"## {measure.title}", "", measure.about, ""]
        lines += [
            "| pair | captured at | unbloat | tshark | tcptrace | truth |",
            "|---|---|--:|--:|--:|--:|",
        ]
        for o in opinions:
            row = measure.row(o)
            if any(row):
                cells = [cell(figure, row[3], measure.slack) for figure in row]
                lines.append(f"| {o.name} | {o.end} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def prose(text: str) -> list[str]:
    """The page without its figures, which vary."""
    return [line for line in text.splitlines() if not line.startswith("| ")]
