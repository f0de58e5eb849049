"""Stored runs: written, read back, and refused with a reason."""

from __future__ import annotations

import csv
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbloat
from unbloat.run.direction import flow_of
from unbloat.run.write import toml_text
from unbloat.text.format import direction_id

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STORED = Path(__file__).parent / "data" / "format-1"


@pytest.mark.parametrize("name", ["run", "run.unbloat"])
def test_a_run_comes_back_as_it_was(capture: Path, tmp_path: Path, name: str) -> None:
    run = unbloat.analyze(capture)
    back = unbloat.open_run(run.write(tmp_path / name, ("samples", "events", "segments")))
    for table in ("connections", "flows", "findings"):
        assert getattr(back, table).equals(getattr(run, table))
    for series in ("samples", "events", "segments"):
        assert getattr(back, series)().equals(getattr(run, series)())
    assert back.info == run.info | {"bin_ms": 100.0}
    assert back.verdict == run.verdict


def test_every_table_and_series_is_a_csv_file(capture: Path, tmp_path: Path) -> None:
    run = unbloat.analyze(capture)
    tables = {name: getattr(run, name) for name in ("connections", "flows", "findings")}
    tables |= {name: getattr(run, name)() for name in ("samples", "events", "segments")}
    folder = run.write_csv(tmp_path / "csv", ("samples", "events", "segments"))
    assert {file.name for file in folder.iterdir()} == {f"{name}.csv" for name in tables}
    for name, table in tables.items():
        with (folder / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == table.num_rows > 0
        assert list(rows[0]) == table.column_names
        for found, row in zip(rows, table.to_pylist(), strict=True):
            for key, value in row.items():
                if isinstance(value, bool):
                    assert found[key] == str(value).lower()
                elif isinstance(value, int | float):
                    # Some columns have single precision.
                    assert float(found[key]) == pytest.approx(value, rel=1e-6)
                else:
                    assert found[key] == ("" if value is None else value)


@pytest.mark.parametrize(
    ("text", "flow"), [("1→", 2), ("1>", 2), ("1←", 3), ("1<", 3), ("1", 3), ("0", 0)]
)
def test_a_direction_is_named_by_its_connection_and_an_arrow(
    capture: Path, text: str, flow: int
) -> None:
    run = unbloat.analyze(capture)
    assert flow_of(run, text) == flow
    if not text.isdigit():
        assert flow_of(run, direction_id(flow)) == flow


@pytest.mark.parametrize("text", ["", "x", "→", "1→→", "-1", "7", "1.5"])
def test_what_names_no_direction_is_refused(capture: Path, text: str) -> None:
    with pytest.raises(unbloat.UnbloatError, match=r"expected the id|no connection"):
        flow_of(unbloat.analyze(capture), text)


def test_series_of_a_stored_run_are_available_by_flow(capture: Path, tmp_path: Path) -> None:
    back = unbloat.open_run(unbloat.analyze(capture).write(tmp_path / "run"))
    assert set(back.samples(flow=3).column("flow").to_pylist()) == {3}
    assert back.events(connection=0).num_rows == 1


def test_what_was_not_stored_is_said(capture: Path, tmp_path: Path) -> None:
    back = unbloat.open_run(unbloat.analyze(capture).write(tmp_path / "run"))
    with pytest.raises(unbloat.CaptureError, match="has no segments"):
        back.segments()
    with pytest.raises(unbloat.UnbloatError, match="bins of 100 ms, not 10"):
        back.samples(bin_ms=10.0)


def test_a_series_of_an_earlier_run_does_not_survive(capture: Path, tmp_path: Path) -> None:
    run = unbloat.analyze(capture)
    run.write(tmp_path / "run", ("samples", "events", "segments"))
    run.write(tmp_path / "run", ())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "connections.parquet",
        "findings.parquet",
        "flows.parquet",
        "run.toml",
    ]


def test_the_stored_run_of_format_1_can_still_be_read() -> None:
    run = unbloat.open_run(STORED)
    assert run.info["format"] == 1
    assert run.connections.num_rows > 0
    assert run.main_flow is not None
    assert run.flow(run.main_flow)["grade"] in ("A+", "A", "B", "C", "D", "F", None)
    assert run.samples(flow=run.main_flow).num_rows > 10
    assert run.verdict
    assert run._repr_html_()


def test_a_newer_format_is_refused_clearly(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("format = 2\n")
    with pytest.raises(
        unbloat.CaptureError, match="is of format 2, and this unbloat knows up to 1"
    ):
        unbloat.open_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not say which format"),
        ("format = 'one'", "does not say which format"),
        ("format = ", "cannot be read"),
    ],
)
def test_a_run_toml_that_says_nothing_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(unbloat.CaptureError, match=reason):
        unbloat.open_run(tmp_path)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.unbloat").write_bytes(b"no zip")
    with pytest.raises(unbloat.CaptureError, match="is no stored run"):
        unbloat.open_run(tmp_path / "x.unbloat")
    with pytest.raises(unbloat.CaptureError, match=r"has no run\.toml"):
        unbloat.open_run(tmp_path)
    with pytest.raises(FileNotFoundError):
        unbloat.open_run(tmp_path / "nothing")
    with zipfile.ZipFile(tmp_path / "y.unbloat", "w") as archive:
        archive.writestr("run.toml", "format = 1\n")
        archive.writestr("connections.parquet", b"PAR1 no")
    with pytest.raises(unbloat.CaptureError, match="cannot be read"):
        unbloat.open_run(tmp_path / "y.unbloat")


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]+", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs"]))
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.booleans()
        | st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    )
)
def test_whatever_run_says_survives_toml(info: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(info)) == info
