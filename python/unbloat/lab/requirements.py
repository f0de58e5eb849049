"""What a lab needs of the machine: root, programs, TUN devices."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unbloat.errors import UnbloatError
from unbloat.lab.agent.config import cures
from unbloat.lab.traffic import needed_programs

AGENT = "unbloat-agent"
MODEM = "unbloat-modem"
GIVEN = {
    "unbloat-emu": "UNBLOAT_EMU",
    AGENT: "UNBLOAT_AGENT",
    "unbloat-measure": "UNBLOAT_MEASURE",
    MODEM: "UNBLOAT_MODEM",
}
"""Variables of the environment that name our programs."""

PACKAGES = {
    "ip": "iproute2",
    "tcpdump": "tcpdump",
    "setpriv": "util-linux",
    "nsenter": "util-linux",
    "ping": "iputils-ping",
    "iperf3": "iperf3",
    "nginx": "nginx",
    "chromium": "chromium",
}
"""Programs, and what Debian calls the package that has them."""


def need_root() -> None:
    """Namespaces and TUN devices are made by root alone."""
    if os.geteuid() != 0:
        raise UnbloatError(
            "unbloat lab needs root (network namespaces and TUN devices): run it with sudo"
        )


def need_machine(plans: Iterable[dict[str, Any]]) -> None:
    """Refuses at once what would fail in the middle: no root, no TUN devices, a program that is not there."""
    need_root()
    if not Path("/dev/net/tun").exists():
        raise UnbloatError(
            "unbloat lab needs TUN devices: /dev/net/tun is not there (modprobe tun)"
        )
    wanted: dict[str, None] = {}
    for plan in plans:
        wanted |= dict.fromkeys(programs(plan))
    missing = [program for program in wanted if found(program) is None]
    if missing:
        listed = ", ".join(
            f"{name} ({PACKAGES[name]})" if name in PACKAGES else name for name in missing
        )
        raise UnbloatError(f"unbloat lab needs programs that are not there: {listed}")


def programs(plan: dict[str, Any]) -> list[str]:
    """The programs that a plan needs."""
    capture = ["tcpdump"] if plan["lab"]["capture"] != "none" else []
    agent = [AGENT, "nsenter"] if cures(plan) else []
    return ["unbloat-emu", "ip", "setpriv", *capture, *agent, *needed_programs(plan)]


def found(program: str) -> str | None:
    """Where a program is: beside the interpreter, on the PATH, or where administrators' programs are."""
    given = os.environ.get(GIVEN[program]) if program in GIVEN else None
    if given:
        return shutil.which(given)
    beside = Path(sys.executable).parent / program
    if beside.is_file() and os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin:/usr/local/sbin")
