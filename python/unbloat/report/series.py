"""Curves of a whole run: what waited in each queue, what each probe measured.

They come from `queues` and `probes` of the run of a scenario. A queue without a row in a bin was empty, so its delay was
0; a bin in which packets waited and none left has no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unbloat.report.downsample import MAX_BINS
from unbloat.report.encode import encode, floats, seconds

if TYPE_CHECKING:
    from unbloat.report.encode import Encoded

# More curves than colours cannot be distinguished; those with the longest delays are drawn.
MAX_CURVES = 6
# A queue that never held a packet for longer than this has no curve.
MIN_DELAY_MS = 0.1

Points = tuple[list[float], list[float | None], float | None]
"""Times, values, length of a bin (None: moments)."""


def run_series(
    put: Callable[[str, Encoded, int], None],
    extra: Mapping[str, pa.Table],
    info: Mapping[str, Any],
    key: str,
) -> list[dict[str, Any]]:
    """Packs the curves of a run; what the page must know to find them."""
    found: list[dict[str, Any]] = []
    for table, curves in (("queues", queue_curves(extra, info)), ("probes", probe_curves(extra))):
        for place, (label, points) in enumerate(curves):
            encoded, factor = encoded_curve(*points)
            name = f"{key}-{table}-{place}"
            put(name, encoded, factor)
            found.append({"table": table, "label": label, "place": name})
    return found


def queue_curves(
    extra: Mapping[str, pa.Table], info: Mapping[str, Any]
) -> list[tuple[str, Points]]:
    """Mean delay per bin of each stage in which anything waited."""
    if "queues" not in extra:
        return []
    bin_s = float(info["bin_ms"]) / 1000
    bins = max(round(float(info["duration_s"]) / bin_s), 1)
    rows: dict[tuple[str, str], list[tuple[int, float | None, int]]] = {}
    names = ("link", "stage", "t_s", "delay_ms", "packets")
    columns = (extra["queues"].column(name).to_pylist() for name in names)
    for link, stage, t_s, delay, packets in zip(*columns, strict=True):
        rows.setdefault((link, stage), []).append((round(t_s / bin_s), delay, packets))
    curves: list[tuple[float, str, Points]] = []
    for (link, stage), held in rows.items():
        values: list[float | None] = [0.0] * bins
        for place, delay, packets in held:
            if place < bins:
                values[place] = None if delay is None and packets else delay or 0.0
        longest = max((value for value in values if value is not None), default=0.0)
        if longest >= MIN_DELAY_MS:
            label = link if stage == "queue" else f"{link} {stage}"
            curves.append(
                (longest, label, ([place * bin_s for place in range(bins)], values, bin_s))
            )
    curves.sort(key=lambda curve: -curve[0])
    return [(label, points) for _, label, points in curves[:MAX_CURVES]]


def probe_curves(extra: Mapping[str, pa.Table]) -> list[tuple[str, Points]]:
    """Round trips, or one-way delays, of each probe; a lost packet leaves a gap."""
    if "probes" not in extra:
        return []
    found: dict[str, tuple[list[float], list[float | None]]] = {}
    columns = (
        extra["probes"].column(name).to_pylist() for name in ("probe", "t_s", "rtt_ms", "owd_ms")
    )
    for probe, t_s, rtt, owd in zip(*columns, strict=True):
        times, values = found.setdefault(probe, ([], []))
        times.append(t_s)
        values.append(owd if rtt is None else rtt)
    return [
        (probe, (times, values, None))
        for probe, (times, values) in list(found.items())[:MAX_CURVES]
    ]


def encoded_curve(
    times: Sequence[float], values: Sequence[float | None], span: float | None
) -> tuple[Encoded, int]:
    """One curve; beyond the page's cap neighbours become one, which keeps the largest value."""
    factor = -(-len(times) // MAX_BINS)
    if factor > 1:
        groups = [values[start : start + factor] for start in range(0, len(values), factor)]
        values = [max((one for one in group if one is not None), default=None) for group in groups]
        times = times[::factor]
    columns = {
        "t_s": seconds(pa.array(times, pa.float64())),
        "value": floats(pa.array(values, pa.float64())),
        "span_s": floats(pa.array([(span or 0.0) * factor] * len(times), pa.float64())),
    }
    return encode(columns, len(times)), factor
