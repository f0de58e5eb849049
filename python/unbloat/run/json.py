"""`--json`: one object per capture, as docs/format.md names things.

A statistic with several figures, one column each in Parquet (`rtt_ms_min`, `rtt_ms_p95`), is an object here
(`"rtt_ms": {"min": …, "p95": …}`), and null when it was never measured. There is never a NaN.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from unbloat.run.tables import Row, RunTables
from unbloat.run.write import FORMAT

QUANTILES = ("count", "min", "p50", "p95", "p99", "max")
# Statistic → its figures.
NESTED: dict[str, tuple[str, ...]] = {
    "rtt_ms": QUANTILES,
    "answer_ms": QUANTILES,
    "loaded_rtt_ms": QUANTILES,
    "queue_ms": QUANTILES,
    "data_queue_ms": QUANTILES,
    "ack_queue_ms": QUANTILES,
    "in_flight_bytes": QUANTILES,
    "rwnd_bytes": ("min", "max", "last"),
    "window_utilisation_pct": QUANTILES,
    "delay_ms": (*QUANTILES, "mean"),
}
COLUMN_OF = {
    f"{name}_{figure}": (name, figure) for name, figures in NESTED.items() for figure in figures
}


def run_object(
    run: RunTables,
    connections: Iterable[int] | None = None,
    series: Iterable[str] = (),
    bin_ms: float | None = None,
) -> Row:
    """A run as plain dictionaries and lists. With `connections`, only those."""
    wanted = None if connections is None else set(connections)
    series = list(series)
    rows = [row for row in run.connections.to_pylist() if wanted is None or row["id"] in wanted]
    flows = [row for row in run.flows.to_pylist() if wanted is None or row["connection"] in wanted]
    findings = [
        finding_object(row)
        for row in run.findings.to_pylist()
        if wanted is None or row["flow"] is None or row["flow"] // 2 in wanted
    ]
    result: Row = {
        "format": FORMAT,
        "run": clean(run.info),
        "connections": [clean(row) for row in rows],
        "flows": [nested(row) for row in flows],
        "findings": findings,
    }
    for name, table in run.extra.items():
        # Queues and probes are series, too.
        if name in ("stages", "apps") or "samples" in series:
            result[name] = [
                nested(row) if name == "stages" else clean(row) for row in table.to_pylist()
            ]
    if "samples" in series:
        for name, table in run.modem.items():
            result[name] = [clean(row) for row in table.to_pylist()]
    for kind in series:
        table = (
            run.samples(connection=wanted, bin_ms=bin_ms)
            if kind == "samples"
            else getattr(run, kind)(connection=wanted)
        )
        result[kind] = [clean(row) for row in table.to_pylist()]
    return result


def json_line(value: object) -> str:
    """One line of JSON, in the characters that it has; refuses NaN rather than write what is not JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def nested(row: Row) -> Row:
    """A row of `flows` with its statistics gathered; the order of the columns is kept."""
    result: Row = {}
    for column, value in row.items():
        place = COLUMN_OF.get(column)
        if place is None:
            result[column] = finite(value)
        else:
            result.setdefault(place[0], {})[place[1]] = finite(value)
    for name in NESTED:
        figures = result.get(name)
        # A count of 0 is as good as none: nothing was measured.
        if figures is not None and all(
            value is None for key, value in figures.items() if key != "count"
        ):
            result[name] = None
    return result


def finding_object(row: Row) -> Row:
    """A row of `findings` with its evidence as an object."""
    return clean(row) | {"values": json.loads(row["values"] or "{}")}


def clean(row: Row) -> Row:
    """A row without anything that JSON cannot say."""
    return {key: finite(value) for key, value in row.items()}


def finite(value: Any) -> Any:
    """NaN and infinities become null: they were never measured."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
