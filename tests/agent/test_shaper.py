"""The shaper: a rate that sticks when its master dies, and who takes it away."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from acks_bed import bed_ask, program
from receive_bed import until
from uplink_bed import Bed, scenario, undone


@pytest.fixture(scope="module")
def emulator() -> str:
    """The emulator; without it or what else is needed the test is left out."""
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces")
    found = shutil.which(os.environ.get("UNBLOAT_EMU", "unbloat-emu"))
    if (
        not found
        or not program("shaper")
        or not shutil.which("tc")
        or not Path("/dev/net/tun").exists()
    ):
        pytest.skip("needs unbloat-emu, cargo build --example shaper, tc and /dev/net/tun")
    return found


def shaped(bed: Bed) -> bool:
    """Whether the phone's uplink has a rate of ours."""
    return "htb" in bed_ask(bed, "phone", "tc", "qdisc", "show", "dev", bed.device)


def begun(bed: Bed) -> tuple[subprocess.Popen[str], str]:
    """The shaper beside an upload that it holds; and what the device had before."""
    clean = bed_ask(bed, "phone", "tc", "qdisc", "show", "dev", bed.device)
    socket, journal = bed.out / "telemetry.sock", bed.folder / "journal.jsonl"
    argv = (program("shaper") or "", bed.device, str(socket), str(journal))
    process = bed.start("phone", *argv, stdin=subprocess.PIPE)
    bed.iperf("phone", 40, "-C", "cubic")
    until(lambda: process.poll() is not None or shaped(bed), 20)
    if process.poll() is not None and process.stderr is not None:
        why = process.stderr.read()
        assert "htb" in why.lower(), why
        pytest.skip(f"this kernel has no HTB: {why.strip()}")
    return process, clean


def test_a_rate_outlives_its_master_until_the_journal_is_undone(
    tmp_path: Path, emulator: str
) -> None:
    with Bed(tmp_path, scenario(), emulator) as bed:
        process, clean = begun(bed)
        process.kill()
        process.wait()
        time.sleep(2)
        assert shaped(bed), "a rate that nobody renews stays: that is the trap"
        undone(bed, "phone", tmp_path / "journal.jsonl")
        assert bed_ask(bed, "phone", "tc", "qdisc", "show", "dev", bed.device) == clean


def test_a_shaper_that_ends_puts_the_device_back(tmp_path: Path, emulator: str) -> None:
    with Bed(tmp_path, scenario(), emulator) as bed:
        process, clean = begun(bed)
        process.communicate("", timeout=30)
        assert process.returncode == 0
        assert bed_ask(bed, "phone", "tc", "qdisc", "show", "dev", bed.device) == clean
