"""However a lab ends, nothing of it stays behind; and labs that run are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import SHORT, Lab, unbloat

from unbloat.lab.cleanup import janitor

pytestmark = pytest.mark.usefixtures("machine")

LONG = SHORT.replace('"2 s"', '"60 s"')


def test_two_labs_run_at_once_and_leave_nothing(tmp_path: Path) -> None:
    one = Lab(tmp_path).under_way()
    other = Lab(tmp_path).under_way()
    assert one.id != other.id
    for lab in (one, other):
        code, out, errors = lab.end()
        assert (code, errors) == (0, ""), errors
        assert "flow0" in out
        assert lab.left() == []


def test_raw_files_stay_where_they_are_asked_for(tmp_path: Path) -> None:
    lab = Lab(
        tmp_path, "--keep", str(tmp_path / "raw"), "--pcap", str(tmp_path / "captures")
    ).under_way()
    code, out, errors = lab.end()
    assert code == 0, errors
    assert lab.left() == []
    assert {"plan.json", "lab.json", "scenario.toml", "emu", "flows", "probes", "captures"} <= {
        path.name for path in (tmp_path / "raw").iterdir()
    }
    assert sorted(path.name for path in (tmp_path / "captures").iterdir()) == [
        "client.pcap",
        "server.pcap",
    ]
    assert str(tmp_path / "captures" / "client.pcap") in out
    again = unbloat("lab", str(lab.file), "--keep", str(tmp_path / "raw"))
    assert again.returncode == 2
    assert "another run already" in again.stderr


@pytest.mark.parametrize("way", ["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_asked_to_end_it_cleans_up_and_says_so_by_its_exit_code(tmp_path: Path, way: str) -> None:
    lab = Lab(tmp_path, text=LONG).under_way()
    if way == "Ctrl-C":
        lab.interrupt()
    else:
        lab.process.send_signal(signal.Signals[way])
    code, out, errors = lab.end()
    assert code == {"Ctrl-C": 130, "SIGTERM": 143, "SIGHUP": 129}[way]
    assert (out, errors) == ("", "")
    assert lab.left() == []


def test_killed_it_is_cleaned_by_its_janitor(tmp_path: Path) -> None:
    lab = Lab(tmp_path, text=LONG).under_way()
    lab.process.kill()
    assert lab.gone(), lab.left()


def test_killed_while_programs_start_it_is_cleaned_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, text=LONG)
    lab.under_way(processes=1)
    lab.process.kill()
    assert lab.gone(), lab.left()


def test_without_its_janitor_it_cleans_up_itself(tmp_path: Path) -> None:
    lab = Lab(tmp_path).under_way()
    os.kill(lab.state["janitor"][0], signal.SIGKILL)
    code, _, errors = lab.end()
    assert (code, errors) == (0, "")
    assert lab.left() == []


def test_clean_removes_what_the_dead_left_and_leaves_the_living_alone(tmp_path: Path) -> None:
    living = Lab(tmp_path, text=LONG).under_way()
    dead = Lab(tmp_path, text=LONG).under_way()
    os.kill(dead.state["janitor"][0], signal.SIGKILL)
    dead.process.kill()
    dead.process.wait()
    assert dead.left(), "no process was left to clean"
    cleaned = unbloat("lab", "clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert f"removed what lab {dead.id} left behind" in cleaned.stdout
    assert living.id in cleaned.stdout.split("left alone", 1)[1]
    assert dead.left() == []
    assert living.process.poll() is None
    assert all((janitor.NAMESPACES / name).exists() for name in living.state["namespaces"])
    living.interrupt()
    living.end()
    assert living.left() == []


def test_clean_finds_namespaces_whose_state_file_is_lost(tmp_path: Path) -> None:
    name = "ub-0123abcd-client"
    subprocess.run(["ip", "netns", "add", name], check=True)
    cleaned = unbloat("lab", "clean")
    assert "0123abcd" in cleaned.stdout
    assert not (janitor.NAMESPACES / name).exists()


def test_clean_never_touches_namespaces_of_others(tmp_path: Path) -> None:
    name = "ub-other-0123abcd"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        unbloat("lab", "clean")
        assert (janitor.NAMESPACES / name).exists()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def test_a_number_that_passed_to_another_process_is_not_the_one_that_was_meant() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        start = janitor.started(child.pid)
        assert start is not None
        assert janitor.lives([child.pid, start])
        state = {
            "id": "00000000",
            "owner": [1, 0],
            "janitor": None,
            "namespaces": [],
            "processes": [[child.pid, start + 1]],
            "folder": None,
        }
        assert janitor.members(state) == set()
        assert janitor.clean(state) == []
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
