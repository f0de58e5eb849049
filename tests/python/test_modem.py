"""A modem's log under a capture of its host: the pair is made by the simulator, so that the clocks and the buffer are known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import require_module

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import diag_log
import modem_pair

import unbloat
from unbloat.errors import CaptureError, UnbloatError

require_module("unbloat._native")

SECONDS = 40


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> modem_pair.Pair:
    return modem_pair.make(tmp_path_factory.mktemp("pair"), SECONDS)


@pytest.fixture(scope="module")
def laid(pair: modem_pair.Pair) -> unbloat.Run:
    return unbloat.analyze(pair.capture, modem=pair.log)


def test_a_log_is_read_as_it_was_made(pair: modem_pair.Pair) -> None:
    log = unbloat.modem_log(pair.log)
    assert log.damaged == 0
    assert log.unread == {}
    assert log.buffer.num_rows == SECONDS * 1_000 - 1
    first, last = log.buffer["modem_ns"][0].as_py(), log.buffer["modem_ns"][-1].as_py()
    assert last - first == pytest.approx((SECONDS * 1_000 - 2) * 1_000_000, abs=100)
    layers = log.grants["layer"].to_pylist()
    assert layers.count("mac") == layers.count("phy") > 10_000
    # Each block of the MAC has the time of its TTI, as its transmission has.
    rows = log.grants.to_pylist()
    times = {
        layer: [row["modem_ns"] for row in rows if row["layer"] == layer]
        for layer in ("mac", "phy")
    }
    assert times["mac"] == times["phy"]


def test_the_offset_is_that_of_the_clocks_within_5_ms(
    pair: modem_pair.Pair, laid: unbloat.Run
) -> None:
    error_s = laid.info["modem_offset_s"] - pair.offset_s(SECONDS / 2)
    assert abs(error_s) < 0.005
    assert abs(error_s) * 1_000 <= laid.info["modem_offset_uncertainty_ms"] < 5
    assert laid.info["modem_explained"] > 0.9


def test_clocks_that_run_apart_and_missing_records_move_nothing(tmp_path: Path) -> None:
    pair = modem_pair.make(tmp_path, SECONDS, skew=80e-6, lost=range(5, SECONDS * 25, 60))
    run = unbloat.analyze(pair.capture, modem=pair.log)
    assert abs(run.info["modem_offset_s"] - pair.offset_s(SECONDS / 2)) < 0.005
    assert run.info["modem_skew_ppm"] == pytest.approx(80, abs=30)
    # Both ends, and not only the middle: without the skew they would be 2 ms off.
    assert max(equal_share(pair, run, late_ms) for late_ms in (-1, 0, 1)) > 0.8


def test_what_the_modem_sent_is_what_left_the_simulated_modem(
    pair: modem_pair.Pair, laid: unbloat.Run
) -> None:
    end_s = laid.info["duration_s"]
    rows = [row for row in laid.modem["modem_rates"].to_pylist() if row["t_s"] < end_s - 1]
    begin_s = laid.info["start_s"] - modem_pair.EPOCH_S
    from_s, to_s = begin_s + rows[0]["t_s"], begin_s + rows[-1]["t_s"] + rows[-1]["span_s"]
    servers = next(pair.capture.parent.glob("server*"))
    left = modem_pair.left(unbloat.analyze(servers))
    true = sum(size for at_s, size in left if from_s <= at_s < to_s)
    assert sum(row["modem_bytes"] for row in rows) == pytest.approx(true, rel=0.02)
    assert laid.info["modem_layer"] == "mac"
    assert 0 < laid.info["modem_padding_share"] < 0.02


def test_the_buffer_is_that_of_the_simulated_modem(
    pair: modem_pair.Pair, laid: unbloat.Run
) -> None:
    shares = {late_ms: equal_share(pair, laid, late_ms) for late_ms in range(-5, 6)}
    best = max(shares, key=lambda late_ms: shares[late_ms])
    assert shares[best] > 0.99
    assert abs(best) <= laid.info["modem_offset_uncertainty_ms"]


def equal_share(pair: modem_pair.Pair, run: unbloat.Run, late_ms: int) -> float:
    """Samples that are the simulator's queue so much later, to the byte."""
    held = modem_pair.firmware_bytes(pair.run)
    begin_s = run.info["start_s"] - modem_pair.EPOCH_S
    rows = run.modem["modem_buffer"].to_pylist()
    assert len(rows) > 0.8 * SECONDS * 1_000
    equal = [
        held[round((begin_s + row["t_s"]) * 1_000) - 1 + late_ms] == row["bytes"] for row in rows
    ]
    return float(sum(equal) / len(equal))


