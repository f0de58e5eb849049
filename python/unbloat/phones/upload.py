"""Large uploads: runs of the simulator, moved to the time and the addresses of a phone.

The packets are those that the simulator wrote at the phone. How long they waited is read from the log of the simulated
queue (`queues`), never from the packets.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from unbloat.phones.connection import Rise
from unbloat.phones.packets import IP_BYTES, RECORD, Talk, header_checksum
from unbloat.phones.session import Bulk
from unbloat.run.run import Run
from unbloat.scenario.job import run_job
from unbloat.scenario.simulate import RunOptions, finished, prepared

# Bytes on the link per byte of payload, so that the payload has the rate that was drawn.
OVERHEAD = 1.04
# Four packets: in a smaller queue every burst is lost.
MIN_QUEUE_BYTES = 6_000
# Of the link's rate above the application's, where that sets the pace.
FASTER = 10
# The simulated client has this name, and so has its capture.
CAPTURE = "client.pcapng"
SCENARIO = """
name = "upload"
duration = "{duration_s} s"
[link.up]
rate = "{rate_bps} bit/s"
delay = "{way_us} us"
queue = {{ kind = "droptail", limit = "{queue_bytes} B" }}
[link.down]
rate = "50 Mbit/s"
delay = "{way_us} us"
[[flow]]
name = "upload"
from = "client"
to = "server"
app = {app}
{stop}
"""
# Enhanced packet block of pcapng: 28 bytes before the packet, times of the simulator in ns since 2020-01-01.
PACKET_BLOCK, BEFORE_PACKET_BYTES = 6, 28
SIMULATED_EPOCH_NS = 1_577_836_800_000_000_000
# Bins of the log of the queue; a delay stands for the middle of its bin.
BIN_US = 100_000


def link_bps(what: Bulk) -> float:
    """Rate of the link, with headers."""
    return what.rate_bps * OVERHEAD * (FASTER if what.paced else 1)


def scenario(what: Bulk, base_us: int) -> str:
    """The scenario file."""
    rate_bps = link_bps(what)
    long_s = what.long_s
    if what.paced:
        # Whole seconds would round a short upload; a slot has no other meaning here.
        app = f'{{ kind = "rate-profile", profile = [{what.rate_bps:.0f}], unit = "bit/s", slot = "1 s" }}'
        stop = f'stop = "{long_s:.3f} s"'
    else:
        app, stop = f'{{ kind = "file", bytes = "{what.size_bytes} B" }}', ""
    return SCENARIO.format(
        # Long enough for slow start and for losses; the run's end costs no packets.
        duration_s=round(long_s * 1.5 + 20, 3),
        rate_bps=round(rate_bps),
        way_us=base_us // 2,
        queue_bytes=round(max(MIN_QUEUE_BYTES, rate_bps * what.queue_ms / 8000)),
        app=app,
        stop=stop,
    )


def simulated(text: str, folder: str) -> Run:
    """The run of a scenario, its captures in a folder."""
    work = prepared(text, RunOptions(pcap=folder, events=False))
    outcome = run_job(work.jobs[0])
    if isinstance(outcome, Exception):
        raise outcome
    return finished(work.jobs[0], outcome, work.source)


def upload(talk: Talk, what: Bulk, at_us: int, base_us: int) -> tuple[int, list[Rise]]:
    """A large upload; the time of its last data."""
    with tempfile.TemporaryDirectory() as folder:
        run = simulated(scenario(what, base_us), folder)
        raw = next(Path(folder).rglob(CAPTURE)).read_bytes()
    moved(talk, raw, at_us)
    waits_ms = {
        round(row["t_s"] * 1e6) // BIN_US: row["delay_ms"]
        for row in run.queues.to_pylist()
        if row["link"] == "up" and row["delay_ms"] is not None
    }
    # A bin in which nothing waited has no line in the log.
    sent = {(at - at_us) // BIN_US for at, up, _ in talk.data if up}
    rises = [
        Rise(at_us + number * BIN_US + BIN_US // 2, waits_ms.get(number, 0.0))
        for number in sorted(waits_ms.keys() | sent)
    ]
    return max(at for at, _, _ in talk.data), rises


def moved(talk: Talk, raw: bytes, at_us: int) -> None:
    """The packets of a simulated client as those of a phone."""
    client = b""
    for ns, data, wire_bytes in packets(raw):
        client = client or data[12:16]  # the client opens the connection
        up = data[12:16] == client
        one, other = (talk.phone, talk.server) if up else (talk.server, talk.phone)
        packet = bytearray(data)
        packet[10:12] = bytes(2)
        packet[12:20] = one.address + other.address
        packet[10:12] = header_checksum(packet[:IP_BYTES]).to_bytes(2, "big")
        packet[20:24] = struct.pack("!HH", one.port, other.port)
        packet[36:38] = bytes(2)
        now = at_us + round((ns - SIMULATED_EPOCH_NS) / 1000)
        record = RECORD.pack(now // 1_000_000, now % 1_000_000, len(packet), wire_bytes)
        talk.records.append((now, record + bytes(packet)))
        size = wire_bytes - IP_BYTES - (packet[32] >> 4) * 4
        if size:
            talk.data.append((now, up, size))


def packets(raw: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Time in ns, bytes and length on the wire of each packet of a capture that the simulator wrote."""
    at = 0
    while at < len(raw):
        kind, length = struct.unpack_from("<II", raw, at)
        if kind == PACKET_BLOCK:
            high, low, captured, wire_bytes = struct.unpack_from("<IIII", raw, at + 12)
            begin = at + BEFORE_PACKET_BYTES
            yield high << 32 | low, raw[begin : begin + captured], wire_bytes
        at += length
