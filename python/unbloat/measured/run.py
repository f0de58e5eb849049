"""`run_of`: a measurement as a `Run`, with the tables of a run of the lab without captures.

signal: the result of `unbloat-measure` with its samples · model: a stream is a connection whose figures its sender's kernel
reports; probes and counted bytes are as the program saw them; the delay of a transfer is the one that its phase is graded by ·
action: the tables of docs/format.md
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.errors import UnbloatError
from unbloat.lab.result.from_captures import merged
from unbloat.lab.result.from_tcp_info import from_sockets, quantiles
from unbloat.lab.result.raw_files import Raw
from unbloat.lab.result.run import empty_tables
from unbloat.lab.result.traffic_logs import Known, TrafficLogs, log_tables
from unbloat.run.arrow import SERIES
from unbloat.run.figures import statistics
from unbloat.run.run import Run
from unbloat.run.tables import BIN_MS, Row, only_flows, pair
from unbloat.run.write import FORMAT
from unbloat.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

# Probes that were sent while a load grew, or a queue drained: no figure is made of them.
SETTLING = "settling"
# Of a measured phase by what it is graded by: the column of `probes`.
ADDED = {"down": "added_down_ms", "up": "added_up_ms", "rtt": "added_ms"}


def with_kind(name: str, kind: str | None) -> str:
    """A phase, or a load of one, with what its streams were."""
    return name if kind is None else f"{name}, {kind}"


def kind_of(row: Row, key: str = "congestion_control") -> str | None:
    """What the streams of a load were, where it is not the usual: QUIC, and the congestion control that was asked for. `None`
    is TCP with the system's own, or idle."""
    # A result of before QUIC says nothing of it.
    quic = "quic" if row.get("transport") == "quic" else None
    return ", ".join(word for word in (quic, row.get(key)) if word is not None) or None


def load_name(phase: str, direction: str, kind: str | None) -> str:
    """What the streams of one direction and phase are called together."""
    return with_kind(f"both, {direction}" if phase == "both" else phase, kind)


def run_of(result: Row) -> Run:
    """The run of a result with samples. Raises `UnbloatError` where there are none."""
    samples = result.get("samples")
    if not samples:
        raise UnbloatError("no probe was answered while the path was idle: nothing to store")
    streams = [stream for stream in samples["streams"] if own_end(stream)]
    logs = TrafficLogs()
    for stream in streams:
        take_stream(logs, stream)
    logs.apps = list(received(samples))
    probes = probe_rows(samples, result["rtt_min_ms"])
    transfers = list(dict.fromkeys(known.transfer for known in logs.connections.values()))
    raw = as_lab(samples, transfers)
    tables = merged(raw, [], logs, {}, empty_tables(raw))
    schemas = {name: table.schema for name, table in tables.items()}
    tables |= from_sockets(raw, list(logs.connections.values()), logs, {}, 0, schemas)
    tables["flows"] = graded(tables["flows"], result, probes)
    tables |= log_tables(logs) | {"probes": probe_table(probes)}
    info = info_of(result, samples, tables) | {"transfers": transfers}
    info["probed"] = list(dict.fromkeys(str(row["probe"]) for row in probes))
    kept = {name: table for name, table in tables.items() if name not in SERIES}
    return Run(info, kept, Series({name: tables[name] for name in ("samples", "events")}))


class Series:
    """The series of a measurement."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        self.tables = tables

    def fetch(
        self, kinds: Sequence[str], connections: list[int] | None, bin_ms: float, max_segments: int
    ) -> dict[str, pa.Table]:
        """The rows of some connections."""
        if "segments" in kinds:
            raise UnbloatError("a measurement has no segments; with --capture, its capture has")
        if "samples" in kinds and bin_ms != BIN_MS:
            raise UnbloatError(f"a measurement has bins of {BIN_MS:g} ms, not {bin_ms:g}")
        found = {kind: self.tables[kind] for kind in kinds}
        if connections is None:
            return found
        flows: set[int] = set().union(*map(pair, connections))
        return {kind: only_flows(table, flows) for kind, table in found.items()}


def own_end(stream: Row) -> list[Row]:
    """What the sender's kernel said of a stream, or its QUIC."""
    rows: list[Row] = stream["at_client" if stream["direction"] == "up" else "at_server"]
    return rows


def take_stream(logs: TrafficLogs, stream: Row) -> None:
    """A stream as a connection that a traffic program of the lab reported."""
    rows, up = own_end(stream), stream["direction"] == "up"
    sender, receiver = (
        stream[end] for end in (("client", "server") if up else ("server", "client"))
    )
    kind = kind_of(stream, "congestion_control_asked")
    acked = acknowledged(stream)
    logs.connections[frozenset((sender, receiver))] = Known(
        load_name(stream["phase"], stream["direction"], kind),
        sender,
        receiver,
        rows[0]["t_s"],
        rows[0]["congestion_control"],
        "udp" if stream.get("transport") == "quic" else "tcp",
    )
    logs.sockets[sender, receiver] = [
        {
            "t_s": row["t_s"],
            "bytes_acked": acked(row),
            "retransmits": row["retransmissions"],
            "srtt_ms": row["rtt_ms"],
            "rtt_min_ms": row["rtt_min_ms"],
            "mss_bytes": row["mss_bytes"],
            # Without the length of a segment their number says nothing.
            "cwnd_segments": row["mss_bytes"] and row["cwnd_segments"],
            "in_flight_segments": row["mss_bytes"] and row["in_flight_segments"],
            "busy_s": row["busy_s"],
            "rwnd_limited_s": row["rwnd_limited_s"],
        }
        for row in rows
    ]


