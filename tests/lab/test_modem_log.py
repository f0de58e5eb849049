"""A capture of the kernel's own TCP and the log of the modem that the emulator played meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import emulated_modem

import unbloat
from unbloat.run.run import Run

# What a modem's clock is at the begin, s.
MODEM_S = 261_872_018

# Reports each millisecond, as records 0xB064 have; a firmware that is never full, so that no packet waits above it.
UPLOAD = """
name = "modem-log"
duration = "20 s"
[link.up]
medium = { kind = "grants", signal = "-98 dBm" }
delay = "29 ms"
[link.down]
rate = "20 Mbit/s"
delay = "29 ms"
[device]
qdisc = { kind = "droptail", limit = "1000 packets" }
firmware = { buffer = "3 MB", report_every = "1 ms" }
[[flow]]
from = "client"
congestion = "cubic"
buffer = "1 MB"
"""


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("modem")


def test_the_log_of_the_emulated_modem_fits_the_capture(machine: None, raw: Path) -> None:
    lab = unbloat.lab(UPLOAD, keep=raw)
    assert isinstance(lab, Run)
    modem = emulated_modem.played(next(raw.rglob("up.decisions")))
    log = raw / "modem.qmdl"
    log.write_bytes(modem.log(MODEM_S * 1_000))
    capture = next(raw.rglob("captures/client*.pcap*"))
    run = unbloat.analyze(capture, modem=log)

    # The emulator reads a packet later than the kernel captured it, where the machine is busy.
    late_ms = (lab.info["lateness_us_p95"] or 0) / 1_000
    error_ms = (run.info["modem_offset_s"] - (lab.info["start_s"] - MODEM_S)) * 1_000
    assert abs(error_ms) < 5 + late_ms
    assert run.info["modem_explained"] > 0.5

    rates = run.modem["modem_rates"].to_pylist()
    shift_s = run.info["start_s"] - lab.info["start_s"] - error_ms / 1_000
    from_ms, to_ms = (
        round((shift_s + row["t_s"] + more) * 1_000)
        for row, more in ((rates[0], 0.0), (rates[-1], rates[-1]["span_s"]))
    )
    left = sum(modem.left[ms] for ms in range(from_ms, to_ms))
    assert sum(row["modem_bytes"] for row in rates) == pytest.approx(left, rel=0.02)

    held = modem.held()
    rows = run.modem["modem_buffer"].to_pylist()
    equal = [
        held[round((shift_s + row["t_s"]) * 1_000) - 1] == row["bytes"] for row in rows[10:-10]
    ]
    assert sum(equal) > 0.99 * len(equal)
    assert max(row["bytes"] for row in rows) > 100_000
