"""The page of `unbloat locate`: delay of each segment over time in both directions, losses marked.

Each segment has a curve, each loss a cross; tables of segments, clocks and points stand in the page. It is one file that
holds everything it shows, drawn by the charts of the report.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from unbloat.charts.segment_delay import chart
from unbloat.path.tables import BACKWARD, FORWARD, PathTables
from unbloat.path.words import clock_lines, fact_lines, order_text, quality_lines, verdict
from unbloat.report import downsample
from unbloat.report.encode import codes, encode, flat, floats, seconds, steps
from unbloat.report.series import encoded_curve
from unbloat.report.write import ReportInfo, Store, render, save
from unbloat.text.format import count_text, ms_text, number, share_text

EVENT_KINDS = ["lost_forward", "lost_backward"]
Table = tuple[str, Sequence[str], list[Sequence[str]]]


def write_located(located: PathTables, path: Path) -> ReportInfo:
    """Writes the page."""
    begun = time.perf_counter()
    store = Store()
    series: list[dict[str, Any]] = []
    for direction in (FORWARD, BACKWARD):
        for segment in located.segments(direction):
            place = f"segment-{segment.row['id']}"
            store.put(place, *curve(located, segment.row["id"]))
            if place in store.index:
                series.append({"table": direction, "label": segment.name, "place": place})
    events(located, store)
    facts = {
        "charts": [
            chart(FORWARD, located.names[-1], located.way(FORWARD)).to_json(),
            chart(BACKWARD, located.names[0], located.way(BACKWARD)).to_json(),
        ],
        "series": series,
        "event_kinds": EVENT_KINDS,
        "tables": store.index,
        "duration_s": located.info["duration_s"],
        "stem": "-".join(located.names),
    }
    text = render(
        "locate.html.j2",
        ("locate.js",),
        facts=facts,
        blobs=store.blobs,
        names=located.names,
        verdict=verdict(located),
        about=order_text(located),
        warnings=located.warnings,
        segments=[segment_table(located, direction) for direction in (FORWARD, BACKWARD)],
        points=point_table(located),
        notes=[*clock_lines(located), *fact_lines(located), *quality_lines(located)],
        tool=str(located.info["tool"]),
    )
    return save(text, path, begun, len(located.connections), len(series))


def curve(located: PathTables, segment: int) -> Any:
    """Mean delay above the smallest, bin by bin; a bin in which nothing passed is a gap."""
    table = located.delays(segment)
    bin_s = float(located.info["bin_ms"]) / 1000
    times, values = table.column("t_s").to_pylist(), table.column("queue_ms").to_pylist()
    whole_times: list[float] = []
    whole: list[float | None] = []
    for t_s, value in zip(times, values, strict=True):
        if whole_times and t_s > whole_times[-1] + 1.5 * bin_s:
            whole_times.append(whole_times[-1] + bin_s)
            whole.append(None)
        whole_times.append(t_s)
        whole.append(value)
    return encoded_curve(whole_times, whole, bin_s)


def events(located: PathTables, store: Store) -> None:
    """Losses on segments as moments."""
    losses = located.tables["losses"]
    losses = losses.filter(pc.equal(losses["kind"].cast(pa.string()), "lost"))
    if not losses.num_rows:
        return
    downsampled = downsample.events(
        pa.table(
            {
                "t_s": flat(losses["t_s"]),
                "kind": pc.binary_join_element_wise(
                    "lost", losses["direction"].cast(pa.string()), "_"
                ),
                "value": pc.cast(losses["packets"], pa.float64()),
                "seq": losses["seq"],
            }
        )
    )
    part = downsampled.table
    columns = {
        "t_s": seconds(flat(part["t_s"])),
        "kind": codes(flat(part["kind"]), EVENT_KINDS),
        "value": floats(flat(part["value"])),
        "seq": steps(flat(part["seq"])),
    }
    store.put("path-events", encode(columns, part.num_rows), downsampled.factor)


def segment_table(located: PathTables, direction: str) -> Table:
    """Figures of each segment of one direction."""
    path = located.path(direction)
    rows = [*located.segments(direction), *([path] if path.row["whole_path"] else [])]
    titles = (
        "",
        "packets",
        "min delay",
        "queue p50",
        "p95",
        "p99",
        "max",
        "share",
        "lost",
        "reordered",
        "marked CE",
    )
    cells: list[Sequence[str]] = []
    for segment in rows:
        row, whole = segment.row, segment.row["whole_path"]
        cells.append(
            (
                "whole path" if whole else segment.name,
                count_text(row["packets"]),
                ms_text(row["delay_ms_min"]),
                *(ms_text(row[f"queue_ms_{part}"]) for part in ("p50", "p95", "p99", "max")),
                "" if whole else share_text(row["share"]),
                *(
                    "" if whole else count_text(row[n])
                    for n in ("lost_packets", "reordered_packets", "ecn_marked_packets")
                ),
            )
        )
    return located.way(direction), titles, cells


def point_table(located: PathTables) -> Table:
    """What each capture holds, and its clock."""
    titles = ("", "packets", "begins", "lasts", "misses", "twice", "clock", "uncertain", "drift")
    cells: list[Sequence[str]] = []
    for place, (name, row) in enumerate(zip(located.names, located.points, strict=True)):
        clock = located.clocks[place - 1] if place else None
        uncertain = None if clock is None else clock["uncertainty_ms"]
        cells.append(
            (
                name,
                count_text(row["packets"]),
                f"{number(row['start_s'])} s",
                f"{number(row['duration_s'])} s",
                count_text(row["capture_drops"]),
                count_text(row["duplicates"]),
                "–" if clock is None else f"{clock['offset_ms']:+,.3f} ms",
                "–" if uncertain is None else f"± {number(uncertain)} ms",
                "–" if clock is None else f"{clock['drift_ppm']:+.1f} ppm",
            )
        )
    return "Captures", titles, cells
