"""A run as its reader sees it: one flow, its findings, its series between two moments."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat import Run

if TYPE_CHECKING:
    from wifi import Made

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Reading:
    """Everything about one flow of a run: the main one unless another is named."""

    run: Run
    made: Made | None = None
    id: int | None = None
    flow: dict[str, Any] = field(init=False)
    samples: list[dict[str, Any]] = field(init=False)
    begin_s: float = field(init=False)

    def __post_init__(self) -> None:
        chosen = self.run.main_flow if self.id is None else self.id
        assert chosen is not None
        self.flow = self.run.flow(chosen)
        self.samples = self.run.samples(flow=chosen).to_pylist()
        self.begin_s = self.samples[0]["t_s"]

    def finding(self, rule: str, flow: int | None = None) -> dict[str, Any]:
        """The one finding of a rule, its values unpacked."""
        rows = [
            row
            for row in self.run.findings.to_pylist()
            if row["rule"] == rule and row["flow"] == (self.flow["id"] if flow is None else flow)
        ]
        assert len(rows) == 1, f"{rule}: {len(rows)} findings"
        found: dict[str, Any] = rows[0]
        return found | {"values": json.loads(rows[0]["values"])}

    def rules(self) -> set[str]:
        """Which rules spoke about the flow."""
        return {
            row["rule"] for row in self.run.findings.to_pylist() if row["flow"] == self.flow["id"]
        }

    def between(self, from_s: float, to_s: float) -> list[dict[str, Any]]:
        """Samples of these seconds of the transfer."""
        return [row for row in self.samples if from_s <= row["t_s"] - self.begin_s < to_s]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Moments of one kind, in seconds of the transfer."""
        rows = self.run.events(flow=self.flow["id"]).to_pylist()
        return [row | {"t_s": row["t_s"] - self.begin_s} for row in rows if row["kind"] == kind]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def variation(values: list[float]) -> float:
    """Standard deviation over mean."""
    middle = mean(values)
    return float(mean([(v - middle) ** 2 for v in values]) ** 0.5 / middle)


def main_limit(rows: list[dict[str, Any]]) -> str:
    """The limit that held most of the time."""
    spent: dict[str, float] = {}
    for row in rows:
        spent[row["limit"]] = spent.get(row["limit"], 0.0) + row["span_s"]
    return max(spent, key=lambda name: spent[name])
