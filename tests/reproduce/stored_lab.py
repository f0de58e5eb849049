"""The lab's figures of each claim, stored in docs/generated/claims-lab.json.

So a check compares them with the simulator without running the lab.

UNBLOAT_BLESS_LAB=1 runs the lab (as root, most of an hour) and writes it; a claim's name, or several with commas, runs those.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from unbloat.claims.claim import Claim
from unbloat.claims.reproduce_in_lab import Laboratory, Measured, machine

PATH = Path(__file__).parents[2] / "docs/generated/claims-lab.json"
FORMAT = 1
BLESS = "UNBLOAT_BLESS_LAB"


def stored() -> dict[str, Any]:
    """By claim."""
    if not PATH.exists():
        return {}
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    assert found["format"] == FORMAT
    claims: dict[str, Any] = found["claims"]
    return claims


def settings(claim: Claim) -> dict[str, Any]:
    """What was run: another setting makes what is stored worthless."""
    assert claim.lab is not None
    spans = {
        one.name: list(one.lab.between) for one in claim.figures if one.lab and one.lab.between
    }
    figures = [one.name for one in claim.figures if one.lab]
    printed = {
        "set": claim.lab.set,
        "runs": claim.lab.runs,
        "seeds": claim.lab.seeds,
        "between": spans,
    }
    plain: dict[str, Any] = json.loads(json.dumps(printed | {"figures": figures}))
    return plain


def measured(entry: dict[str, Any]) -> Measured:
    """As the lab gave it."""
    return Measured(entry["values"], entry["missing"], entry["kernel"], entry["late_ms"])


def bless(every: list[Claim]) -> None:
    """Runs what the environment asks for, and stores each claim as soon as it is measured."""
    asked = os.environ.get(BLESS)
    if not asked:
        return
    chosen = [claim for claim in every if asked == "1" or claim.id in asked.split(",")]
    laboratory = Laboratory(chosen, False, None)
    for claim in chosen:
        found = laboratory.measured(claim)
        assert found.failed is None, found.failed
        keep(claim, found)


def keep(claim: Claim, found: Measured) -> None:
    """Stores one claim beside the others."""
    claims = stored()
    claims[claim.id] = {
        "date": time.strftime("%Y-%m-%d"),
        "kernel": found.kernel,
        "machine": machine(),
        "late_ms": None if found.late_ms is None else round(found.late_ms, 3),
        "settings": settings(claim),
        "values": dict(found.values),
        "missing": dict(found.missing),
    }
    whole = {"format": FORMAT, "claims": dict(sorted(claims.items()))}
    PATH.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
