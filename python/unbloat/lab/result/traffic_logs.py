"""What the traffic programs reported: the connections of each transfer, their sockets over time,
applications, probes.

signal: `flows/*.jsonl`, `probes/*.jsonl` · model: both ends report the same connection; the end
that sends the data knows its congestion control · action: connections by their two ends, samples by
socket, rows of `apps` and `probes`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unbloat.lab.result.raw_files import Raw, longest
from unbloat.run.tables import Row

if TYPE_CHECKING:
    import pyarrow as pa

Ends = frozenset[str]
"""Both ends of a connection, `address:port` each."""


@dataclass
class Known:
    """A connection that carried a transfer."""

    transfer: str
    sender: str
    """The end that sends the transfer's data."""
    receiver: str
    start_s: float
    congestion: str | None = None
    """What really ran at the sender."""
    proto: str = "tcp"


@dataclass
class TrafficLogs:
    """Everything that the programs wrote."""

    connections: dict[Ends, Known] = field(default_factory=dict)
    sockets: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    """Samples by local and remote end, in order of time."""
    apps: list[Row] = field(default_factory=list)
    probes: list[Row] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def read_logs(raw: Raw) -> TrafficLogs:
    """Reads all files."""
    found = TrafficLogs()
    for file in raw.files("flows"):
        stem = file.removeprefix("flows/").removesuffix(".jsonl")
        for row in raw.lines(file):
            take_flow(found, row, str(row.get("transfer") or longest(stem, raw.transfers) or stem))
    for file in raw.files("probes"):
        stem = file.removeprefix("probes/").removesuffix(".jsonl")
        for row in raw.lines(file):
            take_probe(found, row, str(row.get("probe") or longest(stem, raw.probed) or stem))
    for rows in found.sockets.values():
        rows.sort(key=lambda row: float(row["t_s"]))
    # Applications report nothing of the warm-up, as in the simulator.
    found.apps = sorted(
        (
            row
            for row in found.apps
            if row["t_s"] >= raw.warmup_s and row["transfer"] in raw.transfers
        ),
        key=lambda row: float(row["t_s"]),
    )
    found.probes = sorted(
        (row for row in found.probes if row["probe"] in raw.probed),
        key=lambda row: float(row["t_s"]),
    )
    return found


def take_flow(found: TrafficLogs, row: Row, transfer: str) -> None:
    """One line of a program that made traffic."""
    kind = row.get("kind")
    if kind == "connection":
        take_connection(found, row, transfer)
    elif kind == "sample":
        found.sockets.setdefault((row["local"], row["remote"]), []).append(row)
    elif kind == "app":
        found.apps.append(
            {
                "transfer": transfer,
                "t_s": float(row["t_s"]),
                "kind": str(row["name"]),
                "value": float(row["value"]),
            }
        )
    elif kind == "error":
        found.errors.append(f"{transfer}: {row.get('text', 'an error without words')}")


def take_connection(found: TrafficLogs, row: Row, transfer: str) -> None:
    """Either end may report it first; the data's sender reports the congestion control."""
    local, remote = str(row["local"]), str(row["remote"])
    sends = row.get("data") == "local"
    known = found.connections.setdefault(
        frozenset((local, remote)),
        Known(
            transfer,
            local if sends else remote,
            remote if sends else local,
            float(row.get("t_s", 0.0)),
        ),
    )
    known.start_s = min(known.start_s, float(row.get("t_s", 0.0)))
    if sends and row.get("congestion"):
        known.congestion = str(row["congestion"])


def take_probe(found: TrafficLogs, row: Row, probe: str) -> None:
    """One line of a probe."""
    if row.get("kind") == "probe":
        found.probes.append(
            {
                "probe": probe,
                "t_s": float(row["t_s"]),
                "rtt_ms": row.get("rtt_ms"),
                "owd_ms": row.get("owd_ms"),
                "lost": bool(row.get("lost")),
            }
        )
    elif row.get("kind") == "error":
        found.errors.append(f"{probe}: {row.get('text', 'an error without words')}")


def log_tables(found: TrafficLogs) -> dict[str, pa.Table]:
    """`probes` and `apps`, with the columns of a simulated run."""
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    probes = pa.schema(
        [
            ("probe", word),
            ("t_s", pa.float64()),
            ("rtt_ms", pa.float64()),
            ("owd_ms", pa.float64()),
            ("lost", pa.bool_()),
        ]
    )
    apps = pa.schema(
        [("transfer", word), ("t_s", pa.float64()), ("kind", word), ("value", pa.float64())]
    )
    return {
        "probes": pa.Table.from_pylist(found.probes, schema=probes),
        "apps": pa.Table.from_pylist(found.apps, schema=apps),
    }
