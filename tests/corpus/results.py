"""What tests read of a corpus: its final files, byte for byte, and its receipts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dask_cluster import child_processes

from unbloat.corpus.ledger import Ledger
from unbloat.corpus.run import Outcome, RunOptions, run_corpus


def kills(otherwise: int) -> int:
    """How many times a test kills something: UNBLOAT_KILLS, which `make corpus-kills` sets to 20."""
    return int(os.environ.get("UNBLOAT_KILLS", otherwise))


def run(source: Path, out: Path, jobs: int = 2, **options: object) -> Outcome:
    """A run in this process."""
    return run_corpus([source], out, RunOptions(jobs=jobs, **options))  # type: ignore[arg-type]


def final(out: Path) -> dict[str, bytes]:
    """Every file of the tables."""
    folder = out / "table"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def states(out: Path) -> dict[str, str]:
    """Name of each unit's file, and its state."""
    return {Path(receipt["file"]).name: receipt["state"] for receipt in Ledger(out).each_receipt()}


def command(*arguments: object, start_new_session: bool = False) -> subprocess.Popen[str]:
    """`unbloat corpus …` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "unbloat", "corpus", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    )


def workers_of(parent: int) -> list[int]:
    """Workers of the local pool that a process started."""
    return child_processes(parent, b"corpus.worker")
