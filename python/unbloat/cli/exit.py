"""Exit codes, and how an error is printed."""

from __future__ import annotations

import sys

# A check failed, or the lab did; the arguments are wrong; an input could not be read.
FAILED, WRONG_USAGE, UNREADABLE = 1, 2, 3


def complain(error: BaseException) -> None:
    """One line on standard error."""
    from unbloat.text.terminal import plain

    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {(error.strerror or 'cannot be read').lower()}"
    else:
        text = str(error)
    print(f"unbloat: {plain(text)}", file=sys.stderr)
