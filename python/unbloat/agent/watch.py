"""`unbloat agent watch`: status twice a second, until q, Ctrl-C, or the time that was given.

signal: the program's status · model: the last RTTs of each connection · action: a screen of its own on a terminal, which is as it was
afterwards; elsewhere one look below the other.
"""

from __future__ import annotations

import io
import os
import select
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from unbloat.agent.client import Answer, Place
from unbloat.agent.text import SPARK, flow_key, status_screen
from unbloat.text.terminal import Terminal, cut, plain, sparkline

EVERY_S = 0.5
Wait = Callable[[float], bool]
LOG_LINES = 6
LEAVE = "q leaves"


class History:
    """The last RTTs of each connection."""

    def __init__(self) -> None:
        self.rtts: dict[str, deque[float | None]] = {}

    def look(self, answer: Answer) -> None:
        """Remembers a look; a connection that is gone is forgotten."""
        found: dict[str, deque[float | None]] = {}
        for flow in answer.get("flows") or []:
            key = flow_key(flow)
            found[key] = self.rtts.get(key) or deque(maxlen=SPARK)
            found[key].append(flow.get("rtt_ms"))
        self.rtts = found

    def sparks(self) -> dict[str, str]:
        """A sparkline of each."""
        return {key: sparkline(list(values), SPARK) for key, values in self.rtts.items()}


def frame(terminal: Terminal, answer: Answer, sparks: Mapping[str, str], rows: int) -> None:
    """One look: what status prints, and the last lines of the log."""
    log = [str(line) for line in answer.get("log") or []][-LOG_LINES:]
    status_screen(terminal, answer, sparks, max(rows - len(log) - 1, 1) if rows else 0)
    if log:
        terminal.line()
    for line in log:
        terminal.line(terminal.style(cut(plain(line), terminal.width), "dim"))


def watch_agent(place: Place, lasting_s: float | None) -> None:
    """Watches; the first look has to succeed."""
    answer = place.ask("status")
    if not sys.stdout.isatty():
        for look, history in looks(place, answer, lasting_s, slept):
            terminal = Terminal(sys.stdout)
            frame(terminal, look, history.sparks(), 0)
            terminal.line()
            sys.stdout.flush()
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with leaving(), keys() as left, Live(console=console, screen=True, auto_refresh=False) as live:
        for look, history in looks(place, answer, lasting_s, left):
            size = shutil.get_terminal_size()
            terminal = Terminal(sys.stdout)
            terminal.stream = drawn = io.StringIO()
            frame(terminal, look, history.sparks(), size.lines - 2)
            terminal.line(terminal.style(LEAVE, "dim"))
            live.update(
                Text.from_ansi(drawn.getvalue(), no_wrap=True, overflow="crop"), refresh=True
            )


def slept(span_s: float) -> bool:
    """Waits, where there are no keys that could end it."""
    time.sleep(span_s)
    return False


def looks(
    place: Place, answer: Answer, lasting_s: float | None, wait: Wait
) -> Iterator[tuple[Answer, History]]:
    """Look after look; `wait` says whether to stop."""
    begun = time.monotonic()
    history = History()
    while True:
        history.look(answer)
        yield answer, history
        rest = EVERY_S if lasting_s is None else min(EVERY_S, begun + lasting_s - time.monotonic())
        if rest <= 0 or wait(rest):
            return
        answer = place.ask("status")


def leaves(pressed: bytes) -> bool:
    """q among the keys, escape by itself, or a terminal that is gone."""
    return not pressed or pressed == b"\x1b" or b"q" in pressed.lower()


@contextmanager
def keys() -> Iterator[Wait]:
    """Waits for a key, and says whether it was q; a terminal does not show keys meanwhile, and has its settings back afterwards."""
    if not sys.stdin.isatty():
        yield slept
        return
    import termios
    import tty

    kept = termios.tcgetattr(sys.stdin)

    def wait(span: float) -> bool:
        end = time.monotonic() + span
        while (rest := end - time.monotonic()) > 0:
            ready, _, _ = select.select([sys.stdin], [], [], rest)
            if ready and leaves(os.read(sys.stdin.fileno(), 64)):
                return True
        return False

    tty.setcbreak(sys.stdin)
    try:
        yield wait
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)


@contextmanager
def leaving() -> Iterator[None]:
    """Ctrl-C leaves as q does; other signals that end a program let it tidy up the terminal first."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    kept = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
