"""The capture and its replays over the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import upload

import unbloat
from unbloat.prediction.overlay import overlay


def test_the_replay_of_a_simulated_transfer_lies_on_its_capture(tmp_path: Path) -> None:
    newreno = 'congestion = "newreno"'
    _, capture = upload(tmp_path, rate_mbps=5, limit_kb=150, duration_s=12, flow=newreno)
    found = unbloat.what_if(capture, cures=("bbr",), draws=6)
    columns = overlay(found)
    count = len(found.fitted.seen_bps)
    assert {len(values) for values in columns.values()} == {count}
    both = [
        (captured, replayed)
        for captured, replayed in zip(columns["captured_ms"], columns["replayed_ms"], strict=True)
        if captured is not None and replayed is not None
    ]
    # No holes by rounding of times.
    assert len(both) > 0.95 * count
    near = sum(abs(replayed / captured - 1) < 0.15 for captured, replayed in both)
    assert near > 0.8 * len(both)
    captured_ms = [captured for captured, _ in both]
    assert max(captured_ms) > 1.3 * min(captured_ms), "the control: a flat line would fit anything"
    for low, middle, high in zip(
        columns["replayed_ms_low"],
        columns["replayed_ms"],
        columns["replayed_ms_high"],
        strict=True,
    ):
        if low is not None and middle is not None and high is not None:
            assert low <= middle <= high
    first = next(value for value in columns["captured_ms"] if value is not None)
    assert first == pytest.approx(45, abs=40)
