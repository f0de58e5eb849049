"""The janitor of a lab: whatever happens to the process that runs it, nothing of the lab stays behind.

signal: end of file on standard input, or the owner gone from the process table · model: a state file that names
everything before it comes to be: namespaces, processes with their start times, the temporary folder · action: ends the
processes, deletes the namespaces, removes folders, cgroups, what agents pinned, and the state file.

It runs by itself (`python -I -S janitor.py STATE`), in a session of its own so that no Ctrl-C reaches it, and needs
nothing but the standard library. `clean` is also what `unbloat lab clean` calls for labs whose janitor died with them.

A process belongs to a lab if the state file names it, if it lives in one of its namespaces, or if its environment
says so (`UNBLOAT_LAB`): browsers and servers start processes of their own.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STATES = Path("/run/unbloat-lab")
NAMESPACES = Path("/run/netns")
MARK = "UNBLOAT_LAB"
"""Variable of the environment that holds the id of the lab a process belongs to."""

# Programs get this long to end by themselves, then this long to vanish once they are killed.
POLITE_S, FIRM_S = 0.5, 5.0
# How often the janitor looks whether its owner lives, in case another process holds the pipe open.
LOOK_S = 1.0

# A namespace of a lab: `ub-`, its id of eight hexadecimal digits, the node.
NAMED = re.compile(r"ub-([0-9a-f]{8})-.+")

State = dict[str, Any]


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with its number this identifies it. None where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def lives(process: list[int] | None) -> bool:
    """Whether this very process, and no later one of its number, is there."""
    return process is not None and started(process[0]) == process[1]


def write(state: State) -> None:
    """Replaces the state file at once, so that no reader sees half of it."""
    STATES.mkdir(mode=0o755, exist_ok=True)
    path = state_path(state["id"])
    path.with_suffix(".new").write_text(json.dumps(state))
    path.with_suffix(".new").replace(path)


def state_path(lab: str) -> Path:
    """Where the state of a lab is."""
    return STATES / f"{lab}.json"


def read(path: Path) -> State | None:
    """A state file, or None where it is gone or no state file."""
    try:
        state = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and isinstance(state.get("id"), str) else None


def inhabitants(names: list[str]) -> set[int]:
    """The processes that live in these namespaces."""
    inodes = set()
    for name in names:
        try:
            inodes.add(os.stat(NAMESPACES / name).st_ino)
        except OSError:
            continue
    return {pid for pid in processes() if inode(pid) in inodes}


def processes() -> list[int]:
    """All of them."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def inode(pid: int) -> int | None:
    """The network namespace that a process is in."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def marked(lab: str) -> set[int]:
    """The processes whose environment names this lab."""
    wanted = f"{MARK}={lab}".encode()
    found = set()
    for pid in processes():
        try:
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
        except OSError:
            continue
    return found


def members(state: State) -> set[int]:
    """The living processes of a lab; never this one, nor its janitor and owner."""
    named = {pid for pid, start in state["processes"] if lives([pid, start])}
    found = named | inhabitants(state["namespaces"]) | marked(state["id"])
    apart = {
        os.getpid(),
        *(one[0] for one in (state["owner"], state["janitor"]) if one is not None),
    }
    return {pid for pid in found - apart if started(pid) is not None}


def end(state: State) -> set[int]:
    """Ends all processes of a lab: asks, then kills; those that stay are returned."""
    for number, timeout_s in ((signal.SIGTERM, POLITE_S), (signal.SIGKILL, FIRM_S)):
        deadline = time.monotonic() + timeout_s
        asked: set[int] = set()
        while left := members(state):
            for pid in left - asked:
                send(pid, number, state)
            asked |= left
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if not left:
            return set()
    return left


def send(pid: int, number: signal.Signals, state: State) -> None:
    """A signal to a process that is held by a descriptor meanwhile, so that its number cannot pass to another."""
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if pid in members(state):
            signal.pidfd_send_signal(held, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(held)


def clean(state: State) -> list[str]:
    """Ends and removes everything of a lab, its state file last; what could not be removed, in words."""
    problems = [f"process {pid} does not end" for pid in sorted(end(state))]
    for name in state["namespaces"]:
        problems += delete(name)
    folders = [*([] if state["folder"] is None else [state["folder"]]), *state.get("leftovers", [])]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        if Path(folder).exists():
            problems.append(f"{folder} cannot be removed")
    for cgroup in state.get("cgroups", []):
        problems += leave(Path(cgroup))
    if not problems:
        state_path(state["id"]).unlink(missing_ok=True)
    return problems


def delete(name: str) -> list[str]:
    """A namespace, where it is there."""
    if not (NAMESPACES / name).exists():
        return []
    done = subprocess.run(["ip", "netns", "del", name], capture_output=True, text=True)
    return [f"namespace {name}: {done.stderr.strip()}"] if (NAMESPACES / name).exists() else []


def leave(cgroup: Path) -> list[str]:
    """Removes a cgroup, which is empty when the last of its processes was waited for."""
    deadline = time.monotonic() + FIRM_S
    while cgroup.exists():
        try:
            cgroup.rmdir()
        except OSError as error:
            if time.monotonic() > deadline:
                return [f"cgroup {cgroup}: {error.strerror}"]
            time.sleep(0.02)
    return []


def wait_for_end(owner: list[int]) -> None:
    """Returns when standard input ends, or the owner is gone."""
    while True:
        ready, _, _ = select.select([0], [], [], LOOK_S)
        if (ready and not os.read(0, 4096)) or not lives(owner):
            return


def main(path: Path) -> int:
    """Waits for the end of the lab, and removes everything of it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    state = read(path)
    if state is None:
        print(f"{path} is no state file", flush=True)
        return 1
    print("ready", flush=True)
    wait_for_end(state["owner"])
    state = read(path)
    if state is None:  # the owner has cleaned
        return 0
    problems = clean(state)
    try:
        for problem in problems:
            print(problem, flush=True)
    except BrokenPipeError:  # no reader is left
        pass
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
