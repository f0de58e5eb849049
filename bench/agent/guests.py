"""Pairs of `never_worse.py` in a guest: Debian's kernel of one family, booted in QEMU, with `guest/never_worse.py` in it.

The kernel of this host may lack VLAN, WireGuard and drivers with byte queue limits; that of the guest has them. QEMU connects two
of its network cards (virtio) to one hub, so the guest is both ends of that link.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.agent.paths import GuestCase

from unbloat.lab.requirements import AGENT, found

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "kernels"))

import archive  # noqa: E402
import image  # noqa: E402
import machine  # noqa: E402

CACHE = ROOT / "target" / "kernels"
# virtio_net has byte queue limits since Linux 6.11.
FAMILY = "6.12"
# Of a pair and of the boot; a busy host is several times slower than an idle one.
LIMIT_S, BOOT_S = 240, 90
SCRIPTS = (ROOT / "bench/agent/guest/never_worse.py", ROOT / "bench/agent/transfers.py")
HUB = tuple(
    word
    for name in ("a", "b")
    for word in (
        "-netdev",
        f"hubport,id={name},hubid=0",
        "-device",
        f"virtio-net-pci,netdev={name},romfile=",
    )
)


def pairs(
    case: GuestCase, numbers: list[int]
) -> Iterator[tuple[int, dict[str, float], dict[str, float]]]:
    """The pairs of these numbers, after the guest has ended: number, without the agent, with it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    agent = Path(found(AGENT) or AGENT)
    kernel = image.kernel(archive.Archive(CACHE).fetch(FAMILY), CACHE)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        whole = image.initramfs(
            folder / "initramfs", agent, image.userland(CACHE), kernel.modules, extra=SCRIPTS
        )
        files = ",".join(
            f"{file.way}:{file.size}:{file.label.replace(' ', '_')}" for file in case.files
        )
        run = machine.boot(
            kernel.image,
            whole,
            kernel.release,
            [str(number) for number in numbers],
            BOOT_S + LIMIT_S * len(numbers),
            folder,
            words=f"script=never_worse link={case.link} files={files}",
            devices=HUB,
        )
    for number in numbers:
        result = run.cases.get(str(number), {})
        if "off" not in result:
            raise RuntimeError(f"{case.label}, pair {number}: {result or run.console}")
        yield number, result["off"], result["on"]
