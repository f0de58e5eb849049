"""Claims: what a paper says, and the scenario and figures that test it.

A scenario file makes a claim by a `[claim]` table and `[[figure]]` tables. Each figure names a metric in one of the
scenario's runs (or relates two runs), the bounds in which it has to lie, and a control run in which it must not. A claim
file is checked as strictly as a scenario.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from unbloat.claims.lab_settings import LabFigure, LabTable, lab_figure, lab_table
from unbloat.claims.values import known, number, span
from unbloat.errors import ScenarioError, UnbloatError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Installed beside this file; in a source tree at its top.
PLACES = (Path(__file__).parents[1] / "scenarios", Path(__file__).parents[3] / "scenarios")
# Where a figure of a source comes from, as the claims name it.
MARKS = {
    "seed": "in the documents that the project starts from",
    "found": "read in public material, which the source names",
    "derived": "computed from such figures",
    "recalled": "remembered, not found in any source: run and shown, but no paper figure is printed",
    "own": "no paper's claim: a question of this project",
}
# How two runs are related.
RELATIONS = ("value", "ratio", "change", "difference")


@dataclass(frozen=True)
class Picked:
    """One number of one run."""

    metric: str
    """Name of a metric, with a statistic behind a blank where it is a distribution: `probe_rtt_ms p95`."""
    run: tuple[tuple[str, str], ...] = ()
    """Labels of the run."""
    flow: str | None = None
    probe: str | None = None
    link: str | None = None
    between: tuple[float, float] | None = None
    """Seconds; the whole run (less its warm-up) without."""
    capture: str | None = None
    """Node whose capture is analysed for it."""
    plus: float = 0.0
    """Added to the number: the path's own RTT, where a source states round trips and the run has a stage's delay."""


@dataclass(frozen=True)
class Figure:
    """A figure of a claim."""

    name: str
    of: Picked
    relation: str
    against: Picked | None
    paper: str | None
    """What the source says, in its words' figures; None where it is only recalled."""
    least: float | None
    most: float | None
    why: str
    """Why the bounds are where they are."""
    mark: str
    control: Picked | None
    control_against: Picked | None
    reason: str | None
    """Why it is known to fail."""
    lab: LabFigure | None = None
    """How near the lab has to come to the simulator; None where the lab does not measure it."""


@dataclass(frozen=True)
class Claim:
    """A claim with its scenario."""

    id: str
    path: Path
    text: str
    title: str
    source: str
    mark: str
    group: str
    quick: bool
    figures: tuple[Figure, ...]
    columns: tuple[tuple[str, Picked], ...] = ()
    """Of the table of all runs, where the claim shows one: heading, and what is measured in each run."""
    lab: LabTable | None = None
    """How the lab runs it; None where it does not."""


def scenario_directory() -> Path:
    """Where the bundled scenarios are."""
    for place in PLACES:
        if any(place.glob("*.toml")):
            return place
    raise UnbloatError(f"no scenarios in {PLACES[0]}: unbloat was installed without them")


def claims() -> list[Claim]:
    """All bundled claims, by file name."""
    found = [read_claim(path) for path in sorted(scenario_directory().glob("*.toml"))]
    return [claim for claim in found if claim is not None]


def read_claim(path: Path) -> Claim | None:
    """The claim of a scenario file; None where it makes none."""
    text = path.read_text()
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: {error}") from None
    if "claim" not in data:
        return None
    try:
        return parsed(path, text, data)
    except KeyError as error:
        raise ScenarioError(f"{path}: {error.args[0]}") from None


