"""The files of one lab run as they lie on disk.

signal: a directory with the plan, what the lab noted, what the emulator and the traffic programs wrote · model: none ·
action: dictionaries; times of captures on the run's own clock
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from unbloat.errors import UnbloatError
from unbloat.run.tables import Row

# Where servers listen: flow number i at 5001 + i, probe number i at 6001 + i.
FLOW_PORT, PROBE_PORT = 5001, 6001
SUFFIXES = (".pcap", ".pcapng")


@dataclass(frozen=True)
class Raw:
    """What a lab run left behind."""

    folder: Path
    plan: Row
    lab: Row
    emulator: Row
    broken: list[str] = field(default_factory=list)
    """Lines that could not be read; they become warnings."""

    @property
    def t0_ns(self) -> int:
        """When scenario time began: nanoseconds since 1970."""
        return int(self.lab["t0_unix_ns"])

    @property
    def bin_ms(self) -> float:
        """Length of a bin of the series."""
        return float(self.plan["bin_ms"])

    @property
    def warmup_s(self) -> float:
        """Statistics begin here."""
        return float(self.plan["warmup_s"])

    @property
    def duration_s(self) -> float:
        """How long the run was meant to be."""
        return float(self.plan["duration_s"])

    @property
    def span_ns(self) -> tuple[int, int]:
        """End of the warm-up and end of the run, on the clock of captures."""
        return self.t0_ns + round(self.warmup_s * 1e9), self.t0_ns + round(self.duration_s * 1e9)

    @cached_property
    def transfers(self) -> list[str]:
        """Names of the flows."""
        return [str(flow["name"]) for flow in self.plan["flows"]]

    @cached_property
    def links(self) -> list[str]:
        """Names of the links."""
        return [str(link["name"]) for link in self.plan["links"]]

    @cached_property
    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return [str(node["name"]) for node in self.plan["nodes"]]

    @cached_property
    def probed(self) -> list[str]:
        """Names of the probes."""
        return [str(probe["name"]) for probe in self.plan["probes"]]

    def captures(self, node: int) -> list[Path]:
        """Capture files taken at a node: NODE.pcap, or NODE.DEVICE.pcap where it has several devices."""
        folder, name = self.folder / "captures", self.nodes[node]
        if not folder.is_dir():
            return []
        found = [
            path
            for path in sorted(folder.iterdir())
            if path.suffix in SUFFIXES
            and (
                path.stem == name
                or (path.stem.startswith(f"{name}.") and longest(path.stem, self.nodes) == name)
            )
        ]
        return [path for path in found if path.stat().st_size > 0]

    def lines(self, name: str) -> Iterator[Row]:
        """The objects of a file of JSON lines. One that was cut off, since its writer was ended, is
        reported and left out."""
        path = self.folder / name
        if not path.is_file():
            return
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    value = json.loads(line)
                except ValueError:
                    value = None
                if isinstance(value, dict):
                    yield value
                else:
                    self.broken.append(f"{name}: line {number} cannot be read and is left out")

    def files(self, folder: str) -> list[str]:
        """The JSON-lines files of a folder, by their name inside the run."""
        place = self.folder / folder
        return (
            sorted(f"{folder}/{path.name}" for path in place.glob("*.jsonl"))
            if place.is_dir()
            else []
        )


def longest(stem: str, names: list[str]) -> str | None:
    """Whose file it is, `NAME` or `NAME.anything`: the longest name that fits, since names may hold points."""
    fitting = [name for name in names if stem == name or stem.startswith(f"{name}.")]
    return max(fitting, key=len, default=None)


def raw_of(folder: Path) -> Raw:
    """Opens a run's directory."""
    plan = json_file(folder / "plan.json")
    lab = json_file(folder / "lab.json")
    if "t0_unix_ns" not in lab:
        raise UnbloatError(f"{folder}: lab.json does not say when the run began")
    summary = folder / "emu" / "emu.json"
    return Raw(folder, plan, lab, json_file(summary) if summary.is_file() else {})


def json_file(path: Path) -> Row:
    """An object from a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnbloatError(
            f"{path.parent}: has no {path.name}, so it is no run of the lab"
        ) from None
    except ValueError:
        raise UnbloatError(f"{path}: cannot be read as JSON") from None
    if not isinstance(value, dict):
        raise UnbloatError(f"{path}: holds no object")
    return value
