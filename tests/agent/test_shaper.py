"""The shaper: a rate that sticks when its master dies, and who takes it away."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from requirements import unavailable
from uplink import Uplink, scenario

from unbloat.lab.testbed import until


def shaped(testbed: Uplink) -> bool:
    """Whether the phone's uplink has a rate of ours."""
    return "htb" in testbed.ask("phone", "tc", "qdisc", "show", "dev", testbed.device)


def begun(testbed: Uplink, program: str) -> tuple[subprocess.Popen[str], str]:
    """The shaper beside an upload that it holds; and what the device had before."""
    clean = testbed.ask("phone", "tc", "qdisc", "show", "dev", testbed.device)
    socket, journal = testbed.out / "telemetry.sock", testbed.folder / "journal.jsonl"
    argv = (program, testbed.device, str(socket), str(journal))
    process = testbed.start("phone", *argv, stdin=subprocess.PIPE)
    testbed.iperf("phone", 40, "-C", "cubic")
    until(lambda: process.poll() is not None or shaped(testbed), 20)
    if process.poll() is not None and process.stderr is not None:
        why = process.stderr.read()
        assert "htb" in why.lower(), why
        unavailable("htb", f"this kernel has no HTB: {why.strip()}")
    return process, clean


def test_a_rate_outlives_its_master_until_the_journal_is_undone(
    tmp_path: Path, shaper_program: str
) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        process, clean = begun(testbed, shaper_program)
        process.kill()
        process.wait()
        time.sleep(2)
        assert shaped(testbed), "a rate that no process renews stays: that is the trap"
        testbed.undone("phone", tmp_path / "journal.jsonl")
        assert testbed.ask("phone", "tc", "qdisc", "show", "dev", testbed.device) == clean


def test_a_shaper_that_ends_puts_the_device_back(tmp_path: Path, shaper_program: str) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        process, clean = begun(testbed, shaper_program)
        process.communicate("", timeout=30)
        assert process.returncode == 0
        assert testbed.ask("phone", "tc", "qdisc", "show", "dev", testbed.device) == clean
