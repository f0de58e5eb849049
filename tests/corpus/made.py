"""A corpus that is written by hand: its tables have the columns that views and page read, and known answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unbloat.corpus.tables import NAMES

Row = dict[str, Any]
# 2024-01-01, midnight UTC.
DAY_S = 1_704_067_200.0
TYPES: dict[str, pa.DataType] = {
    "unit": pa.utf8(),
    "device": pa.utf8(),
    "file": pa.utf8(),
    "t0_s": pa.float64(),
    "duration_s": pa.float64(),
    "interfaces": pa.list_(pa.utf8()),
    "warnings": pa.list_(pa.utf8()),
    "limit": pa.utf8(),
    "grade": pa.utf8(),
    "goodput_bps": pa.uint64(),
    "rtt_ms_min": pa.float64(),
    "queue_ms_p95": pa.float64(),
    "rtt_rise_ms": pa.float64(),
    "ack_delay_ms": pa.float64(),
}


def write(out: Path, tables: Mapping[str, Sequence[Row]]) -> Path:
    """A folder as `unbloat corpus run` leaves it; tables that are not named have no rows."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "corpus.json").write_text(json.dumps({"format": 1}))
    assert set(tables) <= set(NAMES)
    for name, rows in tables.items():
        if not rows:
            continue
        (out / "table" / name).mkdir(parents=True)
        columns = {key: pa.array([row[key] for row in rows], TYPES.get(key)) for key in rows[0]}
        pq.write_table(pa.table(columns), out / "table" / name / "0000.parquet")
    return out


def connections(
    device: str,
    verdicts: Sequence[tuple[str | None, str | None, int]],
    hour: int = 0,
    **capture: Any,
) -> dict[str, list[Row]]:
    """A capture of a device: uploads with limit, grade and bytes; each a second long, in both tables of flows and connections."""
    about = {
        "unit": device,
        "device": device,
        "file": f"/{device}.pcap",
        "t0_s": DAY_S + hour * 3600,
    }
    found: dict[str, list[Row]] = {"captures": [], "connections": [], "flows": []}
    found["captures"].append(
        {**about, "duration_s": 10.0, "bytes": 1000, "interfaces": [], "warnings": [], **capture}
    )
    for number, (limit, grade, size) in enumerate(verdicts):
        found["connections"].append(
            {
                **about,
                "id": number,
                "a_addr": "10.0.0.2",
                "a_port": 40_000 + number,
                "b_addr": "192.0.2.1",
                "b_port": 443,
                "start_s": float(number),
                "interface": 0,
            }
        )
        found["flows"] += [
            {
                **about, "id": 2 * number, "connection": number, "upload": True, "bytes": size,
                "active_s": 1.0, "goodput_bps": 8 * size, "rtt_ms_min": 20.0,
                "queue_ms_p95": size / 1000, "limit": limit, "grade": grade,
            },
            {
                **about, "id": 2 * number + 1, "connection": number, "upload": False, "bytes": 1,
                "active_s": 0.5, "goodput_bps": None, "rtt_ms_min": None,
                "queue_ms_p95": None, "limit": None, "grade": None,
            },
        ]  # fmt: skip
    return found


def together(*parts: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Tables of several captures."""
    return {
        name: [row for part in parts for row in part.get(name, [])]
        for name in {name for part in parts for name in part}
    }
