"""Connections, flows and their series, from the captures at the nodes that send the data.

signal: one capture per sending node, the connections that the programs reported, socket samples,
losses · model: the analysis of captures, with the warm-up left out of statistics; each transfer is
measured where its data is sent, so that round trips, bytes in flight and limits are the sender's;
everything else in a capture (control connections, other nodes' transfers) is left out · action: the
tables of docs/format.md, numbered as one run, times on the run's clock
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.errors import CaptureError
from unbloat.lab.result.annotate import (
    Pick,
    in_flight_by_bin,
    with_facts,
    with_losses,
    with_sockets,
    with_transfers,
)
from unbloat.lab.result.links import Loss
from unbloat.lab.result.raw_files import FLOW_PORT, Raw
from unbloat.lab.result.traffic_logs import Known, TrafficLogs
from unbloat.run.arrow import arrow_table
from unbloat.run.tables import Row

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("connections", "flows", "findings", "samples", "events")


@dataclass
class Seen:
    """A capture and its analysis."""

    node: int
    paths: list[Path]
    shift_s: float
    """From the capture's clock to the run's."""
    tables: dict[str, pa.Table]
    first_seqs: list[int | None]
    info: Row
    picks: list[Pick]


def analysed(
    raw: Raw, node: int, series: dict[str, str]
) -> tuple[Row, dict[str, Any], list[int | None]]:
    """One pass over a node's captures."""
    import unbloat._native as _native

    try:
        result: dict[str, Any] = _native.analyze(
            [str(path) for path in raw.captures(node)],
            bin_ms=max(raw.bin_ms, 1.0),
            span=raw.span_ns,
            progress=lambda _done, _total: None,
            **series,  # type: ignore[arg-type]
        )
    except _native.CaptureError as error:
        raise CaptureError(str(error)) from None
    return (
        result["run"],
        {name: arrow_table(table) for name, table in result["tables"].items()},
        result["first_seqs"],
    )


def seen_at(raw: Raw, node: int, logs: TrafficLogs) -> Seen:
    """A node's captures, and which of their connections are transfers whose data it sends."""
    info, tables, first_seqs = analysed(raw, node, {"samples": "all", "events": "all"})
    shift = float(info["start_s"]) - raw.t0_ns / 1e9 if info["packets"] else 0.0
    sent = {flow["name"] for flow in raw.plan["flows"] if flow["from"] == node}
    picks = []
    names = ["id", "proto", "a_addr", "a_port", "b_addr", "b_port"]
    for row in tables["connections"].select(names).to_pylist():
        known = carried(raw, row, logs) if row["proto"] == "tcp" else None
        if known is not None and known.transfer in sent:
            way = 0 if known.sender == f"{row['a_addr']}:{row['a_port']}" else 1
            picks.append(Pick(row["id"], -1, way, known))
    return Seen(node, raw.captures(node), shift, tables, first_seqs, info, picks)


def carried(raw: Raw, row: Row, logs: TrafficLogs) -> Known | None:
    """The transfer of a connection: as the programs reported, or by its port where none reported
    that transfer."""
    a, b = f"{row['a_addr']}:{row['a_port']}", f"{row['b_addr']}:{row['b_port']}"
    known = logs.connections.get(frozenset((a, b)))
    if known is not None:
        return known
    place = row["b_port"] - FLOW_PORT
    if not 0 <= place < len(raw.transfers):
        return None
    flow = raw.plan["flows"][place]
    if any(one.transfer == flow["name"] for one in logs.connections.values()):
        return None
    opener, server = (
        (flow["from"], flow["to"]) if flow["sender_opens"] else (flow["to"], flow["from"])
    )
    addresses = [raw.plan["nodes"][node]["address"] for node in (opener, server)]
    if addresses != [row["a_addr"], row["b_addr"]]:
        return None
    ends = (a, b) if flow["sender_opens"] else (b, a)
    return Known(flow["name"], *ends, 0.0)


