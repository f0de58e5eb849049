"""Does the agent with its defaults cost anything? `make never-worse`, or `python3 bench/agent/never_worse.py [--pairs N] [PATH …]`.

signal: completion times of files, on many paths, without the agent and with it (`unbloat-agent serve`, no setting but its scope) ·
        model: pairs in alternating order, their number fixed beforehand; the 95 % interval of the mean ratio of a pair (Student's t of
        the logarithms) · action: `docs/generated/never-worse.jsonl`, a line for each pair, and the table `never-worse.md` beside it

A path passes where its whole interval lies below 1.05 times the completion time; for files of at least 3 s below 1 / 0.98, the limit
of goodput. An interrupted run goes on where it was: pairs in the file count, unless `--again` starts over.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "agent")]

from agent_program import AgentProgram  # noqa: E402
from bench.agent.pair import SERVER as PAIR_SERVER  # noqa: E402
from bench.agent.pair import Pair  # noqa: E402
from uplink import CUBIC, NOTEBOOK, SERVER, SERVER6, Uplink, scenario  # noqa: E402

from unbloat.lab.instruments import cpu_seconds  # noqa: E402
from unbloat.lab.testbed import Testbed  # noqa: E402
from unbloat.scenario.confidence import spread  # noqa: E402

LINES = ROOT / "docs" / "generated" / "never-worse.jsonl"
PAGE = LINES.with_suffix(".md")
TRANSFERS = str(ROOT / "bench" / "agent" / "transfers.py")
PAIRS = 5
LIMIT, LIMIT_LONG, LONG_S = 1.05, 1 / 0.98, 3.0
KB, MB = 1_000, 1_000_000


@dataclass(frozen=True)
class File:
    """What a client transfers."""

    way: str
    size: int
    connections: int = 1
    idle_s: float = 0.0

    @property
    def label(self) -> str:
        size = f"{self.size // MB} MB" if self.size >= MB else f"{self.size // KB} KB"
        many = f"{self.connections} x " if self.connections > 1 else ""
        resumed = f", resumed after {self.idle_s:g} s" if self.idle_s else ""
        return f"{many}{size} {self.way}{resumed}"


@dataclass(frozen=True)
class PathCase:
    """A path, who sends on it, and where the agent is."""

    label: str
    testbed: Callable[[Path], Testbed]
    files: tuple[File, ...]
    agent_on: str = "phone"
    client: str = "phone"
    server: str = SERVER


def uplink(
    up: str, down: str, buffer: str, delay: str = "30 ms", layers: str = "", **more: bool
) -> Callable[[Path], Testbed]:
    """The emulated link; `delay`: of each direction."""
    text = scenario(f'rate = "{up}"\n{layers}', f'rate = "{down}"\n{layers}', buffer=buffer)
    text = text.replace('delay = "30 ms"', f'delay = "{delay}"')
    options = ("--offload", "on") if more.get("offload") else ()
    return lambda folder: Uplink(folder, text, *options, six=more.get("six", False))


class Bridged(Uplink):
    """The notebook's address is that of a bridge, whose port is its Ethernet."""

    def build(self) -> None:
        super().build()
        self.ip("notebook", "link add br0 type bridge")
        self.ip("notebook", "address flush dev lan")
        self.ip("notebook", "link set lan master br0")
        self.address("notebook", "br0", f"{NOTEBOOK}/24")
        self.ip("notebook", f"route add default via 10.0.1.1 {CUBIC}")


def files(*sizes: int, ways: tuple[str, ...] = ("up", "down")) -> tuple[File, ...]:
    """Each size in each direction."""
    return tuple(File(way, size) for way in ways for size in sizes)


