"""What an administrator or a program has changed since the agent changed it is left alone when the agent undoes.

Congestion control: test_congestion.py. Filters of others beside the agent's: test_one_agent.py."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from agent_program import agent_path
from download import Agent, Download
from reader import Sender
from test_receive_safety import holding

from unbloat.lab.testbed import TIMEOUT_S

pytestmark = pytest.mark.usefixtures("machine")
QDISC: dict[str, object] = {"change": "qdisc", "device": "lo", "handle": 0xB10A0000}
FILTER: dict[str, object] = {
    "change": "filter",
    "device": "lo",
    "direction": "egress",
    "preference": 47,
    "what": "the gate",
}
CLSACT: dict[str, object] = {"change": "clsact", "device": "lo"}


@pytest.mark.parametrize("changed", [True, False])
def test_a_clamp_that_was_set_since_stays_and_else_it_is_the_kernels(
    tmp_path: Path, changed: bool
) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "receive.lambda=4") as agent:
        sender = Sender(testbed)
        agent.serve()
        reader, held = holding(testbed, agent)
        sender.end()
        # The queue of the link drains; from then on no ACK is sent, at which the agent would set its clamp again.
        time.sleep(4)
        clamp = reader.clamp()
        assert clamp < 1.5 * held
        if changed:
            reader.ask(f"set {clamp // 2}")
        agent.do("off")
        if changed:
            assert reader.clamp() == clamp // 2
        else:
            assert reader.clamp() > 1.5 * clamp
        agent.nothing_left()


def off_where(folder: Path, journal: list[dict[str, object]], script: str) -> str:
    """What stands on the loopback device of a network namespace after `off` with such a journal."""
    run = folder / "run"
    run.mkdir(mode=0o700)
    (run / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in journal))
    script = f"""
    ip link set lo up && {script} || exit 99
    "$@" off >&2 || exit 98
    tc qdisc show dev lo; tc filter show dev lo egress
    """
    agent = (agent_path(), "--runtime", str(run), "--pins", f"/sys/fs/bpf/ub-{folder.name[-20:]}")
    argv = ("unshare", "--net", "sh", "-c", script, "sh", *agent)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done
    assert (run / "journal.jsonl").read_text() == ""
    return done.stdout


def test_a_root_discipline_in_the_shapers_place_stays_and_the_shapers_own_goes(
    tmp_path: Path,
) -> None:
    tbf = "tbf rate 1mbit burst 10k latency 10ms"
    for handle, stays in (("5:", True), ("b10a:", False)):
        folder = tmp_path / handle.strip(":")
        folder.mkdir()
        shown = off_where(folder, [QDISC], f"tc qdisc add dev lo root handle {handle} {tbf}")
        assert (f"tbf {handle}" in shown) == stays, shown


def test_a_filter_in_the_gates_place_stays_and_its_discipline_with_it(tmp_path: Path) -> None:
    # The same preference and handle. That the agent's own goes: test_one_agent.py.
    code = "1,6 0 0 4294967295,"
    made = f"tc filter add dev lo egress pref 47 handle 1 bpf bytecode '{code}' flowid 1:1"
    shown = off_where(tmp_path, [CLSACT, FILTER], f"tc qdisc add dev lo clsact && {made}")
    assert "handle 0x1" in shown
    assert "clsact" in shown, "it is in use"
