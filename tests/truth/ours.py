"""Our own figures of the flows that a test is about, added up where there are several connections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import unbloat

PORT = 5201
COUNTS = (
    "data_packets payload_bytes bytes retransmissions retransmitted_bytes retransmissions_fast retransmissions_timeout "
    "retransmissions_tail_probe retransmissions_spurious timeouts out_of_order ambiguous dup_acks dsacks window_full_count "
    "zero_window_count zero_window_probes keep_alives"
)  # fmt: skip
SUMS = ("window_full_s", "zero_window_s", "active_s")
LARGEST = (
    "rtt_ms_max",
    "queue_ms_p50",
    "queue_ms_p95",
    "queue_ms_max",
    "grade",
    "in_flight_bytes_max",
    "in_flight_plain_bytes_max",
    "rwnd_bytes_max",
)


def flows(path: Path, port: int = PORT) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The data flows of the bulk connections in a capture, and those connections."""
    run = unbloat.analyze(path)
    wanted = {
        c["id"]: c
        for c in run.connections.to_pylist()
        if c["proto"] == "tcp" and port in (c["a_port"], c["b_port"])
    }
    best: dict[int, dict[str, Any]] = {}
    for flow in run.flows.to_pylist():
        id_ = flow["connection"]
        if id_ in wanted and (
            id_ not in best or flow["payload_bytes"] > best[id_]["payload_bytes"]
        ):
            best[id_] = flow
    return list(best.values()), list(wanted.values())


def figures(path: Path, port: int = PORT) -> dict[str, Any]:
    """All of them as one: counts and times added up, largest of the maxima, smallest of the minima."""
    rows, connections = flows(path, port)
    result: dict[str, Any] = {
        name: sum(row[name] for row in rows) for name in (*COUNTS.split(), *SUMS)
    }
    for name in LARGEST:
        result[name] = max((row[name] for row in rows if row[name] is not None), default=None)
    for name in ("rtt_ms_min", "rtt_bound_ms_min"):
        result[name] = min((row[name] for row in rows if row[name] is not None), default=None)
    result["rtt_method"] = "/".join(sorted({row["rtt_method"] for row in rows}))
    result["vantage"] = "/".join(sorted({row["vantage"] for row in rows}))
    result["connections"] = len(connections)
    result["duplicates"] = sum(c["duplicates"] for c in connections)
    return result
