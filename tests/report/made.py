"""Runs made of formulas, so that the page can be tested without a capture: every figure in them is known."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import unbloat
from unbloat.run.run import Run
from unbloat.text.format import LIMITS

DATA = Path(__file__).parents[1] / "python/data"
# A flow of which nothing is known.
UNMEASURED = json.loads((DATA / "fake_analysis.json").read_text())["unmeasured"]

QUANTILES = ("count", "min", "p50", "p95", "p99", "max")
MSS = 1448
# The links of the runs that are simulated.
LINKS = """
[link.up]
rate = "4 Mbit/s"
delay = "20 ms"
[link.down]
rate = "20 Mbit/s"
delay = "20 ms"
queue = { kind = "droptail", limit = "100 KB" }
"""


class Stored:
    """Hands out series that are there already."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        self.tables = tables

    def fetch(
        self, kinds: Sequence[str], connections: list[int] | None, bin_ms: float, max_segments: int
    ) -> dict[str, pa.Table]:
        return {kind: self.tables[kind] for kind in kinds}


def connection_row(id_: int, **given: Any) -> dict[str, Any]:
    row = {
        "id": id_,
        "proto": "tcp",
        "a_addr": "192.168.43.20",
        "a_port": 50000 + id_,
        "b_addr": "203.0.113.7",
        "b_port": 5201,
        "start_s": 0.0,
        "duration_s": 60.0,
        "initial_rtt_ms": 62.0,
        "syn_seen": True,
        "end": "fin",
        "vantage": "a",
        "mptcp": False,
        "interface": 0,
        "packets": 0,
        "bytes": 0,
        "duplicates": 0,
        "capture_gap_bytes": 0,
    }
    return {**row, **given}


