"""The front in the lab without a run: its cases and what an agent does in them, the store, differences, page and screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unbloat.cli.arguments import main
from unbloat.errors import LabError, ScenarioError
from unbloat.front import lab as lab_module
from unbloat.front.case import scenario
from unbloat.front.controls import Control
from unbloat.front.front import Front
from unbloat.front.judge import Field, Point
from unbloat.front.lab import (
    LAB_CONTROLS,
    LAB_LINKS,
    FrontInLab,
    beside,
    differences,
    front_in_lab,
    lab_controls,
    lab_links,
    measured,
)
from unbloat.front.lab_page import lab_section
from unbloat.front.links import Link, Track
from unbloat.front.page import front_page
from unbloat.lab.agent.config import configuration, cures
from unbloat.lab.execute import plan_of
from unbloat.run.store import Store
from unbloat.scenario.confidence import spread
from unbloat.scenario.simulate import RunOptions, prepared

STORED = Path(__file__).parents[2] / "docs/generated/front-lab.jsonl"
STEADY = "steady 8 up"
RUN = {
    "goodput_bps": 7_600_000.0,
    "ping_p95_ms": 70.0,
    "queue_p95_ms": 20.0,
    "late_ms": 0.3,
    "warnings": [],
    "kernel": "Linux 6.12",
    "date": "2026-01-02",
}
# What a run has beside its figures in the result.
BESIDE = {"commit": "abc1234", "link": "steady 8 up", "control": "ACKs"}


def link(name: str) -> Link:
    return next(one for one in lab_links() if one.name == name)


def control(name: str) -> Control:
    return next(one for one in lab_controls() if one.name == name)


def plan(track: Track, of: Control, folder: Path) -> dict[str, Any]:
    (folder / "link").write_text(track.text)
    return plan_of(prepared(scenario(track, of), RunOptions(traces=folder)).jobs[0])


def made_track(way: str) -> Track:
    """A recorded link with an opportunity every 10 ms."""
    text = "".join(f"{ms}\n" for ms in range(10, 1010, 10))
    return Track(Link("made up", "recorded", "down" if way == "down" else "up"), text=text)


def test_six_links_of_the_tuning_half_three_in_each_direction() -> None:
    assert len(lab_links()) == len(LAB_LINKS) == 6
    assert {one.half for one in lab_links()} == {"tuning"}
    assert [one.way for one in lab_links()].count("up") == 3
    assert sorted(one.name for one in lab_controls()) == sorted(LAB_CONTROLS)


@pytest.mark.parametrize(("way", "ours"), [("down", "window"), ("up", "ACKs")])
def test_only_the_cure_has_an_agent_and_only_bbr_is_bbr(
    way: str, ours: str, tmp_path: Path
) -> None:
    plans = {name: plan(made_track(way), control(name), tmp_path) for name in ("nothing", "bbr")}
    held = plan(made_track(way), control(ours), tmp_path)
    assert cures(plans["nothing"]) == cures(plans["bbr"]) == []
    kinds = [one["flows"][0]["sender"]["congestion"]["kind"] for one in (*plans.values(), held)]
    assert kinds == ["cubic", "bbr", "cubic"]
    (cure,) = cures(held)
    assert (cure.receive is not None, cure.acks is not None) == (way == "down", way == "up")
    law = configuration(cure, "tun0", tmp_path, None)
    law = law[law.index("[receive]" if way == "down" else "[uplink]") :].split("\n[forward]")[0]
    for line in ("lambda = 1.75", "lambda_min = 1.25", "fair = true"):
        assert line in law


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that are made, in place of a minute of the lab each."""
    made: list[str] = []

    def count(track: Track, of: Control, seed: int, _: object) -> dict[str, Any]:
        made.append(f"{track.link.name}: {of.label}, {seed}")
        return RUN | {"ping_p95_ms": 70.0 + seed}

    monkeypatch.setattr(lab_module, "measured", count)
    monkeypatch.setattr(lab_module, "need_root", lambda: None)
    return made


