"""How far the analysis is, on standard error: only on a terminal, and only when it takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Shorter runs need no bar; one that flashes by only disturbs.
SHOW_AFTER_S = 2.0


class ProgressBar:
    """A progress callback for `analyze` and `simulate` that draws a bar when it is worth one."""

    def __init__(self, what: str = "reading") -> None:
        self.what = what
        self.begin = time.monotonic()
        self.visible = sys.stderr.isatty()
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def __call__(self, done: int, total: int) -> None:
        """Bytes read (or steps done), bytes in all (0 when that is not known)."""
        if not self.visible or time.monotonic() - self.begin < SHOW_AFTER_S:
            return
        if self.bar is None or self.task is None:
            self._open()
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, total=total or None)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TaskProgressColumn,
            TimeRemainingColumn,
        )

        amount = DownloadColumn() if self.what == "reading" else TaskProgressColumn()
        columns = (BarColumn(), amount, TimeRemainingColumn())
        self.bar = Progress(self.what, *columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(self.what)
        self.bar.start()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Takes the bar away: what it showed is over."""
        if self.bar is not None:
            self.bar.stop()
            self.bar, self.visible = None, False
