"""`plan --capture` and `analyze` say the same of one capture."""

from __future__ import annotations

import json
import subprocess

import pytest
from agent_program import agent_path
from requirements import ROOT, SHARED, requires

from unbloat import analyze

SAMPLES = sorted((ROOT / "samples").glob("*.pcapng.zst"))
WHATSAPP = SHARED / "captures/real/ndpi/whatsappfiles.pcap"


def plan(path: object) -> dict[str, object]:
    """What it says."""
    done = subprocess.run(
        [agent_path(), "--json", "plan", "--capture", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said: dict[str, object] = json.loads(done.stdout)
    return said


def findings(said: object) -> set[tuple[str, str]]:
    """Rule and text, wherever they stand in the answer."""
    if isinstance(said, dict):
        if {"rule", "severity", "text"} <= set(said):
            return {(said["rule"], said["text"])}
        return set().union(*map(findings, said.values())) if said else set()
    return set().union(*map(findings, said)) if isinstance(said, list) and said else set()


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name.split(".")[0])
def test_a_plan_has_the_findings_of_analyze(path: object) -> None:
    ours = {(row["rule"], row["text"]) for row in analyze(str(path)).findings_of()}
    theirs = findings(plan(path))
    assert theirs
    assert theirs <= ours


@requires("captures")
def test_an_upload_of_eleven_kilobits_per_second_gets_no_windows() -> None:
    """Two segments take 451 ms at its rate: no window would make its queue shorter."""
    said = plan(WHATSAPP)
    advice = said["advice"]
    assert isinstance(advice, list)
    assert not [one for one in advice if one["cure"] == "uplink"]
