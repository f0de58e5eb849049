"""Charts of claims: what the loader refuses, that their numbers are the figures', and that no claim with numbers lacks one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from made_claims import Writer

from unbloat.claims.chart import Said
from unbloat.claims.chart_points import drawn
from unbloat.claims.chart_svg import chart_svg
from unbloat.claims.claim import Claim, claims, read_claim
from unbloat.claims.judge import Outcome, judged, outcomes
from unbloat.claims.reproduce import examine
from unbloat.claims.store import settings
from unbloat.errors import ScenarioError

CHART = """
[[claim.chart]]
source = "figure 1 of a test"
x = "queue"
y = "ping"
unit = "s"
series = [{ name = "made <up>", figures = { "deep" = "ping" }, said = { "deep" = ["1 s", "2 s"] } }]
"""
CURVE = """
[[claim.chart]]
source = "figure 2 of a test"
kind = "line"
x = "time, s"
y = "goodput"
unit = "Mbit/s"
series = [{ name = "download", metric = "flow_goodput_bps", run = { queue = "deep" }, at = { from = 1, until = 3, step = 1 }, span_s = 1, said = { "2" = "4 Mbit/s" } }]
"""
# As many numbers of a source make a chart worth its place.
MIN_NUMBERS = 3


def read(written: Writer, more: str) -> Claim:
    """The made-up claim with a chart."""
    claim = read_claim(written(more=more))
    assert claim is not None
    return claim


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ('"deep" = "ping"', '"deep" = "pong"', "the claim has no figure 'pong'"),
        ('unit = "s"', 'unit = "sec"', "there is no 'sec'"),
        ('unit = "s"\n', "", "unit is missing"),
        ('x = "queue"\n', "", "x is missing"),
        ("figures = {", "lines = {", "no such key"),
        ('said = { "deep"', 'said = { "flat"', "'flat' is not among the places"),
        ('source = "figure 1 of a test"\n', "", "source is missing"),
        ('unit = "s"', 'unit = "s"\nkind = "pie"', "there is no 'pie'"),
        ('unit = "s"', 'unit = "s"\nread = "guess"', "there is no 'guess'"),
        ('unit = "s"', 'unit = "s"\nrelative = true', "one number of the source"),
    ],
)
def test_a_chart_that_is_wrong_is_refused(written: Writer, old: str, new: str, wrong: str) -> None:
    assert old in CHART
    with pytest.raises(ScenarioError, match=re.escape(wrong)):
        read(written, CHART.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        (", span_s = 1", "", "a curve needs {x}"),
        ('metric = "flow', 'figure = "ping", metric = "flow', "one of them"),
        ("at = { from = 1, until = 3, step = 1 }, span", "at = [], span", "no places"),
    ],
)
def test_a_curve_that_is_wrong_is_refused(written: Writer, old: str, new: str, wrong: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(wrong)):
        read(written, CURVE.replace(old, new))


def test_a_chart_has_the_figures_numbers_in_its_unit(written: Writer) -> None:
    claim = read(written, CHART)
    (outcome,) = examine(claim)
    assert outcome.measured is not None
    ((point,),) = (one.points for one in drawn(claim.charts[0], [outcome]))
    assert point.ours == pytest.approx(outcome.measured.mean / 1000)
    assert point.half == pytest.approx((outcome.measured.half or 0) / 1000)
    assert point.said == Said(1, 2)


def test_an_interval_of_seeds_is_drawn_and_said_in_words(written: Writer) -> None:
    claim = read(written, CHART)
    outcome = judged(claim, claim.figures[0], (1500.0, 1700.0), (10.0, 10.0))
    ((point,),) = (one.points for one in drawn(claim.charts[0], [outcome]))
    assert outcome.measured is not None
    assert outcome.measured.half is not None
    assert point.half == pytest.approx(outcome.measured.half / 1000)
    text = chart_svg(claim.charts[0], drawn(claim.charts[0], [outcome]))
    assert "made &lt;up&gt;, deep: ours 1.6 ± 1.27 s; source 1 to 2 s" in text
    assert 'class="interval"' in text


def test_a_relative_chart_is_over_the_sources_number(written: Writer) -> None:
    said = CHART.replace('["1 s", "2 s"]', '"2 s"').replace('unit = "s"', 'unit = "×"')
    claim = read(written, said + "relative = true\n")
    outcome = judged(claim, claim.figures[0], (1500.0,), (10.0,))
    ((point,),) = (one.points for one in drawn(claim.charts[0], [outcome]))
    assert (point.ours, point.said) == (0.75, Said(1, 1))


def test_a_curve_is_measured_beside_the_figures_and_kept_with_them(written: Writer) -> None:
    plain = read(written, "")
    claim = read(written, CURVE)
    assert settings(claim) != settings(plain)
    found = examine(claim)
    ((first, second, third),) = (one.points for one in drawn(claim.charts[0], found))
    assert [first.at, second.at, third.at] == ["1", "2", "3"]
    assert second.ours == pytest.approx(4, rel=0.05)
    assert second.said == Said(4, 4)
    assert first.said is None


def test_a_chart_without_a_curve_leaves_what_is_stored_as_it_is(written: Writer) -> None:
    assert settings(read(written, CHART)) == settings(read(written, ""))


def test_what_was_not_measured_is_not_drawn(written: Writer) -> None:
    claim = read(written, CHART)
    outcome = judged(claim, claim.figures[0], (None,), (None,))
    text = chart_svg(claim.charts[0], drawn(claim.charts[0], [outcome]))
    assert "nothing measured" in text
    assert "<rect" not in text


def unmeasured(claim: Claim) -> list[Outcome]:
    """A claim's outcomes of which only the words matter."""
    return [replace(judged(claim, figure, (1.0,), (1.0,)), curves=()) for figure in claim.figures]


@pytest.mark.parametrize(
    "claim", [claim for claim in claims() if claim.charts], ids=lambda claim: claim.id
)
def test_every_bundled_chart_can_be_drawn(claim: Claim) -> None:
    for chart in claim.charts:
        text = chart_svg(chart, drawn(chart, unmeasured(claim)))
        assert text.count("<svg") == 1
        assert chart.x
        assert chart.axis in text.replace("&#x27;", "'")


def test_a_claim_whose_source_has_numbers_has_a_chart() -> None:
    lacking = [
        claim.id
        for claim in claims()
        if sum(bool(re.search(r"\d", one.paper or "")) for one in claim.figures) >= MIN_NUMBERS
        and not claim.charts
    ]
    assert lacking == []


def test_outcomes_of_a_claim_carry_its_curves(written: Writer) -> None:
    claim = read(written, CURVE)
    from unbloat.claims.repetition import Repetition

    one = Repetition({"": (1.0,)}, {"": (2.0,)}, (), {"": (1e6, 2e6, 3e6)})
    other = Repetition({"": (1.0,)}, {"": (2.0,)}, (), {"": (3e6, 2e6, 3e6)})
    assert Repetition.read(one.to_dict()) == one
    (found,) = outcomes(claim, [one, other])
    assert [spread and spread.mean for spread in found.curves] == [2e6, 2e6, 3e6]
