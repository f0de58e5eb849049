"""`unbloat measure`: the program unbloat-measure takes this one's place, with the same words: its text, its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from unbloat.errors import UnbloatError
from unbloat.lab.requirements import found

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
