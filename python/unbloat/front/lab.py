"""`reproduce front --lab`: six links of the front on the kernel's own TCP, with unbloat-agent in place of the simulated law.

signal: links and controls that were fixed before the first run · model: the scenario of the simulated case, run by the lab
on the real clock; a run is stored as soon as it is over, with commit, date, kernel and what the simulator gave then: a
run counts for the table always, and is made again where the law has changed · action: a `Field` per
link as of the simulator, so that the same judge reads both, and a `Difference` per link and control
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbloat.errors import LabError, ScenarioError
from unbloat.front import front
from unbloat.front.case import read, scenario, settings
from unbloat.front.controls import CONTROLS, Control, for_way
from unbloat.front.front import opened, rounded
from unbloat.front.judge import SAME_MS, Field, Point, judge
from unbloat.front.links import LINKS, Link, Track
from unbloat.front.oracle import oracle
from unbloat.lab.execute import lab_all
from unbloat.lab.requirements import need_root
from unbloat.run.store import Store
from unbloat.scenario.confidence import Spread, spread
from unbloat.scenario.run_jobs import STEPS
from unbloat.scenario.simulate import RunOptions
from unbloat.version import __version__

# Of the tuning half, fixed before the first run: three down, three up, from 0.8 to 13 Mbit/s, one without a trace.
LAB_LINKS = (
    "TMobile-LTE-short.down",
    "Verizon-LTE-short.down",
    "TMobile-UMTS-driving.down",
    "ATT-LTE-driving-2016.up",
    "Verizon-EVDO-driving.up",
    "steady 8 up",
)
# Nothing, the peer of the goals, and the agent's law in each direction. Other peers are in no stock kernel.
LAB_CONTROLS = ("nothing", "bbr", "window", "ACKs")
NAMES = ("link", "control")
# What the page names. Goodput of a minute is steadier than its p95, which one outage decides.
SAME_GOODPUT, SAME_P95 = 0.10, 0.20
# Of the simulator's figures, between compilers.
ROUNDING = 0.02
PACKAGE = Path(__file__).parent
# A run of the lab as it is stored, and its figures.
LabRun = dict[str, Any]
FIGURES = ("goodput_bps", "ping_p95_ms", "queue_p95_ms")


@dataclass(frozen=True)
class FrontInLab:
    """All that the lab measured."""

    fields: list[Field]
    """As of the simulator, of links with a stored run."""
    runs: list[LabRun]
    skipped: dict[str, str]
    """Links and controls that were not run, and why."""


def lab_links() -> list[Link]:
    """The six."""
    return [link for link in LINKS if link.name in LAB_LINKS]


def lab_controls() -> list[Control]:
    """At their defaults."""
    chosen = [one for one in CONTROLS if one.variant == "default"]
    return [one for one in chosen if one.name in LAB_CONTROLS]


def beside(store: Path) -> Path:
    """Where the lab's runs are stored: beside the simulator's."""
    return store.with_name(f"{store.stem}-lab{store.suffix}")


def front_in_lab(
    repeat: int = 1,
    *,
    traces: str | os.PathLike[str] | None = None,
    store: Path | None = None,
    links: Sequence[Link] | None = None,
    only_stored: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> FrontInLab:
    """Run what is missing of so many repetitions. With `only_stored` nothing is run."""
    kept = Store(store, NAMES)
    tracks, skipped = opened(lab_links() if links is None else links, traces)
    cases = [
        (track, control)
        for track in tracks
        for control in for_way(track.link.way)
        if control in lab_controls()
    ]
    if not only_stored:
        need_root()
        code = commit()  # of what was imported; a later change of the tree is not what runs
        now = {case: simulated(*case) for case in cases}
        # All cases once, then all a second time: the machine's load differs least within a repetition.
        missing = [
            (track, control)
            for number in range(repeat)
            for track, control in cases
            if len(present(stored(kept, track, control), now[track, control])) <= number
        ]
        for done, (track, control) in enumerate(missing):
            what = f"{track.link.name}, {control.label}"
            if what in skipped:
                continue
            runs = present(stored(kept, track, control), now[track, control])
            try:
                share = part(progress, done, len(missing))
                run = measured(track, control, len(runs) + 1, share)
                runs = [*runs, run | {"commit": code, "simulator": now[track, control]}]
            except ScenarioError as error:  # no such congestion control in this kernel
                skipped[what] = str(error)
                continue
            kept.put((track.link.name, control.name), settings(track, control), runs)
    fields = [field(track, kept) for track in tracks]
    every = [
        run | {"link": track.link.name, "control": control.name}
        for track, control in cases
        for run in stored(kept, track, control)
    ]
    return FrontInLab([one for one in fields if one.points], every, skipped)


def part(
    progress: Callable[[int, int], None] | None, done: int, count: int
) -> Callable[[int, int], None] | None:
    """The progress of one run among so many."""
    if progress is None:
        return None
    report = progress
    return lambda now, whole: report(int((done + now / max(whole, 1)) * STEPS), count * STEPS)


def stored(kept: Store, track: Track, control: Control) -> list[LabRun]:
    """The runs of a case under its present settings."""
    return kept.runs((track.link.name, control.name), settings(track, control)) or []


def simulated(track: Track, control: Control) -> list[float]:
    """Goodput and p95 of the simulator, which say whether a stored run is of the present law."""
    runs = [rounded(run) for run in front.measured(track, control)]
    goodput, ping, _ = (sum(column) / len(runs) for column in zip(*runs, strict=True))
    return [round(goodput, -3), round(ping, 1)]


def present(runs: Sequence[LabRun], now: Sequence[float]) -> list[LabRun]:
    """The runs of the present law; the others are run again."""
    return [run for run in runs if unchanged(run["simulator"], now)]


def unchanged(then: Sequence[float], now: Sequence[float]) -> bool:
    """Whether the simulator gives what it gave. Another compiler may round otherwise."""
    rooms = (ROUNDING * now[0], ROUNDING * now[1] + SAME_MS)
    return all(abs(a - b) <= room for a, b, room in zip(then, now, rooms, strict=True))


def measured(
    track: Track, control: Control, seed: int, progress: Callable[[int, int], None] | None
) -> LabRun:
    """One run of the lab."""
    with tempfile.TemporaryDirectory(prefix="unbloat-front-") as folder:
        (Path(folder) / "link").write_text(track.text)
        options = RunOptions(seed=seed, traces=folder)
        run = lab_all(scenario(track, control), options, progress=progress).runs[0]
    figures = read(run, track, control)
    came_from = origin(run.info, f"{track.link.name}, {control.label}", control.role == "ours")
    return {
        "goodput_bps": round(figures.goodput_bps, -3),
        "ping_p95_ms": round(figures.ping_p95_ms, 1),
        "queue_p95_ms": round(figures.flow_p95_ms, 1),
    } | came_from


def origin(info: Mapping[str, Any], what: str, treated: bool) -> LabRun:
    """What is stored of a run beside its figures. Raises `LabError` unless agents ran exactly where the case has them."""
    if bool(info["agents"]) != treated:
        # Else a control would be measured as if it were its case.
        raise LabError(f"{what}: agents that ran: {info['agents']}")
    late = info.get("lateness_us_p99")
    return {
        "late_ms": None if late is None else round(late / 1000, 2),
        "warnings": info["warnings"],
        "date": time.strftime("%Y-%m-%d"),
        "kernel": info["kernel"],
    }


def commit() -> str:
    """What is measured: the commit, `+` if the tree differs from it by more than results; of an installed package the version."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=PACKAGE, capture_output=True, text=True)

    known = git("rev-parse", "--short=7", "HEAD")
    if known.returncode != 0:
        return __version__
    changed = git("diff", "--quiet", "HEAD", "--", ":/", ":!/docs/generated").returncode
    return known.stdout.strip() + "+" * bool(changed)


