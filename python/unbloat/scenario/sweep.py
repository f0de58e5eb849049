"""Several runs of one scenario: the product of a sweep, each combination with one or several seeds.

Runs that differ by their seed alone are one case; its figures are means with 95 % confidence intervals. A `RunSet` gives
one row per run or case as an Arrow table, and a comparison side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.comparison.compare import Comparison, compare
from unbloat.errors import UnbloatError
from unbloat.run.figures import Figures
from unbloat.run.metrics import named_figures
from unbloat.run.run import Run
from unbloat.scenario.confidence import Spread, spread
from unbloat.scenario.expectations import Check, label_text
from unbloat.scenario.key_figures import KeyFigure, key_figures, spread_text
from unbloat.text.names import file_name

if TYPE_CHECKING:
    import pyarrow as pa


Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Skipped:
    """A run that could not be: it names a trace that is not there, or failed where it was sent."""

    labels: Labels
    reason: str
    failed: bool = False

    @property
    def text(self) -> str:
        """Its labels and the reason."""
        where = label_text(self.labels)
        return f"{where}: {self.reason}" if where else self.reason


@dataclass(frozen=True)
class Case:
    """Runs that differ by their seed alone."""

    labels: Labels
    runs: list[Run]

    @property
    def label(self) -> str:
        """In words."""
        return label_text(self.labels)

    @cached_property
    def figures(self) -> dict[str, Spread]:
        """Mean and interval of every figure that all its runs have."""
        found = [named_figures(Figures(run)) for run in self.runs]
        return {
            name: spread([one[name] for one in found])
            for name in found[0]
            if all(name in one for one in found)
        }


class RunSet(Sequence[Run]):
    """The runs of a sweep, in its order; what `unbloat.simulate` gives for one."""

    def __init__(
        self,
        name: str,
        runs: Sequence[Run],
        labels: Sequence[Labels],
        checks: Sequence[Check] = (),
        skipped: Sequence[Skipped] = (),
    ) -> None:
        self.name = name
        self.runs = list(runs)
        self.labels = list(labels)
        """The labels of each run: key and value."""
        self.checks = list(checks)
        """What the scenario expects, each passed or failed."""
        self.skipped = list(skipped)

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, place: Any) -> Any:
        return self.runs[place]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __repr__(self) -> str:
        return f"<unbloat.RunSet {self.name}: {len(self)} runs, {len(self.cases)} cases>"

    def select(self, **labels: str) -> RunSet:
        """The runs with these labels."""
        wanted = set(labels.items())
        places = [place for place, own in enumerate(self.labels) if wanted <= set(own)]
        names = {label_text(self.labels[place]) for place in places}
        return RunSet(
            self.name,
            [self.runs[place] for place in places],
            [self.labels[place] for place in places],
            [check for check in self.checks if check.run in names],
        )

    @cached_property
    def cases(self) -> list[Case]:
        """The runs, those of different seeds together."""
        groups: dict[Labels, list[Run]] = {}
        for run, labels in zip(self.runs, self.labels, strict=True):
            groups.setdefault(tuple(pair for pair in labels if pair[0] != "seed"), []).append(run)
        return [Case(labels, runs) for labels, runs in groups.items()]

    @property
    def table(self) -> pa.Table:
        """One row per run: its labels and all its figures."""
        import pyarrow as pa

        rows = [
            dict(labels) | {"seed": run.info["seed"]} | named_figures(Figures(run))
            for run, labels in zip(self.runs, self.labels, strict=True)
        ]
        return pa.Table.from_pylist(rows, schema=schema(rows))

    @property
    def summary(self) -> pa.Table:
        """One row per case: its labels, `runs`, and of each figure the mean and (`…_ci95`) half the interval's width."""
        import pyarrow as pa

        rows = []
        for case in self.cases:
            row: dict[str, Any] = dict(case.labels) | {"runs": len(case.runs)}
            for name, value in case.figures.items():
                row |= {name: value.mean, f"{name}_ci95": value.half}
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=schema(rows))

    @cached_property
    def lead(self) -> str | None:
        """The transfer that stands for the scenario: its first one that has a connection in every run."""
        found = [Figures(run) for run in self.runs]
        every = found[0].transfers if found else []
        return next((name for name in every if all(figures.flows(name) for figures in found)), None)

    def compare(self) -> Comparison:
        """The first run of each case side by side, by the same transfer."""
        runs = [case.runs[0] for case in self.cases]
        names = [short(case.labels) for case in self.cases]
        if len(runs) < 2:
            if len(self.runs) < 2:
                raise UnbloatError(f"{self.name}: one run alone cannot be compared")
            runs, names = self.runs, [f"seed {run.info['seed']}" for run in self.runs]
        return compare(*runs, labels=names, flows=self.lead_flows(runs))

    def lead_flows(self, runs: Sequence[Run]) -> list[int] | None:
        """The largest flow of the lead in each run."""
        if self.lead is None:
            return None
        found = (Figures(run).flows(self.lead) for run in runs)
        return [max(rows, key=lambda row: (row["bytes"], -row["id"]))["id"] for rows in found]

    def write_report(self, path: str | Path) -> Path:
        """A self-contained page: a single run's own, or the cases side by side."""
        # Both bring the template engine along, which takes longer to import than everything else together.
        from unbloat.comparison.page import write_compare
        from unbloat.report.write import write_report

        if len(self.runs) == 1:
            return write_report(self.runs[0], path).path
        comparison = self.compare()
        # The other figures of a scenario are lines of the first table.
        several = len(self.runs[0].info["transfers"]) > 1
        transfers = [one for one in comparison.sections if several and one.title == "transfer"]
        return write_compare(
            comparison, path, title=self.name, further=self.further(), sections=transfers
        ).path

    def key_figures(self) -> list[KeyFigure]:
        """Columns of the sweep's table: title, name and form of each figure that its cases have."""
        known = {name for case in self.cases for name in case.figures}
        return key_figures(Figures(self.runs[0]), self.lead, known)

    def further(self) -> list[tuple[str, list[str]]]:
        """What a comparison of main transfers does not say: probes, applications, all transfers together."""
        cases = self.cases if len(self.cases) > 1 else [Case((), [run]) for run in self.runs]
        return [
            (
                "goodput of all transfers" if name == "total_goodput_bps" else title,
                [spread_text(case.figures.get(name), text) for case in cases],
            )
            for title, name, text in self.key_figures()
            if (
                (name != "total_goodput_bps" or len(self.runs[0].info["transfers"]) > 1)
                and not name.endswith(
                    ("rtt_ms_p50", "rtt_ms_p95", "queue_ms_p95", "retransmissions")
                )
            )
            or name.split(".")[0] in self.runs[0].info["probed"]
        ]

    def write(self, path: str | Path) -> list[Path]:
        """Stores each run in DIR/NAME, named by its labels."""
        names = [file_name(label_text(labels)) or "run" for labels in self.labels]
        return [run.write(Path(path) / name) for run, name in zip(self.runs, names, strict=True)]


def short(labels: Labels) -> str:
    """The values alone, which is enough beside each other."""
    return ", ".join(value for _, value in labels) or "run"


def schema(rows: Sequence[dict[str, Any]]) -> pa.Schema:
    """Columns in the order in which they first occur; text, or numbers."""
    import pyarrow as pa

    kinds: dict[str, pa.DataType] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(
                name,
                pa.string()
                if isinstance(value, str)
                else pa.int64()
                if isinstance(value, int)
                else pa.float64(),
            )
    return pa.schema(list(kinds.items()))
