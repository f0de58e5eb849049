"""Exit codes, and how an error is printed."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

# A check failed, or the lab did; the arguments are wrong; an input could not be read; it does not show what was asked.
FAILED, WRONG_USAGE, UNREADABLE, UNKNOWN = 1, 2, 3, 5


def as_program(command: Callable[[], None]) -> None:
    """Runs a command as the whole of this process, which ends once the handlers of Python have run.

    What follows otherwise are destructors of C++. Where a thread of Arrow has only just begun, as after a command that was refused
    at once, they abort the process.
    """
    code = 1

    def end() -> None:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            return  # Python names it
        os._exit(code)

    # The first that is registered is the last that runs.
    atexit.register(end)
    try:
        command()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise


def complain(error: BaseException) -> None:
    """One line on standard error."""
    from unbloat.text.terminal import plain

    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {(error.strerror or 'cannot be read').lower()}"
    else:
        text = str(error)
    print(f"unbloat: {plain(text)}", file=sys.stderr)
