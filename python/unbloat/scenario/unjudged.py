"""Algorithms that no outside implementation was a judge of: whatever shows their results says so.

The table of algorithms knows them (`judged` of `_native.algorithms`). Here their names get a mark in figures, tables and
columns, and a page that has one gets the sentence that says what the mark means.
"""

from __future__ import annotations

import re
from functools import cache

MARK = "unjudged"
MEANING = (
    f"*{MARK}*: no outside implementation, neither a kernel's nor another simulator's, was a judge of this"
    " algorithm. Its figures are this project's reading of its specification alone."
)


@cache
def names() -> re.Pattern[str]:
    """As scenarios and people write them: `bbr3`, and `BBRv3`, with which its description begins."""
    import unbloat._native as _native

    found = [
        word
        for one in _native.algorithms()
        if not one["judged"]
        for word in (str(one["name"]), str(one["about"]).partition(":")[0])
    ]
    # Without any name nothing is marked.
    words = "|".join(map(re.escape, found)) or "(?!)"
    return re.compile(rf"(?<![\w-])({words})(?![\w-])(?! \({MARK}\))")


def marked(text: str) -> str:
    """The text with a mark behind each name of such an algorithm."""
    return names().sub(rf"\1 ({MARK})", text)


def meaning(text: str) -> str:
    """What the mark means, as a paragraph, where a page has it; empty otherwise."""
    return f"\n{MEANING}\n" if f"({MARK})" in text else ""
