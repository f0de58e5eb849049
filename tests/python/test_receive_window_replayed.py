"""A receive window that held the sender back holds it back in the replays of `unbloat what-if` as well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import upload

import unbloat
from unbloat.prediction.cures import AS_IT_WAS
from unbloat.prediction.replay import replayed
from unbloat.run.figures import Figures

# A window of 200 KB: beyond the 30 KB on the way it is a queue of 226 ms, in a buffer of five times that.
FLOW = """
[flow.receiver]
window = { kind = "autotune", max = "400 KB" }
"""


def test_the_queue_of_another_sender_is_bounded_by_the_window(tmp_path: Path) -> None:
    scenario, capture = upload(tmp_path, rate_mbps=6, limit_kb=1000, duration_s=15, flow=FLOW)
    found = unbloat.what_if(capture, cures=("newreno",), draws=6)
    window_bytes = found.fitted.flow["rwnd_bytes_max"]
    assert {link.window_bytes for link in found.links} == {window_bytes}
    true = Figures(unbloat.simulate(scenario, set=[("flow.upload.congestion", "newreno")]))  # type: ignore[arg-type]
    queue = true.transfer_queue_ms("upload")
    assert queue is not None
    [newreno] = found.cures
    assert newreno.queue_ms_p95[0] <= queue.p95 <= newreno.queue_ms_p95[2]
    assert newreno.queue_ms_p95[2] < 1.5 * queue.p95
    # The control: without the window the buffer, whose end was not seen, would fill.
    free = [replace(link, window_bytes=None) for link in found.links]
    outcomes = replayed([(link, AS_IT_WAS) for link in free], "up", None, None)
    assert max(one.queue_ms_p95 for one in outcomes) > 1.5 * queue.p95


def test_a_window_that_was_never_full_is_not_fitted() -> None:
    sample = Path(__file__).resolve().parents[2] / "samples" / "lte-with-web.pcapng.zst"
    found = unbloat.what_if(sample, cures=("bbr",), draws=2)
    assert {link.window_bytes for link in found.links} == {None}
    assert found.fitted.flow["rwnd_bytes_max"] == pytest.approx(2_457_856)
