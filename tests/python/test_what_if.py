"""`unbloat what-if`: samples of known links, refusals, its JSON, and each part of the prediction on known input."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from conftest import ROOT

import unbloat
from unbloat.link.model import Buffer, Hold
from unbloat.prediction.cures import AS_IT_WAS, CURES, for_way
from unbloat.prediction.draws import Draw, Sort, buffers
from unbloat.prediction.explain import differences, distance, kept
from unbloat.prediction.predict import NAMED, Predicted, spread
from unbloat.prediction.replay import Outcome, replayed, scenario
from unbloat.prediction.text import SENDER_NAMES

SAMPLES = ROOT / "samples"
LTE = SAMPLES / "lte-with-web.pcapng.zst"
DOWNLOAD = SAMPLES / "bloated-download-at-receiver.pcapng.zst"
LINK = Draw([4e6] * 200, 0.1, 50.0, None, 250_000, Sort("cubic"), 1)
SEEN = Outcome(4e6, 100.0, 200.0, 0.01, "D")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-m", "unbloat", "what-if", *words)
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("path", "buffer_bytes"), [(LTE, 600_000), (DOWNLOAD, 1_000_000)], ids=str)
def test_a_sample_by_cubic_is_explained_and_a_cure_shortens_its_queue(
    path: Path, buffer_bytes: int
) -> None:
    found = unbloat.what_if(path, draws=8)
    assert not found.differs
    assert next(iter(found.senders)) == "cubic"
    full_ms = 8000 * buffer_bytes / found.rate_bps
    assert found.as_it_was.queue_ms_p95[1] == pytest.approx(full_ms, rel=0.05)
    by_name = {one.cure.name: one for one in found.cures}
    # The control: CUBIC again is no cure for CUBIC.
    assert by_name["cubic"].better <= 0.25
    assert by_name["acks"].better == 1.0
    assert by_name["acks"].queue_ms_p95[2] < found.as_it_was.queue_ms_p95[0] / 10
    assert found.best is not None
    # A shaper at 85 % costs more than a cure may; in a draw whose rate varies it may be just within.
    assert by_name["cake"].goodput_bps[1] < 0.9 * found.as_it_was.goodput_bps[1]
    assert by_name["cake"].better <= 0.25


def test_its_json_has_each_cure_with_intervals_and_its_command() -> None:
    done = run(str(LTE), "--cures", "bbr,cake", "--draws", "4", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [row["cure"] for row in said["predicted"]] == ["as it was", "bbr", "cake"]
    for row in said["predicted"]:
        for name in ("goodput_bps", "queue_ms_p50", "queue_ms_p95"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
    assert said["predicted"][0]["command"] is None
    shaped = round(0.85 * said["link"]["rate_bps"] / 1000)
    assert said["predicted"][2]["command"].endswith(f"cake bandwidth {shaped}kbit")
    assert said["best"] == "bbr"
    assert "slots" not in said["link"]


def test_an_interval_is_never_narrower_than_the_error_of_its_cure() -> None:
    found = unbloat.what_if(LTE, draws=3)
    for one in (found.as_it_was, *found.cures):
        for low, middle, high in (one.queue_ms_p50, one.queue_ms_p95):
            assert low <= max(middle * (1 - one.cure.error), 0.0) + 1e-9, one.cure.name
            assert high >= middle * (1 + one.cure.error) - 1e-9, one.cure.name
    assert len({cure.error for cure in CURES}) == 3
    assert "error" not in repr(CURES[0]), "runs are named without it"


def test_the_interval_of_p95_has_the_quantiles_beside_it() -> None:
    # A queue of 200 ms in 5.4 % of the time, and none in the rest: p95 is 200 ms, and would be 10 ms had slow start ended a little earlier.
    edge = Outcome(4e6, 10.0, 200.0, 0.0, "D", (10.0, 200.0))
    low, middle, high = Predicted(CURES[0], [edge] * 3, 0.0, 5.0, False).queue_ms_p95
    assert (low, middle) == (10.0, 200.0)
    assert high == pytest.approx(200.0 * (1 + CURES[0].error))
    flat = replace(edge, near_p95_ms=(199.0, 201.0))
    assert Predicted(CURES[0], [flat] * 3, 0.0, 5.0, False).queue_ms_p95[0] == pytest.approx(170.0)


def test_the_same_seed_gives_the_same_answer() -> None:
    one, again = (unbloat.what_if(LTE, cures=["bbr"], draws=3, seed=2) for _ in range(2))
    assert one.to_dict() == again.to_dict()


@pytest.mark.parametrize("name", ["slow-reader", "lossy"])
def test_a_transfer_that_never_filled_its_link_is_refused(name: str) -> None:
    done = run(str(SAMPLES / f"{name}.pcapng.zst"))
    assert (done.returncode, done.stdout) == (5, "")
    assert "never filled the link" in done.stderr


def test_a_replay_that_differs_is_refused_and_predicted_only_when_asked() -> None:
    # BBR keeps no queue, which the capture has: a wrong sender is the control of the check.
    words = (str(LTE), "--congestion", "bbr", "--cures", "acks", "--draws", "3")
    done = run(*words)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.count("\n") == 1
    assert "does not explain this transfer: the p95 of its queue was" in done.stderr
    anyway = run(*words, "--anyway")
    assert anyway.returncode == 0
    assert "not passed" in anyway.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--cures", "vegas"), "no cure 'vegas': cubic, bbr"),
        (
            ("--congestion", "lp"),
            "no congestion control 'lp': cubic, cubic-rfc, newreno, bbr, bbr3, htcp",
        ),
        (("--connection", "77"), "77"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(words: tuple[str, ...], says: str) -> None:
    done = run(str(LTE), *words)
    assert done.returncode not in (0, 5)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_every_congestion_control_that_may_be_named_has_a_name_and_a_replay() -> None:
    assert set(NAMED) == set(SENDER_NAMES)
    named = [(replace(LINK, sort=Sort(name)), AS_IT_WAS) for name in NAMED]
    outcomes = replayed(named, "up", None, None)
    assert len({one.queue_ms_p50 for one in outcomes}) == len(NAMED), "each has its own law"


def test_a_cure_of_the_other_direction_is_refused() -> None:
    assert "gate" not in {cure.name for cure in for_way("down")}
    with pytest.raises(unbloat.UnbloatError, match="gate is no cure for this direction"):
        for_way("down", ("gate",))


def test_every_cure_runs_in_both_directions_and_changes_what_it_names() -> None:
    for way in ("up", "down"):
        cures = for_way(way)
        made = replayed([(LINK, cure) for cure in (AS_IT_WAS, *cures)], way, None, None)
        was, by_name = made[0], dict(zip((cure.name for cure in cures), made[1:], strict=True))
        assert by_name["cubic"] == was
        for name, one in by_name.items():
            assert 0.7 * was.goodput_bps < one.goodput_bps < 4e6, (way, name)
            if name not in ("cubic", "newreno", "afc"):
                assert one.queue_ms_p95 < was.queue_ms_p95 / 4, (way, name)
    assert len({cure.name for cure in CURES}) == len(CURES)


def test_acks_that_are_held_make_the_queue_of_a_short_window_longer() -> None:
    held = replace(LINK, hold=Hold(300.0, 600.0))
    acks = next(cure for cure in CURES if cure.name == "acks")
    even, uneven = replayed([(LINK, acks), (held, acks)], "up", None, None)
    assert uneven.goodput_bps < 0.9 * even.goodput_bps
    assert 'every = "600000 us", length = "300000 us"' in scenario((held, acks), "up")


def test_holds_are_known_by_acks_that_arrive_together() -> None:
    """Samples of a capture: `bloated-cubic-upload` has ACKs that are held for 600 ms, its twin by BBR has none."""
    hold = unbloat.fit(SAMPLES / "bloated-cubic-upload.pcapng.zst", draws=1).hold
    assert hold is not None
    assert hold.length_ms == pytest.approx(600, abs=15)
    assert hold.every_ms > hold.length_ms
    assert unbloat.fit(SAMPLES / "bloated-bbr-upload.pcapng.zst", draws=1).hold is None


def test_holds_of_a_long_queue_alone_leave_open_what_a_short_one_has() -> None:
    """The twin by BBR is the truth of that cure: it has no holds, since its queue is short."""
    found = unbloat.what_if(SAMPLES / "bloated-cubic-upload.pcapng.zst", cures=("bbr",), draws=10)
    assert found.fitted.hold is not None
    assert found.fitted.hold.in_long_queue
    assert sum(link.hold is None for link in found.links) == 5
    [bbr] = found.cures
    twin = unbloat.what_if(SAMPLES / "bloated-bbr-upload.pcapng.zst", cures=("bbr",), draws=4)
    assert bbr.goodput_bps[0] <= twin.seen.goodput_bps <= bbr.goodput_bps[2]
    assert bbr.goodput_bps[0] < 0.5 * bbr.goodput_bps[2], "with holds it would get much less"
    assert twin.seen.queue_ms_p95 < 0.1 * found.seen.queue_ms_p95
    assert bbr.queue_ms_p95[1] < 0.1 * found.seen.queue_ms_p95
    assert bbr.queue_ms_p95[0] <= twin.seen.queue_ms_p95 <= bbr.queue_ms_p95[2]
    assert twin.senders == {"bbr": 1.0}, "recognised by its probes"


def test_a_buffer_without_an_end_is_tried_in_several_sizes() -> None:
    known, least = Buffer(90_000, 100_000, 110_000), Buffer(100_000, None, None)
    [one] = buffers(known, Random(1))
    assert 90_000 <= one <= 110_000
    several = buffers(least, Random(1))
    assert several == sorted(several)
    assert 100_000 <= several[0] < 200_000
    assert 400_000 < several[-1] <= 800_000


def test_the_replays_that_are_nearest_are_kept() -> None:
    near, far = replace(SEEN, queue_ms_p50=105.0), replace(SEEN, queue_ms_p50=10.0)
    assert distance(SEEN, SEEN) == 0.0 < distance(near, SEEN) < distance(far, SEEN)
    # Senders that never lose a packet are not those that fill a buffer.
    assert distance(replace(SEEN, loss_rate=0.0), SEEN) > distance(near, SEEN)
    links = [replace(LINK, seed=seed) for seed in range(3)]
    assert [link.seed for link, _ in kept(links, [far, near, SEEN], SEEN, 2)] == [1, 2]


def test_the_check_has_its_bounds() -> None:
    assert differences(SEEN, [replace(SEEN, goodput_bps=4.39e6, queue_ms_p95=239.0)]) == []
    assert len(differences(SEEN, [replace(SEEN, goodput_bps=4.41e6, queue_ms_p95=241.0)])) == 2
    short = replace(SEEN, queue_ms_p95=12.0)
    assert differences(short, [replace(short, queue_ms_p95=21.9)]) == []
    assert len(differences(short, [replace(short, queue_ms_p95=22.1)])) == 1


def test_an_interval_is_no_narrower_than_a_replay_is_good() -> None:
    assert spread([100.0] * 10, 0.15, 4.0) == pytest.approx((85.0, 100.0, 115.0))
    assert spread([1.0] * 10, 0.15, 4.0) == pytest.approx((0.0, 1.0, 5.0))
    low, middle, high = spread([50.0, 100.0, 300.0], 0.15, 4.0)
    assert 50.0 * 0.85 <= low <= 50.0
    assert middle == 100.0
    assert 300.0 <= high <= 300.0 * 1.15
