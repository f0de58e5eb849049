"""A result of unbloat-measure with its samples, made of formulas: every figure in it is known."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

START_S = 1_700_000_000.0
RTT_MS = 20.0
# Load → what it adds, its direction, when it begins, is measured, ends.
LOADS = {"down": (50.0, "down", 1.0, 2.0, 5.0), "up": (250.0, "up", 6.0, 7.0, 10.0)}
END_S = 11.0
RATE_BPS = 8e6
# Each fortieth probe of the upload is lost on its way up.
LOST_EVERY = 40


def added(t_s: float) -> tuple[float, float]:
    """Added delay down and up: the upload's fills its queue within a second."""
    down = LOADS["down"][0] if 1.0 <= t_s < 5.0 else 0.0
    up = LOADS["up"][0] * min(t_s - 6.0, 1.0) if 6.0 <= t_s < 10.0 else 0.0
    return down, up


def probes() -> list[dict[str, Any]]:
    """Fifty a second."""
    rows = []
    for n in range(int(END_S * 50)):
        t_s = n / 50
        down, up = added(t_s)
        lost = up > 0 and n % LOST_EVERY == 0
        rows.append(
            {
                "t_s": t_s,
                "rtt_ms": None if lost else RTT_MS + down + up,
                "added_down_ms": None if lost else down,
                "added_up_ms": None if lost else up,
                "lost": "up" if lost else None,
            }
        )
    return rows


def counts(direction: str) -> list[dict[str, Any]]:
    """Bytes at the receiver, ten times a second."""
    _, _, begin, _, end = LOADS[direction]
    times = [n / 10 for n in range(int(END_S * 10))]
    return [{"t_s": t, "bytes": round(max(min(t, end) - begin, 0.0) * RATE_BPS / 8)} for t in times]


def socket(t_s: float, begin_s: float) -> dict[str, Any]:
    """What a sender's kernel says."""
    return {
        "t_s": t_s,
        "congestion_control": "cubic",
        "acked_bytes": round((t_s - begin_s) * RATE_BPS / 8),
        "rtt_ms": RTT_MS + sum(added(t_s)),
        "rtt_min_ms": RTT_MS,
        "cwnd_segments": 100,
        "in_flight_segments": 90,
        "mss_bytes": 1448,
        "notsent_bytes": 1000,
        "retransmissions": 3,
        "delivery_bps": int(RATE_BPS),
        "busy_s": t_s - begin_s,
        "rwnd_limited_s": 0.0,
        "sndbuf_limited_s": 0.0,
    }


def stream(name: str, port: int) -> dict[str, Any]:
    """One stream per load."""
    _, direction, begin, _, end = LOADS[name]
    rows = [socket(begin + n / 10, begin) for n in range(int((end - begin) * 10))]
    ends = {"at_client": rows, "at_server": []}
    if direction == "down":
        ends = {"at_client": [], "at_server": rows}
    return {
        "phase": name,
        "congestion_control_asked": None,
        "direction": direction,
        "client": f"10.0.0.1:{port}",
        "server": "10.0.0.2:26110",
        **ends,
    }


def delay(ms: float, loss: float = 0.0) -> dict[str, Any]:
    """A distribution of one value."""
    whole = [ms, ms, ms]
    return {"probes": 150, "loss": loss, "p50_ms": whole, "p75_ms": ms, "p90_ms": ms} | {
        "p95_ms": whole,
        "p99_ms": ["lost"] * 3 if loss else whole,
        "jitter_ms": 0.0,
    }


def phase(name: str, grade: str) -> dict[str, Any]:
    """The result of a load."""
    ms, direction, _, measured, end = LOADS[name]
    loss = 1 / LOST_EVERY if name == "up" else 0.0
    quiet = "up" if direction == "down" else "down"
    return {
        "phase": name,
        "congestion_control": None,
        "grade": {"of": name, "grades": [grade], "why": None},
        "usability": "calls stay usable <with noticeable> delay",
        "steady": True,
        "from_unix_s": START_S + measured,
        "until_unix_s": START_S + end,
        "goodput_down_bps": RATE_BPS if direction == "down" else None,
        "goodput_up_bps": RATE_BPS if direction == "up" else None,
        f"delay_{direction}": delay(ms, loss),
        f"delay_{quiet}": delay(0.0),
        "delay_rtt": delay(ms, loss),
        "handshakes": {
            "sent": 30,
            "lost": 0,
            "added_p50_ms": ms + 40.0,
            "later_ms": 40.0,
            "blocked": False,
            "differs": name == "up",
        },
        "quic_probes": {
            "sent": 15,
            "lost": 15 if name == "up" else 0,
            "added_p50_ms": None if name == "up" else ms,
            "later_ms": None if name == "up" else 0.0,
            "blocked": name == "up",
            "differs": name == "up",
        },
        "place": {"after": 1, "before": 2, "share": 0.95, "device": "the home router's uplink"}
        if name == "up"
        else None,
        "place_why": None if name == "up" else "no router on the way answers",
        "streams": [],
    }


def result() -> dict[str, Any]:
    """The whole."""
    idle = {"name": "idle", "congestion_control": None, "measured_s": None}
    loads = [
        {"name": name, "congestion_control": None}
        | {"from_s": begin, "measured_s": measured, "until_s": end}
        for name, (_, _, begin, measured, end) in LOADS.items()
    ]
    return {
        "at_unix_s": int(START_S),
        "host": "my-server",
        "surroundings": {
            "kernel": "6.1",
            "device": "eth0",
            "kind": "wired",
            "qdisc": "mq: fq_codel",
        },
        "complete": True,
        "ended": None,
        "rtt_min_ms": RTT_MS,
        "clock_skew_ppm": 3.0,
        "path_changed": False,
        "hops": [
            {"hop": 1, "address": "192.168.1.1", "rtt_min_ms": 1.0},
            {"hop": 2, "address": "100.64.0.1", "rtt_min_ms": 8.0},
        ],
        "phases": [phase("down", "B"), phase("up", "D")],
        "cures": [
            {
                "direction": "up",
                "name": "ACK windows (DRWA)",
                "on": "this host",
                "command": "sudo unbloat agent on",
                "effect": "uploads of this host stop filling the queue",
            }
        ],
        "samples": {
            "start_unix_s": START_S,
            "steps": [
                idle | {"from_s": 0.01, "until_s": 1.0},
                *loads,
                idle | {"from_s": 10.5, "until_s": END_S},
            ],
            "probes": probes(),
            "received_by_client": counts("down"),
            "received_by_server": counts("up"),
            "streams": [stream("down", 40_000), stream("up", 40_001)],
        },
    }


def program(folder: Path, body: str) -> Path:
    """A stand-in for unbloat-measure: a shell script that says its words, and then does what `body` says."""
    path = folder / "unbloat-measure"
    path.write_text(f'#!/bin/sh\necho "$@" > {folder}/words\n{body}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def environment(program: Path) -> dict[str, str]:
    """With that program in the place of ours."""
    return {**os.environ, "UNBLOAT_MEASURE": str(program)}
