"""The lab's figures of each claim, stored in a JSON file beside the simulator's.

The lab needs root and most of an hour. So its figures are measured once and compared with the present simulator
afterwards. Each entry has the settings under which it was measured: under others it is worthless.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbloat.claims.claim import Claim
from unbloat.claims.judge import Outcome
from unbloat.claims.page import by_claim
from unbloat.claims.reproduce import with_lab
from unbloat.claims.reproduce_in_lab import Measured, compared, machine, simulated
from unbloat.errors import UnbloatError

FORMAT = 1


@dataclass(frozen=True)
class LabEntry:
    """What is stored of a claim."""

    measured: Measured
    date: str
    machine: str
    settings: Mapping[str, Any]

    @property
    def made(self) -> str:
        """When, where and how exactly it was measured."""
        late = self.measured.late_ms
        exact = "" if late is None else f"; packets late by {late:.1f} ms (p99)"
        return f"Lab: {self.date}, {self.measured.kernel or 'not run'}, {self.machine}{exact}."


def beside(store: Path) -> Path:
    """Where the lab's figures are: `claims-lab.json` beside `claims.jsonl`."""
    return store.with_name(f"{store.stem}-lab.json")


def read_lab(path: Path) -> dict[str, LabEntry]:
    """By claim; nothing where there is no file."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    if found.get("format") != FORMAT:
        raise UnbloatError(f"{path}: not the lab's figures in format {FORMAT}")
    return {
        name: LabEntry(
            Measured(entry["values"], entry["missing"], entry["kernel"], entry["late_ms"]),
            entry["date"],
            entry["machine"],
            entry["settings"],
        )
        for name, entry in found["claims"].items()
    }


def lab_settings(claim: Claim) -> dict[str, Any]:
    """What is run of a claim, as it is stored."""
    assert claim.lab is not None, "only claims with a [claim.lab] are stored"
    spans = {
        one.name: list(one.lab.between) for one in claim.figures if one.lab and one.lab.between
    }
    plain: dict[str, Any] = json.loads(
        json.dumps(
            {
                "set": claim.lab.set,
                "runs": claim.lab.runs,
                "seeds": claim.lab.seeds,
                "between": spans,
                "figures": [one.name for one in claim.figures if one.lab],
            }
        )
    )
    return plain


def keep(path: Path, claim: Claim, found: Measured) -> None:
    """Stores one claim beside the others."""
    claims = json.loads(path.read_text(encoding="utf-8"))["claims"] if path.exists() else {}
    claims[claim.id] = {
        "date": time.strftime("%Y-%m-%d"),
        "kernel": found.kernel,
        "machine": machine(),
        "late_ms": None if found.late_ms is None else round(found.late_ms, 3),
        "settings": lab_settings(claim),
        "values": dict(found.values),
        "missing": dict(found.missing),
    }
    whole = {"format": FORMAT, "claims": dict(sorted(claims.items()))}
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def with_stored_lab(outcomes: Sequence[Outcome], entries: Mapping[str, LabEntry]) -> list[Outcome]:
    """Outcomes beside what is stored of the lab, which is compared with the present simulator under the lab's settings."""
    found: list[Outcome] = []
    for of in by_claim(outcomes):
        claim = of[0].claim
        entry = entries.get(claim.id)
        if claim.lab is None or entry is None:
            found += of
        else:
            lab = compared(claim, entry.measured, simulated(claim, False, None))
            found += with_lab(of, lab)
    return found
