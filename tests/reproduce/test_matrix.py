"""docs/matrix.md is what the two matrix claims measure: UNBLOAT_BLESS=1 writes it."""

from __future__ import annotations

import os
from pathlib import Path

from unbloat.reproduce import Outcome, reproduce
from unbloat.reproduce_page import table_cells

PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"
INTRODUCTION = """\
# Every cure on every link

One bulk transfer, and beside it a web page every ten seconds, a call and a ping, in the simulator; what varies is the link
and the cure. `ping` is its round trip, 50 ms of which are the path; `page` is the mean time until a page is there, `pages`
how many were there at the end; `MOS` is the call's, from 1 to 4.5. Means over three seeds; the links are the same for every
cure. What the cures are told, and what is our choice, is written in the scenario files.

Written by `tests/reproduce/test_matrix.py` from `unbloat reproduce beyond-matrix`.
"""


def markdown(outcome: Outcome) -> str:
    cells = table_cells(outcome.claim, outcome.table)
    assert cells is not None
    headings, rows = cells
    lines = [
        f"\n## {outcome.claim.title}\n\n[{outcome.claim.id}.toml](../scenarios/{outcome.claim.id}.toml)\n"
    ]
    for link in dict.fromkeys(row[0] for row in rows):
        lines += [
            f"\n### {link}\n\n",
            f"| {' | '.join(headings[1:])} |\n",
            "|---" + "|--:" * (len(headings) - 2) + "|\n",
        ]
        lines += [f"| {' | '.join(row[1:])} |\n" for row in rows if row[0] == link]
    return "".join(lines)


def test_the_matrix_in_the_manual_is_what_is_measured() -> None:
    outcomes = reproduce(["beyond-matrix"])
    first = {outcome.claim.id: outcome for outcome in reversed(outcomes)}
    text = INTRODUCTION + "".join(markdown(first[name]) for name in sorted(first, reverse=True))
    if os.environ.get("UNBLOAT_BLESS"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text
    assert [f"{o.figure.name}: {o.value}" for o in outcomes if o.surprising] == []
