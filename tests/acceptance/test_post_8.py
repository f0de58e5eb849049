"""TCP-tracing part 8, sentence by sentence: what the author reads off graphs, the analysis says by
itself.

"Part 8: BBR and uplink congestion avoidance", blog.wirelessmoves.com, 2022. The captures are samples of the same shape:
upload over weak LTE at 4 Mbit/s, a queue that grows from 10 s on, a receive window that is full from 22 s on. Seconds are
those of the transfer, as in the post. The post's window is not known; the sample's is 0.9 MB.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from reading import ROOT, Reading, main_limit, mean, variation

import unbloat

# The post's two moments, and what a change point may miss them by: about one of its blocks.
BLOAT_S, STALL_S, NEAR_S = 10.0, 22.0, 1.5
LINK_BPS = 4e6


def test_the_average_is_4_mbit_s_before_and_after_although_the_shape_changes(
    cubic: Reading,
) -> None:
    """ "average throughput 4 Mbps both before and after 22 s although shape changes"."""
    values = cubic.finding("burst-after-stall")["values"]
    for key in ("goodput_bps_before", "goodput_bps_after"):
        assert values[key] == pytest.approx(
            LINK_BPS, rel=0.06
        )  # payload is 96.5 % of what the link carries
    assert values["variation_before"] < 0.3
    assert values["variation_after"] > 1.4
    # and the series that is drawn says the same as the finding
    early = [row["goodput_bps"] for row in cubic.between(2, 20)]
    late = [row["goodput_bps"] for row in cubic.between(24, 48)]
    assert mean(early) == pytest.approx(LINK_BPS, rel=0.06)
    assert mean(late) == pytest.approx(LINK_BPS, rel=0.06)
    assert variation(late) > 5 * variation(early)


def test_the_rtt_is_below_100_ms_until_about_10_s_and_rises_then(cubic: Reading) -> None:
    """ "RTT < 100 ms until ~10 s, then rising"."""
    early = [row["rtt_ms"] for row in cubic.between(0, BLOAT_S - 0.5) if row["rtt_ms"] is not None]
    assert max(early) < 100
    steps = [
        mean([r["rtt_ms"] for r in cubic.between(t, t + 3) if r["rtt_ms"]])
        for t in (8, 11, 14, 17, 20)
    ]
    assert steps == sorted(steps)
    assert steps[-1] > 5 * steps[0]


def test_the_onset_of_bloat_is_a_change_point_at_about_10_s(cubic: Reading) -> None:
    """ "onset of bloat (~10 s) … as change point"."""
    finding = cubic.finding("bufferbloat")
    assert finding["severity"] == "serious"
    assert finding["values"]["onset_s"] == pytest.approx(BLOAT_S, abs=NEAR_S)
    assert finding["from_s"] - cubic.begin_s == pytest.approx(BLOAT_S, abs=NEAR_S)
    # The text and the span have one clock, that of the capture.
    said = re.search(r"it began at ([\d.]+) s", finding["text"])
    assert said is not None
    assert float(said[1]) == pytest.approx(finding["from_s"], abs=0.06)


def test_the_onset_of_the_stall_is_a_change_point_at_about_22_s(cubic: Reading) -> None:
    """ "… and stall (22 s) as change points"; RTT "goes crazy at 22 seconds"."""
    assert cubic.finding("receive-window")["values"]["onset_s"] == pytest.approx(
        STALL_S, abs=NEAR_S
    )
    assert cubic.finding("burst-after-stall")["values"]["onset_s"] == pytest.approx(
        STALL_S, abs=NEAR_S
    )


def test_in_flight_is_below_the_window_before_22_s_and_equal_to_it_after(cubic: Reading) -> None:
    """ "in-flight < rwnd before 22 s, = rwnd after ("window full")"."""
    early, late = cubic.between(1, STALL_S - NEAR_S), cubic.between(STALL_S + 4, 48)
    assert all(row["in_flight_bytes"] < 0.8 * row["rwnd_bytes"] for row in early)
    assert all(row["window_full_s"] == 0 for row in early)
    mss = cubic.flow["mss_bytes"]
    peaks = [
        max(row["in_flight_bytes"] for row in cubic.between(t, t + 1))
        for t in range(int(STALL_S) + 4, 47)
    ]
    assert all(peak > cubic.flow["rwnd_bytes_max"] - mss for peak in peaks)
    assert sum(row["window_full_s"] for row in late) > 0.7 * sum(row["span_s"] for row in late)
    first = cubic.flow["window_full_first_s"] - cubic.begin_s
    assert first == pytest.approx(STALL_S, abs=NEAR_S)


def test_acks_arrive_in_bursts_and_each_releases_a_burst_of_data(cubic: Reading) -> None:
    """ "sender stalls, ACKs arrive in bursts, each burst releases a burst of data up to rwnd"."""
    late = [row for row in cubic.events("ack_burst") if row["t_s"] > STALL_S - NEAR_S]
    assert len(late) > 30
    gaps = [b["t_s"] - a["t_s"] for a, b in itertools.pairwise(late)]
    assert mean(gaps) == pytest.approx(0.6, rel=0.1)  # the radio hands ACKs over every 600 ms
    # what a burst acknowledges is what the link carried meanwhile
    assert mean([row["value"] for row in late]) == pytest.approx(LINK_BPS * 0.6 / 8, rel=0.1)
    values = cubic.finding("burst-after-stall")["values"]
    assert values["ack_silence_ms_max"] == pytest.approx(600, rel=0.1)
    assert values["data_burst_bytes_max"] >= 0.9 * values["ack_burst_bytes_max"]
    # between two bursts nothing is sent and nothing delivered
    idle = [row for row in cubic.between(STALL_S + 4, 48) if row["sent_bytes"] == 0]
    assert len(idle) > 0.5 * len(cubic.between(STALL_S + 4, 48))


def test_the_limiter_is_the_network_before_and_the_receive_window_after(cubic: Reading) -> None:
    """ "which limiter: before = cwnd/network, after = receive window"."""
    early, late = cubic.between(1, STALL_S - NEAR_S), cubic.between(STALL_S + 4, 48)
    assert {row["limit"] for row in early} <= {
        "slow_start",
        "bottleneck",
        "bufferbloat",
        "congestion_window",
    }
    assert main_limit(early) in ("bottleneck", "bufferbloat")
    assert main_limit(late) == "receive_window"
    assert (
        cubic.finding("receive-window")["values"]["cause"] == "queue"
    )  # so a larger one would not help


def test_web_calls_and_games_are_judged_by_the_rtt_before_and_after(cubic: Reading) -> None:
    """ "usable for web/VoIP?" verdict by RTT."""
    values = cubic.finding("bufferbloat")["values"]
    assert (values["web_before"], values["calls_before"]) == ("good", "good")
    assert (values["web_after"], values["calls_after"]) == ("unusable", "unusable")
    assert values["grade"] == cubic.flow["grade"] == "F"
    assert "unusable" in cubic.run.verdict


def test_the_queue_is_what_stands_in_the_window(cubic: Reading) -> None:
    """Derived in the facts: window-full at 4 Mbit/s means RTT = rwnd / rate, nearly all of it queue on the phone."""
    rwnd = cubic.flow["rwnd_bytes_max"]
    late = [row["rtt_ms"] for row in cubic.between(STALL_S + 6, 48) if row["rtt_ms"] is not None]
    assert mean(late) == pytest.approx(rwnd * 8 / LINK_BPS * 1500 / 1448 * 1000, rel=0.05)
    assert cubic.finding("bufferbloat")["values"]["queue_bytes"] == pytest.approx(rwnd, rel=0.1)


def test_with_bbr_the_rtt_stays_below_200_ms(bbr: Reading) -> None:
    """ "BBR: RTT stays < 200 ms (150-200)"; the sample's base RTT is lower."""
    assert bbr.flow["rtt_ms_max"] < 200
    assert bbr.flow["loaded_rtt_ms_p95"] < 200
    finding = bbr.finding("bufferbloat") if "bufferbloat" in bbr.rules() else None
    if finding is not None:
        assert finding["severity"] == "info"
        values = finding["values"]
        assert (values["web_after"], values["calls_after"]) == ("good", "good")


