"""What really happened on the emulated path, from the relay's log and the kernel's figures.

signal: `relay.log` (the order in which packets were sent, what became of each, the order in which they were delivered),
        TCP_INFO at the end of each connection, the namespaces' SNMP counters
model:  a segment is *retransmitted* when the sender had sent its bytes before (send order is exact
        in the log). It is *visible* as such at the receiver when it arrives behind newer bytes;
        *late* is a first transmission that does so. A retransmission is *spurious* when earlier
        transmissions brought all of its bytes to the receiver
action: one dictionary per pair
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reported_reordering import ReportedReordering

SYN, RST, ACK = 2, 4, 16
# Lateness of the relay below this is within the tolerances of the times.
STALL_US = 2_000
# Of a quantile: the least that it may be, itself, the most.
Held = dict[str, tuple[float, float, float]]
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
    echo: int  # TSecr


@dataclass
class Direction:
    """One flow's data through the relay, and the ACKs that came back."""

    data: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    retransmitted: int = 0
    retransmitted_bytes: int = 0
    delivered: int = 0
    visible: int = 0
    hidden: int = 0
    late: int = 0
    spurious: int = 0
    spurious_delivered: int = 0
    spurious_reported: int = 0
    duplicates: int = 0
    copy_ms_max: float = 0.0  # how far behind its original a duplicate came
    late_reported: int = 0  # of `late`, those that the ACKs reported to the sender
    acks_lost: int = 0
    acks_duplicated: int = 0
    in_flight_max: int = 0
    stalls: list[tuple[int, int]] = field(
        default_factory=list
    )  # from when to when the relay itself stood still, in us
    waited_ms: list[float] = field(default_factory=list)
    transit_ms: list[float] = field(default_factory=list)
    back_ms: list[float] = field(default_factory=list)
    trip_ms_min: dict[str, float | None] = field(default_factory=dict)  # at either end
    trips_ms: list[tuple[int, float]] = field(
        default_factory=list
    )  # when a first transmission was sent, in us; its transit and the way back of the ACK behind it
    queue: list[tuple[float, float]] = field(default_factory=list)  # second, ms of queue


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


