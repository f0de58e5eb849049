"""Whether the machine let a test's programs run when they were due: what is asked before a test that failed is tried again."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

NAP_S = 0.01
LATE_S = 0.02
"""A wake-up that is later than this counts: a ping of 90 ms may be wrong by a tenth."""
SHARE = 0.01
WORST_S = 0.2
LINK_LATE_US = 5_000


class Watch:
    """A thread that sleeps for moments on end, and notes by how much it overslept: so do the senders, readers and judges of a bed."""

    def __init__(self) -> None:
        self.late_s, self.worst_s, self.begun = 0.0, 0.0, time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._nap, daemon=True)
        self.thread.start()

    def _nap(self) -> None:
        before = time.monotonic()
        while not self.over.wait(NAP_S):
            now = time.monotonic()
            late, before = now - before - NAP_S, now
            self.worst_s = max(self.worst_s, late)
            self.late_s += late if late > LATE_S else 0.0

    def end(self) -> None:
        """No more naps."""
        self.over.set()
        self.thread.join()

    def why(self, folder: Path) -> str:
        """What speaks against the machine, by this thread and by the emulators whose files are below a folder; empty: nothing."""
        share = self.late_s / (time.monotonic() - self.begun)
        if share > SHARE or self.worst_s > WORST_S:
            return f"wake-ups were late for {share:.1%} of the time, by {1000 * self.worst_s:.0f} ms at worst"
        for books in sorted(folder.rglob("emu.json")):
            late = json.loads(books.read_text())["lateness_us"]
            if late["p99"] is not None and late["p99"] > LINK_LATE_US:
                return f"1 % of the emulator's packets were late by more than {late['p99'] / 1000:.0f} ms"
        return ""
