"""Pairs of `never_worse.py` in a guest: Debian's kernel of one family, booted in QEMU, with `guest/never_worse.py` in it.

The kernel of this host may lack VLAN, WireGuard and drivers with byte queue limits; that of the guest has them. QEMU connects two
of its network cards (virtio) to one hub, so the guest is both ends of that link.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.agent.paths import GuestCase

from unbloat.lab.requirements import AGENT, found

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "kernels"))

import prepare  # noqa: E402

# virtio_net has byte queue limits since Linux 6.11.
FAMILY = "6.12"
# Of a pair; a busy host is several times slower than an idle one.
LIMIT_S = 240
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
    guest = prepare.guest(FAMILY, Path(found(AGENT) or AGENT), SCRIPTS)
    files = ",".join(
        f"{file.way}:{file.size}:{file.label.replace(' ', '_')}" for file in case.files
    )
    run = guest.run(
        [str(number) for number in numbers],
        words=f"script=never_worse link={case.link} files={files}",
        devices=HUB,
        limit_s=LIMIT_S,
    )
    for number in numbers:
        result = run.cases.get(str(number), {})
        if "off" not in result:
            raise RuntimeError(f"{case.label}, pair {number}: {result or run.console}")
        yield number, result["off"], result["on"]
