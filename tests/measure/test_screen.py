"""`unbloat measure` as a new user types it: the line that the server prints, then one screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from path import ADDRESSES, Link, MeasuredPath

from unbloat.lab.requirements import found
from unbloat.lab.testbed import TIMEOUT_S

pytestmark = pytest.mark.usefixtures("machine")


def test_two_commands_name_grade_direction_and_cure(tmp_path: Path) -> None:
    unbloat = found("unbloat") or ""
    with MeasuredPath(tmp_path, Link(5, 150), Link(40, 400)) as made:
        listen = f"{ADDRESSES['server']}:26110"
        server = made.start("server", unbloat, "measure", "serve", "--listen", listen)
        assert server.stdout is not None
        line = server.stdout.readline().split()
        assert line[:3] == ["unbloat", "measure", ADDRESSES["server"]]
        client = made.start("client", unbloat, *line[1:], "--quick")
        out, errors = client.communicate(timeout=TIMEOUT_S)
    assert not errors
    head, download, upload, both = out.splitlines()[:4]
    assert head.split()[0] == "grade"
    # A lost segment that comes again releases what it held back: a little more than the rate of the link, or less.
    assert re.match(r"download .* ↓ [34]\d\.\d Mbit/s$", download), out
    assert re.match(r"upload .* ↑ [45]\.\d\d Mbit/s$", upload), out
    assert re.match(r"both .* ↓ \d+\.\d+ Mbit/s ↑ [2-5]\.\d\d Mbit/s$", both), out
    assert "● upload this host: ACK windows" in out
    assert "sudo unbloat agent on" in out
    assert f"Unloaded RTT to {ADDRESSES['server']}: 20 ms." in out