def parsed(path: Path, text: str, data: Mapping[str, Any]) -> Claim:
    """Raises KeyError with one line for what is wrong."""
    claim = data["claim"]
    known(claim, {"title", "source", "mark", "group", "quick", "table", "lab"}, "claim")
    for key in ("title", "source", "mark", "group"):
        if key not in claim:
            raise KeyError(f"claim.{key} is missing")
    if claim["mark"] not in MARKS:
        raise KeyError(f"claim.mark: there is no {claim['mark']!r}; there are {', '.join(MARKS)}")
    lab = lab_table(claim.get("lab"), "claim.lab")
    figures = tuple(
        figure(entry, f"figure.{n}", claim["mark"], lab)
        for n, entry in enumerate(data.get("figure", []))
    )
    if not figures:
        raise KeyError("a claim needs at least one [[figure]]")
    return Claim(
        path.stem,
        path,
        text,
        claim["title"],
        claim["source"],
        claim["mark"],
        claim["group"],
        bool(claim.get("quick", False)),
        figures,
        tuple(column(entry, f"claim.table.{n}") for n, entry in enumerate(claim.get("table", []))),
        lab,
    )


def column(entry: Mapping[str, Any], place: str) -> tuple[str, Picked]:
    """A column of the table of all runs: its heading beside the keys that pick a number."""
    for key in ("name", "metric"):
        if key not in entry:
            raise KeyError(f"{place}.{key} is missing")
    return entry["name"], picked(
        {key: value for key, value in entry.items() if key != "name"}, None, place
    )


FIGURE_KEYS = {
    "name", "metric", "run", "flow", "probe", "link", "between", "capture", "plus", "as", "against", "paper", "min", "max",
    "why", "mark", "control", "reason", "lab",
}  # fmt: skip


def figure(entry: Mapping[str, Any], place: str, mark: str, lab: LabTable | None) -> Figure:
    """One `[[figure]]`."""
    known(entry, FIGURE_KEYS, place)
    for key in ("name", "metric", "why"):
        if key not in entry:
            raise KeyError(f"{place}.{key} is missing")
    of = picked({key: entry[key] for key in PICKED if key in entry}, None, place)
    relation = entry.get("as", "value")
    if relation not in RELATIONS:
        raise KeyError(f"{place}.as: there is no {relation!r}; there are {', '.join(RELATIONS)}")
    against = entry.get("against")
    if (against is None) != (relation == "value"):
        raise KeyError(f"{place}: `against` and `as` belong together")
    own = entry.get("mark", mark)
    if own == "recalled" and "paper" in entry:
        raise KeyError(
            f"{place}.paper: a figure that is only recalled is not printed as the paper's"
        )
    least, most = number(entry.get("min"), place), number(entry.get("max"), place)
    control = entry.get("control")
    if (least is not None or most is not None) and control is None and relation == "value":
        raise KeyError(f"{place}.control is missing: the run in which the figure must not hold")
    compared = None if against is None else picked(against, of, f"{place}.against")
    return Figure(
        entry["name"],
        of,
        relation,
        compared,
        entry.get("paper"),
        least,
        most,
        entry["why"],
        own,
        None if control is None else picked(control, of, f"{place}.control"),
        beside(against, control, of, compared, place),
        entry.get("reason"),
        lab_figure(entry.get("lab"), lab, f"{place}.lab"),
    )


def beside(
    against: Mapping[str, Any] | None,
    control: Mapping[str, Any] | None,
    of: Picked,
    compared: Picked | None,
    place: str,
) -> Picked | None:
    """What the control is related to: a number of its own run, unless `against` names another run."""
    if against is None or control is None or compared is None:
        return None
    return compared if "run" in against else picked(against, picked(control, of, place), place)


PICKED = tuple(field.name for field in fields(Picked))


def picked(entry: Mapping[str, Any], base: Picked | None, place: str) -> Picked:
    """A choice of run and metric; what is not said is as in `base`."""
    known(entry, set(PICKED), place)
    values: dict[str, Any] = {} if base is None else {name: getattr(base, name) for name in PICKED}
    values |= entry
    if isinstance(values.get("run"), Mapping):
        values["run"] = tuple((str(key), str(value)) for key, value in values["run"].items())
    if values.get("between") is not None and not isinstance(values["between"], tuple):
        values["between"] = span(values["between"], place)
    if "plus" in entry:
        values["plus"] = number(entry["plus"], f"{place}.plus")
    return Picked(**values)
