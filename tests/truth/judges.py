"""The other tools on the same file: tshark's expert figures and tcptrace's long output, as plain dictionaries.

signal: a capture file · model: tshark -T fields and tcptrace -nlrW, parsed · action: one dictionary per flow, keyed by
(source, source port, destination, destination port)
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

Key = tuple[str, int, str, int]
Figures = dict[str, Any]

FLAGS = {
    "retransmissions": "tcp.analysis.retransmission",
    "out_of_order": "tcp.analysis.out_of_order",
    "window_full": "tcp.analysis.window_full",
    "zero_windows": "tcp.analysis.zero_window",
    "zero_window_probes": "tcp.analysis.zero_window_probe",
    "keep_alives": "tcp.analysis.keep_alive",
    "duplicate_acks": "tcp.analysis.duplicate_ack",
    "spurious": "tcp.analysis.spurious_retransmission",
}
FIELDS = (
    "ip.src",
    "ipv6.src",
    "tcp.srcport",
    "ip.dst",
    "ipv6.dst",
    "tcp.dstport",
    "tcp.len",
    "tcp.analysis.ack_rtt",
)
# both columns of a line of tcptrace: label, value, unit if any
COLUMN = r"\s+(\S[^:]*):\s+(\S+)(?: +(bytes|pkts|segs|times|ms|secs|Bps))?"
LINE = re.compile(rf"^{COLUMN}\s\s*{COLUMN.removeprefix(chr(92) + 's+')}\s*$")
HOST = re.compile(r"^\s+host \w+:\s+(\S+):(\S+)\s*$")


def probes_while_closed(path: Path) -> int:
    """Zero-window probes as Linux sends them (no byte, one below the next) that arrive while the last ACK that went back
    advertised a zero window. A probe that crosses the window update on the path is none of these."""
    fields = ("tcp.stream", "tcp.srcport", "tcp.flags", "tcp.seq", "tcp.ack", "tcp.len")
    command = ["tshark", "-n", "-r", str(path), "-T", "fields"]
    command += [word for name in (*fields, "tcp.window_size") for word in ("-e", name)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # what each side of each connection advertised last: next byte expected, window
    last: dict[tuple[str, str], tuple[int, int]] = {}
    sides: dict[str, set[str]] = defaultdict(set)
    probes = 0
    for line in text.splitlines():
        stream, port, flags, seq, ack, length, window = line.split("\t")
        if not stream or int(flags, 16) & 0b111:  # FIN, SYN, RST
            continue
        sides[stream].add(port)
        for other in sides[stream] - {port}:
            if last.get((stream, other)) == (int(seq) + 1, 0) and length == "0":
                probes += 1
        last[stream, port] = (int(ack), int(window))
    return probes


def tshark(path: Path) -> dict[Key, Figures]:
    """What tshark's TCP analysis says of each flow. RTT: of the data that this side sent, in ms: min, mean, max."""
    fields = [*FIELDS, "tcp.analysis.bytes_in_flight", *FLAGS.values()]
    command = [
        "tshark",
        "-n",
        "-r",
        str(path),
        "-o",
        "tcp.desegment_tcp_streams:FALSE",
        "-Y",
        "tcp && !icmp && !icmpv6",
        "-T",
        "fields",
    ]
    command += [word for name in fields for word in ("-e", name)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    flows: dict[Key, Figures] = defaultdict(
        lambda: dict.fromkeys(FLAGS, 0) | {"in_flight_max": 0, "rtts": []}
    )
    for line in text.splitlines():
        src, src6, sport, dst, dst6, dport, length, rtt, flight, *flags = line.split("\t")
        forward = (src or src6, int(sport), dst or dst6, int(dport))
        flow, answered = flows[forward], flows[forward[2:] + forward[:2]]
        for name, value in zip(FLAGS, flags, strict=True):
            # a zero window and a duplicate ACK are said by the receiver of the data
            (answered if name in ("zero_windows", "duplicate_acks") else flow)[name] += bool(value)
        if int(length or 0):
            flow["in_flight_max"] = max(flow["in_flight_max"], int(flight or 0))
        if rtt:
            answered["rtts"].append(float(rtt) * 1e3)
    for flow in flows.values():
        rtts = flow.pop("rtts")
        flow["rtt_ms"] = (min(rtts), sum(rtts) / len(rtts), max(rtts)) if rtts else None
    return dict(flows)


def number(text: str) -> float | None:
    """tcptrace's values: numbers, NA, Y, 1/1."""
    try:
        return float(text)
    except ValueError:
        return None


def long_output(text: str) -> list[tuple[Key, Figures, Figures]]:
    """Connections of tcptrace's -l output in its order: key of a → b, figures of a → b, figures of b → a.

    A label that occurs with two units ("initial window") is distinguished by its unit; of the RTT figures only the
    first block counts, which is that of unambiguous samples.
    """
    connections: list[tuple[Key, Figures, Figures]] = []
    hosts: list[tuple[str, int]] = []
    for line in text.splitlines():
        if host := HOST.match(line):
            hosts.append((host[1], int(host[2]) if host[2].isdigit() else -1))
            if len(hosts) == 2:
                connections.append(((*hosts[0], *hosts[1]), {}, {}))
                hosts = []
        elif connections and (found := LINE.match(line)):
            for into, (label, value, unit) in zip(
                connections[-1][1:], (found.groups()[:3], found.groups()[3:]), strict=True
            ):
                assert isinstance(into, dict)  # the two figures of the tuple
                name = f"{label} {unit}" if label == "initial window" else label
                into.setdefault(name, number(value) if number(value) is not None else value)
    return connections


def tcptrace(path: Path) -> list[tuple[Key, Figures, Figures]]:
    """tcptrace's figures for an uncompressed pcap. It warns and exits with 0 on what it cannot read."""
    done = subprocess.run(
        ["tcptrace", "-nlrW", str(path)],
        check=True,
        capture_output=True,
        text=True,
        errors="replace",
    )
    return long_output(done.stdout)
