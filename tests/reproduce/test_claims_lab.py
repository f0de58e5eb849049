"""Claims in the lab: how a claim says what is run, and what its figures make of what came out. The lab here is made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_claims import Writer
from typer.testing import CliRunner

from unbloat.claims import reproduce_in_lab as reproduce_lab
from unbloat.claims.claim import claims, read_claim
from unbloat.claims.judge import Outcome
from unbloat.claims.lab_settings import Tolerance, tolerance
from unbloat.claims.page import write_page
from unbloat.claims.reproduce import reproduce
from unbloat.claims.reproduce_in_lab import AGREES, DIFFERS, FAILED, NOT_RUN, LabOutcome
from unbloat.cli.arguments import app
from unbloat.errors import LabError, UnbloatError
from unbloat.scenario.simulate import RunOptions, simulate_all
from unbloat.scenario.sweep import RunSet, Skipped

LAB = """
[claim.lab]
quick = true
set = { duration = "3 s" }
"""
GROUP = 'group = "made up"\n'

Lab = Callable[..., RunSet]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a simulation in the lab's place, with other settings than it is asked for where that is wanted."""

    def put(skipped: str | None = None, fails: bool = False, **other: object) -> None:
        def made(
            path: Path,
            options: RunOptions,
            progress: Callable[[int, int], None] | None = None,
        ) -> RunSet:
            if fails:
                raise LabError("a program died")
            assert options.seeds == 1
            given = dict(options.set) | other
            runs = simulate_all(path, replace(options, set=given, seeds=None), progress=progress)
            for run in runs:
                run.info |= {"lateness_us_p99": 250.0, "kernel": "Linux 6.18"}
            if skipped is None:
                return runs
            places = [
                place
                for place, labels in enumerate(runs.labels)
                if ("queue", skipped) not in labels
            ]
            kept = [runs.labels[place] for place in places]
            left = [
                Skipped(labels, "no such thing in a kernel")
                for labels in runs.labels
                if labels not in kept
            ]
            return RunSet(runs.name, [runs.runs[place] for place in places], kept, skipped=left)

        monkeypatch.setattr(reproduce_lab, "lab_all", made)
        monkeypatch.setattr(reproduce_lab, "need_root", lambda: None)
        monkeypatch.setattr(reproduce_lab, "seconds_needed", lambda path, options: 10.0)

    return put


def only(outcomes: list[Outcome]) -> LabOutcome:
    assert len(outcomes) == 1
    found = outcomes[0].lab
    assert found is not None
    return found


def with_table(written: Writer, table: str = LAB, figure: str = "") -> Path:
    path: Path = written(GROUP, GROUP + table)
    path.write_text(path.read_text() + figure)
    return path


def test_a_figure_that_comes_out_as_simulated_agrees(
    written: Writer, lab: Callable[..., None]
) -> None:
    lab()
    with_table(written)
    progress: list[tuple[int, int]] = []
    outcomes = reproduce(
        lab="whole", lab_progress=lambda done, total: progress.append((done, total))
    )
    found = only(outcomes)
    assert (found.state, found.note, found.difference, found.within) == (AGREES, "", 0.0, True)
    assert (found.kernel, found.late_ms) == ("Linux 6.18", 0.25)
    # Under the lab's settings, which are not those of the figure itself.
    assert found.simulator == found.value != outcomes[0].value
    assert progress[-1] == (10, 10)


def test_a_figure_that_comes_out_otherwise_differs_and_is_a_surprise_without_a_reason(
    written: Writer, lab: Callable[..., None]
) -> None:
    other = {"link.down.rate": "2 Mbit/s"}
    lab(**other)
    with_table(written)
    (outcome,) = reproduce(lab="whole")
    found = only([outcome])
    assert found.difference is not None
    assert found.difference < -0.1
    assert (found.state, found.note, outcome.surprising) == (DIFFERS, "unexplained", True)
    with_table(written, figure='lab = { reason = "the kernel is old" }\n')
    (outcome,) = reproduce(lab="whole")
    assert (only([outcome]).state, only([outcome]).note, outcome.surprising) == (
        DIFFERS,
        "the kernel is old",
        False,
    )
    with_table(written, figure='lab = { tolerance = "10 s" }\n')
    assert only(reproduce(lab="whole")).state == AGREES


def test_bounds_of_the_lab_are_checked_beside_the_tolerance(
    written: Writer, lab: Callable[..., None]
) -> None:
    lab()
    with_table(written, figure='lab = { max = "50 ms", why = "it is made up" }\n')
    found = only(reproduce(lab="whole"))
    assert (found.state, found.within) == (DIFFERS, False)


def test_a_run_that_a_kernel_cannot_make_says_why(
    written: Writer, lab: Callable[..., None]
) -> None:
    lab(skipped="deep")
    with_table(written)
    (outcome,) = reproduce(lab="whole")
    found = only([outcome])
    assert (found.state, found.note, outcome.surprising) == (
        NOT_RUN,
        "no such thing in a kernel",
        False,
    )


def test_what_is_measured_after_the_end_of_the_shorter_run_is_not_run_unless_the_lab_has_a_span_of_its_own(
    written: Writer, lab: Callable[..., None]
) -> None:
    lab()
    with_table(written, figure='between = ["1 s", "4 s"]\n')
    found = only(reproduce(lab="whole"))
    assert (found.state, found.note) == (NOT_RUN, "measured until 4 s, the lab's run ends at 3 s")
    with_table(written, figure='between = ["1 s", "4 s"]\nlab = { between = ["1 s", "3 s"] }\n')
    assert only(reproduce(lab="whole")).state == AGREES


