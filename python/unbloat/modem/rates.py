"""Throughput of an upload at each layer, and how far it is from what the modem sent (QCUT section 4.4).

Bins have 100 ms, QCUT's interval. A capture has no bytes that an application wrote: `application_bytes` are those that the
receiver acknowledged in order for the first time, `tcp_bytes` the payload of the segments captured, with retransmissions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from unbloat.run.tables import Row, RunTables

if TYPE_CHECKING:
    import pyarrow as pa

BIN_S = 0.1
# Of the largest bin: below it hardly anything was uploaded, and a relative error says nothing about the estimate.
UNDER_LOAD = 0.1
LAYERS = ("application", "tcp", "captured")


class Bins:
    """Bytes per bin between two times."""

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.bytes = [0.0] * count

    def add(self, t_s: float, size: float) -> None:
        """Bytes of a moment."""
        place = math.floor(t_s / BIN_S) - self.first
        if 0 <= place < len(self.bytes):
            self.bytes[place] += size

    def spread(self, from_s: float, span_s: float, size: float) -> None:
        """Bytes of a span, evenly."""
        if span_s <= 0 or size == 0:
            return
        to_s = from_s + span_s
        for place in range(math.floor(from_s / BIN_S), math.ceil(to_s / BIN_S)):
            part = min(to_s, (place + 1) * BIN_S) - max(from_s, place * BIN_S)
            self.add((place + 0.5) * BIN_S, size * max(part, 0.0) / span_s)


def rates_table(
    run: RunTables,
    hosts: Sequence[str],
    packets: Iterable[tuple[float, int]],
    buffer: pa.Table,
    grants: pa.Table,
    layer: str,
) -> pa.Table:
    """Table `modem_rates`: the whole bins that both the log and the capture cover."""
    import pyarrow as pa

    times = buffer["t_s"]
    first = math.ceil(max(times[0].as_py(), 0.0) / BIN_S)
    last = math.floor(min(times[-1].as_py(), run.info["duration_s"]) / BIN_S)
    names = ("application", "tcp", "captured", "modem", "padding", "phy")
    bins = {name: Bins(first, max(last - first, 0)) for name in names}
    uploads = upload_flows(run, hosts)
    columns = ("flow", "t_s", "span_s", "sent_bytes", "delivered_bytes")
    if uploads:
        samples = run.samples(flow=uploads)
        for _, t_s, span_s, sent, delivered in rows_of(samples, columns):
            bins["tcp"].spread(t_s, span_s, sent or 0)
            bins["application"].spread(t_s, span_s, delivered or 0)
    for t_s, size in packets:
        bins["captured"].add(t_s, size)
    columns = ("t_s", "layer", "granted_bytes", "padding_bytes", "retransmission")
    for t_s, of, granted, padding, retransmission in rows_of(grants, columns):
        if of == "phy":
            bins["phy"].add(t_s, granted)
        if of == layer and retransmission == 0:
            bins["modem"].add(t_s, granted - (padding or 0))
            bins["padding"].add(t_s, padding or 0)
    has_phy = "phy" in grants["layer"].to_pylist()
    known = [name for name in names if (name != "phy" or has_phy)]
    count = max(last - first, 0)
    table = {
        "t_s": pa.array([(first + place) * BIN_S for place in range(count)], pa.float64()),
        "span_s": pa.array([BIN_S] * count, pa.float64()),
    }
    for name in names:
        values = [round(size) for size in bins[name].bytes] if name in known else [None] * count
        table[f"{name}_bytes"] = pa.array(values, pa.uint64())
    return pa.table(table)


def rows_of(table: pa.Table, columns: Sequence[str]) -> Iterable[tuple]:  # type: ignore[type-arg]
    """Rows of some columns."""
    return zip(*(table[name].to_pylist() for name in columns), strict=True)


def upload_flows(run: RunTables, hosts: Sequence[str]) -> list[int]:
    """TCP flows whose data a host sends."""
    found = []
    for row in run.connections.to_pylist():
        if row["proto"] == "tcp":
            ends = ("a", "b")
            found += [
                2 * row["id"] + way for way, end in enumerate(ends) if row[f"{end}_addr"] in hosts
            ]
    return found


def error_shares(rates: pa.Table) -> Row:
    """Throughput and padding of the modem, and the root mean square of each layer's relative error in bins under load."""
    rows = rates.to_pylist()
    total = sum(row["modem_bytes"] for row in rows)
    padding = sum(row["padding_bytes"] for row in rows)
    largest = max((row["modem_bytes"] for row in rows), default=0)
    loaded = [row for row in rows if 0 < row["modem_bytes"] >= UNDER_LOAD * largest]
    found: Row = {
        "modem_throughput_bps": total * 8 / (len(rows) * BIN_S) if rows else None,
        "modem_padding_share": padding / (total + padding) if total else None,
    }
    for layer in LAYERS:
        errors = [row[f"{layer}_bytes"] / row["modem_bytes"] - 1 for row in loaded]
        found[f"modem_{layer}_error"] = (
            math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else None
        )
    return found
