"""Native columns become Arrow tables.

The extension module returns `(name, type, data, validity, offsets)`, already in Arrow's memory layout:
`pyarrow.Array.from_buffers` copies nothing. There is one `pyarrow.Table` per table of docs/format.md. Columns with a
handful of words over many rows become dictionaries, which the SQL engines and data frames know how to group by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

NativeColumn = tuple[str, str, bytes, "bytes | None", "bytes | None"]

# Words from a closed list: a dictionary costs a small integer per row instead of a string.
DICTIONARIES = frozenset(
    {
        "proto",
        "end",
        "vantage",
        "rtt_method",
        "limit",
        "grade",
        "kind",
        "rule",
        "severity",
        "transfer",
        "congestion",
        "congestion_control",
        "window_law",
        "link",
        "stage",
        "from_node",
        "to_node",
        "probe",
        "layer",
    }
)

# Bytes per value; strings and bits have none.
WIDTH = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "f32": 4, "f64": 8}

# What each table of docs/format.md is called; the order is the order in `--json` and on disk.
TABLES = ("connections", "flows", "findings", "samples", "events", "segments")
SERIES = ("samples", "events", "segments")
# What only a simulated run has: queues over time and as a whole, probes, figures of applications.
EXTRA = ("queues", "stages", "probes", "apps")
# What only a capture with a modem's log has.
MODEM = ("modem_buffer", "modem_grants", "modem_rates")


def arrow_table(columns: Sequence[NativeColumn]) -> pa.Table:
    """One table out of native columns, without copying numbers."""
    import pyarrow as pa

    rows = row_count(columns)
    arrays = [arrow_array(column, rows) for column in columns]
    return pa.Table.from_arrays(arrays, names=[column[0] for column in columns])


def row_count(columns: Sequence[NativeColumn]) -> int:
    """Rows of a table, from the first column whose length says it (bits only say it to the next eight)."""
    for name, kind, data, _, offsets in columns:
        if kind == "str":
            if offsets is None:
                raise TypeError(f"column {name}: a str column needs offsets")
            return max(len(offsets) // 4 - 1, 0)
        if kind in WIDTH:
            return len(data) // WIDTH[kind]
    return 0


def arrow_array(column: NativeColumn, rows: int) -> pa.Array:
    """One Arrow array over the bytes of a native column."""
    import pyarrow as pa

    name, kind, data, valid, offsets = column
    validity = None if valid is None else pa.py_buffer(valid)
    if kind == "str":
        if offsets is None:
            raise TypeError(f"column {name}: a str column needs offsets")
        # An empty column may come with no offsets at all; Arrow wants at least the leading zero.
        start = offsets or bytes(4)
        array = pa.Array.from_buffers(
            pa.utf8(), rows, [validity, pa.py_buffer(start), pa.py_buffer(data)]
        )
        return array.dictionary_encode() if name in DICTIONARIES else array
    return pa.Array.from_buffers(arrow_type(name, kind), rows, [validity, pa.py_buffer(data)])


def arrow_type(name: str, kind: str) -> pa.DataType:
    """Arrow's type for a native one."""
    import pyarrow as pa

    types = {
        "u8": pa.uint8,
        "u16": pa.uint16,
        "u32": pa.uint32,
        "u64": pa.uint64,
        "f32": pa.float32,
        "f64": pa.float64,
        "bool": pa.bool_,
    }
    if kind not in types:
        raise TypeError(f"column {name}: type {kind!r} is not known")
    return types[kind]()
