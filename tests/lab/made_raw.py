"""The raw directory of a lab run, made out of a simulated one: its truth is known.

signal: a scenario · model: the simulator stands for the emulator, the kernel and the programs alike; its captures are the
captures, its tables what the emulator and the programs would have written · action: a directory and the run that it came from
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import unbloat
from unbloat import _native as native
from unbloat.run.run import Run
from unbloat.run.tables import Row

# Midnight of 2020-01-01: where the captures of the simulator begin.
T0_NS = 1_577_836_800 * 10**9
# IPv4 and TCP with timestamps.
HEADERS = 52
EMULATOR: Row = {
    "devices": [{"node": "client", "name": "up", "dropped": 0, "refused": 0, "offload": False}],
    "kernel_drops": 0,
    "lateness_us": {"p50": 40.0, "p95": 90.0, "p99": 120.0, "max": 400.0},
    "log_complete": True,
}
# What the simulator's drops are called by the emulator.
WHY = {"drop_overflow": "overflow", "drop_aqm": "aqm", "drop_link": "link"}


def raw_run(text: str, folder: Path, **options: Any) -> tuple[Run, Path]:
    """Simulates a scenario and lays its result down as the lab would."""
    run = unbloat.simulate(text, pcap=folder / "captures", **options)
    assert isinstance(run, Run)
    plan = json.loads(native.scenario_plan(text, overrides=[], seed=run.info["seed"], traces={}))
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "scenario.toml").write_text(text)
    (folder / "lab.json").write_text(
        json.dumps(
            {"t0_unix_ns": T0_NS, "kernel": "6.18.0", "offloads": {"up": True}, "warnings": []}
        )
    )
    for name in ("emu", "flows", "probes"):
        (folder / name).mkdir()
    (folder / "emu" / "emu.json").write_text(json.dumps(EMULATOR))
    links = {name: place for place, name in enumerate(run.info["links"])}
    write(
        folder / "emu" / "queues.jsonl",
        (row | {"link": links[row["link"]]} for row in run.queues.to_pylist()),
    )
    write(folder / "emu" / "stages.jsonl", (stage(row, links) for row in run.stages.to_pylist()))
    write(folder / "emu" / "losses.jsonl", losses(run, folder))
    for name in run.info["transfers"]:
        write(folder / "flows" / f"{name}.sender.jsonl", flow_lines(run, name))
    for name in run.info["probed"]:
        rows = [row for row in run.probes.to_pylist() if row["probe"] == name]
        keep = ("t_s", "rtt_ms", "owd_ms", "lost")
        write(
            folder / "probes" / f"{name}.jsonl",
            ({"kind": "probe"} | {key: row[key] for key in keep} for row in rows),
        )
    return run, folder


def write(path: Path, rows: Iterable[Row]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def stage(row: Row, links: dict[str, int]) -> Row:
    """A stage as the emulator writes it."""
    parts = ("count", "min", "p50", "p95", "p99", "max", "mean")
    delays = {part: row[f"delay_ms_{part}"] for part in parts}
    kept = ("stage", "packets", "drops_overflow", "drops_aqm", "lost_on_link", "throughput_bps")
    return {"link": links[row["link"]], "delay_ms": delays if delays["count"] else None} | {
        name: row[name] for name in kept
    }


def ends(run: Run, connection: int) -> tuple[str, str]:
    """Both ends of a connection."""
    row = run.connection(connection)
    return f"{row['a_addr']}:{row['a_port']}", f"{row['b_addr']}:{row['b_port']}"


def losses(run: Run, folder: Path) -> list[Row]:
    """What the network lost, with the sequence numbers of the captures."""
    first: dict[tuple[str, str], int] = {}
    for path in sorted((folder / "captures").iterdir()):
        result: Any = native.analyze([str(path)], span=(0, 1 << 63))
        seen = unbloat.analyze(path)
        for row in seen.connections.to_pylist():
            a, b = f"{row['a_addr']}:{row['a_port']}", f"{row['b_addr']}:{row['b_port']}"
            for way, pair in enumerate(((a, b), (b, a))):
                if result["first_seqs"][2 * row["id"] + way] is not None:
                    first[pair] = result["first_seqs"][2 * row["id"] + way]
    rows = []
    for event in run.events().to_pylist():
        if event["kind"] not in WHY:
            continue
        a, b = ends(run, event["flow"] // 2)[:: 1 if event["flow"] % 2 == 0 else -1]
        rows.append(
            {
                "t_s": event["t_s"],
                "link": 0,
                "why": WHY[event["kind"]],
                "proto": 6,
                **dict(zip(("src", "sport"), a.split(":"), strict=True)),
                **dict(zip(("dst", "dport"), b.split(":"), strict=True)),
                "bytes": int(event["value"]) + HEADERS,
                "seq": (event["seq"] + first[a, b]) % (1 << 32),
            }
        )
    return rows


def flow_lines(run: Run, transfer: str) -> list[Row]:
    """What the program at the sender's end reports of a transfer."""
    rows: list[Row] = []
    for flow in run.flows.to_pylist():
        if flow["transfer"] != transfer:
            continue
        local, remote = ends(run, flow["connection"])[:: 1 if flow["id"] % 2 == 0 else -1]
        start = run.connection(flow["connection"])["start_s"]
        about = {"local": local, "remote": remote}
        rows.append(
            {
                "kind": "connection",
                **about,
                "t_s": start,
                "congestion": flow["congestion"],
                "transfer": transfer,
                "data": "local",
            }
        )
        delivered = 0
        for row in run.samples(flow=flow["id"]).to_pylist():
            delivered += row["delivered_bytes"]
            rows.append(sample(row, flow["mss_bytes"], delivered) | about)
    rows += [
        {"kind": "app", "t_s": row["t_s"], "name": row["kind"], "value": row["value"]}
        for row in run.apps.to_pylist()
        if row["transfer"] == transfer
    ]
    return rows


def sample(row: Row, mss: int, delivered: int) -> Row:
    """A socket's sample at the end of a bin."""
    return {
        "kind": "sample",
        "t_s": row["t_s"] + row["span_s"],
        "cwnd_segments": row["cwnd_bytes"] / mss,
        "ssthresh_segments": None if row["ssthresh_bytes"] is None else row["ssthresh_bytes"] / mss,
        "mss_bytes": mss,
        "srtt_ms": row["rtt_ms"],
        "rtt_min_ms": row["rtt_ms_min"],
        "in_flight_segments": row["in_flight_bytes"] / mss,
        "retransmits": row["retransmissions"],
        "pacing_bps": row["pacing_bps"],
        "bytes_acked": delivered,
        "send_window_bytes": row["rwnd_bytes"],
    }
