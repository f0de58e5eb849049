"""What really happened on the emulated path, from the relay's log and the kernel's figures.

signal: `relay.log` (the order in which packets were sent, what became of each, the order in which they were delivered),
        TCP_INFO at the end of each connection, the namespaces' SNMP counters
model:  a segment is *resent* when the sender had sent its bytes before (send order is exact in the log); it is *visible*
        as such at the receiver when it arrives behind newer bytes; *late* is a first transmission that does so;
        *needless* is a resent segment all of whose bytes an earlier transmission brought to the receiver
action: one dictionary per pair
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DROPPED = ("queue", "loss", "kill", "blackout")


@dataclass
class Sent:
    """One packet as it entered the relay."""

    n: int
    us: int
    fate: str
    port: int  # of the side that is not 5201
    seq: int
    payload: int
    again: bool


@dataclass
class Direction:
    """One flow's data through the relay."""

    data: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    resent: int = 0
    resent_bytes: int = 0
    delivered: int = 0
    visible: int = 0
    hidden: int = 0
    late: int = 0
    needless: int = 0
    needless_delivered: int = 0
    duplicates: int = 0
    in_flight_max: int = 0
    waited_ms: list[float] = field(default_factory=list)
    transit_ms: list[float] = field(default_factory=list)
    back_ms: list[float] = field(default_factory=list)


