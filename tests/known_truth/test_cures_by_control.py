"""Every cure that names BBR suits the congestion control that was recognised: over the samples and captures of others."""

from __future__ import annotations

import cure_words
import others
import pytest
from requirements import ROOT, require

import unbloat
from unbloat.lab.requirements import AGENT, found
from unbloat.run.run import Run


def faults(run: Run) -> tuple[int, list[str]]:
    """How many cures name BBR, and what is wrong with them."""
    controls = {row["id"]: row["congestion_control"] for row in run.flows.to_pylist()}
    rows = [row for row in run.findings.to_pylist() if row["flow"] is not None]
    said = [cure_words.fault(controls[row["flow"]], row["cure"]) for row in rows]
    return sum("BBR" in row["cure"] for row in rows), [line for line in said if line]


def test_cures_of_the_samples() -> None:
    samples = sorted((ROOT / "samples").glob("*.pcapng.zst"))
    named, lines = 0, []
    for path in samples:
        count, wrong = faults(unbloat.analyze(path))
        named += count
        lines += [f"{path.name}: {line}" for line in wrong]
    assert named > 5, "next to nothing was looked at"
    assert lines == []


def test_cures_of_captures_of_others() -> None:
    require("captures")
    named, lines = 0, []
    for path, run in others.analysed():
        count, wrong = faults(run)
        named += count
        lines += [f"{path.name}: {line}" for line in wrong]
    assert named > 5, "next to nothing was looked at"
    assert lines == []


@pytest.mark.parametrize(("name", "advised"), [("cubic", True), ("bbr", False)])
def test_the_plan_advises_bbr_to_cubic_alone(name: str, advised: bool) -> None:
    require(AGENT)
    sample = ROOT / "samples" / f"bloated-{name}-upload.pcapng.zst"
    assert cure_words.plan_advises_bbr(found(AGENT) or AGENT, sample) == advised
