"""What the ends of a transfer and its queue did is found by `unbloat what-if`, and replayed: objects with pauses, the initial window, a
full socket buffer, a queue that drops early or marks, losses in bursts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

import unbloat
from unbloat.prediction.cures import AS_IT_WAS, CURES, Cure
from unbloat.prediction.draws import CODEL, CODEL_LONG, DROPTAIL, EARLY, PIE
from unbloat.prediction.explain import distance
from unbloat.prediction.predict import Predicted
from unbloat.prediction.replay import replayed
from unbloat.run.figures import Figures

SCENARIO = """
name = "ends"
duration = "{duration_s} s"
seed = 5
[link.up]
rate = "6 Mbit/s"
delay = "20 ms"
queue = {queue}
{layers}
[link.down]
rate = "100 Mbit/s"
delay = "20 ms"
[[flow]]
name = "upload"
from = "client"
to = "server"
{flow}
"""
DEEP = '{ kind = "droptail", limit = "300 KB" }'
# Of 1.5 MB, 0.6 MB and 3 MB: longer than the buffer, and one that is hardly.
OBJECTS = """
app = { kind = "requests", request = "100 B", response = ["1500 KB", "600 KB", "3 MB"], think = ["900 ms", "2 s", "800 ms"] }
"""
BURST, LOSS = 4.0, 0.01


def written(
    folder: Path, flow: str = "", queue: str = DEEP, layers: str = "", duration_s: int = 20
) -> Path:
    """The scenario."""
    path = folder / "link.toml"
    path.write_text(SCENARIO.format(flow=flow, queue=queue, layers=layers, duration_s=duration_s))
    return path


def captured(scenario: Path, end: str = "client") -> Path:
    """The capture of one end of its run."""
    unbloat.simulate(scenario, pcap=scenario.parent)
    return next(scenario.parent.rglob(f"{end}.pcapng"))


def holds(one: Predicted, scenario: Path, key: str, value: str) -> None:
    """The run with that cure is in both intervals."""
    run = unbloat.simulate(scenario, set=[(key, value)])
    assert isinstance(run, unbloat.Run)
    true = Figures(run)
    queue = true.transfer_queue_ms("upload")
    goodput_bps = true.goodput_bps("upload")
    assert queue is not None
    assert goodput_bps is not None
    low, _, high = one.goodput_bps
    assert low <= goodput_bps <= high, one.cure.name
    low, _, high = one.queue_ms_p95
    assert low <= queue.p95 <= high, one.cure.name


def cure(name: str) -> Cure:
    """By its name."""
    [found] = (one for one in CURES if one.name == name)
    return found


@pytest.mark.parametrize("end", ["client", "server"])
def test_objects_and_pauses_of_an_application_are_replayed(tmp_path: Path, end: str) -> None:
    scenario = written(tmp_path, OBJECTS)
    capture = captured(scenario, end)
    found = unbloat.what_if(capture, cures=("bbr", "fq_codel"), draws=8)
    pauses = found.fitted.pauses
    assert len(pauses) >= 5
    for pause, true_s in zip(pauses, (0.9, 2.0, 0.8, 0.9, 2.0), strict=False):
        assert pause.length_s == pytest.approx(true_s, abs=0.06)
    begins = [0, *(pause.after_bytes for pause in pauses)]
    sizes = [end - begin for begin, end in itertools.pairwise(begins)]
    assert sizes[:5] == [1_500_000, 600_000, 3_000_000, 1_500_000, 600_000]
    assert found.links[0].objects[0].bytes == 1_500_000
    bbr, fq_codel = found.cures
    holds(bbr, scenario, "flow.upload.congestion", "bbr")
    holds(fq_codel, scenario, "link.up.queue", "fq_codel")
    # The control: in bulk the same links carry far more than the application has.
    bulk = [replace(link, objects=()) for link in found.links]
    outcomes = replayed([(link, AS_IT_WAS) for link in bulk], "up", None, None)
    assert min(one.goodput_bps for one in outcomes) > 1.1 * found.seen.goodput_bps


def test_both_sizes_of_a_buffer_in_time_are_replayed(tmp_path: Path) -> None:
    """60 KB for 20 s, then 240 KB."""
    small, grew_s = 60_000, 20
    change = f'[[change]]\nat = "{grew_s} s"\n"link.up.queue.limit" = "240 KB"'
    queue = f'{{ kind = "droptail", limit = "{small} B" }}'
    scenario = written(tmp_path, queue=queue, duration_s=45)
    scenario.write_text(scenario.read_text().replace("[[flow]]", f"{change}\n[[flow]]"))
    found = unbloat.what_if(captured(scenario), cures=("newreno", "gate"), draws=8)
    buffer = found.fitted.buffer
    assert buffer is not None
    assert buffer.before_bytes == pytest.approx(small, rel=0.1)
    assert buffer.bytes == pytest.approx(240_000, rel=0.1)
    assert buffer.until_s is not None
    assert buffer.changed_s is not None
    assert buffer.until_s < grew_s < buffer.changed_s
    assert len({link.changed_s for link in found.links}) > 1, "when exactly is not known"
    newreno, _ = found.cures
    holds(newreno, scenario, "flow.upload.congestion", "newreno")
    # The control: with the later size alone the queue is longer all the time.
    later = [replace(link, before_bytes=None) for link in found.links]
    outcomes = replayed([(link, AS_IT_WAS) for link in later], "up", None, None)
    assert min(one.queue_ms_p50 for one in outcomes) > 1.1 * found.seen.queue_ms_p50


@pytest.mark.parametrize("segments", [4, 32])
def test_the_initial_window_is_that_of_the_sender(tmp_path: Path, segments: int) -> None:
    capture = captured(written(tmp_path, f"initial_window = {segments}", duration_s=8))
    found = unbloat.what_if(capture, cures=("bbr",), draws=2)
    assert found.fitted.initial_window == segments
    assert {link.initial_window for link in found.links} == {segments}


def test_a_capture_at_the_receiver_does_not_show_it(tmp_path: Path) -> None:
    assert unbloat.fit(captured(written(tmp_path, duration_s=8), "server")).initial_window is None


def test_a_full_socket_buffer_bounds_the_queue_of_other_senders(tmp_path: Path) -> None:
    """128 KB: 30 KB on the way, and a queue of 130 ms."""
    scenario = written(tmp_path, 'buffer = "128 KB"')
    found = unbloat.what_if(captured(scenario), cures=("newreno", "bbr"), draws=8)
    assert found.send_buffer_bytes == pytest.approx(128_000, rel=0.03)
    bbr, newreno = found.cures
    holds(newreno, scenario, "flow.upload.congestion", "newreno")
    holds(bbr, scenario, "flow.upload.congestion", "bbr")
    # The control: without it the buffer of the link, whose end was not seen, would fill.
    free = [replace(link, sort=replace(link.sort, send_buffer_bytes=None)) for link in found.links]
    outcomes = replayed([(link, cure("newreno")) for link in free], "up", None, None)
    assert max(one.queue_ms_p95 for one in outcomes) > 1.3 * newreno.queue_ms_p95[2]


@pytest.mark.parametrize("ecn", [False, True])
@pytest.mark.parametrize("kind", [CODEL_LONG, PIE])
def test_a_queue_that_drops_or_marks_early_is_found_with_its_sender(
    tmp_path: Path, kind: str, ecn: bool
) -> None:
    # With CoDel's defaults a queue stands for less than 3 s of these 20 s.
    text = str(ecn).lower()
    capture = captured(written(tmp_path, f"ecn = {text}", f"{{ {EARLY[kind]}, ecn = {text} }}"))
    found = unbloat.what_if(capture, cures=("bbr",), draws=8)
    assert found.fitted.marked == ecn
    assert found.queues.get(kind, 0.0) > 0.5, found.queues
    assert set(found.senders) <= {"cubic", "cubic-rfc"}, found.senders
    # The control: with another queue of these the same links do not explain the capture as well.
    others = [replace(link, sort=replace(link.sort, queue=CODEL)) for link in found.links]
    outcomes = replayed([(link, AS_IT_WAS) for link in others], "up", None, None)
    kept = sorted(distance(one, found.seen) for one in found.as_it_was.outcomes)
    assert kept[-1] < min(distance(one, found.seen) for one in outcomes)


@pytest.mark.parametrize("per_flow", [True, False])
def test_a_queue_per_flow_is_known_by_a_small_flow(tmp_path: Path, per_flow: bool) -> None:
    """Of 100 kbit/s, while a bulk transfer has a queue of 200 ms and more."""
    small = """
