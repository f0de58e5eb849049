"""The programs that `peers.py` compares: how each is run with its own defaults, and what it says in its own words."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import rpm
from path import PROBE_BYTES, MeasuredPath

RTT_MS = 20
"""Of the path without a load. Subtracted from a program's round trip; ours prints added delay."""
NQ_PORT = 8443


@dataclass(frozen=True)
class Figure:
    """A delay under load, as a program says it."""

    phase: str
    statistic: str
    says: str
    added_ms: float | None
    """`None`: it says that it has no figure, or that it is of lost probes."""
    of: str = "rtt"
    times: tuple[float, float] | None = None
    """Unix time in which it was measured, where the program says it."""


@dataclass(frozen=True)
class Tool:
    """One program."""

    name: str
    needs: tuple[str, ...]
    """What has to be on the PATH."""
    serve: Callable[[MeasuredPath], None]
    words: Callable[[MeasuredPath], tuple[str, ...]]
    figures: Callable[[str], list[Figure]]
    phases: tuple[str, ...]
    version: tuple[str, ...]
    """A command that prints it."""
    probe_bytes: tuple[int, ...]
    """IP lengths of its probes in both directions."""
    number: str
    """What its figures are, and what it does not say."""
    max_s: int = 100
    """It is ended after this time."""

    def missing(self) -> list[str]:
        """Those of its programs that are not on the PATH."""
        return [name for name in self.needs if shutil.which(name) is None]

    def printed_version(self) -> str:
        """As the program prints it: the first number with a dot or name of a commit, or nothing."""
        done = subprocess.run(self.version, capture_output=True, text=True, timeout=60)
        found = re.search(r"\d+(\.\d+)+\S*|\b[0-9a-f]{7,}\b", done.stdout + done.stderr)
        return found[0].rstrip(".,") if found else ""


def of_ours(out: str) -> list[Figure]:
    """Of our JSON: what the phase is graded by."""
    figures = []
    for phase in json.loads(out)["phases"]:
        of = phase["grade"]["of"]
        value = phase[f"delay_{of}"]["p95_ms"][0]
        grade = " or ".join(phase["grade"]["grades"] or [f"no grade ({phase['grade']['why']})"])
        times = (phase["from_unix_s"], phase["until_unix_s"])
        added = None if value == "lost" else float(value)
        says = f"{grade}, {value if added is None else f'{added:.0f} ms'}"
        figures.append(Figure(phase["phase"], "p95", says, added, of, times))
    return figures


def of_flent(out: str) -> list[Figure]:
    """Of the summary: the mean of all its probes, and the median of its pings."""
    mean = re.search(r"Ping \(ms\) avg *: +([\d.]+)", out)
    middle = re.search(r"Ping \(ms\) ICMP *: +[\d.]+ +([\d.]+)", out)
    named = (("mean", mean), ("median", middle))
    return [
        Figure("both", name, f"{float(found[1]):.0f} ms", float(found[1]) - RTT_MS)
        for name, found in named
        if found
    ]


def of_crusader(out: str) -> list[Figure]:
    """Of the summary: the latency of each test."""
    names = {"Download": "down", "Upload": "up", "Bidirectional": "both"}
    found = re.findall(r"-- (\w+) test --\n(?:.*\n)??.*Latency: ([\d.]+) ms \((.*)\)", out)
    return [
        Figure(
            names[test],
            "largest smoothed",
            f"{float(ms):.0f} ms ({ways})",
            float(ms) - RTT_MS,
        )
        for test, ms, ways in found
    ]


def of_iperf(out: str) -> list[Figure]:
    """Of the last line of bouncebacks, that of the whole test."""
    found = re.findall(r"(\d+)=([\d.]+)/[\d.]+/[\d.]+/[\d.]+ ms .* (\d+) rps", out)
    if not found:
        return []
    _, ms, rps = found[-1]
    says = f"{float(ms):.0f} ms, {rps} rps"
    return [Figure("both", "mean", says, float(ms) - RTT_MS)]


def of_go(out: str) -> list[Figure]:
    """Of the text: the trimmed mean of each direction."""
    figures = []
    for way, found in rpm.of_go(out).items():
        added = 60_000 / found.rpm - RTT_MS if found.rpm else None
        says = "no RPM" if found.rpm is None else f"{found.rpm:.0f} RPM"
        figures.append(Figure(way, "trimmed mean", says, added))
    return figures