def numbered(seen: Sequence[Seen]) -> None:
    """Gives the picked connections of all captures the ids of one run, in order of their first packets."""
    order = []
    for place, one in enumerate(seen):
        columns = (one.tables["connections"].column(name).to_pylist() for name in ("id", "start_s"))
        starts = dict(zip(*columns, strict=True))
        order += [(starts[pick.old] + one.shift_s, place, pick.old) for pick in one.picks]
    ids = {(place, old): new for new, (_, place, old) in enumerate(sorted(order))}
    for place, one in enumerate(seen):
        one.picks = [
            Pick(pick.old, ids[place, pick.old], pick.way, pick.known) for pick in one.picks
        ]


def merged(
    raw: Raw,
    seen: Sequence[Seen],
    logs: TrafficLogs,
    losses: dict[tuple[str, str], list[Loss]],
    empty: dict[str, pa.Table],
) -> dict[str, pa.Table]:
    """The tables of all captures as those of one run; `empty` are those of a capture without packets."""
    import pyarrow as pa

    parts: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for one in [Seen(-1, [], 0.0, empty, [], {}, []), *seen]:
        for name, table in own_tables(raw, one, logs, losses).items():
            parts[name].append(table)
    whole: dict[str, pa.Table] = {}
    for name, tables in parts.items():
        keys = {"samples": ["flow", "t_s"], "events": ["flow", "t_s"], "findings": ["flow"]}.get(
            name, ["id"]
        )
        table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        whole[name] = table.sort_by([(key, "ascending") for key in keys]).combine_chunks()
    return whole


def own_tables(
    raw: Raw, seen: Seen, logs: TrafficLogs, losses: dict[tuple[str, str], list[Loss]]
) -> dict[str, pa.Table]:
    """The picked connections of one capture, with what the lab knows besides."""
    new = {pick.old: pick.new for pick in seen.picks}
    of_flow = {2 * old + way: 2 * number + way for old, number in new.items() for way in (0, 1)}
    tables = {
        "connections": shifted(
            renamed(seen.tables["connections"], {"id": new}), ("start_s",), seen.shift_s
        ),
        "flows": shifted(
            renamed(seen.tables["flows"], {"id": of_flow, "connection": new}),
            ("window_full_first_s", "zero_window_first_s"),
            seen.shift_s,
        ),
        "findings": shifted(
            renamed(seen.tables["findings"], {"flow": of_flow}), ("from_s", "to_s"), seen.shift_s
        ),
        "samples": shifted(
            renamed(seen.tables["samples"], {"flow": of_flow}), ("t_s",), seen.shift_s
        ),
        "events": shifted(
            renamed(seen.tables["events"], {"flow": of_flow}), ("t_s",), seen.shift_s
        ),
    }
    picks = {pick.new: pick for pick in seen.picks}
    lost = {
        2 * pick.new + way: losses.get(ends if way == pick.way else ends[::-1], [])
        for pick in seen.picks
        for ends in [(pick.known.sender, pick.known.receiver)]
        for way in (0, 1)
    }
    first = {of_flow[old]: seq for old, seq in enumerate(seen.first_seqs) if old in of_flow}
    tables["connections"] = with_transfers(tables["connections"], picks)
    tables["flows"] = with_facts(raw, tables["flows"], picks, lost)
    tables["samples"] = with_sockets(raw, tables["samples"], tables["flows"], picks, logs)
    tables["flows"] = in_flight_by_bin(raw, tables["flows"], tables["samples"])
    tables["events"] = with_losses(tables["events"], lost, first)
    return tables


def renamed(table: pa.Table, columns: dict[str, dict[int, int]]) -> pa.Table:
    """The rows whose ids are known, with their new ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first = next(iter(columns))
    table = table.filter(
        pc.is_in(table.column(first), value_set=pa.array(sorted(columns[first]), pa.uint32()))
    )
    for name, ids in columns.items():
        place = table.column_names.index(name)
        values = [ids[old] for old in table.column(name).to_pylist()]
        table = table.set_column(place, table.schema.field(name), pa.array(values, pa.uint32()))
    return table


def shifted(table: pa.Table, columns: Sequence[str], by_s: float) -> pa.Table:
    """Times on the run's clock."""
    import pyarrow.compute as pc

    for name in columns:
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(name), pc.add(table.column(name), by_s))
    return table