TWENTY = uplink("20 Mbit/s", "20 Mbit/s", "300 KB")
CASES = (
    PathCase("TUN, 20 Mbit/s, 60 ms", TWENTY, files(10 * KB, 300 * KB, 3 * MB)),
    PathCase(
        "TUN, 20 Mbit/s, ten connections",
        TWENTY,
        (File("up", 300 * KB, 10), File("down", 300 * KB, 10)),
    ),
    PathCase(
        "TUN, 20 Mbit/s, resumed",
        TWENTY,
        (File("up", 1 * MB, 1, 5.0), File("down", 1 * MB, 1, 5.0)),
    ),
    PathCase(
        "TUN, 20 Mbit/s, an upload after a download",
        TWENTY,
        (File("down", 3 * MB), File("up", 3 * MB)),
    ),
    PathCase(
        "TUN, 20 Mbit/s, segmentation offload",
        uplink("20 Mbit/s", "20 Mbit/s", "300 KB", offload=True),
        files(300 * KB, 3 * MB),
    ),
    PathCase(
        "TUN, 20 Mbit/s, IPv6",
        uplink("20 Mbit/s", "20 Mbit/s", "300 KB", six=True),
        files(300 * KB, 3 * MB),
        server=SERVER6,
    ),
    PathCase(
        "veth (noqueue), 20 Mbit/s behind it",
        TWENTY,
        files(300 * KB, 3 * MB),
        "notebook",
        "notebook",
    ),
    PathCase(
        "bridge (noqueue), 20 Mbit/s behind it",
        lambda folder: Bridged(
            folder, scenario('rate = "20 Mbit/s"', 'rate = "20 Mbit/s"', buffer="300 KB")
        ),
        files(300 * KB, 3 * MB),
        "notebook",
        "notebook",
    ),
    PathCase(
        "forwarding for a client, 20 Mbit/s", TWENTY, files(300 * KB, 3 * MB), "phone", "notebook"
    ),
    PathCase(
        "TUN, 200 Mbit/s, 10 ms",
        uplink("200 Mbit/s", "200 Mbit/s", "500 KB", "5 ms"),
        files(1 * MB, 30 * MB),
    ),
    PathCase(
        "TUN, 1 Mbit/s, 300 ms",
        uplink("1 Mbit/s", "1 Mbit/s", "150 KB", "150 ms"),
        files(10 * KB, 300 * KB),
    ),
    PathCase(
        "TUN, 20 Mbit/s, 0.5 % loss",
        uplink("20 Mbit/s", "20 Mbit/s", "300 KB", layers="loss = 0.005"),
        files(300 * KB, 3 * MB),
    ),
    PathCase(
        "TUN, 20 Mbit/s, 0 to 20 ms of jitter",
        uplink(
            "20 Mbit/s",
            "20 Mbit/s",
            "300 KB",
            layers='jitter = { mean = "10 ms", spread = "10 ms" }',
        ),
        files(300 * KB, 3 * MB),
    ),
    PathCase("veth, as fast as the host", Pair, files(30 * MB), "host", "host", PAIR_SERVER),
)


def play(case: PathCase, testbed: Testbed, with_agent: bool) -> dict[str, float]:
    """The seconds of each file, by its label, and the agent's CPU seconds."""
    scope = f"scope.cgroup={testbed.cgroups[case.agent_on]}"
    agent = AgentProgram(testbed, [scope], case.agent_on)
    took = {}
    with agent:
        daemon = agent.serve() if with_agent else None
        for file in case.files:
            words = (file.way, case.server, str(file.size), str(file.connections), str(file.idle_s))
            took[file.label] = float(testbed.ask(case.client, sys.executable, TRANSFERS, *words))
        took["cpu_s"] = cpu_seconds(daemon.pid) if daemon else 0.0
    return took


