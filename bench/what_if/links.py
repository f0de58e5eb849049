"""The links on which findings about a path, and later predictions of cures, are judged. Half are for work on the rules, the
others are held out; which is which was written down before the first figure.

signal: a name and a number of a run · model: rates of 2 to 50 Mbit/s, buffers of 64 KB to 3 MB, steps, traces of LTE, 3G and
5G, ACKs that are held, random loss, a competitor, FQ-CoDel; each run has another RTT, and another part of the trace · action:
a scenario for the simulator, an upload of 30 s
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from unbloat.prediction.cures import AS_IT_WAS, Cure, shaped_kbps
from unbloat.prediction.replay import congestion_text

DURATION_S = 30
# Where the rate or the buffer changes.
STEP_S = 15
TUNING, TEST = "tuning", "test"
CONGESTION = ("cubic", "bbr", "newreno")
RUNS = 3
# Round trips of wired and cellular paths without a queue, ms.
RTT_MS = (20.0, 120.0)
# Packets of a trace are of this size.
PACKET_BYTES = 1500
# Of a modem in front of a link with FQ-CoDel.
FIRMWARE_KB = 256


@dataclass(frozen=True)
class Link:
    """The slowest link of a path."""

    name: str
    half: str
    rate_mbps: float = 0.0
    """0 of a trace."""
    buffer_kb: int = 256
    """Of its queue; 0 is FQ-CoDel."""
    then_mbps: float = 0.0
    """The rate from `STEP_S` on, where it changes."""
    hold_ms: int = 0
    """ACKs wait for so long, half of the time."""
    loss: float = 0.0
    """Share of the packets that are lost at random."""
    rivals: int = 0
    """Bulk uploads by CUBIC through the same queue."""
    trace: str = ""
    """A file below the folder of traces."""


LINKS = (
    Link("2M-64K", TUNING, 2, 64),
    Link("2M-256K", TEST, 2),
    Link("4M-64K", TEST, 4, 64),
    Link("4M-1M", TUNING, 4, 1000),
    Link("10M-64K", TUNING, 10, 64),
    Link("10M-256K", TEST, 10),
    Link("10M-1M", TEST, 10, 1000),
    Link("50M-256K", TEST, 50),
    Link("50M-1M", TUNING, 50, 1000),
    Link("50M-3M", TEST, 50, 3000),
    Link("4M-256K-held-100ms", TEST, 4, hold_ms=100),
    Link("10M-1M-held-600ms", TUNING, 10, 1000, hold_ms=600),
    Link("4M-1M-held-600ms", TEST, 4, 1000, hold_ms=600),
    Link("10M-256K-loss-0.2", TUNING, 10, loss=0.002),
    Link("10M-256K-loss-1", TEST, 10, loss=0.01),
    Link("10M-256K-rival", TEST, 10, rivals=1),
    Link("4M-1M-rival", TUNING, 4, 1000, rivals=1),
    Link("10M-fq-codel", TEST, 10, 0),
    Link("10M-then-4M", TUNING, 10, then_mbps=4),
    Link("2M-then-10M", TEST, 2, 1000, then_mbps=10),
    Link("att-lte-up", TEST, trace="mahimahi/ATT-LTE-driving.up.gz", buffer_kb=1000),
    Link("tmobile-umts-up", TUNING, trace="mahimahi/TMobile-UMTS-driving.up.gz"),
    Link("norway-bus", TUNING, trace="norway3g/norway_bus_1", buffer_kb=1000),
    Link("norway-train", TEST, trace="norway3g/norway_train_1", buffer_kb=64),
    Link(
        "irish-driving", TEST, trace="irish5g/Driving_B_2019.12.14_10.16.30.csv.gz", buffer_kb=3000
    ),
    Link(
        "irish-static", TUNING, trace="irish5g/Static_B_2019.12.16_13.40.04.csv.gz", buffer_kb=3000
    ),
)
SCENARIO = """
name = "{name}"
duration = "{duration_s} s"
seed = {seed}
[link.up]
{medium}
delay = "{way_us} us"
queue = {queue}
{loss}
[link.down]
rate = "100 Mbit/s"
delay = "{way_us} us"
{hold}
{device}
[[flow]]
name = "upload"
from = "client"
to = "server"
congestion = {congestion}
{receiver}
{rivals}
"""
# A shaper or a gate in front of the link, whose buffer is that of a modem then; or a law on the ACKs that come in.
SHAPER = """
[device]
gate = {gate}
qdisc = {qdisc}
firmware = {{ buffer = "{buffer_kb} KB", report_every = "5 ms", report_delay = "100 ms" }}
"""
LAW = """
[[node]]
name = "client"
window = {law}
[[node]]
name = "server"
"""
RIVAL = """
[[flow]]
name = "rival{number}"
from = "client"
to = "server"
start = "{start_ms} ms"
congestion = {congestion}
{receiver}
"""


def scenario(
    link: Link,
    congestion: str,
    run: int,
    traces: Path,
    folder: Path,
    cure: Cure = AS_IT_WAS,
    shaped_bps: float = 0.0,
) -> str:
    """The scenario of a run; a trace is written to `folder`. With a cure, which needs a rate where it is a shaper, all else
    is the same."""
    random = seeded(link, congestion, run)
    rtt_ms = random.uniform(*RTT_MS)
    if link.trace:
        (folder / "link.trace").write_text(part_of(link, traces, random))
        medium = f'trace = "{folder / "link.trace"}"'
    elif link.then_mbps:
        rates = f"{link.rate_mbps}, {link.then_mbps}"
        medium = f'rate = {{ profile = [{rates}], unit = "Mbit/s", slot = "{STEP_S} s" }}'
    else:
        medium = f'rate = "{link.rate_mbps} Mbit/s"'
    every_ms = 2 * link.hold_ms
    hold = (
        f'layers = [{{ kind = "outage", every = "{every_ms} ms", length = "{link.hold_ms} ms" }}]'
    )
    buffer = (
        f'{{ kind = "droptail", limit = "{link.buffer_kb} KB" }}'
        if link.buffer_kb
        else '"fq_codel"'
    )
    device = LAW.format(law=cure.sender) if cure.sender else ""
    if cure.gate or cure.shaper:
        device = SHAPER.format(
            gate=cure.gate or '"none"',
            qdisc=cure.shaper.format(rate=shaped_kbps(shaped_bps)) if cure.shaper else '"fq_codel"',
            buffer_kb=link.buffer_kb or FIRMWARE_KB,
        )
    # An agent at the receiver limits all that come from one host.
    receiver = f"[flow.receiver]\nwindow = {cure.receiver}" if cure.receiver else ""
    return SCENARIO.format(
        name=link.name,
        duration_s=DURATION_S,
        seed=run + 1,
        medium=medium,
        way_us=round(rtt_ms * 500),
        queue=cure.queue or buffer,
        loss=f"loss = {link.loss}" if link.loss else "",
        hold=hold if link.hold_ms else "",
        congestion=congestion_text(cure.congestion or congestion),
        device=device,
        receiver=receiver,
        rivals="".join(
            RIVAL.format(
                number=number,
                start_ms=round(random.uniform(0, 5000)),
                congestion=congestion_text("cubic"),
                receiver=receiver,
            )
            for number in range(link.rivals)
        ),
    )


def seeded(link: Link, congestion: str, run: int) -> Random:
    """The random numbers of a run, whose first is its RTT."""
    return Random(f"{link.name}/{congestion}/{run}")


def part_of(link: Link, traces: Path, random: Random) -> str:
    """Delivery opportunities of a part of a trace, in mahimahi's format: ms, a packet each."""
    path = traces / link.trace
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    kind = link.trace.partition("/")[0]
    times_ms = READERS[kind](text)
    begin_ms = random.uniform(0, max(times_ms[-1] - 1000 * DURATION_S, 0))
    own = [
        round(at_ms - begin_ms)
        for at_ms in times_ms
        if begin_ms <= at_ms < begin_ms + 1000 * DURATION_S
    ]
    # The simulator repeats a trace from its last time on: a run never gets there.
    return "".join(f"{at_ms}\n" for at_ms in [*own, 1000 * DURATION_S + 1000])


