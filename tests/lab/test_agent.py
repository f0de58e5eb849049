"""unbloat-agent in the lab: windows held, an agent for each lab, and nothing left behind however it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from running import Lab

import unbloat as package
from unbloat.lab.agent.config import Cure
from unbloat.lab.agent.process import features, needed_features
from unbloat.lab.requirements import AGENT, found

DOWNLOAD = """
name = "download"
duration = "6 s"
warmup = "2 s"
[link.down]
rate = "8 Mbit/s"
delay = "30 ms"
queue = { kind = "droptail", limit = "2 MB" }
[link.up]
rate = "2 Mbit/s"
delay = "30 ms"
[[flow]]
from = "server"
[flow.receiver]
window = { kind = "drwa", form = "rate", alpha = 8, quick = true, lambda = LAMBDA }
[[probe]]
every = "100 ms"
"""
BASE_MS = 60.0
UPLOAD = """
name = "upload"
duration = "8 s"
warmup = "4 s"
[link.up]
rate = "2 Mbit/s"
delay = "30 ms"
[link.down]
rate = "8 Mbit/s"
delay = "30 ms"
[device]
CURE
firmware = { buffer = "1 MB" }
[[flow]]
from = "client"
tsq = false
[[probe]]
every = "100 ms"
[lab]
gate = "agent"
"""
GATE = 'gate = { kind = "qcut_d", target = "20 ms", hold = true }'
LAW = {"lambda": 2.0}
ACKS = 'window = { kind = "drwa", form = "rate", alpha = 8, quick = true, lambda = 2.0 }'
# In place of the agent: it says that all is well, and does nothing.
IDLE = """
import json, signal, sys
if "features" in sys.argv:
    print(json.dumps({"ok": True, "features": []}))
else:
    print(json.dumps({"ok": True, "state": "on"}), flush=True)
    signal.sigwait([signal.SIGTERM])