def test_a_second_repetition_runs_after_all_of_the_first_and_nothing_twice(
    tmp_path: Path, runs: list[str]
) -> None:
    store = tmp_path / "front-lab.jsonl"
    first = front_in_lab(1, store=store, links=[link(STEADY)])
    assert runs == [f"{STEADY}: {name}, 1" for name in ("nothing", "bbr", "ACKs")]
    assert [one["date"] for one in first.runs] == ["2026-01-02"] * 3
    assert all(one["commit"] for one in first.runs)
    # Cut off in the last line: that run and the second repetition are missing.
    store.write_text(store.read_text()[:-20])
    runs.clear()
    second = front_in_lab(2, store=store, links=[link(STEADY)])
    assert runs == [
        f"{STEADY}: ACKs, 1",
        *(f"{STEADY}: {name}, 2" for name in ("nothing", "bbr", "ACKs")),
    ]
    assert [one.p95.count for one in second.fields[0].points] == [2, 2, 2]
    assert second.fields[0].points[0].p95.mean == 71.5
    runs.clear()
    assert front_in_lab(2, store=store, links=[link(STEADY)]).fields == second.fields
    assert runs == []


def test_a_run_of_other_settings_does_not_count(tmp_path: Path, runs: list[str]) -> None:
    store = tmp_path / "front-lab.jsonl"
    front_in_lab(1, store=store, links=[link(STEADY)])
    store.write_text(store.read_text().replace('"settings": "', '"settings": "x', 1))
    runs.clear()
    assert len(front_in_lab(1, store=store, links=[link(STEADY)], only_stored=True).runs) == 2
    assert runs == []
    front_in_lab(1, store=store, links=[link(STEADY)])
    assert runs == [f"{STEADY}: nothing, 1"]


