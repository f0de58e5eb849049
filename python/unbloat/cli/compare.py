"""What `unbloat compare` does once its arguments are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from unbloat.cli.output import writing
from unbloat.comparison.compare import compare
from unbloat.comparison.text import compare_screen
from unbloat.run.json import json_line
from unbloat.text.progress import Shown
from unbloat.text.terminal import Paper


def compare_files(
    files: Sequence[str],
    labels: Sequence[str] | None,
    flows: Sequence[int] | None,
    report: Path | None,
    json: bool,
) -> None:
    """`unbloat compare`"""
    with Shown() as shown:
        comparison = compare(*files, labels=labels, flows=flows or None, progress=shown)
    paper = Paper(sys.stdout)
    if json:
        paper.line(json_line(comparison.to_dict()))
    else:
        compare_screen(paper, comparison)
    if report is not None:
        with writing(report):
            comparison.write_report(report)
        (Paper(sys.stderr) if json else paper).line(f"report: {report}")
