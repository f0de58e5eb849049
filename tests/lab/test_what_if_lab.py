"""`unbloat what-if` beside the kernel's own TCP: `--lab` on a short transfer, and a run of `make what-if-runs` made again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from requirements import ROOT

sys.path.insert(0, str(ROOT))

from bench.what_if.kernel_runs import NAMES, STORE, cases, kernel_run, key, settings

import unbloat
from unbloat.prediction.lab import in_lab
from unbloat.run.store import Store

SCENARIO = """
name = "short"
duration = "6 s"
[link.up]
rate = "6 Mbit/s"
delay = "15 ms"
queue = { kind = "droptail", limit = "150 KB" }
[link.down]
rate = "100 Mbit/s"
delay = "15 ms"
[[flow]]
name = "upload"
from = "client"
to = "server"
"""
# 150 KB at 6 Mbit/s.
FULL_MS = 200.0


# Of the sample: a steady link without a trace, under a cure of the agent. Two runs of a kernel differ.
SAMPLE = ("4M-64K", "acks", "0")
SAME_GOODPUT, SAME_QUEUE, SAME_QUEUE_MS = 0.05, 0.30, 10.0


@pytest.mark.usefixtures("agent")
def test_the_kernel_has_the_queue_that_was_predicted_and_a_cure_shortens_it(tmp_path: Path) -> None:
    scenario = tmp_path / "short.toml"
    scenario.write_text(SCENARIO)
    unbloat.simulate(scenario, pcap=tmp_path)
    capture = next(tmp_path.rglob("client.pcapng"))
    found = unbloat.what_if(capture, cures=("acks", "afc"), draws=4)
    done: list[tuple[int, int]] = []
    ran = in_lab(found, 1, lambda now, whole: done.append((now, whole)))
    was, acks, afc = ran["as it was"], ran["acks"], ran["afc"]
    assert not isinstance(was, str)
    assert not isinstance(acks, str)
    assert was[0].queue_ms_p95 == pytest.approx(FULL_MS, rel=0.15)
    assert acks[0].queue_ms_p95 < FULL_MS / 2
    assert acks[0].goodput_bps > 0.8 * was[0].goodput_bps
    assert isinstance(afc, str)
    assert "no law of a stock kernel" in afc
    assert done == sorted(done), "progress goes on"


@pytest.mark.usefixtures("agent")
def test_a_run_that_is_stored_is_what_a_run_gives(tmp_path: Path) -> None:
    [case] = [case for case in cases() if key(case) == SAMPLE]
    stored = Store(STORE, NAMES).runs(key(case), settings(case))
    assert stored is not None, "make what-if-runs"
    goodput_bps, _, queue_ms_p95 = stored[0]["figures"]
    again_bps, _, again_ms = kernel_run(case, tmp_path, None)["figures"]
    assert again_bps == pytest.approx(goodput_bps, rel=SAME_GOODPUT)
    assert again_ms == pytest.approx(queue_ms_p95, rel=SAME_QUEUE, abs=SAME_QUEUE_MS)
