"""Cures of one upload side by side, in one run: nothing, cake-autorate's law, the gate, and whatever else is given.

    sudo .venv/bin/python bench/agent/compare_uplink.py --gate G --acks A [--link steps] [--node notebook]

cake-autorate is the emulator's: its law on the modem's own queue with FQ-CoDel, with the rates that its user would set by hand. A cure
is a program that runs in the phone's namespace until its input ends; {device}, {telemetry} and {journal} are filled in. Links are the rate's steps
and, where UNBLOAT_SHARED has them, LTE traces. CUBIC uploads for the whole time; a ping ten times a second is the judge, from the fifth
second on.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "agent"))

from uplink import STEPS, Uplink, scenario  # noqa: E402

DOWN = 'rate = "20 Mbit/s"'
"""Enough that acknowledgements and pings never wait there."""


@dataclass
class Link:
    """An uplink and what a user of cake-autorate would configure."""

    name: str
    seconds: int
    rates: tuple[str, str, str]
    steps: tuple[tuple[str, str], ...] = ()
    trace: Path | None = None

    def options(self, folder: Path) -> list[str]:
        """Of the emulator."""
        if self.trace is None:
            return []
        (folder / "trace").write_bytes(gzip.decompress(self.trace.read_bytes()))
        return ["--trace", f"uplink={folder / 'trace'}"]

    def text(self, gate: str) -> str:
        """The scenario with a gate of the emulator's own."""
        up = 'rate = "2 Mbit/s"' if self.trace is None else 'trace = "uplink"'
        text: str = scenario(up, DOWN, gate, duration=self.seconds + 20, steps=self.steps)
        # A queue that is fair is what cake-autorate shapes.
        fair = 'qdisc = "fq_codel"\n'
        return text if gate == '"none"' else text.replace("[device]\n", f"[device]\n{fair}")

    def autorate(self) -> str:
        """Its gate with these rates."""
        low, base, high = self.rates
        return f'{{ kind = "autorate", min = "{low}", base = "{base}", max = "{high}" }}'


TRACES = (
    ("Verizon-LTE-short", ("0.5 Mbit/s", "6 Mbit/s", "20 Mbit/s")),
    ("ATT-LTE-driving-2016", ("0.2 Mbit/s", "2 Mbit/s", "10 Mbit/s")),
    ("ATT-LTE-driving", ("0.2 Mbit/s", "0.8 Mbit/s", "4 Mbit/s")),
    ("TMobile-LTE-short", ("1 Mbit/s", "13 Mbit/s", "40 Mbit/s")),
    ("TMobile-UMTS-driving", ("0.2 Mbit/s", "1 Mbit/s", "4 Mbit/s")),
)
"""Uplinks, and for each what cake-autorate's user would set: a tenth of the mean, the mean, several times the mean."""


def links() -> list[Link]:
    """2 Mbit/s, steady and in steps, and traces that are there."""
    rates = ("0.2 Mbit/s", "2 Mbit/s", "5 Mbit/s")
    found = [Link("steady", 30, rates), Link("steps", 40, rates, STEPS)]
    shared = os.environ.get("UNBLOAT_SHARED")
    root = Path(shared) if shared else ROOT.parent / "shared"
    for name, rates in TRACES:
        path = root / "traces" / "mahimahi" / f"{name}.up.gz"
        if path.exists():
            found.append(Link(name, 60, rates, trace=path))
        else:
            print(f"left out: {name}, no {path}", file=sys.stderr)
    return found


@contextlib.contextmanager
def cured(testbed: Uplink, folder: Path, command: str | None) -> Iterator[None]:
    """A cure in the phone's namespace; it must live as long as the upload."""
    if command is None:
        yield
        return
    words = command.format(
        device=testbed.device,
        telemetry=testbed.out / "telemetry.sock",
        journal=folder / "journal.jsonl",
    )
    # What it writes is not of interest.
    running = testbed.start(
        "phone", *words.split(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    time.sleep(0.5)
    yield
    assert running.poll() is None, f"it ended by itself: {running.stderr and running.stderr.read()}"
    running.communicate("", timeout=10)


def measure(link: Link, cure: str, command: str | None, options: argparse.Namespace) -> str:
    """A line of the table."""
    gate = link.autorate() if cure == "autorate" else '"none"'
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        folder = Path(name)
        testbed = Uplink(folder, link.text(gate), *link.options(folder))
        with testbed, cured(testbed, folder, command):
            ping, upload = (
                testbed.ping(options.node),
                testbed.iperf(options.node, link.seconds - 2, "-C", "cubic"),
            )
            try:
                ended = upload.done()["end"]
            except subprocess.TimeoutExpired:
                # Without a cure an outage can cost all its acknowledgements, and then it never ends.
                return f"{link.name:22} {cure:12} the upload did not end within two minutes"
            ping.stop()
    received = ended["sum_received"]["bits_per_second"] / 1e6
    return (
        f"{link.name:22} {cure:12} {received:8.2f} {ping.p(0.5):8.0f} {ping.p(0.95):8.0f} {ping.p(0.99):8.0f} "
        f"{100 * ping.lost() / max(ping.sent, 1):6.1f}"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gate", help="the gate's example program")
    parser.add_argument("--acks", help="the example program of ACK-window rewriting")
    parser.add_argument("--cure", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="of the cures")
    parser.add_argument("--link", action="append", default=[])
    parser.add_argument("--node", default="phone", choices=("phone", "notebook"))
    options = parser.parse_args()
    # A table that is ended early leaves nothing behind, either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    cures: dict[str, str | None] = {"nothing": None, "autorate": None}
    if options.gate:
        cures["gate"] = f"{options.gate} {{device}} socket={{telemetry}} journal={{journal}}"
    if options.acks:
        cures["acks"] = f"{options.acks} {{device}} down=no journal={{journal}}"
    cures |= dict(cure.split("=", 1) for cure in options.cure)
    print(
        f"{'link':22} {'cure':12} {'Mbit/s':>8} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8} {'lost %':>6}"
    )
    for link in links():
        for cure, command in cures.items():
            if link.name in (options.link or [link.name]) and cure in (options.only or [cure]):
                print(measure(link, cure, command, options), flush=True)


if __name__ == "__main__":
    main()
