"""The capture and its replays over the same time, for a chart.

signal: a `WhatIf` · model: the links whose replays are nearest to the capture are replayed once more, with their RTT over time · action: the RTT of
the capture, of the nearest replay, and the smallest and the largest of some, by the slots of the fitted rate
"""

from __future__ import annotations

from statistics import mean

from unbloat.capture.analyze import analyze
from unbloat.prediction.cures import AS_IT_WAS
from unbloat.prediction.predict import WhatIf
from unbloat.prediction.replay import scenario, way_of
from unbloat.run.figures import Figures
from unbloat.run.run import Run
from unbloat.scenario.simulate import simulate

# Replays that the band spans.
REPLAYS = 5
Column = list[float | None]


def overlay(found: WhatIf) -> dict[str, Column]:
    """Columns in ms. The begin of a replay is that of the first slot."""
    fitted = found.fitted
    run = analyze(fitted.capture)
    count, slot_s = len(fitted.seen_bps), fitted.slot_s
    begin_s = fitted.start_s - run.info["start_s"]
    captured = by_slot(run, fitted.flow["id"], begin_s, slot_s, count)
    replays = []
    for link in found.nearest(REPLAYS):
        replay = simulate(scenario((link, AS_IT_WAS), way_of(fitted)), seed=link.seed)
        assert isinstance(replay, Run)
        (flow,) = Figures(replay).flows("transfer")
        replays.append(by_slot(replay, flow["id"], 0.0, slot_s, count))
    known = [
        [value for value in values if value is not None] for values in zip(*replays, strict=True)
    ]
    return {
        "captured_ms": captured,
        "replayed_ms": replays[0],
        "replayed_ms_low": [min(values, default=None) for values in known],
        "replayed_ms_high": [max(values, default=None) for values in known],
    }


def by_slot(run: Run, flow: int, begin_s: float, slot_s: float, count: int) -> Column:
    """The mean RTT of each slot from a moment on; None where no ACK came."""
    slots: list[list[float]] = [[] for _ in range(count)]
    for row in run.samples(flow=flow).select(["t_s", "span_s", "rtt_ms"]).to_pylist():
        # A sample begins at about the edge of a slot: its middle lies in one.
        middle_s = row["t_s"] + row["span_s"] / 2 - begin_s
        at = int(middle_s / slot_s) if middle_s >= 0 else -1
        if row["rtt_ms"] is not None and 0 <= at < count:
            slots[at].append(row["rtt_ms"])
    return [mean(values) if values else None for values in slots]