def field(track: Track, kept: Store) -> Field:
    """A link as the judge reads it."""
    bound, link, points = oracle(track), track.link, []
    for control in for_way(link.way):
        runs = stored(kept, track, control) if control in lab_controls() else []
        if runs:
            goodput, ping, queue = (spread([run[name] for run in runs]) for name in FIGURES)
            points.append(Point(control.name, control.variant, control.role, goodput, ping, queue))
    return Field(
        link.name, link.group, link.half, bound.goodput_bps, bound.ping_p95_ms, tuple(points)
    )


@dataclass(frozen=True)
class Difference:
    """One control on one link: the lab less the simulator."""

    link: str
    lab: Point
    simulator: Point | None
    """None where the simulator's case is not stored."""
    reaches: tuple[bool | None, bool | None] | None
    """Of a control of this project, whether it reaches the goal in the lab and in the simulator."""

    @property
    def goodput(self) -> float | None:
        """As a share of the simulator's."""
        return relative(self.lab.goodput, self.simulator.goodput if self.simulator else None)

    @property
    def p95(self) -> float | None:
        """As a share of the simulator's."""
        return relative(self.lab.p95, self.simulator.p95 if self.simulator else None)

    @property
    def differs(self) -> list[str]:
        """In what, by more than the tolerances."""
        apart = (("goodput", self.goodput, SAME_GOODPUT), ("p95", self.p95, SAME_P95))
        return [name for name, by, same in apart if by is not None and abs(by) > same]


def relative(value: Spread, base: Spread | None) -> float | None:
    """How much larger a mean is than its base."""
    return value.mean / base.mean - 1 if base is not None and base.mean else None


def differences(lab: Sequence[Field], simulated: Sequence[Field]) -> list[Difference]:
    """Of every point that the lab has."""
    by_link = {one.link: one for one in simulated}
    found = []
    for one in lab:
        of_simulator = by_link.get(one.link)
        for point in one.points:
            other = of_simulator.point(point.control) if of_simulator else None
            goals = None
            if point.role == "ours":
                goals = reached(one, point), reached(of_simulator, other)
            found.append(Difference(one.link, point, other, goals))
    return found


def reached(field: Field | None, point: Point | None) -> bool | None:
    """Whether it reaches the goal; None where one of the figures is not there."""
    if field is None or point is None or field.point("bbr") is None or field.untreated is None:
        return None
    return judge(field, point).reaches
