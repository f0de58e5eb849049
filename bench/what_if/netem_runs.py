"""Some of the known links over the kernel's own queues, under every cure that a kernel has: a truth beside that of `kernel_runs.py`,
without the project's emulator.

signal: a link of `LINKS`, a cure, and the number of a run · model: Debian's kernel in a guest of QEMU whose clock counts instructions;
`guest/cured.py` has its token bucket, FIFO, FQ-CoDel, CAKE and netem on the way, and captures both ends · action: a line of
`docs/generated/what-if-netem.jsonl` per run, with commit, date and kernel, and the captures where a prediction starts from the run

    python bench/what_if/netem_runs.py [RUNS]

Figures are read from the packets by `unbloat.prediction.pairs` alone: no other analysis of the project is in them. A quarter of the test half was chosen before
the first run. There is no modem in a guest, so the gate is not run. The RTT of a run is that of `kernel_runs.py`.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))
sys.path.append(str(ROOT / "tests" / "kernels"))

import archive  # noqa: E402
import congestion  # noqa: E402
import image  # noqa: E402
import machine  # noqa: E402
import prepare  # noqa: E402
import sender_links  # noqa: E402
from bench.what_if import kernel_runs  # noqa: E402
from bench.what_if.findings import ENDS, GENERATED  # noqa: E402
from bench.what_if.kernel_runs import (  # noqa: E402
    CURES_RUN,
    NAMES,
    SENDER,
    STARTS,
    Case,
    Row,
    capture_of,
    key,
    true_figures,
)
from bench.what_if.links import LINKS as KNOWN  # noqa: E402
from bench.what_if.links import RTT_MS, TEST, Link, seeded  # noqa: E402

from unbloat.front.lab import commit  # noqa: E402
from unbloat.lab.requirements import AGENT, found  # noqa: E402
from unbloat.prediction.cures import shaped_kbps  # noqa: E402
from unbloat.run.store import Store  # noqa: E402

STORE = GENERATED / "what-if-netem.jsonl"
CAPTURES = ROOT / "target" / "what-if-netem"
# Raised when runs are made in another way.
METHOD = 2
RUNS = 1
LINKS = tuple(
    link
    for link in KNOWN
    if link.half == TEST and link.name in ("2M-256K", "4M-64K", "10M-256K", "10M-fq-codel")
)
CURES = tuple(cure for cure in CURES_RUN if not cure.gate)
SCRIPT = HERE / "guest" / "cured.py"
# Cases of one guest, those of a link: what a guest that is ended loses.
PER_GUEST = len(CURES)
# Of real time for one case, beside other work of the host.
LIMIT_S = 900.0
PROGRAMS = ("qemu-system-x86_64", "busybox", "cpio", "unxz", "apt-get", "dpkg-deb", "tc", "tcpdump")


class Unavailable(Exception):
    """Nothing can be run on this host, and why."""


def cases(runs: int = RUNS) -> list[Case]:
    """All first runs before all second ones."""
    return [(link, cure, run) for run in range(runs) for link in LINKS for cure in CURES]


def settings(case: Case) -> str:
    """Names what is made."""
    return kernel_runs.settings(case, METHOD)


def rtt_ms(link: Link, run: int) -> float:
    """Without a queue: what `links.scenario` draws first."""
    return seeded(link, SENDER, run).uniform(*RTT_MS)


def described(link: Link, run: int) -> str:
    """A link as the guest reads it: rate, rate of a shaper (kbit/s), buffer (bytes), RTT (µs)."""
    rate_bps = 1e6 * link.rate_mbps
    numbers = (
        round(rate_bps / 1000),
        shaped_kbps(rate_bps),
        1000 * link.buffer_kb,
        round(1000 * rtt_ms(link, run)),
    )
    return ":".join((link.name, *map(str, numbers)))


def guest_name(case: Case) -> str:
    """Of a case in the guest: a kernel's command line has no spaces within a word."""
    return f"{case[0].name}:{case[1].name.replace(' ', '-')}"


