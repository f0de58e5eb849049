"""What a worker holds: little more after many units than after one.

signal: eight units of 2,009 connections each, on which a worker works one after the other
model:  the largest resident set (VmHWM) after each unit, as Linux counts it
action: it may not grow with the number of units; the same work without the worker's settings is the control
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
UNITS = 8
# Half as much again as the 20 MB that a worker grows by after its first unit.
MAX_GROWN_MB = 30.0
# Of what it grows by without its settings, 41 to 46 MB.
OF_PLAIN = 0.75
# The same work as a worker's, with the allocators as they come.
PLAIN = """
from unbloat.corpus import worker
worker.lean_memory = lambda: lambda: None
worker.main()
"""
# The task of a worker of Dask, which has the settings in its environment.
IN_A_CLUSTER = """
import json, os, sys
from unbloat.tasks.memory import SETTINGS
os.environ.update(SETTINGS)
from pathlib import Path
from unbloat.corpus import cluster_task
for line in sys.stdin:
    order = json.loads(line)
    out = Path(order["options"]["out"])
    (out / cluster_task.MARKS).mkdir(parents=True, exist_ok=True)
    (out / cluster_task.TOKEN).write_text("shared")
    unit = order["unit"] | {"timeout_s": 120.0}
    given = {"unit": unit, "options": order["options"] | {"token": "shared"}}
    print(json.dumps({"receipt": cluster_task.analyse_unit(given)}), flush=True)
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc"
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """449,400 packets of 2,009 connections."""
    folder = tmp_path_factory.mktemp("made")
    program, path = folder / "make_captures", folder / "many10.pcap"
    subprocess.run(
        ["gcc", "-O2", "-o", str(program), str(BENCH / "make_captures.c"), "-lm"], check=True
    )
    subprocess.run([str(program), "many10", str(path)], check=True)
    return path


def peaks_mb(words: list[str], capture: Path, out: Path) -> list[float]:
    """The largest resident set of a worker so far, after each unit."""
    peaks = []
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for n in range(UNITS):
            unit = {
                "key": f"{n:032x}",
                "kind": "file",
                "url": str(capture),
                "file": capture.name,
                "device": "phone",
                "member": None,
                "size_bytes": capture.stat().st_size,
            }
            process.stdin.write(json.dumps({"unit": unit, "options": {"out": str(out)}}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                if "receipt" in (answer := json.loads(line)):
                    assert answer["receipt"]["state"] == "done", answer
                    break
            status = Path(f"/proc/{process.pid}/status").read_text()
            peaks.append(int(status.split("VmHWM:")[1].split()[0]) * 1.024e-3)
        process.stdin.close()
    return peaks


@pytest.fixture(scope="module")
def plain(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The control."""
    return peaks_mb(["-c", PLAIN], capture, tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    "words",
    [["-m", "unbloat.corpus.worker"], ["-c", IN_A_CLUSTER]],
    ids=["of-this-machine", "of-a-cluster"],
)
def test_a_worker_holds_little_more_after_many_units(
    capture: Path, plain: list[float], words: list[str], tmp_path: Path
) -> None:
    peaks = peaks_mb(words, capture, tmp_path / "out")
    grown, grown_plain = peaks[-1] - peaks[0], plain[-1] - plain[0]
    assert grown < MAX_GROWN_MB, f"{peaks}: {grown:.0f} MB more than after the first unit"
    # Else the bound says nothing about the settings.
    assert grown < OF_PLAIN * grown_plain, f"the control: {peaks}, {plain}"
    assert peaks[-1] < plain[-1]
