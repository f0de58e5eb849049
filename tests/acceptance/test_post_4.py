"""TCP-tracing part 4, sentence by sentence, on a capture of the same shape that `wifi.py` makes for these tests.

"Part 4: Comparing LTE and Wi-Fi", blog.wirelessmoves.com, 2022. Rates and windows are those of the post times the scale at
which this machine could make them (the output of the tests says which); RTTs are those of the post.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from reading import Reading, mean

import unbloat


@pytest.fixture
def scale(wifi: Reading) -> float:
    assert wifi.made is not None
    return wifi.made.scale


@pytest.fixture
def download(wifi: Reading) -> dict[str, Any]:
    """The flow from the server."""
    rows: list[dict[str, Any]] = wifi.run.flows.to_pylist()
    return max(
        (row for row in rows if row["connection"] != wifi.flow["connection"]),
        key=lambda r: r["bytes"],
    )


def test_the_upload_averages_more_than_500_mbit_s(wifi: Reading, scale: float) -> None:
    """ "UL average > 500 Mbps"."""
    assert wifi.flow["goodput_bps"] > 480e6 * scale
    assert wifi.flow["peak_bps"] > 500e6 * scale


def test_the_initial_rtt_is_18_ms_and_stands_apart(wifi: Reading) -> None:
    """ "iRTT 18 ms … (do not use iRTT)"."""
    assert wifi.flow["initial_rtt_ms"] == pytest.approx(18, abs=1.5)
    values = wifi.finding("receive-window")["values"]
    assert values["initial_rtt_ms"] == wifi.flow["initial_rtt_ms"]
    assert values["loaded_rtt_ms_p50"] > 1.4 * values["initial_rtt_ms"]


def test_the_loaded_rtt_is_30_ms_typically_and_50_ms_frequently(wifi: Reading) -> None:
    """ "30 ms typical and frequent >= 50 ms under load"."""
    assert 25 < wifi.flow["loaded_rtt_ms_p50"] < 40
    assert wifi.flow["loaded_rtt_ms_p95"] > 50
    high = [
        row for row in wifi.samples if row["rtt_ms_max"] is not None and row["rtt_ms_max"] >= 50
    ]
    assert 0.05 < len(high) / len(wifi.samples) < 0.5


def test_the_window_grows_to_about_3_mb(wifi: Reading, scale: float) -> None:
    """ "rwnd grows to ~3 MB (max of advertised window)"."""
    assert wifi.flow["rwnd_bytes_max"] == pytest.approx(3.2e6 * scale, rel=0.1)
    assert wifi.flow["rwnd_bytes_min"] < 0.3 * wifi.flow["rwnd_bytes_max"]
    grown = [row["rwnd_bytes"] for row in wifi.between(0, 0.5) if row["rwnd_bytes"]]
    assert max(grown) > 0.9 * wifi.flow["rwnd_bytes_max"]
    assert wifi.flow["window_scale"] is not None


def test_the_rtt_ceiling_is_window_over_rate_about_50_ms(wifi: Reading) -> None:
    """ "BDP 62.5 MB/s x 50 ms = 3.1 MB = rwnd => RTT_max = rwnd/rate"."""
    ceiling = wifi.flow["rtt_ceiling_ms"]
    assert ceiling == pytest.approx(
        wifi.flow["rwnd_bytes_max"] * 8 / wifi.flow["peak_bps"] * 1000, rel=0.001
    )
    assert ceiling == pytest.approx(50, abs=6)
    assert (
        f"above {ceiling:.0f} ms of RTT it cannot carry" in wifi.finding("receive-window")["text"]
    )


def test_an_rtt_above_the_ceiling_stalls_the_upload(wifi: Reading) -> None:
    """ "any RTT > 50 ms stalls": the window is full when the RTT is above the ceiling, and not when it is well below."""
    ceiling, largest = wifi.flow["rtt_ceiling_ms"], wifi.flow["rwnd_bytes_max"]
    rows = [row for row in wifi.between(1.0, 7.5) if row["rtt_ms_max"] is not None]
    above = [row for row in rows if row["rtt_ms_max"] > 1.5 * ceiling]
    # only while the receiver offers its largest window: a busy machine makes it offer less
    below = [
        row for row in rows if row["rtt_ms_max"] < 0.8 * ceiling and row["rwnd_bytes"] == largest
    ]
    assert len(above) >= 6
    stalled = [
        row for row in above if row["window_full_s"] > 0 or row["in_flight_bytes"] > 0.97 * largest
    ]
    assert len(stalled) >= 0.7 * len(above)
    assert all(row["window_full_s"] < 0.01 for row in below)
    assert mean([row["goodput_bps"] for row in above]) < 0.9 * wifi.flow["peak_bps"]


def test_bytes_in_flight_reach_the_window(wifi: Reading) -> None:
    """ "how much of the TCP window was used …: the maximum window size was frequently hit"."""
    assert wifi.flow["in_flight_bytes_max"] > wifi.flow["rwnd_bytes_max"] - wifi.flow["mss_bytes"]
    assert wifi.flow["window_utilisation_pct_max"] == pytest.approx(100, abs=0.2)
    assert wifi.flow["window_utilisation_pct_p95"] > 99


def test_window_full_packets_are_counted(wifi: Reading) -> None:
    """ "number of "window full" packets"."""
    assert wifi.flow["window_full_count"] > 10
    assert (
        wifi.finding("receive-window")["values"]["window_full_count"]
        == wifi.flow["window_full_count"]
    )
    spans = wifi.events("window_full")
    assert sum(row["value"] for row in spans) == pytest.approx(
        wifi.flow["window_full_s"], rel=0.001
    )


def test_the_share_of_time_at_the_limit_is_no_less_than_the_kernel_says(wifi: Reading) -> None:
    """ "fraction of time at the limit"; the kernel's rwnd_limited also asks that cwnd be larger, so it is a lower bound."""
    assert wifi.made is not None
    assert wifi.flow["window_full_share"] == pytest.approx(
        wifi.flow["window_full_s"] / wifi.flow["active_s"], rel=0.001
    )
    assert wifi.flow["window_full_s"] > 0.8 * wifi.made.rwnd_limited_s


