"""`unbloat what-if --write`, several captures of one path, and the table of `--lab`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

import unbloat
from unbloat.link.model import Buffer, LinkFit, RandomLoss
from unbloat.prediction.narrow import narrowed
from unbloat.prediction.predict import WhatIf
from unbloat.prediction.replay import Outcome
from unbloat.prediction.text import lab_notes, lab_rows
from unbloat.run.figures import Figures

SAMPLES = ROOT / "samples"
LTE = SAMPLES / "lte-with-web.pcapng.zst"


@pytest.fixture(scope="module")
def fitted() -> LinkFit:
    return unbloat.fit(LTE, draws=2)


@pytest.fixture(scope="module")
def found() -> WhatIf:
    return unbloat.what_if(LTE, cures=("bbr", "afc"), draws=4)


def test_the_scenarios_that_are_written_give_what_was_predicted(tmp_path: Path) -> None:
    folder = tmp_path / "link"
    argv = ("what-if", str(LTE), "--cures", "bbr", "--draws", "4", "--write", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", "unbloat", *argv], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "scenario.toml, up.trace, 1 cure and 4 draws" in " ".join(done.stdout.split())
    assert sorted(path.name for path in folder.rglob("*.toml")) == [
        "1.toml",
        "2.toml",
        "3.toml",
        "4.toml",
        "bbr.toml",
        "scenario.toml",
    ]
    was, cured = (unbloat.simulate(folder / name) for name in ("scenario.toml", "cures/bbr.toml"))
    assert isinstance(was, unbloat.Run)
    assert isinstance(cured, unbloat.Run)
    before, after = (Figures(run).transfer_queue_ms("transfer") for run in (was, cured))
    assert before is not None
    assert after is not None
    # 600 KB at 3 Mbit/s.
    assert before.p95 == pytest.approx(1600, rel=0.05)
    assert after.p95 < 60
    # A packet of 1,500 bytes per line, over 17 s.
    packets = len((folder / "up.trace").read_text().split())
    assert packets * 12_000 / 16.9 == pytest.approx(3e6, rel=0.03)


def test_another_capture_of_the_path_narrows_the_buffer_and_adds_its_losses(
    fitted: LinkFit,
) -> None:
    one = replace(fitted, buffer=Buffer(100_000, None, None), random_loss=RandomLoss(10, 10, 1000))
    other = replace(
        fitted, buffer=Buffer(140_000, 150_000, 160_000), random_loss=RandomLoss(30, 60, 2000, 2.0)
    )
    both, contradictions = narrowed(one, [other])
    assert contradictions == []
    assert both.buffer == other.buffer
    assert both.random_loss == RandomLoss(40, 70, 3000, 2.0)
    assert both.draws == one.draws, "the rate is that of the first capture"
    longer = replace(one, buffer=Buffer(130_000, None, None))
    assert narrowed(one, [longer])[0].buffer == longer.buffer


def test_captures_of_two_paths_contradict_each_other(fitted: LinkFit) -> None:
    small = replace(fitted, buffer=Buffer(40_000, 50_000, 60_000))
    large = replace(fitted, buffer=Buffer(90_000, None, None))
    for pair in ((small, large), (large, small)):
        kept, [line] = narrowed(pair[0], [pair[1]])
        assert kept is pair[0]
        assert "another one" in line
    other = SAMPLES / "bloated-download-at-receiver.pcapng.zst"
    with pytest.raises(unbloat.LinkUnknown, match="is another one"):
        unbloat.what_if(LTE, other, cures=("bbr",), draws=2)


def test_two_captures_are_one_more_argument() -> None:
    alone = unbloat.what_if(LTE, cures=("bbr",), draws=2)
    twice = unbloat.what_if(LTE, LTE, cures=("bbr",), draws=2)
    assert twice.fitted.buffer == alone.fitted.buffer


def test_runs_of_kernels_stand_beside_the_prediction(found: WhatIf) -> None:
    runs = [Outcome(2.7e6 + at * 1e5, 900.0, 1500.0 + at, 0.0, "F") for at in range(3)]
    ran = replace(found, lab={"as it was": runs, "bbr": runs[:1], "afc": "no kernel has it"})
    was, bbr = lab_rows(ran)
    assert was[0] == "as it was"
    assert was[2] == "2.80 [2.70, 2.90]"
    assert was[4] == "1501 [1500, 1502]"
    assert bbr[2] == "2.70"
    assert lab_notes(ran)[-1] == "afc has no run: no kernel has it"
    rows = {row["cure"]: row for row in ran.to_dict()["predicted"]}
    assert [one["goodput_bps"] for one in rows["as it was"]["lab"]] == [2.7e6, 2.8e6, 2.9e6]
    assert rows["afc"]["lab"] is None
    assert rows["afc"]["lab_why"] == "no kernel has it"
    assert "lab" not in found.to_dict()["predicted"][0]
