"""A capture at a phone and the log of its modem, of the same upload, with clocks that differ by a known offset.

The simulator's firmware queue is the modem's buffer, millisecond by millisecond. What left it is what its server received,
less the delay of the link. Its capture at the phone has neither. The firmware is never full, so that packets enter it as
they are captured: the simulator captures above the qdisc, tcpdump below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import diag_log

import unbloat
from unbloat.run.run import Run

# Seconds from 1970 to the first packets of the simulator's captures, and an arbitrary time of a modem.
EPOCH_S = 1_577_836_800
MODEM_S = 261_872_018
DELAY_MS = 29
# Bytes of a block that are neither data nor padding; and padding, made up.
HEADERS, PADDING = 8, 5
# Bytes of headers of a segment with timestamps.
IP_AND_TCP = 52

# By RFC 9438: where HyStart of Linux ends slow start early, ACKs alone clock the whole upload, and its traffic repeats itself.
UPLOAD = f"""
name = "modem-pair"
duration = "{{seconds}} s"
warmup = "0 s"
bin = "1 ms"
[link.up]
medium = {{{{ kind = "grants", signal = "-98 dBm" }}}}
delay = "{DELAY_MS} ms"
[link.down]
rate = "20 Mbit/s"
delay = "29 ms"
[device]
qdisc = {{{{ kind = "droptail", limit = "1000 packets" }}}}
firmware = {{{{ buffer = "3 MB" }}}}
[[flow]]
name = "upload"
from = "client"
congestion = "cubic"
tsq = false
buffer = "1 MB"
[flow.receiver]
window = {{{{ kind = "fixed", window = "3 MB" }}}}
"""


@dataclass(frozen=True)
class Pair:
    """What was made, and what is true of it."""

    capture: Path
    log: Path
    run: Run
    """The simulated run."""
    skew: float

    def modem_ns(self, sim_s: float) -> int:
        """The modem's time of a time of the simulator."""
        return round((MODEM_S + sim_s / (1 + self.skew)) * 1e9)

    def offset_s(self, sim_s: float) -> float:
        """The capture's clock less the modem's."""
        return EPOCH_S + sim_s - self.modem_ns(sim_s) / 1e9


def firmware_bytes(run: Run) -> Counter[int]:
    """Bytes in the firmware at the end of each millisecond of the run."""
    held: Counter[int] = Counter()
    for row in run.queues.to_pylist():
        if row["link"] == "up" and row["stage"] == "firmware":
            held[round(row["t_s"] * 1_000)] = row["bytes"]
    return held


def left(run: Run) -> list[tuple[float, int]]:
    """When packets of data left the modem, s of the simulator, and their IP bytes; by the capture at the server."""
    assert run.main_flow is not None
    begin_s = run.info["start_s"] - EPOCH_S - DELAY_MS / 1_000
    return [
        (begin_s + row["t_s"], row["to_seq"] - row["from_seq"] + IP_AND_TCP)
        for row in run.segments(flow=run.main_flow).to_pylist()
        if row["kind"] in (0, 1)
    ]


def make(folder: Path, seconds: int = 40, skew: float = 0.0, lost: Iterable[int] = ()) -> Pair:
    """Simulates the upload and writes both files; of the batches `lost` no record arrives."""
    run = unbloat.simulate(UPLOAD.format(seconds=seconds), pcap=folder)
    assert isinstance(run, Run)
    captures = {path.name.split(".")[0]: path for path in folder.iterdir()}
    pair = Pair(captures["client"], folder / "modem.qmdl", run, skew)
    held = firmware_bytes(run)
    first_ms = MODEM_S * 1_000
    # A block of a millisecond is in its own TTI: what left until the end of it.
    used: Counter[int] = Counter()
    for at_s, size in left(unbloat.analyze(captures["server"])):
        used[-(-pair.modem_ns(at_s) // 1_000_000) - first_ms] += size
    ttis = [
        diag_log.Tti(
            first_ms + ms,
            held[round(ms * (1 + skew)) - 1],
            *((used[ms] + HEADERS + PADDING, PADDING) if used[ms] else ()),
        )
        for ms in range(1, seconds * 1_000)
    ]
    pair.log.write_bytes(diag_log.log(ttis, lost))
    return pair
