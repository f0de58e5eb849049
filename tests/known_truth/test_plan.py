"""`unbloat-agent plan` on a capture that does not show whose it is: one reason, no contradiction, nothing of this host; and on the
same capture with the host named.

signal: a simulated upload behind a deep buffer, captured at the router between two private networks · model: no end of it is near
· action: what `plan` prints
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import paths
import pytest

import unbloat


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    scenario = folder / "scenario.toml"
    scenario.write_text(paths.scenario("deep buffer"))
    run = unbloat.simulate(scenario, pcap=folder / "captures")
    assert isinstance(run, unbloat.Run)
    (file,) = [file for file in run.info["captures"] if "router" in Path(file).name]
    return Path(file)


def plan(capture: Path, *words: str) -> str:
    program = shutil.which("unbloat-agent")
    assert program is not None
    argv = [program, "plan", "--capture", str(capture), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def test_where_the_host_is_unknown_it_says_so_once(capture: Path) -> None:
    text = plan(capture)
    assert "taken at an unknown host" in text
    assert "1 transfer left out" in text
    assert "--host ADDRESS" in text
    for wrong in ("long enough", "without data", "MTU", "receive buffers up to", "not seen"):
        assert wrong not in text, wrong


def test_a_named_host_is_judged_in_its_direction(capture: Path) -> None:
    (row,) = unbloat.analyze(capture).connections.to_pylist()
    for end, title in (("a", "Uploads: "), ("b", "Downloads: ")):
        address = row[f"{end}_addr"]
        text = plan(capture, "--host", address)
        assert f"taken at {address}, which is not this host" in text
        assert f"1 {title}" in text
        assert "left out" not in text
        assert "Nothing can be advised" not in text
