"""Claims: what a paper says, and the scenario and figures that test it.

A scenario file makes a claim by a `[claim]` table and `[[figure]]` tables. Each figure names a metric in one of the
scenario's runs (or relates two runs), the bounds in which it has to lie, and a control run in which it must not. A claim
file is checked as strictly as a scenario.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbloat.claims.chart import Chart, charts
from unbloat.claims.figure import MARKS, Figure, Picked, figure, picked
from unbloat.claims.lab_settings import LabTable, lab_table
from unbloat.claims.values import known
from unbloat.errors import ScenarioError, UnbloatError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Installed beside this file; in a source tree at its top.
PLACES = (Path(__file__).parents[1] / "scenarios", Path(__file__).parents[3] / "scenarios")


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
    open: tuple[str, ...] = ()
    """Labels of the sweep whose values the source leaves open: the figures are judged at each combination of them."""
    seed: int = 1
    """The scenario's own; repetitions have the next ones."""
    seeds: int = 1
    """Repetitions that the scenario asks for."""
    charts: tuple[Chart, ...] = ()
    """Its figures beside points of the source's."""
    each: str | None = None
    """Label of the sweep at each of whose values what is open may be another one: a figure belongs to the value that its run names."""

    @property
    def curves(self) -> tuple[Picked, ...]:
        """What its charts measure beyond its figures, in their order."""
        return tuple(
            pick for chart in self.charts for series in chart.series for pick in series.picks
        )


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
    data = read_toml(path, text)
    if "claim" not in data:
        return None
    try:
        return parsed(path, text, data)
    except KeyError as error:
        raise ScenarioError(f"{path}: {error.args[0]}") from None


def read_toml(path: Path, text: str) -> dict[str, Any]:
    """The tables of a scenario file."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: {error}") from None


def parsed(path: Path, text: str, data: Mapping[str, Any]) -> Claim:
    """Raises KeyError with one line for what is wrong."""
    claim = data["claim"]
    known(
        claim,
        {
            "title",
            "source",
            "mark",
            "group",
            "quick",
            "table",
            "lab",
            "open",
            "each",
            "chosen_after",
            "chart",
        },
        "claim",
    )
    for key in ("title", "source", "mark", "group"):
        if key not in claim:
            raise KeyError(f"claim.{key} is missing")
    if claim["mark"] not in MARKS:
        raise KeyError(f"claim.mark: there is no {claim['mark']!r}; there are {', '.join(MARKS)}")
    lab = lab_table(claim.get("lab"), "claim.lab")
    # What was chosen for the whole claim was chosen for each of its figures.
    chosen = {"chosen_after": claim["chosen_after"]} if "chosen_after" in claim else {}
    figures = tuple(
        figure(chosen | entry, f"figure.{n}", claim["mark"], lab)
        for n, entry in enumerate(data.get("figure", []))
    )
    if not figures:
        raise KeyError("a claim needs at least one [[figure]]")
    stated, sweep = claim.get("open", []), data.get("sweep", {})
    left_open = tuple([stated] if isinstance(stated, str) else stated)
    # A swept key such as `link.up.rate` is labelled by its last part.
    labels = {key.rpartition(".")[2] for key in sweep}
    if unknown := [label for label in left_open if label not in labels]:
        raise KeyError(f"claim.open: the sweep has no {unknown[0]!r}")
    each = claim.get("each")
    if each is not None and not left_open:
        raise KeyError("claim.each: nothing is open")
    if each is not None and any(each not in dict(one.of.run) for one in figures):
        raise KeyError(f"claim.each: the run of every figure names its {each}")
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
        left_open,
        int(data.get("seed", 1)),
        int(sweep.get("seeds", 1)),
        charts(claim.get("chart", []), figures),
        each,
    )


def column(entry: Mapping[str, Any], place: str) -> tuple[str, Picked]:
    """A column of the table of all runs: its heading beside the keys that pick a number."""
    for key in ("name", "metric"):
        if key not in entry:
            raise KeyError(f"{place}.{key} is missing")
    return entry["name"], picked(
        {key: value for key, value in entry.items() if key != "name"}, None, place
    )
