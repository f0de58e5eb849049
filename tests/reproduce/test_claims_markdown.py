"""The pages that `unbloat reproduce --markdown` writes: summary, a row per figure, notes, and the lab's stored figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_claims import Writer
from typer.testing import CliRunner

from unbloat.claims.claim import read_claim
from unbloat.claims.judge import FIGURE_FAILED, FIGURE_PASSED, judged
from unbloat.claims.lab_store import beside, keep, lab_settings, read_lab
from unbloat.claims.markdown import claims_page, matrix_page, row
from unbloat.claims.reproduce_in_lab import Measured
from unbloat.cli.arguments import app
from unbloat.errors import UnbloatError

LAB = """
[claim.lab]
quick = true
set = { duration = "3 s" }
"""


def test_the_command_writes_the_page_from_what_is_stored(written: Writer, tmp_path: Path) -> None:
    written(more=LAB)
    claim = read_claim(tmp_path / "made-up.toml")
    assert claim is not None
    store, folder = tmp_path / "kept" / "claims.jsonl", tmp_path / "pages"
    store.parent.mkdir()
    keep(beside(store), claim, Measured({"ping": 1234.0}, {}, "Linux 6.18", 0.25))
    for stored in ([], ["--stored"]):
        arguments = ["reproduce", "--store", str(store), *stored, "--markdown", str(folder)]
        ran = CliRunner().invoke(app, arguments)
        assert ran.exit_code in (0, 1), ran.output
        text = (folder / "claims.md").read_text(encoding="utf-8")
        assert "| made up | 1 | 1 | 0 |" in text
        assert "- **made up**: `made-up`. None fails." in text
        assert "[made-up.toml](../../scenarios/made-up.toml) · a test" in text
        assert "| ping | own |" in text
        assert "| differs |" in text
        assert "Linux 6.18, " in text
        assert "packets late by 0.2 ms (p99)." in text
        assert not (folder / "matrix.md").exists()


def test_a_failing_claim_is_named_in_the_summary(written: Writer) -> None:
    claim = read_claim(written())
    assert claim is not None
    fails = judged(claim, claim.figures[0], (5.0,), (5.0,))
    assert fails.state == FIGURE_FAILED
    text = claims_page([fails], {})
    assert "- **made up**: none. **Fail**: `made-up` 1 of 1." in text
    assert "- ping: outside the bounds" in text
    holds = judged(claim, claim.figures[0], (500.0,), (5.0,))
    assert holds.state == FIGURE_PASSED
    assert "Fail" not in claims_page([holds], {}).split("## A deep")[0].split("by group")[1]


def test_the_matrix_is_only_of_claims_of_the_matrix(written: Writer) -> None:
    claim = read_claim(written())
    assert claim is not None
    assert "##" not in matrix_page([judged(claim, claim.figures[0], (500.0,), (5.0,))])


def test_a_bar_within_a_cell_does_not_end_it() -> None:
    assert row(["a|b", "c"]) == "| a\\|b | c |\n"


def test_what_is_stored_of_the_lab_comes_back_with_its_settings(
    written: Writer, tmp_path: Path
) -> None:
    claim = read_claim(written(more=LAB))
    assert claim is not None
    path = tmp_path / "kept-lab.json"
    assert read_lab(path) == {}
    keep(path, claim, Measured({"ping": 12.0}, {"other": "no kernel can"}, "Linux 6.18", None))
    entry = read_lab(path)["made-up"]
    assert entry.measured == Measured({"ping": 12.0}, {"other": "no kernel can"}, "Linux 6.18")
    assert entry.settings == lab_settings(claim)
    assert "late" not in entry.made
    path.write_text('{"format": 99, "claims": {}}', encoding="utf-8")
    with pytest.raises(UnbloatError, match="format 1"):
        read_lab(path)
