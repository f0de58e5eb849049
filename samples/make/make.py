"""Makes the captures in `samples/`: `python3 samples/make/make.py [NAME…]` as root.

One table says what there is. Every scenario runs in namespaces of its own (`relay_testbed.py`), the link is `relay.c`; the
capture at the named end is turned into pcapng, cut to headers and compressed with `zstd`. The capture at the other
end, the relay's log and the kernel's counters stay in `--keep DIR`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pcapng
import relay_testbed
from relay_testbed import SERVER, Scenario, Traffic

SAMPLES = relay_testbed.HERE.parent
TRAFFIC = str(relay_testbed.HERE / "traffic.py")


def tool(host: str, *argv: str, start_s: float = 0.0, awaited: bool = True) -> Traffic:
    """A verb of traffic.py in a namespace."""
    return Traffic(host, (sys.executable, TRAFFIC, *argv), start_s, awaited)


def ping(seconds: int) -> Traffic:
    """One echo a second from the phone, beside the traffic."""
    return Traffic(
        "phone", ("ping", "-q", "-i", "1", "-c", str(seconds), SERVER), 0.2, awaited=False
    )


@dataclass(frozen=True)
class Sample:
    """A scenario and which end's capture is kept."""

    scenario: Scenario
    at: str  # phone or server


# A phone on weak LTE, as in a TCP-tracing post: for nine seconds a shallow queue, then one of 3 MB in front of the same
# 4 Mbit/s. CUBIC needs about twelve seconds to fill the receiver's window of about 0.9 MB into it. While the uplink queue
# is deep the radio hands the ACKs over in bursts. CUBIC and BBR get the very same link.
WEAK_UP = "rate=4e6,queue=24000,deep=9.3/3e6,delay=25,seed=1"
WEAK_DOWN = "rate=20e6,queue=1e6,delay=25,burst=10/600,over=600000,seed=1"
# tcp_rmem of the server: what a window of about 0.9 MB needs under Linux's scaling ratio
STATIC_WINDOW = {"server": {"net.ipv4.tcp_rmem": "4096 131072 1420000"}}


def weak_upload(name: str, congestion: str, about: str) -> Scenario:
    """The upload over weak LTE with one congestion control or another."""
    return Scenario(
        name,
        about,
        WEAK_UP,
        WEAK_DOWN,
        (
            tool("server", "sink", SERVER, "5201"),
            tool("server", "absorb", SERVER, "3478", awaited=False),
            tool(
                "phone",
                "send",
                SERVER,
                "5201",
                "--seconds",
                "45",
                "--congestion",
                congestion,
                start_s=0.5,
            ),
            tool(
                "phone", "datagrams", SERVER, "3478", "--seconds", "40", "--pause", "2", start_s=1.0
            ),
            ping(45),
        ),
        70,
        STATIC_WINDOW,
    )


