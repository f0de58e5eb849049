"""Makes capture pairs whose truth is known: `python3 tests/truth/generate.py DIR` as root.

signal: the scenarios below, each with one impairment
model:  the testbed of `samples/make`: real Linux stacks, a relay that writes down what it did to every packet
action: DIR/NAME/ with phone.pcap, server.pcap and truth.json; NAME is also what the tests call the pair

`truth.json` is derived by `truth.py` from the relay's log and the kernel's own figures, never from a capture.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "samples" / "make"), str(ROOT / "tests" / "truth")]

import relay_testbed  # noqa: E402
import truth  # noqa: E402
from relay_testbed import PHONE, SERVER, SERVER6, Scenario, Traffic  # noqa: E402

TRAFFIC = str(relay_testbed.HERE / "traffic.py")
# The testbed is idle most of the time: the links are slow. More at once would disturb each other's timing.
AT_ONCE = 6
# 40 ms of base RTT and room for a whole window, so that nothing but the named impairment happens.
CLEAN = "rate=20e6,queue=1e6,delay=20"


def upload(*options: str, sink: tuple[str, ...] = (), to: str = SERVER) -> tuple[Traffic, ...]:
    """One bulk transfer from the phone to the server."""
    return (
        Traffic("server", (sys.executable, TRAFFIC, "sink", to, "5201", *sink), listens=5201),
        Traffic("phone", (sys.executable, TRAFFIC, "send", to, "5201", *options), 0.5),
    )


def download(*options: str) -> tuple[Traffic, ...]:
    """One bulk transfer from the server to the phone."""
    return (
        Traffic("phone", (sys.executable, TRAFFIC, "sink", PHONE, "5201"), listens=5201),
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
        "1 % duplicated by the path, each copy right behind its original",
        f"{CLEAN},dup=0.01,seed=8",
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
        "stall-loss",
        "many segments lost, and the link stands still for 2 s behind their retransmissions: some are retransmitted twice",
        # Counted, since a fixed second is before the losses or behind the recovery where slow start ends 0.1 s sooner or later.
        "rate=6e6,queue=400000,delay=20,kill=2000000/2200000,stall=2/110",
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
        "gso",
        "veth with segmentation offload",
        "",
        "",
        upload("--bytes", "20000000", "--rate", "200000000"),
        40,
        veth=True,
    ),
)
# Pairs that are made of another pair's captures by cutting their beginning off, so many data packets at either end.
CUT = {"download-no-syn": ("download", 250), "loss-no-syn": ("loss", 90)}
# A copy further behind its original looks like a retransmission; the path was to put it right
# behind.
COPY_MS = 10.0


def make(scenario: Scenario, into: Path, tools: Path) -> str:
    """One pair, three attempts: a run that lost packets outside the relay has no truth, and one in which the machine
    stood still between a packet and its copy is not the scenario."""
    for attempt in range(3):
        try:
            relay_testbed.run_scenario(scenario, into / scenario.name, tools)
            known = truth.write(into / scenario.name, scenario.name)
            if (gap := known.get("path", {}).get("copy_ms_max", 0.0)) > COPY_MS:
                raise relay_testbed.RunError(
                    f"{scenario.name}: a copy came {gap:.0f} ms behind its original"
                )
            break
        except relay_testbed.RunError:
            if attempt == 2:
                raise
    return scenario.name


def has_data(packet: bytes) -> bool:
    """Whether an IPv4 packet carries TCP payload to port 5201."""
    at = (packet[0] & 15) * 4
    port = int.from_bytes(packet[at + 2 : at + 4], "big")
    length = int.from_bytes(packet[2:4], "big") - at - (packet[at + 12] >> 4) * 4
    return packet[9] == 6 and port == 5201 and length > 0


def cut(raw: bytes, skip: int) -> bytes:
    """A little-endian pcap of raw IPv4 from data packet number `skip` on, counted from 0."""
    at = 24
    while at < len(raw):
        size = int.from_bytes(raw[at + 8 : at + 12], "little")
        if has_data(raw[at + 16 : at + 16 + size]):
            if skip == 0:
                break
            skip -= 1
        at += 16 + size
    return raw[:24] + raw[at:]


def generate(into: Path, names: list[str] | None = None) -> None:
    """All pairs, several at once."""
    chosen = [s for s in SCENARIOS if not names or s.name in names]
    into.mkdir(parents=True, exist_ok=True)
    relay_testbed.build_relay(into)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(make, scenario, into, into) for scenario in chosen]
        try:
            for future in running:
                future.result()
        except BaseException:
            # what runs ends by itself and takes its namespaces along; nothing new begins
            pool.shutdown(cancel_futures=True)
            raise
    for name, (source, skip) in CUT.items():
        if not (into / source).exists():
            continue
        (into / name).mkdir(exist_ok=True)
        for end in ("phone", "server"):
            (into / name / f"{end}.pcap").write_bytes(
                cut((into / source / f"{end}.pcap").read_bytes(), skip)
            )
        truth.write_cut(into / name, name, into / source, skip)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make capture pairs whose truth is known.")
    parser.add_argument(
        "into", type=Path, metavar="DIR", help="where the pairs go, one directory each"
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"only these: {', '.join(s.name for s in SCENARIOS)}",
    )
    args = parser.parse_args()
    if unknown := set(args.names) - {s.name for s in SCENARIOS}:
        parser.error(f"no such pair: {', '.join(sorted(unknown))}")
    if reason := relay_testbed.missing_tools():
        print(f"the pairs cannot be made here: {reason}", file=sys.stderr)
        return 1
    relay_testbed.stop_on_signals()
    begin = time.monotonic()
    generate(args.into, args.names)
    print(f"{time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
