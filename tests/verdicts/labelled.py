"""Compares what the analysis says of the flows of the labelled set with their labels.

signal: `labels.jsonl`, written from tshark's packets without a look at the analysis, and `unbloat.analyze` of the
        same captures · model: a label names the main limit (and others that the packets do not rule out), the findings that are true
        with the highest severity that each deserves, those that stay open, and the cures that would help · action: one row per flow,
        and for each half the counts that the page and the tests use

A finding is *right* if the label has it, *open* if the label leaves it open, else *wrong*. It is *overstated* if it is wrong, or right
with a higher severity than the label allows, and is a warning or serious. A cure *fits* if it is one of the label's.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import unbloat

FOLDER = Path(__file__).parent
SEVERITIES = ("info", "warning", "serious")
NO_LIMIT = "none named"

#: What the cure of a finding asks for, in the words of the labels; by rule, and where it depends on that, by a value of the finding.
CURES: dict[str, tuple[str, ...]] = {
    "bufferbloat": ("smart_queue", "sender_congestion_control", "window_follows_path"),
    "rtt-inflation-other-flow": ("smart_queue", "sender_congestion_control"),
    "receive-window window": ("larger_receive_window",),
    "receive-window queue": ("window_follows_path", "smart_queue", "sender_congestion_control"),
    "zero-window application": ("receiver_reads_faster",),
    "zero-window host": ("find_silent_host",),
    "flat-window too small": ("larger_receive_window",),
    "flat-window fits": ("larger_receive_window", "window_follows_path", "none"),
    "flat-window too large": ("window_follows_path", "sender_congestion_control"),
    "burst-after-stall": ("smart_queue", "larger_receive_window", "sender_congestion_control"),
    "loss-limited overflow": ("smart_queue", "sender_congestion_control"),
    "loss-limited path": ("repair_link", "sender_congestion_control"),
    "no-answer gone": ("find_silent_host",),
    "no-answer host": ("find_silent_host",),
    "no-answer outage": ("repair_link",),
    "no-answer one way": ("repair_link",),
    "no-answer closed": ("none",),
    "retransmission-timeouts": (
        "repair_link",
        "find_silent_host",
        "smart_queue",
        "sender_congestion_control",
    ),
    "reordering path": ("repair_link",),
    "reordering harmless": ("none",),
    "radio-promotion": ("keep_radio_awake",),
    "uneven-rate": ("none", "window_follows_path", "smart_queue"),
    "application-limited program": ("sender_application", "none"),
    "application-limited receiver": ("receiver_reads_faster",),
    "application-limited queue": ("smart_queue",),
    "application-limited outage": ("repair_link",),
    "ecn-marked": ("none",),
}


@dataclass
class Judged:
    """One flow of the set: its label beside what the analysis says."""

    flow: dict[str, Any]
    label: dict[str, Any]
    limit: str
    findings: dict[str, str] = field(default_factory=dict)
    right: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    overstated: list[str] = field(default_factory=list)
    fitting: list[str] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Capture, sender and first frame."""
        return f"{self.flow['file']} {self.flow['src']} frame {self.flow['first_frame']}"

    @property
    def limit_right(self) -> bool:
        """Whether the main limit is one that the label allows."""
        return self.limit in {self.label["limit"], *self.label["also"]}


def lines(name: str) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines in this folder."""
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def key(row: dict[str, Any]) -> tuple[str, int, str]:
    """What names a flow in both files."""
    return row["file"], row["first_frame"], row["src"]


def ours(run: unbloat.Run, flow: dict[str, Any]) -> dict[str, Any] | None:
    """The flow of the analysis that begins with the same segment. Addresses may be used again: the time decides."""
    at = flow["first_s"] - run.info["start_s"]
    ends = {"a": flow["src"], "b": flow["dst"]}
    found = []
    for row in run.connections.to_pylist():
        a, b = (f"{row[f'{end}_addr']} {row[f'{end}_port']}" for end in "ab")
        if row["proto"] == "tcp" and {a, b} == set(ends.values()):
            outside = max(row["start_s"] - at, at - row["start_s"] - row["duration_s"], 0.0)
            found.append((outside, row["id"], 0 if a == flow["src"] else 1))
    if not found:
        return None
    _, connection, side = min(found)
    flows = run.flows.to_pylist()
    return next((f for f in flows if f["connection"] == connection and f["id"] % 2 == side), None)


def judge(flow: dict[str, Any], label: dict[str, Any], run: unbloat.Run) -> Judged:
    """What the analysis says of one flow, against its label."""
    row = ours(run, flow)
    if row is None:
        return Judged(flow, label, NO_LIMIT)
    limit = "too_short" if row["too_short"] else row["limit"] or NO_LIMIT
    if row["capture_lacks"]:
        # No limit could be shown, and the analysis says so: the labels call that unknown.
        limit = "unknown"
    judged = Judged(flow, label, limit)
    for finding in run.findings.to_pylist():
        if finding["flow"] == row["id"]:
            add(judged, finding)
    return judged


def add(judged: Judged, finding: dict[str, Any]) -> None:
    """Counts one finding."""
    rule, severity = finding["rule"], finding["severity"]
    judged.findings[rule] = severity
    deserved = judged.label["true"].get(rule)
    if deserved is None:
        (judged.open if rule in judged.label["open"] else judged.wrong).append(rule)
    else:
        judged.right.append(rule)
    allowed = deserved or ("serious" if rule in judged.label["open"] else "info")
    if SEVERITIES.index(severity) > SEVERITIES.index(allowed):
        judged.overstated.append(rule)
    if deserved is None:
        return
    values = json.loads(finding["values"])
    detail = values.get("verdict") if rule == "flat-window" else values.get("cause")
    cures = CURES.get(rule) or CURES[f"{rule} {detail}"]
    (judged.fitting if set(cures) & set(judged.label["cures"]) else judged.unfit).append(rule)


@functools.cache
def analysed(path: Path) -> unbloat.Run | None:
    """The analysis of a capture; nothing for a file format that only tshark reads (snoop, ERF)."""
    try:
        return unbloat.analyze(path)
    except unbloat.CaptureError:
        return None


def capture(folders: tuple[Path, ...], file: str) -> Path:
    """Where a capture lies: in the first of the folders that has it."""
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
    raise FileNotFoundError(f"{file} is in none of {', '.join(map(str, folders))}")


@functools.cache
def judge_all(folders: tuple[Path, ...], half: str) -> tuple[Judged, ...]:
    """Every flow of one half whose capture can be read."""
    labels = {key(label): label for label in lines("labels.jsonl")}
    judged = []
    for flow in lines("flows.jsonl"):
        if flow["half"] == half and (run := analysed(capture(folders, flow["file"]))) is not None:
            judged.append(judge(flow, labels[key(flow)], run))
    return tuple(judged)


def figures(judged: list[Judged]) -> dict[str, int]:
    """The counts of one half."""
    counts = {"flows": len(judged), "limits right": sum(one.limit_right for one in judged)}
    for name in ("right", "open", "wrong", "overstated", "fitting", "unfit"):
        counts[name] = sum(len(getattr(one, name)) for one in judged)
    return counts


def confusion(judged: list[Judged]) -> Counter[tuple[str, str]]:
    """(label, limit of the analysis) → flows. A limit that the label allows beside its main one counts as right."""
    return Counter(
        (one.label["limit"], one.label["limit"] if one.limit_right else one.limit) for one in judged
    )
