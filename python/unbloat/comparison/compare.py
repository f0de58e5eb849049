"""`compare`: transfers side by side. CUBIC against BBR, LTE against Wi-Fi, one direction of a capture against the other.

signal: the main flow of each capture (most payload bytes), or the two main directions of one capture; of runs of one scenario,
simulated or of the lab, the same transfer · model: the measures of `measures.py`, each with its better end; of a scenario also
every other figure, by name · action: a table, and a verdict in words.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from unbloat.capture.analyze import analyze_each
from unbloat.comparison.flow_measures import MEASURES, Measure, Value, best_and_worst, figures
from unbloat.comparison.scenario_metrics import Section, sections
from unbloat.errors import UnbloatError
from unbloat.run.metrics import Figures
from unbloat.run.open import FORMAT, is_run, open_run
from unbloat.run.run import Row, Run
from unbloat.text.format import (
    address_text,
    endpoint_text,
    limit_phrase,
    ms_text,
    number,
    rate_text,
    share_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from unbloat.capture.analyze import Progress

Input = str | os.PathLike[str] | Run

# What a reader would call the same rate; runs of one transfer over one radio cell differ by about as much.
SAME_RATE_WITHIN = 0.1
# Differences that deserve a clause of the verdict: a fifth of a round trip, five points of a share, half a point of loss.
DELAY_DIFFERS_BY = 0.2
SHARE_DIFFERS_BY = 0.05
LOSS_DIFFERS_BY = 0.005


@dataclass(frozen=True)
class Side:
    """One flow of one run, with the values of all measures."""

    label: str
    run: Run
    flow: int
    values: dict[str, Value]


@dataclass(frozen=True)
class Line:
    """One measure over all sides; `best` and `worst` are places in `values`."""

    measure: Measure
    values: list[Value]
    best: set[int]
    worst: set[int]


@dataclass(frozen=True)
class Comparison:
    """Transfers side by side."""

    sides: list[Side]

    @property
    def labels(self) -> list[str]:
        """What the sides are called."""
        return [side.label for side in self.sides]

    @cached_property
    def lines(self) -> list[Line]:
        """Every measure that at least one side has a value for."""
        lines = []
        for measure in MEASURES:
            values = [side.values[measure.name] for side in self.sides]
            if any(value is not None for value in values):
                lines.append(Line(measure, values, *best_and_worst(measure, values)))
        return lines

    @cached_property
    def sections(self) -> list[Section]:
        """Of runs of a scenario all transfers, queues, probes and applications; none where a capture takes part."""
        runs = [side.run for side in self.sides]
        return (
            sections(runs) if all(run.made for run in runs) and len(set(map(id, runs))) > 1 else []
        )

    @property
    def verdict(self) -> str:
        """How the others differ from the first, one sentence each."""
        return " ".join(against(self.sides[0], side) for side in self.sides[1:])

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

        write_compare(
            [side.run for side in self.sides],
            self.labels,
            path,
            flows=[side.flow for side in self.sides],
            sections=self.sections,
        )

    def _repr_html_(self) -> str:
        from unbloat.run.html import comparison_html

        return comparison_html(self)


def compare(
    *inputs: Input,
    labels: Sequence[str] | None = None,
    flows: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Lay captures, stored runs or `Run`s side by side.

    Each takes part with its main flow, or with the one that `flows` names; runs of one scenario with the same transfer. A single
    input takes part with the main flows of its two directions, or with all that `flows` names.
    """
    if not inputs:
        raise UnbloatError("nothing to compare was given")
    runs = open_all(inputs, progress)
    if len(runs) == 1:
        chosen = list(flows) if flows is not None else directions(runs[0])
        pairs = [(runs[0], flow) for flow in chosen]
        names = [sender_text(run, flow) for run, flow in pairs]
    else:
        if flows is not None and len(flows) != len(runs):
            raise UnbloatError(
                f"{len(runs)} captures need {len(runs)} flows, one each; {len(flows)} were named"
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
        raise UnbloatError(f"{len(pairs)} sides need {len(pairs)} labels; {len(labels)} were given")
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
    ids, payloads = (
        run.flows.column("id").to_pylist(),
        run.flows.column("payload_bytes").to_pylist(),
    )
    by_size = sorted(zip(payloads, ids, strict=True), key=lambda item: (-(item[0] or 0), item[1]))
    for payload, id_ in by_size:
        # One host talking to itself has the same address at both ends: the ports of the connection tell them apart.
        opposite = id_ == first ^ 1 if wanted[0] == wanted[1] else hosts(run, id_) == wanted
        if payload and opposite:
            return [first, id_]
    raise UnbloatError(
        f"{run.name}: data flows in one direction only; name two captures, or two flows with --flow"
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
    """Runs of the same name told apart by where they come from: `cubic, simulated` and `cubic, lab`."""
    return [
        f"{name}, {run.info['origin']}" if run.made and names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]


def stems(names: Sequence[str]) -> list[str]:
    """File names without their endings."""
    return [name.split(".")[0] or name for name in names]


def distinct(names: Sequence[str]) -> list[str]:
    """Names that can be told apart: the second of the same becomes `name-2`."""
    result: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in result:
            number += 1
            candidate = f"{name}-{number}"
        result.append(candidate)
    return result


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


def against(reference: Side, side: Side) -> str:
    """How one side differs from the first, in a sentence."""
    clauses = [rate_clause(reference, side)]
    worth = delay_clause(reference, side)
    if worth:
        # "but" when the rate is no better and the delay differs, or when one pays for the other.
        better_delay = value(side, "rtt_ms_p95") < value(reference, "rtt_ms_p95")
        faster = value(side, "goodput_bps") > value(reference, "goodput_bps") * (
            1 + SAME_RATE_WITHIN
        )
        clauses.append(("and " if better_delay == faster else "but ") + worth)
    clauses += window_clauses(reference, side)
    text = ", ".join(clauses[:2]) + "".join(f"; {clause}" for clause in clauses[2:])
    return f"{side.label}: {text}."


def rate_clause(reference: Side, side: Side) -> str:
    """Goodput against goodput."""
    before, now = reference.values["goodput_bps"], side.values["goodput_bps"]
    if (
        not isinstance(before, int | float)
        or not isinstance(now, int | float)
        or before == 0
        or now == 0
    ):
        return f"{rate_text(now if isinstance(now, int | float) else None)} of goodput"
    if abs(now - before) <= SAME_RATE_WITHIN * max(now, before):
        return f"{rate_text(now)}, as {reference.label}"
    times = now / before
    how = f"{number(times)} times" if times > 1 else f"1/{number(1 / times)} of"
    return f"{rate_text(now)}, {how} {reference.label}'s {rate_text(before)}"


def delay_clause(reference: Side, side: Side) -> str:
    """RTT against RTT, where both were measured and differ."""
    before, now = reference.values["rtt_ms_p95"], side.values["rtt_ms_p95"]
    if not isinstance(before, int | float) or not isinstance(now, int | float):
        return ""
    if abs(now - before) <= DELAY_DIFFERS_BY * max(now, before):
        return ""
    grades = (reference.values["grade"], side.values["grade"])
    grade = (
        f" (grade {grades[1]} instead of {grades[0]})"
        if None not in grades and grades[0] != grades[1]
        else ""
    )
    return f"RTT p95 {ms_text(now)} instead of {ms_text(before)}{grade}"


def window_clauses(reference: Side, side: Side) -> list[str]:
    """Window, losses and main limit, where they differ enough to be told."""
    clauses = []
    full = value(reference, "window_full_share"), value(side, "window_full_share")
    if abs(full[0] - full[1]) >= SHARE_DIFFERS_BY:
        clauses.append(
            f"window full {share_text(full[1])} of the time instead of {share_text(full[0])}"
        )
    loss = value(reference, "loss_rate"), value(side, "loss_rate")
    if abs(loss[0] - loss[1]) >= LOSS_DIFFERS_BY:
        clauses.append(
            f"{share_text(loss[1])} of the segments lost instead of {share_text(loss[0])}"
        )
    limits = reference.values["limit"], side.values["limit"]
    if limits[0] != limits[1] and isinstance(limits[1], str):
        rather = f" rather than {limit_phrase(limits[0])}" if isinstance(limits[0], str) else ""
        clauses.append(f"held back by {limit_phrase(limits[1])}{rather}")
    return clauses


def value(side: Side, name: str) -> float:
    """A number, 0 where it was not measured: only used where that reads as 'none'."""
    figure = side.values[name]
    return float(figure) if isinstance(figure, int | float) else 0.0
