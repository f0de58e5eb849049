"""Algorithms without an outside judge are marked wherever their results are shown; the table of algorithms alone knows them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unbloat.claims.claim import Claim
from unbloat.claims.judge import judged
from unbloat.claims.markdown import claims_page
from unbloat.claims.page import line, write_page
from unbloat.front.front import front
from unbloat.front.page import front_page
from unbloat.scenario.unjudged import MARK, marked, meaning, names

GENERATED = Path(__file__).parents[2] / "docs/generated"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bbr3 over EVDO, RTT", "bbr3 (unjudged) over EVDO, RTT"),
        ("BBRv3", "BBRv3 (unjudged)"),
        ("no: bbr3", "no: bbr3 (unjudged)"),
        ("bbr3 (unjudged)", "bbr3 (unjudged)"),
        ("bbr, cubic and bbr30", "bbr, cubic and bbr30"),
        ("my-bbr3", "my-bbr3"),
    ],
)
def test_the_name_of_an_algorithm_without_a_judge_has_a_mark(text: str, shown: str) -> None:
    assert marked(text) == shown


def test_what_the_mark_means_is_said_where_it_is() -> None:
    assert "outside implementation" in meaning("bbr3 (unjudged)")
    assert meaning("bbr") == ""


def test_claims_mark_it_in_each_of_their_pages(made_up: Claim, tmp_path: Path) -> None:
    figure = replace(made_up.figures[0], name="bbr3 over EVDO")
    claim = replace(made_up, figures=(figure,))
    outcome = judged(claim, figure, (500.0,), (1.0,))
    assert line(outcome).name == "bbr3 (unjudged) over EVDO"
    page = tmp_path / "claims.html"
    write_page([outcome], page)
    for text in (claims_page([outcome], {}), page.read_text(encoding="utf-8")):
        assert "bbr3 (unjudged) over EVDO" in text
        assert "outside implementation" in text
    assert MARK not in claims_page([judged(claim, made_up.figures[0], (500.0,), (1.0,))], {})


def test_the_front_marks_it() -> None:
    found = front(("tuning",), store=GENERATED / "front.jsonl", only_stored=True)
    text = front_page(found, "front.svg")
    assert "| bbr3 (unjudged) |" in text
    assert "outside implementation" in text
    assert names().search(text) is None
