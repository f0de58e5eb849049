"""`reproduce front`: every control on every link of a half, run or read from the store.

signal: links, controls, seeds · model: a case whose second seed gives what the first gave draws no random numbers and is run
twice; any other is run ten times · action: a `Field` per link, and the links that were skipped with the reason
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbloat.front.case import Run, settings, simulate_case
from unbloat.front.controls import CONTROLS, Control, for_way
from unbloat.front.judge import Field, Point
from unbloat.front.links import LINKS, Half, Link, Track
from unbloat.front.oracle import oracle
from unbloat.run.store import Names, Store
from unbloat.scenario.confidence import spread

SEEDS = 10
NAMES = ("link", "control", "variant")


@dataclass(frozen=True)
class Front:
    """All that was measured."""

    fields: list[Field]
    skipped: dict[str, str]
    """Links that were not run, and why."""


def front(
    half: Sequence[Half] = ("tuning",),
    *,
    traces: str | os.PathLike[str] | None = None,
    store: Path | None = None,
    links: Sequence[Link] = LINKS,
    controls: Sequence[Control] = CONTROLS,
    only_stored: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Front:
    """Measure the front of one half of the links, or of both. With `only_stored` nothing is run."""
    kept = Store(store, NAMES)
    tracks, skipped = opened([link for link in links if link.half in half], traces)
    cases = [
        (track, control)
        for track in tracks
        for control in for_way(track.link.way)
        if control in controls
    ]
    for done, (track, control) in enumerate(cases):
        if progress is not None:
            progress(done, len(cases))
        if not only_stored and kept.runs(key(track, control), settings(track, control)) is None:
            runs = measured(track, control)
            kept.put(key(track, control), settings(track, control), [rounded(run) for run in runs])
    if progress is not None:
        progress(len(cases), len(cases))
    return Front([field(track, controls, kept) for track in tracks], skipped)


def opened(
    links: Sequence[Link], traces: str | os.PathLike[str] | None
) -> tuple[list[Track], dict[str, str]]:
    """The links that can be run."""
    tracks, skipped = [], {}
    for link in links:
        track = link.open(traces)
        if track is None:
            skipped[link.name] = "no such trace file (--traces DIR)"
        else:
            tracks.append(track)
    return tracks, skipped


def key(track: Track, control: Control) -> Names:
    """What names a case."""
    return (track.link.name, control.name, control.variant)


def measured(track: Track, control: Control) -> list[Run]:
    """The runs of a case."""
    runs = [simulate_case(track, control, seed) for seed in (1, 2)]
    if runs[0] == runs[1]:
        return runs
    return runs + [simulate_case(track, control, seed) for seed in range(3, SEEDS + 1)]


def rounded(run: Run) -> list[float]:
    """As it is stored: below a kbit/s and a tenth of a millisecond nothing is judged."""
    return [round(run.goodput_bps, -3), round(run.ping_p95_ms, 1), round(run.flow_p95_ms, 1)]


def field(track: Track, controls: Sequence[Control], kept: Store) -> Field:
    """What the store has of a link."""
    bound = oracle(track)
    points = []
    for control in for_way(track.link.way):
        runs = kept.runs(key(track, control), settings(track, control))
        if control in controls and runs:
            goodput, ping, flow = (spread(column) for column in zip(*runs, strict=True))
            points.append(Point(control.name, control.variant, control.role, goodput, ping, flow))
    link = track.link
    return Field(
        link.name, link.group, link.half, bound.goodput_bps, bound.ping_p95_ms, tuple(points)
    )
