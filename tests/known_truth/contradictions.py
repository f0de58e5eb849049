"""Which findings cannot both be true of the same span of the same flow, and which of them a run contains.

signal: the findings of one direction and its row in the table of flows · model: a table of pairs, each with a condition
on their values; two findings meet when their spans overlap · action: one line per contradiction

The pairs follow from what the rules in `crates/flow/src/diagnose` say and recommend.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from unbloat.run.run import Run

Row = dict[str, Any]
# Grades below 30 ms, for which the rule `bufferbloat` reports nothing, and those of a queue worth a warning (60 ms).
QUIET = {"A+", "A"}
BLOATED = {"C", "D", "F"}
# Rules that judge a rate or a limit. A transfer that is too short to judge has neither.
JUDGING = {
    "bufferbloat",
    "receive-window",
    "flat-window",
    "loss-limited",
    "application-limited",
    "uneven-rate",
    "bottleneck-rate",
    "buffer-size",
}
# Bins of a tenth of a second decide by majority, so that shares of time may add up to a little more than all of it.
ROUNDING = 0.05


@dataclass(frozen=True)
class Pair:
    """Two rules, when both are a contradiction, and why."""

    first: str
    second: str
    when: Callable[[Row, Row], bool]
    why: str


def value(finding: Row, name: str) -> Any:
    """A figure of the evidence; `None` where it was left out."""
    return json.loads(finding["values"]).get(name)


def has(name: str, *words: str) -> Callable[[Row], bool]:
    """Whether the evidence has one of these words."""
    return lambda finding: value(finding, name) in words


def both(first: Callable[[Row], bool], second: Callable[[Row], bool]) -> Callable[[Row, Row], bool]:
    """Whether each meets its own condition."""
    return lambda a, b: first(a) and second(b)


def says(words: str, where: str = "text") -> Callable[[Row], bool]:
    """Whether a finding has these words in its text, or in its cure."""
    return lambda finding: words in finding[where]


def exceed(first: str, second: str) -> Callable[[Row, Row], bool]:
    """Whether two shares of the time of one flow add up to more than all of it."""
    return lambda a, b: (value(a, first) or 0) + (value(b, second) or 0) > 1 + ROUNDING


def always(_: Row) -> bool:
    """No condition."""
    return True


PAIRS = [
    Pair(
        "receive-window",
        "flat-window",
        both(has("cause", "window"), has("verdict", "too large")),
        "one cure raises the receive window, the other lowers it",
    ),
    Pair(
        "receive-window",
        "flat-window",
        both(has("cause", "queue"), has("verdict", "too small")),
        "a larger window lengthens the queue, and it is too small",
    ),
    Pair(
        "receive-window",
        "bufferbloat",
        both(has("cause", "window"), has("grade", *BLOATED)),
        "the window is too small for the path, and a queue stands behind it",
    ),
    Pair(
        "flat-window",
        "bufferbloat",
        both(has("verdict", "too small"), has("grade", *BLOATED)),
        "the window is too small for the path, and it keeps a queue filled",
    ),
    Pair(
        "bufferbloat",
        "rtt-inflation-other-flow",
        both(always, always),
        "the queue is that of this flow and that of another",
    ),
    Pair(
        "loss-limited",
        "bufferbloat",
        both(has("cause", "path"), always),
        "segments were lost without a queue, and there was one",
    ),
    Pair(
        "loss-limited",
        "rtt-inflation-other-flow",
        both(has("cause", "path"), always),
        "segments were lost without a queue, and there was one",
    ),
    Pair(
        "retransmission-timeouts",
        "loss-limited",
        both(says("rather than loss"), always),
        "the path delayed the segments and lost none, and it lost them",
    ),
    Pair(
        "retransmission-timeouts",
        "no-answer",
        both(says("rather than loss"), has("cause", "outage", "one way")),
        "the path delayed the segments and lost none, and it lost them",
    ),
    Pair(
        "application-limited",
        "bufferbloat",
        both(says("Nothing on the network", "cure"), has("grade", *BLOATED)),
        "nothing on the network is to be cured, and a queue stands there",
    ),
    Pair(
        "application-limited",
        "zero-window",
        both(says("Nothing on the network", "cure"), always),
        "the sending program alone is to be cured, and the receiving one",
    ),
    Pair(
        "receive-window",
        "application-limited",
        exceed("window_full_share", "application_share"),
        "a full window and an idle application together fill more than the time",
    ),
    Pair(
        "zero-window",
        "application-limited",
        exceed("zero_window_share", "application_share"),
        "a closed window and an idle application together fill more than the time",
    ),
    Pair(
        "loss-limited",
        "application-limited",
        exceed("congestion_window_share", "application_share"),
        "the congestion window and an idle application together fill more than the time",
    ),
    Pair(
        "receive-window",
        "loss-limited",
        exceed("window_full_share", "congestion_window_share"),
        "a full receive window and the congestion window together fill more than the time",
    ),
]


def overlap(a: Row, b: Row) -> bool:
    """Whether the spans of two findings have a moment in common."""
    return bool(a["from_s"] <= b["to_s"] and b["from_s"] <= a["to_s"])


def of_pairs(findings: list[Row]) -> Iterator[str]:
    """Contradictions among the findings of one flow."""
    for a in findings:
        for b in findings:
            for pair in PAIRS:
                named = (a["rule"], b["rule"]) == (pair.first, pair.second)
                if named and overlap(a, b) and pair.when(a, b):
                    yield f"{pair.first} and {pair.second}: {pair.why}"


def of_flow(flow: Row, findings: list[Row]) -> Iterator[str]:
    """Contradictions between a flow's row and its findings."""
    if flow["limit"] is None:
        if flow["grade"] is not None:
            yield f"too short to judge, and grade {flow['grade']}"
        for finding in findings:
            if finding["rule"] in JUDGING:
                yield f"too short to judge, and {finding['rule']}"
    for finding in findings:
        if finding["rule"] == "bufferbloat" and value(finding, "grade") != flow["grade"]:
            yield f"bufferbloat of grade {value(finding, 'grade')} in a flow of grade {flow['grade']}"
        serious = (finding["rule"], finding["severity"]) == ("rtt-inflation-other-flow", "serious")
        if serious and flow["grade"] in QUIET:
            yield f"a serious rtt-inflation-other-flow in a flow of grade {flow['grade']}"
    # More than 5 % of the samples lie in a state that lasts for half of the time: their p95 shows it.
    if (flow["share_bufferbloat"] or 0) > 0.5 and flow["grade"] in QUIET:
        yield f"bufferbloat limits the flow for most of the time, and grade {flow['grade']}"


def twice_the_same_cure(findings: list[Row]) -> Iterator[str]:
    """Two findings of one flow that ask for the same change of the receive window."""
    windows = [row for row in findings if row["rule"] in ("receive-window", "flat-window")]
    if len([row for row in windows if "tcp_rmem" in row["cure"]]) > 1:
        yield "receive-window and flat-window: the same cure twice"


def found(run: Run) -> list[str]:
    """The contradictions of a run, each with its flow."""
    by_flow: dict[int, list[Row]] = {}
    for row in run.findings.to_pylist():
        if row["flow"] is not None:
            by_flow.setdefault(row["flow"], []).append(row)
    lines = []
    for flow in run.flows.to_pylist():
        findings = by_flow.get(flow["id"], [])
        if flow.get("capture_lacks") and findings:
            lines.append(f"flow {flow['id']}: the capture lacks most of it, and findings")
        every = (*of_pairs(findings), *of_flow(flow, findings), *twice_the_same_cure(findings))
        for line in every:
            lines.append(f"flow {flow['id']}: {line}")
    return lines