def covered(spans: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether sorted, merged spans hold all of [start, end)."""
    return any(a <= start and end <= b for a, b in spans)


def add(spans: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Sorted, merged spans with one more."""
    for a, b in [s for s in spans if s[0] <= end and start <= s[1]]:
        start, end = min(a, start), max(b, end)
        spans.remove((a, b))
    spans.append((start, end))
    return sorted(spans)


def read(
    log: Path, way: str, since_us: int = 0
) -> tuple[Direction, dict[str, int], list[tuple[float, float]]]:
    """The data direction `way` (u or d); ACK packets lost and duplicated the other way; the queue over time.

    What came before `since_us` is followed, but not counted."""
    sent: dict[int, Sent] = {}
    flow, other = Direction(), {"lost": 0, "duplicates": 0}
    first: dict[int, int] = {}  # port → first sequence number, so that sequence numbers need no wrap
    top: dict[int, int] = {}  # port → end of what was sent
    edge: dict[int, int] = {}  # port → end of what was delivered
    seen: set[int] = set()
    arrived: set[int] = set()
    counted: set[int] = set()
    queue: list[tuple[float, float]] = []
    backlog: dict[int, tuple[int, int, int]] = {}  # other direction: number → port, ACK, time
    acked: dict[int, int] = {}
    for line in log.read_text().splitlines():
        word = line.split()
        if word[0] == "q":
            if word[2] == way and int(word[4]):
                queue.append((int(word[1]) / 1e6, int(word[3]) * 8e3 / int(word[4])))
        elif word[0] == "+":
            n, us, fate, flags, payload = int(word[1]), int(word[2]), word[4], int(word[11]), int(word[12])
            if word[5] != "6":
                continue
            if word[3] != way:
                other["lost"] += fate in DROPPED and us >= since_us
                port = int(word[8]) if word[7] == "5201" else int(word[7])
                backlog[n] = port, int(word[10]) if flags & 16 else 0, us
                continue
            port = int(word[7]) if word[8] == "5201" else int(word[8])
            if flags & 2:
                first[port] = int(word[9])
            if not payload:
                continue
            seq = (int(word[9]) - first[port] - 1) % 2**32
            again = seq < top.get(port, 0)
            top[port] = max(top.get(port, 0), seq + payload)
            sent[n] = Sent(n, us, fate, port, seq, payload, again)
            flow.in_flight_max = max(flow.in_flight_max, top[port] - acked.get(port, 0))
            if us < since_us:
                continue
            flow.data += 1
            counted.add(n)
            flow.resent += again
            flow.resent_bytes += payload if again else 0
            if fate in DROPPED:
                flow.dropped[fate] += 1
        elif word[3] != way:
            n = int(word[1])
            if n not in backlog:
                continue
            other["duplicates"] += n in seen and int(word[2]) >= since_us
            seen.add(n)
            port, ack, us = backlog[n]
            if int(word[2]) >= since_us:
                flow.back_ms.append((int(word[2]) - us) / 1e3)
            if port in first and ack:
                ahead = (ack - first[port] - 1) % 2**32
                acked[port] = max(acked.get(port, 0), ahead if ahead < 2**31 else 0)
        elif (packet := sent.get(int(word[1]))) is not None:
            end, port = packet.seq + packet.payload, packet.port
            counts = int(word[2]) >= since_us
            if packet.n in seen:
                flow.duplicates += counts
                continue
            seen.add(packet.n)
            behind = packet.seq < edge.get(port, 0)
            if counts:
                flow.delivered += 1
                flow.waited_ms.append(int(word[4]) / 1e3)
                flow.transit_ms.append((int(word[2]) - packet.us) / 1e3)
                flow.visible += packet.again and behind
                flow.hidden += packet.again and not behind
                flow.late += behind and not packet.again
            edge[port] = max(edge.get(port, 0), end)
            arrived.add(packet.n)
    # in the order of sending: what earlier transmissions bring
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for packet in sent.values():
        needless = packet.again and covered(spans[packet.port], packet.seq, packet.seq + packet.payload)
        if packet.n in counted and needless:
            flow.needless += 1
            flow.needless_delivered += packet.n in arrived
        if packet.n in arrived:
            spans[packet.port] = add(spans[packet.port], packet.seq, packet.seq + packet.payload)
    return flow, other, queue


def spread(values: list[float]) -> dict[str, float | None]:
    """Smallest, median, p95, largest."""
    ordered = sorted(values)
    at = {"min": 0.0, "p50": 0.5, "p95": 0.95, "max": 1.0}
    return {
        name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
        for name, share in at.items()
    }


def path(log: Path, way: str, since_us: int = 0) -> dict[str, Any]:
    """What the log says of the data in one direction."""
    flow, other, queue = read(log, way, since_us)
    return {
        "data": flow.data,
        "dropped": dict(flow.dropped),
        "resent": flow.resent,
        "resent_bytes": flow.resent_bytes,
        "delivered": flow.delivered,
        "resent_visible_at_receiver": flow.visible,
        "resent_hidden_at_receiver": flow.hidden,
        "late": flow.late,
        "needless": flow.needless,
        "needless_delivered": flow.needless_delivered,
        "duplicates": flow.duplicates,
        "in_flight_plain_max": flow.in_flight_max,
        "acks_lost": other["lost"],
        "acks_duplicated": other["duplicates"],
        "waited_ms": spread(flow.waited_ms),
        "transit_ms": spread(flow.transit_ms),
        "back_ms": spread(flow.back_ms),
        "queue": queue,
    }


def write(run: Path, name: str) -> None:
    """`truth.json` of one pair."""
    counters = json.loads((run / "counters.json").read_text())
    traffic = json.loads((run / "traffic.json").read_text())
    sender = next(t for t in traffic if "send" in t["argv"])
    receiver = next(t for t in traffic if "sink" in t["argv"])
    infos = [c["tcp_info"] for c in sender["report"]["connections"]]
    result: dict[str, Any] = {
        "name": name,
        "sender": sender["host"],
        "receiver": receiver["host"],
        "congestion": sender["report"]["connections"][0]["congestion"],
        "connections": len(infos),
        "bytes": sum(c["received"] for c in receiver["report"]["connections"]),
        "retransmissions": sum(i["total_retrans"] for i in infos),
        "retransmitted_bytes": sum(i["bytes_retrans"] for i in infos),
        "data_segments": sum(i["data_segs_out"] for i in infos),
        "data_segments_received": sum(
            c["tcp_info"]["data_segs_in"] for c in receiver["report"]["connections"]
        ),
        "dsacks": sum(i["dsack_dups"] for i in infos),
        "rwnd_limited_s": sum(i["rwnd_limited_us"] for i in infos) / 1e6,
        "busy_s": sum(i["busy_us"] for i in infos) / 1e6,
        "rtt_ms_min": min(i["min_rtt_us"] for i in infos) / 1e3,
        "sender_counters": counters[sender["host"]],
        "receiver_counters": counters[receiver["host"]],
    }
    if (run / "relay.log").exists():
        result["path"] = path(run / "relay.log", "u" if sender["host"] == "phone" else "d")
    (run / "truth.json").write_text(json.dumps(result, indent=1))


def write_cut(run: Path, name: str, source: Path, since_us: dict[str, int]) -> None:
    """`truth.json` of a pair whose captures begin at `since_us`: what came before is not in the files."""
    result = json.loads((source / "truth.json").read_text())
    way = "u" if result["sender"] == "phone" else "d"
    whole = result["path"]
    result["name"] = name
    result["path"] = path(source / "relay.log", way, since_us[result["receiver"]])
    sent = path(source / "relay.log", way, since_us[result["sender"]])
    result |= {
        "retransmissions": sent["resent"],
        "retransmitted_bytes": sent["resent_bytes"],
        "data_segments": sent["data"],
        # distinct bytes: what was there before the cut is gone
        "bytes": None,
        "resent_before_the_cut": whole["resent"] - sent["resent"],
    }
    (run / "truth.json").write_text(json.dumps(result, indent=1))
