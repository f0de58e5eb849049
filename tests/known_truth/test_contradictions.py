"""No finding contradicts another one of the same span of the same flow: over every capture there is."""

from __future__ import annotations

import json
from typing import Any

import constructions
import contradictions
import others
import pytest
from contradictions import PAIRS, Pair, Row
from requirements import ROOT, require

import unbloat

# For each rule and word of a condition, figures that meet it.
FIGURES: dict[str, dict[str, Any]] = {
    "receive-window": {"window_full_share": 0.7},
    "application-limited": {"application_share": 0.6},
    "zero-window": {"zero_window_share": 0.7},
    "loss-limited": {"congestion_window_share": 0.7, "cause": "path"},
    "bufferbloat": {"grade": "C"},
    "rtt-inflation-other-flow": {"grade": "C"},
}
WORDS: dict[str, list[dict[str, Any]]] = {
    "receive-window": [{"cause": "window"}, {"cause": "queue"}],
    "flat-window": [{"verdict": "too large"}, {"verdict": "too small"}],
    "no-answer": [{"cause": "one way"}],
}
# The words that a condition looks for in the text or the cure.
SAID: dict[str, dict[str, str]] = {
    "retransmission-timeouts": {"text": "a sudden delay rather than loss"},
    "application-limited": {"cure": "Nothing on the network: look at the sending program"},
}
QUIET_FLOW: Row = {"limit": "bottleneck", "grade": "C", "share_bufferbloat": 0.0}


def finding(rule: str, begin: float = 1.0, end: float = 5.0, **values: Any) -> Row:
    """A finding, made up."""
    return {
        "rule": rule,
        "severity": "warning",
        "from_s": begin,
        "to_s": end,
        "values": json.dumps(FIGURES.get(rule, {}) | values),
        "text": "",
        "cure": "",
    } | SAID.get(rule, {})


def both_of(pair: Pair) -> tuple[Row, Row]:
    """Two findings that meet the condition of a pair."""
    for first in WORDS.get(pair.first, [{}]):
        for second in WORDS.get(pair.second, [{}]):
            a, b = finding(pair.first, **first), finding(pair.second, **second)
            if pair.when(a, b):
                return a, b
    raise AssertionError(f"no figures meet {pair}")


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.first}-{pair.second}-{pair.why}")
def test_each_pair_is_found_where_the_spans_meet_and_only_there(pair: Pair) -> None:
    a, b = both_of(pair)
    line = f"{pair.first} and {pair.second}: {pair.why}"
    assert line in list(contradictions.of_pairs([a, b]))
    assert line in list(contradictions.of_pairs([b, a])), "whatever their order"
    assert list(contradictions.of_pairs([a, b | {"from_s": 6.0, "to_s": 9.0}])) == []


def test_findings_that_agree_are_no_contradiction() -> None:
    large = finding("flat-window", verdict="too large")
    queue = finding("receive-window", cause="queue")
    agreeing = [large, queue, finding("bufferbloat"), finding("loss-limited", cause="overflow")]
    agreeing[-1]["values"] = json.dumps({"cause": "overflow", "congestion_window_share": 0.2})
    assert list(contradictions.of_pairs(agreeing)) == []
    assert list(contradictions.of_flow(QUIET_FLOW, agreeing)) == []


def test_one_cure_of_the_window_given_twice_is_found() -> None:
    """As two findings of one connection said it before."""
    cures = (
        "Raise the receiver's largest window (net.ipv4.tcp_rmem)",
        "Raise the maximum of tcp_rmem",
    )
    rows = [
        finding(rule) | {"cure": cure}
        for rule, cure in zip(("receive-window", "flat-window"), cures, strict=True)
    ]
    assert len(list(contradictions.twice_the_same_cure(rows))) == 1
    rows[1]["cure"] = "As for receive-window: a larger one."
    assert list(contradictions.twice_the_same_cure(rows)) == []


@pytest.mark.parametrize(
    ("flow", "rule"),
    [
        ({"limit": None, "grade": "A"}, None),
        ({"limit": None, "grade": None}, "loss-limited"),
        ({"grade": "A"}, "bufferbloat"),
        ({"grade": "A"}, "rtt-inflation-other-flow"),
        ({"grade": "A+", "share_bufferbloat": 0.8}, None),
    ],
)
def test_a_flow_and_its_findings_contradict_each_other(flow: Row, rule: str | None) -> None:
    findings = [finding(rule) | {"severity": "serious"}] if rule else []
    assert len(list(contradictions.of_flow(QUIET_FLOW | flow, findings))) == 1


def test_no_capture_of_others_has_contradictory_findings() -> None:
    require("captures")
    read, judged, lines = 0, 0, []
    for path, run in others.analysed():
        read += 1
        judged += len(run.findings)
        lines += [f"{path.name}: {line}" for line in contradictions.found(run)]
    assert min(read, judged) > 100, "next to nothing was looked at"
    assert lines == []


def test_no_sample_has_contradictory_findings() -> None:
    samples = sorted((ROOT / "samples").glob("*.pcapng.zst"))
    assert samples
    for path in samples:
        assert contradictions.found(unbloat.analyze(path)) == [], path.name


@pytest.mark.parametrize("net", constructions.NETWORKS, ids=lambda net: net.name)
@pytest.mark.parametrize("name", constructions.NAMES)
def test_no_construction_has_contradictory_findings(
    tmp_path_factory: pytest.TempPathFactory, name: str, net: constructions.Network
) -> None:
    folder = tmp_path_factory.mktemp("contradictions")
    unbloat.simulate(constructions.scenario(name, net), pcap=folder)
    for path in folder.rglob("*.pcapng"):
        assert contradictions.found(unbloat.analyze(path)) == [], path.stem
