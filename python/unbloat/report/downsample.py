"""Downsampling: how a flow of any length fits in a page.

Segments and ACKs beyond the cap are merged with their neighbours (first time, lowest and highest byte), so that the
drawing keeps its outline; retransmitted and SACKed segments are merged last. Bins beyond their cap are merged into
wider bins. The page says so wherever it happened.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from unbloat.report.encode import flat

# Twice the pixels of a wide screen, ten times over: zooming in tenfold still shows every bin that was measured.
MAX_BINS = 40_000
MAX_EVENTS = 50_000


@dataclass(frozen=True)
class Downsampled:
    """A table and by how much it was merged (1: not at all)."""

    table: pa.Table
    factor: int


def groups(rows: int, size: int) -> pa.Array:
    """0, 0, 0, 1, 1, 1, 2 …: the number of the group of `size` neighbours, per row."""
    places = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows))
    return pc.divide(pc.subtract(places, 1), size)


def _merge(table: pa.Table, cap: int, how: dict[str, str]) -> Downsampled:
    rows = table.num_rows
    if rows <= cap:
        return Downsampled(table, 1)
    size = -(-rows // max(cap, 1))
    keyed = table.select(list(how)).append_column("_group", groups(rows, size))
    merged = keyed.group_by("_group", use_threads=False).aggregate(list(how.items()))
    return Downsampled(
        pa.table({name: merged[f"{name}_{verb}"] for name, verb in how.items()}), size
    )


def segments(table: pa.Table, cap: int) -> dict[str, Downsampled]:
    """The segments of one flow by kind, together at most about `cap`."""
    kinds = {"data": 0, "again": 1, "ack": 2, "sack": 3}
    parts = {name: table.filter(pc.equal(table["kind"], code)) for name, code in kinds.items()}
    left = cap
    downsampled: dict[str, Downsampled] = {}
    # Rare and informative kinds choose first; each later kind shares what is left in proportion to its rows.
    order = sorted(parts, key=lambda name: (name not in ("again", "sack"), parts[name].num_rows))
    for place, name in enumerate(order):
        waiting = sum(parts[later].num_rows for later in order[place:])
        rows = parts[name].num_rows
        share = left * rows // waiting if waiting else 0
        allowed = max(share, left // 4) if name in ("again", "sack") else share
        allowed = max(1, min(allowed, left))
        # A merged ACK stands for the last of its group, so that a window that shrank to zero still shows as such.
        how = (
            {"t_s": "last", "from_seq": "last", "to_seq": "last"}
            if name == "ack"
            else {"t_s": "first", "from_seq": "min", "to_seq": "max"}
        )
        downsampled[name] = _merge(parts[name], allowed, how)
        left -= downsampled[name].table.num_rows
    return downsampled


def samples(table: pa.Table, cap: int = MAX_BINS) -> Downsampled:
    """The bins of one flow, at most `cap`."""
    how = {
        "t_s": "first",
        "span_s": "sum",
        "sent_bytes": "sum",
        "delivered_bytes": "sum",
        "rtt_ms_min": "min",
        "rtt_ms": "mean",
        "rtt_ms_max": "max",
        "in_flight_bytes": "max",
        "rwnd_bytes": "last",
        "window_full_s": "sum",
        "retransmissions": "sum",
        "limit": "first",
    }
    # Not of every run: of simulated ones alone, and not of those that an earlier version stored.
    extra = {"cwnd_bytes": "last", "queue_ms": "mean"}
    extra |= {"data_queue_ms": "mean", "ack_queue_ms": "mean", "ack_delay_ms": "mean"}
    how |= {name: verb for name, verb in extra.items() if name in table.column_names}
    if table.num_rows > cap:
        place = table.schema.get_field_index("limit")
        table = table.set_column(place, "limit", flat(table["limit"]).cast(pa.string()))
    return _merge(table, cap, how)


def events(table: pa.Table, cap: int = MAX_EVENTS) -> Downsampled:
    """The events of one flow, at most `cap`: every n-th beyond it."""
    rows = table.num_rows
    if rows <= cap:
        return Downsampled(table, 1)
    size = -(-rows // cap)
    places = pc.multiply(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows // size)), size)
    return Downsampled(table.take(pc.subtract(places, 1)), size)
