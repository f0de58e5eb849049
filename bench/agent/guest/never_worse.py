"""In a guest: transfers on one path, without the agent or with it.

signal: the host's words (`frozen.py`) · model: a path of `/paths.json`, built once; the agent started once; then, from the stored
state of either, runs that differ by their number: the start phase and the packets before · action: a line of JSON to the second
serial port

Words: `{"do": "build", "path": 3}`, `{"do": "agent"}`, `{"do": "play", "path": 3, "pair": 4, "files": [0, 1]}`. The guest stops after
each of the first two. Paths that differ in what is transferred alone share what they resume from.
"""

import json
import os
import subprocess
import time
import traceback
from pathlib import Path
from typing import Any

import emulated
import frozen
import guest_links
from testbed import inside, shell

PORT = 5300
AGENT = ("unbloat-agent", "--runtime", "/run/agent", "--pins", "/sys/fs/bpf/unbloat")
CGROUP = Path("/sys/fs/cgroup/sender")
TICK = os.sysconf("SC_CLK_TCK")
# Before each run: packets that use up random numbers of the link, and a pause, so that no two pairs have the same of either.
PINGS, PAUSE_S = 7, 0.0137


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
        serving = inside("server", "python3", "/transfers.py", "serve")
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
        enter = ["ip", "netns", "exec", self.path["agent_on"]]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        with open("/tmp/agent.log", "a") as log:
            argv = [*enter, *AGENT, "serve", *words, *scope]
            agent = subprocess.Popen(argv, **pipes, stderr=log, text=True)
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

    def transfer(self, file: dict[str, Any]) -> subprocess.Popen[str]:
        """Starts one file."""
        numbers = [str(file[key]) for key in ("size", "connections", "idle_s")]
        argv = ["python3", "/transfers.py", file["way"], self.path["server"], *numbers]
        return subprocess.Popen(
            inside(self.path["client"], *argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=enter if self.path["client"] == self.path["agent_on"] else None,
        )

    def play(self, pair: int, files: list[int]) -> dict[str, float]:
        """The seconds of each file, and the agent's CPU seconds."""
        took: dict[str, float] = {}
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
                if client.poll() is not None:
                    raise RuntimeError(f"{file['label']} ended before the upgrade")
            out, errors = client.communicate(timeout=300)
            if client.returncode:
                raise RuntimeError(f"{file['label']}: {errors}")
            took[file["label"]] = float(out)
        if self.agents:
            used += processor_s(self.agents[-1].pid)
        return {**took, "cpu_s": used}


def enter() -> None:
    """This process enters the cgroup that the agent treats."""
    (CGROUP / "cgroup.procs").write_text(str(os.getpid()))


def processor_s(pid: int) -> float:
    """Seconds that a process has used."""
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(times[11]) + int(times[12])) / TICK


def main() -> None:
    paths = json.loads(Path("/paths.json").read_text())
    shell("modprobe qemu_fw_cfg && modprobe tun && modprobe virtio_net")
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