def prepared(folder: Path) -> tuple[image.Kernel, Path]:
    """The kernel and what it boots from, in a folder. Raises `Unavailable`."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    agent = found(AGENT)
    if missing or agent is None:
        raise Unavailable(f"missing: {', '.join(missing) or AGENT}")
    if platform.machine() != "x86_64":
        raise Unavailable("guests need the programs of an x86-64 host")
    prepare.CACHE.mkdir(parents=True, exist_ok=True)
    try:
        kernel = image.kernel(prepare.ARCHIVE.fetch(congestion.FAMILY), prepare.CACHE)
    except archive.Unavailable as why:
        raise Unavailable(f"no kernel: {why}") from None
    base = image.userland(prepare.CACHE)
    extra = (Path(sender_links.__file__), SCRIPT)
    initramfs = folder / "initramfs"
    return kernel, image.initramfs(initramfs, [Path(agent)], base, kernel.modules, extra=extra)


def run(part: Sequence[Case], base: tuple[image.Kernel, Path], captures: Path) -> dict[Case, Row]:
    """Cases of one run's number in one guest, one after the other: the rows of those that worked; the others say why not."""
    kernel, initramfs = base
    number = part[0][2]
    links = {case[0]: None for case in part}
    with tempfile.TemporaryDirectory(prefix="unbloat-netem-") as name:
        disk = Path(name) / "disk"
        with disk.open("wb") as made:
            made.truncate(congestion.DISK_BYTES)
        ran = machine.boot(
            *(kernel.image, initramfs, kernel.release, [guest_name(case) for case in part]),
            *(LIMIT_S * len(part), Path(name)),
            words=f"script=cured links={','.join(described(link, number) for link in links)}",
            devices=(*machine.clock(number + 1), "-drive", f"file={disk},if=virtio,format=raw"),
            boot_limit_s=LIMIT_S,
        )
        members = congestion.members(disk)
    rows: dict[Case, Row] = {}
    for case in part:
        named = guest_name(case)
        result = ran.cases.get(named, {"failed": f"{ran.why_missing()}: {ran.console[-800:]}"})
        ends = [members.get(f"{named}:{end}.pcap", b"") for end in ENDS]
        if why := refusal(result, ends):
            print(f"{', '.join(key(case))}: not stored: {why}", flush=True)
            continue
        rows[case] = {
            "figures": true_figures(*ends),
            # Of the guest's clock, which the load of the host does not change.
            "late_ms": 0.0,
            "kernel": f"Linux {kernel.release}",
            "date": time.strftime("%Y-%m-%d"),
        }
        print(f"{', '.join(key(case))}: {rows[case]['figures']}", flush=True)
        if case[1] in STARTS:
            captures.mkdir(parents=True, exist_ok=True)
            for end, raw in zip(ENDS, ends, strict=True):
                capture_of(case, end, captures).write_bytes(raw)
    return rows


def refusal(result: Row, ends: Sequence[bytes]) -> str:
    """Why a run counts for nothing: it failed, packets are missing in a capture, or the agent did not hold the upload."""
    agent = result.get("agent") or {"applied": True}
    if "failed" in result:
        return str(result["failed"])
    if result.get("missed") or not all(ends):
        return f"packets are missing in the captures: {result.get('missed')}"
    if not agent.get("applied") or agent.get("problems"):
        return f"the agent did not do its part: {agent}"
    return ""


def make(store: Path, runs: int, captures: Path = CAPTURES) -> int:
    """Makes what is missing, a guest after the other; how many runs are still missing."""
    kept = Store(store, NAMES)
    code = commit()
    with tempfile.TemporaryDirectory(prefix="unbloat-netem-") as name:
        base = None
        for number in range(runs):
            todo = [
                case
                for case in cases(runs)
                if case[2] == number and kept.runs(key(case), settings(case)) is None
            ]
            for at in range(0, len(todo), PER_GUEST):
                base = base or prepared(Path(name))
                for case, row in run(todo[at : at + PER_GUEST], base, captures).items():
                    kept.put(key(case), settings(case), [row | {"commit": code}])
    kept.sort()
    return sum(kept.runs(key(case), settings(case)) is None for case in cases(runs))


def main() -> int:
    try:
        return int(make(STORE, int(sys.argv[1]) if len(sys.argv) > 1 else RUNS) > 0)
    except Unavailable as why:
        print(f"nothing was run: {' '.join(str(why).split())}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
