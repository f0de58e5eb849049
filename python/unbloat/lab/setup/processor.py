"""Groups of processes with a share of one processor, for applications whose processor limits their reading.

signal: the plan's flows with such a `read` · model: a control group each, with a quota in every period of 100 ms: `cpu.max` of
cgroup v2, or `cpu.cfs_quota_us` where the controller `cpu` is one of v1 · action: `make` makes one, which the session's janitor
removes; `unsupported_processor` says why there can be none.

A program inside of `ip netns exec` does not see these files. It enters by a descriptor of `cgroup.procs` that is opened before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unbloat.errors import LabError
from unbloat.lab.setup.tcp_settings import has_own_sockets

MOUNTS = Path("/proc/self/mounts")
# The default of cpu.max, and the simulator's.
PERIOD_US = 100_000


def is_limited(flow: dict[str, Any]) -> bool:
    """Whether the processor limits the reading application."""
    read = flow["receiver"]["read"]
    return read is not None and "cpu" in read


def unsupported_processor(plan: dict[str, Any], grouped: list[int]) -> list[str]:
    """Why the lab cannot limit a reader of this plan; `grouped`: nodes whose programs are in a cgroup of unbloat-agent."""
    found = []
    for flow in filter(is_limited, plan["flows"]):
        key = f"{flow['name']}: read.cpu"
        if flow["app"]["kind"] == "file" and flow["sender_opens"]:
            found.append(f"{key}: the receiver of an uploaded file reads by itself")
        elif not has_own_sockets(flow, plan) or flow["app"]["kind"] == "voip":
            found.append(f"{key}: only our own receiver of a stream has a processor")
        if flow["to"] in grouped:
            found.append(f"{key}: its node's programs are in the cgroup of unbloat-agent")
        if root() is None:
            found.append(f"{key}: no cgroup controller `cpu` is there for groups of the lab")
    return found


def root(mounts: str | None = None) -> tuple[Path, int] | None:
    """Where groups with the controller `cpu` can be made, and the version of cgroups there."""
    for line in (MOUNTS.read_text() if mounts is None else mounts).splitlines():
        _, path, kind, options, *_ = line.split(" ")
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(path), 1
        if kind == "cgroup2":
            enabled = Path(path) / "cgroup.subtree_control"
            if enabled.exists() and "cpu" in enabled.read_text().split():
                return Path(path), 2
    return None


def make(new_group: Callable[[str, Path], Path], name: str, cpu: float) -> int:
    """Makes a group with this share of one processor, by the session's `cgroup`; a descriptor by which processes enter it."""
    found = root()
    if found is None:
        raise LabError("no cgroup controller `cpu` is there for groups of the lab")
    above, version = found
    group = new_group(name, above)
    quota = round(cpu * PERIOD_US)
    try:
        if version == 2:
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        return os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LabError(f"{group}: no quota of the processor: {error.strerror}") from None
