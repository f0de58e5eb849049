"""Figures judged from the numbers of several seeds: the whole interval counts, the control's too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unbloat.claims.claim import Claim
from unbloat.claims.figure import Bounds, Figure
from unbloat.claims.judge import (
    CONTROL_PASSES,
    FIGURE_FAILED,
    FIGURE_PASSED,
    judged,
    outcomes,
)
from unbloat.claims.repetition import Numbers, Repetition
from unbloat.claims.words import open_text, spread_text, verdict_text
from unbloat.scenario.confidence import Spread


@pytest.fixture
def figure(made_up: Claim) -> Figure:
    """At least 100."""
    return replace(made_up.figures[0], bounds=Bounds(100.0, None))


def state(claim: Claim, figure: Figure, values: Numbers, controls: Numbers) -> tuple[str, str]:
    found = judged(claim, figure, values, controls)
    return found.state, found.note


def test_it_passes_where_the_whole_interval_lies_inside(made_up: Claim, figure: Figure) -> None:
    # Mean 120, deviation 1, three seeds: 120 ± 2.5.
    assert state(made_up, figure, (119, 120, 121), (10, 10, 10)) == (FIGURE_PASSED, "")


def test_it_fails_where_only_the_mean_lies_inside(made_up: Claim, figure: Figure) -> None:
    # Mean 105, deviation 5: 105 ± 12.4.
    assert state(made_up, figure, (100, 105, 110), (10, 10, 10)) == (
        FIGURE_FAILED,
        "the interval reaches beyond the bounds",
    )
    assert state(made_up, figure, (90, 91, 92), (10, 10, 10)) == (
        FIGURE_FAILED,
        "outside the bounds",
    )


def test_it_fails_where_the_controls_interval_reaches_into_the_bounds(
    made_up: Claim, figure: Figure
) -> None:
    # Mean 95, deviation 5: up to 107.4.
    assert state(made_up, figure, (119, 120, 121), (90, 95, 100)) == (FIGURE_FAILED, CONTROL_PASSES)
    assert state(made_up, figure, (120,), (99.9,)) == (FIGURE_PASSED, "")


def test_what_some_seeds_did_not_measure_does_not_pass(made_up: Claim, figure: Figure) -> None:
    assert state(made_up, figure, (120, None, 120), (10, 10, 10)) == (
        FIGURE_FAILED,
        "nothing was measured with 1 of 3 seeds",
    )
    assert state(made_up, figure, (120,), (None,)) == (
        FIGURE_FAILED,
        "the control measured nothing",
    )


def test_of_what_the_source_leaves_open_the_values_are_named_at_which_all_figures_hold(
    made_up: Claim, figure: Figure
) -> None:
    claim = replace(
        made_up, open=("rate",), figures=(figure, replace(figure, bounds=Bounds(None, 9)))
    )
    once = Repetition(
        {"4 Mbit/s": (120, 20), "8 Mbit/s": (130, 5), "16 Mbit/s": (50, 5)},
        {"4 Mbit/s": (10, 50), "8 Mbit/s": (10, 50), "16 Mbit/s": (10, 50)},
        (),
    )
    first, second = outcomes(claim, [once])
    assert (first.value, second.value) == (130, 5)
    assert first.opened is not None
    assert first.opened.satisfying == ("8 Mbit/s",)
    assert first.opened.shown == "8 Mbit/s"
    assert first.opened.failing == (1, 0, 1)
    assert "hold at once at 8 Mbit/s" in (open_text([first]) or "")
    # What is open may be another value for each of another label: each has its own set.
    runs = [replace(figure.of, run=(("pair", pair),)) for pair in ("near", "far")]
    apart = replace(
        claim,
        each="pair",
        figures=(
            replace(claim.figures[0], of=runs[0]),
            replace(claim.figures[1], of=runs[1]),
        ),
    )
    near, far = outcomes(apart, [once])
    assert near.opened is not None
    assert far.opened is not None
    assert (near.opened.each, near.opened.satisfying) == ("near", ("4 Mbit/s", "8 Mbit/s"))
    assert (far.opened.each, far.opened.satisfying) == ("far", ("8 Mbit/s", "16 Mbit/s"))
    assert (near.value, far.value) == (120, 5)
    text = open_text([near, far])
    assert text is not None
    assert "near: all figures hold at once at 4 Mbit/s, 8 Mbit/s" in text
    nowhere = Repetition({"4 Mbit/s": (120, 20)}, {"4 Mbit/s": (10, 50)}, ())
    first, second = outcomes(claim, [nowhere])
    assert first.opened is not None
    assert first.opened.satisfying == ()
    assert "1 fail at 4 Mbit/s" in (open_text([first]) or "")
    assert (first.state, second.state) == (FIGURE_PASSED, FIGURE_FAILED)


def test_an_interval_is_printed_where_it_says_something(figure: Figure) -> None:
    assert spread_text(figure, None) == "–"
    assert spread_text(figure, Spread(120.0, None, 1)) == "120 ms"
    assert spread_text(figure, Spread(120.0, 0.01, 10)) == "120 ms"
    assert spread_text(figure, Spread(120.0, 13.0, 10)) == "120 ms ± 13 ms"


def test_a_title_has_the_number_of_figures_that_fail(made_up: Claim, figure: Figure) -> None:
    claim = replace(made_up, figures=(figure, figure))
    held, failed = judged(claim, figure, (120,), (10,)), judged(claim, figure, (90,), (10,))
    assert verdict_text(claim.title, [held, held]) == "A deep queue delays"
    assert verdict_text(claim.title, [held, failed]) == "A deep queue delays (1 of 2 figures fail)"
