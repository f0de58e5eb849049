"""Every change is in the journal, on disk, before it is made: the agent's system calls show it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from download import Agent, Download
from requirements import require

pytestmark = pytest.mark.usefixtures("machine")
# What a line of the journal says, and the call that makes the change: a program on sockets, a discipline and two filters on a device
# (RTM_NEWQDISC, RTM_NEWTFILTER), which not every strace knows by their names.
CHANGES = (
    (r"change\":\"sockets", "BPF_CGROUP_SOCK_OPS"),
    (r"change\":\"clsact", "nlmsg_type=(0x24|RTM_NEWQDISC)"),
    (r"device\":\"up\",\"direction\":\"egress", "nlmsg_type=(0x2c|RTM_NEWTFILTER)"),
    (r"device\":\"up\",\"direction\":\"ingress", "nlmsg_type=(0x2c|RTM_NEWTFILTER)"),
)
CALLS = "calls.txt"


class Traced(Agent):
    """An agent on the testbed's host, whose uplink is the emulator's; the calls of its daemon are written down."""

    def __init__(self, testbed: Download, *settings: str) -> None:
        super().__init__(testbed, *settings, inside=True)
        self.calls = testbed.folder / CALLS

    def argv(self, *words: str) -> list[str]:
        """A command line in the namespace."""
        calls = ("-e", "trace=write,fsync,bpf,sendto", "-o", str(self.calls))
        trace = ["strace", "-f", "-y", "-s", "300", *calls]
        return [*(trace if words[0] == "serve" else []), *super().argv(*words)]


def test_what_is_changed_is_on_disk_before(tmp_path: Path) -> None:
    require("strace")
    uplink = ("uplink.mode=acks", "uplink.clsact=true", "uplink.driver=false", "scope.device=up")
    with Download(tmp_path) as testbed, Traced(testbed, *uplink) as agent:
        agent.serve()
        calls = (tmp_path / CALLS).read_text().splitlines()
        agent.do("off")
        agent.nothing_left()
    at = 0
    for line, change in CHANGES:
        written = next(
            n for n, call in enumerate(calls) if "journal.jsonl>" in call and line in call
        )
        on_disk = next(n for n, call in enumerate(calls) if n > written and "fsync(" in call)
        made = next(n for n, call in enumerate(calls) if n > at and re.search(change, call))
        assert written < on_disk < made, (line, calls[written], calls[made])
        at = made
