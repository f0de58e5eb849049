"""Made-up claims, written where `unbloat reproduce` looks."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_claims import FIGURE, SCENARIO, Writer

from unbloat.claims import claim as claims
from unbloat.claims.claim import Claim, read_claim


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
    """Writes a claim where `unbloat reproduce` looks; `old` and `new` change its text."""

    def write(old: str = "", new: str = "", more: str = "") -> Path:
        text = SCENARIO + FIGURE + more
        assert old in text
        path = tmp_path / "made-up.toml"
        path.write_text(text.replace(old, new) if old else text)
        monkeypatch.setattr(claims, "PLACES", (tmp_path,))
        return path

    return write


@pytest.fixture
def made_up(written: Writer) -> Claim:
    """The claim as it stands above."""
    claim = read_claim(written())
    assert claim is not None
    return claim