TABLE = (
    Sample(
        weak_upload(
            "bloated-cubic-upload",
            "cubic",
            "CUBIC upload over weak LTE: RTT below 100 ms for 10 s, then a queue of 0.9 MB, window full from about 22 s, ACKs in bursts",
        ),
        "phone",
    ),
    Sample(
        weak_upload(
            "bloated-bbr-upload",
            "bbr",
            "the same link and bytes with BBR: the queue is there, BBR leaves it empty",
        ),
        "phone",
    ),
    Sample(
        Scenario(
            "slow-reader",
            "an application that reads in fits: zero windows with probes",
            "rate=20e6,queue=400000,delay=20,seed=1",
            "rate=20e6,queue=400000,delay=20,seed=1",
            (
                tool(
                    "server",
                    "sink",
                    SERVER,
                    "5201",
                    "--profile",
                    "6/0/0/8/0/0/0/4/20",
                    "--slot",
                    "1",
                ),
                tool(
                    "phone",
                    "send",
                    SERVER,
                    "5201",
                    "--bytes",
                    "2500000",
                    "--seconds",
                    "30",
                    start_s=0.5,
                ),
            ),
            60,
            {"server": {"net.ipv4.tcp_rmem": "4096 131072 400000"}},
        ),
        "phone",
    ),
    Sample(
        Scenario(
            "lossy",
            "1 % random loss on an otherwise idle link: no queue, CUBIC held back by loss",
            "rate=30e6,queue=1e6,delay=20,loss=0.01,seed=7",
            "rate=30e6,queue=1e6,delay=20,seed=7",
            (
                tool("server", "sink", SERVER, "5201"),
                tool(
                    "phone",
                    "send",
                    SERVER,
                    "5201",
                    "--bytes",
                    "4000000",
                    "--seconds",
                    "40",
                    start_s=0.5,
                ),
            ),
            60,
        ),
        "phone",
    ),
    Sample(
        Scenario(
            "bloated-download-at-receiver",
            "download through a deep downlink queue, captured at the phone: the RTT shows only in timestamps",
            "rate=4e6,queue=300000,delay=20,seed=1",
            "rate=4e6,queue=1e6,delay=20,seed=1",
            (
                tool("phone", "sink", relay_testbed.PHONE, "5201"),
                tool("server", "send", relay_testbed.PHONE, "5201", "--seconds", "15", start_s=0.5),
            ),
            50,
        ),
        "phone",
    ),
    Sample(
        Scenario(
            "lte-with-web",
            "a CUBIC upload starts after 6 s beside short web requests, a call and a ping: their RTT rises with its queue",
            "rate=3e6,queue=600000,delay=25,seed=1",
            "rate=12e6,queue=600000,delay=25,seed=1",
            (
                tool("server", "answer", SERVER, "80", awaited=False),
                tool("server", "sink", SERVER, "5201"),
                tool("server", "absorb", SERVER, "3478", awaited=False),
                tool(
                    "phone",
                    "web",
                    SERVER,
                    "80",
                    "--seconds",
                    "24",
                    "--pause",
                    "0.8",
                    "--bytes",
                    "12000",
                    start_s=0.4,
                ),
                tool(
                    "phone",
                    "datagrams",
                    SERVER,
                    "3478",
                    "--seconds",
                    "24",
                    "--pause",
                    "0.5",
                    start_s=0.4,
                ),
                tool(
                    "phone",
                    "send",
                    SERVER,
                    "5201",
                    "--seconds",
                    "14",
                    "--congestion",
                    "cubic",
                    start_s=6.0,
                ),
                ping(24),
            ),
            60,
        ),
        "phone",
    ),
)


def make(sample: Sample, keep: Path, tools: Path) -> Path:
    """Run one scenario and write its sample. A run whose truth is in doubt is repeated, three times at most."""
    scenario = sample.scenario
    for attempt in range(3):
        try:
            out = relay_testbed.run_scenario(scenario, keep / scenario.name, tools)
            break
        except relay_testbed.RunError as doubt:
            print(f"{scenario.name}: {doubt}", file=sys.stderr)
            if attempt == 2:
                raise
    raw = pcapng.convert(out / f"{sample.at}.pcap", "rmnet0", scenario.about, scenario.snap)
    target = SAMPLES / f"{scenario.name}.pcapng"
    target.write_bytes(raw)
    subprocess.run(["zstd", "-q", "-f", "--rm", "-19", "--long=24", str(target)], check=True)
    return target.with_suffix(".pcapng.zst")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="samples to make; all when none is named")
    parser.add_argument(
        "--keep", type=Path, help="keep captures of both ends, truth log and counters here"
    )
    args = parser.parse_args()
    known = {s.scenario.name: s for s in TABLE}
    if unknown := set(args.names) - set(known):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if reason := relay_testbed.missing_tools() or (
        None if shutil.which("zstd") else "zstd is not installed"
    ):
        sys.exit(reason)
    relay_testbed.stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="unbloat-samples-") as scratch:
        keep = args.keep or Path(scratch) / "runs"
        for name in args.names or known:
            begin = time.monotonic()
            made = make(known[name], keep, Path(scratch))
            print(
                f"{made.name}: {made.stat().st_size:,} bytes, {time.monotonic() - begin:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
