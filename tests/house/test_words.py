"""The words of the project: words.json lists words to avoid, with their replacements (docs/glossary.md).

The list applies to names, comments, messages and documentation, in every language of the repository. Names are split at
underscores and capitals, so that `is_told` and `WasTold` count as `told`. A word in italics (*told*) is a quotation.

`python tests/house/test_words.py` prints what is left.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
SUFFIXES = {".rs", ".py", ".c", ".h", ".js", ".css", ".j2", ".md", ".toml", ".service", ".pyi"}
SCRIPTS = {"check", "setup", "Makefile"}
# Printed from sources that are checked themselves; the lists of words; stored results of older versions.
GENERATED = re.compile(
    r"docs/generated/|bench/RESULTS\.md|tests/house/(words\.json|test_words)|tests/python/data/"
)
QUOTATION = re.compile(r"\*[\w ]+\*")
# Where a name goes on in another word: is_told, WasTold.
JOINT = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])")
# The words of a line, those inside of names too.
LETTERS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


@dataclass
class Word:
    """A word to avoid, in its forms."""

    forms: list[str]
    use: str
    """What to write instead."""
    names: bool
    """Whether a form is the beginning of a constant's name, in capitals."""
    unless: list[re.Pattern[str]]
    """A line that contains one of these is fine."""

    def __post_init__(self) -> None:
        forms = "|".join(re.escape(form) for form in self.forms)
        self.pattern = re.compile(
            rf"\b(?:{forms})\w*" if self.names else rf"\b(?:{forms})\b",
            0 if self.names else re.I,
        )

    def found(self, line: str) -> list[str]:
        """The words of this kind in a line."""
        if any(pattern.search(line) for pattern in self.unless):
            return []
        return [match[0] for match in self.pattern.finditer(line if self.names else plain(line))]


def plain(line: str) -> str:
    """A line without quotations, its names split into words."""
    return JOINT.sub(" ", QUOTATION.sub("", line))


def words() -> list[Word]:
    """The list of words.json."""
    return [
        Word(
            entry["words"],
            entry["use"],
            bool(entry.get("names")),
            [re.compile(text, re.I) for text in entry.get("unless", [])],
        )
        for entry in json.loads((HERE / "words.json").read_text())
    ]


def files() -> Iterator[str]:
    """Tracked files with words of the project."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    for line in listed.splitlines():
        path = Path(line)
        if (path.suffix in SUFFIXES or line in SCRIPTS) and not GENERATED.match(line):
            yield line


def findings() -> list[str]:
    """File, line number, word, and what to write instead."""
    avoided = words()
    # Most lines have none: their words are looked up first.
    by_first: dict[str, list[Word]] = {}
    for word in avoided:
        for first in {re.split(r"[ _]", form)[0].lower() for form in word.forms}:
            by_first.setdefault(first, []).append(word)
    found = []
    for path in files():
        if not (ROOT / path).is_file():
            continue
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            first = {part.lower() for part in LETTERS.findall(line)} & by_first.keys()
            for word in {id(word): word for name in first for word in by_first[name]}.values():
                found += [f"{path}:{number}: {text}: write {word.use}" for text in word.found(line)]
    return found


def test_no_word_to_avoid_comes_back() -> None:
    left = findings()
    assert not left, "\n".join(left)


def test_the_list_finds_words_in_names_and_spares_quotations() -> None:
    told = words()[0]
    assert told.found("let was_told = Told(told_at);") == ["told", "Told", "told"]
    assert told.found("*told* is a word to avoid, toldo is none") == []


if __name__ == "__main__":
    print("\n".join(findings()))