def of_peer(*servers: tuple[str, ...], port: int) -> Callable[[MeasuredPath], None]:
    """Starts servers, of which the first listens on a TCP port."""

    def serve(made: MeasuredPath) -> None:
        for words in servers:
            if shutil.which(words[0]):
                made.start("server", *words)
        made.listens("server", port)

    return serve


def own(*words: str) -> Callable[[MeasuredPath], tuple[str, ...]]:
    """A command line of ours."""
    return lambda made: (made.program, *made.target, "--json", *words)


OURS = "p95 of the added delay in the graded direction (of the round trip in `both`); a lost probe counts as an infinite delay. It begins when the load has grown, so an overshoot of slow start is not in it. It needs its own server."
TOOLS = (
    Tool(
        "unbloat measure",
        (),
        lambda made: void(made.serve()),
        own(),
        of_ours,
        ("down", "up", "both"),
        ("unbloat-measure", "--version"),
        (PROBE_BYTES,),
        OURS,
    ),
    Tool(
        "unbloat measure --quick",
        (),
        lambda made: void(made.serve()),
        own("--quick"),
        of_ours,
        ("down", "up", "both"),
        ("unbloat-measure", "--version"),
        (PROBE_BYTES,),
        "As above, in less time. A deep buffer may not fill in it.",
    ),
    Tool(
        "crusader",
        ("crusader",),
        of_peer(("crusader", "serve"), port=35481),
        lambda made: ("crusader", "test", made.server),
        of_crusader,
        ("down", "up", "both"),
        ("crusader", "--version"),
        (44,),
        "The largest round trip of each test, smoothed over 400 ms, with its two parts by its own synchronisation of the clocks, and loss of each direction. It does not say how long most packets wait, and has no grade.",
    ),
    Tool(
        "iperf2 bounceback",
        ("iperf",),
        of_peer(("iperf", "-s"), port=5001),
        lambda made: (
            *("stdbuf", "-oL", "iperf", "-c", made.server, "--bounceback"),
            *("--bounceback-congest", "-e", "-i", "1"),
        ),
        of_iperf,
        ("both",),
        ("iperf", "--version"),
        (152,),
        "Mean round trip of requests of 100 bytes on a TCP connection, ten each second, beside one stream in each direction. They follow each other, so a time of long waits has fewer of them. The mean includes retransmissions, and the test does not say which direction delays. What is lost is not in it. The test is of 10 s.",
        max_s=45,
    ),
    Tool(
        "goresponsiveness",
        ("networkQuality",),
        lambda made: void(made.serve("--nq", str(NQ_PORT))),
        lambda made: (
            "networkQuality",
            "-url",
            f"https://{made.server}:{NQ_PORT}/.well-known/nq",
        ),
        of_go,
        ("down", "up"),
        ("networkQuality", "-version"),
        (60,),
        "RPM of each direction by its trimmed mean; the added delay is 60000/RPM less 20 ms. It includes requests on loaded connections, which wait for retransmissions and in the flow's own queue. So it is more than what a small packet of another flow waits, by its definition. Its final RPM mixes both loads, so it is not here. Probes that do not return in time are not in it. It does not say in which direction the delay is, nor what is lost. Earlier runs had no figure of an upload, by a defect of our server: it permitted 4 MB of an upload in flight, and permits 64 kB since.",
    ),
    Tool(
        "flent rrul",
        ("flent", "netperf", "netserver"),
        of_peer(("netserver", "-D", "-4"), ("irtt", "server"), port=12865),
        lambda made: (
            *("flent", "rrul", "-H", made.server, "-f", "summary"),
            *("-D", str(made.folder)),
        ),
        of_flent,
        ("both",),
        ("flent", "--version"),
        (84, 88),
        "Mean of its four kinds of probes and median of its pings, of round trips. The summary includes 5 s before and after the load. `rrul` loads both ways at once, so it does not say which direction delays. Lost probes are not in its summary.",
    ),
)


def void(_: object) -> None:
    """A server that runs until the path ends."""
