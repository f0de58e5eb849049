"""Only the connections of one user."""

from __future__ import annotations

import pwd
import subprocess
import time
from pathlib import Path

import pytest
from download import Agent, Download
from reader import Reader, Sender

pytestmark = pytest.mark.usefixtures("machine")
# The socket belongs to who makes it.
OTHER = "import os; os.seteuid({uid}); s.close(); s = socket.socket(family, socket.SOCK_STREAM); os.seteuid(0)"
USER = "nobody"
"""An account that every Linux system has."""


def port(reader: Reader) -> int:
    """Of its socket."""
    return int(reader.ask("port"))


def treated(agent: Agent) -> set[int]:
    """The ports of the connections for which something was decided lately: a round takes up to two seconds of queue."""
    return {flow["local_port"] for flow in agent.status()["flows"] if flow["age_ms"] < 4_000}


def test_only_the_connections_of_one_user_are_treated_old_and_new(tmp_path: Path) -> None:
    other = OTHER.format(uid=pwd.getpwnam(USER).pw_uid)
    with (
        Download(tmp_path) as testbed,
        Agent(testbed, "receive.lambda=1.5", f'scope.user="{USER}"') as agent,
    ):
        Sender(testbed, 30_000_000)
        early, roots = Reader(testbed, setup=other), Reader(testbed)
        time.sleep(2)
        agent.serve()
        late, also_roots = Reader(testbed, setup=other, version=6), Reader(testbed, version=6)
        time.sleep(5)
        assert treated(agent) == {port(early), port(late)}
        # Another user at run time: treated connections get their own windows back, the others are
        # treated from now on.
        before = agent.status()["cures"]["receive"]["lifted"]
        agent.set("scope.user=0")
        time.sleep(9)
        assert agent.status()["cures"]["receive"]["lifted"] == before + 2
        assert treated(agent) == {port(roots), port(also_roots)}
        agent.do("off")
        agent.nothing_left()


def test_a_user_that_this_host_does_not_know_is_refused_by_name(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, 'scope.user="nosuchuser"') as agent:
        done = subprocess.run(agent.argv("serve", *agent.sets()), capture_output=True, text=True)
        assert done.returncode == 3
        assert "nosuchuser" in done.stderr
