"""The tables of a corpus: those of each capture with the unit, device, file and time in front, and four that are made of its samples.

`limits`, `bursts`, `slots` and `spans` come from the bins of 100 ms that the one pass over the capture gives. Everything
is computed by column and in one thread, so that the same capture always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from unbloat.corpus.sides import device_is_a, uploads

NAMES = (
    "captures",
    "connections",
    "flows",
    "findings",
    "limits",
    "slots",
    "bursts",
    "spans",
)
SLOT_S = 1.0
# A flow that is silent for so long begins another burst, as in the study of QCUT, section 3.
BURST_GAP_S = 1.0
# Silence of a device that ends a session, from the same section.
SESSION_GAP_S = 60.0
# Times are sums of bins; a gap of one second is not to depend on the last digit.
SLACK_S = 1e-6

CAPTURE_COUNTS = (
    "packets",
    "bytes",
    "tcp_packets",
    "udp_packets",
    "icmp_packets",
    "other_packets",
    "not_ip_packets",
    "broken_packets",
    "fragments",
    "duplicates",
    "reported_drops",
)


def corpus_tables(
    info: Mapping[str, Any], tables: Mapping[str, pa.Table], about: Mapping[str, Any]
) -> dict[str, pa.Table]:
    """Every table of one capture, `about` (unit, device, file, t0_s) in front."""
    is_a = device_is_a(tables["connections"])
    samples = with_direction(tables["samples"], is_a)
    bursts = burst_rows(samples)
    made = {
        "captures": capture_row(info, tables),
        "connections": tables["connections"].append_column("device_is_a", is_a),
        "flows": tables["flows"].append_column("upload", uploads(tables["flows"], is_a)),
        "findings": tables["findings"],
        "limits": limit_rows(samples),
        "slots": slot_rows(samples, tables["flows"]),
        "bursts": bursts,
        "spans": span_rows(bursts, tables, is_a),
    }
    return {name: prefixed(made[name], about) for name in NAMES}


def prefixed(table: pa.Table, about: Mapping[str, Any]) -> pa.Table:
    """The table with what it belongs to in front, as dictionaries of one word."""
    rows = table.num_rows
    columns: list[pa.Array] = [
        pa.DictionaryArray.from_arrays(
            pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([about[name]], pa.utf8())
        )
        for name in ("unit", "device", "file")
    ]
    columns.append(pa.repeat(pa.scalar(float(about["t0_s"]), pa.float64()), rows))
    return pa.Table.from_arrays(
        [*columns, *table.columns], names=["unit", "device", "file", "t0_s", *table.column_names]
    )


def capture_row(info: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> pa.Table:
    """One row: what docs/format.md lists under *run*."""
    row: dict[str, pa.Array] = {
        "duration_s": pa.array([float(info.get("duration_s") or 0.0)], pa.float64())
    }
    for name in CAPTURE_COUNTS:
        row[name] = pa.array([info.get(name)], pa.uint64())
    for name in ("connections", "flows", "findings"):
        row[name] = pa.array([tables[name].num_rows], pa.uint64())
    for name in ("linktypes", "interfaces", "warnings"):
        row[name] = pa.array([list(info.get(name) or [])], pa.list_(pa.utf8()))
    return pa.table(row)


def with_direction(samples: pa.Table, is_a: pa.Array) -> pa.Table:
    """Samples in the order of flow and time, with `connection`, `upload` and `end_s`."""
    samples = samples.sort_by([("flow", "ascending"), ("t_s", "ascending")]).combine_chunks()
    samples = samples.append_column("upload", uploads(samples, is_a))
    connection = pc.bit_wise_and(samples["flow"], pa.scalar(0xFFFFFFFE, pa.uint32()))
    samples = samples.append_column("connection", pc.divide(connection, pa.scalar(2, pa.uint32())))
    return samples.append_column(
        "end_s", pc.add(samples["t_s"], pc.cast(samples["span_s"], pa.float64()))
    )


def pieces(begins: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Numbers of runs of rows: a new one at every true."""
    return pc.cumulative_sum(pc.cast(begins, pa.int64()))


