"""`reproduce phones`: the judge on made-up counts, the stored page, and one of its phones made and analysed again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unbloat.cli.arguments import main
from unbloat.corpus.report.paper import PANELS
from unbloat.phones.figures import FIGURES, TOLERANCES, Figure
from unbloat.phones.page import phones_page
from unbloat.phones.reproduce import (
    CONTROL,
    JUDGED,
    NAMES,
    Sample,
    apart_from,
    judged,
    key,
    measured,
    reproduce_phones,
    settings,
)
from unbloat.run.store import Store

STORED = Path(__file__).parents[2] / "docs/generated/phones.jsonl"
FIGURE = Figure("view", "series", "figure 0", "title", ((1.0, 0.5), (2.0, 0.9)), 0.1)


def phones(*counts: list[int]) -> list[list[dict[str, list[int]]]]:
    """A phone for each: values, and how many are up to each point; the truth is the same."""
    return [[{FIGURE.key: one}, {FIGURE.key: one}] for one in counts]


NEAR, FAR = phones(*[[100, 52, 91]] * 9), phones(*[[100, 20, 60]] * 9)


def test_a_figure_passes_where_it_is_near_and_its_control_far() -> None:
    outcome = judged(FIGURE, NEAR, FAR)
    assert outcome.ours is not None
    assert outcome.ours.distance == pytest.approx(0.02)
    assert outcome.passes
    assert not judged(FIGURE, FAR, FAR).passes
    assert not judged(FIGURE, NEAR, NEAR).passes  # the control shows nothing


def test_the_whole_interval_counts_and_phones_are_its_units() -> None:
    # The same shares in all, but half of the phones are far off.
    apart = phones(*[[100, 10, 80], [100, 94, 100]] * 5)
    outcome = judged(FIGURE, apart, FAR)
    assert outcome.ours is not None
    assert outcome.ours.distance < 0.1 < outcome.ours.high
    assert not outcome.passes


def test_a_figure_without_values_does_not_pass() -> None:
    assert not judged(FIGURE, phones([0, 0, 0]), FAR).passes
    assert not judged(FIGURE, NEAR, phones([0, 0, 0])).passes
    assert not judged(FIGURE, [], []).passes


def test_a_view_that_differs_from_the_truth_is_shown() -> None:
    ours = [[{FIGURE.key: [100, 52, 91]}, {FIGURE.key: [100, 40, 91]}]]
    assert judged(FIGURE, ours, FAR).from_truth == pytest.approx(0.12)


def test_every_series_of_the_study_is_judged() -> None:
    assert {(panel.view, name) for panel in PANELS for name in panel.series} == set(TOLERANCES)
    assert len(FIGURES) == len(TOLERANCES) == len({figure.key for figure in FIGURES})


@pytest.mark.parametrize("nothing", [0.0, 1.0])
def test_no_series_passes_where_all_values_are_small_or_all_are_large(nothing: float) -> None:
    """Of a curve that is known near its end alone, a value of 0 for all would be near."""
    for figure in FIGURES:
        assert apart_from(figure, [nothing] * len(figure.points)) > figure.tolerance, figure


def test_the_page_is_what_is_stored_and_the_view_is_near_the_truth() -> None:
    outcomes = reproduce_phones(store=STORED, only_stored=True)
    page = phones_page(outcomes)
    assert page == (STORED.parent / "phones.md").read_text(encoding="utf-8"), "make phones"
    for outcome in outcomes:
        assert outcome.from_truth <= 0.025, outcome.figure
        assert outcome.control is not None
        assert outcome.control.low > outcome.figure.tolerance, outcome.figure


@pytest.mark.parametrize("sample", [JUDGED, CONTROL], ids=["judged", "control"])
def test_a_sample_of_the_page_is_what_a_run_gives(sample: Sample) -> None:
    kept = Store(STORED, NAMES)
    assert all(
        kept.runs(key(sample, phone), settings(sample)) is not None
        for phone in range(sample.phones)
    ), "make phones"
    phone = sample.phones - 1
    assert measured(sample, phone) == kept.runs(key(sample, phone), settings(sample))


def test_the_command_prints_80_columns_and_refuses_options_of_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["unbloat", "reproduce", "phones", "--stored"]

    def ended(*more: str) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", [*arguments, *more])
        with pytest.raises(SystemExit) as end:
            main()
        out, errors = capsys.readouterr()
        return end.value.code, out, errors

    page = tmp_path / "phones.md"
    code, out, _ = ended("--store", str(STORED), "--page", str(page))
    assert max(map(len, out.splitlines())) <= 80
    assert page.read_text() == (STORED.parent / "phones.md").read_text()
    again, out, _ = ended("--store", str(STORED), "--json")
    facts = json.loads(out)["figures"]
    assert len(facts) == len(FIGURES)
    assert code == again == int(not all(one["passes"] for one in facts))
    assert ended()[0] == 2
    assert "--store, --stored, --page, --json and --jobs alone" in ended("--quick")[2]
