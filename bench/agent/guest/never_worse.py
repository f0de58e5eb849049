"""In a guest: transfers on one path, without the agent or with it.

signal: the host's words (`frozen.py`) · model: a path of `/paths.json`, built once; the agent started once; then, from the stored
state of either, runs that differ by their number: the start phase and the packets before · action: a line of JSON to the second
serial port

Words: `{"do": "build", "path": 3}`, `{"do": "agent"}`, `{"do": "play", "path": 3, "pair": 4, "files": [0, 1]}`. The guest stops after
each of the first two. Paths that differ in what is transferred alone share what they resume from.
"""

import ctypes
import json
import os
import select
import socket
import subprocess
import time
import traceback
from pathlib import Path
from typing import Any

import emulated
import frozen
import guest_links
import transfers
from testbed import LIBC, inside, shell

PORT = 5300
AGENT = ("unbloat-agent", "--runtime", "/run/agent", "--pins", "/sys/fs/bpf/unbloat")
CGROUP = Path("/sys/fs/cgroup/sender")
TICK = os.sysconf("SC_CLK_TCK")
# Before each run: packets that use up random numbers of the link, and a pause, so that no two pairs have the same of either.
PINGS, PAUSE_S = 3, 0.0137
# Of one file, on the guest's clock.
LIMIT_S = 300
NEW_NET = 0x40000000


class Run:
    """A path and, at times, the agent on it."""

    def __init__(self, path: dict[str, Any]) -> None:
        self.path = path
        self.agents: list[subprocess.Popen[str]] = []
        if path["link"] == "emulated":
            emulated.build(path["scenario"], path["options"], path["six"], path["bridge"])
        else:
            guest_links.build(path["link"])
        CGROUP.mkdir()
        serving = inside("server", "python3", "/transfers.py")
        subprocess.Popen(serving, stdin=subprocess.DEVNULL)
        while str(PORT) not in shell("ip netns exec server ss -Hltn"):
            time.sleep(0.1)
        # The first packet resolves addresses, and makes a tunnel's keys.
        self.ping(3)
        time.sleep(3)

    def ping(self, count: int) -> None:
        """Packets in both directions."""
        six = ["-6"] if ":" in self.path["server"] else []
        argv = ["ping", *six, "-n", "-q", "-c", str(count), "-i", "0.01", self.path["server"]]
        subprocess.run(inside(self.path["client"], *argv), stdout=subprocess.DEVNULL)

    def serve(self, *words: str) -> None:
        """Starts the agent, or another that takes over; returns when its cures are attached."""
        scope = ["--set", f"scope.cgroup={CGROUP}"]
        # Unlike nsenter, `ip netns exec` shows the namespace's own devices in /sys, where the byte queue limits are.
        inside_of = ["ip", "netns", "exec", self.path["agent_on"]]
        with open("/tmp/agent.log", "a") as log:
            agent = subprocess.Popen(
                [*inside_of, *AGENT, "serve", *words, *scope],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.agents.append(agent)
        assert agent.stdout is not None
        line = agent.stdout.readline().strip()
        if line != "on":
            raise RuntimeError(f"the agent said {line!r}: {Path('/tmp/agent.log').read_text()}")

    def settle(self) -> None:
        """Until the agent uses less than a tenth of the processor for a second; a minute at most."""
        for _ in range(60):
            before = processor_s(self.agents[-1].pid)
            time.sleep(1)
            if processor_s(self.agents[-1].pid) - before < 0.1:
                return
        raise RuntimeError("the agent does not come to rest")

    def transfer(self, file: dict[str, Any]) -> "Client":
        """Starts one file."""
        group = CGROUP if self.path["client"] == self.path["agent_on"] else None
        count, idle_s = file["connections"], file["idle_s"]
        words = (file["way"] == "up", self.path["server"], file["size"], count, idle_s)
        return Client(self.path["client"], group, words)

    def play(self, pair: int, files: list[int]) -> dict[str, Any]:
        """The seconds of each file; the agent's CPU seconds and what it says of itself."""
        took: dict[str, Any] = {}
        used = 0.0
        self.ping(2 + PINGS * pair)
        time.sleep(1 + PAUSE_S * pair)
        for number in files:
            file = self.path["files"][number]
            client = self.transfer(file)
            if self.agents and self.path["upgrade_s"]:
                time.sleep(self.path["upgrade_s"])
                used += processor_s(self.agents[-1].pid)
                self.serve("--take-over")
                if client.ended():
                    raise RuntimeError(f"{file['label']} ended before the upgrade")
            took[file["label"]] = client.seconds()
        if self.agents:
            took["agent"] = said()
            used += processor_s(self.agents[-1].pid)
        return {**took, "cpu_s": used}


class Client:
    """A process that transfers one file; a child of this one, so that no interpreter has to start."""

    def __init__(self, space: str, group: Path | None, words: tuple[Any, ...]) -> None:
        answer, own = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                if group:
                    (group / "cgroup.procs").write_text(str(os.getpid()))
                enter(space)
                text = repr(transfers.seconds(*words))
            except BaseException as error:
                text = repr(error)
            os.write(own, text.encode())
            os._exit(0)
        os.close(own)
        self.answer = answer

    def ended(self) -> bool:
        """Whether it has an answer."""
        return bool(select.select([self.answer], [], [], 0)[0])

    def seconds(self) -> float:
        """Waits for its answer."""
        if not select.select([self.answer], [], [], LIMIT_S)[0]:
            raise RuntimeError(f"a file took longer than {LIMIT_S} s")
        text = os.read(self.answer, 1000).decode()
        os.close(self.answer)
        os.waitpid(self.pid, 0)
        return float(text)


def enter(space: str) -> None:
    """This process enters a network namespace."""
    opened = os.open(f"/run/netns/{space}", os.O_RDONLY)
    if LIBC.setns(opened, NEW_NET):
        raise OSError(ctypes.get_errno(), f"setns {space}")
    os.close(opened)


def said() -> dict[str, Any]:
    """What the agent says of itself: the uplink's cure, what it does, and whether anything failed."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("/run/agent/control.sock")
        client.sendall(json.dumps({"ask": "status"}).encode() + b"\n")
        answer = json.loads(client.makefile().readline())
    return {key: answer.get(key) for key in ("uplink", "work", "problems")}


def processor_s(pid: int) -> float:
    """Seconds that a process has used."""
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(times[11]) + int(times[12])) / TICK


def main() -> None:
    paths = json.loads(Path("/paths.json").read_text())
    shell("modprobe qemu_fw_cfg && modprobe tun && modprobe virtio_net")
    for number in range(2):
        shell(f"ip link set eth{number} name card{number}")
    run: Run | None = None
    result: dict[str, Any]
    while True:
        word = frozen.stop()
        try:
            if word["do"] == "build":
                run = Run(paths[word["path"]])
                continue
            assert run is not None
            if word["do"] == "agent":
                run.serve()
                run.settle()
                continue
            run.path = paths[word["path"]]
            result = run.play(word["pair"], word["files"])
        except Exception:
            result = {"failed": traceback.format_exc()[-1500:]}
        with open("/dev/ttyS1", "w") as out:
            print(json.dumps({"result": result}), file=out)
        return


main()