def changed(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Where a value differs from that of the row before; the first row does."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if len(values) == 0:
        return pa.array([], pa.bool_())
    return pa.concat_arrays(
        [pa.array([True]), pc.not_equal(values.slice(1), values.slice(0, len(values) - 1))]
    )


def grouped(
    table: pa.Table, keys: list[str], sums: list[tuple[str, str]], names: list[str]
) -> pa.Table:
    """Groups in the order of their first row, the columns named."""
    found = table.group_by(keys, use_threads=False).aggregate(sums)
    # Where the keys stand has changed between versions of Arrow.
    order = [*keys, *(f"{column}_{how}" for column, how in sums)]
    return found.select(order).rename_columns([*keys, *names])


def after_silence(begin: pa.Array, end: pa.Array, silence_s: float) -> pa.Array:
    """Where a row begins so long after the end of the row before; the first row does."""
    count = len(begin)
    silent_s = pc.subtract(begin.slice(1), end.slice(0, max(count - 1, 0)))
    return pa.concat_arrays(
        [pa.array([True][:count], pa.bool_()), pc.greater_equal(silent_s, silence_s - SLACK_S)]
    )


def whole(rows: pa.Table, name: str) -> pa.Array:
    """A column of times in one piece."""
    return rows[name].combine_chunks() if rows.num_rows else pa.array([], pa.float64())


def runs_of(samples: pa.Table, begins: pa.Array, what: pa.ChunkedArray) -> pa.Table:
    """Runs of samples of one flow as a row each, with their `what`: times and bytes."""
    table = pa.table(
        {
            "piece": pieces(begins),
            "flow": samples["flow"],
            "what": what,
            "t_s": samples["t_s"],
            "end_s": samples["end_s"],
            "bytes": samples["sent_bytes"],
        }
    )
    found = grouped(
        table,
        ["piece", "flow", "what"],
        [("t_s", "min"), ("end_s", "max"), ("bytes", "sum")],
        ["from_s", "to_s", "bytes"],
    )
    return found.drop_columns(["piece"])


def limit_rows(samples: pa.Table) -> pa.Table:
    """Spans of time in which one limit held a flow."""
    limit = pc.cast(samples["limit"], pa.utf8())
    found = runs_of(samples, pc.or_(changed(samples["flow"]), changed(limit)), limit)
    return found.rename_columns(["flow", "limit", *found.column_names[2:]])


def burst_rows(samples: pa.Table) -> pa.Table:
    """Data of a flow without a pause of a second."""
    busy = samples.filter(pc.greater(samples["sent_bytes"], 0)).combine_chunks()
    # The pause before a bin is from the end of the bin before it.
    paused = after_silence(whole(busy, "t_s"), whole(busy, "end_s"), BURST_GAP_S)
    found = runs_of(busy, pc.or_(changed(busy["flow"]), paused), busy["upload"])
    return found.rename_columns(["flow", "upload", *found.column_names[2:]])


def slot_rows(samples: pa.Table, flows: pa.Table) -> pa.Table:
    """Seconds in which the device sent or received TCP data: bytes, connections, the RTT above each flow's smallest, and from
    data that came down to its ACK."""
    known = pc.or_(pc.greater(samples["sent_bytes"], 0), pc.is_valid(samples["rtt_ms"]))
    busy = samples.filter(pc.or_(known, pc.is_valid(samples["ack_delay_ms"])))
    # A join of Arrow does not keep the order; looking the flow up does.
    place = pc.index_in(busy["flow"], value_set=flows["id"].combine_chunks())
    # Away from the device the time has a part of the path.
    beside = pc.equal(pc.cast(pc.take(flows["vantage"], place), pa.utf8()), "receiver")
    on_device = pc.and_(beside, pc.invert(busy["upload"]))
    rtt = pc.cast(busy["rtt_ms"], pa.float64())
    sent = pc.cast(busy["sent_bytes"], pa.uint64())
    nothing = pa.scalar(0, pa.uint64())
    table = pa.table(
        {
            "slot_s": pc.cast(pc.floor(pc.divide(busy["t_s"], SLOT_S)), pa.float64()),
            "bytes_up": pc.if_else(busy["upload"], sent, nothing),
            "bytes_down": pc.if_else(busy["upload"], nothing, sent),
            "connection": pc.if_else(
                pc.greater(sent, 0), busy["connection"], pa.scalar(None, pa.uint32())
            ),
            "rtt_ms": rtt,
            "rise_ms": pc.subtract(rtt, pc.take(flows["rtt_ms_min"], place)),
            "ack_delay_ms": pc.if_else(
                on_device,
                pc.cast(busy["ack_delay_ms"], pa.float64()),
                pa.scalar(None, pa.float64()),
            ),
        }
    )
    found = grouped(
        table,
        ["slot_s"],
        [
            ("bytes_up", "sum"),
            ("bytes_down", "sum"),
            ("connection", "count_distinct"),
            ("rtt_ms", "mean"),
            ("rise_ms", "mean"),
            ("ack_delay_ms", "mean"),
        ],
        ["bytes_up", "bytes_down", "connections", "rtt_ms", "rtt_rise_ms", "ack_delay_ms"],
    )
    return found.rename_columns(["from_s", *found.column_names[1:]]).sort_by("from_s")


def span_rows(bursts: pa.Table, tables: Mapping[str, pa.Table], is_a: pa.Array) -> pa.Table:
    """Activity of the device: packets of any connection without a minute of silence."""
    connections, flows = tables["connections"], tables["flows"]
    other = pc.not_equal(pc.cast(connections["proto"], pa.utf8()), "tcp")
    direction = uploads(flows, is_a)
    of_other = pc.take(other, pc.divide(flows["id"], pa.scalar(2, pa.uint32())))
    counted = flows.filter(of_other)
    begin = pc.take(connections["start_s"], counted["connection"])
    length = pc.take(connections["duration_s"], counted["connection"])
    rows = pa.table(
        {
            "from_s": pa.chunked_array([*begin.chunks, *bursts["from_s"].chunks], pa.float64()),
            "to_s": pa.chunked_array(
                [*pc.add(begin, length).chunks, *bursts["to_s"].chunks], pa.float64()
            ),
            "upload": pa.chunked_array(
                [*direction.filter(of_other).chunks, *bursts["upload"].chunks], pa.bool_()
            ),
            "bytes": pa.chunked_array(
                [*counted["payload_bytes"].chunks, *pc.cast(bursts["bytes"], pa.uint64()).chunks],
                pa.uint64(),
            ),
        }
    )
    rows = rows.sort_by([("from_s", "ascending"), ("to_s", "ascending")]).combine_chunks()
    latest = pc.cumulative_max(whole(rows, "to_s"))
    new = after_silence(whole(rows, "from_s"), latest, SESSION_GAP_S)
    nothing = pa.scalar(0, pa.uint64())
    table = pa.table(
        {
            "piece": pieces(new),
            "from_s": rows["from_s"],
            "to_s": rows["to_s"],
            "up": pc.if_else(rows["upload"], rows["bytes"], nothing),
            "down": pc.if_else(rows["upload"], nothing, rows["bytes"]),
        }
    )
    found = grouped(
        table,
        ["piece"],
        [("from_s", "min"), ("to_s", "max"), ("up", "sum"), ("down", "sum")],
        ["from_s", "to_s", "bytes_up", "bytes_down"],
    )
    return found.drop_columns(["piece"])
