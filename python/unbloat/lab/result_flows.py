"""Connections, flows and their series, from the captures at the nodes that send the data.

signal: one capture per sending node, the connections that the programs told, socket samples, losses · model: the analysis of
captures, with the warm-up left out of statistics; each transfer is measured where its data is sent, so that round trips,
bytes in flight and limits are the sender's; everything else in a capture (control connections, other nodes' transfers) is
left out · action: the tables of docs/format.md, numbered as one run, times on the run's clock
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.columns import arrow_table
from unbloat.dataset import Row
from unbloat.errors import CaptureError
from unbloat.figures import statistics
from unbloat.lab.result_links import Loss
from unbloat.lab.result_raw import FLOW_PORT, Raw
from unbloat.lab.result_told import Known, Told

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("connections", "flows", "findings", "samples", "events")
# A sequence number begins again after so many bytes.
SEQUENCES = 1 << 32
# A socket is asked once per bin, give or take what a busy machine is late.
LATE_BINS = 1.5


@dataclass(frozen=True)
class Pick:
    """A connection of a capture that carries a transfer."""

    old: int
    new: int
    way: int
    """Direction of the transfer's data: 0 is a → b."""
    known: Known


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


def analysed(raw: Raw, node: int, series: dict[str, str]) -> tuple[Row, dict[str, Any], list[int | None]]:
    """One pass over a node's captures."""
    from unbloat import _native

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


def seen_at(raw: Raw, node: int, told: Told) -> Seen:
    """A node's captures, and which of their connections are transfers whose data it sends."""
    info, tables, first_seqs = analysed(raw, node, {"samples": "all", "events": "all"})
    shift = float(info["start_s"]) - raw.t0_ns / 1e9 if info["packets"] else 0.0
    sent = {flow["name"] for flow in raw.plan["flows"] if flow["from"] == node}
    picks = []
    names = ["id", "proto", "a_addr", "a_port", "b_addr", "b_port"]
    for row in tables["connections"].select(names).to_pylist():
        known = carried(raw, row, told) if row["proto"] == "tcp" else None
        if known is not None and known.transfer in sent:
            way = 0 if known.sender == f"{row['a_addr']}:{row['a_port']}" else 1
            picks.append(Pick(row["id"], -1, way, known))
    return Seen(node, raw.captures(node), shift, tables, first_seqs, info, picks)


def carried(raw: Raw, row: Row, told: Told) -> Known | None:
    """Whose a connection is: as the programs told, or by its port where none told of that transfer."""
    a, b = f"{row['a_addr']}:{row['a_port']}", f"{row['b_addr']}:{row['b_port']}"
    known = told.connections.get(frozenset((a, b)))
    if known is not None:
        return known
    place = row["b_port"] - FLOW_PORT
    if not 0 <= place < len(raw.transfers):
        return None
    flow = raw.plan["flows"][place]
    if any(one.transfer == flow["name"] for one in told.connections.values()):
        return None
    opener, server = (flow["from"], flow["to"]) if flow["sender_opens"] else (flow["to"], flow["from"])
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
        one.picks = [Pick(pick.old, ids[place, pick.old], pick.way, pick.known) for pick in one.picks]


def merged(
    raw: Raw,
    seen: Sequence[Seen],
    told: Told,
    losses: dict[tuple[str, str], list[Loss]],
    empty: dict[str, pa.Table],
) -> dict[str, pa.Table]:
    """The tables of all captures as those of one run; `empty` are those of a capture without packets."""
    import pyarrow as pa

    parts: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for one in [Seen(-1, [], 0.0, empty, [], {}, []), *seen]:
        for name, table in own_tables(raw, one, told, losses).items():
            parts[name].append(table)
    whole: dict[str, pa.Table] = {}
    for name, tables in parts.items():
        keys = {"samples": ["flow", "t_s"], "events": ["flow", "t_s"], "findings": ["flow"]}.get(name, ["id"])
        table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        whole[name] = table.sort_by([(key, "ascending") for key in keys]).combine_chunks()
    return whole


