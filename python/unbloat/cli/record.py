"""What `unbloat record` does once its arguments are read."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from unbloat.cli.output import writing
from unbloat.errors import UnbloatError
from unbloat.recording.guide import this_system
from unbloat.recording.record import QUIET_S, record
from unbloat.recording.text import guide_screen, recorded
from unbloat.text.terminal import Terminal

LENGTH = re.compile(r"(\d+(?:\.\d+)?)(s|min)?")


def seconds(text: str) -> float:
    """`40`, `40s` or `2min`."""
    found = LENGTH.fullmatch(text)
    if found is None:
        raise UnbloatError(f"--for {text}: expected seconds, as 40s or 2min")
    return float(found[1]) * (60 if found[2] == "min" else 1)


def show_or_record(
    file: Path | None, system: str | None, length: str, host: str, interface: str | None
) -> None:
    """Without a file the steps for a system; with one the recording."""
    terminal = Terminal(sys.stdout)
    if file is None:
        guide_screen(terminal, system or this_system())
        return
    if system is not None:
        raise UnbloatError("--on shows the steps of a system and takes no FILE")
    span = seconds(length)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with writing(file):
        done = record(
            file,
            span,
            host,
            interface,
            lambda device: say(
                f"recording {device} with a ping to {host}; leave the connection idle for {QUIET_S:g} s"
            ),
            lambda: say(
                f"now start the upload or download that lags; {span - QUIET_S:g} s, Ctrl-C ends it earlier"
            ),
        )
    recorded(terminal, done)
