"""Fairness in the lab without a run: its cases and what an agent does in them, the store, page and screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unbloat.cli.arguments import main
from unbloat.errors import LabError
from unbloat.fairness import lab as lab_module
from unbloat.fairness.cases import BOTH_WAYS, BothWays, Case
from unbloat.fairness.fairness import NAMES, Fairness
from unbloat.fairness.lab import LAB_CASES, FairnessInLab, fairness_in_lab, in_lab
from unbloat.fairness.lab_page import fairness_lab_section
from unbloat.fairness.page import fairness_page
from unbloat.lab.agent.config import cures
from unbloat.lab.execute import plan_of
from unbloat.run.store import Store
from unbloat.scenario.simulate import RunOptions, prepared

STORED = Path(__file__).parents[2] / "docs/generated/fairness-lab.jsonl"
RUN = {
    "late_ms": 0.3,
    "warnings": [],
    "kernel": "Linux 6.12",
    "date": "2026-01-02",
}
UP = [case for case in LAB_CASES if (case.way, case.flows, case.unequal) == ("up", 2, True)]
ACKS = [case for case in BOTH_WAYS if case.name in ("nothing", "ACKs")]


def found(case: Case | BothWays) -> list[Any]:
    """Fair with an agent, and not without."""
    if isinstance(case, BothWays):
        return [1_900_000, 0, 90.0] if not case.download else [1_700_000, 7_000_000, 95.0]
    shares = (4000, 4000) if case.sharing.window else (7000, 1000)
    rtts = [75.0, 130.0] if case.sharing.window else [900.0, 950.0]
    return [[[share] * case.duration_s for share in shares], rtts]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that are made, in place of a minute of the lab each."""
    made: list[str] = []

    def count(case: Case | BothWays, seed: int, _: object) -> dict[str, Any]:
        made.append(f"{case.key[-1]} {case.key[2]}, {seed}")
        return RUN | {"found": found(case)}

    monkeypatch.setattr(lab_module, "in_lab", count)
    monkeypatch.setattr(lab_module, "need_root", lambda: None)
    return made


def test_latecomers_in_each_direction_with_the_agent_and_without() -> None:
    assert len(LAB_CASES) == 16
    assert {(case.way, case.flows) for case in LAB_CASES} == {
        (way, flows) for way in ("up", "down") for flows in (2, 4)
    }
    assert all(case.staggered for case in LAB_CASES)


@pytest.mark.parametrize("case", [*LAB_CASES, *BOTH_WAYS], ids=lambda case: ", ".join(case.key))
def test_only_the_cases_have_an_agent(case: Case | BothWays) -> None:
    plan = plan_of(prepared(case.scenario(), RunOptions()).jobs[0])
    agents = cures(plan)
    if isinstance(case, BothWays):
        (own, acks), gate = (bool(case.receive and case.download), bool(case.acks)), bool(case.gate)
    else:
        treated = bool(case.sharing.window)
        (own, acks), gate = (treated and case.way == "down", treated and case.way == "up"), False
    assert any(one.receive is not None for one in agents) == own
    assert any(one.acks is not None for one in agents) == acks
    assert any(one.gate is not None for one in agents) == gate
    assert bool(agents) == lab_module.treated(case)


def test_a_second_repetition_runs_after_all_of_the_first_and_nothing_twice(
    tmp_path: Path, runs: list[str]
) -> None:
    store = tmp_path / "fairness-lab.jsonl"
    fairness_in_lab(1, store=store, cases=UP, both_ways=[])
    once = [f"{case.sharing.name} 10 s apart, 1" for case in UP]
    assert runs == once
    # Cut off in the last line: that run and the second repetition are missing.
    store.write_text(store.read_text()[:-20])
    runs.clear()
    whole = fairness_in_lab(2, store=store, cases=UP, both_ways=[])
    assert runs == [once[-1], *(one.replace(", 1", ", 2") for one in once)]
    assert [len(one.runs) for one in whole.shared] == [2, 2]
    runs.clear()
    again = fairness_in_lab(2, store=store, cases=UP, both_ways=[], only_stored=True)
    assert (again, runs) == (whole, [])


def test_a_run_of_another_law_is_made_again(tmp_path: Path, runs: list[str]) -> None:
    store = tmp_path / "fairness-lab.jsonl"
    fairness_in_lab(1, store=store, cases=UP, both_ways=[])
    lines = [json.loads(line) for line in store.read_text().splitlines()]
    lines[1]["runs"][0]["simulator"][0] *= 1.05
    store.write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs.clear()
    fairness_in_lab(1, store=store, cases=UP, both_ways=[])
    assert runs == [f"{UP[1].sharing.name} 10 s apart, 1"]


class FakeRuns:
    """What the lab gives back, without figures."""

    def __init__(self, agents: list[str]) -> None:
        self.runs = [self]
        self.info = {"agents": agents}


@pytest.mark.parametrize(("case", "agents"), [(UP[0], ["client: ACKs"]), (UP[1], [])])
def test_a_control_that_is_its_case_is_no_result(
    case: Case, agents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_module, "lab_all", lambda *_, **__: FakeRuns(agents))
    with pytest.raises(LabError, match="agents that ran"):
        in_lab(case, 1, None)


def test_the_section_has_each_case_beside_the_simulator(runs: list[str]) -> None:
    lab = fairness_in_lab(2, cases=UP, both_ways=ACKS)
    assert len(runs) == 2 * (len(UP) + len(ACKS))
    text = fairness_page(Fairness([], []), lab)
    (plain, held) = (line for line in text.splitlines() if line.startswith("| up | 2 |"))
    assert plain.split(" | ")[3:5] == ["nothing", "0.64"]
    assert plain.split(" | ")[-2:] == ["0 of 2", "– |"]
    assert held.split(" | ")[3:5] == ["window law, agent", "1.00"]
    assert held.split(" | ")[8] == "1.50 ×"
    assert held.split(" | ")[-2:] == ["2 of 2", "2 of 2 |"]
    (acks,) = (line for line in text.splitlines() if line.startswith("| ACKs |"))
    assert acks.split(" | ")[1:3] == ["1.70 Mbit/s", "0.89 ×"]
    assert acks.endswith("| 2 of 2 |")
    assert "2026-01-02" in text
    assert fairness_lab_section(FairnessInLab([], [], [])) == ""


def test_the_command_prints_80_columns(
    tmp_path: Path,
    runs: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = tmp_path / "fairness.jsonl"
    fairness_in_lab(1, store=tmp_path / "fairness-lab.jsonl", cases=UP, both_ways=ACKS)
    count = len(runs)
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["unbloat", "reproduce", "fairness", "--lab", "--stored", "--store", str(store)]
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", [*arguments, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        out = capsys.readouterr().out
        if more:
            data = json.loads(out)
            assert [one["control"] for one in data["cases"]] == [one.sharing.name for one in UP]
            assert data["cases"][1]["lab"][0]["fair"] is True
            assert [one["control"] for one in data["both_ways"]] == ["nothing", "ACKs"]
        else:
            assert max(map(len, out.splitlines())) <= 80
    assert len(runs) == count


def test_the_page_in_the_documentation_has_every_case() -> None:
    kept = Store(STORED, NAMES)
    cases: list[Case | BothWays] = [*LAB_CASES, *BOTH_WAYS]
    missing = [case.key for case in cases if not lab_module.stored(kept, case)]
    assert missing == [], "make fairness-lab"
