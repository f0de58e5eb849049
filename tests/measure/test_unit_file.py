"""The systemd unit: systemd reads it, and a server needs no more than it leaves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from path import ADDRESSES, ROOT, TOKEN, Link, MeasuredPath, printed_pin
from requirements import requires

from unbloat.lab.requirements import found

UNIT = ROOT / "packaging" / "systemd" / "unbloat-measure.service"


@requires("systemd-analyze", "unbloat-measure")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    # The program lies elsewhere here, and a program that is not there is an error of the unit.
    text = UNIT.read_text().replace("/usr/bin/unbloat-measure", found("unbloat-measure") or "")
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    argv = ("systemd-analyze", "verify", "--man=no", str(unit))
    said = subprocess.run(argv, capture_output=True, text=True)
    about = [line for line in (said.stdout + said.stderr).splitlines() if UNIT.name in line]
    assert (said.returncode, about) == (0, [])
    unit.write_text(text.replace("DynamicUser=yes", "DynamicUsers=yes"))
    wrong = subprocess.run(argv, capture_output=True, text=True)
    assert "DynamicUsers" in wrong.stdout + wrong.stderr


@requires("setpriv", "prlimit", "openssl")
@pytest.mark.usefixtures("machine")
def test_a_server_without_rights_and_with_little_memory_serves(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, Link(20, 100), Link(20, 100)) as made:
        token = tmp_path / "token"
        token.write_text(TOKEN)
        # What another user may read is the copy that LoadCredential makes.
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(0o755)
        token.chmod(0o644)
        user = ("setpriv", "--reuid=61234", "--regid=61234", "--clear-groups")
        none = ("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")
        limits = ("prlimit", f"--data={256 << 20}", "--nofile=128")
        # As in the unit's head: a key that stays the same when the server is started again.
        certificate, key = (str(tmp_path / name) for name in ("certificate", "key"))
        wanted = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj")
        files = ("-keyout", key, "-out", certificate)
        made.ask("server", "openssl", "req", "-x509", *wanted, "/CN=unbloat-measure", *files)
        Path(key).chmod(0o644)
        words = ("serve", "--token-file", str(token), "--tls", f"{certificate},{key}")
        server = made.start("server", *limits, *user, *none, made.program, *words)
        made.pin = printed_pin(server)
        code, result = made.measure("--phases", "both", "--quick", "--cc", "reno")
        status = Path(f"/proc/{server.pid}/status").read_text()
    assert code in (0, 5)
    assert result["complete"]
    assert result["phases"][0]["goodput_down_bps"] > 5e6
    assert "CapEff:\t0000000000000000" in status
    assert ADDRESSES["server"] == result["host"]
