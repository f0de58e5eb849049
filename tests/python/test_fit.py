"""`unbloat fit`: samples of known links, the files that it writes, what it refuses, and errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, upload

import unbloat
from unbloat.link.model import quantiles
from unbloat.link.text import fine
from unbloat.link.trace import mahimahi, opportunities, scenario_text, trace_text

SAMPLES = ROOT / "samples"
LTE = SAMPLES / "lte-with-web.pcapng.zst"
# Rate and buffer of `samples/make/make.py`.
KNOWN = {
    "lte-with-web": (3e6, 600_000),
    "bloated-bbr-upload": (4e6, 24_000),
    "bloated-cubic-upload": (4e6, None),
    "bloated-download-at-receiver": (4e6, 1_000_000),
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-m", "unbloat", "fit", *words)
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", KNOWN)
def test_the_link_of_a_sample_is_found(name: str) -> None:
    rate_bps, buffer_bytes = KNOWN[name]
    fitted = unbloat.fit(SAMPLES / f"{name}.pcapng.zst")
    low, middle, high = fitted.mean_bps
    assert middle == pytest.approx(rate_bps, rel=0.02)
    assert low <= 1.005 * rate_bps
    assert high >= 0.995 * rate_bps
    assert high < 1.1 * low, "the control: an interval that says nothing would contain it as well"
    assert fitted.rtt_ms == pytest.approx(56, abs=5)
    if buffer_bytes is not None:
        assert fitted.buffer is not None
        assert fitted.buffer.bytes == pytest.approx(buffer_bytes, rel=0.05)


def test_a_written_link_has_the_delay_without_the_time_of_a_packet(tmp_path: Path) -> None:
    _, capture = upload(tmp_path, rate_mbps=2, limit_kb=64, duration_s=10)
    fitted = unbloat.fit(capture, draws=2)
    # The smallest round trip of data has a packet's 6 ms on the link.
    assert fitted.rtt_ms == pytest.approx(46, abs=1)
    assert fitted.delay_ms == pytest.approx(40, abs=1)
    found = re.findall(r'delay = "(\d+) us"', scenario_text(fitted))
    assert [int(us) for us in found] == pytest.approx([20_000, 20_000], abs=500)
    assert mahimahi(fitted, "up.trace").startswith("mm-delay 20 ")


def test_the_same_seed_gives_the_same_draws_and_another_one_others() -> None:
    one, again, other = (unbloat.fit(LTE, draws=3, seed=seed) for seed in (1, 1, 2))
    assert one.draws == again.draws != other.draws
    assert len(one.draws) == 3
    assert {len(draw) for draw in one.draws} == {len(one.seen_bps)}


# The rate of each link is that of `samples/make/make.py`.
@pytest.mark.parametrize(("name", "link_mbps"), [("slow-reader", 20), ("lossy", 30)])
def test_a_transfer_that_never_filled_its_link_is_refused_with_a_lower_bound(
    name: str, link_mbps: int
) -> None:
    done = run(str(SAMPLES / f"{name}.pcapng.zst"))
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.count("\n") == 1
    assert "never filled the link" in done.stderr
    said = float(done.stderr.split("at least ")[1].split(" Mbit/s")[0])
    assert link_mbps / 2 < said <= link_mbps


def test_the_refusal_on_its_page_is_what_the_program_says() -> None:
    path = "samples/slow-reader.pcapng.zst"
    argv = (sys.executable, "-m", "unbloat", "fit", path)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    page = (ROOT / "docs/commands/fit.md").read_text()
    assert " ".join(done.stderr.split()) in " ".join(page.split())


def test_files_are_written_and_the_scenario_runs_with_the_same_rate(tmp_path: Path) -> None:
    trace, folder, page = tmp_path / "up.trace", tmp_path / "link", tmp_path / "link.html"
    done = run(
        str(LTE), "--trace", str(trace), "--write", str(folder), "--report", str(page), "--json"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["rate_bps_low"] < said["rate_bps"] < said["rate_bps_high"]
    times_ms = [int(line) for line in trace.read_text().split()]
    assert times_ms == sorted(times_ms)
    assert len(times_ms) * 12_000 / said["duration_s"] == pytest.approx(said["rate_bps"], rel=0.01)
    assert (folder / "link.trace").read_text() == trace.read_text()
    assert len(list((folder / "draws").glob("*.trace"))) == 40
    assert "fitted-rate" in page.read_text()
    made = unbloat.simulate(folder / "scenario.toml")
    assert isinstance(made, unbloat.Run)
    [goodput] = [row["goodput_bps"] for row in made.flows.to_pylist() if row["payload_bytes"] > 1e6]
    # The capture's own transfer by CUBIC, beside it web requests.
    assert goodput == pytest.approx(2.9e6, rel=0.05)


def test_a_trace_has_a_packet_for_each_1500_bytes() -> None:
    # 12 Mbit/s for a second, nothing for another one, 6 Mbit/s for a third.
    times_ms = opportunities([12e6, 0.0, 6e6], 1.0)
    assert len(times_ms) == 1500
    assert times_ms[:2] == [1, 2]
    assert times_ms[1000] == 2002
    assert trace_text([0.0, 0.0], 0.5) == "1000\n"


def test_a_rate_has_three_digits() -> None:
    rates = (112e3, 3.994e6, 4e6, 100e6, 999.4e6, 1e9, 2.5e9)
    assert [fine(rate) for rate in rates] == [
        "0.112 Mbit/s",
        "3.99 Mbit/s",
        "4.00 Mbit/s",
        "100 Mbit/s",
        "999 Mbit/s",
        "1.00 Gbit/s",
        "2.50 Gbit/s",
    ]


def test_an_interval_has_nine_tenths_of_the_draws() -> None:
    assert quantiles([float(at) for at in range(41)]) == (2.0, 20.0, 38.0)
    assert quantiles([1.0]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("missing.pcap",), 3, "missing.pcap"),
        ((str(ROOT / "README.md"),), 3, "README.md"),
        (("-",), 2, "read twice"),
        ((str(LTE), "--connection", "9999"), 2, "9999"),
        ((str(LTE), "--connection", "x"), 2, "expected the id of a connection"),
        ((str(LTE), "--trace", "/proc/none/up.trace"), 2, "cannot be written"),
    ],
)
def test_what_cannot_be_fitted_is_one_line(words: tuple[str, ...], code: int, said: str) -> None:
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