class Reader:
    """Follows one data direction `way` (u or d) line by line.

    At either end the first `skip` data packets, and what happened before them, are followed, but not counted.
    """

    def __init__(self, way: str, skip: int) -> None:
        self.way, self.skip = way, skip
        self.flow = Direction()
        self.sent: dict[int, Sent] = {}
        self.deliveries = 0
        self.first: dict[
            int, int
        ] = {}  # port → first sequence number, so that numbers need no wrap
        self.top: dict[int, int] = {}  # port → end of what was sent
        self.edge: dict[int, int] = {}  # port → end of what was delivered
        self.acked: dict[int, int] = {}  # port → end of what the sender knows to be delivered
        self.reported: dict[int, ReportedReordering] = defaultdict(ReportedReordering)
        self.seen: dict[int, int] = {}  # number → when it was first delivered, in us
        self.answers: dict[int, list[str]] = {}  # number → line of a packet of the other way
        self.back: dict[int, list[tuple[int, float]]] = defaultdict(
            list
        )  # port → when an answer was sent, in us, and its transit, in ms
        self.counted: set[int] = set()

    def relative(self, port: int, wire: str) -> int:
        return (int(wire) - self.first[port] - 1) % 2**32

    def began(self) -> bool:
        """Whether the sender's capture has begun."""
        return self.skip == 0 or len(self.sent) > self.skip

    def line(self, word: list[str]) -> None:
        if word[0] == "q":
            if word[2] == self.way and int(word[4]):
                self.flow.queue.append((int(word[1]) / 1e6, int(word[3]) * 8e3 / int(word[4])))
        elif word[0] == "w":
            self.flow.stalls.append((int(word[1]) - int(word[2]), int(word[1])))
        elif word[0] == "+":
            if word[5] == "6":
                (self.data if word[3] == self.way else self.answer)(word)
        elif int(word[1]) in self.answers:
            self.answer_delivered(int(word[1]), int(word[2]))
        elif (packet := self.sent.get(int(word[1]))) is not None:
            self.delivered(packet, int(word[2]), int(word[4]))

    def answer(self, word: list[str]) -> None:
        self.flow.acks_lost += word[4] in DROPPED and self.began()
        self.answers[int(word[1])] = word

    def answer_delivered(self, n: int, us: int) -> None:
        word = self.answers[n]
        port = int(word[8]) if word[7] == "5201" else int(word[7])
        if self.began():
            self.flow.acks_duplicated += n in self.seen
            self.flow.back_ms.append((us - int(word[2])) / 1e3)
        if n not in self.seen:
            self.seen[n] = us
            self.back[port].append((int(word[2]), (us - int(word[2])) / 1e3))
        if port not in self.first or not int(word[11]) & ACK or int(word[11]) & RST:
            return
        edge = self.relative(port, word[10])
        if edge >= 2**31:
            return
        self.acked[port] = max(self.acked.get(port, 0), edge)
        spans = [span.split("-") for span in word[16].split(",")] if word[16] != "-" else []
        blocks = [(self.relative(port, a), self.relative(port, b)) for a, b in spans]
        reported = self.reported[port]
        late, spurious = reported.late, reported.spurious
        echo = None if word[15] == "0/0" else int(word[15].split("/")[1])
        reported.ack(edge, blocks, echo)
        if self.began():
            self.flow.late_reported += reported.late - late
            self.flow.spurious_reported += reported.spurious - spurious

    def data(self, word: list[str]) -> None:
        n, us, fate, payload = int(word[1]), int(word[2]), word[4], int(word[12])
        port = int(word[7]) if word[8] == "5201" else int(word[8])
        if int(word[11]) & SYN:
            self.first[port] = int(word[9])
        if not payload:
            return
        seq, top, flow = self.relative(port, word[9]), self.top.get(port, 0), self.flow
        again = seq < top
        if again:
            self.reported[port].sent_again(seq, seq + payload, int(word[15].split("/")[0]))
        else:
            self.reported[port].sent(seq, seq + payload)
        self.top[port] = max(top, seq + payload)
        self.sent[n] = Sent(n, us, fate, port, seq, payload, again, int(word[15].split("/")[1]))
        if not self.began():
            return
        flow.in_flight_max = max(flow.in_flight_max, self.top[port] - self.acked.get(port, 0))
        flow.data += 1
        self.counted.add(n)
        flow.retransmitted += again
        flow.retransmitted_bytes += payload if again else 0
        if fate in DROPPED:
            flow.dropped[fate] += 1

    def delivered(self, packet: Sent, us: int, waited_us: int) -> None:
        flow, port = self.flow, packet.port
        self.deliveries += 1
        counts = self.deliveries > self.skip
        if packet.n in self.seen:
            flow.duplicates += counts
            flow.copy_ms_max = max(flow.copy_ms_max, (us - self.seen[packet.n]) / 1e3)
            return
        self.seen[packet.n] = us
        behind = packet.seq < self.edge.get(port, 0)
        self.edge[port] = max(self.edge.get(port, 0), packet.seq + packet.payload)
        if not counts:
            return
        transit = (us - packet.us) / 1e3
        flow.delivered += 1
        flow.waited_ms.append(waited_us / 1e3)
        flow.transit_ms.append(transit)
        flow.visible += packet.again and behind
        flow.hidden += packet.again and not behind
        flow.late += behind and not packet.again

    def finish(self) -> Direction:
        """What needs the whole log: which retransmissions brought nothing, and the delays that ACKs
        report."""
        spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
        # in the order of sending: what earlier transmissions bring
        for packet in self.sent.values():
            spurious = packet.again and covered(
                spans[packet.port], packet.seq, packet.seq + packet.payload
            )
            if packet.n in self.counted and spurious:
                self.flow.spurious += 1
                self.flow.spurious_delivered += packet.n in self.seen
            if packet.n in self.seen:
                spans[packet.port] = add(
                    spans[packet.port], packet.seq, packet.seq + packet.payload
                )
        for answers in self.back.values():
            answers.sort()
        self.flow.trips_ms = [
            (packet.us, self.round_trip_ms(packet))
            for packet in self.sent.values()
            if packet.n in self.counted and packet.n in self.seen and not packet.again
        ]
        self.flow.trip_ms_min = self.smallest_trips_ms()
        return self.flow

    def smallest_trips_ms(self) -> dict[str, float | None]:
        """The smallest time at either end from a packet to the first of the other way that its arrival preceded, with what
        the other host took: from data to the next ACK at the sender, from an ACK to the next data at the receiver."""
        data: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for packet in self.sent.values():
            if packet.n in self.counted and packet.n in self.seen and not packet.again:
                data[packet.port].append((packet.us, self.seen[packet.n]))
        trips: dict[str, list[int]] = {"sender": [], "receiver": []}
        for port, sent in data.items():
            answers = [(us, us + round(ms * 1e3)) for us, ms in self.back[port]]
            for end, asked, answered in (("sender", sent, answers), ("receiver", answers, sent)):
                for begin, there in asked:
                    at = bisect.bisect_left(answered, (there, 0))
                    if at < len(answered):
                        trips[end].append(answered[at][1] - begin)
        return {end: min(us) / 1e3 if us else None for end, us in trips.items()}

    def round_trip_ms(self, packet: Sent) -> float:
        """What the relay held a delivered packet and the next answer behind it, without the time at the receiver."""
        there, answers = self.seen[packet.n], self.back[packet.port]
        at = bisect.bisect_left(answers, (there, 0.0))
        back_ms = answers[min(at, len(answers) - 1)][1] if answers else 0.0
        return (there - packet.us) / 1e3 + back_ms


def read(log: Path, way: str, skip: int = 0) -> Direction:
    """The data direction `way` of a log."""
    reader = Reader(way, skip)
    for line in log.read_text().splitlines():
        reader.line(line.split())
    return reader.finish()


def spread(values: list[float]) -> dict[str, float | None]:
    """Smallest, median, p95, largest."""
    ordered = sorted(values)
    at = {"min": 0.0, "p50": 0.5, "p95": 0.95, "max": 1.0}
    return {
        name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
        for name, share in at.items()
    }