def test_a_larger_window_would_have_allowed_more(wifi: Reading) -> None:
    """ "possible throughput with a larger window"."""
    finding = wifi.finding("receive-window")
    assert finding["values"]["cause"] == "window"
    assert (
        wifi.flow["goodput_bps"]
        < wifi.flow["unlimited_goodput_bps"]
        <= 660e6 * (wifi.made.scale if wifi.made else 1)
    )
    assert "tcp_rmem" in finding["cure"]


def test_the_download_lies_mostly_between_150_and_300_with_one_dip_to_50(
    wifi: Reading, download: dict[str, Any], scale: float
) -> None:
    """ "DL mostly 150-300 Mbps with a single dip to 50"."""
    values = wifi.finding("uneven-rate", download["id"])["values"]
    assert 140e6 * scale < values["goodput_bps_p10"]
    assert values["goodput_bps_p90"] < 300e6 * scale
    assert values["dips"] == 1
    assert values["dip_bps_min"] == pytest.approx(50e6 * scale, rel=0.15)


def test_the_dips_of_the_upload_are_less_steep(wifi: Reading) -> None:
    """ "[UL] dips less steep": no second of it falls below half of the median."""
    rules = [(row["rule"], row["flow"]) for row in wifi.run.findings.to_pylist()]
    if ("uneven-rate", wifi.flow["id"]) in rules:
        assert wifi.finding("uneven-rate")["values"]["dips"] == 0


def test_one_file_compares_its_two_directions(wifi: Reading, download: dict[str, Any]) -> None:
    """ "DL/UL shape comparison, conclusion "air interface not the limit"": the other way the same air carries twice as much."""
    comparison = unbloat.compare(wifi.run)
    assert {side.flow for side in comparison.sides} == {wifi.flow["id"], download["id"]}
    upload = [side.flow for side in comparison.sides].index(wifi.flow["id"])
    lines = {line.measure.name: line for line in comparison.lines}
    assert lines["goodput_bps"].best == {upload}
    # What differs by less than 5 % is not marked: on a busy machine the upload's rate varies too.
    assert lines["goodput_cv"].best in ({upload}, set())
    assert re.search(r"1/\d\.\d of|\d\.\d times", comparison.verdict), comparison.verdict
