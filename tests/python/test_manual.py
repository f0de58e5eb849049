"""What `unbloat list` knows is what there is."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT

from unbloat.charts import CHARTS
from unbloat.cli.list import KINDS, entries, page
from unbloat.errors import UnbloatError
from unbloat.run.arrow import EXTRA, MODEM, TABLES
from unbloat.text.format import LIMITS


def test_every_limit_of_the_analysis_has_its_words() -> None:
    source = (ROOT / "crates/units/src/limit.rs").read_text()
    assert list(LIMITS) == re.findall(r'Limit::\w+ => "(\w+)"', source)


def test_every_table_of_the_format_is_known() -> None:
    source = (ROOT / "docs/format.md").read_text()
    assert set(re.findall(r"^## (\w+)$", source, re.M)) - {"run"} == {*TABLES, *EXTRA, *MODEM}


@pytest.mark.parametrize("kind", KINDS)
def test_everything_listed_has_a_page(kind: str, fake: None) -> None:
    for name, about in entries(kind):
        assert about.split(":")[0].split(".")[0] in page(kind, name)


def test_charts_come_from_their_table(fake: None) -> None:
    assert [name for name, _ in entries("charts")] == [chart.name for chart in CHARTS]


def test_an_unknown_name_gets_a_hint(fake: None) -> None:
    with pytest.raises(UnbloatError, match="did you mean receive-window"):
        page("rules", "recieve-window")
    with pytest.raises(UnbloatError, match="there are rules"):
        entries("frogs")
    with pytest.raises(UnbloatError, match=r"its word is in the text of fairness$"):
        page("metrics", "jain")
