"""What `bench/measure/peers.py` reads from other programs, and from the log of a load."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from path import Link, Queue

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "measure"))

from loaded_path import phases, round_trips_ms, statistic
from peer_tools import Figure, of_crusader, of_flent, of_go, of_iperf

FLENT = """
                             avg       median       99th %          # data pts
 Ping (ms) ICMP   :       147.00       170.50       350.38 ms              100
 Ping (ms) UDP BE :       147.45       148.74       356.78 ms              100
 Ping (ms) avg    :       147.59          N/A          N/A ms              100
"""
CRUSADER = """
-- Download test --
          Throughput: 47.40 Mbps
             Latency: 21.9 ms (11.4 ms down, 10.6 ms up)
         Packet loss: 0%

-- Bidirectional test --
          Throughput: 92.66 Mbps (46.31 Mbps down, 46.35 Mbps up)
             Latency: 27.9 ms (13.1 ms down, 14.8 ms up)
         Packet loss: 0%
"""
IPERF = """\
[  1] 7.0000-8.0000 sec  1.95 KBytes  16.0 Kbits/sec    10=20.834/20.244/22.498/0.695 ms    0   25K/20454 us    48 rps
[  2] 0.0000-8.0218 sec  5.58 MBytes  5.83 Mbits/sec  58490/0          0     2956K/28110(149) us  25.94
[  1] 0.0000-8.2338 sec  17.6 KBytes  17.5 Kbits/sec    90=21.608/20.212/54.927/3.837 ms    0   25K/21431 us    46 rps
"""
GO = """\
Download:
	Throughput: 17.937 Mbps (2.242 MBps), using 16 parallel connections.
	RPM: 60 (P90)
	RPM: 200 (Single-Sided 5% Trimmed Mean)
========
Upload:
	Throughput: 3.000 Mbps (0.375 MBps), using 16 parallel connections.
	RPM: +Inf (P90)
	RPM: NaN (Single-Sided 5% Trimmed Mean)
========
"""


def brief(figures: list[Figure]) -> list[tuple[str, str, float | None]]:
    """What matters, to a tenth."""
    return [(one.phase, one.statistic, one.added_ms and round(one.added_ms, 1)) for one in figures]


def test_a_summary_of_each_program_is_read_as_added_delay() -> None:
    assert brief(of_flent(FLENT)) == [("both", "mean", 127.6), ("both", "median", 150.5)]
    largest = "largest smoothed"
    assert brief(of_crusader(CRUSADER)) == [("down", largest, 1.9), ("both", largest, 7.9)]
    assert brief(of_iperf(IPERF)) == [("both", "mean", 1.6)]
    trimmed = "trimmed mean"
    assert brief(of_go(GO)) == [("down", trimmed, 280.0), ("up", trimmed, None)]


def test_output_without_a_figure_gives_none() -> None:
    assert [read("") for read in (of_flent, of_crusader, of_iperf, of_go)] == [[], [], [], []]


def queue(*loads: tuple[float, float]) -> Queue:
    """Full packets of one flow at 5 Mbit/s, and small ones of another all the time."""
    made = Queue(Link(5, 100))
    for step in range(40 * 417):
        at = step / 417
        full = any(begin <= at < end for begin, end in loads)
        made.started[len(made.arrived)] = at
        made.arrived.append(at)
        made.size.append(1500 if full else 100)
        made.flow.append(1 if full else 2)
    return made


def test_phases_are_found_by_what_passed() -> None:
    queues = {"down": queue((2, 12), (28, 38)), "up": queue((15, 25), (28, 38))}
    of = phases(queues, ("down", "up", "both"))
    assert of == {"down": (2.0, 12.0), "up": (15.0, 25.0), "both": (28.0, 38.0)}
    assert phases(queues, ("both",)) == {"both": (2.0, 38.0)}


def test_only_p95_counts_lost_packets() -> None:
    waits = [10.0] * 18 + [math.inf] * 2
    assert statistic("p95", waits) == math.inf
    assert {statistic(name, waits) for name in ("mean", "median", "trimmed mean")} == {10.0}


def test_the_way_back_begins_where_the_way_there_ends() -> None:
    down = [float(n) for n in range(20)]
    # 20 ms there, 10 of them on the link: six steps of 5 ms later.
    assert round_trips_ms([20.0] * 10, down, 10)[:3] == [26.0, 27.0, 28.0]
