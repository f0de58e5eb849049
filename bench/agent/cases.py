"""What is measured: the processors that a gigabit costs, ten thousand connections, a microsecond here and there.

signal: iperf3 over a pair of devices, sockets of Python · model: each case without the agent and with it, in the same round · action:
        figures by name.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.agent.pair import SERVER, TIMEOUT_S, Agent, Cpu, Pair, counted, others
from modem import steady

Figures = dict[str, float]
OFF = ("receive.enabled=false", "uplink.mode=off")


@dataclass(frozen=True)
class Case:
    """One thing that is measured."""

    group: str
    label: str
    settings: tuple[str, ...] | None
    """Of the agent; none: there is none."""
    measure: Callable[[Case, Pair], Figures]
    ways: tuple[str, ...] = ()
    """Options of iperf3, or of the connections."""
    seconds: float = 8.0


def listening(testbed: Pair, port: int) -> subprocess.Popen[str]:
    """An iperf3 at the other end, for one transfer."""
    server = testbed.start("server", "iperf3", "-s", "-1", "-p", str(port))
    testbed.listens("server", port)
    return server


def transfer(testbed: Pair, options: Sequence[str], seconds: float) -> tuple[float, Figures]:
    """iperf3: gigabits that were carried, and the seconds that each took: of all processors, and of its two processes alone."""
    server = listening(testbed, 5201)
    idle = others()
    before = Cpu.now()
    client = testbed.start("host", "iperf3", "-c", SERVER, "-t", str(seconds), "-J", *options)
    said, errors = client.communicate(timeout=seconds + TIMEOUT_S)
    used = Cpu.now().since(before, idle)
    server.communicate(timeout=TIMEOUT_S)
    if client.returncode != 0:
        raise RuntimeError(f"iperf3: {said[-300:]} {errors}")
    end = json.loads(said)["end"]
    carried = float(end["sum_received"]["bytes"]) * 8e-9
    ends = end["cpu_utilization_percent"]
    own = (ends["host_total"] + ends["remote_total"]) / 100 * seconds
    return carried, {"cpu s/gbit": used / carried, "process s/gbit": own / carried}


def gigabits(case: Case, testbed: Pair) -> Figures:
    """CPU per gigabit; and, in a second transfer that is counted, what the programs take."""
    with contextlib.ExitStack() as stack:
        if "uplink.mode=gate" in (case.settings or ()):
            # An empty modem of 40 Gbit/s: the gate is at work, and holds nothing back.
            stack.enter_context(steady(testbed.folder / "modem.sock", 0, 50_000_000))
        agent = None
        if case.settings is not None:
            agent = stack.enter_context(Agent(testbed, case.settings))
        time.sleep(1.0)
        carried, cost = transfer(testbed, case.ways, case.seconds)
        figures = {"gbit/s": carried / case.seconds, **cost}
        if agent is not None:
            figures |= program_times(agent, testbed, case)
        return figures


def program_times(agent: Agent, testbed: Pair, case: Case) -> Figures:
    """Of all programs of the agent, for each packet that they saw and for each decision."""
    with counted():
        before = agent.programs()
        decided = decisions(agent)
        carried, _ = transfer(testbed, case.ways, max(2.0, case.seconds / 2))
        after = agent.programs()
    ns = sum(t - before.get(name, (0, 0))[0] for name, (t, _) in after.items() if name != "walk")
    runs = sum(n - before.get(name, (0, 0))[1] for name, (_, n) in after.items() if name != "walk")
    made = decisions(agent) - decided
    return {
        "us/run": ns / 1e3 / max(1, runs),
        "runs/gbit": runs / carried,
        "us/decision": ns / 1e3 / made if made else math.nan,
        "decisions/s": made / max(2.0, case.seconds / 2),
        "bpf s/gbit": ns / 1e9 / carried,
    }


def decisions(agent: Agent) -> float:
    """That its cures have made so far."""
    cures = agent.status()["cures"].values()
    return float(sum(cure.get("decisions", 0) for cure in cures if isinstance(cure, dict)))


# So many connections, made, then silent, then each saying a little in turn. Asked by lines.
MANY = """
import resource, selectors, socket, sys, time
way, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 500, count + 500))
if way == "server":
    listening, several = socket.create_server((address, port), backlog=4096), []
    print("listens", flush=True)
    while len(several) < count:
        several.append(listening.accept()[0])
    print("there", flush=True)
    # Each has to be a transfer, not a greeting.
    for s in several:
        s.sendall(bytes(32_768))
    for line in sys.stdin:
        rate, seconds = map(float, line.split())
        begun = time.monotonic()
        for i in range(int(rate * seconds)):
            several[i % count].send(bytes(1_000))
            late = begun + i / rate - time.monotonic()
            if late > 0.002:
                time.sleep(late)
        print("said", flush=True)
