"""The verdicts of the never-worse table, and which paths share a guest; without root and without a guest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.agent import guests
from bench.agent.never_worse_page import page
from bench.agent.paths import CASES

CASE = CASES[0]
LABEL = CASE.files[-1].label


def line(number: int, off: float, on: float) -> dict[str, Any]:
    """A pair in which all files take as long."""
    seconds = ({file.label: value for file in CASE.files} for value in (off, on))
    without, with_it = ({**side, "cpu_s": 0.5} for side in seconds)
    of = {"date": "2026-01-01", "commit": "0000000", "kernel": "6.12"}
    return {"path": CASE.label, "pair": number, **of, "off": without, "on": with_it}


def verdict(ratios: list[float], off: float = 1.0) -> str:
    """The last cell of a file's row."""
    text = page([line(number, off, off * ratio) for number, ratio in enumerate(ratios)])
    (row,) = (row for row in text.splitlines() if row.startswith(f"| {CASE.label} | {LABEL} |"))
    return row.split("|")[-2].strip()


@pytest.mark.parametrize(
    ("ratios", "off", "expected"),
    [
        ([1.04] * CASE.pairs, 1.0, "pass"),
        ([1.06] * CASE.pairs, 1.0, "no"),
        # A long file has the limit of goodput.
        ([1.04] * CASE.pairs, 4.0, "no"),
        ([1.01] * CASE.pairs, 4.0, "pass"),
        # The mean lies below the limit, the interval does not.
        ([0.9, 1.15] + [1.0] * (CASE.pairs - 2), 1.0, "no"),
        ([1.0] * (CASE.pairs - 1), 1.0, "not complete"),
    ],
)
def test_a_row_passes_if_its_whole_interval_lies_below_the_limit(
    ratios: list[float], off: float, expected: str
) -> None:
    assert verdict(ratios, off) == expected


def test_paths_share_a_guest_only_if_the_same_is_built() -> None:
    keys = {case.label: guests.same_states(case) for case in CASES}
    assert keys["TUN, 20 Mbit/s, 60 ms"] == keys["TUN, 20 Mbit/s, ten connections"]
    assert keys["TUN, 20 Mbit/s, 60 ms"] != keys["TUN, 20 Mbit/s, IPv6"]
    assert keys["TUN, 20 Mbit/s, 60 ms"] != keys["veth (noqueue), 20 Mbit/s behind it"]
    assert len(set(keys.values())) == len(CASES) - 5
