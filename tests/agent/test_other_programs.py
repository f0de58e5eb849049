"""Programs of others on the same sockets, as bpftune's: `status` names them, and says what they do to the cures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from download import Agent, Download
from reader import Reader, Sender
from test_receive_traps import another

from unbloat.lab.cleanup.session import cgroup_root
from unbloat.lab.testbed import run, until

pytestmark = pytest.mark.usefixtures("machine")


def others(agent: Agent) -> list[dict[str, Any]]:
    """The programs that `status` lists."""
    found: list[dict[str, Any]] = agent.status()["other_programs"]
    return found


def named(agent: Agent, name: str) -> None:
    """Until `status` names a program."""
    until(lambda: name in [other["name"] for other in others(agent)], 15)


def test_a_program_that_replaces_flags_is_named_with_what_it_did_until_it_goes(
    tmp_path: Path,
) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        Sender(testbed)
        agent.serve()
        assert others(agent) == []
        assert "another program" not in agent.do("status")
        with another(testbed):
            Reader(testbed)
            named(agent, "another")
            until(lambda: agent.status()["flags_replaced"] > 0, 15)
            (other,) = others(agent)
            assert other["cgroup"] == str(testbed.cgroup)
            assert f'"id":{other["id"]}' in run("bpftool", "-j", "prog", "show", "name", "another")
            text = agent.do("status")
            printed = f"same sockets: another (sock_ops program {other['id']}, attached to {testbed.cgroup})"
            assert printed in text
            assert re.search(r"callback flags of \d+ connections had been replaced", text)
            assert printed in agent.log()
            assert agent.status()["problems"] == [], "they are set again"
        until(lambda: others(agent) == [], 15)


def test_a_program_at_the_root_that_opens_every_window_is_a_problem(tmp_path: Path) -> None:
    root = Path(cgroup_root())
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=3") as agent:
        Sender(testbed, port=5398)
        agent.serve()
        with another(testbed, "tuning", root):
            reader = Reader(testbed, port=5398)
            named(agent, "tuning")
            assert [other["cgroup"] for other in others(agent)] == [str(root)]
            until(lambda: agent.status()["problems"] != [], 20)
            (problem,) = agent.status()["problems"]
            assert "the window clamp is not the cure's" in problem
            assert f"! {problem}" in agent.do("status")
            assert "same sockets: tuning (" in agent.do("status")
            assert problem in agent.log()
            assert reader.clamp() == 4_000_000, "the program above runs last"
        until(lambda: agent.status()["problems"] == [], 20)
        assert reader.clamp() < 1_000_000


def test_a_smaller_window_of_another_program_is_kept_as_an_applications_is(tmp_path: Path) -> None:
    with (
        Download(tmp_path) as testbed,
        Agent(testbed, "receive.lambda=3") as agent,
        another(testbed, "tuning", Path(cgroup_root())),
    ):
        Sender(testbed, port=5397)
        agent.serve()
        reader = Reader(testbed, port=5397)
        named(agent, "tuning")
        until(lambda: agent.status()["flows"] != [], 15)
        assert agent.status()["problems"] == []
        assert reader.clamp() == 40_000


def test_a_program_that_sets_the_congestion_control_is_named(tmp_path: Path) -> None:
    routes = 'congestion.routes={"10.0.0.0/8"="reno"}'
    with (
        Download(tmp_path) as testbed,
        Agent(testbed, "receive.enabled=false", routes) as agent,
    ):
        Sender(testbed, port=5399)
        agent.serve()
        Reader(testbed, port=5399)
        until(lambda: testbed.congestion(5399) == {"reno"}, 10)
        with another(testbed, "tuning", Path(cgroup_root())):
            Reader(testbed, port=5399)
            until(lambda: "cubic" in testbed.congestion(5399), 10)
            named(agent, "tuning")
            assert "congestion control the last writer wins" in agent.do("status")
