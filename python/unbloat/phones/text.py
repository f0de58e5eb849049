"""What `unbloat corpus phones` prints."""

from __future__ import annotations

import json
from dataclasses import asdict

from unbloat.phones.make import Made
from unbloat.text.format import byte_text, plural
from unbloat.text.terminal import Terminal


def made_screen(terminal: Terminal, made: Made, out: str, as_json: bool) -> None:
    """Counts, and where captures and truth are."""
    if as_json:
        terminal.line(json.dumps(asdict(made)))
        return
    terminal.wrapped(
        f"{plural(made.devices, 'phone')}, {plural(made.captures, 'capture')} ({byte_text(made.bytes)}),"
        f" {plural(made.sessions, 'session')}"
    )
    terminal.line(f"truth: {out}/truth")
