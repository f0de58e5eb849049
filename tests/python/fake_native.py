"""A stand-in for the extension module, for tests that need no capture: three connections with made-up figures.

Connection 0 is a bloated upload that ends up window-limited, 1 a short IPv6 exchange without most statistics, 2 is UDP.
It packs its columns exactly as the contract of `_native.analyze` says, so that the conversion is tested, too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

Column = tuple[str, str, bytes, "bytes | None", "bytes | None"]

version = "0.1.0"
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f32": "f", "f64": "d"}
LIMITS = (
    "zero_window",
    "receive_window",
    "application",
    "slow_start",
    "bufferbloat",
    "bottleneck",
    "congestion_window",
    "unknown",
)
calls: list[dict[str, Any]] = []
"""Arguments of every call, for tests that count passes."""


class CaptureError(ValueError):
    """Unreadable from the very beginning."""


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
    return (
        name,
        kind,
        struct.pack(f"<{len(values)}{CODES[kind]}", *[value or 0 for value in values]),
        valid,
        None,
    )


CONNECTION_KINDS = {
    "id": "u32",
    "proto": "str",
    "a_addr": "str",
    "a_port": "u16",
    "b_addr": "str",
    "b_port": "u16",
    "start_s": "f64",
    "duration_s": "f64",
    "initial_rtt_ms": "f64",
    "syn_seen": "bool",
    "end": "str",
    "vantage": "str",
    "mptcp": "bool",
    "interface": "u32",
    "packets": "u64",
    "bytes": "u64",
    "duplicates": "u64",
    "capture_gap_bytes": "u64",
}
CONNECTIONS: list[tuple[Any, ...]] = [
    (
        0,
        "tcp",
        "10.77.0.1",
        40404,
        "10.77.0.2",
        5201,
        0.0,
        30.0,
        51.0,
        True,
        "fin",
        "a",
        False,
        0,
        21000,
        15_900_000,
        0,
        0,
    ),
    (
        1,
        "tcp",
        "2001:db8:0:0:0:0:0:1",
        50000,
        "2001:db8:85a3:8d3:1319:8a2e:370:7348",
        443,
        1.0,
        0.5,
        None,
        False,
        "open",
        "unknown",
        False,
        0,
        12,
        3_400,
        1,
        1448,
    ),
    (
        2,
        "udp",
        "10.77.0.1",
        6000,
        "10.77.0.2",
        6001,
        0.5,
        29.0,
        None,
        False,
        "open",
        "unknown",
        False,
        0,
        300,
        42_000,
        0,
        0,
    ),
]

COUNTS = [
    "retransmissions",
    "retransmitted_bytes",
    "retransmissions_fast",
    "retransmissions_timeout",
    "retransmissions_tail_probe",
    "retransmissions_spurious",
    "timeouts",
    "out_of_order",
]
MORE_COUNTS = ["ambiguous", "dup_acks", "sack_blocks", "dsacks"]


def statistic(name: str, count: str = "u64") -> dict[str, str]:
    """The columns of a statistic."""
    return {
        f"{name}_{part}": count if part == "count" else "f64"
        for part in ("count", "min", "p50", "p95", "p99", "max")
    }


FLOW_KINDS: dict[str, str] = {
    **dict.fromkeys(("id", "connection"), "u32"),
    **dict.fromkeys(("packets", "data_packets", "wire_bytes", "payload_bytes", "bytes"), "u64"),
    "active_s": "f64",
    **dict.fromkeys(("goodput_bps", "peak_bps"), "u64"),
    "mss_bytes": "u32",
    **dict.fromkeys(("vantage", "rtt_method"), "str"),
    **statistic("rtt_ms"),
    "initial_rtt_ms": "f64",
    **statistic("loaded_rtt_ms"),
    **statistic("queue_ms"),
    **statistic("in_flight_bytes"),
    "in_flight_plain_bytes_max": "u64",
    **dict.fromkeys(("rwnd_bytes_min", "rwnd_bytes_max", "rwnd_bytes_last"), "u64"),
    "window_scale": "u8",
    "window_scale_inferred": "bool",
    **statistic("window_utilisation_pct"),
    "window_full_count": "u64",
    **dict.fromkeys(
        ("window_full_s", "window_full_share", "window_full_first_s", "window_full_rtt_ms"), "f64"
    ),
    "zero_window_count": "u64",
    **dict.fromkeys(("zero_window_s", "zero_window_first_s"), "f64"),
    **dict.fromkeys(("zero_window_probes", "keep_alives", *COUNTS), "u64"),
    "reordering_ms_max": "f64",
    **dict.fromkeys(MORE_COUNTS, "u64"),
    "loss_rate": "f64",
    **dict.fromkeys(("ecn_ce", "ecn_ece", "idle_count"), "u64"),
    "idle_s": "f64",
    **dict.fromkeys(("ack_bursts", "ack_burst_bytes_max", "data_burst_bytes_max"), "u64"),
    "ack_silence_max_ms": "f64",
    "bdp_bytes": "u64",
    **dict.fromkeys(("in_flight_over_bdp", "rtt_ceiling_ms"), "f64"),
    "unlimited_goodput_bps": "u64",
    **{f"share_{name}": "f64" for name in LIMITS},
    "limit": "str",
    "grade": "str",
}
# What a flow without data has: counts of 0, text where there is always some, nothing measured.
ALWAYS = {
    "active_s": 0.0,
    "zero_window_s": 0.0,
    "window_full_s": 0.0,
    "idle_s": 0.0,
    "ack_silence_max_ms": 0.0,
}


def quantiles(name: str, *values: float) -> dict[str, float]:
    """count, min, p50, p95, p99, max."""
    return dict(
        zip(
            (f"{name}_{part}" for part in ("count", "min", "p50", "p95", "p99", "max")),
            values,
            strict=True,
        )
    )


def flow_row(id_: int, **known: Any) -> dict[str, Any]:
    """A flow with everything not known left unmeasured."""
    row: dict[str, Any] = {}
    for name, kind in FLOW_KINDS.items():
        nullable = name.endswith(("_bps", "_count")) and name not in (
            "window_full_count",
            "zero_window_count",
            "idle_count",
        )
        nullable |= name in (
            "bdp_bytes",
            "in_flight_plain_bytes_max",
            "window_scale",
        ) or name.startswith("rwnd_bytes")
        row[name] = 0 if kind[0] in "u" and not nullable else None
    row |= ALWAYS | {
        "id": id_,
        "connection": id_ // 2,
        "vantage": "unknown",
        "rtt_method": "none",
        "window_scale_inferred": False,
    }
    return row | known


def flows(upload_bps: int, bloated: bool) -> list[dict[str, Any]]:
    """Six flows; the first is the interesting one."""
    rtt = (
        (9000, 50.2, 800.0, 2100.0, 2300.0, 2411.0)
        if bloated
        else (9000, 50.1, 61.0, 75.0, 80.0, 92.0)
    )
    queue = (
        (8000, 0.0, 750.0, 2040.0, 2250.0, 2361.0)
        if bloated
        else (8000, 0.0, 11.0, 25.0, 30.0, 42.0)
    )
    flight = (
        (10000, 1448.0, 400e3, 1.04e6, 1.05e6, 1.05e6)
        if bloated
        else (10000, 1448.0, 30e3, 45e3, 50e3, 60e3)
    )
    shares = (
        {"receive_window": 0.63, "bufferbloat": 0.3, "slow_start": 0.07}
        if bloated
        else {"bottleneck": 0.95, "slow_start": 0.05}
    )
    return [
        flow_row(
            0,
            packets=11_000,
            data_packets=10_800,
            wire_bytes=15_800_000,
            payload_bytes=15_200_000,
            bytes=15_000_000,
            active_s=29.9,
            goodput_bps=upload_bps,
            peak_bps=4_400_000,
            mss_bytes=1448,
            vantage="sender",
            rtt_method="seq_ack",
            **quantiles("rtt_ms", *rtt),
            initial_rtt_ms=51.0,
            **quantiles("loaded_rtt_ms", *rtt),
            **quantiles("queue_ms", *queue),
            **quantiles("in_flight_bytes", *flight),
            in_flight_plain_bytes_max=int(flight[5]),
            rwnd_bytes_min=65_000,
            rwnd_bytes_max=1_050_000,
            rwnd_bytes_last=1_050_000,
            window_scale=7,
            **quantiles(
                "window_utilisation_pct", 10_000, 1.0, 40.0, 99.0 if bloated else 6.0, 100.0, 100.0
            ),
            window_full_count=6000 if bloated else 0,
            window_full_s=18.8 if bloated else 0.0,
            window_full_share=0.63 if bloated else 0.0,
            window_full_first_s=11.2 if bloated else None,
            window_full_rtt_ms=1800.0 if bloated else None,
            retransmissions=12 if bloated else 0,
            retransmitted_bytes=12 * 1448 if bloated else 0,
            retransmissions_fast=11 if bloated else 0,
            retransmissions_timeout=1 if bloated else 0,
            timeouts=1 if bloated else 0,
            loss_rate=0.0011 if bloated else 0.0,
            bdp_bytes=27_000,
            in_flight_over_bdp=38.5 if bloated else 1.7,
            rtt_ceiling_ms=1909.0,
            unlimited_goodput_bps=4_400_000 if bloated else None,
            limit=max(shares, key=lambda name: shares[name]),
            grade="F" if bloated else "A",
            **{f"share_{name}": shares.get(name, 0.0) for name in LIMITS},
        ),
        flow_row(1, packets=10_000, wire_bytes=520_000, dup_acks=40, window_scale=7),
        flow_row(
            2,
            packets=7,
            data_packets=2,
            wire_bytes=900,
            payload_bytes=400,
            bytes=400,
            active_s=0.0,
            mss_bytes=1428,
            window_scale=3,
            window_scale_inferred=True,
        ),
        flow_row(
            3,
            packets=5,
            data_packets=3,
            wire_bytes=2_500,
            payload_bytes=2_200,
            bytes=2_200,
            active_s=0.2,
            goodput_bps=88_000,
            mss_bytes=1428,
        ),
        flow_row(4, packets=300, data_packets=300, wire_bytes=42_000, payload_bytes=33_600),
        flow_row(5),
    ]


FINDING_KINDS = {
    "rule": "str",
    "severity": "str",
    "flow": "u32",
    "from_s": "f64",
    "to_s": "f64",
    "values": "str",
    "text": "str",
    "cure": "str",
}
FINDINGS: list[tuple[Any, ...]] = [
    (
        "capture-quality",
        "info",
        None,
        0.0,
        30.0,
        '{"without_syn": 1}',
        "One connection began before the capture did, so its window scale is a guess.",
        "Start the capture first.",
    ),
    (
        "bufferbloat",
        "serious",
        0,
        10.1,
        30.0,
        '{"queue_ms_p95": 2040.0, "grade": "F"}',
        "A standing queue of 2.0 s (p95) stood in the way from 10.1 s on: calls and games are unusable, web pages slow.",
        "A queue discipline such as fq_codel at the bottleneck, or BBR at the sender.",
    ),
    (
        "receive-window",
        "warning",
        0,
        11.2,
        30.0,
        '{"window_full_share": 0.63}',
        "The receive window was full 63 % of the time, from 11.2 s on.",
        "Less queue in the path; a larger window would only fill more of it.",
    ),
]


def series(kind: str, wanted: Any) -> list[Column]:
    """Made-up series of the flows that carry data; a connection list is honoured."""
    ids = [id_ for id_ in (0, 3, 4) if wanted == "all" or id_ // 2 in wanted]
    if kind == "samples":
        bins = [(id_, step) for id_ in ids for step in range(300 if id_ == 0 else 2)]
        rising = [50 + 2000 * max(step - 100, 0) / 200 if id_ == 0 else None for id_, step in bins]
        return [
            column("flow", "u32", [id_ for id_, _ in bins]),
            column("t_s", "f64", [step / 10 for _, step in bins]),
            column("span_s", "f32", [0.1 for _ in bins]),
            column("sent_bytes", "u64", [50_000 for _ in bins]),
            column(
                "delivered_bytes", "u64", [int(50_000 * (1 + math.sin(step))) for _, step in bins]
            ),
            column("goodput_bps", "f64", [4e6 * (1 + math.sin(step)) for _, step in bins]),
            *(column(name, "f32", rising) for name in ("rtt_ms_min", "rtt_ms", "rtt_ms_max")),
            column(
                "in_flight_bytes",
                "u64",
                [None if rtt is None else int(rtt * 500) for rtt in rising],
            ),
            column("rwnd_bytes", "u64", [1_050_000 for _ in bins]),
            column("window_full_s", "f32", [0.0 for _ in bins]),
            column("retransmissions", "u32", [0 for _ in bins]),
            column(
                "limit",
                "str",
                ["receive_window" if step > 110 else "bottleneck" for _, step in bins],
            ),
        ]
    if kind == "events":
        return [
            column("flow", "u32", ids),
            column("t_s", "f64", [1.5 for _ in ids]),
            column("kind", "str", ["retransmission_fast" for _ in ids]),
            column("value", "f64", [1448.0 for _ in ids]),
            column("seq", "u64", [1449 for _ in ids]),
        ]
    return [
        column("flow", "u32", ids),
        column("t_s", "f64", [0.1 for _ in ids]),
        column("kind", "u8", [0 for _ in ids]),
        column("from_seq", "u64", [1 for _ in ids]),
        column("to_seq", "u64", [1449 for _ in ids]),
    ]


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
    rows = flows(4_010_000 if bloated else 3_980_000, bloated)
    tables = {
        "connections": [
            column(name, kind, [row[place] for row in CONNECTIONS])
            for place, (name, kind) in enumerate(CONNECTION_KINDS.items())
        ],
        "flows": [
            column(name, kind, [row[name] for row in rows]) for name, kind in FLOW_KINDS.items()
        ],
        "findings": [
            column(name, kind, [row[place] for row in (FINDINGS if bloated else FINDINGS[:1])])
            for place, (name, kind) in enumerate(FINDING_KINDS.items())
        ],
    }
    tables |= {kind: series(kind, wanted) for kind, wanted in asked.items() if wanted is not None}
    run = {
        "format": 1,
        "tool": f"unbloat {version}",
        "files": list(paths),
        "linktypes": ["raw ip"],
        "interfaces": ["rmnet0"],
        "start_s": 1_700_000_000.5,
        "duration_s": 30.0,
        "packets": 21_312,
        "bytes": 15_945_400,
        "tcp_packets": 21_012,
        "udp_packets": 300,
        "icmp_packets": 0,
        "other_packets": 0,
        "not_ip_packets": 0,
        "broken_packets": 0,
        "fragments": 0,
        "duplicates": 1,
        "warnings": [
            f"{paths[0]}: cut off in packet 21313 (needs 1514 bytes, 600 left); what came before was analysed"
        ],
    }
    return {"run": run, "tables": tables}


def algorithms() -> list[dict[str, Any]]:
    """An algorithm of each of two families, of the same name."""
    return [
        {
            "family": family,
            "name": "fixed",
            "about": f"a {family} that stays",
            "source": "none",
            "params": [],
        }
        for family in ("window law", "medium")
    ]


def scenario_metrics() -> list[tuple[str, str, bool, str]]:
    """Two metrics."""
    return [
        ("flow_rtt_ms", "flow", True, "round trips"),
        ("fairness", "run", False, "Jain's index"),
    ]


def rules() -> list[tuple[str, str, str, str]]:
    """Two rules."""
    return [
        (
            "bufferbloat",
            "a standing queue adds delay under load",
            "DSLReports' steps",
            "Signal: queueing delay.\n\nCure: fq_codel.",
        ),
        (
            "receive-window",
            "the receive window stops the sender",
            "RFC 9293 section 3.8.6",
            "Signal: less than one MSS left.",
        ),
    ]


def linktypes() -> list[tuple[int, str]]:
    """Two link types."""
    return [(1, "ETHERNET"), (276, "LINUX_SLL2")]
