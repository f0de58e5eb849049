"""A stand-in for the extension module, for tests that need no capture: three connections with made-up figures (`data/fake_analysis.json`).

Connection 0 is a bloated upload that ends up window-limited, 1 a short IPv6 exchange without most statistics, 2 is UDP.
Names and types of the columns, and everything that is listed, are the real module's; the columns are packed as the contract of
`_native.analyze` says, so that the conversion is tested, too.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unbloat import _native as native
from unbloat._native import CaptureError, algorithms, linktypes, rules, scenario_metrics, version

__all__ = ["CaptureError", "algorithms", "linktypes", "rules", "scenario_metrics", "version"]

Column = tuple[str, str, bytes, "bytes | None", "bytes | None"]

DATA = Path(__file__).parent / "data"
MADE = json.loads((DATA / "fake_analysis.json").read_text())
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f32": "f", "f64": "d"}
calls: list[dict[str, Any]] = []
"""Arguments of every call, for tests that count passes."""


def kinds() -> dict[str, dict[str, str]]:
    """Names and types of the columns of every table: those of a capture without packets."""
    path = str(DATA / "empty.pcap")
    done: dict[str, Any] = native.analyze([path], samples="all", events="all", segments="all")
    return {
        table: {name: kind for name, kind, *_ in columns}
        for table, columns in done["tables"].items()
    }


KINDS = kinds()


def bits(flags: Sequence[bool]) -> bytes:
    """Arrow's bitmap, least significant bit first."""
    data = bytearray((len(flags) + 7) // 8)
    for place, flag in enumerate(flags):
        data[place // 8] |= flag << place % 8
    return bytes(data)


def column(name: str, kind: str, values: Sequence[Any]) -> Column:
    """Pack one column."""
    known = [value is not None for value in values]
    valid = None if all(known) else bits(known)
    if kind == "str":
        texts = [(value or "").encode() for value in values]
        ends = [0]
        for text in texts:
            ends.append(ends[-1] + len(text))
        return name, kind, b"".join(texts), valid, struct.pack(f"<{len(ends)}i", *ends)
    if kind == "bool":
        return name, kind, bits([bool(value) for value in values]), valid, None
    data = struct.pack(f"<{len(values)}{CODES[kind]}", *[value or 0 for value in values])
    return name, kind, data, valid, None


def packed(table: str, rows: Sequence[dict[str, Any]]) -> list[Column]:
    """Pack one table."""
    return [column(name, kind, [row[name] for row in rows]) for name, kind in KINDS[table].items()]


def series(table: str, wanted: Any) -> list[dict[str, Any]]:
    """Made-up series of the flows that carry data; a connection list is honoured."""
    flows = [flow for flow in (0, 3, 4) if wanted == "all" or flow // 2 in wanted]
    if table == "events":
        row = {"t_s": 1.5, "kind": "retransmission_fast", "value": 1448.0, "seq": 1449}
        return [row | {"flow": flow} for flow in flows]
    if table == "segments":
        row = {"t_s": 0.1, "kind": 0, "from_seq": 1, "to_seq": 1449}
        return [row | {"flow": flow} for flow in flows]
    return [sample(flow, step) for flow in flows for step in range(300 if flow == 0 else 2)]


def sample(flow: int, step: int) -> dict[str, Any]:
    """A bin of 0.1 s: goodput swings, and the RTT of flow 0 rises."""
    swing = 1 + math.sin(step)
    rtt = 50 + 2000 * max(step - 100, 0) / 200 if flow == 0 else None
    return {
        "flow": flow,
        "t_s": step / 10,
        "span_s": 0.1,
        "sent_bytes": 50_000,
        "delivered_bytes": int(50_000 * swing),
        "goodput_bps": 4e6 * swing,
        **dict.fromkeys(("rtt_ms_min", "rtt_ms", "rtt_ms_max"), rtt),
        **dict.fromkeys(("data_queue_ms", "ack_queue_ms", "ack_delay_ms"), None),
        "in_flight_bytes": None if rtt is None else int(rtt * 500),
        "rwnd_bytes": 1_050_000,
        "window_full_s": 0.0,
        "retransmissions": 0,
        "limit": "receive_window" if step > 110 else "bottleneck",
    }


def analyze(
    paths: list[str],
    *,
    bin_ms: float = 100.0,
    samples: str | list[int] | None = None,
    events: str | list[int] | None = None,
    segments: str | list[int] | None = None,
    max_segments: int = 200_000,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, object]:
    """As the extension module's; files that begin with `bad` are refused, those with `bbr` in their name have no queue."""
    asked = {"samples": samples, "events": events, "segments": segments}
    calls.append({"paths": paths, "bin_ms": bin_ms, "max_segments": max_segments, **asked})
    for path in paths:
        if path != "-":
            with open(path, "rb") as file:
                if file.read(3) == b"bad":
                    raise CaptureError(f"{path}: not a capture file: unknown magic bytes 62 61 64")
    if progress is not None:
        progress(10, 10)
    bloated = not any("bbr" in path for path in paths)
    flows = [MADE["bloated" if bloated else "calm"], *MADE["others"]]
    rows = {
        "connections": MADE["connections"],
        "flows": [MADE["unmeasured"] | flow for flow in flows],
        "findings": MADE["findings"] if bloated else MADE["findings"][:1],
    }
    rows |= {name: series(name, wanted) for name, wanted in asked.items() if wanted is not None}
    warnings = [f"{paths[0]}: {warning}" for warning in MADE["run"]["warnings"]]
    run = {"tool": f"unbloat {version}", "files": list(paths), "warnings": warnings}
    return {
        "run": MADE["run"] | run,
        "tables": {name: packed(name, table) for name, table in rows.items()},
    }
