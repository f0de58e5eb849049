"""Makes capture pairs whose truth is known: `python3 tests/truth/generate.py DIR` as root.

signal: the scenarios below, each with one impairment
model:  the bed of `samples/make`: real Linux stacks, a relay that writes down what it did to every packet
action: DIR/NAME/ with phone.pcap, server.pcap and truth.json; NAME is also what the tests call the pair

`truth.json` is derived by `truth.py` from the relay's log and the kernel's own figures, never from a capture.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "samples" / "make"), str(ROOT / "tests" / "truth")]

import bed  # noqa: E402
import truth  # noqa: E402
from bed import PHONE, SERVER, SERVER6, Scenario, Traffic  # noqa: E402

TRAFFIC = str(bed.HERE / "traffic.py")
# The bed is idle most of the time: the links are slow. More at once would disturb each other's timing.
AT_ONCE = 6
# 40 ms of base RTT and room for a whole window, so that nothing but the named impairment happens.
CLEAN = "rate=20e6,queue=1e6,delay=20"


def upload(*options: str, sink: tuple[str, ...] = (), to: str = SERVER) -> tuple[Traffic, ...]:
    """One bulk transfer from the phone to the server."""
    return (
        Traffic("server", (sys.executable, TRAFFIC, "sink", to, "5201", *sink)),
        Traffic("phone", (sys.executable, TRAFFIC, "send", to, "5201", *options), 0.5),
    )


def download(*options: str) -> tuple[Traffic, ...]:
    """One bulk transfer from the server to the phone."""
    return (
        Traffic("phone", (sys.executable, TRAFFIC, "sink", PHONE, "5201")),
        Traffic("server", (sys.executable, TRAFFIC, "send", PHONE, "5201", *options), 0.5),
    )


BYTES3 = ("--bytes", "3000000", "--seconds", "30")
NO_STAMPS = {"net.ipv4.tcp_timestamps": "0"}
SHORT = ("--bytes", "60000", "--times", "8", "--pause", "0.1")

SCENARIOS = (
    Scenario("loss", "1 % random loss", f"{CLEAN},loss=0.01,seed=3", CLEAN, upload(*BYTES3), 40),
    Scenario(
        "reorder",
        "2 % of the packets 5 to 15 ms late",
        f"{CLEAN},reorder=0.02,hold=5/15,seed=4",
        CLEAN,
        upload(*BYTES3),
        40,
    ),
    Scenario(
        "reorder-loss",
        "1 % late by 5 to 15 ms and 1 % lost",
        f"{CLEAN},reorder=0.01,hold=5/15,loss=0.01,seed=5",
        CLEAN,
        upload(*BYTES3),
        40,
    ),
    Scenario(
        "download",
        "bloated download",
        CLEAN,
        "rate=6e6,queue=400000,delay=20",
        download("--seconds", "9"),
        40,
    ),
    Scenario(
        "no-timestamps",
        "1 % loss without timestamps",
        f"{CLEAN},loss=0.01,seed=6",
        CLEAN,
        upload(*BYTES3),
        40,
        {"phone": NO_STAMPS, "server": NO_STAMPS},
    ),
    Scenario(
        "tail",
        "the last four segments of short transfers lost",
        f"{CLEAN},kill=55000/60000",
        CLEAN,
        upload(*SHORT, sink=("--times", "8")),
        40,
    ),
    Scenario(
        "tail-timeout",
        "the same without tail-loss probes",
        f"{CLEAN},kill=55000/60000",
        CLEAN,
        upload(*SHORT, sink=("--times", "8")),
        40,
        {"phone": {"net.ipv4.tcp_early_retrans": "0"}},
    ),
    Scenario(
        "duplicate",
        "1 % duplicated by the path",
        f"{CLEAN},dup=0.01,hold=1,seed=8",
        CLEAN,
        upload(*BYTES3),
        40,
    ),
    Scenario(
        "slow-reader",
        "an application that reads in fits",
        CLEAN,
        CLEAN,
        upload("--bytes", "2000000", "--seconds", "30", sink=("--profile", "6/0/0/8/0/0/4/20")),
        40,
        {"server": {"net.ipv4.tcp_rmem": "4096 131072 400000"}},
    ),
    Scenario(
        "small-window",
        "a receive buffer below the path's capacity",
        "rate=30e6,queue=1e6,delay=30",
        "rate=30e6,queue=1e6,delay=30",
        upload("--seconds", "6"),
        40,
        {"server": {"net.ipv4.tcp_rmem": "4096 60000 100000"}},
    ),
    Scenario(
        "small-queue-cubic",
        "CUBIC at a queue of 20 KB",
        "rate=8e6,queue=20000,delay=20",
        CLEAN,
        upload("--seconds", "8"),
        40,
    ),
    Scenario(
        "small-queue-bbr",
        "BBR at a queue of 20 KB",
        "rate=8e6,queue=20000,delay=20",
        CLEAN,
        upload("--seconds", "8", "--congestion", "bbr"),
        40,
    ),
    Scenario(
        "outage",
        "everything lost for 2 s, Reno",
        "rate=6e6,queue=100000,delay=20,blackout=3/5",
        "rate=6e6,queue=100000,delay=20,blackout=3/5",
        upload("--seconds", "8", "--congestion", "reno"),
        40,
    ),
    Scenario(
        "stall",
        "the link stands still for 2 s and loses nothing: spurious timeouts",
        "rate=6e6,queue=400000,delay=20,step=3/0,step=5/6e6",
        "rate=6e6,queue=400000,delay=20",
        upload("--seconds", "8"),
        40,
    ),
    Scenario(
        "ipv6-loss",
        "1 % random loss over IPv6",
        f"{CLEAN},loss=0.01,seed=9",
        CLEAN,
        upload(*BYTES3, to=SERVER6),
        40,
    ),
    Scenario(
        "giants",
        "veth with segmentation offload",
        "",
        "",
        upload("--bytes", "20000000", "--rate", "200000000"),
        40,
        veth=True,
    ),
)
# Pairs that are made of another pair's captures by cutting their beginning off.
CUT = {"download-no-syn": ("download", 400), "loss-no-syn": ("loss", 150)}


def make(scenario: Scenario, into: Path, tools: Path) -> str:
    """One pair, three attempts: a run that lost packets outside the relay has no truth."""
    for attempt in range(3):
        try:
            bed.run(scenario, into / scenario.name, tools)
            break
        except bed.BedError:
            if attempt == 2:
                raise
    truth.write(into / scenario.name, scenario.name)
    return scenario.name


def cut(raw: bytes, packets: int) -> tuple[bytes, int]:
    """A little-endian microsecond pcap without its first packets, and the time of the first that is left."""
    at = 24
    for _ in range(packets):
        at += 16 + int.from_bytes(raw[at + 8 : at + 12], "little")
    seconds, micros = (int.from_bytes(raw[at + i : at + i + 4], "little") for i in (0, 4))
    return raw[:24] + raw[at:], seconds * 1_000_000 + micros


def generate(into: Path, names: list[str] | None = None) -> None:
    """All pairs, several at once."""
    chosen = [s for s in SCENARIOS if not names or s.name in names]
    into.mkdir(parents=True, exist_ok=True)
    bed.build_relay(into)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(make, scenario, into, into) for scenario in chosen]
        try:
            for future in running:
                future.result()
        except BaseException:
            # what runs ends by itself and takes its namespaces along; nothing new begins
            pool.shutdown(cancel_futures=True)
            raise
    for name, (source, packets) in CUT.items():
        if not (into / source).exists():
            continue
        (into / name).mkdir(exist_ok=True)
        since: dict[str, int] = {}
        for end in ("phone", "server"):
            raw, since[end] = cut((into / source / f"{end}.pcap").read_bytes(), packets)
            (into / name / f"{end}.pcap").write_bytes(raw)
        truth.write_cut(into / name, name, into / source, since)


if __name__ == "__main__":
    bed.stop_on_signals()
    begin = time.monotonic()
    generate(Path(sys.argv[1]), sys.argv[2:])
    print(f"{time.monotonic() - begin:.0f} s")
