"""The real extension module on real captures: the contract of its columns, and what the bundled samples must say."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SHARED
from requirements import unavailable

import unbloat
from unbloat import _native as native
from unbloat.bundled import samples
from unbloat.run.json import json_line, run_object


def sample(name: str) -> Path:
    """A bundled capture."""
    return next(path for path in samples() if path.name.startswith(name))


def shared(*parts: str) -> Path:
    """A capture that lies beside the repository."""
    path = SHARED.joinpath("captures", *parts)
    if not path.exists():
        unavailable("captures", f"{path} is not there")
    return path


@pytest.fixture(scope="module")
def cubic() -> unbloat.Run:
    """The bloated upload."""
    return unbloat.analyze(sample("bloated-cubic-upload"))


def test_the_bloated_upload_is_recognised(cubic: unbloat.Run) -> None:
    assert cubic.main_flow is not None
    flow = cubic.flow(cubic.main_flow)
    assert flow["grade"] == "F"
    assert 40 < flow["rtt_ms_min"] < 80
    assert flow["rtt_ms_p95"] > 1000
    assert {"bufferbloat", "receive-window"} <= {
        row["rule"] for row in cubic.findings_of(connection=flow["connection"])
    }
    assert 3e6 < flow["goodput_bps"] < 4.2e6


def test_the_same_link_under_bbr_gives_other_limits() -> None:
    comparison = unbloat.compare(
        sample("bloated-cubic-upload"), sample("bloated-bbr-upload"), labels=["CUBIC", "BBR"]
    )
    lines = {line.measure.name: line for line in comparison.lines}
    for name in ("rtt_ms_p95", "queue_ms_p95", "grade", "window_full_share", "in_flight_over_bdp"):
        assert lines[name].best == {1}, name
    assert ", as CUBIC, but RTT p95 " in comparison.verdict


def test_the_slow_reader_is_recognised() -> None:
    run = unbloat.analyze(sample("slow-reader"))
    assert run.main_flow is not None
    assert run.flow(run.main_flow)["zero_window_count"] > 0
    assert "zero-window" in {row["rule"] for row in run.findings_of()}


@pytest.mark.parametrize("path", samples(), ids=lambda path: path.name.split(".")[0])
def test_the_tables_of_every_sample_are_sound(path: Path, tmp_path: Path) -> None:
    run = unbloat.analyze(path)
    run.load(None, ("samples", "events", "segments"))
    for table in (
        run.connections,
        run.flows,
        run.findings,
        run.samples(),
        run.events(),
        run.segments(),
    ):
        table.validate(full=True)
    assert run.flows.num_rows == 2 * run.connections.num_rows
    assert run.connections.column("bytes").to_pylist() == [
        run.flow(2 * id_)["wire_bytes"] + run.flow(2 * id_ + 1)["wire_bytes"]
        for id_ in run.connections.column("id").to_pylist()
    ]
    for row in run.flows.to_pylist():
        shares = [row[name] for name in row if name.startswith("share_") and row[name] is not None]
        assert not shares or sum(shares) == pytest.approx(1.0, abs=1e-6)
    json_line(run_object(run, series=("samples", "events")))
    assert unbloat.open_run(run.write(tmp_path / "run")).verdict == run.verdict
    assert run._repr_html_()


def test_series_of_one_connection_are_those_of_the_whole(cubic: unbloat.Run) -> None:
    assert cubic.main_flow is not None
    whole = unbloat.analyze(sample("bloated-cubic-upload"))
    whole.load(None, ("samples", "segments"))
    for kind in ("samples", "segments"):
        ours, theirs = (
            getattr(cubic, kind)(flow=cubic.main_flow),
            getattr(whole, kind)(flow=cubic.main_flow),
        )
        assert ours.num_rows > 100
        assert ours.to_pylist() == theirs.to_pylist()


def test_samples_deliver_what_the_flow_delivered(cubic: unbloat.Run) -> None:
    assert cubic.main_flow is not None
    delivered = sum(cubic.samples(flow=cubic.main_flow).column("delivered_bytes").to_pylist())
    assert delivered == cubic.flow(cubic.main_flow)["bytes"]


def test_segments_beyond_the_cap_are_thinned_out(cubic: unbloat.Run) -> None:
    whole, capped = (
        cubic.segments(flow=cubic.main_flow),
        cubic.segments(flow=cubic.main_flow, max_segments=500),
    )
    # Retransmitted data is never joined away, so that a few more than the cap may remain.
    assert 0 < capped.num_rows < whole.num_rows / 10


def test_rules_have_a_line_a_source_and_a_page() -> None:
    names = [name for name, _, _, _ in native.rules()]
    assert len(set(names)) == len(names) >= 11
    for name, about, source, page in native.rules():
        assert about, name
        assert source, name
        assert len(page) > 100, name


def test_the_versions_agree() -> None:
    assert native.version == unbloat.__version__
    assert f'version = "{unbloat.__version__}"' in (ROOT / "Cargo.toml").read_text()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"#!/bin/sh\n" * 10,
        struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)[:10],
    ],
)
def test_what_is_no_capture_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    with pytest.raises(unbloat.CaptureError) as caught:
        unbloat.analyze(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_capture_without_packets_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    run = unbloat.analyze(path)
    assert run.connections.num_rows == run.findings.num_rows == 0
    assert run.main_flow is None
    assert run.verdict.startswith("No TCP data")
    assert run.samples().num_rows == 0


def test_a_truncated_capture_is_analysed_up_to_there(tmp_path: Path) -> None:
    import gzip

    whole = gzip.decompress(shared("made", "truth_rwnd_snd.pcap.gz").read_bytes())
    path = tmp_path / "cut.pcap"
    path.write_bytes(whole[: len(whole) // 2])
    run = unbloat.analyze(path)
    assert run.main_flow is not None
    assert run.warnings


def test_the_progress_callback_is_called_and_can_stop(tmp_path: Path) -> None:
    report_progress: list[tuple[int, int]] = []

    def listen(done: int, total: int) -> None:
        report_progress.append((done, total))

    import gzip

    once = gzip.decompress(shared("made", "bufsz_limited_snd.pcap.gz").read_bytes())
    header, packets = once[:24], once[24:]
    big = tmp_path / "big.pcap"
    # Long enough for several of the ten calls a second.
    big.write_bytes(header + packets * (400_000_000 // len(packets)))
    unbloat.analyze(big, progress=listen)
    assert report_progress
    assert all(0 <= done <= total for done, total in report_progress)

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unbloat.analyze(big, progress=stop)


def program(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """The program, as installed."""
    command = [sys.executable, "-m", "unbloat", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, **more
    )


def test_the_program_reads_standard_input() -> None:
    with sample("slow-reader").open("rb") as file:
        done = program("analyze", "-", "--connection", "0", stdin=file)
    assert done.returncode == 0, done.stderr
    assert "zero windows" in done.stdout


def test_the_program_refuses_what_is_no_capture_with_3() -> None:
    done = program("analyze", "Cargo.toml")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("unbloat: Cargo.toml: ")
    assert done.stderr.count("\n") == 1
