"""A simulated and a lab run of the same scenario on one page: transfers, queues, probes and applications by name."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from unbloat.cli.output import write_run_page

sys.path.insert(0, str(Path(__file__).parent))

from made_raw import raw_run

import unbloat
from unbloat.cli.compare import CompareOptions, compare_files
from unbloat.comparison.compare import Comparison, by_origin, compare
from unbloat.comparison.scenario_metrics import Line, apart
from unbloat.comparison.text import compare_screen
from unbloat.lab.result.run import run_of
from unbloat.text.format import ms_text, share_text
from unbloat.text.terminal import Terminal

TEXT = """
name = "two"
duration = "6 s"
[link.up]
rate = "8 Mbit/s"
delay = "10 ms"
queue = { kind = "droptail", limit = "60 KB" }
[link.down]
rate = "8 Mbit/s"
delay = "10 ms"
[[flow]]
name = "small"
from = "server"
app = { kind = "file", bytes = "100 KB" }
[[flow]]
name = "upload"
from = "client"
[[probe]]
name = "ping"
kind = "ping"
every = "100 ms"
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both runs on disk."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "raw").mkdir()
    truth, raw = raw_run(TEXT, folder / "raw")
    lab = run_of(raw)
    lab.info["warnings"] = ["the machine was too busy"]
    return {
        "sim": truth.write(folder / "sim-run"),
        "lab": lab.write(folder / "lab-run"),
        "raw": raw,
    }


@pytest.fixture
def both(stored: dict[str, Path]) -> Comparison:
    """The two, as `unbloat compare` opens them."""
    return compare(stored["sim"], stored["lab"])


def lines(comparison: Comparison) -> dict[tuple[str, str], Line]:
    """By place and figure."""
    return {
        (line.place, line.name): line for section in comparison.sections for line in section.lines
    }


def test_sides_are_the_same_transfer_and_not_the_largest_of_each(both: Comparison) -> None:
    assert both.labels == ["sim-run", "lab-run"]
    assert [side.run.flow(side.flow)["transfer"] for side in both.sides] == ["small", "small"]


def test_runs_of_the_same_name_are_distinguished_by_their_origin(stored: dict[str, Path]) -> None:
    runs = [unbloat.open_run(stored[name]) for name in ("sim", "lab", "lab")]
    assert by_origin(["a", "a", "b"], runs) == ["a, simulated", "a, lab", "b"]
    assert compare(*runs[:2]).labels == ["two", "two, lab"]


def test_everything_that_the_scenario_names_stands_side_by_side(both: Comparison) -> None:
    found = lines(both)
    assert [section.title for section in both.sections] == [
        "transfer",
        "queue",
        "probe",
        "application",
    ]
    goodput = found["upload", "flow_goodput_bps"]
    assert goodput.values[0] == pytest.approx(goodput.values[1], rel=0.02)
    assert goodput.difference in ("same", "+0.5 %", "−0.5 %", "+0.6 %", "−0.6 %")
    # The emulator's figures were the simulator's.
    for place, name in (
        ("up", "p95"),
        ("up", "queue_drops"),
        ("ping", "probe_rtt_ms_p95"),
        ("small", "file_ms_p50"),
    ):
        assert found[place, name].difference == "same", (place, name)
        assert found[place, name].values[0] is not None
    assert found["upload", "flow_congestion"].texts == ["cubic", "cubic"]


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        (100.0, 100.2, "same"),
        (100.0, 104.0, "+4.0 %"),
        (100.0, 50.0, "−50 %"),
        (10.0, 40.0, "× 4.0"),
        (0.0, 3.0, "+3.0 ms"),
        (0.0, 0.0, "same"),
        (None, 3.0, "–"),
        ("cubic", "cubic", "same"),
        ("cubic", "bbr", "differs"),
    ],
)
def test_a_difference_is_written_as_a_reader_expects(
    before: float | str | None, now: float | str | None, text: str
) -> None:
    assert apart([before, now], ms_text) == text


def test_shares_differ_by_points() -> None:
    assert apart([0.10, 0.35], share_text) == "+25 points"
    assert apart([0.102, 0.10], share_text) == "same"


def test_the_screen_and_the_object_show_the_comparison(
    both: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    compare_screen(Terminal(out), both)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    rows = [line.split() for line in text.splitlines()]
    assert ["transfer", "sim-run", "lab-run", "difference"] in rows
    assert ["queue", "sim-run", "lab-run", "difference"] in rows
    sections = json.loads(json.dumps(both.to_dict()))["scenario"]
    assert [section["section"] for section in sections] == [
        "transfer",
        "queue",
        "probe",
        "application",
    ]


def test_the_page_holds_both_runs(
    stored: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "both.html"
    options = CompareOptions(labels=None, connections=None, report=page, json=False)
    compare_files([str(stored["sim"]), str(stored["lab"])], options)
    assert "report: " in capsys.readouterr().out
    text = page.read_text()
    assert 'id="scenario"' in text
    assert "<li>lab-run: the machine was too busy</li>" in text
    assert ">difference</th>" in text
    # Nothing of the sort where captures are compared.
    captures = sorted((stored["raw"] / "captures").iterdir())
    assert compare(*captures).sections == []


def test_the_page_of_a_lab_run_is_that_of_a_simulated_one_with_segments(
    stored: dict[str, Path], tmp_path: Path
) -> None:
    fresh, kept = tmp_path / "fresh.html", tmp_path / "kept.html"
    write_run_page(run_of(stored["raw"]), fresh)
    write_run_page(unbloat.open_run(stored["lab"]), kept)
    for page in (fresh, kept):
        text = page.read_text()
        assert "two, lab" in text
        for chart in ("queue", "probe-rtt", "in-flight"):
            assert f'"name": "{chart}"' in text, (page, chart)
    # Segments come from the captures, which a stored run does not hold.
    assert ['"name": "time-sequence"' in page.read_text() for page in (fresh, kept)] == [
        True,
        False,
    ]
    assert 'id="0→-data"' in fresh.read_text()
    assert 'id="0→-samples"' in kept.read_text()
    assert 'id="0→-data"' not in kept.read_text()
