"""What is left when the agent ends, in every way in which it can: nothing, and no byte is lost."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest
from agent_program import AgentProgram
from download import Agent, Download, scenario
from reader import Reader, Sender

from unbloat.lab.testbed import TIMEOUT_S, run, until

pytestmark = pytest.mark.usefixtures("machine")
LEASE_S = 2.0
SOURCES = Path(__file__).resolve().parents[2] / "crates/agent/src"
# Of the pins.
(LAYOUT,) = re.findall(r"LAYOUT: u32 = (\d+);", next(SOURCES.rglob("socket_walk.rs")).read_text())


def lifted(reader: Reader, held: int, timeout_s: float) -> float:
    """How long it took until the clamp was the kernel's again."""
    return until(lambda: reader.clamp() > 1.5 * held, timeout_s)


def holding(testbed: Download, agent: AgentProgram) -> tuple[Reader, int]:
    """A download that is held, and its clamp. λ falls at the end, so that the kernel's own window is far away."""
    reader = Reader(testbed)
    time.sleep(4)
    agent.set("receive.lambda=1.5")
    time.sleep(2)
    held = reader.clamp()
    assert held < 150_000
    return reader, held


def test_off_puts_everything_back_exactly(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=4") as agent:
        Sender(testbed)
        agent.serve()
        reader, held = holding(testbed, agent)
        agent.do("off")
        clamp, buffer = reader.clamp(), int(reader.ask("buffer"))
        assert clamp > 1.5 * held
        agent.nothing_left()
        assert "receive" not in run("bpftool", "cgroup", "show", str(testbed.cgroup))
        # One that never saw the agent: the kernel's clamp is the same part of its buffer.
        other = Reader(testbed, inside=False)
        time.sleep(3)
        assert clamp / buffer == pytest.approx(other.clamp() / int(other.ask("buffer")), rel=0.02)
        # And it is autotuned again.
        time.sleep(3)
        assert reader.clamp() >= clamp


def test_a_killed_daemon_is_undone_by_its_supervisor_at_once(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=4") as agent:
        Sender(testbed)
        agent.serve()
        reader, held = holding(testbed, agent)
        agent.kill()
        assert lifted(reader, held, 5) < LEASE_S, "not by the lease"
        agent.nothing_left(TIMEOUT_S)
        assert "the agent ended without undoing what it did" in agent.log()


@pytest.mark.parametrize("how", ["off", "kill"])
def test_where_the_kernel_has_no_walk_new_connections_are_held_and_given_back(
    tmp_path: Path, how: str
) -> None:
    """As before Linux 5.15; here a map of another kind in a map's place makes the kernel refuse the program that walks."""
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=4") as agent:
        (agent.pins / LAYOUT).mkdir(parents=True)
        kind = ("type", "hash", "key", "4", "value", "4", "entries", "1", "name", "switched")
        run("bpftool", "map", "create", str(agent.pins / LAYOUT / "switched"), *kind)
        Sender(testbed)
        agent.serve()
        reader, held = holding(testbed, agent)
        assert "existing connections stay as they are" in agent.log()
        if how == "off":
            agent.do("off")
        else:
            agent.kill()
        assert lifted(reader, held, 5) < LEASE_S
        agent.nothing_left(TIMEOUT_S)


def test_a_killed_supervisor_is_replaced(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        agent.serve()
        first = agent.supervisor()
        os.kill(first, signal.SIGKILL)
        until(lambda: agent.supervisors() not in ([], [first]))
        assert "starting another one" in agent.log()


def test_the_clamp_is_lifted_by_the_kernel_where_daemon_and_supervisor_are_killed(
    tmp_path: Path,
) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=4") as agent:
        Sender(testbed)
        agent.serve()
        reader, held = holding(testbed, agent)
        os.kill(agent.supervisor(), signal.SIGKILL)
        agent.kill()
        # Two seconds of lease, and an ACK.
        assert lifted(reader, held, 10) < LEASE_S + 0.5
        assert agent.pins.exists(), "the program is there yet, without doing anything"
        assert "ended without undoing" in agent.do("status")
        agent.do("off")
        agent.nothing_left()


def settled(reader: Reader) -> bool:
    """Whether the clamp stays the same for longer than an ACK is delayed."""
    before = reader.clamp()
    time.sleep(0.3)
    return reader.clamp() == before


def test_the_clamp_of_an_idle_socket_is_lifted_by_the_next_that_comes(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=1.5") as agent:
        Sender(testbed, 3_000_000)
        agent.serve()
        reader = Reader(testbed)
        until(lambda: reader.bytes() == 3_000_000)
        # The last ACKs, one of them delayed, may still change it.
        until(lambda: settled(reader))
        held = reader.clamp()
        os.kill(agent.supervisor(), signal.SIGKILL)
        agent.kill()
        time.sleep(LEASE_S + 1)
        assert reader.clamp() == held, "no ACK, no program"
        agent.do("off")
        assert reader.clamp() > 1.5 * held
        agent.nothing_left()


def test_a_hundred_kills_restarts_and_upgrades_lose_no_connection_and_no_byte(
    tmp_path: Path,
) -> None:
    rng = random.Random(1)
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=2") as agent:
        sender = Sender(testbed)
        readers = [Reader(testbed), Reader(testbed, version=6)]
        for number in range(34):
            agent.serve()
            if number % 3 == 0:
                os.kill(agent.supervisor(), signal.SIGKILL)
            time.sleep(rng.uniform(0, 0.4))
            if number % 2 == 0:
                agent.serve("--take-over")
            agent.kill()
            # In the middle of its start, too.
            early = subprocess.Popen(
                agent.argv("serve", *agent.sets()),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(rng.uniform(0, 0.1))
            early.kill()
            early.wait(TIMEOUT_S)
        agent.serve()
        until(lambda: len(agent.status()["flows"]) == 2)
        sender.end()
        assert {reader.ask("sum") for reader in readers} == {sender.sum() for _ in readers}
        agent.do("off")
        agent.nothing_left()


def test_an_upgrade_hands_over_without_a_gap(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=1.5") as agent:
        sender = Sender(testbed)
        agent.serve()
        reader = Reader(testbed)
        time.sleep(4)
        highest = 0
        for _ in range(5):
            before = agent.daemon
            agent.serve("--take-over")
            assert before is not None
            assert before.wait(TIMEOUT_S) == 0
            for _ in range(10):
                highest = max(highest, reader.clamp())
                time.sleep(0.05)
        # λ · BDP is 90 KB here; the kernel's own window would be six times that.
        assert highest < 150_000, "it was held all the time"
        assert agent.status()["cures"]["receive"]["lifted"] == 0
        sender.end()
        assert reader.ask("sum") == sender.sum()
        agent.do("off")
        agent.nothing_left()


def test_a_second_agent_is_refused_with_the_id_of_the_first(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        daemon = agent.serve()
        second = subprocess.run(agent.argv("serve", *agent.sets()), capture_output=True, text=True)
        assert second.returncode == 1
        assert f"process {daemon.pid}" in second.stderr
        assert agent.status()["pid"] == daemon.pid


def test_the_control_socket_is_roots_alone_and_no_client_is_waited_for(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        agent.serve()
        for path, mode in ((agent.runtime, 0o700), (agent.runtime / "control.sock", 0o600)):
            assert stat.S_IMODE(path.stat().st_mode) == mode, path
        silent, rubbish = (socket.socket(socket.AF_UNIX) for _ in range(2))
        for client in (silent, rubbish):
            client.settimeout(TIMEOUT_S)
            client.connect(str(agent.runtime / "control.sock"))
        rubbish.sendall(b"\xff\xfe no json\n{}\n")
        silent.sendall(b'{"ask": "sta')
        answers = rubbish.makefile()
        assert [json.loads(answers.readline())["ok"] for _ in range(2)] == [False, False]
        assert agent.status()["ok"]
        silent.sendall(b'tus"}\n')
        assert json.loads(silent.makefile().readline())["pid"] == agent.status()["pid"]


def test_settings_that_are_wrong_leave_the_old_ones_in_force(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        agent.serve()
        wrong = subprocess.run(
            agent.argv("on", "--set", "receive.lamda=2"), capture_output=True, text=True
        )
        assert wrong.returncode == 3
        assert "did you mean lambda?" in wrong.stderr
        file = tmp_path / "agent.toml"
        file.write_text("[receive]\nlambda = 2.5\n[scope]\n" + f'cgroup = "{testbed.cgroup}"\n')
        agent.do("on", "--config", str(file))
        file.write_text("[recieve]\n")
        assert agent.daemon is not None
        agent.daemon.send_signal(signal.SIGHUP)
        until(lambda: "the configuration stays as it was" in agent.log())
        assert "did you mean receive?" in agent.log()


def test_congestion_control_changes_on_a_running_upload_and_changes_back(tmp_path: Path) -> None:
    route = 'congestion.routes={ "10.0.0.2/32" = "bbr" }'
    with Download(tmp_path) as testbed, Agent(testbed, "receive.enabled=false", route) as agent:
        testbed.iperf_server()
        testbed.start("host", "iperf3", "-c", "10.0.0.2", "-t", "120", "-C", "cubic", "-J")
        until(lambda: testbed.rtt_now() > 400)
        # iperf3's other connection has what this host's kernel gives it.
        before = testbed.congestion()
        assert "cubic" in before
        agent.serve()
        assert testbed.congestion() == {"bbr"}
        # Three round trips through the full queue until BBR knows that there is no more bandwidth, then it drains.
        until(lambda: testbed.rtt_now() < 200, 60)
        agent.do("off")
        assert testbed.congestion() == before
        agent.nothing_left()


def test_new_connections_get_their_congestion_control_and_the_kernels_names_are_asked(
    tmp_path: Path,
) -> None:
    routes = 'congestion.routes={ "10.0.0.2/32" = "reno", "::/0" = "cubic" }'
    with Download(tmp_path) as testbed, Agent(testbed, routes) as agent:
        testbed.iperf_server()
        agent.serve()
        testbed.start("host", "iperf3", "-c", "10.0.0.2", "-t", "20", "-J")
        until(lambda: testbed.congestion() == {"reno"}, 5)
        assert agent.status()["cures"]["congestion"]["switched"] >= 1
        wrong = subprocess.run(
            agent.argv("on", "--set", 'congestion.routes={ "::/0" = "nosuch" }'),
            capture_output=True,
            text=True,
        )
        assert wrong.returncode == 1
        assert '"nosuch"' in wrong.stderr
        assert "this kernel has" in wrong.stderr
        assert wrong.stderr.count("\n") == 1


def test_windows_that_cost_goodput_are_found_out_and_withdrawn(tmp_path: Path) -> None:
    """A path that becomes ten times as long: by the old RTTmin nearly all of it looks like a queue."""
    longer = '\n[[change]]\nat = "20 s"\n"link.down.delay" = "100 ms"\n'
    tried = ("trial.every=4 s", "trial.span=3 s")
    with (
        Download(tmp_path, scenario(delay="5 ms") + longer) as testbed,
        Agent(testbed, "receive.lambda=1.5", *tried) as agent,
    ):
        Sender(testbed)
        agent.serve()
        reader = Reader(testbed)

        def mbits(seconds: float) -> float:
            before, begun = reader.bytes(), time.monotonic()
            time.sleep(seconds)
            return (reader.bytes() - before) * 8e-6 / (time.monotonic() - begun)

        def flow(key: str) -> float:
            return sum(float(flow[key]) for flow in agent.status()["flows"])

        # On a slow machine the path may be long before it was ever measured; that is not what is asked here.
        until(lambda: 0 < flow("rtt_min_ms") < 20)
        until(lambda: flow("rtt_ms") > 100)
        assert flow("rtt_min_ms") < 20
        agent.set("trial.enabled=true")
        until(lambda: "are lifted for a few seconds" in agent.log())
        until(lambda: "are withdrawn, since they cost goodput" in agent.log())
        (trial,) = agent.status()["trials"]
        assert (trial["cure"], trial["state"]) == ("receive", "withdrawn")
        assert trial["without_bps"] > 1.05 * trial["with_bps"]
        assert mbits(4) > 6
