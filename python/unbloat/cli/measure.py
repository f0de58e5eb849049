"""`unbloat measure`: the program unbloat-measure takes this one's place, with the same words: its text, its exit code.

`unbloat measure history` shows the results that it kept.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from unbloat.errors import UnbloatError
from unbloat.lab.requirements import found
from unbloat.measured.history import history_json, history_screen, read_history
from unbloat.text.terminal import Terminal

NAME = "unbloat-measure"


def become(words: Sequence[str]) -> NoReturn:
    """Replaces this process by the program."""
    program = found(NAME)
    if program is None:
        raise UnbloatError(
            f"{NAME} is not there: it comes with unbloat; UNBLOAT_MEASURE may name it"
        )
    sys.stdout.flush()
    try:
        os.execv(program, [program, *words])
    except OSError as error:
        why = (error.strerror or "cannot be run").lower()
        raise UnbloatError(f"{program}: {why}") from None


def show_history(file: Path, as_json: bool) -> None:
    """Prints the results in a file."""
    results = read_history(file)
    if as_json:
        print(json.dumps(history_json(results), ensure_ascii=False))
    else:
        history_screen(Terminal(sys.stdout), results)
