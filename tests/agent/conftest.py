"""What tests of the agent share."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.fixture
def receiving() -> None:
    """Root, BPF, the agent, the emulator and the judges; else the test is left out, with the reason."""
    from receive_bed import cgroups, program

    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and BPF")
    ours = {"unbloat-emu": "UNBLOAT_EMU", "unbloat-agent": "UNBLOAT_AGENT"}
    missing = [name for name, variable in ours.items() if program(name, variable) is None]
    others = ("ip", "ss", "ping", "iperf3", "tcpdump", "tshark")
    missing += [name for name in others if shutil.which(name) is None]
    missing += [
        path for path in ("/dev/net/tun", "/sys/kernel/btf/vmlinux", "/sys/fs/bpf") if not Path(path).exists()
    ]
    if missing:
        pytest.skip(f"the agent cannot be tried here: no {', '.join(missing)}")
    try:
        cgroups()
    except FileNotFoundError as error:
        pytest.skip(str(error))
