"""Inputs of commands: captures are analysed, stored runs opened."""

from __future__ import annotations

from collections.abc import Sequence

from unbloat.capture.analyze import analyze_each
from unbloat.errors import UnbloatError
from unbloat.run.open import is_run, open_run
from unbloat.run.run import Run
from unbloat.text.progress import ProgressBar


def open_each(files: Sequence[str], merge: bool, keep: bool) -> list[Run | OSError | UnbloatError]:
    """Stored runs opened, captures analysed, in the order given."""
    if merge:
        with ProgressBar() as progress:
            return analyze_each([files], keep, progress)
    captures = [[path] for path in files if not is_run(path)]
    if sum(path == "-" for path in files) > 1:
        raise UnbloatError("standard input (-) can be read only once")
    with ProgressBar() as progress:
        analysed = iter(analyze_each(captures, keep, progress) if captures else [])
    return [opened(path) if is_run(path) else next(analysed) for path in files]


def opened(path: str) -> Run | OSError | UnbloatError:
    """A stored run, or why it could not be read."""
    try:
        return open_run(path)
    except (OSError, UnbloatError) as error:
        return error
