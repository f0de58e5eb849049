"""The unit and the udev rule of `unbloat-modem serve`: systemd reads the unit, what it leaves is enough, and the agent gets reports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from agent_program import ROOT
from modem import steady
from requirements import require
from test_modem_port import played_program as played_program
from unit_file import with_only

from unbloat.lab.requirements import MODEM, found
from unbloat.lab.testbed import end, run

FOLDER = ROOT / "packaging/systemd"
UNIT, RULES = FOLDER / "unbloat-modem.service", FOLDER / "77-unbloat-modem.rules"
USER, OTHER, DIALOUT = 61_234, 61_235, 61_236

READER = """
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as reader:
    reader.settimeout(30)
    reader.connect(sys.argv[1])
    try:
        print(reader.recv(64)[:4].decode())
    except ConnectionError:
        print("refused")
"""


def values(key: str) -> list[str]:
    """Every value of a key of the unit."""
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


def test_systemd_reads_the_unit_and_it_exposes_little(tmp_path: Path) -> None:
    require("systemd-analyze", MODEM)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/unbloat-modem", found(MODEM) or ""))
    argv = ("systemd-analyze", "verify", "--man=no", str(unit))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    about = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, about) == (0, [])
    # 1.3 of 10: what is left is a serial port and /proc. 9.6 is a unit that says nothing.
    words = ("security", "--offline=yes", "--no-pager", "--threshold=14", str(unit))
    done = subprocess.run(("systemd-analyze", *words), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-300:]


def test_what_the_unit_runs_is_what_the_program_understands() -> None:
    require(MODEM)
    (line,) = values("ExecStart")
    name, command, *words = line.split()
    assert Path(name).name == MODEM
    usage = run(found(MODEM) or "", command, "--help")
    options = [word for word in words if word.startswith("--")]
    assert options
    assert all(option in usage for option in options)
    # Where the agent looks, in the directory that systemd makes.
    socket = words[words.index("--socket") + 1]
    assert f'| `telemetry` | `"{socket}"` |' in (ROOT / "docs/generated/cures.md").read_text()
    assert [f"/run/{name}" for name in values("RuntimeDirectory")] == [str(Path(socket).parent)]


def test_the_rule_marks_one_interface_before_modemmanager_looks_and_names_the_units_port() -> None:
    (line,) = (line for line in RULES.read_text().splitlines() if not line.startswith("#"))
    pairs = re.findall(r'([A-Z]+(?:\{\w+\})?)(==|!=|\+=|=)"([^"]*)"(?:, |$)', line)
    assert ", ".join(f'{key}{sign}"{value}"' for key, sign, value in pairs) == line
    assert ("ENV{ID_USB_INTERFACE_NUM}", "==", "00") in pairs, "and no other interface"
    assert ("ENV{ID_MM_PORT_IGNORE}", "=", "1") in pairs
    assert int(RULES.name.partition("-")[0]) < 80, "ModemManager's own begin there"
    (port,) = (value for key, _, value in pairs if key == "SYMLINK")
    assert f"--diag /dev/{port} " in values("ExecStart")[0]
    (group,) = (value for key, _, value in pairs if key == "GROUP")
    assert values("SupplementaryGroups") == [group]
    # systemd's name of the device.
    assert values("BindsTo") == [f"dev-{port}.device".replace("modem-", "modem\\x2d")]


@pytest.mark.usefixtures("machine")
def test_a_user_of_the_ports_group_without_rights_serves_root_and_no_other_user(
    tmp_path: Path, played_program: str
) -> None:
    require("setpriv")
    # What another user runs has to be a program that it can read.
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    here = tmp_path / "run"
    here.mkdir()
    here.chmod(int(values("RuntimeDirectoryMode")[0], 8))
    subprocess.run(["chown", f"{USER}:{USER}", str(here)], check=True)
    reports = here / "modem.sock"
    programs = []
    with steady(tmp_path / "telemetry.sock", 3_000, 1_000) as modem:
        try:
            argv = [played_program, str(modem.path), "40", "blocks"]
            playing = subprocess.Popen(
                argv, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            programs.append(playing)
            assert playing.stdout is not None
            tty = playing.stdout.readline().strip()
            subprocess.run(["chgrp", str(DIALOUT), tty], check=True)
            Path(tty).chmod(0o660)
            alone = [f"--reuid={USER}", f"--regid={USER}", f"--groups={DIALOUT}"]
            words = ["serve", "--diag", tty, "--socket", str(reports)]
            mask = ["sh", "-c", f'umask {values("UMask")[0]} && exec "$@"', "sh"]
            argv = [*mask, *with_only(), *alone, found(MODEM) or MODEM, *words]
            serving = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            programs.append(serving)
            assert serving.stdout is not None
            assert "reports at" in serving.stdout.readline()
            status = Path(f"/proc/{serving.pid}/status").read_text()
            assert "CapEff:\t0000000000000000" in status
            ask = [sys.executable, "-c", READER, str(reports)]
            # The agent, by its unit, has no right to override permissions.
            assert run(*with_only(), *ask) == "UBTB\n"
            other = [f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
            assert run(*with_only(), *other, *ask) in ("\n", "refused\n")
        finally:
            for program in reversed(programs):
                end(program)