def disturbed_us(stalls: list[tuple[int, int]], base_us: float, start: int, end: int) -> float:
    """For how long of the time from `start` to `end` what was sent met a relay that stood still: the stalls of more than
    `STALL_US`, each with the packets that were under way when it began."""
    total, reached = 0.0, float(start)
    for begin, until in sorted(s for s in stalls if s[1] - s[0] > STALL_US):
        begin_us = max(begin - base_us, reached)
        reached = max(reached, min(until, end))
        total += max(reached - begin_us, 0.0)
    return total


def held(samples: list[tuple[int, float]], stalls: list[tuple[int, int]], base_us: float) -> Held:
    """Quantiles of round trips over the time of sending: each value counts half of the time to either neighbour, as long
    as the earlier one was in flight; a value counts no longer than half of what it exceeds the next one, since an unused
    queue empties.

    Each has bounds: a point on either side, since a quantile may lie on a steep slope, and the share of time in which the
    relay stood still, since what a capture holds of that depends on where the packets were."""
    if not samples:
        return {}
    weights = [0.0] * len(samples)
    for i in range(1, len(samples)):
        in_flight_us = samples[i - 1][1] * 1e3
        span_us = min(max(samples[i][0] - samples[i - 1][0], 0), in_flight_us)
        excess_us = (samples[i - 1][1] - samples[i][1]) * 1e3
        before_us = (min(span_us, excess_us) if excess_us > 0 else span_us) / 2
        weights[i - 1] += before_us
        weights[i] += span_us - before_us
    ordered = sorted(zip([ms for _, ms in samples], weights, strict=True))
    sums = list(itertools.accumulate(weight for _, weight in ordered))
    disturbed = disturbed_us(stalls, base_us, samples[0][0], samples[-1][0])
    aside = 0.01 + min(disturbed / max(sums[-1], 1.0), 1.0)

    def at(share: float) -> float:
        place = bisect.bisect_left(sums, min(max(share, 0.0), 1.0) * sums[-1])
        return ordered[min(place, len(ordered) - 1)][0]

    values = {f"p{p}": (at(p / 100 - aside), at(p / 100), at(p / 100 + aside)) for p in (50, 95)}
    largest = ordered[-1][0]
    # with stalls, the largest may be one that only a stall made
    return values | {"max": (at(1 - aside) if disturbed else largest, largest, largest)}


def path(log: Path, way: str, skip: int = 0) -> dict[str, Any]:
    """What the log says of the data in one direction."""
    flow = read(log, way, skip)
    base_us = 1e3 * (min(flow.transit_ms, default=0.0) + min(flow.back_ms, default=0.0))
    return {
        "data": flow.data,
        "dropped": dict(flow.dropped),
        "retransmitted": flow.retransmitted,
        "retransmitted_bytes": flow.retransmitted_bytes,
        "delivered": flow.delivered,
        "retransmitted_visible_at_receiver": flow.visible,
        "retransmitted_hidden_at_receiver": flow.hidden,
        "late": flow.late,
        "late_reported": flow.late_reported,
        "spurious": flow.spurious,
        "spurious_delivered": flow.spurious_delivered,
        "spurious_reported": flow.spurious_reported,
        "duplicates": flow.duplicates,
        "copy_ms_max": flow.copy_ms_max,
        "in_flight_plain_max": flow.in_flight_max,
        "acks_lost": flow.acks_lost,
        "acks_duplicated": flow.acks_duplicated,
        "relay_late_ms": max((end - start for start, end in flow.stalls), default=0) / 1e3,
        "waited_ms": spread(flow.waited_ms),
        "transit_ms": spread(flow.transit_ms),
        "back_ms": spread(flow.back_ms),
        "trip_ms_min": flow.trip_ms_min,
        "round_trip_ms": held(flow.trips_ms, flow.stalls, base_us),
        "queue": flow.queue,
    }


def write(run: Path, name: str) -> dict[str, Any]:
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
        # of the whole run: a pair cut out of it may hold no packet that found the queue empty
        result["transit_ms_base"] = result["path"]["transit_ms"]["min"]
    (run / "truth.json").write_text(json.dumps(result, indent=1))
    return result


def write_cut(run: Path, name: str, source: Path, skip: int) -> None:
    """`truth.json` of a pair whose captures begin with data packet number `skip`, counted from 0 at either end.

    A number, not a time: a packet that the sender's capture has before a moment can reach the relay after it.
    """
    result = json.loads((source / "truth.json").read_text())
    cut = path(source / "relay.log", "u" if result["sender"] == "phone" else "d", skip)
    result["retransmitted_before_the_cut"] = result["path"]["retransmitted"] - cut["retransmitted"]
    result |= {
        "name": name,
        "path": cut,
        "retransmissions": cut["retransmitted"],
        "retransmitted_bytes": cut["retransmitted_bytes"],
        "data_segments": cut["data"],
        # distinct bytes: what was there before the cut is gone
        "bytes": None,
    }
    (run / "truth.json").write_text(json.dumps(result, indent=1))
