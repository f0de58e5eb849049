"""`docs/format.md` names every key and column that there is, with its type, and none that there is not."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import measured_result
import pyarrow as pa
import pytest
from reading import ROOT

import unbloat
from unbloat.measured.run import run_of

PAGE = (ROOT / "docs/format.md").read_text()
SAMPLE = ROOT / "samples/slow-reader.pcapng.zst"
ROW = re.compile(r"^\| (`[^|]+)\|([^|]*)\|", re.M)  # first two cells
ARROW = {
    "u8": pa.uint8(),
    "u16": pa.uint16(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
    "str": pa.string(),
}


# What a measurement adds to a table.
MEASURED = re.compile(r"^A measurement adds .*?(?=^$|\Z)", re.M | re.S)


def section(name: str, simulated: bool = False, measured: bool = False) -> str:
    """What the page says of a table; of captured runs only, unless simulated or measured ones are asked for."""
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, name
    text = found[1] if measured else MEASURED.sub("", found[1])
    if simulated:
        return text
    text = re.sub(r"^A simulated run .*", "", text, flags=re.M | re.S)
    return "\n".join(
        line
        for line in text.splitlines()
        if "*simulated" not in line and not line.startswith("Simulated runs add")
    )


def spread(name: str) -> list[str]:
    """`rtt_ms_{min,max}` stands for two columns."""
    parts = [part.split(",") for part in re.split(r"\{([^}]*)\}", name)]
    parts[::2] = [[",".join(part)] for part in parts[::2]]
    return ["".join(choice) for choice in product(*parts)]


def rows(text: str) -> list[tuple[list[str], list[str]]]:
    """First two cells of every table row: names, types."""
    found = ROW.findall(text)
    return [(names(first), re.findall(r"\w+", types)) for first, types in found]


def names(cell: str) -> list[str]:
    return [name for word in re.findall(r"`([^`]+)`", cell) for name in spread(word)]


def documented(table: str, simulated: bool = False, measured: bool = False) -> dict[str, list[str]]:
    """Columns of a table with the types that the page gives them."""
    text = section(table, simulated, measured)
    if table in ("connections", "flows"):
        return {name: types for columns, types in rows(text) for name in columns}
    kinds = "|".join(ARROW)
    return {
        name: found
        for word, found in (
            (word, re.findall(rf"\b({kinds})\b", types))
            for word, types in re.findall(rf"`([\w{{}},]+)` ((?:(?:{kinds})\??(?:, )?)+)", text)
        )
        for name in spread(word)
    }


@pytest.fixture(scope="module")
def run() -> unbloat.Run:
    return unbloat.analyze(SAMPLE)


@pytest.mark.parametrize(
    "table", ["connections", "flows", "findings", "samples", "events", "segments"]
)
def test_every_column_is_documented_and_every_documented_column_exists(
    run: unbloat.Run, table: str
) -> None:
    of_run = getattr(run, table)
    real: pa.Table = of_run() if callable(of_run) else of_run
    assert list(documented(table)) == real.column_names


def test_every_column_that_a_measurement_adds_is_documented() -> None:
    real = run_of(measured_result.result()).probes
    printed = documented("probes", simulated=True, measured=True)
    assert sorted(printed) == sorted(real.column_names)
    assert len(printed) > len(documented("probes", simulated=True)), "it adds some"


@pytest.fixture(scope="module")
def simulated() -> unbloat.Run:
    run = unbloat.simulate(ROOT / "docs/examples/upload.toml")
    return run if isinstance(run, unbloat.Run) else run[0]


@pytest.mark.parametrize(
    "table", ["connections", "flows", "samples", "queues", "stages", "probes", "apps"]
)
def test_every_column_of_a_simulated_run_is_documented(simulated: unbloat.Run, table: str) -> None:
    of_run = getattr(simulated, table)
    real: pa.Table = of_run() if callable(of_run) else of_run
    printed = documented(table, simulated=True)
    assert list(printed) == real.column_names
    for name, types in printed.items():
        kind = real.schema.field(name).type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        assert not types or plain in [ARROW[t] for t in types], (name, kind)


def test_every_key_of_a_simulated_run_is_documented(simulated: unbloat.Run) -> None:
    keys = {
        name for first, _ in ROW.findall(section("run", simulated=True)) for name in names(first)
    }
    assert set(simulated.info) <= keys


@pytest.mark.parametrize(
    "table", ["connections", "flows", "findings", "samples", "events", "segments"]
)
def test_the_documented_types_are_the_real_ones(run: unbloat.Run, table: str) -> None:
    of_run = getattr(run, table)
    real: pa.Table = of_run() if callable(of_run) else of_run
    for name, types in documented(table).items():
        kind = real.schema.field(name).type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        # a row of several columns with empty or several types names all of those that occur in it
        assert not types or plain in [ARROW[t] for t in types], (name, kind)


def test_every_key_of_the_run_is_documented(run: unbloat.Run, tmp_path: Path) -> None:
    text = section("run")
    keys = {name: types for first, types in ROW.findall(text) for name in names(first)}
    always = {name for name, types in keys.items() if "absent" not in types}
    assert always <= set(run.info) <= set(keys)
    run.write(tmp_path / "stored")
    stored = unbloat.open_run(tmp_path / "stored")
    assert always <= set(stored.info) <= set(keys)
    assert "bin_ms" in stored.info


def test_every_kind_of_event_is_documented() -> None:
    source = (ROOT / "crates/flow/src/series/rows.rs").read_text()
    real = re.findall(r'EventKind::\w+ => "(\w+)"', source)
    assert sorted(name for kinds, _ in rows(section("events")) for name in kinds) == sorted(real)