def own_tables(
    raw: Raw, seen: Seen, told: Told, losses: dict[tuple[str, str], list[Loss]]
) -> dict[str, pa.Table]:
    """The picked connections of one capture, with what the lab knows besides."""
    new = {pick.old: pick.new for pick in seen.picks}
    of_flow = {2 * old + way: 2 * number + way for old, number in new.items() for way in (0, 1)}
    tables = {
        "connections": shifted(renamed(seen.tables["connections"], {"id": new}), ("start_s",), seen.shift_s),
        "flows": shifted(
            renamed(seen.tables["flows"], {"id": of_flow, "connection": new}),
            ("window_full_first_s", "zero_window_first_s"),
            seen.shift_s,
        ),
        "findings": shifted(
            renamed(seen.tables["findings"], {"flow": of_flow}), ("from_s", "to_s"), seen.shift_s
        ),
        "samples": shifted(renamed(seen.tables["samples"], {"flow": of_flow}), ("t_s",), seen.shift_s),
        "events": shifted(renamed(seen.tables["events"], {"flow": of_flow}), ("t_s",), seen.shift_s),
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
    tables["samples"] = with_sockets(raw, tables["samples"], tables["flows"], picks, told)
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


def with_transfers(table: pa.Table, picks: dict[int, Pick]) -> pa.Table:
    """The transfer of each connection; interfaces of several captures have no common numbers."""
    import pyarrow as pa

    ids = table.column("id").to_pylist()
    place = table.column_names.index("interface")
    table = table.set_column(place, table.schema.field("interface"), pa.array([0] * len(ids), pa.uint32()))
    return table.append_column("transfer", words(picks[id_].known.transfer for id_ in ids))


def words(values: Any) -> pa.Array:
    """A column of words from a short list."""
    import pyarrow as pa

    return pa.array(list(values), pa.dictionary(pa.int32(), pa.string()))


def with_facts(raw: Raw, table: pa.Table, picks: dict[int, Pick], lost: dict[int, list[Loss]]) -> pa.Table:
    """Transfer, congestion control, window law and losses of each direction."""
    import pyarrow as pa

    ids = table.column("id").to_pylist()
    ours = [picks[id_ // 2] for id_ in ids]
    carries = [id_ % 2 == pick.way for id_, pick in zip(ids, ours, strict=True)]
    plan = {flow["name"]: flow for flow in raw.plan["flows"]}
    laws = [
        plan[pick.known.transfer]["receiver"]["window"]["kind"] if data else None
        for pick, data in zip(ours, carries, strict=True)
    ]
    # With segmentation offload a captured packet is many on the wire.
    counted = zip(
        *(table.column(name).to_pylist() for name in ("data_packets", "payload_bytes", "mss_bytes")),
        strict=True,
    )
    packets = [max(packets, -(-payload // mss) if mss else 0) for packets, payload, mss in counted]
    gone = [len(lost[id_]) for id_ in ids]
    rates = [min(count / sent, 1.0) if sent else None for count, sent in zip(gone, packets, strict=True)]
    for name, values in (
        ("data_packets", pa.array(packets, pa.uint64())),
        ("loss_rate", pa.array(rates, pa.float64())),
    ):
        table = table.set_column(table.column_names.index(name), table.schema.field(name), values)
    transfers = [pick.known.transfer if data else None for pick, data in zip(ours, carries, strict=True)]
    table = table.append_column("transfer", words(transfers))
    table = table.append_column("congestion", words(pick.known.congestion for pick in ours))
    table = table.append_column("window_law", words(laws))
    table = table.append_column("lost_packets", pa.array(gone, pa.uint64()))
    # What only the sender's own bookkeeping knows.
    for name in ("recoveries", "undone"):
        table = table.append_column(name, pa.array([None] * len(ids), pa.uint64()))
    return table


def with_sockets(raw: Raw, table: pa.Table, flows: pa.Table, picks: dict[int, Pick], told: Told) -> pa.Table:
    """What the sender's socket told at the end of each bin, and the queueing delay that its round trips show."""
    import pyarrow as pa

    bases = dict(zip(flows.column("id").to_pylist(), map(path_ms, flows.to_pylist()), strict=True))
    late_s = LATE_BINS * raw.bin_ms / 1000
    found: dict[int, Callable[[float], Row | None]] = {}
    columns: dict[str, list[float | int | None]] = {
        "cwnd_bytes": [],
        "ssthresh_bytes": [],
        "pacing_bps": [],
        "queue_ms": [],
    }
    rows = zip(*(table.column(name).to_pylist() for name in ("flow", "t_s", "span_s", "rtt_ms")), strict=True)
    for flow, t_s, span_s, rtt in rows:
        if flow not in found:
            known = picks[flow // 2].known
            ends = (known.sender, known.receiver)
            found[flow] = at(
                told.sockets.get(ends if flow % 2 == picks[flow // 2].way else ends[::-1], []), late_s
            )
        row = found[flow](t_s + span_s)
        columns["cwnd_bytes"].append(segments(row, "cwnd_segments"))
        columns["ssthresh_bytes"].append(segments(row, "ssthresh_segments"))
        columns["pacing_bps"].append(
            None if row is None or row.get("pacing_bps") is None else round(row["pacing_bps"])
        )
        base = bases[flow]
        columns["queue_ms"].append(None if rtt is None or base is None else max(rtt - base, 0.0))
    for name, values in columns.items():
        table = table.append_column(
            name, pa.array(values, pa.float32() if name == "queue_ms" else pa.uint64())
        )
    return table


def in_flight_by_bin(raw: Raw, table: pa.Table, samples: pa.Table) -> pa.Table:
    """Bytes in flight as the simulator gives them: the most of each bin. The analysis of a capture takes them at each packet,
    where the two differ as soon as data comes in bursts."""
    import pyarrow as pa

    rows = zip(
        *(samples.column(name).to_pylist() for name in ("flow", "t_s", "span_s", "in_flight_bytes")),
        strict=True,
    )
    found: dict[int, list[float | None]] = {}
    for flow, t_s, span_s, most in rows:
        if t_s + span_s > raw.warmup_s:
            found.setdefault(flow, []).append(most)
    of = [statistics(found.get(id_, [])) for id_ in table.column("id").to_pylist()]
    for part in ("count", "min", "p50", "p95", "p99", "max"):
        name = f"in_flight_bytes_{part}"
        field = table.schema.field(name)
        values = [None if one is None else getattr(one, part) for one in of]
        table = table.set_column(table.column_names.index(name), field, pa.array(values, field.type))
    return table


def path_ms(flow: Row) -> float | None:
    """The smallest round trip that the path is known to have: what added delay is measured against."""
    if flow["queue_ms_max"] is not None:
        return float(flow["loaded_rtt_ms_max"] - flow["queue_ms_max"])
    known = [flow[name] for name in ("rtt_ms_min", "initial_rtt_ms") if flow[name] is not None]
    return min(known, default=None)


def at(rows: Sequence[Row], late_s: float) -> Callable[[float], Row | None]:
    """The sample nearest to a time, if one was taken about then."""
    times = [float(row["t_s"]) for row in rows]

    def nearest(t_s: float) -> Row | None:
        place = bisect_left(times, t_s)
        near = [i for i in (place - 1, place) if 0 <= i < len(times)]
        best = min(near, key=lambda i: abs(times[i] - t_s), default=None)
        return None if best is None or abs(times[best] - t_s) > late_s else rows[best]

    return nearest


def segments(row: Row | None, name: str) -> int | None:
    """A figure that the kernel keeps in segments, in bytes."""
    if row is None or row.get(name) is None:
        return None
    return round(float(row[name]) * float(row["mss_bytes"]))


def with_losses(table: pa.Table, lost: dict[int, list[Loss]], first: dict[int, int | None]) -> pa.Table:
    """What the network lost, among the events."""
    import pyarrow as pa

    rows: list[Row] = []
    for flow, losses in lost.items():
        place = 0
        for loss in losses:
            begin = first.get(flow)
            if loss.seq is not None and begin is not None:
                # The position nearest to the last one: sequence numbers begin again after 4 GB.
                step = (loss.seq - begin - place) % SEQUENCES
                place = max(place + (step - SEQUENCES if step > SEQUENCES // 2 else step), 0)
            rows.append(
                {
                    "flow": flow,
                    "t_s": loss.t_s,
                    "kind": loss.event,
                    "value": float(loss.payload),
                    "seq": place,
                }
            )
    return pa.concat_tables([table, pa.Table.from_pylist(rows, schema=table.schema)]) if rows else table
