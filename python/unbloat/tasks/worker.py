"""What a worker of a Dask cluster runs: a function of unbloat, named by its module, from a plain dictionary to another.

Functions are pickled by name, so a worker needs unbloat itself, of the same version: another one would give other results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unbloat.version import __version__

Function = Callable[[dict[str, Any]], dict[str, Any]]
"""On the top level of a module."""

# Workers that one task may end: the first may have been ended by something else.
MAX_LOST = 2


class UnfitWorker(Exception):
    """A worker that would give other results, or leave them where the others are not. Ends the run."""


def version_here() -> str:
    """Version of unbloat at this worker."""
    return __version__


def version_fault(version: str, wanted: str) -> str | None:
    """Why a worker with this version cannot take part."""
    return None if version == wanted else f"has unbloat {version}, and {wanted} is needed"


def unfit(fault: str) -> UnfitWorker:
    """The refusal of the worker that this runs on."""
    from distributed import get_worker

    return UnfitWorker(f"{get_worker().address}: this worker {fault}")


def perform(function: Function, given: dict[str, Any], wanted: str) -> dict[str, Any]:
    """One task. Raises `UnfitWorker` where the version of unbloat is another one, which a worker that came late may have."""
    fault = version_fault(__version__, wanted)
    if fault is not None:
        raise unfit(fault)
    return function(given)
