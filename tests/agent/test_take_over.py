"""An upgrade (`serve --take-over`) on a slow processor: the new agent renews what the old one left
while it loads, and whatever is killed, the cure ends within the lease."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_program import AgentProgram
from daemon import phone, upload, window
from download import Agent, Download
from reader import Sender
from test_daemon import HELD, HELD_WITHIN_S
from test_receive_safety import LEASE_S, holding, lifted
from uplink import SERVER, scenario

from unbloat.lab.testbed import TIMEOUT_S, end, until

pytestmark = pytest.mark.usefixtures("machine")
NICE = 15
"""Beside a loop on the same processor, one part in 29 of it (sched_prio_to_weight): a start that takes 0.2 s takes longer
than several leases. To stop and continue it would be no slow processor: a signal ends the kernel's check of a program."""
LOOP = "while True: pass"


@contextlib.contextmanager
def slowly(agent: AgentProgram) -> Iterator[subprocess.Popen[str]]:
    """An agent that takes over on a processor that is busy with a loop."""

    def alone() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    def behind() -> None:
        alone()
        os.nice(NICE)

    loop = subprocess.Popen((sys.executable, "-c", LOOP), text=True, preexec_fn=alone)
    with (agent.folder / "agent.log").open("a") as log:
        argv = agent.argv("serve", "--take-over", *agent.sets())
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=behind
        )
    agent.started.append(process)
    try:
        yield process
    finally:
        end(loop)


def handed_over(agent: AgentProgram) -> float:
    """Waits until the old one has ended: when that was."""
    assert agent.daemon is not None
    assert agent.daemon.wait(TIMEOUT_S) == 0
    return time.monotonic()


def children(process: subprocess.Popen[str]) -> list[int]:
    """Its supervisor, if it has one yet."""
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(child) for child in text.split()]


def says(process: subprocess.Popen[str]) -> str:
    """Its first line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_download_is_held_while_the_new_agent_loads_for_longer_than_the_lease(
    tmp_path: Path,
) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=4") as agent:
        Sender(testbed)
        agent.serve()
        reader, held = holding(testbed, agent)
        agent.settings[-1] = "receive.lambda=1.5"
        with slowly(agent) as new:
            begun = handed_over(agent)
            answers: list[str] = []
            thread = threading.Thread(target=lambda: answers.append(says(new)))
            thread.start()
            while thread.is_alive():
                assert reader.clamp() < 1.5 * held, (
                    f"after {time.monotonic() - begun:.1f} s: {agent.log()}"
                )
                time.sleep(0.05)
            took = time.monotonic() - begun
        assert answers == ["on"], agent.log()
        assert took > 2 * LEASE_S, "else this test says nothing"
        agent.daemon = new
        agent.do("off")
        agent.nothing_left()


@pytest.mark.parametrize("supervised", [True, False], ids=["agent", "agent-and-supervisor"])
def test_a_new_agent_that_is_killed_while_it_loads_leaves_nothing_for_longer_than_the_lease(
    tmp_path: Path, supervised: bool
) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=4") as agent:
        Sender(testbed)
        agent.serve()
        reader, held = holding(testbed, agent)
        with slowly(agent) as new:
            handed_over(agent)
            time.sleep(1)
            for child in children(new) if not supervised else ():
                os.kill(child, signal.SIGKILL)
            new.kill()
            killed = time.monotonic()
        lifted(reader, held, 15)
        assert time.monotonic() - killed < (LEASE_S if supervised else LEASE_S + 0.5)
        if supervised:
            agent.nothing_left(TIMEOUT_S)
        agent.do("off")
        agent.nothing_left()


@pytest.mark.parametrize("clsact", ["false", "true"])
def test_an_upload_is_held_while_the_new_agent_loads_and_let_go_where_it_is_killed(
    tmp_path: Path, clsact: str
) -> None:
    with phone(tmp_path, scenario(), f"uplink.clsact={clsact}") as (testbed, agent):
        agent.serve()
        sends, takes = upload(testbed, 8_000_000, SERVER)
        until(lambda: 0 < window(testbed) < HELD, HELD_WITHIN_S)
        with slowly(agent) as new:
            handed = handed_over(agent)
            while time.monotonic() < handed + LEASE_S + 1:
                assert new.poll() is None
                assert 0 < window(testbed) < HELD, f"after {time.monotonic() - handed:.1f} s"
            for child in children(new):
                os.kill(child, signal.SIGKILL)
            new.kill()
            killed = time.monotonic()
        until(lambda: window(testbed) > HELD, 15)
        # The lease, and an ACK that has passed 60 ms and a queue.
        assert time.monotonic() - killed < LEASE_S + 1
        for process in (sends, takes):
            end(process)


def test_a_busy_agent_does_not_hand_over_to_one_that_has_given_up(tmp_path: Path) -> None:
    """A FIFO as configuration, without a writer, stops its loop."""
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=4") as agent:
        file = tmp_path / "agent.toml"
        file.write_text("")
        Sender(testbed)
        daemon = agent.serve("--config", str(file))
        reader, held = holding(testbed, agent)
        file.unlink()
        os.mkfifo(file)
        daemon.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        for how in ("given-up", "killed"):
            argv = agent.argv("serve", "--take-over", *agent.sets())
            new = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if how == "given-up":
                # The time of the request, and of the lock.
                time.sleep(3)
            else:
                time.sleep(0.5)
            new.kill()
            new.communicate(timeout=TIMEOUT_S)
        file.write_text("")
        until(lambda: "configuration reloaded" in agent.log(), TIMEOUT_S)
        assert agent.status()["pid"] == daemon.pid
        time.sleep(LEASE_S + 0.5)
        assert reader.clamp() < 1.5 * held
        assert "handing over" not in agent.log()
        agent.do("off")
        agent.nothing_left()