def test_a_run_of_another_law_is_made_again(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "front-lab.jsonl"
    figures = {"nothing": [7.7e6, 2050.0], "bbr": [7.5e6, 69.0], "ACKs": [7.7e6, 63.0]}
    monkeypatch.setattr(lab_module, "simulated", lambda _, of: figures[of.name])
    front_in_lab(1, store=store, links=[link(STEADY)])
    runs.clear()
    figures |= {"bbr": [7.6e6, 72.0], "ACKs": [7.7e6, 75.0]}  # bbr: another compiler
    assert len(front_in_lab(1, store=store, links=[link(STEADY)], only_stored=True).runs) == 3
    assert runs == []
    assert len(front_in_lab(1, store=store, links=[link(STEADY)]).runs) == 3
    assert runs == [f"{STEADY}: ACKs, 1"]


def test_what_cannot_be_run_is_skipped_with_the_reason(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = lab_module.measured

    def without_bbr(track: Track, of: Control, seed: int, share: object) -> dict[str, Any]:
        if of.name == "bbr":
            raise ScenarioError("congestion bbr is not in this kernel")
        return count(track, of, seed, share)  # type: ignore[arg-type]

    monkeypatch.setattr(lab_module, "measured", without_bbr)
    found = front_in_lab(2, traces=tmp_path, links=[link(STEADY), link("Verizon-LTE-short.down")])
    assert found.skipped == {
        "Verizon-LTE-short.down": "no such trace file (--traces DIR)",
        f"{STEADY}, bbr": "congestion bbr is not in this kernel",
    }
    assert [one.control for one in found.fields[0].points] == ["nothing", "ACKs"]


class FakeRuns:
    """What the lab gives back, without figures."""

    def __init__(self, agents: list[str]) -> None:
        self.runs = [self]
        self.info = {"agents": agents}


@pytest.mark.parametrize(("name", "agents"), [("ACKs", []), ("nothing", ["client: ACKs"])])
def test_a_control_that_is_its_case_is_no_result(
    name: str, agents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    track = link(STEADY).open(None)
    assert track is not None
    monkeypatch.setattr(lab_module, "lab_all", lambda *_, **__: FakeRuns(agents))
    monkeypatch.setattr(lab_module, "read", lambda *_: None)
    with pytest.raises(LabError, match="agents that ran"):
        measured(track, control(name), 1, None)


def point(name: str, mbit_s: float, p95: float) -> Point:
    role = {"nothing": "untreated", "bbr": "peer"}.get(name, "ours")
    return Point(name, "default", role, spread([mbit_s * 1e6]), spread([p95]), spread([0.0]))  # type: ignore[arg-type]


def field(*points: Point) -> Field:
    return Field(STEADY, "made, up", "tuning", 10.2e6, 60.0, points)


SIMULATED = field(point("nothing", 10, 3000), point("bbr", 9.8, 260), point("ACKs", 9.6, 155))


@pytest.mark.parametrize(
    ("mbit_s", "p95", "differs", "reaches"),
    [
        (9.55, 150, [], True),
        (9.55, 185, [], False),  # 19 % above; no longer half of BBR's excess
        (9.55, 190, ["p95"], False),
        (10.6, 120, ["goodput", "p95"], True),
        (8.6, 155, ["goodput"], False),
    ],
)
def test_the_tolerances_and_the_goal(
    mbit_s: float, p95: float, differs: list[str], reaches: bool
) -> None:
    of_lab = field(*SIMULATED.points[:2], point("ACKs", mbit_s, p95))
    *controls, ours = differences([of_lab], [SIMULATED])
    assert all(one.differs == [] and one.reaches is None for one in controls)
    assert ours.differs == differs
    assert ours.reaches == (reaches, True)


def test_without_a_case_of_the_simulator_nothing_is_compared() -> None:
    alone = replace(SIMULATED, points=SIMULATED.points[2:])
    (one,) = differences([alone], [])
    assert (one.goodput, one.p95, one.differs, one.reaches) == (None, None, [], (None, None))


def made(*points: Point, **skipped: str) -> FrontInLab:
    return FrontInLab(
        [field(*points)], [RUN | BESIDE | {"simulator": [9.6e6, 155.0]}] * len(points), skipped
    )


def test_the_section_says_what_differs_and_what_was_measured() -> None:
    found = made(*SIMULATED.points[:2], point("ACKs", 9.6, 200), gone="no such trace file")
    text = front_page(Front([SIMULATED], {}), "a.svg", found)
    row = f"| {STEADY} | ACKs | 9.60 | 9.60 | +0 % | 200 | 155 | +29 % | p95 | no | yes |"
    assert row in text
    assert "2 of 3 cases agree in both figures" in text
    assert "3 runs, 2026-01-02 at abc1234 on Linux 6.12." in text
    assert "- gone: no such trace file" in text
    assert "law has changed" not in text
    found.runs[0]["simulator"] = [9.6e6, 200.0]
    assert f"since the runs of {STEADY} (ACKs): " in lab_section(found, [SIMULATED])
    assert lab_section(FrontInLab([], [], {"gone": "no such trace file"}), [SIMULATED]) == ""
    assert "In the lab" not in front_page(Front([SIMULATED], {}), "a.svg")


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable:  # type: ignore[type-arg]
    """What the command prints."""

    def call(*arguments: str) -> str:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr("sys.argv", ["unbloat", "reproduce", "front", "--lab", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    return call


def test_the_command_shows_the_lab_beside_the_simulator(
    tmp_path: Path, runs: list[str], shown: Callable[..., str]
) -> None:
    store = tmp_path / "front.jsonl"
    lines = shown("--store", str(store)).splitlines()
    assert beside(store) == tmp_path / "front-lab.jsonl"
    assert len(runs) == len(beside(store).read_text().splitlines()) == 3
    assert max(map(len, lines)) <= 80
    assert any(one.split()[:4] == ["steady", "8", "up", "ACKs"] for one in lines)
    page = tmp_path / "front.md"
    data = json.loads(shown("--store", str(store), "--stored", "--json", "--page", str(page)))
    assert len(runs) == 3
    compared = [(one["link"], one["control"]) for one in data["lab"]["differences"]]
    assert compared == [(STEADY, name) for name in ("nothing", "bbr", "ACKs")]
    # The simulator was run for these cases alone.
    assert [one["control"] for one in data["links"][0]["points"]] == ["nothing", "bbr", "ACKs"]
    assert "## In the lab" in page.read_text()


def test_the_page_in_the_documentation_has_runs_of_the_present_settings() -> None:
    track = link(STEADY).open(None)
    assert track is not None
    lines = Store(STORED, lab_module.NAMES).lines
    assert {name for name, _ in lines} == set(LAB_LINKS), "make front-lab"
    for of in ("nothing", "bbr", "ACKs"):
        assert lab_module.stored(Store(STORED, lab_module.NAMES), track, control(of)), (
            "make front-lab"
        )
