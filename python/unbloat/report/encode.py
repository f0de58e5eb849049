"""Columns as the page reads them: little-endian typed arrays, delta-coded, zlib, base64.

A column of counts or times becomes the smallest signed integers that hold its steps (times in µs); a column with gaps
becomes 32-bit floats with NaN. Everything is done by Arrow's kernels on whole columns: a flow of a million segments
costs some milliseconds. The page inflates a table only when its connection is opened.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# Level 1 is a third of level 6's time for a tenth more bytes on delta-coded columns.
ZLIB_LEVEL = 1
# One count is one µs: finer than any capture's clock is right, and exact in a double for 285 years.
TICKS_PER_SECOND = 1_000_000

_INTEGERS = ((pa.int8(), "i1", 1 << 7), (pa.int16(), "i2", 1 << 15), (pa.int32(), "i4", 1 << 31))


@dataclass(frozen=True)
class Encoded:
    """A table in the page: how its columns lie in `data`, and the compressed bytes."""

    rows: int
    columns: list[dict[str, Any]]
    data: str

    def describe(self) -> dict[str, Any]:
        """What the page must know to read `data`."""
        return {"rows": self.rows, "columns": self.columns}


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _bytes(values: pa.Array) -> bytes:
    buffer = values.buffers()[1]
    width = values.type.bit_width // 8
    if buffer is None:
        return b""
    return bytes(memoryview(buffer)[values.offset * width : (values.offset + len(values)) * width])


def steps(values: pa.Array) -> tuple[dict[str, Any], bytes]:
    """Integers without gaps: the first value, and the differences in the smallest type that holds them."""
    if len(values) == 0:
        return {"type": "i1", "first": 0}, b""
    whole = values.cast(pa.int64())
    first = whole[0].as_py()
    if len(whole) == 1:
        return {"type": "i1", "first": first}, b"\0"
    differences = pc.fill_null(pc.pairwise_diff(whole), 0)
    bounds = pc.min_max(differences).as_py()
    for kind, name, reach in _INTEGERS:
        if -reach <= bounds["min"] and bounds["max"] < reach:
            return {"type": name, "first": first}, _bytes(differences.cast(kind))
    return {"type": "f8"}, _bytes(whole.cast(pa.float64(), safe=False))


def seconds(values: pa.Array) -> tuple[dict[str, Any], bytes]:
    """Times in seconds, as steps of one µs."""
    ticks = pc.round(pc.multiply(values, float(TICKS_PER_SECOND))).cast(pa.int64())
    description, data = steps(ticks)
    return {**description, "divide": TICKS_PER_SECOND}, data


def floats(values: pa.Array) -> tuple[dict[str, Any], bytes]:
    """Figures with gaps: 32-bit floats, NaN where there is none."""
    return {"type": "f4"}, _bytes(
        flat(pc.fill_null(values.cast(pa.float32(), safe=False), float("nan")))
    )


def codes(values: pa.Array, words: list[str]) -> tuple[dict[str, Any], bytes]:
    """Words as their place in `words`; 255 for one that is not there."""
    text = values.cast(pa.string())
    places = pc.fill_null(pc.index_in(text, value_set=pa.array(words, pa.string())), 255)
    return {"type": "u1"}, _bytes(flat(places.cast(pa.uint8(), safe=False)))


def encode(columns: dict[str, tuple[dict[str, Any], bytes]], rows: int) -> Encoded:
    """Lays columns one behind the other and compresses them."""
    described: list[dict[str, Any]] = []
    parts: list[bytes] = []
    offset = 0
    for name, (description, data) in columns.items():
        described.append({"name": name, "offset": offset, **description})
        # Typed arrays of the page must begin at a multiple of their width.
        padded = data + b"\0" * (-len(data) % 8)
        parts.append(padded)
        offset += len(padded)
    squeezed = zlib.compress(b"".join(parts), ZLIB_LEVEL)
    return Encoded(rows, described, base64.b64encode(squeezed).decode("ascii"))