"""


def download(factor: float) -> str:
    """A download with a law of its window."""
    return DOWNLOAD.replace("LAMBDA", str(factor))


def statuses(raw: Path) -> list[dict[str, Any]]:
    """What the agent said of itself."""
    return [json.loads(line) for line in (raw / "agent.jsonl").read_text().splitlines()]


def agents(lab: Lab) -> list[int]:
    """The processes of unbloat-agent that belong to a lab, without supervisors."""
    serving = []
    for pid, _ in lab.state["processes"]:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"serve" in words:
            serving.append(pid)
    return serving


@pytest.mark.usefixtures("agent")
def test_round_trips_are_what_the_law_says_and_the_run_names_the_agent(tmp_path: Path) -> None:
    run = package.lab(download(2.0), keep=tmp_path / "raw")
    assert isinstance(run, package.Run)
    (named,) = run.info["agents"]
    assert named.startswith("client: unbloat-agent 0.")
    assert named.endswith("windows of its downloads (λ 2, rate)")
    rtt = next(row["rtt_ms_p50"] for row in run.flows.to_pylist() if row["transfer"] == "flow0")
    # A clock of a millisecond, and what a busy machine is late.
    assert 1.9 * BASE_MS <= rtt <= 2.2 * BASE_MS
    assert [line for line in run.info["warnings"] if "agent" in line] == []
    last = statuses(tmp_path / "raw")[-1]
    assert last["node"] == "client"
    assert last["problems"] == []
    assert (
        (tmp_path / "raw" / "logs" / "unbloat-agent-client.err").read_text().endswith("as it was\n")
    )


def pinged_ms(run: package.Run | package.RunSet) -> float:
    """The p95 of all pings after the warm-up."""
    assert isinstance(run, package.Run)
    pings = sorted(
        row["rtt_ms"] for row in run.probes.to_pylist() if row["rtt_ms"] and row["t_s"] >= 4
    )
    return float(pings[int(0.95 * (len(pings) - 1))])


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("cure", "words", "most_ms"), [(GATE, "a gate of 20 ms", 120), (ACKS, "ACKs", 140)]
)
def test_an_upload_is_held_by_the_agent(
    tmp_path: Path, cure: str, words: str, most_ms: float
) -> None:
    run = package.lab(UPLOAD.replace("CURE", cure))
    assert isinstance(run, package.Run)
    assert words in run.info["agents"][0]
    assert pinged_ms(run) <= most_ms


def test_a_gate_that_is_the_agents_is_not_the_emulators_as_well(
    tmp_path: Path, machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "unbloat-agent"
    program.write_text(f"#!{sys.executable}\n{IDLE}")
    program.chmod(0o755)
    monkeypatch.setenv("UNBLOAT_AGENT", str(program))
    assert pinged_ms(package.lab(UPLOAD.replace("CURE", GATE))) > 400, "no agent limited it"


@pytest.mark.usefixtures("agent")
def test_two_labs_at_once_have_an_agent_each(tmp_path: Path) -> None:
    labs = [
        Lab(
            tmp_path,
            "--keep",
            str(tmp_path / str(factor)),
            text=download(factor).replace('"6 s"', '"10 s"'),
        )
        for factor in (1.5, 4.0)
    ]
    # Both are under way at once: each is asked before the first can be over.
    serving = [agents(lab.under_way(processes=7)) for lab in labs]
    assert len({pid for pids in serving for pid in pids}) == 2
    for lab in labs:
        code, _, errors = lab.end()
        assert (code, errors) == (0, "")
        assert lab.left() == []
    for factor in (1.5, 4.0):
        said = statuses(tmp_path / str(factor))
        assert {row["cures"]["receive"]["connections"] for row in said[-1:]} == {1}
        (flow,) = said[-1]["flows"]
        assert 0.9 * factor * BASE_MS <= flow["rtt_ms"] <= 1.25 * factor * BASE_MS


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("way", ["Ctrl-C", "kill -9", "kill -9 of both"])
def test_however_a_lab_ends_no_agent_and_no_pin_stays(tmp_path: Path, way: str) -> None:
    lab = Lab(tmp_path, text=download(3.0).replace('"6 s"', '"60 s"')).under_way(processes=7)
    (serving,) = agents(lab)
    pins = [Path(place) for place in lab.state["leftovers"] if place.startswith("/sys/fs/bpf")]
    assert any(path.is_file() for path in pins[0].rglob("*")), (
        "there is something to be left behind"
    )
    if way == "Ctrl-C":
        lab.interrupt()
        lab.end()
        assert lab.left() == []
    else:
        if way == "kill -9 of both":
            os.kill(serving, signal.SIGKILL)
        lab.process.kill()
        lab.process.wait()
        assert lab.gone(), lab.left()


@pytest.mark.usefixtures("agent")
def test_an_agent_that_dies_ends_the_run_in_one_line(tmp_path: Path) -> None:
    lab = Lab(tmp_path, text=download(3.0).replace('"6 s"', '"60 s"')).under_way(processes=7)
    (serving,) = agents(lab)
    os.kill(serving, signal.SIGKILL)
    code, out, errors = lab.end()
    assert (code, out) == (1, "")
    assert "unbloat-agent-client was killed by SIGKILL" in errors
    assert errors.count("\n") == 1
    assert lab.left() == []


@pytest.mark.usefixtures("agent")
def test_what_a_cure_needs_is_called_as_the_agent_calls_it() -> None:
    listed = [feature["id"] for feature in features(found(AGENT) or "")]
    for cure in (Cure(0, receive=LAW), Cure(0, acks=LAW), Cure(0, gate=LAW)):
        (feature,) = needed_features([cure])
        assert listed.count(feature) == 1, feature


def test_without_an_agent_it_is_named_at_once(tmp_path: Path, machine: None) -> None:
    code, _, errors = Lab(
        tmp_path, text=download(3.0), UNBLOAT_AGENT=str(tmp_path / "nowhere")
    ).end()
    assert code == 2
    assert errors == "unbloat: unbloat lab needs programs that are not there: unbloat-agent\n"


def test_a_kernel_that_an_agent_cannot_use_is_refused_in_one_line(
    tmp_path: Path, machine: None
) -> None:
    missing = {
        "id": "download-windows",
        "feature": "downloads: windows of this host's new connections (DRWA)",
        "since": "5.11",
        "works": False,
        "missing": "no BTF: /sys/kernel/btf/vmlinux is not there",
    }
    program = tmp_path / "unbloat-agent"
    said = json.dumps({"ok": True, "features": [missing]})
    program.write_text(f"#!{sys.executable}\nprint({said!r})\n")
    program.chmod(0o755)
    code, _, errors = Lab(tmp_path, text=download(3.0), UNBLOAT_AGENT=str(program)).end()
    assert code == 2
    assert errors == (
        "unbloat: unbloat lab needs unbloat-agent, and this kernel has no downloads: windows of this host's new connections (DRWA): "
        "no BTF: /sys/kernel/btf/vmlinux is not there\n"
    )
