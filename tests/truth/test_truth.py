"""Our figures against what happened: every pair, both ends, field by field.

The truth comes from the relay's log and the kernels' own counters (`truth.py`). Counts must be equal. Times carry the
tolerances below, each with its reason. With UNBLOAT_BLESS=1 `docs/judges.md` is written: our figure, tshark's,
tcptrace's and the truth side by side.
"""

from __future__ import annotations

import bisect
import json
import os
from pathlib import Path
from typing import Any

import generate
import judges
import ours
import page
import pytest
from requirements import require

NAMES = [s.name for s in generate.SCENARIOS] + list(generate.CUT)
# tcpdump's and the relay's clock readings of one packet lie apart by scheduling on a busy machine.
CLOCK_MS = 2.0
# Quantiles are those of a histogram with 1 % error; an RTT also holds what the ACK waited on its way back.
SHARE = 0.03
# Linux delays the ACK of a last odd segment by up to 40 ms: no queue, but inside the largest RTT.
DELAYED_ACK_MS = 40.0
# At the receiver an RTT needs timestamps; without them there is an upper bound only.
NO_ECHO = ("no-timestamps", "receiver")


def truth_of(pairs: Path, name: str) -> dict[str, Any]:
    """What is known of a pair."""
    result: dict[str, Any] = json.loads((pairs / name / "truth.json").read_text())
    return result


def refused(truth: dict[str, Any]) -> int:
    """Segments that arrived, but so late that PAWS (RFC 7323 section 5) threw them away: their retransmission was needed."""
    return min(
        int(truth["receiver_counters"].get("TcpExtPAWSEstab", 0)), int(truth["path"]["spurious"])
    )


def known_at_sender(truth: dict[str, Any]) -> int:
    """Spurious retransmissions that DSACKs and echoed timestamps show; without SACK, or on a stall, other ACKs show them, too."""
    shown = "spurious_reported" if truth["name"] in ("reorder", "reorder-loss") else "spurious"
    return int(truth["path"][shown])


def expected_at_sender(truth: dict[str, Any]) -> dict[str, Any]:
    """Every count that the sender's kernel or the relay knows, under our names."""
    path, kernel = truth["path"], truth["sender_counters"]
    cut = truth["name"] in generate.CUT
    result = {
        "retransmissions": truth["retransmissions"],
        "retransmitted_bytes": truth["retransmitted_bytes"],
        "data_packets": truth["data_segments"],
        # what the receiver's ACKs report: `reported_reordering`
        "out_of_order": path["late_reported"],
        "ambiguous": 0,
        "duplicates": path["acks_duplicated"],
    }
    if cut:
        return result
    fast = kernel.get("TcpExtTCPFastRetrans", 0)
    timeouts = kernel.get("TcpExtTCPTimeouts", 0)
    slow = kernel.get("TcpExtTCPSlowStartRetrans", 0)
    return result | {
        "bytes": truth["bytes"],
        "dsacks": truth["dsacks"],
        "timeouts": timeouts,
        # what is neither a timer's nor a recovery's is a tail-loss probe
        "retransmissions_tail_probe": truth["retransmissions"] - fast - slow - timeouts,
        "zero_window_count": truth["receiver_counters"].get("TcpExtTCPToZeroWindowAdv", 0),
        "zero_window_probes": kernel.get("TcpExtTCPWinProbe", 0),
        "in_flight_plain_bytes_max": path["in_flight_plain_max"],
        # a later SACK option may take the place of a DSACK unsent
        "retransmissions_spurious": min(path["spurious"] - refused(truth), known_at_sender(truth)),
        "connections": truth["connections"],
    }


def expected_at_receiver(truth: dict[str, Any], capture: Path) -> dict[str, Any]:
    """What can be known where the packets arrive: a retransmitted segment that nothing newer overtook looks like a first
    one, and a probe that crossed the window update on the path meets an open window."""
    path = truth["path"]
    result = {
        "retransmissions": path["retransmitted_visible_at_receiver"],
        "out_of_order": path["late"],
        "ambiguous": 0,
        "duplicates": path["duplicates"],
    }
    if truth["name"] in generate.CUT:
        return result
    return result | {
        "data_packets": path["delivered"],
        "bytes": truth["bytes"],
        "zero_window_count": truth["receiver_counters"].get("TcpExtTCPToZeroWindowAdv", 0),
        "zero_window_probes": judges.probes_while_closed(capture),
        "retransmissions_spurious": path["spurious_delivered"] - refused(truth),
        "connections": truth["connections"],
    }


def longest_rtt(path: dict[str, Any]) -> float:
    """No round trip can take longer, in ms: what the relay measured, and either way the time that a packet may have
    waited for the relay, which wakes late on a busy machine and says how late."""
    known = float(path["transit_ms"]["max"] + path["back_ms"]["max"] + 2 * path["relay_late_ms"])
    return (known + DELAYED_ACK_MS) * (1 + SHARE) + CLOCK_MS


