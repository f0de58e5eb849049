"""The Markov models of links are those that the traces give: the generator, run again, writes the same file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from requirements import SHARED, requires

ROOT = Path(__file__).resolve().parents[2]


@requires("traces")
def test_the_fitted_models_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.fit_links", "--check"],
        cwd=ROOT,
        env=os.environ | {"UNBLOAT_SHARED": str(SHARED)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
