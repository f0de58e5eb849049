"""`unbloat measure` as a new user types it: the line that the server prints, then one screen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from path import ADDRESSES, Link, MeasuredPath

from unbloat.lab.requirements import found
from unbloat.lab.testbed import TIMEOUT_S, end, until

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


def test_results_are_kept_one_after_the_other_and_shown_as_history(tmp_path: Path) -> None:
    unbloat = found("unbloat") or ""
    kept = tmp_path / "kept.jsonl"
    with MeasuredPath(tmp_path / "path", Link(5, 150), Link(40, 400)) as made:
        server = made.serve()
        words = ("--quick", "--phases", "up", "--keep", str(kept), "--every", "1s")
        client = made.client(*words)

        def lines() -> list[dict[str, Any]]:
            text = kept.read_text() if kept.exists() else ""
            return [json.loads(line) for line in text.splitlines()]

        until(lambda: len(lines()) == 1, TIMEOUT_S)
        end(server)
        until(lambda: len(lines()) == 3, TIMEOUT_S)
        assert client.poll() is None, "goes on without a server"
        end(client)
        first, second, third = lines()
        out = made.ask("client", unbloat, "measure", "history", str(kept))
    assert first["phases"][0]["grade"]["of"] == "up"
    assert "failed" in second or not second["complete"]
    assert "closed" in third["failed"] or "refused" in third["failed"], third
    assert first["at_unix_s"] < second["at_unix_s"] <= third["at_unix_s"]
    assert "failed" in out