def of_mahimahi(text: str) -> list[float]:
    """As it is."""
    return [float(line) for line in text.split()]


def of_norway(text: str) -> list[float]:
    """Lines of seconds and Mbit/s, each until the next."""
    rows = [tuple(map(float, line.split())) for line in text.splitlines()]
    return opportunities([(at_s, mbps * 1e6) for at_s, mbps in rows])


def of_irish(text: str) -> list[float]:
    """A line per second, of which the column `DL_bitrate` has kbit/s."""
    lines = [line.split(",") for line in text.splitlines()]
    column = lines[0].index("DL_bitrate")
    return opportunities(
        [(float(at), 1000 * float(row[column])) for at, row in enumerate(lines[1:])]
    )


def opportunities(rates: list[tuple[float, float]]) -> list[float]:
    """Times in ms at which a packet may leave, of rates in bit/s from times in s on."""
    found: list[float] = []
    packets = 0.0
    for (begin_s, rate_bps), (end_s, _) in itertools.pairwise(rates):
        more = rate_bps * (end_s - begin_s) / 8 / PACKET_BYTES
        while len(found) + 1 <= packets + more:
            share = (len(found) + 1 - packets) / more
            found.append(1000 * (begin_s + share * (end_s - begin_s)))
        packets += more
    return found


READERS: dict[str, Callable[[str], list[float]]] = {
    "mahimahi": of_mahimahi,
    "norway3g": of_norway,
    "irish5g": of_irish,
}
