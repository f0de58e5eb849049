"""`unbloat what-if` beside the kernel's own TCP: `--lab` on a short transfer, and a run of `make what-if-runs` made again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import starved
from requirements import ROOT

sys.path.insert(0, str(ROOT))

from bench.what_if.kernel_runs import NAMES, STORE, BusyError, cases, kernel_run, key, settings

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


# Objects, the pause behind each, and a buffer that grows between two of them.
SIZES, PAUSES_S, GREW_S = (2_500_000, 2_500_000, 2_500_000), (0.8, 1.2), 4.0
SMALL_BYTES, LARGE_BYTES = 50_000, 200_000
CHANGING = f"""
name = "changing"
duration = "14 s"
[link.up]
rate = "6 Mbit/s"
delay = "15 ms"
queue = {{ kind = "droptail", limit = "{SMALL_BYTES} B" }}
[link.down]
rate = "100 Mbit/s"
delay = "15 ms"
[[change]]
at = "{GREW_S} s"
"link.up.queue.limit" = "{LARGE_BYTES} B"
[[flow]]
name = "upload"
from = "client"
to = "server"
app = {{ kind = "requests", request = "100 B", response = [{", ".join(f'"{size} B"' for size in SIZES)}], think = ["800 ms", "1200 ms", "60 min"] }}
"""

# A steady link without a trace, as it was and under a cure of the agent; how far p95 of the queue may be from the stored
# one, ms. A full buffer is the same each time. Under the cure slow start has 4 to 5 % of the time and ends a round trip
# sooner or later: ten runs had 16 to 28 ms.
SAMPLES = {"as it was": 10.0, "acks": 15.0}
SAMPLE_LINK, SAME_GOODPUT = "4M-64K", 0.05


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


@pytest.mark.parametrize("end", ["client", "server"])
def test_objects_pauses_and_two_sizes_of_a_buffer_are_found_in_a_kernels_transfer(
    changing: Path, end: str
) -> None:
    found = unbloat.what_if(changing / f"{end}.pcap", cures=("bbr",), draws=6)
    fitted = found.fitted
    for pause, true_s in zip(fitted.pauses, PAUSES_S, strict=True):
        assert pause.length_s == pytest.approx(true_s, abs=0.1)
    assert [pause.after_bytes for pause in fitted.pauses] == [SIZES[0], SIZES[0] + SIZES[1]]
    buffer = fitted.buffer
    assert buffer is not None
    # Nothing was lost since it grew.
    assert 1.25 * SMALL_BYTES < buffer.low_bytes < LARGE_BYTES
    assert buffer.before_bytes == pytest.approx(SMALL_BYTES, rel=0.15)
    assert buffer.until_s is not None
    assert buffer.changed_s is not None
    assert buffer.until_s < GREW_S + 0.2
    assert buffer.changed_s > GREW_S
    assert all(buffer.until_s <= link.changed_s <= buffer.changed_s for link in found.links)
    # Linux since 2.6.39.
    assert fitted.initial_window == (10 if end == "client" else None)
    assert found.as_it_was.queue_ms_p95[1] == pytest.approx(found.seen.queue_ms_p95, rel=0.2)
    assert not found.differs


@pytest.fixture(scope="module")
def changing(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the captures of both ends."""
    folder = tmp_path_factory.mktemp("changing")
    scenario = folder / "changing.toml"
    scenario.write_text(CHANGING)
    unbloat.lab(scenario, set=[("lab.offload", "off")], pcap=folder / "captures")
    return folder / "captures"


# As a stored run is judged, with nothing beside it: its packets may be late by 3 ms in one of a hundred.
@pytest.mark.measured
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("cure", SAMPLES)
def test_a_run_that_is_stored_is_what_a_run_gives(tmp_path: Path, cure: str) -> None:
    [case] = [case for case in cases() if key(case) == (SAMPLE_LINK, cure, "0")]
    stored = Store(STORE, NAMES).runs(key(case), settings(case))
    assert stored is not None, "make what-if-runs"
    goodput_bps, _, queue_ms_p95 = stored[0]["figures"]
    try:
        again_bps, _, again_ms = kernel_run(case, tmp_path, None)["figures"]
    except BusyError as busy:
        starved.measured(str(busy))
        raise
    assert again_bps == pytest.approx(goodput_bps, rel=SAME_GOODPUT)
    assert again_ms == pytest.approx(queue_ms_p95, abs=SAMPLES[cure])
