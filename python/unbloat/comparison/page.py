"""The page that lays transfers side by side: one time axis, one curve per run, ribbons stacked, measures in a table.

Every series begins with the flow's first data, so that runs of different hours share an axis. Measures and sentences are
those of `unbloat compare`; the charts are those of the report, with several layers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from unbloat.comparison.scenario_metrics import Section
from unbloat.comparison.sides import Sides
from unbloat.report.headline import GRADES
from unbloat.report.series import run_series
from unbloat.report.write import (
    ReportInfo,
    Store,
    columns,
    directed,
    finite,
    page_facts,
    render,
    save,
)
from unbloat.run.tables import RunTables
from unbloat.text.format import seconds_text

# More curves over one another cannot be distinguished; the table has all sides.
MAX_LAYERS = 6
# A sentence for each of more sides than this is nothing that is read.
MAX_SENTENCES = 4
# Spans have one decimal: below half of it both clocks read the same.
SHOWN_SHIFT_S = 0.05


def begin(run: RunTables, flow: int) -> float:
    """When the flow's first data was sent, s."""
    samples = run.samples(connection=[flow // 2])
    own = samples.filter(pc.equal(samples["flow"], flow))
    busy = own.filter(pc.greater(own["sent_bytes"], 0))
    first = pc.min(busy["t_s"]).as_py()
    return float(first) if first is not None else 0.0


def made_warnings(run: RunTables) -> list[str]:
    """What makes figures of a scenario's run doubtful; a capture's own report describes the capture."""
    return run.warnings if run.made else []


def compared_transfer(comparison: Sides) -> str | None:
    """The name of the transfer that the measures are of, where the runs have others, too."""
    names = {side.run.flow(side.flow).get("transfer") for side in comparison.sides}
    several = any(len(side.run.info.get("transfers") or []) > 1 for side in comparison.sides)
    return str(names.pop()) if several and len(names) == 1 and None not in names else None


def write_compare(
    comparison: Sides,
    path: str | Path,
    *,
    max_segments: int = 200_000,
    title: str | None = None,
    further: Sequence[tuple[str, Sequence[str]]] = (),
    sections: Sequence[Section] = (),
) -> ReportInfo:
    """Writes the page that compares one flow of each run. `further` are more lines of the table, a text for each side;
    `sections` tables of their own, of all that a scenario names."""
    begun = time.perf_counter()
    sides, labels = comparison.sides, comparison.labels
    runs = [side.run for side in sides]
    store = Store()
    layers: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for place, side in enumerate(sides[:MAX_LAYERS]):
        run, flow = side.run, side.flow
        ids = [flow // 2]
        samples, events = run.samples(connection=ids), run.events(connection=ids)
        # Segments of several runs on one sheet would hide each other: they stay on each run's own report.
        store.put_flow(f"r{place}", flow, samples, events, None, max_segments)
        own = run_series(store.put, run, f"r{place}")
        curves += own
        findings = run.findings.filter(pc.equal(run.findings["flow"], flow))
        layers.append(
            {
                "label": side.label,
                "files": [str(file) for file in run.info.get("files", [])],
                "shift": begin(run, flow),
                "flow": {
                    name: finite(value)
                    for name, value in run.flow(flow).items()
                    if name not in ("id", "connection")
                },
                "findings": directed(columns(findings), "flow"),
                "series": own,
            }
        )
    transfer = compared_transfer(comparison)
    facts = {**page_facts(runs, curves), "layers": layers, "tables": store.index}
    table = [
        {
            "label": f"goodput of {transfer}"
            if transfer and line.measure.name == "goodput_bps"
            else line.measure.label.strip(),
            "minor": line.measure.label.startswith(" "),
            "cells": [
                {
                    "text": line.measure.text(value),
                    "best": cell in line.best,
                    "worst": cell in line.worst,
                    "grade": value if line.measure.name == "grade" else None,
                }
                for cell, value in enumerate(line.values)
            ],
        }
        for line in comparison.lines
    ]
    table += [
        {"label": label, "minor": False, "cells": [{"text": text} for text in texts]}
        for label, texts in further
    ]
    text = render(
        "compare.html.j2",
        ("compare.js",),
        facts=facts,
        blobs=store.blobs,
        labels=labels,
        grades=[(side.label, side.values.get("grade")) for side in sides],
        grade_words=GRADES,
        verdict=comparison.verdict
        if len(sides) <= MAX_SENTENCES
        else f"{len(sides)} transfers side by side",
        title=title or " against ".join(labels[:MAX_SENTENCES]),
        charted=len(layers),
        table=table,
        layers=layers,
        findings_shift=", ".join(
            f"{layer['label']} {seconds_text(layer['shift'])} earlier"
            for layer in layers
            if layer["findings"].get("rule") and layer["shift"] >= SHOWN_SHIFT_S
        ),
        sections=sections,
        warnings=[
            (label, warning)
            for label, run in zip(labels, runs, strict=True)
            for warning in made_warnings(run)
        ],
        tool=str(runs[0].info.get("tool", "unbloat")),
    )
    return save(text, path, begun, len(sides), len(sides))
