"""`unbloat measure history` on lines as `--keep` writes them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from unbloat.cli.arguments import main
from unbloat.errors import UnbloatError
from unbloat.measured.history import read_history


def line(at: float, **phases: tuple[list[str], float | str]) -> dict[str, Any]:
    """A measurement."""
    of = {"down": "down", "up": "up", "both": "rtt"}
    return {
        "at_unix_s": at,
        "host": "my-server",
        "rtt_min_ms": 20.3,
        "phases": [
            {
                "phase": name,
                "grade": {"of": of[name], "grades": grades, "why": None},
                f"delay_{of[name]}": {"p95_ms": [p95, 1.0, 2.0]},
            }
            for name, (grades, p95) in phases.items()
        ],
    }


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    lines = [
        line(7200, down=(["A"], 12.0), up=(["D"], 298.4), both=(["C", "D"], 199.0)),
        line(3600, down=(["A"], 14.0), up=(["D"], 310.0), both=([], "lost")),
        {"at_unix_s": 10800, "host": "my-server", "failed": "no answer"},
    ]
    file = tmp_path / "kept.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return file


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setitem(os.environ, "TZ", "UTC")
    time.tzset()
    monkeypatch.setattr("sys.argv", ["unbloat", "measure", "history", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_line_per_measurement_and_how_each_phase_went(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shown(monkeypatch, capsys, str(kept))
    rows = [text.split() for text in out.splitlines() if text.startswith("1970")]
    assert rows == [
        ["1970-01-01", "01:00", "20", "ms", "A", "14", "D", "310", "none", "lost"],
        ["1970-01-01", "02:00", "20", "ms", "A", "12", "D", "298", "C", "or", "D", "199"],
        ["1970-01-01", "03:00", "failed"],
    ]
    words = " ".join(out.split())
    assert "D in 2; p95 304 ms in the median, 310 at most." in words
    assert "failed, 1 of 3: no answer" in words
    assert max(map(len, out.splitlines())) <= 80


def test_json_has_the_same(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(shown(monkeypatch, capsys, str(kept), "--json"))
    assert [one["at_unix_s"] for one in data["results"]] == [3600, 7200, 10800]
    assert data["results"][0]["phases"]["both"] == {"grades": [], "p95_ms": "lost"}
    assert data["results"][2]["failed"] == "no answer"


def test_a_line_that_was_cut_off_is_left_out_and_another_is_named(kept: Path) -> None:
    text = kept.read_text()
    kept.write_text(text[:-10])
    assert len(read_history(kept)) == 2
    kept.write_text(text.replace("my-server", "x", 1).replace('"at_unix_s": 7200', '"at": 1', 1))
    with pytest.raises(UnbloatError, match=r"kept\.jsonl:1: no result"):
        read_history(kept)
    kept.write_text("no json\n")
    with pytest.raises(UnbloatError, match="no result"):
        read_history(kept)
    with pytest.raises(UnbloatError, match="No such file"):
        read_history(kept.with_name("none"))


def test_phases_of_several_congestion_controls_stand_side_by_side(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = line(7200, up=(["D"], 298.4))
    quic = {"congestion_control": "bbr", "transport": "quic"}
    other = line(7200, up=(["A"], 20.0))["phases"][0] | quic
    one["phases"][0]["congestion_control"] = "cubic"
    one["phases"].append(other)
    kept.write_text(json.dumps(one) + "\n")
    out = shown(monkeypatch, capsys, str(kept))
    (row,) = (text.split() for text in out.splitlines() if text.startswith("1970"))
    assert row[4:] == ["D", "298", "A", "20"]
    assert "upload, cubic" in out
    assert "upload, quic, bbr" in out


@pytest.mark.parametrize("words", [["history"], ["history", "a", "--quick"], ["my-server", "a"]])
def test_what_only_history_takes_and_what_it_does_not_take(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["unbloat", "measure", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "history" in capsys.readouterr().err


def test_rpm_over_days_has_columns_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {
            "at_unix_s": at,
            "host": "my-server:8443",
            "unloaded_rtt_ms": 20.2,
            "phases": [{"phase": "up", "variant": "draft-09", "rpm": rpm}],
        }
        for at, rpm in ((3600, 310.4), (7200, None), (10800, 290.0))
    ]
    file = tmp_path / "kept.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    out = shown(monkeypatch, capsys, str(file))
    rows = [text.split()[2:] for text in out.splitlines() if text.startswith("1970")]
    assert rows == [["20", "ms", "310", "RPM"], ["20", "ms", "none"], ["20", "ms", "290", "RPM"]]
    assert "upload, draft-09" in out
    assert "300 RPM in the median, 290 at least." in " ".join(out.split())
    assert "Grade" not in out
    found = json.loads(shown(monkeypatch, capsys, str(file), "--json"))
    assert [one["phases"]["up, draft-09"]["rpm"] for one in found["results"]] == [310.4, None, 290]
