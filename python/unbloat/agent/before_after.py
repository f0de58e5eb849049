"""`unbloat agent run`: before and after, as a table and a page.

signal: the looks that the program streams, and its last word · model: none, sums and verdict are the program's · action: how far it is on
standard error, a table, the sentence, a page where one is wanted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unbloat.agent.client import STOPPED, Answer, Place
from unbloat.errors import AgentError
from unbloat.text.format import NOTHING, ms_text, rate_text
from unbloat.text.table import table
from unbloat.text.terminal import Terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

WAYS = ("downloads", "uploads")
PARTS = {
    "before": "before: looking",
    "settling": "cure applied, old queue drains",
    "after": "after: looking",
}


@dataclass
class Measured:
    """A run that is over."""

    looks: list[Answer] = field(default_factory=list)
    done: Answer = field(default_factory=dict)

    @property
    def moment_s(self) -> float:
        """When the cure was applied: the last look before is the nearest that is known."""
        return max(
            (float(look["t_s"]) for look in self.looks if look["part"] == "before"), default=0.0
        )

    @property
    def settled_s(self) -> float:
        """From when on looks count as after."""
        return max(
            (float(look["t_s"]) for look in self.looks if look["part"] != "after"), default=0.0
        )

    @property
    def end_s(self) -> float:
        """When it was undone."""
        return max((float(look["t_s"]) for look in self.looks), default=0.0)


def collect(place: Place, words: Sequence[str]) -> Measured:
    """All looks; nothing of the cures is left when this returns or raises."""
    measured = Measured()
    with closing(place.stream("run", "--stream", *words)) as stream, Passing() as passing:
        try:
            for event in stream:
                if event.get("event") == "look":
                    measured.looks.append(event)
                    passing.look(event)
                elif event.get("event") == "done":
                    measured.done = event
        except KeyboardInterrupt:
            stream.close()
            raise AgentError("interrupted; everything is as it was", STOPPED) from None
    if not measured.done:
        raise AgentError("unbloat-agent ended without saying what it measured")
    return measured


class Passing:
    """How far it is, on standard error; only where that is a terminal."""

    def __init__(self) -> None:
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> Passing:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            words = TextColumn("{task.description}", markup=False)
            console = Console(stderr=True)
            self.bar = Progress(
                words,
                BarColumn(bar_width=24),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self.task = self.bar.add_task("starting", total=None)
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def look(self, event: Answer) -> None:
        """Shows a look."""
        if self.bar is None or self.task is None:
            return
        flows = event["status"].get("flows") or []
        rate = sum(event["goodput_bps"][way] or 0 for way in WAYS)
        slowest = max((flow.get("rtt_ms") or 0 for flow in flows), default=None)
        text = f"{PARTS.get(event['part'], event['part'])} · {rate_text(rate)} · RTT {ms_text(slowest)}"
        self.bar.update(self.task, description=text, completed=event["t_s"], total=event["of_s"])


def rows(done: Answer) -> list[tuple[str, str, str, str]]:
    """Figure, before, after, change; of what flowed or was probed."""
    found: list[tuple[str, str, str, str]] = []
    before, after = done["before"], done["after"]
    for way in WAYS:
        if before[way]["bytes"] or after[way]["bytes"]:
            found.append(row(f"{way}, goodput", before[way], after[way], "goodput_bps", rate_text))
            for share in ("p50", "p95"):
                found.append(
                    row(f"{way}, RTT {share}", before[way], after[way], f"rtt_ms_{share}", ms_text)
                )
    if before["probe"]["count"] or after["probe"]["count"]:
        for share in ("p50", "p95"):
            found.append(
                row(
                    f"ping, RTT {share}",
                    before["probe"],
                    after["probe"],
                    f"rtt_ms_{share}",
                    ms_text,
                )
            )
    return found


def row(name: str, before: Answer, after: Answer, key: str, text: Any) -> tuple[str, str, str, str]:
    """One figure of both halves."""
    return name, text(before[key]), text(after[key]), change(before[key], after[key])


def change(before: float | None, after: float | None) -> str:
    """By how much it rose or fell, in percent."""
    if before is None or after is None or before <= 0:
        return NOTHING
    percent = (after / before - 1) * 100
    if abs(percent) < 1:
        return "same"
    return f"{'+' if percent > 0 else '−'}{abs(percent):,.0f} %"


def screen(terminal: Terminal, done: Answer) -> None:
    """The table and the sentence."""
    lines = rows(done)
    if lines:
        table(terminal, ("", "before", "after", "change"), lines)
        terminal.line()
    helped = done.get("helped")
    style = "green" if helped else "yellow" if helped is False else "bold"
    terminal.wrapped(str(done["verdict"]), terminal.style("● ", style), "  ")


def now_text() -> str:
    """The time of day at which a page was written."""
    return time.strftime("%Y-%m-%d %H:%M")
