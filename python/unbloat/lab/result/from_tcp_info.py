"""Connections, flows and series without a capture: what the kernel says of each socket.

signal: TCP_INFO of the sender's socket, once per bin · model: counters of the kernel (bytes acknowledged, segments retransmitted, time
that the window held it back) and its smoothed round trip, after the warm-up · action: the tables of docs/format.md; what only a
capture shows is null
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from unbloat.lab.result.annotate import segments
from unbloat.lab.result.links import Loss
from unbloat.lab.result.raw_files import Raw
from unbloat.lab.result.traffic_logs import Known, TrafficLogs
from unbloat.run.figures import Statistics, statistics
from unbloat.run.tables import Row
from unbloat.text.format import LIMITS

if TYPE_CHECKING:
    import pyarrow as pa

# A state holds a bin when it lasts half of it, as in the analysis of captures.
MAJORITY = 0.5


def from_sockets(
    raw: Raw,
    known: Sequence[Known],
    logs: TrafficLogs,
    losses: dict[tuple[str, str], list[Loss]],
    first_id: int,
    schemas: dict[str, pa.Schema],
) -> dict[str, pa.Table]:
    """The tables of connections that no capture shows, numbered from `first_id`."""
    import pyarrow as pa

    rows: dict[str, list[Row]] = {name: [] for name in ("connections", "flows", "samples")}
    for number, one in enumerate(sorted(known, key=lambda one: one.start_s), first_id):
        sent = logs.sockets.get((one.sender, one.receiver), [])
        bins = bin_rows(raw, one, sent)
        end = sent[-1]["t_s"] if sent else one.start_s
        rows["connections"].append(connection_row(number, one, end, sent))
        data = flow_row(raw, one, sent, bins, len(losses.get((one.sender, one.receiver), [])))
        rows["flows"] += [{"id": 2 * number, "connection": number} | data, silent_row(number, one)]
        rows["samples"] += [{"flow": 2 * number} | row for row in bins]
    return {name: pa.Table.from_pylist(found, schema=schemas[name]) for name, found in rows.items()}


def connection_row(number: int, known: Known, end_s: float, sent: Sequence[Row]) -> Row:
    """The sender is a: without a capture the opening end is unknown."""
    a, b = (end.rsplit(":", 1) for end in (known.sender, known.receiver))
    return {
        "id": number,
        "proto": known.proto,
        "a_addr": a[0],
        "a_port": int(a[1]),
        "b_addr": b[0],
        "b_port": int(b[1]),
        "start_s": known.start_s,
        "duration_s": max(end_s - known.start_s, 0.0),
        "syn_seen": False,
        "end": "open",
        "vantage": "unknown",
        "mptcp": False,
        "interface": 0,
        "bytes": last(sent, "bytes_acked") or 0,
        "packets": 0,
        "duplicates": 0,
        "capture_gap_bytes": 0,
        "transfer": known.transfer,
    }


def silent_row(number: int, known: Known) -> Row:
    """The direction of requests and ACKs, of which the sender's socket says nothing."""
    return {
        "id": 2 * number + 1,
        "connection": number,
        "bytes": 0,
        "active_s": 0.0,
        "vantage": "unknown",
        "rtt_method": "none",
        "window_scale_inferred": False,
        "too_short": False,
        "capture_lacks": None,
        "congestion": known.congestion,
    }


