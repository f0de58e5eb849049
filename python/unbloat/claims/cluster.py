"""Claims on the workers of a Dask cluster, a seed of a claim at a time.

A worker needs no scenario file and no trace: both travel as text, and figures come back as they are stored. Of each claim
the first seed is simulated, then the second, then all others at once, exactly as on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbloat.claims.claim import Claim, parsed, read_toml
from unbloat.claims.repetition import Repetition, left, repetition, settled
from unbloat.claims.store import ClaimStore
from unbloat.errors import TraceMissing, UnbloatError
from unbloat.scenario.scenario import Source
from unbloat.scenario.simulate import texts_of
from unbloat.tasks.cluster import Cluster, Task

# Between the name of a claim and the place of its seed; no claim has it in its name.
BETWEEN = "#"


def repeat_task(given: dict[str, Any]) -> dict[str, Any]:
    """At the worker: a claim with one of its seeds."""
    path, text = Path(given["path"]), given["text"]
    try:
        claim = parsed(path, text, read_toml(path, text))
        return repetition(claim, given["place"], trace_texts=given["traces"]).to_dict()
    except TraceMissing as missing:
        return {"missing": str(missing)}
    except UnbloatError as error:
        return {"refused": str(error)}


@dataclass
class Repeated:
    """A claim while its seeds are simulated."""

    claim: Claim
    traces: dict[str, str]
    known: list[Repetition] | None
    """What is stored of it."""
    asked: set[int] = field(default_factory=set)
    found: dict[int, Repetition] = field(default_factory=dict)
    missing: TraceMissing | None = None

    @property
    def holds(self) -> bool:
        """Whether the first seed gives what is stored, or cannot be simulated here: then the stored ones count."""
        if self.known is None:
            return False
        return self.missing is not None or self.found.get(0) == self.known[0]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to simulate."""
        return self.missing is not None or self.holds or not left(self.claim, self.found)

    def tasks(self) -> list[Task]:
        """The seeds to simulate next, each once."""
        places = [] if self.is_done else left(self.claim, self.found)
        places = [place for place in places if place not in self.asked]
        self.asked.update(places)
        return [
            Task(
                f"{self.claim.id}{BETWEEN}{place}",
                f"{self.claim.id}, seed={self.claim.seed + place}",
                {
                    "path": str(self.claim.path),
                    "text": self.claim.text,
                    "place": place,
                    "traces": self.traces,
                },
            )
            for place in places
        ]

    def outcome(self) -> list[Repetition]:
        """All seeds. Raises `TraceMissing`."""
        if self.holds:
            assert self.known is not None
            return self.known
        if self.missing is not None:
            raise self.missing
        return settled(self.found)


def repeated_on_cluster(
    claims: Sequence[Claim],
    address: str,
    processes: int | None,
    traces: str | os.PathLike[str] | None,
    store: ClaimStore | None,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Repeated]:
    """Every claim with all its seeds, by its name, stored as soon as it is complete.

    A seed that fails is named when all others are done: raises `UnbloatError`, as for a cluster that cannot be used.
    """
    every = {
        claim.id: Repeated(
            claim,
            texts_of(Source(claim.text, claim.path), traces),
            None if store is None else store.stored(claim),
        )
        for claim in claims
    }
    errors: list[str] = []
    done = 0

    def finished(task: Task, result: dict[str, Any]) -> list[Task]:
        nonlocal done
        name, _, place = task.key.rpartition(BETWEEN)
        one = every[name]
        if "refused" in result:
            raise UnbloatError(f"{task.name}: {result['refused']}")
        if "missing" in result:
            one.missing = TraceMissing(result["missing"])
        else:
            one.found[int(place)] = Repetition.read(result)
        if one.is_done:
            if store is not None and not one.holds and one.missing is None:
                store.put(one.claim, one.outcome())
            done += 1
            if progress is not None:
                progress(done, len(every))
        return one.tasks()

    def failed(task: Task, line: str) -> None:
        errors.append(f"{task.name}: {line}")

    goes_on = (
        "" if store is None else "; what is done is stored, the same command goes on from there"
    )
    first = [task for one in every.values() for task in one.tasks()]
    if first:
        jobs = min(processes or os.cpu_count() or 1, len(first))
        Cluster(address, jobs, repeat_task, finished, failed, goes_on=goes_on).run(first)
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise UnbloatError(f"{min(errors)}{more}")
    return every
