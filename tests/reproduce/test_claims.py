"""Claims: the bundled ones hold, and what is wrong in one is said in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_claims import FIGURE, Writer
from typer.testing import CliRunner

from unbloat import _native
from unbloat.claims.claim import Claim, claims, read_claim, scenario_directory
from unbloat.claims.figure import IN_A_SOURCE, MARKS
from unbloat.claims.judge import FIGURE_FAILED, FIGURE_PASSED, SHOWN
from unbloat.claims.reproduce import examine, reproduce
from unbloat.cli.arguments import app
from unbloat.errors import UnbloatError


def test_the_quick_claims_hold() -> None:
    outcomes = reproduce(quick=True)
    surprising = [
        f"{o.claim.id}: {o.figure.name}: {o.value} {o.note}" for o in outcomes if o.surprising
    ]
    assert surprising == []
    assert outcomes
    assert any(outcome.state == FIGURE_PASSED for outcome in outcomes)


@pytest.mark.parametrize(
    "path", sorted(scenario_directory().glob("*.toml")), ids=lambda path: path.stem
)
def test_every_scenario_file_is_valid_and_every_claim_in_one_can_be_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert _native.scenario_runs(text, set=[])
    read_claim(path)


def test_every_bounded_figure_has_a_control_and_only_what_a_source_says_is_printed_as_such() -> (
    None
):
    for claim in claims():
        for figure in claim.figures:
            assert not figure.bounds.stated or figure.control is not None, claim.id
            assert figure.paper is None or figure.mark in IN_A_SOURCE, claim.id
            assert figure.mark in MARKS


def test_a_claim_holds_and_its_control_does_not(made_up: Claim) -> None:
    (outcome,) = examine(made_up)
    assert outcome.state == FIGURE_PASSED
    assert outcome.value is not None
    assert outcome.control is not None
    assert outcome.value > 100 > outcome.control


def test_a_figure_whose_control_lies_in_the_bounds_too_does_not_hold(written: Writer) -> None:
    claim = read_claim(written("100 ms", "41 ms"))
    assert claim is not None
    (outcome,) = examine(claim)
    assert (outcome.state, outcome.note) == (FIGURE_FAILED, "the control passes as well")
    assert outcome.surprising


def test_a_figure_outside_its_bounds_does_not_hold_and_a_reason_on_record_is_no_surprise(
    written: Writer,
) -> None:
    excused = 'max = "60 ms"\nreason = "it is known"\nregression = { min = "100 ms", max = "10 s" }'
    claim = read_claim(written('min = "100 ms"', excused))
    assert claim is not None
    (outcome,) = examine(claim)
    assert (outcome.state, outcome.note, outcome.surprising) == (
        FIGURE_FAILED,
        "it is known",
        False,
    )


def test_a_known_failure_that_leaves_its_regression_bounds_is_a_surprise(written: Writer) -> None:
    excused = 'max = "60 ms"\nreason = "it is known"\nregression = { max = "100 ms" }'
    claim = read_claim(written('min = "100 ms"', excused))
    assert claim is not None
    (outcome,) = examine(claim)
    assert (outcome.state, outcome.drifted, outcome.surprising) == (FIGURE_FAILED, True, True)
    assert outcome.note == "outside of its regression bounds; it is known"


def test_a_reason_without_a_failure_is_a_surprise(written: Writer) -> None:
    excused = 'min = "100 ms"\nreason = "it was known"\nregression = { max = "60 ms" }'
    claim = read_claim(written('min = "100 ms"', excused))
    assert claim is not None
    (outcome,) = examine(claim)
    assert (outcome.state, outcome.surprising) == (FIGURE_PASSED, True)


def test_a_figure_without_bounds_is_shown(written: Writer) -> None:
    claim = read_claim(written('min = "100 ms"\n', ""))
    assert claim is not None
    assert [outcome.state for outcome in examine(claim)] == [SHOWN]


def test_two_runs_can_be_related(written: Writer) -> None:
    more = FIGURE.replace(
        'min = "100 ms"', 'as = "RELATION"\nagainst = { run = { queue = "shallow" } }'
    ).replace('control = { run = { queue = "shallow" } }\n', "")
    for relation in ("ratio", "change", "difference"):
        claim = read_claim(written(more=more.replace("RELATION", relation)))
        assert claim is not None
        value, related = examine(claim)
        assert value.value is not None
        assert value.control is not None
        wanted = {
            "ratio": value.value / value.control,
            "change": value.value / value.control - 1,
            "difference": value.value - value.control,
        }
        assert related.value == pytest.approx(wanted[relation])


def test_all_runs_of_a_claim_can_be_shown(written: Writer) -> None:
    table = 'table = [{ name = "ping", metric = "probe_rtt_ms p95" }]\n'
    claim = read_claim(written('group = "made up"\n', f'group = "made up"\n{table}'))
    assert claim is not None
    (outcome,) = examine(claim)
    assert [row.labels for row in outcome.table] == [(("queue", "deep"),), (("queue", "shallow"),)]
    assert [row.values for row in outcome.table] == [(outcome.value,), (outcome.control,)]


MISTAKES = [
    ('why = "it', 'whi = "it', "figure.0.whi: no such key"),
    ('group = "made up"', 'groop = "made up"', "claim.groop: no such key"),
    ('source = "a test"\n', "", "claim.source is missing"),
    (
        'mark = "own"',
        'mark = "guessed"',
        "claim.mark: there is no 'guessed'; there are seed, found",
    ),
    ('control = { run = { queue = "shallow" } }\n', "", "figure.0.control is missing"),
    (
        'control = { run = { queue = "shallow" } }',
        'control = { run = { queue = "deep" } }',
        "figure.0.control is the judged run itself",
    ),
    (
        'why = "it is made up"',
        'as = "ratio"\nagainst = { run = { queue = "shallow" } }\nwhy = "it is made up"',
        "figure.0.control is the run that the figure is related to",
    ),
    (
        'control = { run = { queue = "shallow" } }',
        'control = { run = { queue = "shallow", rate = "high" } }',
        "figure.0.control differs in queue and rate; one named setting is enough",
    ),
    ('why = "it', 'reason = "known"\nwhy = "it', "`reason` and `regression` belong together"),
    (
        'why = "it',
        'paper = "100 ms"\nwhy = "it',
        "a figure marked own is not in the source; write it as `expected`",
    ),
    (
        'group = "made up"',
        'group = "made up"\nopen = "rate"',
        "claim.open: the sweep has no 'rate'",
    ),
    ('mark = "own"', 'mark = "recalled"', None),
    ('min = "100 ms"', 'min = "100 miles"', "'100 miles' is no bound"),
    ('why = "it', 'as = "sum"\nwhy = "it', "figure.0.as: there is no 'sum'"),
    ('why = "it', 'as = "ratio"\nwhy = "it', "`against` and `as` belong together"),
    ('name = "made-up"', "name = ", "made-up.toml: "),
]


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES)
def test_a_mistake_in_a_claim_is_named_in_one_line(
    written: Writer, old: str, new: str, said: str | None
) -> None:
    path = written(old, new)
    if said is None:
        path.write_text(path.read_text().replace("why =", 'paper = "100 ms"\nwhy ='))
        said = "figure.0.paper: a figure that is only recalled is not printed as the paper's"
    with pytest.raises(UnbloatError) as caught:
        claims()
    message = str(caught.value)
    assert said in message
    assert str(path) in message
    assert "\n" not in message.strip()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("probe_rtt_ms p95", "probe_rtt p95", "no metric is called 'probe_rtt'"),
        ('run = { queue = "deep" }', 'run = { queue = "depp" }', "no run has queue=depp"),
    ],
)
def test_a_metric_or_a_run_that_is_not_there_is_named_in_one_line(
    written: Writer, old: str, new: str, said: str
) -> None:
    written(old, new)
    with pytest.raises(UnbloatError, match=said):
        reproduce()


def test_a_name_that_no_claim_has_is_refused(made_up: Claim) -> None:
    with pytest.raises(UnbloatError, match="no claim is called 'mde'; there are made-up"):
        reproduce(["mde"])


def command(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reproduce", *words])
    return result.exit_code, result.stdout


def test_json_has_a_row_per_figure(made_up: Claim) -> None:
    code, text = command("--json")
    assert code == 0
    printed: dict[str, Any] = json.loads(text)
    assert printed["format"] == 1
    (row,) = printed["figures"]
    assert row["claim"] == "made-up"
    assert row["state"] == FIGURE_PASSED
    assert set(row) >= {
        "claim", "title", "source", "mark", "chosen_after", "figure", "metric", "relation", "run", "against", "paper", "expected",
        "value", "half_interval", "seeds", "min", "max", "why", "control", "control_half_interval", "state", "note", "drifted",
    }  # fmt: skip
    assert isinstance(row["value"], float)


def test_the_exit_code_is_1_where_a_claim_fails_and_no_reason_is_on_record(
    written: Writer,
) -> None:
    written("100 ms", "41 ms")
    code, text = command()
    assert code == 1
    assert "fail" in text
    assert "the control passes as well" in text
