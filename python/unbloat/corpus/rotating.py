"""`--merge rotating`: files that one capture was written to, one after the other, become one unit.

Connections that go on across files are then whole. Files of one series lie in one folder and differ in a number or time
at the end of their names, as tcpdump -C, -G and dumpcap -b name them. Their order is that of their first packets. A
file goes on with the one before if its first packet follows soon after the last of that: an overlap is another capture
beside it, a long pause another capture later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from unbloat.corpus.packet_times import first_packet_s, last_packet_s
from unbloat.corpus.unit import Unit, is_remote, make_unit

# Ends of names: numbers and times, one or more, before the ending or behind it.
SERIES = re.compile(
    r"^(?P<stem>.*?)(?P<tail>(?:[._T-]?\d[\d:-]*)*)(?P<ending>\.[A-Za-z]\w*?)(?P<number>\d*)(?P<packed>\.(?:gz|zst))?$"
)
# A capture that wrote nothing for so long has no connection left whose figures would change, s.
PAUSE_S = 60.0
# Packets of several processors are not quite in order, s.
OVERLAP_S = 1.0
# Where the last packet is unknown, as in a packed file: no longer from first to first than the usual rotation, s.
ROTATION_S = 3600.0


def joined(units: Iterable[Unit]) -> Iterator[Unit]:
    """The units, files of one series as one."""
    series: dict[tuple[str, ...], list[Unit]] = {}
    for unit in units:
        name = None if unit["kind"] != "file" or is_remote(unit["url"]) else series_name(unit)
        if name is None:
            yield unit
        else:
            series.setdefault(name, []).append(unit)
    for files in series.values():
        if len(files) == 1:
            yield files[0]
        else:
            yield from runs(files)


def series_name(unit: Unit) -> tuple[str, ...] | None:
    """What files of one series have in common; None for what belongs to none."""
    folder, base = os.path.split(unit["url"])
    match = SERIES.match(base)
    if match is None or not os.path.isfile(unit["url"]):  # a pipe is read once
        return None
    return folder, match["stem"], match["ending"], match["packed"] or "", unit["device"]


def runs(files: list[Unit]) -> Iterator[Unit]:
    """Files that go on where the one before ends, as one unit each."""
    timed: list[tuple[float, str, Unit]] = []
    for unit in files:
        first_s = first_packet_s(unit["url"])
        if first_s is None:
            yield unit  # no packet, or no capture: the analysis names it
        else:
            timed.append((first_s, unit["url"], unit))
    timed.sort(key=lambda one: one[:2])
    run: list[Unit] = []
    before_s = 0.0
    for first_s, _, unit in timed:
        if run and not goes_on(run[-1]["url"], before_s, first_s):
            yield series_unit(run)
            run = []
        run.append(unit)
        before_s = first_s
    if run:
        yield series_unit(run)


def goes_on(path: str, first_s: float, next_s: float) -> bool:
    """Whether a capture that begins at `next_s` goes on with the file before."""
    last_s = last_packet_s(path)
    if last_s is None:
        return OVERLAP_S < next_s - first_s <= ROTATION_S
    return -OVERLAP_S <= next_s - last_s <= PAUSE_S


def series_unit(files: list[Unit]) -> Unit:
    """One unit of all; it has the name of the first, so that a series that grows takes its own place."""
    first = files[0]
    if len(files) == 1:
        return first
    return make_unit(
        first["url"],
        "series",
        sum(unit["size_bytes"] for unit in files),
        " ".join(unit["key"] for unit in files),
        first["device"],
        parts=[unit["url"] for unit in files],
        replaces=[unit["file"] for unit in files],
    )