def acknowledged(stream: Row) -> Callable[[Row], int | None]:
    """Of a row of the sender: bytes that the receiver has. The sender's QUIC does not say it; there it is what the receiver had
    counted at its latest look before."""
    if stream.get("transport") != "quic":
        return lambda row: row["acked_bytes"]
    other: list[Row] = stream["at_server" if stream["direction"] == "up" else "at_client"]
    times = [row["t_s"] for row in other]

    def counted(row: Row) -> int | None:
        before = bisect.bisect_right(times, row["t_s"])
        return int(other[before - 1]["received_bytes"]) if before else None

    return counted


def received(samples: Row) -> Iterable[Row]:
    """Goodput at the receiving program, between two of its counts, of each load while it lasted."""
    for direction, key in (("down", "received_by_client"), ("up", "received_by_server")):
        counts = samples[key]
        loads = [step for step in samples["steps"] if step["name"] in (direction, "both")]
        for then, now in pairwise(counts):
            step = next(
                (one for one in loads if one["from_s"] <= then["t_s"] < one["until_s"]), None
            )
            span_s = now["t_s"] - then["t_s"]
            if step is not None and span_s > 0:
                yield {
                    "transfer": load_name(step["name"], direction, kind_of(step)),
                    "t_s": then["t_s"],
                    "kind": "goodput_bps",
                    "value": (now["bytes"] - then["bytes"]) * 8 / span_s,
                }


def probe_rows(samples: Row, rtt_min_ms: float) -> list[Row]:
    """Every probe by the phase that was measured when it was sent."""
    spans = [
        (
            one["from_s"] if one["name"] == "idle" else one["measured_s"],
            one["until_s"],
            with_kind(one["name"], kind_of(one)),
        )
        for one in samples["steps"]
    ]
    # The first probes leave before the first step is noted.
    spans[0] = (0.0, *spans[0][1:])
    rows = []
    for probe in samples["probes"]:
        t_s, rtt = probe["t_s"], probe["rtt_ms"]
        name = next(
            (name for begin, end, name in spans if begin is not None and begin <= t_s < end),
            SETTLING,
        )
        rows.append(
            {
                "probe": name,
                "t_s": t_s,
                "rtt_ms": rtt,
                "owd_ms": None,
                "lost": probe["lost"] is not None,
                "added_down_ms": probe["added_down_ms"],
                "added_up_ms": probe["added_up_ms"],
                "added_ms": None if rtt is None else rtt - rtt_min_ms,
                "lost_on": probe["lost"],
            }
        )
    return rows


def probe_table(rows: list[Row]) -> pa.Table:
    """`probes`, with the added delay of both directions."""
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    numbers = ("rtt_ms", "owd_ms")
    added = ("added_down_ms", "added_up_ms", "added_ms")
    schema = pa.schema(
        [("probe", word), ("t_s", pa.float64())]
        + [(name, pa.float64()) for name in numbers]
        + [("lost", pa.bool_())]
        + [(name, pa.float64()) for name in added]
        + [("lost_on", word)]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def graded(flows: pa.Table, result: Row, probes: list[Row]) -> pa.Table:
    """The flows with the delay that their phase is graded by, and the grade. A quantile is of answered probes."""
    import pyarrow as pa

    phases = {(phase["phase"], kind_of(phase)): phase["grade"] for phase in result["phases"]}
    found: dict[str, Row] = {}
    for (name, kind), grade in phases.items():
        column, probe = ADDED[grade["of"]], with_kind(name, kind)
        of = statistics(row[column] for row in probes if row["probe"] == probe)
        one = grade["grades"][0] if len(grade["grades"]) == 1 else None
        ways = ("down", "up") if name == "both" else (name,)
        for way in ways:
            found[load_name(name, way, kind)] = quantiles("queue_ms", of) | {"grade": one}
    nothing = quantiles("queue_ms", None) | {"grade": None}
    # Who lost a packet of a stream is not known.
    rows = [
        row | found.get(row["transfer"] or "", nothing) | {"lost_packets": None}
        for row in flows.to_pylist()
    ]
    return pa.Table.from_pylist(rows, schema=flows.schema)


def as_lab(samples: Row, transfers: Sequence[str]) -> Raw:
    """The measurement as a run of the lab that left no files; no transfer has a window law."""
    last = max(one["until_s"] for one in samples["steps"])
    plan = {
        "bin_ms": BIN_MS,
        "warmup_s": 0.0,
        "duration_s": last,
        "flows": [{"name": name, "receiver": {"window": {"kind": None}}} for name in transfers],
    }
    return Raw(Path(), plan, {"t0_unix_ns": round(samples["start_unix_s"] * 1e9)}, {})


def info_of(result: Row, samples: Row, tables: dict[str, pa.Table]) -> Row:
    """What docs/format.md lists under *run*."""
    import pyarrow.compute as pc

    kept: dict[str, Any] = {name: value for name, value in result.items() if name != "samples"}
    around = result.get("surroundings") or {}
    warnings = [f"the measurement ended early: {result['ended']}"] if result.get("ended") else []
    if result.get("path_changed"):
        warnings.append("the path changed during the test: no delay of one direction is certain")
    return {
        "format": FORMAT,
        "tool": f"unbloat {__version__}",
        "origin": "measured",
        "name": f"measure {result['host']}",
        "start_s": samples["start_unix_s"],
        "duration_s": max(one["until_s"] for one in samples["steps"]),
        "warmup_s": 0.0,
        "bin_ms": BIN_MS,
        "bytes": pc.sum(tables["connections"].column("bytes")).as_py() or 0,
        "nodes": ["client", "server"],
        "links": [],
        "kernel": around.get("kernel"),
        "warnings": warnings,
        "result": json.dumps(kept, ensure_ascii=False),
    }
