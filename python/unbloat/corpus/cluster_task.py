"""What a worker of Dask runs for a corpus: `look_around` before the start, then `analyse_unit` for each unit.

Results are written to a folder that all workers share. Every execution of a unit leaves a mark there
until it has ended. A mark that is there already says that a worker died, or was lost, while it ran this unit: Dask alone
cannot say so, since it suspects every unit that waited at a lost worker.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbloat.corpus.ledger import Ledger
from unbloat.corpus.unit import FAILED, Receipt, Unit
from unbloat.corpus.work import make_receipt, work
from unbloat.tasks.memory import lean_memory
from unbloat.tasks.worker import MAX_LOST, unfit, version_fault
from unbloat.version import __version__

# In the folder of results, while a run goes on: what every worker has to see, and the marks.
TOKEN, MARKS = "shared", "begun"
# Of a unit whose workers died.
ENDED_TWICE = "its worker was ended, twice"


@dataclass(frozen=True)
class Surroundings:
    """What a worker has to have, and has."""

    version: str
    token: str | None
    """Content of the token in the folder of results; None where it is not there or cannot be written beside."""

    def fault(self, wanted: Surroundings, out: str) -> str | None:
        """Why a worker with these cannot take part."""
        if self.version != wanted.version:
            return version_fault(self.version, wanted.version)
        if self.token != wanted.token:
            return (
                f"does not share {out}: results have to be written to a folder that all workers see"
            )
        return None


def look_around(out: str) -> tuple[str, str | None]:
    """Version of unbloat here, and the token as it is here."""
    try:
        token = (Path(out) / TOKEN).read_text()
    except OSError:
        return __version__, None
    return __version__, token if os.access(out, os.W_OK | os.X_OK) else None


def mark_path(out: Path, key: str) -> Path:
    """Where executions of a unit are counted."""
    return out / MARKS / key


def analyse_unit(given: dict[str, Any]) -> Receipt:
    """`work` of a unit, and before it what makes sure that it is right here. Raises `UnfitWorker`."""
    unit: Unit = given["unit"]
    options: dict[str, Any] = given["options"]
    out = options["out"]
    here = Surroundings(*look_around(out))
    fault = here.fault(Surroundings(__version__, options["token"]), out)
    if fault is not None:
        raise unfit(fault)
    # This worker may be one of a cluster that does other work as well.
    give_back = lean_memory()
    mark = mark_path(Path(out), unit["key"])
    # The server of a shared folder appends, whatever this machine remembers of the folder.
    with mark.open("ab", buffering=0) as file:
        file.write(b".")
        tries = os.fstat(file.fileno()).st_size
    if tries > MAX_LOST:
        receipt = make_receipt(unit, FAILED, f"{unit['file']}: {ENDED_TWICE}", [], 0.0)
        Ledger(Path(out)).write_receipt(receipt)
    else:
        settings = {**options, "timeout_s": unit["timeout_s"]}
        receipt = work(unit | {"tries": tries}, settings)
    mark.unlink(missing_ok=True)
    give_back()
    return receipt
