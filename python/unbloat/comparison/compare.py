"""`compare`: transfers side by side. CUBIC against BBR, LTE against Wi-Fi, one direction of a capture against the other.

Captures are compared by their main flow (most payload bytes), a single capture by its two main directions, runs of one
scenario by the same transfer. `flow_measures.py` has the measures, each with its better end; of a scenario every other
figure is compared by its name, too. The result is a table, and a verdict in words.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unbloat.capture.analyze import analyze_each
from unbloat.comparison.flow_measures import figures
from unbloat.comparison.html import comparison_html
from unbloat.comparison.sides import Line, Side, Sides
from unbloat.errors import UnbloatError
from unbloat.run.direction import flow_of
from unbloat.run.figures import Figures
from unbloat.run.open import is_run, open_run
from unbloat.run.run import Run
from unbloat.run.tables import Row
from unbloat.run.write import FORMAT
from unbloat.text.format import (
    address_text,
    endpoint_text,
)
from unbloat.text.names import distinct, stems

if TYPE_CHECKING:
    import pyarrow as pa

    from unbloat.capture.analyze import Progress

Input = str | os.PathLike[str] | Run


@dataclass(frozen=True)
class Comparison(Sides):
    """Transfers side by side, with what they say."""

    @property
    def table(self) -> pa.Table:
        """Measures down, sides across, as text."""
        import pyarrow as pa

        columns: dict[str, list[str]] = {
            "measure": [line.measure.label.strip() for line in self.lines]
        }
        for place, label in enumerate(self.labels):
            columns[label] = [line.measure.text(line.values[place]) for line in self.lines]
        return pa.table(columns)

    def to_dict(self) -> Row:
        """As `unbloat compare --json` prints it."""
        return {
            "format": FORMAT,
            "sides": [side_object(side) for side in self.sides],
            "measures": [measure_object(line, self.labels) for line in self.lines],
            **(
                {"scenario": [section.to_dict() for section in self.sections]}
                if self.sections
                else {}
            ),
            "verdict": self.verdict,
        }

    def write_report(self, path: str | Path) -> None:
        """The comparison as one self-contained page."""
        from unbloat.comparison.page import write_compare

        write_compare(self, path, sections=self.sections)

    def _repr_html_(self) -> str:
        return comparison_html(self)


def compare(
    *inputs: Input,
    labels: Sequence[str] | None = None,
    flows: Sequence[int] | None = None,
    connections: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Lay captures, stored runs or `Run`s side by side.

    Each takes part with its main flow, or with the one that `flows` names; runs of one scenario with the same transfer. A single
    input takes part with the main flows of its two directions, or with all that `flows` names. `connections` names them
    as `flow_of` reads them: `3`, `3→`.
    """
    if not inputs:
        raise UnbloatError("nothing to compare was given")
    runs = open_all(inputs, progress)
    if connections is not None:
        of = runs * len(connections) if len(runs) == 1 else runs
        if len(of) != len(connections):
            raise UnbloatError(
                f"{len(runs)} captures need {len(runs)} connections, one each, got {len(connections)}"
            )
        flows = [flow_of(run, name) for run, name in zip(of, connections, strict=True)]
    if len(runs) == 1:
        chosen = list(flows) if flows is not None else directions(runs[0])
        pairs = [(runs[0], flow) for flow in chosen]
        names = [sender_text(run, flow) for run, flow in pairs]
    else:
        if flows is not None and len(flows) != len(runs):
            raise UnbloatError(
                f"{len(runs)} captures need {len(runs)} flows, one each, got {len(flows)}"
            )
        flows = flows if flows is not None else same_transfer(runs)
        pairs = [
            (run, flows[place] if flows is not None else main_flow(run))
            for place, run in enumerate(runs)
        ]
        names = by_origin([name_of(item) for item in inputs], runs)
    if len(pairs) < 2:
        raise UnbloatError("a comparison needs two flows")
    if labels is not None and len(labels) != len(pairs):
        raise UnbloatError(f"{len(pairs)} sides need {len(pairs)} labels, got {len(labels)}")
    names = distinct(list(labels) if labels is not None else names)
    if len(runs) == 1:
        runs[0].load({flow // 2 for _, flow in pairs}, ("samples",))
    sides = []
    for name, (run, flow) in zip(names, pairs, strict=True):
        sides.append(
            Side(name, run, flow, figures(run.flow(flow), run.samples(flow=flow), run.bin_ms))
        )
    return Comparison(sides)


def open_all(inputs: Sequence[Input], progress: Progress | None = None) -> list[Run]:
    """Runs as they are, stored runs opened, captures analysed side by side."""
    captures = [
        os.fspath(item) for item in inputs if not isinstance(item, Run) and not is_run(item)
    ]
    outcomes = iter(
        analyze_each([[path] for path in captures], progress=progress) if captures else []
    )
    runs: list[Run] = []
    for item in inputs:
        outcome = (
            item if isinstance(item, Run) else open_run(item) if is_run(item) else next(outcomes)
        )
        if isinstance(outcome, Exception):
            raise outcome
        runs.append(outcome)
    return runs


def main_flow(run: Run) -> int:
    """The flow that stands for a capture."""
    if run.main_flow is None:
        raise UnbloatError(f"{run.name}: holds no TCP data to compare")
    return run.main_flow


def same_transfer(runs: Sequence[Run]) -> list[int] | None:
    """Of runs of a scenario: the largest flow of the first transfer that all of them have."""
    if not all(run.made for run in runs):
        return None
    found = [Figures(run) for run in runs]
    for name in found[0].transfers:
        rows = [one.flows(name) for one in found]
        if all(rows):
            return [max(own, key=lambda row: (row["bytes"], -row["id"]))["id"] for own in rows]
    return None


def directions(run: Run) -> list[int]:
    """The largest flow, and the largest in the opposite direction between the same two hosts (often of another connection)."""
    first = main_flow(run)
    wanted = hosts(run, first)[::-1]
    by_size = sorted(run.payloads.items(), key=lambda item: (-item[1], item[0]))
    for id_, payload in by_size:
        # One host talking to itself has the same address at both ends: the ports of the connection distinguish them.
        opposite = id_ == first ^ 1 if wanted[0] == wanted[1] else hosts(run, id_) == wanted
        if payload and opposite:
            return [first, id_]
    raise UnbloatError(
        f"{run.name}: data flows in one direction only; name two captures, or two connections with --connection"
    )


def hosts(run: Run, flow: int) -> tuple[str, str]:
    """Addresses of sender and receiver."""
    connection = run.connection(flow // 2)
    a, b = connection["a_addr"], connection["b_addr"]
    return (a, b) if flow % 2 == 0 else (b, a)


def sender_text(run: Run, flow: int) -> str:
    """A flow of a capture by its sender."""
    connection = run.connection(flow // 2)
    a, b = connection["a_addr"], connection["b_addr"]
    if a == b:
        end = "a" if flow % 2 == 0 else "b"
        return f"from {endpoint_text(connection[f'{end}_addr'], connection[f'{end}_port'])}"
    return f"from {address_text(a if flow % 2 == 0 else b)}"


def name_of(item: Input) -> str:
    """What an input is called: by its capture's file without endings; a simulated or stored run in full, since its
    labels may hold a point (`rate=2.5 Mbit/s`)."""
    if isinstance(item, Run):
        return item.name if item.extra else stems([item.name])[0]
    if os.fspath(item) == "-":
        return "stdin"
    name = Path(item).name
    return name.removesuffix(".unbloat") or name if is_run(item) else stems([name])[0]


def by_origin(names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Runs of the same name distinguished by where they come from: `cubic, simulated` and `cubic, lab`."""
    return [
        f"{name}, {run.info['origin']}" if run.made and names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]


def side_object(side: Side) -> Row:
    """Which flow of which file a side is."""
    sender, receiver = hosts(side.run, side.flow)
    return {
        "label": side.label,
        "files": side.run.info.get("files", []),
        "flow": side.flow,
        "from": sender,
        "to": receiver,
    }


def measure_object(line: Line, labels: Sequence[str]) -> Row:
    """One measure with its values."""
    measure = line.measure
    return {
        "name": measure.name,
        "better": measure.better,
        "values": dict(zip(labels, line.values, strict=True)),
        "best": [labels[place] for place in sorted(line.best)],
    }
