"""Numbers as a person reads them, and text that fits a terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbloat.text import format as wording
from unbloat.text.terminal import Terminal, cut, left, on_grid, plain, right, sparkline, width, wrap


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (31_400_000, "31.4 MB"),
        (999_900, "1.0 MB"),
        (1.2e9, "1.2 GB"),
    ],
)
def test_bytes_are_decimal(value: float | None, text: str) -> None:
    assert wording.byte_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(4_000_000, "4.0 Mbit/s"), (88_000, "88.0 kbit/s"), (941e6, "941 Mbit/s"), (12, "12 bit/s")],
)
def test_rates_are_decimal(value: float, text: str) -> None:
    assert wording.rate_text(value) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (45, 90, "45 → 90 ms"),
        (45, 2100, "45 ms → 2.1 s"),
        (45, 45.2, "45 ms"),
        (None, 1, "–"),
        (0.02, 0.7, "0.02 → 0.7 ms"),
    ],
)
def test_a_range_names_a_unit_once(low: float | None, high: float, text: str) -> None:
    assert wording.ms_range(low, high) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0005, "0.5 ms"),
        (61.23, "61.2 s"),
        (600, "10 min"),
        (7500, "2 h 05 min"),
        (1e7, "116 days"),
    ],
)
def test_spans_have_the_unit_that_fits(value: float, text: str) -> None:
    assert wording.seconds_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 %"),
        (0.0004, "< 0.1 %"),
        (0.0123, "1.2 %"),
        (0.63, "63 %"),
        (0.9995, "100.0 %"),
        (1, "100 %"),
    ],
)
def test_shares_are_percent(value: float, text: str) -> None:
    assert wording.share_text(value) == text


@pytest.mark.parametrize(
    ("address", "port", "text"),
    [
        ("10.0.0.1", 443, "10.0.0.1:443"),
        ("2001:db8:0:0:0:0:0:1", 443, "[2001:db8::1]:443"),
        ("2001:db8:85a3:8d3:1319:8a2e:370:7348", 443, "[2001:db8:85…a2e:370:7348]:443"),
        ("10.0.0.1", 0, "10.0.0.1"),
        ("fe80::1", None, "fe80::1"),
    ],
)
def test_addresses_are_as_short_as_can_be(address: str, port: int | None, text: str) -> None:
    assert wording.endpoint_text(address, port) == text


@given(st.floats(0, 1e18))
def test_every_number_fits_its_cell(value: float) -> None:
    assert len(wording.byte_text(value)) <= 9
    assert len(wording.rate_text(value)) <= 12
    assert len(wording.ms_text(min(value, 1e7))) <= 9


@given(st.text(st.characters(max_codepoint=0x2FF)), st.integers(1, 60))
def test_wrapped_lines_fit_and_lose_nothing(text: str, room: int) -> None:
    lines = wrap(plain(text), room)
    assert all(width(line) <= room for line in lines)
    assert "".join(lines).replace(" ", "") == plain(text).replace(" ", "")


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf", "Mn"])), st.integers(2, 40))
def test_cells_have_exactly_their_width(text: str, room: int) -> None:
    assert width(left(text, room)) == room
    assert width(right(text, room)) == room
    assert width(cut(text, room)) <= room


@given(st.text())
def test_no_control_sequence_reaches_the_terminal(text: str) -> None:
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in plain(text))


def test_sparklines_begin_at_zero_and_leave_gaps() -> None:
    assert sparkline([0, 4, None, 8], 4) == "▁▅ █"
    assert sparkline([1.0] * 100, 10) == "█" * 10
    assert sparkline([], 10) == ""
    assert sparkline([0.0, 0.0], 10) == "▁▁"


def test_a_grid_takes_the_largest_or_the_mean() -> None:
    assert on_grid([0, 1, 2, 3], [1, 3, None, 5], 2) == [3, 5]
    assert on_grid([0, 1, 2, 3], [1, 3, None, 5], 2, mean=True) == [2, 5]
    assert on_grid([0, 9], [1, 1], 3) == [1, None, 1]


def test_what_is_no_terminal_gets_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Terminal(Screen()).style("x", "red") == "\x1b[31mx\x1b[0m"
    assert Terminal(io.StringIO()).style("x", "red") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Terminal(Screen()).style("x", "red") == "x"