def test_estimates_above_a_deep_buffer_are_worse_than_packets(laid: unbloat.Run) -> None:
    errors = [laid.info[f"modem_{layer}_error"] for layer in ("application", "tcp", "captured")]
    assert all(error is not None and 0 < error < 10 for error in errors)


def test_a_run_keeps_its_log_when_it_is_stored(tmp_path: Path, laid: unbloat.Run) -> None:
    for path in (tmp_path / "run", tmp_path / "run.unbloat"):
        laid.write(path)
        again = unbloat.open_run(path)
        assert set(again.modem) == {"modem_buffer", "modem_grants", "modem_rates"}
        for name, table in laid.modem.items():
            assert again.modem[name].to_pydict() == table.to_pydict()
        assert again.info["modem_offset_s"] == laid.info["modem_offset_s"]


def test_what_is_no_log_or_of_another_upload_is_refused(
    tmp_path: Path, pair: modem_pair.Pair
) -> None:
    nothing = tmp_path / "nothing.qmdl"
    nothing.write_bytes(b"text, and no log")
    with pytest.raises(CaptureError, match="neither frames of DIAG nor records"):
        unbloat.analyze(pair.capture, modem=nothing)
    with pytest.raises(FileNotFoundError, match="absent"):
        unbloat.analyze(pair.capture, modem=tmp_path / "absent.qmdl")
    with pytest.raises(IsADirectoryError):
        unbloat.modem_log(tmp_path)
    idle = tmp_path / "idle.qmdl"
    idle.write_bytes(diag_log.log([diag_log.Tti(ms, 0) for ms in range(1, 10_000)]))
    with pytest.raises(UnbloatError, match="bytes in the buffer in 0 s only"):
        unbloat.analyze(pair.capture, modem=idle)
    with pytest.raises(UnbloatError, match="belongs to one capture"):
        unbloat.analyze(pair.capture, pair.capture, modem=pair.log)  # type: ignore[call-overload]


def test_the_command_refuses_with_one_line_and_its_exit_code(
    pair: modem_pair.Pair, tmp_path: Path
) -> None:
    stored = unbloat.analyze(pair.capture).write(tmp_path / "run")
    nothing = tmp_path / "nothing.qmdl"
    nothing.write_bytes(b"text, and no log")
    cases = (
        ([pair.capture], nothing, 3, "neither frames of DIAG"),
        ([pair.capture], tmp_path / "absent", 3, "absent: no such file or directory"),
        ([stored], pair.log, 2, "is a stored run"),
        ([pair.capture, pair.capture], pair.log, 2, "belongs to one capture"),
    )
    for files, log, code, words in cases:
        argv = [sys.executable, "-m", "unbloat", "analyze", *map(str, files), "--modem", str(log)]
        ended = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (code, "", 1), ended
        assert words in ended.stderr


def test_damage_is_counted_and_said(tmp_path: Path, pair: modem_pair.Pair) -> None:
    data = bytearray(pair.log.read_bytes())
    data[len(data) // 2] ^= 0x01
    damaged = tmp_path / "damaged.qmdl"
    damaged.write_bytes(bytes(data))
    assert unbloat.modem_log(damaged).damaged == 1
    run = unbloat.analyze(pair.capture, modem=damaged)
    assert any("1 damaged frames were left out" in line for line in run.warnings)


def test_the_command_prints_offset_buffer_and_estimates(
    pair: modem_pair.Pair, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from unbloat.cli.analyze import AnalyzeOptions, analyze_files

    def options(json_: bool) -> AnalyzeOptions:
        return AnalyzeOptions(
            modem=pair.log,
            report=None,
            json=json_,
            out=tmp_path / "out",
            csv=None,
            connection=None,
            top=10,
            sort="bytes",
            series=["samples"] if json_ else [],
            bin_ms=100.0,
        )

    assert analyze_files([str(pair.capture)], False, options(False)) == 0
    text = " ".join(capfd.readouterr().out.split())
    assert "the capture's clock less the modem's is" in text
    assert "The modem's buffer had" in text
    assert "grants less padding were" in text
    assert analyze_files([str(pair.capture)], False, options(True)) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["run"]["modem_layer"] == "mac"
    assert set(found["modem_rates"][0]) >= {"t_s", "modem_bytes", "captured_bytes"}
    assert (tmp_path / "out" / "modem_buffer.parquet").is_file()
