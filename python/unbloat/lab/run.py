"""One run of the lab, from a plan to a directory of raw files.

signal: a resolved plan · model: namespaces, the emulator's devices, captures, agents, programs, in this order; nothing passes
before all are ready · action: `RAW/`: plan.json, scenario.toml, lab.json, emu/, flows/, probes/, captures/, agent.jsonl, logs/. While it
runs it is watched: a process that dies, a namespace that vanishes, a disk that fills end it with one clear line.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unbloat.errors import LabError
from unbloat.lab.agent.config import cures, nodes_with_cgroup
from unbloat.lab.agent.process import Agent, sample_agents, start_agents
from unbloat.lab.cleanup import janitor
from unbloat.lab.cleanup.session import Session
from unbloat.lab.emulator import Emulator
from unbloat.lab.process import Child
from unbloat.lab.setup import processor
from unbloat.lab.setup.namespaces import connect, create
from unbloat.lab.setup.tcp_settings import Plan
from unbloat.lab.setup.unsupported import plan_warnings
from unbloat.lab.tcpdump import Capture, start_captures, stop_captures
from unbloat.lab.traffic import commands

# How often everything is looked at.
LOOK_S = 0.1
# A browser starts within seconds, on a busy machine in more.
READY_S = 60.0
# Programs end by themselves at the scenario's end; a browser writes its files first.
END_S = 10.0
# When a program dies, the emulator's own end is waited for so long: it may be the reason.
CAUSE_S = 0.5
# The last of the disk is left free: the end of a run is written, too.
MIN_FREE_BYTES = 1 << 20


@dataclass(frozen=True)
class Order:
    """What is run, and where to."""

    plan: Plan
    text: str
    """The scenario file."""
    overrides: Sequence[tuple[str, str]]
    traces: dict[str, str]
    raw: Path
    snap: int
    share: Callable[[float], None]
    """Called with the share of the run that is over."""


@dataclass
class RunState:
    """A run under way."""

    session: Session
    order: Order
    namespaces: list[str]
    captures: list[Capture] = field(default_factory=list)
    cgroups: dict[int, Path] = field(default_factory=dict)
    """Of the nodes whose connections an agent has to know."""
    agents: list[Agent] = field(default_factory=list)
    programs: list[Child] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run_order(session: Session, order: Order) -> None:
    """Runs it; raises `LabError` where it fails. The session ends what is left of it."""
    plan, raw = order.plan, order.raw
    for name in ("emu", "logs", "traces"):
        (raw / name).mkdir(parents=True)
    (raw / "plan.json").write_text(json.dumps(plan, indent=1))
    (raw / "scenario.toml").write_text(order.text)
    traces = {}
    for number, (name, text) in enumerate(order.traces.items()):
        traces[name] = raw / "traces" / str(number)
        traces[name].write_text(text)
    state = RunState(session, order, session.namespaces([node["name"] for node in plan["nodes"]]))
    state.warnings += plan_warnings(plan)
    create(state.namespaces, plan)
    wanted = cures(plan)
    state.cgroups = {
        node: session.cgroup(plan["nodes"][node]["name"]) for node in nodes_with_cgroup(wanted)
    }
    options = ["--seed", str(plan["seed"])]
    options += [word for key, value in order.overrides for word in ("--set", f"{key}={value}")]
    options += [word for name, path in traces.items() for word in ("--trace", f"{name}={path}")]
    places = dict(zip((node["name"] for node in plan["nodes"]), state.namespaces, strict=True))
    scenario, logs = raw / "scenario.toml", raw / "logs"
    emulator = Emulator(session, scenario, raw / "emu", places, logs, options)
    try:
        devices = emulator.devices()
        connect(state.namespaces, plan, devices)
        state.captures = start_captures(session, plan, state.namespaces, devices, raw, order.snap)
        state.agents = start_agents(
            session, wanted, plan, state.namespaces, devices, state.cgroups, raw
        )
        start_programs(state)
        begin_ns, unix_ns = emulator.go()
        for program in state.programs:
            program.say(str(begin_ns))
        watch(state, emulator, begin_ns)
        # The devices are there until the emulator is let go.
        state.warnings += stop_captures(state.captures)
        state.warnings += [problem for one in state.agents for problem in one.end()]
        summary = emulator.finish()
        end_programs(state)
    except OSError as error:
        raise full(raw) or error from None
    except LabError as error:
        # On a full disk the first program that writes dies; the disk is the reason.
        raise full(raw) or error from None
    noted = {
        "id": session.id,
        "t0_monotonic_ns": begin_ns,
        "t0_unix_ns": unix_ns,
        "kernel": f"{platform.system()} {platform.release()}",
        "offloads": [
            f"{device['node']}.{device['name']}: segmentation offload {'on' if device['offload'] else 'off'}"
            for device in summary.get("devices", [])
        ],
        "agents": [one.description() for one in state.agents],
        "namespaces": state.namespaces,
        "warnings": state.warnings,
        "vetoes": [],
    }
    (raw / "lab.json").write_text(json.dumps(noted, indent=1))


def start_programs(state: RunState) -> None:
    """Starts the programs that make traffic, and waits until all are ready."""
    plan = state.order.plan
    groups = {
        number: processor.make(
            state.session.cgroup, f"reads-{flow['name']}", flow["receiver"]["read"]["cpu"]
        )
        for number, flow in enumerate(plan["flows"])
        if processor.is_limited(flow)
    }
    try:
        for one in commands(plan, state.order.raw, groups):
            name = f"{one.role}-{one.name}"
            logs = state.order.raw / "logs"
            space, cgroup = state.namespaces[one.node], state.cgroups.get(one.node)
            entries = tuple(groups.values()) if one.role == "streams" else ()
            state.programs.append(
                Child(state.session, name, one.argv, logs, space, cgroup, entries)
            )
    finally:
        for entry in groups.values():
            os.close(entry)
    for program in state.programs:
        said = program.line(READY_S, '"ready"')
        if said != "ready":
            raise LabError(f'{program.name}: expected "ready", got {said[:100]!r}')


def watch(state: RunState, emulator: Emulator, begin_ns: int) -> None:
    """Until the emulator is done: everything that must live does."""
    duration = state.order.plan["duration_s"]
    while emulator.summary is None:
        elapsed = (time.monotonic_ns() - begin_ns) / 1e9
        state.order.share(min(max(elapsed / duration, 0.0), 1.0))
        so_far = f"after {elapsed:.1f} s of {duration:g} s"
        check(state, emulator, so_far)
        sample_agents(state.agents, begin_ns)
        endless = [*(one.child for one in state.captures), *(one.child for one in state.agents)]
        dead = [child for child in [*endless, *state.programs] if child.has_failed()]
        if dead:
            # Programs that use a device die with the emulator; then the emulator is the reason.
            emulator.child.wait_a_little(CAUSE_S)
            check(state, emulator, so_far)
            raise dead[0].failure(f"{dead[0].status()} {so_far}")
        if elapsed > duration + END_S:
            raise emulator.child.failure(f"does not end: {duration:g} s are over since {END_S:g} s")
        select.select([emulator.child.output], [], [], LOOK_S)
    elapsed = (time.monotonic_ns() - begin_ns) / 1e9
    if elapsed < duration - LOOK_S:
        raise emulator.child.failure(f"stopped after {elapsed:.1f} s of {duration:g} s")


def check(state: RunState, emulator: Emulator, so_far: str) -> None:
    """Disk, namespaces, emulator: what makes everything else fail."""
    error = full(state.order.raw)
    if error is not None:
        raise error
    for name in state.namespaces:
        if not (janitor.NAMESPACES / name).exists():
            raise LabError(f"the namespace {name} vanished {so_far}")
    emulator.read_events()
    if emulator.summary is None and emulator.child.ended:
        emulator.child.wait(END_S)
        raise emulator.child.failure(f"{emulator.child.status()} {so_far}")


def end_programs(state: RunState) -> None:
    """They end by themselves; the standard input of one that does not is closed, then it is killed."""
    deadline = time.monotonic() + END_S
    for program in state.programs:
        with contextlib.suppress(Exception):
            program.process.wait(max(0.0, deadline - time.monotonic()))
        if not program.has_ended():
            state.warnings.append(f"{program.name} did not end with the scenario")
            program.let_go()
            program.end()
        elif program.process.returncode != 0:
            raise program.failure(program.status())


def full(raw: Path) -> LabError | None:
    """An error where the disk is full."""
    stat = os.statvfs(raw)
    free = stat.f_bavail * stat.f_frsize
    if free >= MIN_FREE_BYTES:
        return None
    return LabError(f"the disk under {raw} is full ({free // 1024} KiB left): the run is given up")


def copied(raw: Path, folder: Path) -> list[str]:
    """The captures of a run, in a folder of the user's."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        str(shutil.copy2(path, folder / path.name))
        for path in sorted((raw / "captures").glob("*.pcap"))
    ]