def test_a_lab_that_breaks_off_is_a_failure_of_its_claim_alone(
    written: Writer, lab: Callable[..., None]
) -> None:
    lab(fails=True)
    with_table(written)
    (outcome,) = reproduce(lab="whole")
    assert (only([outcome]).state, only([outcome]).note) == (FAILED, "a program died")
    assert outcome.surprising


def test_some_runs_are_left_out_and_their_figures_with_them(
    written: Writer, lab: Callable[..., None]
) -> None:
    lab()
    with_table(written, LAB + 'runs = [{ queue = "shallow" }]\n')
    (outcome,) = reproduce(lab="whole")
    assert outcome.lab is None
    with_table(written, LAB.replace("true", '[{ queue = "shallow" }]'))
    assert reproduce(lab="quick")[0].lab is None
    assert only(reproduce(lab="whole")).state == AGREES


def test_claims_without_a_table_and_figures_that_refuse_are_not_in_the_lab(
    written: Writer, lab: Callable[..., None]
) -> None:
    lab()
    written()
    assert reproduce(lab="whole") == []
    with_table(written, LAB.replace("true", "false"))
    assert reproduce(lab="quick") == []
    with_table(written, figure="lab = false\n")
    assert [outcome.lab for outcome in reproduce(lab="whole")] == [None]


def test_a_tolerance_is_a_share_or_an_amount() -> None:
    assert tolerance("10 %", "x") == Tolerance("10 %", 0.1, True)
    assert tolerance("20 ms", "x") == Tolerance("20 ms", 20.0, False)
    share, amount = tolerance("10 %", "x"), tolerance(0.1, "x")
    assert share.covers(-90, -100)
    assert not share.covers(0.12, 0.1)
    assert amount.covers(0.12, 0.1)
    assert not amount.covers(90, 100)


MISTAKES = [
    (
        "quick = true",
        "quik = true",
        "claim.lab.quik: no such key; there are quick, runs, seeds, set, tolerance",
    ),
    ("quick = true", 'quick = "yes"', "claim.lab.quick: expected tables of labels"),
    ("quick = true", "runs = [{}]", "claim.lab.runs: expected tables of labels"),
    ("quick = true", "seeds = 0", "claim.lab.seeds: 0 is no number of runs"),
    ("quick = true", 'tolerance = "-3 %"', "claim.lab.tolerance: '-3 %' is no tolerance"),
    ("quick = true", 'tolerance = "3 miles"', "claim.lab.tolerance: '3 miles' is no bound"),
    ('set = { duration = "3 s" }', "set = 3", "claim.lab.set: expected a table"),
    (LAB, "", "figure.0.lab: the claim has no [claim.lab]"),
]


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES)
def test_a_mistake_in_the_table_is_named_in_one_line(
    written: Writer, old: str, new: str, said: str
) -> None:
    path = with_table(written, LAB.replace(old, new), "" if new else "lab = {}\n")
    with pytest.raises(UnbloatError) as caught:
        claims()
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value).strip()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("true", "figure.0.lab: expected false, or a table with tolerance"),
        ("{ tollerance = 3 }", "figure.0.lab.tollerance: no such key"),
        ("{ max = 3 }", "figure.0.lab.why is missing"),
        ('{ between = ["1 s"] }', "figure.0.lab.between: expected two times"),
    ],
)
def test_a_mistake_in_a_figure_is_named_in_one_line(written: Writer, value: str, said: str) -> None:
    with_table(written, figure=f"lab = {value}\n")
    with pytest.raises(UnbloatError, match=r"figure\.0\.lab") as caught:
        claims()
    assert said in str(caught.value)


def test_every_bundled_claim_of_the_lab_has_runs_that_are_there() -> None:
    for claim in claims():
        if claim.lab is not None:
            found = reproduce_lab.simulated(claim, False, None)
            assert found.values, claim.id
            if claim.lab.quick:
                assert reproduce_lab.simulated(claim, True, None).values, claim.id


def command(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reproduce", *words])
    return result.exit_code, result.stdout


def test_the_command_prints_both_figures_and_ends_with_1_where_they_differ(
    written: Writer, lab: Callable[..., None]
) -> None:
    lab()
    with_table(written)
    code, text = command("--lab", "made")
    assert code == 0
    flat = " ".join(text.split())
    assert "likewise" in flat
    assert "agrees" in flat
    assert (
        "lab: 1 agrees; 1 of 1 bounded figure within the bounds; packets late by 0.2 ms at most"
        in flat
    )
    code, text = command("--lab=quick", "--json")
    assert code == 0
    (row,) = json.loads(text)["figures"]
    assert set(row["lab"]) == {
        "value", "simulator", "difference", "tolerance", "within_bounds", "state", "note", "kernel", "late_ms",
    }  # fmt: skip
    lab(**{"link.down.rate": "2 Mbit/s"})
    code, text = command("--lab")
    assert code == 1
    assert "unexplained" in text


def test_the_page_has_a_column_for_the_lab(
    written: Writer, lab: Callable[..., None], tmp_path: Path
) -> None:
    lab()
    with_table(written, figure='lab = { tolerance = 0, reason = "<made up>" }\n')
    page = tmp_path / "page.html"
    write_page(reproduce(lab="whole"), page)
    text = page.read_text(encoding="utf-8")
    assert '<span class="state agrees">agrees</span>' in text
    assert "simulator likewise" in text
    assert "Linux 6.18; packets late by 0.2 ms" in text
    claim = read_claim(with_table(written, ""))
    assert claim is not None
    assert claim.lab is None
    write_page(reproduce(), page)
    assert 'data-name="lab"' not in page.read_text(encoding="utf-8")
