"""What goes wrong in a lab is said in one clear line, and nothing stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import SHORT, Lab, inside

import unbloat
from unbloat.lab import emulator, run
from unbloat.lab.cleanup import janitor

HERE = Path(__file__).resolve().parent
LONG = SHORT.replace('"2 s"', '"60 s"')


def labs() -> set[str]:
    """Everything of any lab of this process."""
    states = janitor.STATES.glob("*.json") if janitor.STATES.is_dir() else ()
    own = {
        path.name
        for path in states
        if (janitor.read(path) or {}).get("owner", [0])[0] == os.getpid()
    }
    return own


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: None) -> pytest.MonkeyPatch:
    """The emulator is `fake_emulator.py`; its mode is in the variable FAKE."""
    program = tmp_path / "unbloat-emu"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_emulator.py"} "$FAKE" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("UNBLOAT_EMU", str(program))
    monkeypatch.setattr(emulator, "DEVICES_S", 2.0)
    monkeypatch.setattr(emulator, "STARTED_S", 2.0)
    monkeypatch.setattr(run, "END_S", 1.0)
    return monkeypatch


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("dies", 'unbloat-emu ended before event "devices": fake: and I do not like it'),
        ("silent", 'unbloat-emu said nothing for 2 s, waiting for event "devices"'),
        ("nonsense", "unbloat-emu said what is no event: 'hello'"),
        ("other", 'unbloat-emu: expected event "devices", got "counters"'),
        ("half", "unbloat-emu named devices without 'links'"),
        ("stops", "unbloat-emu ended with exit code 1 after"),
        ("stops", "fake: cannot write queues.jsonl"),
        ("killed", "unbloat-emu was killed by SIGKILL after"),
        ("hangs", "unbloat-emu does not end: 2 s are over since 1 s"),
    ],
)
def test_an_emulator_that_goes_wrong_is_reported(
    fake: pytest.MonkeyPatch, mode: str, words: str
) -> None:
    fake.setenv("FAKE", mode)
    with pytest.raises(unbloat.LabError) as raised:
        unbloat.lab(SHORT)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert labs() == set()


@pytest.mark.usefixtures("machine")
class TestInMidRun:
    def test_a_killed_emulator_ends_the_run(self, tmp_path: Path) -> None:
        lab = Lab(tmp_path, text=LONG).under_way()
        os.kill(lab.state["processes"][0][0], signal.SIGKILL)
        code, out, errors = lab.end()
        assert (code, out) == (1, "")
        assert errors.startswith("unbloat: ")
        assert "unbloat-emu was killed by SIGKILL" in errors
        assert errors.count("\n") == 1
        assert lab.left() == []

    def test_a_killed_traffic_program_ends_the_run(self, tmp_path: Path) -> None:
        lab = Lab(tmp_path, text=LONG).under_way()
        ours = [
            pid
            for pid, _ in lab.state["processes"]
            if b"streams" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(ours[0], signal.SIGKILL)
        code, _, errors = lab.end()
        assert code == 1
        assert "streams-" in errors
        assert "was killed by SIGKILL" in errors
        assert lab.left() == []

    def test_a_killed_capture_ends_the_run(self, tmp_path: Path) -> None:
        lab = Lab(tmp_path, text=LONG).under_way()
        ours = [
            pid
            for pid, _ in lab.state["processes"]
            if b"tcpdump" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(ours[0], signal.SIGTERM)
        code, _, errors = lab.end()
        assert code == 1
        assert "tcpdump-client ended with exit code 0 after" in errors
        assert lab.left() == []

    def test_a_removed_device_ends_the_run_and_that_is_the_reason(self, tmp_path: Path) -> None:
        lab = Lab(tmp_path, text=LONG).under_way()
        inside(lab.state["namespaces"][0], "ip", "link", "del", "dev", "up")
        code, _, errors = lab.end()
        assert code == 1
        assert "0 packets dropped" not in errors
        assert errors.count("\n") == 1
        assert lab.left() == []

    def test_a_removed_namespace_ends_the_run(self, tmp_path: Path) -> None:
        lab = Lab(tmp_path, text=LONG).under_way()
        name = lab.state["namespaces"][1]
        subprocess.run(["ip", "netns", "del", name], check=True)
        code, _, errors = lab.end()
        assert code == 1
        assert name in errors
        assert "vanished" in errors or "is gone" in errors
        assert lab.left() == []

    def test_a_full_disk_ends_the_run(self, tmp_path: Path) -> None:
        small = tmp_path / "small"
        small.mkdir()
        # The little disk is mounted where only the lab sees it.
        mount = f'mount -t tmpfs -o size=3m none {small} && exec "$@"'
        fast = LONG.replace("10 Mbit/s", "100 Mbit/s")
        lab = Lab(
            tmp_path,
            text=fast,
            before=("unshare", "--mount", "sh", "-c", mount, "sh"),
            TMPDIR=str(small),
        )
        code, _, errors = lab.end()
        assert code == 1
        assert f"the disk under {small}" in errors
        assert "is full" in errors
        assert errors.count("\n") == 1
        assert not [
            path
            for path in janitor.NAMESPACES.iterdir()
            if not path.is_symlink() and path.stat().st_size > 0
        ]


def test_a_malformed_trace_is_refused_before_anything_starts(tmp_path: Path, machine: None) -> None:
    (tmp_path / "broken.up").write_text("1\n2\nthree\n")
    text = SHORT.replace('rate = "10 Mbit/s"', 'trace = "broken.up"', 1)
    lab = Lab(tmp_path, text=text)
    code, out, errors = lab.end()
    assert (code, out) == (2, "")
    assert "broken.up" in errors
    assert "line 3" in errors
    assert errors.count("\n") == 1


def test_without_a_trace_there_is_no_run(tmp_path: Path, machine: None) -> None:
    text = SHORT.replace('rate = "10 Mbit/s"', 'trace = "absent.up"', 1)
    code, _, errors = Lab(tmp_path, text=text).end()
    assert code == 2
    assert "absent.up" in errors


def test_without_root_one_line_says_what_is_missing(tmp_path: Path) -> None:
    # A user without rights that can still read the interpreter's folder.
    unprivileged = () if os.geteuid() != 0 else ("unshare", "--user")
    code, out, errors = Lab(tmp_path, before=unprivileged).end()
    assert (code, out) == (2, "")
    wanted = "unbloat lab needs root (network namespaces and TUN devices): run it with sudo"
    assert errors == f"unbloat: {wanted}\n"


def test_missing_programs_are_named_at_once(tmp_path: Path, machine: None) -> None:
    code, _, errors = Lab(tmp_path, UNBLOAT_EMU=str(tmp_path / "nowhere")).end()
    assert code == 2
    assert errors == "unbloat: unbloat lab needs programs that are not there: unbloat-emu\n"


def test_what_a_stock_kernel_cannot_do_is_skipped_with_the_reason(machine: None) -> None:
    text = SHORT + '[sweep]\n"flow.0.receiver.window" = ["rledbat", "autotune"]\n'
    runs = unbloat.lab(text)
    assert isinstance(runs, unbloat.RunSet)
    assert len(runs) == 1
    assert [one.labels for one in runs.skipped] == [(("window", "rledbat"),)]
    assert "window rledbat is no law of a stock kernel" in runs.skipped[0].reason


def test_a_scenario_of_which_nothing_can_be_run_is_refused(tmp_path: Path, machine: None) -> None:
    code, _, errors = Lab(
        tmp_path, "--set", "flow.0.congestion=vegas", "--set", "flow.0.receiver.window=afc"
    ).end()
    assert code == 2
    assert "congestion vegas is not in this kernel" in errors
    assert "window afc" in errors


def test_a_scenario_called_clean_is_not_mistaken(tmp_path: Path, machine: None) -> None:
    (tmp_path / "clean").write_text(SHORT + "[[expect]]\nnonsense = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "unbloat", "lab", "./clean"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_expectations_are_held_against_the_lab_as_against_the_simulator(
    tmp_path: Path, machine: None
) -> None:
    text = (
        SHORT
        + '[[expect]]\nprobe = "probe0"\nprobe_rtt_ms = { min = { min = 10 } }\n[[expect]]\nprobe = "probe0"\nprobe_rtt_ms = { max = { max = 1 } }\n'
    )
    code, out, _ = Lab(tmp_path, text=text).end()
    assert code == 1
    assert re.search(r"^fail  +probe0:", out, re.M)