def disagreements(figures: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Fields that are not equal."""
    return [
        f"{name}: {figures[name]}, in truth {value}"
        for name, value in expected.items()
        if figures[name] != value
    ]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "gso"])
def test_the_relay_and_the_kernel_have_the_same_counts(pairs: Path, name: str) -> None:
    truth = truth_of(pairs, name)
    if name in generate.CUT:
        assert truth["retransmitted_before_the_cut"] == 0
        return
    path = truth["path"]
    assert (path["data"], path["retransmitted"]) == (
        truth["data_segments"],
        truth["retransmissions"],
    )
    assert path["retransmitted_bytes"] == truth["retransmitted_bytes"]
    assert path["delivered"] + path["duplicates"] == truth["data_segments_received"]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "gso"])
def test_counts_at_the_sender_equal_the_truth(pairs: Path, name: str) -> None:
    truth = truth_of(pairs, name)
    figures = ours.figures(pairs / name / f"{truth['sender']}.pcap")
    assert disagreements(figures, expected_at_sender(truth)) == []


@pytest.mark.parametrize("name", [n for n in NAMES if n != "gso"])
def test_counts_at_the_receiver_equal_the_truth(pairs: Path, name: str) -> None:
    truth = truth_of(pairs, name)
    capture = pairs / name / f"{truth['receiver']}.pcap"
    expected = expected_at_receiver(truth, capture)
    assert disagreements(ours.figures(capture), expected) == []
    # The kernel's count of probes bounds them: each opening of the window is crossed by one probe at the most.
    sent = truth["sender_counters"].get("TcpExtTCPWinProbe", 0)
    if name not in generate.CUT:
        assert 0 <= sent - expected["zero_window_probes"] <= expected["zero_window_count"]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "gso"])
def test_acks_report_no_more_reordering_than_there_was(pairs: Path, name: str) -> None:
    path = truth_of(pairs, name)["path"]
    assert path["late_reported"] <= path["late"]


@pytest.mark.parametrize("name", ["reorder", "reorder-loss"])
def test_acks_report_most_reordering(pairs: Path, name: str) -> None:
    path = truth_of(pairs, name)["path"]
    assert path["late_reported"] > path["late"] / 2 > 0


@pytest.mark.parametrize("name", [n for n in NAMES if n not in generate.CUT and n != "gso"])
def test_the_vantage_is_found(pairs: Path, name: str) -> None:
    truth = truth_of(pairs, name)
    for end in ("sender", "receiver"):
        assert ours.figures(pairs / name / f"{truth[end]}.pcap")["vantage"] == end


@pytest.mark.parametrize("end", ["sender", "receiver"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in generate.CUT and n != "gso"])
def test_the_smallest_rtt_is_the_paths_own_at_either_end(pairs: Path, name: str, end: str) -> None:
    truth = truth_of(pairs, name)
    figures = ours.figures(pairs / name / f"{truth[end]}.pcap")
    if (name, end) == NO_ECHO:
        assert figures["rtt_ms_min"] is None
        assert figures["rtt_bound_ms_min"] >= truth["rtt_ms_min"] - CLOCK_MS
        return
    # TSval counts milliseconds: an echo can be read one too early
    assert figures["rtt_ms_min"] == pytest.approx(
        truth["path"]["trip_ms_min"][end], abs=CLOCK_MS + (end == "receiver")
    )
    # The kernel's is that of the handshake: a data packet needs longer at the link.
    assert figures["rtt_ms_min"] >= truth["rtt_ms_min"] - CLOCK_MS


@pytest.mark.parametrize("end", ["sender", "receiver"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in generate.CUT and n != "gso"])
def test_no_rtt_is_longer_than_the_longest_wait_in_the_queue_explains(
    pairs: Path, name: str, end: str
) -> None:
    truth = truth_of(pairs, name)
    figures = ours.figures(pairs / name / f"{truth[end]}.pcap")
    if (name, end) == NO_ECHO:
        assert figures["rtt_method"] == "window"
        return
    assert figures["rtt_ms_max"] <= longest_rtt(truth["path"])


# Pairs whose queue is large beside every tolerance.
QUEUES = ("download", "stall")


def true_queue_ms(path: dict[str, Any], quantile: str) -> tuple[float, float, float]:
    """What the relay held of round trips beyond the shortest, over time: the least, itself, the most. Both ways: on a busy
    machine an ACK waits, too."""
    base = path["transit_ms"]["min"] + path["back_ms"]["min"]
    least, truly, most = (value - base for value in path["round_trip_ms"][quantile])
    return least * (1 - SHARE) - CLOCK_MS, truly, most * (1 + SHARE) + CLOCK_MS


@pytest.mark.parametrize("end", ["sender", "receiver"])
@pytest.mark.parametrize("name", QUEUES)
def test_the_queue_is_recovered_at_either_end(pairs: Path, name: str, end: str) -> None:
    truth = truth_of(pairs, name)
    path = truth["path"]
    figures = ours.figures(pairs / name / f"{truth[end]}.pcap")
    # Over time, of all segments: an RTT is of one segment per ACK, at the receiver per echo, and on a busy machine an ACK
    # stands for two segments at one moment and for twenty at the next.
    for quantile in ("p50", "p95"):
        least, _, most = true_queue_ms(path, quantile)
        assert least <= figures[f"queue_ms_{quantile}"] <= most
    base = path["transit_ms"]["min"] + path["back_ms"]["min"]
    assert true_queue_ms(path, "max")[0] <= figures["queue_ms_max"]
    assert figures["queue_ms_max"] <= longest_rtt(path) - base


# Too few RTTs for a grade at one end or at both. In stall-loss everything that stood in the queue was a retransmission or lay
# behind one, and Karn's rule forbids a sample of it.
UNGRADED = (*generate.CUT, "gso", "no-timestamps", "tail", "tail-timeout", "stall-loss")
GRADED = [n for n in NAMES if n not in UNGRADED]
# DSLReports' steps of the queue's p95, ms.
STEPS_MS = (5, 30, 60, 200, 400)
GRADES = ("A+", "A", "B", "C", "D", "F")
# A queue that stands: half of the time it is longer than grade A+ allows. Others come and go with single bursts.
STANDING_MS = 5.0


@pytest.mark.parametrize("name", GRADED)
def test_both_ends_give_the_true_grade(pairs: Path, name: str) -> None:
    """One grade where the truth has one within its tolerance, else one of those. The receiver samples the first segment that
    each of its ACKs released. So it sees less of a queue that a burst alone makes: there its grade may be the next better
    one."""
    truth = truth_of(pairs, name)
    least, _, most = (
        bisect.bisect_right(STEPS_MS, bound) for bound in true_queue_ms(truth["path"], "p95")
    )
    standing = true_queue_ms(truth["path"], "p50")[1] >= STANDING_MS
    for end, worse in (("sender", 0), ("receiver", 0 if standing else 1)):
        figures = ours.figures(pairs / name / f"{truth[end]}.pcap")
        assert least - worse <= GRADES.index(figures["grade"]) <= most, (end, figures["grade"])


def test_a_small_receive_window_is_full_as_long_as_the_kernel_says(pairs: Path) -> None:
    truth = truth_of(pairs, "small-window")
    for end in ("sender", "receiver"):
        figures = ours.figures(pairs / "small-window" / f"{truth[end]}.pcap")
        # the kernel counts from the first refusal to the next ACK in jiffies of 4 ms, we by what the window allows:
        # the gaps between the two are those in which an ACK has just opened it
        assert figures["window_full_s"] / figures["active_s"] == pytest.approx(
            truth["rwnd_limited_s"] / truth["busy_s"], abs=0.15
        )


def test_a_dead_path_is_seen_as_timeouts_and_a_standing_one_as_spurious_ones(pairs: Path) -> None:
    outage = ours.figures(pairs / "outage" / "phone.pcap")
    assert outage["timeouts"] >= 2
    assert outage["retransmissions"] > outage["retransmissions_spurious"]
    stall = ours.figures(pairs / "stall" / "phone.pcap")
    assert stall["retransmissions"] == stall["retransmissions_spurious"] > 0


def test_one_duplicate_report_of_a_segment_sent_three_times_is_no_reordering(pairs: Path) -> None:
    """The original was lost, both retransmissions arrived."""
    path = truth_of(pairs, "stall-loss")["path"]
    assert path["late"] == 0 < 20 < path["spurious"], "the pair has what it is for"
    assert ours.figures(pairs / "stall-loss" / "phone.pcap")["out_of_order"] == 0


def test_gso_segments_are_counted_by_their_bytes(pairs: Path) -> None:
    truth = truth_of(pairs, "gso")
    for end in ("phone", "server"):
        figures = ours.figures(pairs / "gso" / f"{end}.pcap")
        assert (figures["bytes"], figures["retransmissions"], figures["out_of_order"]) == (
            truth["bytes"],
            0,
            0,
        )
        assert figures["data_packets"] < truth["data_segments"]


def test_the_page_of_judges_says_what_the_tests_say(pairs: Path) -> None:
    require("tshark", "tcptrace")
    opinions = [
        page.gather(pairs, n, end) for n in NAMES if n != "gso" for end in ("sender", "receiver")
    ]
    text = page.page(opinions)
    written = Path(__file__).resolve().parents[2] / "docs" / "judges.md"
    if os.environ.get("UNBLOAT_BLESS") == "1":
        written.write_text(text)
    assert page.prose(written.read_text()) == page.prose(text)
    # all three must have read the captures: each of them saw the losses of the simplest pair
    for figure in page.MEASURES[0].row(
        next(o for o in opinions if (o.name, o.end) == ("loss", "sender"))
    ):
        assert isinstance(figure, int)
        assert figure > 0
