"""Guests that hang: a program in QEMU's place, so that each end is certain."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import machine
import pytest

# Writes to its two serial ports like a guest, then waits so many seconds.
QEMU = """#!{python}
import json, pathlib, sys, time
ports = [word.removeprefix("file:") for word in sys.argv if word.startswith("file:")]
pathlib.Path(ports[0]).write_text("the last words of the console")
pathlib.Path(ports[1]).write_text({results!r})
time.sleep({seconds})
"""
ENDLESS_S = 1000


def boot(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    results: str,
    seconds: float = 0,
    until: float = math.inf,
) -> machine.Run:
    """Runs the program with limits of two seconds."""
    program = folder / "qemu-system-x86_64"
    program.write_text(QEMU.format(python=sys.executable, results=results, seconds=seconds))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    begun = time.monotonic()
    run = machine.boot(
        *(folder / "kernel", folder / "initramfs", "6.12.1", ["a"], 2, folder),
        boot_limit_s=2,
        until=until,
    )
    assert time.monotonic() - begun < ENDLESS_S / 2
    return run


BOOTED = '{"booted": {}}\n'
RESULT = '{"a": {"mbps": 1}}\n'


def test_a_guest_that_hangs_at_boot_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = boot(tmp_path, monkeypatch, "", ENDLESS_S)
    assert not run.booted
    assert run.why_missing() == "did not boot in 2 s"
    assert run.console == "the last words of the console"


def test_a_guest_that_ends_at_boot_did_not_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "did not boot" in boot(tmp_path, monkeypatch, "").why_missing()


def test_a_guest_that_hangs_later_keeps_finished_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = boot(tmp_path, monkeypatch, BOOTED + RESULT, ENDLESS_S)
    assert run.booted
    assert run.why_missing() == "the time limit was reached"
    assert run.cases == {"a": {"mbps": 1}}


def test_a_guest_that_ends_early_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = boot(tmp_path, monkeypatch, BOOTED)
    assert run.booted
    assert not run.timed_out
    assert run.why_missing() == "the guest ended"
    assert run.cases == {}


def test_a_guest_is_ended_when_all_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = boot(tmp_path, monkeypatch, BOOTED, ENDLESS_S, until=time.monotonic())
    assert run.timed_out
