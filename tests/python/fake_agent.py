#!/usr/bin/env python3
"""A stand-in for unbloat-agent: answers as the program does, from a life that `FAKE_AGENT` names."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

DOWN = {
    "cure": "receive",
    "remote": "192.0.2.7",
    "remote_port": 443,
    "local_port": 50_312,
    "age_ms": 12,
    "bytes": 31_457_280,
    "rate_bps": 7_690_000,
    "rtt_ms": 181.4,
    "rtt_min_ms": 60.6,
    "wanted_bytes": 174_800,
    "advertised_bytes": 176_128,
    "in_flight_bytes": 174_370,
    "queue_bytes": 116_120,
    "limit": "agent",
    "applied": True,
    "reapplied": 3,
}
UP = DOWN | {
    "cure": "acks up",
    "remote": "192.0.2.9",
    "rate_bps": 1_920_000,
    "rtt_ms": 1_204.0,
    "in_flight_bytes": 288_960,
    "queue_bytes": 274_400,
    "limit": "sender",
}
TEXT = """\
on for 12 min, process 4711
uplink wwan0: upload control: ACK-window rewriting: no modem reports on /run/unbloat/modem.sock
! congestion control: the kernel has no bbr

remote        cure    RTT ms   min Mbit/s  target    adv.  flight   queue limit
192.0.2.7:443 receive    181  60.6   7.69  175 KB  176 KB  174 KB  116 KB agent
192.0.2.9:443 acks up   1204  60.6   1.92  175 KB  176 KB  289 KB  274 KB sender"""
ON = {
    "ok": True,
    "state": "on",
    "problems": ["congestion control: the kernel has no bbr"],
    "flows": [UP, DOWN],
    "log": [
        "downloads: holding RTT at 3 times its minimum, for this whole host",
        "a name\x1b[31m that bites",
    ],
}
OFF = {"ok": True, "state": "off", "pending": 0}


def half(goodput: float, rtt: float | None) -> dict[str, Any]:
    """One half of a run."""
    none = {
        "bytes": 0.0,
        "goodput_bps": 0.0,
        "rtt_ms_min": None,
        "rtt_ms_p50": None,
        "rtt_ms_p95": None,
    }
    down = none | {"bytes": goodput, "goodput_bps": goodput, "rtt_ms_min": 60.0 if rtt else None}
    down |= {"rtt_ms_p50": rtt, "rtt_ms_p95": rtt and rtt * 1.3}
    probe = {"count": 20 if rtt else 0, "rtt_ms_p50": rtt, "rtt_ms_p95": rtt and rtt * 1.2}
    return {"seconds": 5.0, "downloads": down, "uploads": none, "probe": probe}


def measured(life: str) -> None:
    """A run, as it streams."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        say({"ok": False, "error": "interrupted; everything is as it was"})
        sys.exit(130)

    signal.signal(signal.SIGINT, interrupted)
    looks = 40
    for number in range(1, looks + 1):
        part = "before" if number <= 10 else "settling" if number <= 18 else "after"
        rtt = 1_500.0 if part == "before" else 180.0
        flow = DOWN | {"rtt_ms": rtt, "bytes": 480_000 * number}
        event = {
            "event": "look",
            "t_s": number / 2,
            "of_s": looks / 2,
            "part": part,
            "probe_ms": [rtt],
        }
        goodput = {"downloads": 7_690_000.0, "uploads": 0.0}
        say(event | {"goodput_bps": goodput, "status": ON | {"flows": [flow]}})
        if life == "slow":
            time.sleep(0.5)
    ends: dict[str, Any] = {
        "costs": (
            half(9e6, 400.0),
            half(6e6, 120.0),
            False,
            "Downloads: RTT fell, but at 67 % of the goodput.",
        ),
        "idle": (half(0.0, None), half(0.0, None), None, "Nothing flowed that could be compared."),
    }
    helped = half(7.7e6, 1_560.0), half(7.69e6, 181.0), True, "Downloads: it helped."
    before, after, verdict, text = ends.get(life, helped)
    done = {
        "ok": True,
        "event": "done",
        "before": before,
        "after": after,
        "helped": verdict,
        "verdict": text,
    }
    say(done)


def say(value: dict[str, Any]) -> None:
    """A line of JSON, or the line where that was not asked for."""
    print(json.dumps(value), flush=True)


def main(words: list[str]) -> int:
    """What the program would do."""
    life = os.environ.get("FAKE_AGENT", "on")
    names = ("plan", "on", "off", "status", "run", "features", "defaults", "serve")
    command = next(word for word in words if word in names)
    if any("=" not in word and before == "--set" for before, word in itertools.pairwise(words)):
        print(
            "error: invalid value 'lambda' for '--set <KEY=VALUE>': expected KEY=VALUE\n",
            file=sys.stderr,
        )
        return 2
    if life == "rights":
        error = "needs root: it loads BPF programs and changes sockets"
        if "--json" in words:
            say({"ok": False, "error": error})
        print(f"unbloat-agent: {error}", file=sys.stderr)
        return 1
    if life == "nonsense":
        print("hello")
        return 0
    if life == "unknown":
        print(
            "unbloat-agent: line 3: unknown key receive.lamda; did you mean lambda?",
            file=sys.stderr,
        )
        return 3
    if command == "run":
        measured(life)
    elif "--text" in words:
        say(OFF | {"text": "off"} if life == "off" else ON | {"text": TEXT})
    elif command == "on":
        say({"ok": True, "state": "set" if life == "set" else "on", "pid": 4711})
    else:
        print(*words)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
