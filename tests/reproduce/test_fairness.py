"""Fairness: Jain's index, the judge on made-up goodputs, the cases, and a sample of the page run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unbloat.cli.arguments import main
from unbloat.fairness.cases import ALONE, BOTH_WAYS, CASES, SHARINGS, Case, Sharing
from unbloat.fairness.fairness import NAMES, Both, Shared, fairness, settings, shared
from unbloat.fairness.jain import holds_after, per_second
from unbloat.fairness.judge import BothVerdict, judge_alone, judge_shared
from unbloat.front.case import simulated
from unbloat.run.figures import Figures, jain_index
from unbloat.run.store import Store

STORED = Path(__file__).parents[2] / "docs/generated/fairness.jsonl"
PLAIN, _, _, _, LAW, FAIR_QUEUE = SHARINGS


def test_jains_index_is_one_where_all_are_equal_and_1_over_n_where_one_has_everything() -> None:
    assert jain_index([3.0, 3.0, 3.0, 3.0]) == 1.0
    assert jain_index([0.0, 5.0, 0.0, 0.0]) == 0.25
    # Jain, Chiu, Hawe 1984: of two flows, half as much for one is 0.9.
    assert jain_index([1.0, 2.0]) == pytest.approx(0.9)
    assert jain_index([0.0, 0.0]) is None


def test_the_index_of_each_second_is_of_that_second() -> None:
    assert per_second([[1, 2, 0], [1, 0, 0]]) == [1.0, 0.5, None]
    assert per_second([[1, 2], [1, 0]], smooth_s=2)[1] == pytest.approx(16 / (2 * 10))


def test_the_time_until_it_holds_counts_from_the_last_start() -> None:
    # Ten seconds of one flow alone, then ten unfair, then fair to the end.
    series = [[9] * 10 + [9] * 10 + [5] * 40, [0] * 10 + [1] * 10 + [5] * 40]
    # Five seconds hold 0.9 once two and a half of them are fair.
    assert holds_after(series, 10) in (7, 8, 9)
    assert holds_after([[5] * 60, [5] * 60], 0) == 0
    assert holds_after([[9] * 60, [1] * 60], 0) is None
    # Fair, but unfair again at the end.
    assert holds_after([[5] * 55 + [9] * 5, [5] * 55 + [0] * 5], 0) is None


def made(goodputs: list[list[int]], rtts: list[float], flows: int = 2) -> Shared:
    return Shared(Case("down", flows, False, False, LAW), goodputs, rtts)


def test_what_is_fair_and_what_is_not() -> None:
    good = judge_shared(made([[5] * 60, [5] * 60], [87.0, 96.0]))
    assert (good.fair, good.short, good.jain, good.smallest) == (True, True, 1.0, 1.0)
    unfair = judge_shared(made([[9] * 60, [1] * 60], [150.0, 150.0]))
    assert (unfair.fair, unfair.holds_s) == (False, None)
    assert unfair.smallest == pytest.approx(0.2)
    late = judge_shared(made([[9] * 30 + [5] * 30, [1] * 30 + [5] * 30], [150.0, 150.0]))
    assert not late.fair
    assert late.holds_s is not None
    # λ = 1.75 and a tenth of 50 ms: 96.25 ms.
    assert not judge_shared(made([[5] * 60, [5] * 60], [87.0, 97.0])).short


def test_the_rtt_of_each_flow_is_compared_with_its_own_path() -> None:
    case = Case("up", 2, False, True, LAW)
    verdict = judge_shared(Shared(case, [[5] * 60, [5] * 60], [87.0, 190.0]))
    assert verdict.rtt_share == pytest.approx(1.9)
    assert verdict.short


def test_a_control_without_a_law_bounds_no_rtt() -> None:
    case = Case("down", 2, False, False, PLAIN)
    assert judge_shared(Shared(case, [[5] * 60, [5] * 60], [900.0, 900.0])).short is None


def test_what_a_flow_alone_loses() -> None:
    plain, held = (case for case in ALONE if case.way == "down" and case.sharing in (PLAIN, LAW))
    for rate, kept in ((100, True), (99, True), (98, False)):
        found = judge_alone(
            [Shared(plain, [[100] * 60], [900.0]), Shared(held, [[rate] * 60], [90.0])]
        )
        assert [verdict.kept for verdict in found] == [kept]


def test_an_upload_beside_a_download_needs_goodput_and_ping() -> None:
    assert BothVerdict(Both("x", 1.9e6, 1.6e6, 7e6, 95.0)).reaches
    assert not BothVerdict(Both("x", 1.9e6, 1.4e6, 7e6, 95.0)).reaches
    assert not BothVerdict(Both("x", 1.9e6, 1.6e6, 7e6, 105.0)).reaches


def test_every_case_has_a_name_of_its_own() -> None:
    keys = [case.key for case in (*ALONE, *CASES)] + [both.key for both in BOTH_WAYS]
    assert len(set(keys)) == len(keys)
    assert len(CASES) == 24 * len(SHARINGS)


def test_flows_go_where_and_when_the_case_says() -> None:
    case = Case("up", 4, True, True, FAIR_QUEUE)
    run = simulated(case.scenario())
    figures = Figures(run)
    starts = {row["id"]: row["start_s"] for row in run.connections.to_pylist()}
    for flow in range(4):
        (row,) = figures.flows(f"flow{flow}")
        assert starts[row["connection"]] == pytest.approx(10 * flow, abs=0.2)
        # The path, and a packet of each flow in turn.
        assert 0 < row["rtt_ms_min"] - case.base_ms(flow) < 4 * 1.5 + 1


def test_no_case_draws_random_numbers() -> None:
    for sharing in SHARINGS:
        case = Case("down", 2, True, False, sharing)
        text = case.scenario()
        other = text.replace('duration = "', 'seed = 2\nduration = "', 1)
        assert simulated(text).samples().equals(simulated(other).samples()), sharing.name


def test_an_interrupted_run_goes_on_and_the_command_prints_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "fairness.jsonl"
    chosen = [case for case in CASES if case.flows == 2 and not case.unequal and case.way == "down"]
    fairness(store=store, cases=[*ALONE[:4], *chosen])
    lines = store.read_text().splitlines(keepends=True)
    store.write_text("".join(lines[1:]))
    again = fairness(store=store, cases=[*ALONE[:4], *chosen])
    assert len(store.read_text().splitlines()) == len(lines)
    assert len(again.both) == len({case.name for case in BOTH_WAYS})
    monkeypatch.setenv("COLUMNS", "80")
    page = tmp_path / "fairness.md"
    arguments = ["unbloat", "reproduce", "fairness", "--stored", "--store", str(store)]
    for more in (["--page", str(page)], ["--json"]):
        monkeypatch.setattr("sys.argv", [*arguments, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        out = capsys.readouterr().out
        if "--json" in more:
            assert len(json.loads(out)["cases"]) == len(chosen)
        else:
            assert max(map(len, out.splitlines())) <= 80
    assert "### window law, agent, down" in page.read_text()


@pytest.mark.parametrize("sharing", SHARINGS, ids=lambda sharing: sharing.name)
def test_a_sample_of_the_page_is_what_a_run_gives(sharing: Sharing) -> None:
    case = next(
        case for case in CASES if case.sharing is sharing and (case.way, case.flows) == ("up", 2)
    )
    stored = Store(STORED, NAMES).runs(case.key, settings(case))
    assert stored is not None, "make front"
    goodputs, rtts = shared(case, simulated(case.scenario()))
    for ours, theirs in zip(goodputs, stored[0], strict=True):
        assert sum(ours) == pytest.approx(sum(theirs), rel=0.02)
    assert rtts == pytest.approx(stored[1], rel=0.02)
