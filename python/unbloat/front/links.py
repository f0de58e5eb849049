"""The links of the front, and which half each belongs to.

signal: a fixed list of recorded, steady and stepped links · model: a link is recorded from the rates or delivery
opportunities of a file, or made from a profile · action: `LINKS`, each with its half

The halves were fixed before the first run: within each group, links are ordered by the SHA-256 of their name, and every
other one, from the first on, is for tuning. Laws are tuned on that half alone; the test half judges them when they are final.

Recorded links are named here and lie in another folder (`--traces`); what is not there is skipped with that reason. A drive
of the 5G set begins with the idle time before its download: it is replayed from the first row of 1 Mbit/s on, a second per
row.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from unbloat.errors import UnbloatError
from unbloat.scenario.traces import trace_path, trace_text

Way = Literal["down", "up"]
Half = Literal["tuning", "test"]

DURATION_S = 60
"""Of every run."""
PACKET = 1500
"""Bytes of a full packet, and of a delivery opportunity of mahimahi."""
# Below that a row of the 5G set is before its download.
BEGUN_BPS = 1e6
# Folders of the traces' root that are looked into.
FOLDERS = ("", "mahimahi", "irish5g")


@dataclass(frozen=True)
class Link:
    """One link, in the direction of the transfer."""

    name: str
    group: str
    way: Way
    profile: tuple[float, ...] = ()
    """Mbit/s by turns; empty for a recorded link."""
    slot_s: float = 60.0

    @property
    def recorded(self) -> bool:
        """Whether it needs a file."""
        return not self.profile

    @property
    def half(self) -> Half:
        """Tuning or test."""
        return HALVES[self.name]

    def open(self, traces: str | os.PathLike[str] | None) -> Track | None:
        """The link with its rates; None where its file is not there."""
        if not self.recorded:
            steps = tuple((n * self.slot_s, rate * 1e6) for n, rate in enumerate(self.repeated))
            return Track(self, steps=steps)
        places = [] if traces is None else [Path(traces) / folder for folder in FOLDERS]
        path = trace_path(self.name, [*places, *(place / "traces" for place in places)])
        if path is None:
            return None
        text = trace_text(path)
        if self.group != "5G drives and walks":
            return Track(self, text=text, opportunities=opportunities(self.name, text))
        steps = drive(self.name, text)
        rows = "".join(f"{at:g},{bps:.0f}\n" for at, bps in steps)
        return Track(self, text=f"time_s,rate_bps\n{rows}", steps=steps)

    @property
    def repeated(self) -> list[float]:
        """The profile until the end of the run."""
        turns = int(DURATION_S // self.slot_s)
        return [self.profile[n % len(self.profile)] for n in range(max(turns, 1))]


def opportunities(name: str, text: str) -> tuple[float, ...]:
    """Seconds at which a mahimahi trace delivers, as long as the run lasts; a shorter trace repeats."""
    times = [int(line) for line in text.split()]
    if not times or times[-1] <= 0:
        raise UnbloatError(f"{name}: no delivery opportunity")
    laps = DURATION_S * 1000 // times[-1] + 1
    every = (lap * times[-1] + at for lap in range(laps) for at in times)
    return tuple(at / 1000 for at in every if at < DURATION_S * 1000)


def drive(name: str, text: str) -> tuple[tuple[float, float], ...]:
    """Rates of a drive of the 5G set, from the begin of its download on."""
    try:
        rates = [float(row["DL_bitrate"]) * 1e3 for row in csv.DictReader(io.StringIO(text))]
    except (KeyError, TypeError, ValueError):
        raise UnbloatError(f"{name}: no column DL_bitrate of numbers") from None
    begin = next((n for n, rate in enumerate(rates) if rate >= BEGUN_BPS), None)
    if begin is None or len(rates) - begin < DURATION_S:
        raise UnbloatError(f"{name}: no {DURATION_S} s of a download")
    return tuple((float(n), rate) for n, rate in enumerate(rates[begin : begin + DURATION_S + 1]))


@dataclass(frozen=True)
class Track:
    """A link with what it can carry, so that a sender could know it beforehand."""

    link: Link
    text: str = ""
    """As the simulator reads it."""
    opportunities: tuple[float, ...] = ()
    """Seconds, of a recorded mahimahi link."""
    steps: tuple[tuple[float, float], ...] = field(default=())
    """Seconds and bit/s, of any other."""

    @cached_property
    def _sums(self) -> list[float]:
        """Bits carried before each step."""
        sums, total = [], 0.0
        ends = [*(at for at, _ in self.steps[1:]), float(DURATION_S)]
        for (at, rate), end in zip(self.steps, ends, strict=True):
            sums.append(total)
            total += rate * max(min(end, DURATION_S) - at, 0.0)
        return [*sums, total]

    def bits_until(self, at: float) -> float:
        """What it can carry before a time."""
        if self.opportunities:
            return bisect_right(self.opportunities, at) * PACKET * 8.0
        place = bisect_right(self.steps, at, key=lambda step: step[0]) - 1
        return self._sums[place] + self.steps[place][1] * (at - self.steps[place][0])

    def time_of(self, bits: float) -> float | None:
        """When so many bits have been carried; None after the end."""
        if bits > self._sums[-1]:
            return None
        place = next(n for n, total in enumerate(self._sums[1:]) if total >= bits)
        rate = self.steps[place][1]
        return self.steps[place][0] + (bits - self._sums[place]) / rate if rate else 0.0

    @property
    def mean_bps(self) -> float:
        """Over the run."""
        return self.bits_until(DURATION_S) / DURATION_S


MAHIMAHI_DOWN = (
    "ATT-LTE-driving-2016.down",
    "ATT-LTE-driving.down",
    "TMobile-LTE-driving.down",
    "TMobile-LTE-short.down",
    "TMobile-UMTS-driving.down",
    "Verizon-EVDO-driving.down",
    "Verizon-LTE-short.down",
)
MAHIMAHI_UP = (
    "ATT-LTE-driving-2016.up",
    "ATT-LTE-driving.up",
    "TMobile-LTE-short.up",
    "TMobile-UMTS-driving.up",
    "Verizon-EVDO-driving.up",
    "Verizon-LTE-short.up",
)
FIVE_G = (
    "Driving_B_2019.12.14_10.16.30",
    "Driving_B_2019.12.16_07.22.43",
    "Driving_B_2019.12.16_11.49.59",
    "Driving_B_2019.12.16_12.27.05",
    "Driving_B_2019.12.16_14.23.32",
    "Driving_B_2019.12.17_07.32.39",
    "Driving_B_2020.01.16_07.26.43",
    "Driving_B_2020.01.16_09.56.56",
    "Driving_B_2020.01.16_12.10.03",
    "Driving_B_2020.02.13_13.03.24",
    "Driving_B_2020.02.13_15.02.01",
    "Driving_B_2020.02.14_07.29.00",
    "Driving_B_2020.02.14_09.38.22",
    "Driving_B_2020.02.14_12.58.17",
    "Driving_B_2020.02.27_17.30.15",
    "Driving_B_2020.02.27_20.35.57",
    "Static_B_2019.12.16_13.40.04",
    "Static_B_2020.01.16_10.43.34",
    "Static_B_2020.02.13_13.57.29",
    "Static_B_2020.02.14_13.21.26",
    "Static_B_2020.02.27_18.39.27",
)
# Mbit/s; the steps are those of the claims, a fast one and one that doubles and halves often.
MADE: tuple[tuple[str, tuple[float, ...], float], ...] = (
    ("steady 2", (2.0,), 60.0),
    ("steady 8", (8.0,), 60.0),
    ("steady 30", (30.0,), 60.0),
    ("steps 8-2-1-4", (8.0, 2.0, 1.0, 4.0), 10.0),
    ("steps 20-5", (20.0, 5.0), 15.0),
    ("steps 4-8", (4.0, 8.0), 3.0),
)
WAYS: tuple[Way, ...] = ("down", "up")
LINKS: tuple[Link, ...] = (
    *(Link(name, "recorded, down", "down") for name in MAHIMAHI_DOWN),
    *(Link(name, "recorded, up", "up") for name in MAHIMAHI_UP),
    *(Link(name, "5G drives and walks", "down") for name in FIVE_G),
    *(
        Link(f"{name} {way}", f"made, {way}", way, profile, slot)
        for way in WAYS
        for name, profile, slot in MADE
    ),
)


def halves(links: tuple[Link, ...]) -> dict[str, Half]:
    """The rule at the top."""
    found: dict[str, Half] = {}
    for group in dict.fromkeys(link.group for link in links):
        names = [link.name for link in links if link.group == group]
        ordered = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        found |= {name: "test" if place % 2 else "tuning" for place, name in enumerate(ordered)}
    return found


HALVES = halves(LINKS)