[[flow]]
name = "small"
from = "client"
to = "server"
start = "4 s"
stop = "12 s"
app = { kind = "rate-profile", profile = [100], unit = "kbit/s", slot = "1 s" }
"""
    queue = '{ kind = "fq_codel", target = "200 ms", interval = "2 s" }' if per_flow else DEEP
    fitted = unbloat.fit(captured(written(tmp_path, small, queue)), connection="0→")
    assert fitted.apart == ([2] if per_flow else [])


def test_a_full_buffer_is_none_that_drops_early(tmp_path: Path) -> None:
    found = unbloat.what_if(captured(written(tmp_path)), cures=("bbr",), draws=8)
    assert found.queues == {DROPTAIL: 1.0}
    assert found.send_buffer_bytes is None
    assert not found.fitted.pauses
    assert not found.fitted.marked


@pytest.mark.parametrize("bursts", [True, False])
def test_losses_that_come_in_bursts_do_so_in_the_replays(tmp_path: Path, bursts: bool) -> None:
    leave = 1 / BURST
    enter = leave * LOSS / (1 - LOSS)
    layers = (
        f'layers = [{{ kind = "burst_loss", enter = {enter}, leave = {leave} }}]'
        if bursts
        else f"loss = {LOSS}"
    )
    scenario = written(tmp_path, 'congestion = "bbr"', layers=layers)
    fitted = unbloat.fit(captured(scenario))
    loss = fitted.random_loss
    assert loss is not None
    assert loss.rate == pytest.approx(LOSS, rel=0.5)
    assert (loss.burst is not None) == bursts
    if loss.burst is not None:
        assert loss.burst == pytest.approx(BURST, rel=0.5)
    found = unbloat.what_if(captured(scenario), cures=("cubic",), draws=8)
    assert {link.loss_burst for link in found.links} == {loss.burst}
    # What CUBIC gets depends on chance: the mean over several seeds is the truth.
    runs = unbloat.simulate(
        scenario, set=[("flow.upload.congestion", "cubic"), ("sweep.seeds", "8")]
    )
    assert isinstance(runs, unbloat.RunSet)
    true_bps = mean(Figures(run).goodput_bps("upload") or 0.0 for run in runs)
    [cubic] = found.cures
    predicted_bps = mean(one.goodput_bps for one in cubic.outcomes)
    assert predicted_bps == pytest.approx(true_bps, rel=0.2)
    if bursts:
        # The control: CUBIC answers a burst once, so that it gets less where as many packets are lost one by one.
        single = [(replace(link, loss_burst=None), cubic.cure) for link in found.links]
        of_single = replayed(single, "up", None, None)
        assert mean(one.goodput_bps for one in of_single) < 0.9 * true_bps
