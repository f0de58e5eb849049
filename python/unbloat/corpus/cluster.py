"""Units of a corpus on the workers of a Dask cluster, which write results to a folder that all of them share.

A worker that is lost takes one unit with it: that unit runs again, and the second time it is `failed`. What a lost worker
only had in its queue is not blamed (`cluster_task.py`).
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from unbloat.corpus.cluster_task import (
    ENDED_TWICE,
    MARKS,
    TOKEN,
    Surroundings,
    analyse_unit,
    look_around,
    mark_path,
)
from unbloat.corpus.ledger import Ledger, write_whole
from unbloat.corpus.pool import GRACE_S, LAST_S
from unbloat.corpus.unit import FAILED, Receipt, Unit
from unbloat.corpus.work import make_receipt
from unbloat.tasks.cluster import Cluster, Task
from unbloat.tasks.worker import MAX_LOST
from unbloat.version import __version__


class UnitCluster(Cluster):
    """Runs units; each gives one receipt."""

    # Captures are short: a worker has the next one when it is done, and few are lost with it.
    per_core = 4
    last_s = LAST_S

    def __init__(
        self,
        ledger: Ledger,
        address: str,
        jobs: int,
        options: dict[str, Any],
        finished: Callable[[Receipt], None],
        progress: Callable[[int], None],
    ) -> None:
        def receive(_: Task, receipt: Receipt) -> Sequence[Task]:
            finished(receipt)
            return ()

        super().__init__(
            address,
            jobs,
            analyse_unit,
            receive,
            self.give_up,
            lambda: progress(0),
            "; what is done is stored, the same command goes on from there",
        )
        self.ledger, self.options, self.receive = ledger, options, finished
        self.wanted = Surroundings(__version__, secrets.token_hex(16))

    def run_units(self, units: Iterable[Unit]) -> None:
        """All units. Raises `KeyboardInterrupt` after Ctrl-C, `UnbloatError` for a cluster that cannot be used."""
        out = self.ledger.out
        options = self.options | {"token": self.wanted.token}
        shutil.rmtree(out / MARKS, ignore_errors=True)
        (out / MARKS).mkdir()
        write_whole(out / TOKEN, str(self.wanted.token).encode())
        try:
            self.run(
                Task(
                    unit["key"],
                    unit["file"],
                    {"unit": unit, "options": options},
                    unit["timeout_s"] + GRACE_S,
                )
                for unit in units
            )
        finally:
            (out / TOKEN).unlink(missing_ok=True)
            shutil.rmtree(out / MARKS, ignore_errors=True)

    def ask(self, client: Any) -> dict[str, Any]:
        """Version of unbloat at every worker, and whether it shares the folder."""
        answers: dict[str, Any] = client.run(look_around, str(self.ledger.out), on_error="return")
        return answers

    def fault(self, answer: Any) -> str | None:
        """Why a worker with this answer cannot take part."""
        return Surroundings(*answer).fault(self.wanted, str(self.ledger.out))

    def executions(self, key: str) -> int:
        """How often a unit was begun and did not end."""
        try:
            return mark_path(self.ledger.out, key).stat().st_size
        except OSError:
            return 0

    def begun(self, key: str) -> bool:
        """Whether a worker has begun with a unit."""
        return self.executions(key) > 0

    def ends_workers(self, task: Task, error: Any) -> str | None:
        """The line about a unit that ends its workers; one that only waited there runs again."""
        return None if self.executions(task.key) < MAX_LOST else ENDED_TWICE

    def give_up(self, task: Task, line: str) -> None:
        """The receipt of a unit whose worker cannot write one."""
        unit = task.given["unit"]
        receipt = make_receipt(unit, FAILED, f"{task.name}: {line}", [], 0.0)
        self.ledger.write_receipt(receipt)
        mark_path(self.ledger.out, task.key).unlink(missing_ok=True)
        self.receive(receipt)