def flow_row(id_: int, **given: Any) -> dict[str, Any]:
    row = {"id": id_, "connection": id_ // 2, **UNMEASURED}
    row |= {"mss_bytes": MSS, "vantage": "sender", "rtt_method": "seq_ack", "window_scale": 7}
    return {**row, **given}


def spread(values: list[float], name: str) -> dict[str, Any]:
    """count, min, quantiles, max of some figures, as columns."""
    if not values:
        return {f"{name}_{part}": None for part in QUANTILES}
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    figures = (len(ordered), ordered[0], at(0.5), at(0.95), at(0.99), ordered[-1])
    return {f"{name}_{part}": figure for part, figure in zip(QUANTILES, figures, strict=True)}


class Series:
    """Collects the rows of a flow."""

    def __init__(self, flow: int) -> None:
        self.flow = flow
        self.samples: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.segments: list[tuple[float, int, int, int]] = []

    def event(self, t: float, kind: str, value: float = 0.0, seq: int = 0) -> None:
        self.events.append({"flow": self.flow, "t_s": t, "kind": kind, "value": value, "seq": seq})


def upload(flow: int, bbr: bool = False, seed: int = 1) -> tuple[Series, dict[str, Any]]:
    """A 60 s upload at 4 Mbit/s. CUBIC: RTT below 100 ms until 10 s, then climbing to 6 s; window full and ACKs in
    bursts from 22 s. BBR: RTT below 200 ms, the window never full."""
    rng, made = random.Random(seed), Series(flow)
    rate, rwnd, seq, acked = 4e6, 3_000_000, 0, 0
    window_full = 0.0
    for i in range(600):
        t = i / 10
        if bbr:
            rtt = 65 + 90 * (0.5 + 0.5 * math.sin(t * 1.9)) * min(t / 2, 1) + rng.random() * 20
        elif t < 10:
            rtt = 62 + 3 * t + rng.random() * 8
        elif t < 22:
            rtt = 92 + (5900 - 92) * ((t - 10) / 12) ** 1.25 + rng.random() * 60
        else:
            rtt = 5400 + 500 * math.sin(t) + rng.random() * 200
        stalled = not bbr and t >= 22
        cycle = i % 14
        sent = (
            int(rate / 80 * (0.85 + 0.3 * rng.random()))
            if not stalled
            else (560_000 if cycle == 0 else 0)
        )
        delivered = (
            sent if not stalled else (470_000 if cycle == 0 else (90_000 if cycle == 1 else 0))
        )
        if not bbr and 10 <= t < 22:
            sent = int(sent * 1.55)
            delivered = int(rate / 80)
        flight = (
            rwnd - rng.randrange(MSS)
            if stalled
            else min(int(rate / 8 * rtt / 1000 * 1.05) + 20_000, rwnd)
        )
        full = 0.1 if stalled and cycle not in (0, 1) else 0.0
        window_full += full
        limit = (
            "slow_start"
            if t < 0.8
            else "receive_window"
            if stalled
            else "bottleneck"
            if rtt < 95
            else "bufferbloat"
        )
        has_rtt = delivered > 0
        made.samples.append(
            {
                "flow": flow,
                "t_s": t,
                "span_s": 0.1,
                "sent_bytes": sent,
                "delivered_bytes": delivered,
                "goodput_bps": delivered * 80.0,
                "rtt_ms_min": rtt * 0.93 if has_rtt else None,
                "rtt_ms": rtt if has_rtt else None,
                "rtt_ms_max": rtt * 1.08 if has_rtt else None,
                "data_queue_ms": rtt * 0.9 if has_rtt else None,
                "ack_queue_ms": rtt * 0.05 if has_rtt else None,
                "in_flight_bytes": flight,
                "rwnd_bytes": min(131_072 + int(t * 900_000), rwnd),
                "window_full_s": full,
                "retransmissions": 0,
                "limit": limit,
            }
        )
        count = max(sent // MSS, 0)
        for k in range(count):
            made.segments.append((t + 0.1 * k / max(count, 1), 0, seq, seq + MSS))
            seq += MSS
        goal = max(seq - flight, acked)
        steps = max(1, count // 2) if not stalled else 6
        window = made.samples[-1]["rwnd_bytes"]
        for k in range(steps):
            acked += (goal - acked) // (steps - k)
            made.segments.append((t + 0.1 * (k + 0.5) / steps, 2, acked, max(acked + window, seq)))
        if stalled and cycle == 1:
            made.event(t + 0.05, "window_full", 1.25, seq)
            made.event(t - 0.1, "ack_burst", 470_000, acked)
        if not bbr and i in (231, 232, 340, 411, 500) and seq > 200 * MSS:
            back = acked + 20 * MSS
            for k in range(6):
                made.segments.append(
                    (t + 0.02 + k * 0.004, 1, back + k * MSS, back + (k + 1) * MSS)
                )
                made.event(t + 0.02 + k * 0.004, "retransmission_fast", MSS, back + k * MSS)
                made.segments.append(
                    (t + 0.01 + k * 0.004, 3, back + 40 * MSS, back + (50 + k) * MSS)
                )
            made.samples[-1]["retransmissions"] = 6
        if not bbr and i in (120, 290):
            made.segments.append((t + 0.03, 1, acked + MSS, acked + 2 * MSS))
            made.event(t + 0.03, "out_of_order", 4.0, acked + MSS)
    rtts = [row["rtt_ms"] for row in made.samples if row["rtt_ms"] is not None]
    flights = [float(row["in_flight_bytes"]) for row in made.samples]
    delivered_bytes = sum(row["delivered_bytes"] for row in made.samples)
    sent_bytes = sum(row["sent_bytes"] for row in made.samples)
    shares = {
        f"share_{name}": sum(row["limit"] == name for row in made.samples) / len(made.samples)
        for name in LIMITS
    }
    queue = [rtt - min(rtts) for rtt in rtts]
    row = flow_row(
        flow,
        packets=sent_bytes // MSS,
        data_packets=sent_bytes // MSS,
        wire_bytes=int(sent_bytes * 1.03),
        payload_bytes=sent_bytes,
        bytes=delivered_bytes,
        active_s=60.0,
        goodput_bps=int(delivered_bytes * 8 / 60),
        peak_bps=int(5.2e6),
        initial_rtt_ms=62.0,
        **spread(rtts, "rtt_ms"),
        **spread(rtts, "loaded_rtt_ms"),
        **spread(queue, "queue_ms"),
        **spread(queue, "data_queue_ms"),
        **spread([wait * 0.05 for wait in queue], "ack_queue_ms"),
        timestamp_tick_ms=1.0,
        **spread(flights, "in_flight_bytes"),
        **spread([min(100.0, flight / rwnd * 100) for flight in flights], "window_utilisation_pct"),
        rwnd_bytes_min=131_072,
        rwnd_bytes_max=rwnd,
        rwnd_bytes_last=rwnd,
        window_full_count=0 if bbr else 27,
        window_full_s=window_full,
        window_full_share=window_full / 60,
        window_full_first_s=None if bbr else 22.2,
        window_full_rtt_ms=None if bbr else 4900.0,
        retransmissions=0 if bbr else 30,
        retransmissions_fast=0 if bbr else 30,
        retransmitted_bytes=0 if bbr else 30 * MSS,
        loss_rate=0.0 if bbr else 0.0008,
        out_of_order=0 if bbr else 2,
        bdp_bytes=31_000,
        in_flight_over_bdp=max(flights) / 31_000,
        rtt_ceiling_ms=rwnd * 8 / 5.2e6 * 1000,
        limit=max(LIMITS, key=lambda name: shares[f"share_{name}"]),
        grade="C" if bbr else "F",
        ack_silence_max_ms=1200.0,
        ack_bursts=0 if bbr else 27,
        data_burst_bytes_max=560_000,
        **shares,
    )
    return made, row


def finding(
    rule: str,
    severity: str,
    flow: int | None,
    span: tuple[float, float],
    values: dict[str, Any],
    *words: str,
) -> dict[str, Any]:
    return {
        "rule": rule,
        "severity": severity,
        "flow": flow,
        "from_s": span[0],
        "to_s": span[1],
        "values": json.dumps(values),
        "text": words[0],
        "cure": words[1],
    }


FINDINGS = [
    finding(
        "bufferbloat",
        "serious",
        0,
        (10.2, 60.0),
        {
            "queue_ms_p95": 5890.0,
            "queue_ms_p50": 5210.0,
            "grade": "F",
            "onset_s": 10.2,
            "queue_bytes_p95": 2.9e6,
        },
        "Up to 5.9 s of queue stood in the way from 10.2 s on (p95 of added delay under load), about 2.9 MB; calls, games and web pages are unusable beside this transfer.",
        "A shallow, managed queue at the bottleneck (fq_codel, CAKE), or a sender that keeps it shallow (BBR).",
    ),
    finding(
        "receive-window",
        "warning",
        0,
        (22.2, 60.0),
        {
            "window_full_s": 32.4,
            "window_full_share": 0.54,
            "rwnd_bytes_max": 3_000_000,
            "rtt_ms": 4900.0,
        },
        "The receive window of 3.0 MB was full for 32 s (54 % of the time), first at 22.2 s, when the RTT reached 4.9 s.",
        "Remove the queue: at the path's own RTT this window is a hundred times larger than needed.",
    ),
    finding(
        "burst-after-stall",
        "warning",
        0,
        (22.2, 59.0),
        {"ack_silence_ms_max": 1200.0, "data_burst_bytes_max": 560_000},
        "ACKs fell silent for up to 1.2 s and came back in bursts, each of which released up to 560 KB at once.",
        "Pacing at the sender; a shallower queue below it.",
    ),
    finding(
        "capture-quality",
        "info",
        None,
        (0.0, 60.0),
        {"duplicates": 3},
        "Three packets were in the capture twice and were left out.",
        "Capture on one interface only.",
    ),
]


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as the table of that name of a real run."""
    return pa.Table.from_pylist(rows, schema=schemas()[name])


@cache
def schemas() -> dict[str, pa.Schema]:
    """Columns of the series and findings of a capture without packets."""
    run = unbloat.analyze(DATA / "empty.pcap")
    kinds = {"samples": run.samples(), "events": run.events(), "segments": run.segments()}
    return {name: table.schema for name, table in {**kinds, "findings": run.findings}.items()}


def segment_table(series: list[Series]) -> pa.Table:
    names = ("flow", "t_s", "kind", "from_seq", "to_seq")
    rows = [(one.flow, *segment) for one in series for segment in sorted(one.segments)]
    return table("segments", [dict(zip(names, row, strict=True)) for row in rows])


def run_of(
    series: list[Series],
    flows: list[dict[str, Any]],
    connections: list[dict[str, Any]],
    findings: list[dict[str, Any]],
    file: str,
    segments: pa.Table | None = None,
    **info: Any,
) -> Run:
    """A run of given rows."""
    known = {row["id"] for row in flows}
    flows = flows + [
        flow_row(2 * row["id"] + side)
        for row in connections
        for side in (0, 1)
        if 2 * row["id"] + side not in known
    ]
    stored = {
        "samples": table("samples", [row for one in series for row in one.samples]),
        "events": table("events", [row for one in series for row in one.events]),
        "segments": segment_table(series) if segments is None else segments,
    }
    tables = {
        "connections": pa.Table.from_pylist(connections),
        "flows": pa.Table.from_pylist(sorted(flows, key=lambda row: row["id"])),
        "findings": table("findings", findings),
    }
    facts = {
        "format": 1,
        "tool": "unbloat 0.1.0",
        "files": [file],
        "linktypes": ["ethernet"],
        "interfaces": ["wlan0"],
        "start_s": 1.66e9,
        "duration_s": 60.0,
        "packets": sum(row["packets"] for row in connections),
        "bytes": sum(row["bytes"] for row in connections),
        "tcp_packets": sum(row["packets"] for row in connections),
        "warnings": [],
        **info,
    }
    return Run(facts, tables, Stored(stored))


def bloated(file: str = "tethered-upload-cubic.pcapng", **info: Any) -> Run:
    """The CUBIC upload, a short download in the opposite direction of another connection, DNS and a ping."""
    cubic, row = upload(0)
    small, small_row = upload(3, bbr=True, seed=5)
    small.samples = small.samples[50:180]
    small.segments = [segment for segment in small.segments if 5 <= segment[0] < 18]
    wire = row["wire_bytes"]
    connections = [
        connection_row(0, packets=row["packets"] + 9000, bytes=wire + 500_000),
        connection_row(
            1,
            packets=5000,
            bytes=6_400_000,
            start_s=5.0,
            duration_s=13.0,
            b_port=443,
            b_addr="2001:db8:17::c0de",
        ),
        connection_row(
            2,
            proto="udp",
            packets=61,
            bytes=8_000,
            b_port=53,
            syn_seen=False,
            end="open",
            initial_rtt_ms=None,
        ),
        connection_row(
            3,
            proto="icmp",
            a_port=7,
            b_port=0,
            packets=120,
            bytes=10_080,
            syn_seen=False,
            end="open",
            initial_rtt_ms=None,
        ),
    ]
    small_row |= {"bytes": 6_000_000, "payload_bytes": 6_000_000, "active_s": 13.0}
    counted = [
        flow_row(4, packets=31, wire_bytes=3000, rtt_method="none"),
        flow_row(5, packets=30, wire_bytes=5000, rtt_method="none"),
    ]
    return run_of([cubic, small], [row, small_row, *counted], connections, FINDINGS, file, **info)


def with_bbr(file: str = "tethered-upload-bbr.pcapng") -> Run:
    """The same upload with BBR."""
    bbr, row = upload(0, bbr=True, seed=2)
    connections = [
        connection_row(0, packets=row["packets"] + 9000, bytes=row["wire_bytes"] + 500_000)
    ]
    return run_of([bbr], [row], connections, [], file)


def empty(file: str = "nothing.pcap") -> Run:
    """A capture without any connection."""
    filled = with_bbr()
    none = {
        "connections": filled.connections.slice(0, 0),
        "flows": filled.flows.slice(0, 0),
        "findings": filled.findings.slice(0, 0),
    }
    series = {
        "samples": filled.samples().slice(0, 0),
        "events": filled.events().slice(0, 0),
        "segments": filled.segments().slice(0, 0),
    }
    info = {"tool": "unbloat 0.1.0", "files": [file], "duration_s": 0.0, "packets": 0, "bytes": 0}
    return Run({**info, "warnings": ["ended after the file header"]}, none, Stored(series))


def million(packets: int = 1_000_000) -> Run:
    """One flow of a million data packets and half as many ACKs within 60 s: 193 Mbit/s."""
    made, row = upload(0)
    scale = packets * MSS / row["payload_bytes"]
    for sample in made.samples:
        for name in ("sent_bytes", "delivered_bytes"):
            sample[name] = int(sample[name] * scale)
        sample["goodput_bps"] = sample["delivered_bytes"] * 80.0
    step = 60.0 / packets
    rng = random.Random(7)
    # Jitter, so that the page is no smaller than that of a real capture.
    times = [(i + rng.random()) * step for i in range(packets)]
    acks = packets // 2
    segments = pa.table(
        {
            "flow": pa.array([0] * (packets + acks), pa.uint32()),
            "t_s": pa.array(
                times + [t + 0.05 for t in times[:: packets // acks]][:acks], pa.float64()
            ),
            "kind": pa.array([0] * packets + [2] * acks, pa.uint8()),
            "from_seq": pa.array(
                [i * MSS for i in range(packets)] + [2 * i * MSS for i in range(acks)], pa.uint64()
            ),
            "to_seq": pa.array(
                [(i + 1) * MSS for i in range(packets)]
                + [2 * i * MSS + 3_000_000 for i in range(acks)],
                pa.uint64(),
            ),
        }
    )
    row |= {
        "data_packets": packets,
        "packets": packets,
        "payload_bytes": packets * MSS,
        "bytes": packets * MSS,
    }
    connections = [connection_row(0, packets=packets + acks, bytes=packets * 1500)]
    return run_of([made], [row], connections, FINDINGS[:2], "million.pcapng", segments)
