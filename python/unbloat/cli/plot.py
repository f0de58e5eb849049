"""What `unbloat plot` does once its arguments are read."""

from __future__ import annotations

import sys
from pathlib import Path

from unbloat.cli.inputs import open_each
from unbloat.cli.output import writing
from unbloat.run.direction import flow_of
from unbloat.text.terminal import Terminal


def plot_file(file: str, out: Path, connection: str | None, bin_ms: float) -> None:
    """`unbloat plot`"""
    from unbloat.capture.plot import plot

    [outcome] = open_each([file], merge=False, keep=True)
    if isinstance(outcome, Exception):
        raise outcome
    flow = None if connection is None else flow_of(outcome, connection)
    with writing(out):
        plot(outcome, out, flow, bin_ms)
    Terminal(sys.stdout).line(f"figure: {out}")
