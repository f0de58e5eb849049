"""What a traffic program logs: JSON lines, one object each.

Kinds: `connection`, `congestion` (switched in mid-run), `sample`, `app`, `probe`, `error`. Times are scenario time.
"""

from __future__ import annotations

import json
from typing import Any


class EventLog:
    """One file of JSON lines."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8", buffering=1 << 16)  # noqa: SIM115 - open as long as the run

    def write(self, kind: str, **what: Any) -> None:
        """One line."""
        self._file.write(json.dumps({"kind": kind, **what}, separators=(",", ":")) + "\n")

    def error(self, text: str) -> None:
        """Said to the user as a warning; on disk at once."""
        self.write("error", text=text)
        self.flush()

    def flush(self) -> None:
        """All lines so far are on disk."""
        self._file.flush()

    def close(self) -> None:
        """The end."""
        self._file.close()
