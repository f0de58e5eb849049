"""Measured cases in a file of JSON lines, so that an interrupted command goes on where it was.

A line has what names a case, `settings` (a digest of what was simulated) and `runs`. A case counts if a line has its names
and its settings; a later line of the same names takes the place of an earlier one. A line that an interruption cut off is
dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unbloat.errors import UnbloatError

Names = tuple[str, ...]


class Store:
    """The lines of a file, or of nothing where no file is given."""

    def __init__(self, path: Path | None, names: tuple[str, ...]) -> None:
        self.path, self.names = path, names
        self.lines: dict[Names, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        texts = path.read_text(encoding="utf-8").splitlines()
        for number, text in enumerate(texts, 1):
            try:
                line = json.loads(text)
                self.lines[self._key(line)] = line
            except (ValueError, KeyError, TypeError):
                if number < len(texts):
                    raise UnbloatError(f"{path}:{number}: not a line of measured runs") from None
                self._write()  # the last one, cut off

    def _key(self, line: Mapping[str, Any]) -> Names:
        return tuple(str(line[name]) for name in self.names)

    def runs(self, key: Names, settings: str) -> list[Any] | None:
        """What is stored of a case under these settings."""
        line = self.lines.get(key)
        return None if line is None or line["settings"] != settings else list(line["runs"])

    def put(self, key: Names, settings: str, runs: list[Any]) -> None:
        """A case, in memory and at the end of the file."""
        line = dict(zip(self.names, key, strict=True)) | {"settings": settings, "runs": runs}
        known = key in self.lines
        self.lines[key] = line
        if self.path is None:
            return
        if known:
            self._write()
            return
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line, ensure_ascii=False) + "\n")

    def sort(self) -> None:
        """The lines by their names, here and in the file."""
        self.lines = dict(sorted(self.lines.items()))
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines.values())
        whole = self.path.with_name(f"{self.path.name}.new")
        whole.write_text("".join(lines), encoding="utf-8")
        whole.replace(self.path)  # an interruption leaves the old file or the new one
