"""The testbed leaves nothing behind, and the samples in the repository are what their page says."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import make
import pytest
import relay_testbed
from requirements import require, unavailable

from unbloat.lab.cleanup import janitor
from unbloat.lab.testbed import until

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def namespaces_of(pid: int) -> list[str]:
    """Namespaces of the testbeds that this process made."""
    states = [janitor.read(path) for path in janitor.STATES.glob("*.json")]
    names = [name for one in states if one and one["owner"][0] == pid for name in one["namespaces"]]
    return [name for name in names if (janitor.NAMESPACES / name).exists()]


def under_way(folder: Path) -> subprocess.Popen[bytes]:
    """A run that makes a sample, once packets pass."""
    command = [sys.executable, str(SAMPLES / "make" / "make.py"), "lossy", "--keep", str(folder)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    log = folder / "lossy" / "relay.log"
    until(lambda: log.exists() and log.stat().st_size > 0, 20)
    assert namespaces_of(process.pid) != []
    return process


def need_testbed() -> None:
    """Leaves a test out where no namespaces can be made."""
    if reason := relay_testbed.missing_tools():
        unavailable("root", reason)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_no_namespace_and_no_program(
    number: signal.Signals, tmp_path: Path
) -> None:
    need_testbed()
    process = under_way(tmp_path)
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    assert namespaces_of(process.pid) == []
    # the session is the run's own: a program that is still in it was left behind
    left = subprocess.run(
        ["ps", "-s", str(process.pid), "-o", "args="], check=False, capture_output=True, text=True
    )
    assert left.stdout == ""


def test_a_run_that_was_killed_is_cleaned_by_its_janitor(tmp_path: Path) -> None:
    need_testbed()
    process = under_way(tmp_path)
    names = namespaces_of(process.pid)
    process.kill()
    process.wait()
    until(lambda: not any((janitor.NAMESPACES / name).exists() for name in names), 20)


def test_every_sample_is_in_the_table_and_on_the_page() -> None:
    page = (SAMPLES / "README.md").read_text()
    files = {path.name for path in SAMPLES.glob("*.zst")}
    assert files == {f"{sample.scenario.name}.pcapng.zst" for sample in make.TABLE}
    assert all(f"`{name}`" in page for name in files)


def test_the_samples_together_stay_below_three_megabytes() -> None:
    assert sum(path.stat().st_size for path in SAMPLES.glob("*.zst")) < 3_000_000


@pytest.mark.parametrize("tool", ["ip", "ss", "tcpdump", "gcc"])
def test_the_reason_names_the_tool_that_is_missing(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("root")
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == tool else which(name))
    assert relay_testbed.missing_tools() == f"{tool} is not installed"


def test_without_root_the_reason_is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert relay_testbed.missing_tools() == "namespaces and TUN devices need root"


def test_without_the_right_to_namespaces_the_reason_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_testbed()

    def refuse(*argv: str, check: bool = True) -> str:
        raise AssertionError(f"{' '.join(argv)}: Operation not permitted")

    monkeypatch.setattr(relay_testbed, "run", refuse)
    reason = relay_testbed.missing_tools()
    assert reason is not None
    assert reason.startswith("no namespace can be made")


def test_help_makes_no_directory(tmp_path: Path) -> None:
    script = Path(__file__).with_name("generate.py")
    done = subprocess.run(
        [sys.executable, str(script), "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
    assert done.stdout.startswith("usage: generate.py")


def ipv6(next_header: int, payload: bytes) -> bytes:
    """A packet from fd00::1 to fd00::2."""
    addresses = bytes.fromhex("fd00" + 13 * "00" + "01" + "fd00" + 13 * "00" + "02")
    return struct.pack(">IHBB", 6 << 28, len(payload), next_header, 64) + addresses + payload


def test_captures_leave_out_what_the_kernel_says_of_itself_and_no_port_of_tcp(
    tmp_path: Path,
) -> None:
    """A TCP port begins where the type of ICMPv6 is: 34048 begins with 133, 36608 with 143."""
    require("tcpdump")
    ports = [first * 256 + 7 for first in range(256)]
    wanted = [
        ipv6(6, struct.pack(">HHIIHHHH", port, 5201, 1, 1, 5 << 12, 9, 0, 0)) for port in ports
    ]
    hop_by_hop = bytes([58, 0, 5, 2, 0, 0, 1, 0])
    kernels = [ipv6(58, bytes([kind, 0, 0, 0])) for kind in (133, 143)]
    kernels.append(ipv6(0, hop_by_hop + bytes([143, 0, 0, 0])))
    raw = 101
    records = [
        struct.pack("<IIII", n, 0, len(one), len(one)) + one
        for n, one in enumerate(wanted + kernels)
    ]
    capture = tmp_path / "all.pcap"
    capture.write_bytes(
        struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, raw) + b"".join(records)
    )
    kept = tmp_path / "kept.pcap"
    subprocess.run(
        ["tcpdump", "-r", str(capture), "-w", str(kept), relay_testbed.WANTED],
        check=True,
        capture_output=True,
    )
    assert kept.stat().st_size == 24 + sum(len(one) for one in records[: len(wanted)])
