"""The lab's figures of each claim, stored in docs/generated/claims-lab.json.

So a check compares them with the simulator without running the lab.

UNBLOAT_BLESS_LAB=1 runs the lab (as root, most of an hour) and writes it; a claim's name, or several with commas, runs those.
"""

from __future__ import annotations

import os
from pathlib import Path

from unbloat.claims.claim import Claim
from unbloat.claims.lab_store import keep
from unbloat.claims.reproduce_in_lab import Laboratory

PATH = Path(__file__).parents[2] / "docs/generated/claims-lab.json"
BLESS = "UNBLOAT_BLESS_LAB"


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
        keep(PATH, claim, found)
