"""Claims that are stored once simulated, so that a full run goes on where it was and a check repeats its first seed only.

What is stored of a claim holds as long as the scenario, its figures and the figures of the first seed are what they were.
A change of the simulator shows in the first seed, which is always simulated again.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unbloat.claims.claim import Claim, read_toml
from unbloat.claims.repetition import Repetition, repetition, repetitions
from unbloat.errors import TraceMissing, UnbloatError
from unbloat.run.store import Store


@dataclass
class ClaimStore:
    """The repetitions of claims, in a file of JSON lines."""

    path: Path
    lines: Store = field(init=False)
    lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.lines = Store(self.path, ("claim",))

    def stored(self, claim: Claim) -> list[Repetition] | None:
        """What is stored of a claim as it is now; None where nothing is."""
        runs = self.lines.runs((claim.id,), settings(claim))
        return None if runs is None else [Repetition.read(run) for run in runs]

    def read(self, claim: Claim) -> list[Repetition]:
        """What is stored. Raises `UnbloatError` where the claim is not, or has changed since."""
        found = self.stored(claim)
        if found is None:
            raise UnbloatError(
                f"{self.path}: {claim.id} is not stored as it is now; run it without --stored"
            )
        return found

    def repetitions(
        self, claim: Claim, traces: str | os.PathLike[str] | None = None
    ) -> list[Repetition]:
        """What is stored where it still holds, otherwise simulated and stored. Raises `TraceMissing`."""
        known = self.stored(claim)
        try:
            first = repetition(claim, 0, traces)
        except TraceMissing:
            if known is None:
                raise
            return known
        if known is not None and known[0] == first:
            return known
        found = repetitions(claim, traces, first=first)
        self.put(claim, found)
        return found

    def put(self, claim: Claim, found: Sequence[Repetition]) -> None:
        """Stores a claim."""
        with self.lock:
            self.lines.put((claim.id,), settings(claim), [one.to_dict() for one in found])

    def sort(self) -> None:
        """By name, so that the file does not depend on which claim was ready first."""
        self.lines.sort()


def settings(claim: Claim) -> str:
    """A digest of what is simulated and measured: words and bounds may change without a new run."""
    scenario = {
        key: value
        for key, value in read_toml(claim.path, claim.text).items()
        if key not in ("claim", "figure", "about")
    }
    measured = [
        repr((one.relation, one.of, one.against, one.control, one.control_against))
        for one in claim.figures
    ]
    left_open = claim.open[0] if len(claim.open) == 1 else list(claim.open) or None
    whole = [scenario, measured, repr(claim.columns), left_open]
    if claim.curves:
        whole.append(repr(claim.curves))
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]