def commit() -> str:
    """The commit that is measured, `+` if the tree differs from it by more than results."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)

    changed = git("diff", "--quiet", "HEAD", "--", ".", ":!docs/generated").returncode
    return git("rev-parse", "--short=7", "HEAD").stdout.strip() + "+" * bool(changed)


def pair(case: PathCase, number: int, of: str) -> None:
    """Two runs on a testbed of their own: with an even number first without the agent, else first with it."""
    with tempfile.TemporaryDirectory() as folder, case.testbed(Path(folder)) as testbed:
        if case.agent_on not in testbed.cgroups:
            testbed.make_cgroup(case.agent_on)
        if case.agent_on == "phone" and isinstance(testbed, Uplink):
            testbed.ip("phone", f"route add default dev {testbed.device}")
        for node in testbed.spaces:
            # What one run learnt of the path must not help the next.
            testbed.sysctl(node, "net.ipv4.tcp_no_metrics_save", "1")
        testbed.start("server", sys.executable, TRANSFERS, "serve")
        testbed.listens("server", 5300)
        order = (False, True) if number % 2 == 0 else (True, False)
        runs = {with_agent: play(case, testbed, with_agent) for with_agent in order}
    line = {
        "path": case.label,
        "pair": number,
        "date": date.today().isoformat(),
        "commit": of,
        "off": runs[False],
        "on": runs[True],
    }
    with LINES.open("a") as out:
        out.write(json.dumps(line) + "\n")
    print(f"{number + 1}: {case.label}", flush=True)


def measured() -> list[dict[str, Any]]:
    """The pairs in the file."""
    return [json.loads(line) for line in LINES.read_text().splitlines()] if LINES.exists() else []


def interval(off: list[float], on: list[float]) -> tuple[float, float, float]:
    """The mean ratio of on to off, and its 95 % interval."""
    found = spread([math.log(b / a) for a, b in zip(off, on, strict=True)])
    half = math.inf if found.half is None else found.half
    return math.exp(found.mean), math.exp(found.mean - half), math.exp(found.mean + half)


def page(lines: list[dict[str, Any]]) -> str:
    """The tables."""
    rows, processor = [], []
    for case in CASES:
        mine = [line for line in lines if line["path"] == case.label]
        if mine:
            used = statistics.median(line["on"]["cpu_s"] for line in mine)
            lasted = statistics.median(
                sum(line["on"][file.label] for file in case.files) for line in mine
            )
            processor.append(f"| {case.label} | {used * 1e3:.0f} | {lasted:.1f} |")
        for file in case.files if mine else ():
            off, on = ([float(line[side][file.label]) for line in mine] for side in ("off", "on"))
            mean, low, high = interval(off, on)
            limit = LIMIT_LONG if statistics.median(off) >= LONG_S else LIMIT
            passed = "pass" if high <= limit else "no"
            rows.append(
                f"| {case.label} | {file.label} | {len(mine)} | {statistics.median(off):.3f} | {statistics.median(on):.3f} "
                f"| {mean:.3f} ({low:.3f} to {high:.3f}) | {limit:.3f} | {passed} |"
            )
    days = sorted({line["date"] for line in lines})
    commits = sorted({line["commit"] for line in lines})
    head = f"""# What the agent costs where it does not help

Made by `make never-worse` on {", ".join(days)} from commit {", ".join(commits)}. Each row compares the completion time of a file with the agent's
defaults to that without the agent, in pairs of runs in alternating order. A row passes if its whole 95 % interval lies below the
limit: 1.05, and 1.020 (2 % of goodput) for files of at least {LONG_S:g} s.

| path | file | pairs | off, s | on, s | on / off (95 %) | limit | |
|---|---|---|---|---|---|---|---|
"""
    tail = """
## Processor time

What the program `unbloat-agent` used in a run with all files of a path, its start included; the median of the runs. The BPF programs'
time is not in it.

| path | ms of processor | s of transfers |
|---|---|---|
"""
    return head + "\n".join(rows) + "\n" + tail + "\n".join(processor) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="What the agent costs where it does not help.")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="only paths whose label contains one of these"
    )
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help=f"pairs of runs on each path (default {PAIRS})"
    )
    parser.add_argument("--again", action="store_true", help="forget the pairs of an earlier run")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root: network namespaces and BPF", file=sys.stderr)
        return 1
    if args.again:
        LINES.unlink(missing_ok=True)
    LINES.parent.mkdir(parents=True, exist_ok=True)
    chosen = [c for c in CASES if not args.paths or any(text in c.label for text in args.paths)]
    done = {(line["path"], line["pair"]) for line in measured()}
    of = commit()
    for number in range(args.pairs):
        for case in chosen:
            if (case.label, number) not in done:
                pair(case, number, of)
    PAGE.write_text(page(measured()))
    print(PAGE.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
