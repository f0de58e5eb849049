"""One agent at a time, whatever its directories; and requests, commands and journals that are wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from agent_program import AgentProgram
from daemon import Daemon
from download import Agent, Download
from reader import Sender
from test_front import front
from test_receive_safety import LEASE_S, holding, lifted
from uplink import Uplink
from uplink import scenario as uplink_scenario

from unbloat.lab.testbed import TIMEOUT_S, end, until

pytestmark = pytest.mark.usefixtures("machine")


class Elsewhere(Agent):
    """An agent with a runtime directory of its own, and the pins of another."""

    def __init__(self, first: AgentProgram, testbed: Download, *settings: str) -> None:
        super().__init__(testbed, *settings)
        self.runtime, self.pins = testbed.folder / "elsewhere", first.pins


def test_a_second_agent_with_the_pins_of_the_first_is_refused_and_undoes_nothing(
    tmp_path: Path,
) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=4") as agent:
        Sender(testbed)
        agent.serve()
        reader, held = holding(testbed, agent)
        assert agent.daemon is not None
        other = Elsewhere(agent, testbed)
        for words in (("on", *other.sets()), ("off",)):
            text = other.do(*words, works=False)
            assert f"process {agent.daemon.pid}" in text
            assert f"with the pins {agent.pins} and another --runtime" in text
        assert agent.pins.exists()
        assert reader.clamp() < 1.2 * held, "the first agent goes on"
        agent.kill(supervisor=True)
        assert lifted(reader, held, 5) < LEASE_S + 0.5, "the lease, and an ACK"
        agent.do("off")
        agent.nothing_left()
        assert not agent.pins.with_name(f"{agent.pins.name}-lock").exists()


@pytest.mark.parametrize("journal", ["", "\x00garbage{", None], ids=["empty", "garbage", "gone"])
def test_off_removes_the_pins_without_a_journal(tmp_path: Path, journal: str | None) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        agent.serve()
        agent.kill(supervisor=True)
        assert agent.pins.exists()
        path = agent.runtime / "journal.jsonl"
        if journal is None:
            path.unlink()
        else:
            path.write_text(journal)
        assert "gave 0 connections back" in agent.do("off")
        assert not agent.pins.exists()
        assert agent.do("off").strip() == "off"


def filters(testbed: Uplink, device: str) -> str:
    """Of a device of the phone's, both ways."""
    hooks = ("ingress", "egress")
    return "".join(
        testbed.ask("phone", "tc", "filter", "show", "dev", device, hook) for hook in hooks
    )


@pytest.mark.parametrize("mode", ["acks", "gate"])
def test_off_removes_filters_without_a_journal_and_only_those_that_no_agent_renews(
    tmp_path: Path, mode: str
) -> None:
    """The controls: an agent with other directories on another device, and a filter of the
    administrator's with the preference of ours."""
    settings = ("uplink.clsact=true", f"uplink.mode={mode}")
    with Uplink(tmp_path / "testbed", uplink_scenario()) as testbed:
        device = testbed.device
        own = Daemon(testbed, "phone", *settings, f"scope.device={device}")
        other = Daemon(testbed, "phone", *settings, "scope.device=lan")
        other.runtime = tmp_path / "other"
        other.pins = own.pins.with_name(f"{own.pins.name}-other")
        with own as agent, other as second:
            agent.serve()
            second.serve()
            preference = "47" if mode == "gate" else "48"
            code = ("bpf", "bytecode", "1,6 0 0 4294967295,", "flowid", "1:1")
            words = ("filter", "add", "dev", device, "egress", "pref", preference, "handle", "9")
            testbed.ask("phone", "tc", *words, *code)
            agent.kill(supervisor=True)
            (agent.runtime / "journal.jsonl").write_text("")
            ours, renewed = filters(testbed, device), filters(testbed, "lan")
            program = "egress" if mode == "gate" else "acks_out"
            assert f"handle 0x1 {program}" in ours
            assert f"handle 0x1 {program}" in renewed
            said = agent.do("off")
            assert f"put back: {'the gate' if mode == 'gate' else 'ACK-window rewriting'}" in said
            assert "handle 0x1 " not in filters(testbed, device)
            assert "handle 0x9" in filters(testbed, device), "the administrator's"
            assert filters(testbed, "lan") == renewed, "another agent renews them"
            assert agent.do("off").strip() == "off"


def test_a_malformed_request_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        agent.serve()
        for settings in ([["receive.lambda", 2]], "x", [["a"]], [["receive.lambda", "2", "3"]]):
            answer = agent.ask({"ask": "set", "set": settings})
            assert answer["ok"] is False
            assert answer["error"].startswith("expected "), answer
        assert agent.ask({"ask": "set", "set": [["receive.lambda", "2"]]}) == {"ok": True}


def test_on_says_by_its_exit_code_that_a_cure_is_not_in_place(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        argv = agent.argv("--json", "on", *agent.sets('congestion.routes={"0.0.0.0/0"="vegas"}'))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 4, done
        assert json.loads(done.stdout.splitlines()[0])["problems"] != []
        assert "could not be put in place" in done.stderr
        assert agent.status()["cures"].keys() == {"receive"}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_run_ends_within_two_seconds_of_its_front(tmp_path: Path, how: signal.Signals) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "uplink.mode=off") as agent:
        testbed.iperf_server()
        download = testbed.download(20)
        running = front(agent, "run", "--for", "60s", "--json")
        until(lambda: agent.pins.exists(), TIMEOUT_S)
        time.sleep(1)  # the front reads the stream
        os.kill(running.pid, how)
        running.wait(TIMEOUT_S)
        assert until(lambda: not agent.pins.exists(), TIMEOUT_S) < 2
        agent.nothing_left(TIMEOUT_S)
        end(download)


def test_an_agent_that_is_stopped_is_named_by_status_and_by_off(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        daemon = agent.serve()
        daemon.send_signal(signal.SIGSTOP)
        try:
            said = agent.do("status", works=False)
            assert "the agent does not answer within 10 s: it is stopped" in said
            said = agent.do("off", works=False)
            assert f"the agent does not answer (daemon, process {daemon.pid})" in said
        finally:
            daemon.send_signal(signal.SIGCONT)
        agent.do("off")
        agent.nothing_left(TIMEOUT_S)