else:
    several = [socket.create_connection((address, port)) for _ in range(count)]
    waiting = selectors.EpollSelector()
    for s in several:
        waiting.register(s, selectors.EVENT_READ)
    print("there", flush=True)
    while True:
        for key, _ in waiting.select():
            if not key.fileobj.recv(65_536):
                sys.exit()
"""
TRICKLE = 2_000
"""Messages a second, of all connections together."""


def connections(case: Case, testbed: Pair) -> Figures:
    """What so many connections cost, silent and under a trickle."""
    count = int(case.ways[0])
    agent = Agent(testbed, case.settings) if case.settings is not None else None
    python = (sys.executable, "-c", MANY)
    ends = []
    try:
        empty_kernel = kernel_mb()
        empty = agent.memory_mb() if agent else math.nan
        server = testbed.start(
            "server", *python, "server", SERVER, "5300", str(count), stdin=subprocess.PIPE
        )
        ends.append(server)
        said(server, "listens")
        client = testbed.start(
            "host", *python, "client", SERVER, "5300", str(count), stdin=subprocess.PIPE
        )
        ends.append(client)
        said(server, "there")
        said(client, "there")
        time.sleep(3.0)
        figures = {"connections": float(count), "kernel MB": kernel_mb() - empty_kernel}
        idle = others()
        figures |= spent(agent, case.seconds, "silent", idle, lambda: time.sleep(case.seconds))
        figures |= spent(
            agent, case.seconds, "trickle", idle, lambda: trickle(server, case.seconds)
        )
        if agent is not None:
            begun = time.monotonic()
            status = agent.status()
            figures |= {
                "status ms": (time.monotonic() - begun) * 1e3,
                "flows": float(len(status["flows"])),
                "walk ms": status["cures"]["receive"]["walk_ms"],
                "agent MB empty": empty,
                "agent MB": agent.memory_mb(),
            }
        return figures
    finally:
        for end in ends:
            end.kill()
            end.communicate(timeout=TIMEOUT_S)
        if agent is not None:
            agent.__exit__()


def trickle(server: subprocess.Popen[str], seconds: float) -> None:
    """Each connection in turn says a thousand bytes."""
    assert server.stdin is not None
    server.stdin.write(f"{TRICKLE} {seconds}\n")
    server.stdin.flush()
    said(server, "said")


def spent(
    agent: Agent | None, seconds: float, name: str, idle: float, meanwhile: Callable[[], None]
) -> Figures:
    """Shares of one processor: all that was used beyond what was before, and the agent's own."""
    own = agent.cpu() if agent else 0.0
    before = Cpu.now()
    meanwhile()
    after = Cpu.now()
    took = after.at - before.at
    figures = {f"{name} cpu %": 100 * after.since(before, idle if name != "silent" else 0) / took}
    if agent is not None:
        figures[f"{name} agent %"] = 100 * (agent.cpu() - own) / took
    return figures


def said(process: subprocess.Popen[str], word: str) -> None:
    """Waits for a word."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if line != word:
        raise RuntimeError(f"{line!r} instead of {word!r}")


def kernel_mb() -> float:
    """What the kernel holds in small pieces: sockets and what is stored beside them."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Slab:"):
            return int(line.split()[1]) * 1.024e-3
    return math.nan


def all_cases(quick: bool) -> list[Case]:
    """In the order of the page."""
    seconds = 3.0 if quick else 8.0
    receive: tuple[str, ...] = ("uplink.mode=off",)
    rate = (*receive, "receive.rate_term=true")
    acks = ("receive.enabled=false", "uplink.mode=acks", "uplink.telemetry=")
    gate = ("receive.enabled=false", "uplink.mode=gate", "uplink.telemetry={folder}/modem.sock")
    found: list[Case] = []
    labelled: tuple[tuple[str, tuple[str, ...] | None], ...]
    for pace in ("1G", "4G"):
        down, up = ("-R", "-b", pace, "-C", "cubic"), ("-b", pace, "-C", "cubic")
        labelled = (("no agent", None), ("receive", receive), ("receive, rate term", rate))
        for label, settings in labelled:
            found.append(Case(f"download, {pace}bit/s", label, settings, gigabits, down, seconds))
        labelled = (("no agent", None), ("windows of ACKs", acks), ("gate", gate))
        for label, settings in labelled:
            found.append(Case(f"upload, {pace}bit/s", label, settings, gigabits, up, seconds))
    count = ("2000",) if quick else ("10000",)
    labelled = (("no agent", None), ("receive", receive))
    for label, settings in labelled:
        found.append(Case("connections", label, settings, connections, count, seconds))
    return found