def flow_row(raw: Raw, known: Known, sent: Sequence[Row], bins: Sequence[Row], lost: int) -> Row:
    """The direction of the data."""
    measured = [row for row in sent if row["t_s"] >= raw.warmup_s]
    before = [row for row in sent if row["t_s"] < raw.warmup_s]
    # What was acknowledged by the end of the warm-up is known at the first sample after it.
    begun = measured[:1] if before else []
    begin = begun[0]["t_s"] if begun else known.start_s
    active = max(measured[-1]["t_s"] - begin, 0.0) if measured else 0.0
    delivered = (last(measured, "bytes_acked") or 0) - (last(begun, "bytes_acked") or 0)
    base = min((row["rtt_min_ms"] for row in sent if row.get("rtt_min_ms")), default=None)
    rtts = [row.get("srtt_ms") for row in measured]
    waits = [None if rtt is None or base is None else max(rtt - base, 0.0) for rtt in rtts]
    windows = [row["send_window_bytes"] for row in sent if row.get("send_window_bytes") is not None]
    full = grown(measured, begun, "rwnd_limited_s")
    after = [row for row in bins if row["t_s"] >= raw.warmup_s]
    span = sum(row["span_s"] for row in after)
    shares = {
        name: sum(row["span_s"] for row in after if row["limit"] == name) / span if span else None
        for name in LIMITS
    }
    rates = [row["goodput_bps"] for row in bins]
    law = next(
        flow["receiver"]["window"]["kind"]
        for flow in raw.plan["flows"]
        if flow["name"] == known.transfer
    )
    return {
        "bytes": last(sent, "bytes_acked") or 0,
        "active_s": active,
        "goodput_bps": round(delivered * 8 / active) if active > 0 and delivered > 0 else None,
        "peak_bps": round(max(rates)) if rates else None,
        "mss_bytes": last(sent, "mss_bytes") or 0,
        "vantage": "sender",
        "rtt_method": "sender" if any(rtts) else "none",
        **quantiles("rtt_ms", statistics(rtts)),
        **quantiles("queue_ms", statistics(waits)),
        **quantiles(
            "in_flight_bytes", statistics(segments(row, "in_flight_segments") for row in measured)
        ),
        "rwnd_bytes_min": min(windows, default=None),
        "rwnd_bytes_max": max(windows, default=None),
        "rwnd_bytes_last": windows[-1] if windows else None,
        "window_scale_inferred": False,
        "too_short": False,
        "capture_lacks": None,
        "window_full_s": full,
        "window_full_share": min(full / active, 1.0) if full is not None and active > 0 else None,
        "retransmissions": last(sent, "retransmits"),
        **{f"share_{name}": share for name, share in shares.items()},
        "limit": max(shares, key=lambda name: shares[name] or 0.0) if span else None,
        "transfer": known.transfer,
        "congestion": known.congestion,
        "window_law": law,
        "lost_packets": lost,
    }


def bin_rows(raw: Raw, known: Known, sent: Sequence[Row]) -> list[Row]:
    """One bin between two samples of the socket."""
    rows = []
    for then, now in pairwise(sent):
        span = now["t_s"] - then["t_s"]
        if span <= 0:
            continue
        delivered = max((now.get("bytes_acked") or 0) - (then.get("bytes_acked") or 0), 0)
        retransmitted = max((now.get("retransmits") or 0) - (then.get("retransmits") or 0), 0)
        rows.append(
            {
                "t_s": then["t_s"],
                "span_s": span,
                "sent_bytes": delivered,
                "delivered_bytes": delivered,
                "goodput_bps": delivered * 8 / span,
                "rtt_ms": now.get("srtt_ms"),
                "rtt_ms_min": now.get("srtt_ms"),
                "rtt_ms_max": now.get("srtt_ms"),
                "in_flight_bytes": segments(now, "in_flight_segments"),
                "rwnd_bytes": now.get("send_window_bytes"),
                "window_full_s": grown([now], [then], "rwnd_limited_s") or 0.0,
                "retransmissions": retransmitted,
                "limit": limit(then, now, span),
                "cwnd_bytes": segments(now, "cwnd_segments"),
                "ssthresh_bytes": segments(now, "ssthresh_segments"),
                "pacing_bps": None if now.get("pacing_bps") is None else round(now["pacing_bps"]),
                "queue_ms": wait(now),
            }
        )
    return rows


def wait(row: Row) -> float | None:
    """Round trip above the smallest one."""
    if row.get("srtt_ms") is None or row.get("rtt_min_ms") is None:
        return None
    return max(float(row["srtt_ms"] - row["rtt_min_ms"]), 0.0)


def limit(then: Row, now: Row, span_s: float) -> str:
    """What limited the sender for half of a bin, by the kernel's counters; they do not separate
    congestion and queue."""
    if now.get("busy_s") is None or then.get("busy_s") is None:
        return "unknown"
    if (grown([now], [then], "rwnd_limited_s") or 0.0) >= MAJORITY * span_s:
        return "receive_window"
    busy = now["busy_s"] - then["busy_s"]
    return "application" if busy < MAJORITY * span_s else "unknown"


def grown(after: Sequence[Row], before: Sequence[Row], name: str) -> float | None:
    """How much a counter grew."""
    end, begin = last(after, name), last(before, name)
    return None if end is None else max(float(end - (begin or 0)), 0.0)


def last(rows: Sequence[Row], name: str) -> Any:
    """A counter's last value."""
    return rows[-1].get(name) if rows else None


def quantiles(name: str, of: Statistics | None) -> Row:
    """The columns of a distribution."""
    parts = ("count", "min", "p50", "p95", "p99", "max")
    return {f"{name}_{part}": None if of is None else getattr(of, part) for part in parts}
