"""unbloat-agent in a node's namespace: started, asked how it is, ended.

signal: a cure, its control socket · model: runtime directory, pins and cgroup are the lab's own, so that agents of several nodes
and labs do not know of each other; it says one line when its cures are attached · action: RAW/agent.jsonl, a line per look;
RAW/agent/NODE.toml, its configuration; RAW/logs, what it said.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unbloat.errors import LabError, UnbloatError
from unbloat.lab.agent.config import Cure, configuration
from unbloat.lab.cleanup import janitor
from unbloat.lab.cleanup.session import Session
from unbloat.lab.process import Child
from unbloat.lab.requirements import AGENT, found
from unbloat.lab.setup.namespaces import Device
from unbloat.lab.setup.tcp_settings import Plan

Status = dict[str, Any]

# Programs are loaded and verified: tens of milliseconds, on a busy machine seconds.
READY_S = 20.0
# Walking through all sockets of the machine.
END_S = 10.0
ANSWER_S = 2.0
LOOK_S = 0.5


class Agent:
    """One agent, at one node."""

    def __init__(
        self,
        session: Session,
        cure: Cure,
        plan: Plan,
        namespace: str,
        devices: Sequence[Device],
        cgroup: Path | None,
        raw: Path,
    ) -> None:
        self.node = str(plan["nodes"][cure.node]["name"])
        self.cure = cure
        self.samples = raw / "agent.jsonl"
        self.last: Status = {}
        self.looked = 0.0
        runtime, pins = session.agent(self.node)
        self.pins, self.socket = pins, runtime / "control.sock"
        config = raw / "agent" / f"{self.node}.toml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(
            configuration(cure, device_of(cure, devices), cgroup, telemetry(plan, cure, raw))
        )
        argv = [found(AGENT) or AGENT, "--runtime", str(runtime), "--pins", str(pins), "--json"]
        argv += ["serve", "--config", str(config)]
        # `ip netns exec` would hide the bpf file system and the cgroups.
        into = [found("nsenter") or "nsenter", f"--net={janitor.NAMESPACES / namespace}", "--"]
        self.child = Child(session, f"{AGENT}-{self.node}", [*into, *argv], raw / "logs")
        self.child.endless = True

    def wait_until_ready(self) -> None:
        """Its cures are attached from now on."""
        said = self.child.line(READY_S, "its cures were attached")
        try:
            answer = json.loads(said)
        except ValueError:
            answer = {"error": f"said {said[:100]!r} in place of being ready"}
        if not answer.get("ok"):
            raise LabError(f"{self.child.name}: {answer.get('error', 'it is not ready')}")

    def look(self, t_s: float) -> None:
        """Writes down how it is, twice a second."""
        if t_s - self.looked < LOOK_S:
            return
        self.looked = t_s
        status = self.ask({"ask": "status"})
        if status is None:
            return
        self.last = status
        with self.samples.open("a") as file:
            file.write(json.dumps({"t_s": round(t_s, 3), "node": self.node, **status}) + "\n")

    def ask(self, question: Status) -> Status | None:
        """An answer; None where it has none now."""
        try:
            with socket.socket(socket.AF_UNIX) as there:
                there.settimeout(ANSWER_S)
                there.connect(str(self.socket))
                there.sendall(f"{json.dumps(question)}\n".encode())
                said = there.makefile().readline()
            answer = json.loads(said)
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def end(self) -> list[str]:
        """Has it undo everything; what was not as it should be."""
        ended = self.child.end_with_timeout(END_S)
        found = [
            f"unbloat-agent at {self.node}: {problem}" for problem in self.last.get("problems", [])
        ]
        if not ended or self.child.process.returncode != 0:
            found.append(
                f"unbloat-agent at {self.node} {self.child.status()}: {self.child.last_words()}"
            )
        if self.pins.exists() and any(path.is_file() for path in self.pins.rglob("*")):
            found.append(f"unbloat-agent at {self.node} left something below {self.pins}")
        return found

    def description(self) -> str:
        """Which one it was and what it did, for the result."""
        version = self.last.get("version", "of unknown version")
        return f"{self.node}: unbloat-agent {version}, {', '.join(self.cure.said())}"


def device_of(cure: Cure, devices: Sequence[Device]) -> str:
    """The device of its uplink; none where it has no uplink to care for."""
    return next(
        (one.name for one in devices if cure.link is not None and one.outgoing == cure.link), ""
    )


def telemetry(plan: Plan, cure: Cure, raw: Path) -> Path | None:
    """The socket on which the emulator reports on the modem of a node."""
    if cure.gate is None:
        return None
    one = sum(node["device"] is not None for node in plan["nodes"]) == 1
    name = "telemetry.sock" if one else f"telemetry-{plan['nodes'][cure.node]['name']}.sock"
    return raw / "emu" / name


def needed_features(cures: Sequence[Cure]) -> set[str]:
    """Ids of the kernel's features that the cures of a run need."""
    needs = {
        "download-windows": any(cure.receive for cure in cures),
        "ack-windows": any(cure.acks or cure.forward for cure in cures),
        "gate": any(cure.gate for cure in cures),
    }
    return {feature for feature, needed in needs.items() if needed}


def need_agent(cures: Sequence[Cure]) -> None:
    """Refuses in one line what this kernel has no place for."""
    program = found(AGENT)
    if program is None or not cures:
        return  # a missing program is reported with all others
    needed = needed_features(cures)
    for feature in features(program):
        if not feature["works"] and feature["id"] in needed:
            raise UnbloatError(
                f"unbloat lab needs unbloat-agent, and this kernel has no {feature['feature']}: {feature['missing']}"
            )


def features(program: str) -> list[Status]:
    """What the agent can do on this kernel."""
    try:
        said = subprocess.run(
            [program, "--json", "features"], capture_output=True, text=True, timeout=READY_S
        )
    except subprocess.TimeoutExpired:
        raise UnbloatError(
            f"unbloat lab needs unbloat-agent, which did not say in {READY_S:g} s what it can do here"
        ) from None
    try:
        listed: list[Status] = json.loads(said.stdout)["features"]
    except (ValueError, KeyError):
        reason = said.stderr.strip() or said.stdout.strip() or "it says nothing of its features"
        raise UnbloatError(f"unbloat lab needs unbloat-agent: {reason}") from None
    return listed


def start_agents(
    session: Session,
    cures: Sequence[Cure],
    plan: Plan,
    namespaces: Sequence[str],
    devices: Sequence[Device],
    cgroups: dict[int, Path],
    raw: Path,
) -> list[Agent]:
    """All agents of a run, ready."""
    made = [
        Agent(session, cure, plan, namespaces[cure.node], devices, cgroups.get(cure.node), raw)
        for cure in cures
    ]
    for agent in made:
        agent.wait_until_ready()
    return made


def sample_agents(agents: Sequence[Agent], begin_ns: int) -> None:
    """At each of them."""
    for agent in agents:
        agent.look((time.monotonic_ns() - begin_ns) / 1e9)
