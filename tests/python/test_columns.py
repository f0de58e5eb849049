"""Native columns become Arrow tables with the same values, and numbers are not copied."""

from __future__ import annotations

import ctypes
from typing import Any

import pyarrow as pa
import pytest
from fake_native import column
from hypothesis import given
from hypothesis import strategies as st

from unbloat.run.arrow import arrow_table, row_count

RANGES = {"u8": 2**8, "u16": 2**16, "u32": 2**32, "u64": 2**64}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(0, top - 1) for kind, top in RANGES.items()},
    "f32": st.floats(width=32, allow_nan=False),
    "f64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "str": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
}


@given(st.data(), st.integers(0, 40))
def test_every_type_comes_through_with_its_nulls(data: st.DataObject, rows: int) -> None:
    values = {
        kind: data.draw(st.lists(st.none() | value, min_size=rows, max_size=rows))
        for kind, value in VALUES.items()
    }
    values = {
        kind: [False if kind == "bool" and value is None else value for value in row]
        for kind, row in values.items()
    }
    table = arrow_table(
        [
            column("id", "u32", range(rows)),
            *(column(kind, kind, row) for kind, row in values.items()),
        ]
    )
    table.validate(full=True)
    for kind, row in values.items():
        assert table.column(kind).to_pylist() == row


def test_a_number_stays_where_it_was() -> None:
    native = column("t_s", "f64", [1.0, 2.0, 3.0])
    array = arrow_table([native]).column("t_s").chunk(0)
    inside = ctypes.c_char_p(native[2])
    assert array.buffers()[1].address == ctypes.cast(inside, ctypes.c_void_p).value


def test_words_from_a_list_become_a_dictionary() -> None:
    table = arrow_table([column("limit", "str", ["bufferbloat", None, "bufferbloat"])])
    assert table.schema.field("limit").type == pa.dictionary(pa.int32(), pa.utf8())
    assert table.column("limit").to_pylist() == ["bufferbloat", None, "bufferbloat"]


def test_a_table_without_rows_keeps_its_columns() -> None:
    table = arrow_table([("flow", "u32", b"", None, None), ("kind", "str", b"", None, b"")])
    assert table.num_rows == 0
    assert table.column_names == ["flow", "kind"]


def test_bits_do_not_say_how_many_rows_there_are() -> None:
    assert row_count([column("syn_seen", "bool", [True] * 3), column("id", "u32", [1, 2, 3])]) == 3


@pytest.mark.parametrize("bad", [("x", "i128", b"", None, None), ("x", "str", b"", None, None)])
def test_a_column_that_breaks_the_contract_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(TypeError, match="column x"):
        arrow_table([bad])
