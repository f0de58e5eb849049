"""Chooses the flows of the labelled set from public captures, by a rule that was fixed before any of them was labelled.

A flow is one direction of a TCP connection that carries data, as tshark follows it (`tcp.stream`); encapsulated ones count
by their innermost header. Each flow has a stratum: size (data packets: 1-10, 11-49, 50-499, 500 and more), vantage (by the
two halves of the handshake: one of them below 12 % of the whole lies beside the capture; `unknown` without a handshake),
loss (tshark marks a retransmission in this direction) and handshake (both SYNs seen). Flows are drawn in turn from all
strata, the order within a stratum by seed, at most `PER_FILE` of one capture and at most `SHORT` of the shortest size,
since those are mostly too short to judge. A capture's flows are all in one half, so that nothing learnt from the tuning half is
known of the test half.

    python tests/verdicts/choose.py CAPTURES > tests/verdicts/flows.jsonl
"""

import collections
import json
import pathlib
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

#: Written down before the first draw.
SEED = 20261124
FLOWS = 132
PER_FILE = 8
SHORT = 24
#: A half of the handshake below this share of the whole lies beside the capture, as in docs/measures.md.
BESIDE = 0.12
FIELDS = (
    "frame.number", "frame.time_epoch", "tcp.stream", "ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst", "tcp.dstport",
    "tcp.len", "tcp.flags.syn", "tcp.flags.ack", "tcp.analysis.retransmission",
)  # fmt: skip


def packets(capture: pathlib.Path) -> Iterator[dict[str, str]]:
    """Every TCP packet of a capture, as tshark dissects it. What tshark cannot open has none."""
    command = ["tshark", "-r", str(capture), "-Y", "tcp", "-T", "fields", "-E", "occurrence=l"]
    for field in FIELDS:
        command += ["-e", field]
    for line in subprocess.run(
        command, capture_output=True, text=True, check=False
    ).stdout.splitlines():
        row = dict(zip(FIELDS, line.split("\t"), strict=False))
        if len(row) == len(FIELDS) and row["tcp.stream"] and row["tcp.srcport"]:
            yield row


def flows_of(capture: pathlib.Path, name: str) -> list[dict[str, Any]]:
    """The flows of one capture with what their stratum needs."""
    flows: dict[tuple[int, str], dict[str, Any]] = {}
    handshakes: dict[int, dict[str, tuple[float, str]]] = collections.defaultdict(dict)
    for row in packets(capture):
        stream, now = int(row["tcp.stream"]), float(row["frame.time_epoch"])
        src = f"{row['ip.src'] or row['ipv6.src']} {row['tcp.srcport']}"
        dst = f"{row['ip.dst'] or row['ipv6.dst']} {row['tcp.dstport']}"
        syn, ack = (row[f"tcp.flags.{flag}"] in ("1", "True") for flag in ("syn", "ack"))
        times = handshakes[stream]
        if syn:
            times.setdefault("syn_ack" if ack else "syn", (now, src))
        elif ack and "syn_ack" in times and src != times["syn_ack"][1]:
            times.setdefault("ack", (now, src))
        size = int(row["tcp.len"] or 0)
        if size == 0:
            continue
        flow = flows.setdefault(
            (stream, src),
            {
                "file": name,
                "stream": stream,
                "src": src,
                "dst": dst,
                "first_frame": int(row["frame.number"]),
                "first_s": now,
                "bytes": 0,
                "packets": 0,
                "loss": False,
            },
        )
        flow["bytes"] += size
        flow["packets"] += 1
        flow["loss"] |= bool(row["tcp.analysis.retransmission"])
    for (stream, src), flow in flows.items():
        flow["handshake"] = {"syn", "syn_ack"} <= handshakes[stream].keys()
        flow["vantage"] = vantage(handshakes[stream], src)
        flow["size"] = next(str(limit) for limit in (500, 50, 11, 1) if flow["packets"] >= limit)
    return list(flows.values())


def vantage(times: dict[str, tuple[float, str]], src: str) -> str:
    """Where the capture was taken, seen from the flow that `src` sends."""
    if not {"syn", "syn_ack", "ack"} <= times.keys():
        return "unknown"
    far, near = times["syn_ack"][0] - times["syn"][0], times["ack"][0] - times["syn_ack"][0]
    if far + near <= 0 or min(far, near) > BESIDE * (far + near):
        return "middle"
    beside = times["syn"][1] if near < far else times["syn_ack"][1]
    return "sender" if beside == src else "receiver"


def choose(
    flows: list[dict[str, Any]],
    random_order: random.Random,
    number: int,
    most: int,
    most_short: int,
) -> list[dict[str, Any]]:
    """The flows of a draw: in turn from each stratum, `most` of a capture, `most_short` of the shortest size."""
    strata: dict[tuple[str, str, bool, bool], list[dict[str, Any]]] = collections.defaultdict(list)
    for flow in sorted(flows, key=lambda flow: (flow["file"], flow["first_frame"])):
        strata[(flow["size"], flow["vantage"], flow["loss"], flow["handshake"])].append(flow)
    for stratum in strata.values():
        random_order.shuffle(stratum)
    chosen: list[dict[str, Any]] = []
    per_file: collections.Counter[str] = collections.Counter()
    while len(chosen) < number and any(strata.values()):
        for key in sorted(strata):
            short = sum(flow["size"] == "1" for flow in chosen)
            while strata[key]:
                flow = strata[key].pop()
                if per_file[flow["file"]] < most and not (
                    flow["size"] == "1" and short >= most_short
                ):
                    per_file[flow["file"]] += 1
                    chosen.append(flow)
                    break
            if len(chosen) == number:
                break
    return chosen


def halve(chosen: list[dict[str, Any]]) -> None:
    """Writes into each flow whether it is of the tuning or of the test half: all of a capture in one, both about as large."""
    count = collections.Counter(flow["file"] for flow in chosen)
    names = sorted(count)
    random.Random(SEED + 1).shuffle(names)
    halves = {"tuning": 0, "test": 0}
    of = {}
    for name in names:
        half = min(halves, key=halves.__getitem__)
        of[name] = half
        halves[half] += count[name]
    for flow in chosen:
        flow["half"] = of[flow["file"]]


def main() -> None:
    """Prints one line of JSON for each flow of the set."""
    root = pathlib.Path(sys.argv[1])
    flows = [
        flow
        for capture in sorted(root.rglob("*"))
        if capture.is_file()
        for flow in flows_of(capture, str(capture.relative_to(root)))
    ]
    chosen = choose(flows, random.Random(SEED), FLOWS, PER_FILE, SHORT)
    halve(chosen)
    for flow in sorted(chosen, key=lambda flow: (flow["file"], flow["first_frame"])):
        print(json.dumps(flow))


if __name__ == "__main__":
    main()
