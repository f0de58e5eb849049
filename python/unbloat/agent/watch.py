"""`unbloat agent watch`: status twice a second, until q, Ctrl-C, or the time that was given.

The text is the program's; the RTT history of each connection is added here. A terminal shows it on a screen of its own and is restored
afterwards; elsewhere the samples are printed one below the other.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unbloat.agent.client import Answer, Place
from unbloat.agent.flows import flow_key
from unbloat.text.table import GAP
from unbloat.text.terminal import Terminal, cut, left, plain, sparkline, width, wrap

EVERY_S = 0.5
Wait = Callable[[float], bool]
LOG_LINES = 6
LEAVE = "q leaves"
# Cells of a sparkline: of two samples a second, the last 12 s.
SPARK = 24


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

    def spark(self, flow: Answer) -> str:
        """The sparkline of a connection."""
        return sparkline(list(self.rtts[flow_key(flow)]), SPARK)


def frame(terminal: Terminal, answer: Answer, history: History, rows: int) -> str:
    """One sample: the text of `status`, the history of each RTT, and the last lines of the log, in `rows` lines (0: any number)."""
    text = [plain(line) for line in str(answer.get("text") or "").splitlines()]
    # The last lines are the connections, the fastest first.
    flows = sorted(answer.get("flows") or [], key=lambda flow: -(flow.get("rate_bps") or 0))
    place = max(len(text) - len(flows), 0)
    lines = [part for line in text[:place] for part in wrap(line, terminal.width)]
    log = [plain(str(line)) for line in answer.get("log") or []][-LOG_LINES:]
    label = max(map(width, text[place:]), default=0)
    beside = label + GAP + SPARK <= terminal.width
    # Below the connections: how many are left out, a blank line, the log.
    room = (rows - len(lines) - len(log) - 2) // (1 if beside else 2) if rows else len(flows)
    for line, flow in zip(text[place:], flows[: max(room, 1)], strict=False):
        spark = " " * GAP + history.spark(flow)
        lines += [left(line, label) + spark] if beside else [cut(line, terminal.width), spark]
    if max(room, 1) < len(flows):
        lines.append(terminal.style(f"… and {len(flows) - max(room, 1)} more", "dim"))
    lines += [""] if log else []
    return "\n".join(
        [*lines, *(terminal.style(cut(line, terminal.width), "dim") for line in log), ""]
    )


def watch_agent(place: Place, lasting_s: float | None) -> None:
    """Watches; the first look has to succeed."""
    answer = place.ask("status", "--text")
    if not sys.stdout.isatty():
        for look, history in looks(place, answer, lasting_s, slept):
            print(frame(Terminal(sys.stdout), look, history, 0), flush=True)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with leaving(), keys() as left, Live(console=console, screen=True, auto_refresh=False) as live:
        for look, history in looks(place, answer, lasting_s, left):
            terminal = Terminal(sys.stdout)
            drawn = frame(terminal, look, history, shutil.get_terminal_size().lines - 2)
            drawn += terminal.style(LEAVE, "dim")
            live.update(Text.from_ansi(drawn, no_wrap=True, overflow="crop"), refresh=True)


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
        answer = place.ask("status", "--text")


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