def test_with_bbr_in_flight_stays_well_below_the_window_which_is_never_full(bbr: Reading) -> None:
    """ "in-flight well below rwnd, no window-full"."""
    assert bbr.flow["in_flight_bytes_max"] < 0.2 * bbr.flow["rwnd_bytes_max"]
    assert bbr.flow["window_utilisation_pct_p95"] < 20
    assert bbr.flow["window_full_count"] == 0
    assert bbr.flow["window_full_s"] == 0
    assert "receive-window" not in bbr.rules()


def test_with_bbr_the_throughput_is_stable(bbr: Reading, cubic: Reading) -> None:
    """ "stable throughput"."""
    values = [row["goodput_bps"] for row in bbr.between(2, 44)]
    assert mean(values) == pytest.approx(LINK_BPS, rel=0.06)
    assert variation(values) < 0.2
    assert "burst-after-stall" not in bbr.rules()
    assert bbr.flow["goodput_bps"] == pytest.approx(cubic.flow["goodput_bps"], rel=0.05)


def test_one_table_compares_cubic_with_bbr() -> None:
    """ "A/B comparison table CUBIC vs BBR"."""
    paths = [ROOT / f"samples/bloated-{name}-upload.pcapng.zst" for name in ("cubic", "bbr")]
    comparison = unbloat.compare(*paths, labels=["CUBIC", "BBR"])
    assert comparison.table.column_names == ["measure", "CUBIC", "BBR"]
    lines = {line.measure.name: line for line in comparison.lines}
    # the same throughput, and everything else in favour of BBR
    assert lines["goodput_bps"].best == set()
    for name in (
        "rtt_ms_p95",
        "queue_ms_p95",
        "grade",
        "in_flight_over_bdp",
        "window_full_share",
        "goodput_cv",
    ):
        assert lines[name].best == {1}, name
    assert lines["grade"].values == ["F", "B"]
    assert "BBR: 3.8 Mbit/s, as CUBIC" in comparison.verdict
    assert "2.4 s" in comparison.verdict


def test_the_comparison_is_a_page_too(tmp_path: Path) -> None:
    paths = [ROOT / f"samples/bloated-{name}-upload.pcapng.zst" for name in ("cubic", "bbr")]
    page = tmp_path / "cubic-bbr.html"
    unbloat.compare(*paths, labels=["CUBIC", "BBR"]).write_report(page)
    text = page.read_text()
    assert "CUBIC" in text
    assert "BBR" in text
