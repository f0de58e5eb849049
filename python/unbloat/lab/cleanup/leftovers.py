"""`unbloat lab clean`: what dead labs left behind.

A lab lives as long as its owner or its janitor does (process number and start time). Labs that live are reported and left
alone; the state files, namespaces and processes of all others are removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unbloat.lab.cleanup import janitor
from unbloat.lab.requirements import need_root


@dataclass(frozen=True)
class Cleaned:
    """What was found."""

    removed: list[str] = field(default_factory=list)
    """Labs whose leftovers are gone."""
    living: list[str] = field(default_factory=list)
    """Labs that run."""
    problems: list[str] = field(default_factory=list)
    """What could not be removed."""


def clean() -> Cleaned:
    """Removes the leftovers of dead labs: processes, namespaces, temporary folders."""
    need_root()
    found = Cleaned()
    for path in sorted(janitor.STATES.glob("*.json")) if janitor.STATES.is_dir() else []:
        state = janitor.read(path)
        if state is None:
            if path.exists():  # else its lab has just ended
                found.problems.append(f"{path}: no state file of a lab")
            continue
        if janitor.lives(state["owner"]) or janitor.lives(state["janitor"]):
            found.living.append(state["id"])
            continue
        problems = janitor.clean(state)
        found.problems.extend(problems)
        if not problems:
            found.removed.append(state["id"])
    for lab, names in orphans().items():
        problems = [problem for name in names for problem in janitor.delete(name)]
        found.problems.extend(problems)
        if not problems:
            found.removed.append(lab)
    return found


def orphans() -> dict[str, list[str]]:
    """Namespaces of labs that have no state file, and in which no process lives."""
    labs: dict[str, list[str]] = {}
    if not janitor.NAMESPACES.is_dir():
        return labs
    for path in sorted(janitor.NAMESPACES.iterdir()):
        named = janitor.NAMED.fullmatch(path.name)
        if (
            named is not None
            and not janitor.state_path(named[1]).exists()
            and not janitor.inhabitants([path.name])
        ):
            labs.setdefault(named[1], []).append(path.name)
    return labs
