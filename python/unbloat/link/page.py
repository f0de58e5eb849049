"""The page of `unbloat fit`: the fitted rate with its band over what arrived, and the parameters."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbloat.charts.fitted_rate import CHART
from unbloat.charts.spec import Chart
from unbloat.link.model import LinkFit
from unbloat.link.text import facts, heading, interval
from unbloat.report.encode import Encoded, encode, floats, seconds
from unbloat.report.write import ReportInfo, Store, render, save
from unbloat.version import __version__

NOTES = (
    "The rate is that of IP packets. Flows in the same queue that the capture does not have take their part.",
    "Times are those of the receiver. They are known to half of a round trip.",
    "Not fitted: the congestion control of the sender, which `unbloat what-if` recognises.",
)


def write_link_page(fitted: LinkFit, path: Path) -> ReportInfo:
    """Writes the page."""
    begun = time.perf_counter()
    store, shown = rate_chart(fitted)
    name = Path(fitted.capture).name
    text = render(
        "link.html.j2",
        ("locate.js",),
        facts=shown,
        blobs=store.blobs,
        name=name,
        title=f"The slowest link: {interval(fitted.mean_bps)}",
        about=heading(fitted),
        parameters=facts(fitted),
        notes=NOTES,
        tool=f"unbloat {__version__}",
    )
    return save(text, path, begun, 1, 1)


def rate_chart(
    fitted: LinkFit,
    more: Mapping[str, Sequence[float | None]] | None = None,
    charts: Sequence[Chart] = (),
) -> tuple[Store, dict[str, Any]]:
    """What a page needs for the chart of the fitted rate: its table, and the facts of the program. `more` are columns by slot, for further
    `charts`, which come first."""
    store = Store()
    store.put("path-samples", samples(fitted, more or {}), 1)
    return store, {
        "charts": [chart.to_json() for chart in (*charts, CHART)],
        "series": [],
        "event_kinds": [],
        "tables": store.index,
        "duration_s": fitted.duration_s,
        "stem": Path(fitted.capture).name,
    }


def samples(fitted: LinkFit, more: Mapping[str, Sequence[float | None]]) -> Encoded:
    """Slot by slot."""
    count = len(fitted.seen_bps)
    arrived = list(zip(fitted.arrived_bps, fitted.queued, strict=True))
    columns: dict[str, Sequence[float | None]] = {
        "rate_bps_low": [band[0] for band in fitted.band_bps],
        "rate_bps": [band[1] for band in fitted.band_bps],
        "rate_bps_high": [band[2] for band in fitted.band_bps],
        "queued_bps": [bps if queued else None for bps, queued in arrived],
        "unqueued_bps": [None if queued else bps for bps, queued in arrived],
        **more,
    }
    times_s = [at * fitted.slot_s for at in range(count)]
    encoded = {
        "t_s": seconds(pa.array(times_s, pa.float64())),
        "span_s": seconds(pa.array([fitted.slot_s] * count, pa.float64())),
    }
    encoded |= {name: floats(pa.array(values, pa.float64())) for name, values in columns.items()}
    return encode(encoded, count)
