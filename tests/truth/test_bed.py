"""The bed leaves nothing behind, and the samples in the repository are what their page says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import bed
import make
import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def namespaces_of(pid: int) -> list[str]:
    """Namespaces that a run of this process made."""
    return [line for line in bed.sh("ip", "netns").splitlines() if line.startswith(f"ub-{pid}-")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_no_namespace_and_no_program(
    number: signal.Signals, tmp_path: Path
) -> None:
    if reason := bed.missing_tools():
        pytest.skip(f"no bed here: {reason}")
    command = [sys.executable, str(SAMPLES / "make" / "make.py"), "lossy", "--keep", str(tmp_path)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    patience = time.monotonic() + 20
    while not (tmp_path / "lossy" / "relay.log").exists() and time.monotonic() < patience:
        time.sleep(0.1)
    time.sleep(1.5)
    assert namespaces_of(process.pid) != []
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    assert namespaces_of(process.pid) == []
    # the session is the run's own: whoever is still in it was left behind
    left = subprocess.run(
        ["ps", "-s", str(process.pid), "-o", "args="], check=False, capture_output=True, text=True
    )
    assert left.stdout == ""


def test_the_next_run_sweeps_up_after_one_that_was_killed() -> None:
    if reason := bed.missing_tools():
        pytest.skip(f"no bed here: {reason}")
    gone = subprocess.Popen(["true"])
    gone.wait()
    name = f"ub-{gone.pid}-0000-phone"
    bed.sh("ip", "netns", "add", name)
    bed.sweep()
    assert namespaces_of(gone.pid) == []


def test_every_sample_is_in_the_table_and_on_the_page() -> None:
    page = (SAMPLES / "README.md").read_text()
    files = {path.name for path in SAMPLES.glob("*.zst")}
    assert files == {f"{sample.scenario.name}.pcapng.zst" for sample in make.TABLE}
    assert all(f"`{name}`" in page for name in files)


def test_the_samples_together_stay_below_three_megabytes() -> None:
    assert sum(path.stat().st_size for path in SAMPLES.glob("*.zst")) < 3_000_000


@pytest.mark.parametrize("tool", ["ip", "ss", "tcpdump", "gcc"])
def test_a_machine_without_the_tools_is_told_which(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("without root that is the reason")
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == tool else which(name))
    assert bed.missing_tools() == f"{tool} is not installed"


def test_without_root_the_reason_is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert bed.missing_tools() == "namespaces and TUN devices need root"


def test_root_without_the_right_to_namespaces_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := bed.missing_tools():
        pytest.skip(f"no bed here: {reason}")

    def refuse(*argv: str, check: bool = True) -> str:
        raise bed.BedError(f"{' '.join(argv)}: Operation not permitted")

    monkeypatch.setattr(bed, "sh", refuse)
    reason = bed.missing_tools()
    assert reason is not None
    assert reason.startswith("no namespace can be made")


def test_help_makes_no_directory(tmp_path: Path) -> None:
    script = Path(__file__).with_name("generate.py")
    done = subprocess.run(
        [sys.executable, str(script), "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
    assert done.stdout.startswith("usage: generate.py")
