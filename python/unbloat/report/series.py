"""Curves of a whole run: what waited in each queue, what each probe measured, what each transfer delivered and its RTT.

They come from `queues`, `probes` and `samples` of the run of a scenario. A queue without a row in a bin was empty, so its delay was
0; a bin in which packets waited and none left has no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from unbloat.report.downsample import MAX_BINS
from unbloat.report.encode import codes, encode, floats, seconds, steps
from unbloat.text.format import direction_id

if TYPE_CHECKING:
    from unbloat.report.encode import Encoded
    from unbloat.run.tables import RunTables

# More curves than colours cannot be distinguished; those with the longest delays are drawn.
MAX_CURVES = 6
# As many transfers as there are colours; those with the most bytes are drawn, and the chart says how many are not.
MAX_TRANSFERS = 8
# A queue that never held a packet for longer than this has no curve.
MIN_DELAY_MS = 0.1

# Distance of samples of a modem's buffer, and what is more than the variation of their times: a record is missing.
SAMPLE_S, MISSING_S = 0.001, 0.005
# Columns of `modem_rates` that have a curve.
RATES = (
    ("modem_bytes", "grants less padding"),
    ("padding_bytes", "padding"),
    ("captured_bytes", "packets that the host sent"),
    ("phy_bytes", "physical layer, with retransmissions"),
)

Points = tuple[list[float], list[float | None], float | None]
"""Times, values, length of a bin (None: moments)."""


def run_series(
    put: Callable[[str, Encoded, int], None], run: RunTables, key: str
) -> list[dict[str, Any]]:
    """Packs the curves of a run; what the page must know to find them."""
    found: list[dict[str, Any]] = []
    goodput, rtt = transfer_curves(run)
    for table, curves in (
        ("queues", queue_curves(run.extra, run.info)),
        ("probes", probe_curves(run.extra)),
        ("transfer_goodput", goodput),
        ("transfer_rtt", rtt),
        ("modem_buffer", buffer_curves(run.modem)),
        ("modem_rates", rate_curves(run.modem)),
    ):
        for place, (label, points) in enumerate(curves):
            encoded, factor = encoded_curve(*points)
            name = f"{key}-{table}-{place}"
            put(name, encoded, factor)
            found.append({"table": table, "label": label, "place": name})
    return found


def transfer_flows(run: RunTables) -> list[tuple[str, int]]:
    """The flows that carry the data of the transfers, with their labels, most bytes first; none where one flow is all there is."""
    if not run.extra or "transfer" not in run.flows.column_names:
        return []
    columns = (run.flows.column(name).to_pylist() for name in ("id", "transfer", "bytes"))
    rows = [row for row in zip(*columns, strict=True) if row[1] is not None]
    rows.sort(key=lambda row: (-(row[2] or 0), row[0]))
    names = [name for _, name, _ in rows]
    return (
        [
            (name if names.count(name) == 1 else f"{name}, connection {direction_id(flow)}", flow)
            for flow, name, _ in rows
        ]
        if len(rows) > 1
        else []
    )


def transfer_curves(
    run: RunTables,
) -> tuple[list[tuple[str, Points]], list[tuple[str, Points]]]:
    """Goodput and RTT per bin of the largest transfers. A bin without a row delivered nothing, and measured none."""
    chosen = transfer_flows(run)[:MAX_TRANSFERS]
    if not chosen:
        return [], []
    samples = run.samples(connection=sorted({flow // 2 for _, flow in chosen}))
    goodput: list[tuple[str, Points]] = []
    rtt: list[tuple[str, Points]] = []
    for label, flow in sorted(chosen, key=lambda one: one[1]):
        own = samples.filter(pc.equal(samples["flow"], flow))
        columns = (
            own.column(name).to_pylist() for name in ("t_s", "span_s", "delivered_bytes", "rtt_ms")
        )
        rows = sorted(zip(*columns, strict=True))
        if not rows:
            continue
        times = [row[0] for row in rows]
        rates = [row[2] * 8 / row[1] if row[1] > 0 else None for row in rows]
        span = float(run.info["bin_ms"]) / 1000
        goodput.append((label, without_rows(times, rates, span)))
        rtt.append((label, (times, [row[3] for row in rows], span)))
    return goodput, rtt


def without_rows(times: list[float], rates: list[float | None], span: float) -> Points:
    """Zeros at both ends of each gap between bins, so that the curve stays at 0 in it."""
    at: list[float] = []
    values: list[float | None] = []
    for t, rate in zip(times, rates, strict=True):
        if at and t - at[-1] > 1.5 * span:
            at += [at[-1] + span, t - span]
            values += [0.0, 0.0]
        at.append(t)
        values.append(rate)
    return at, values, span


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


def buffer_curves(modem: Mapping[str, pa.Table]) -> list[tuple[str, Points]]:
    """Bytes in the modem; where samples are missing the curve has a gap."""
    if "modem_buffer" not in modem:
        return []
    times: list[float] = []
    values: list[float | None] = []
    columns = (modem["modem_buffer"][name].to_pylist() for name in ("t_s", "bytes"))
    for t_s, size in zip(*columns, strict=True):
        if times and t_s - times[-1] > MISSING_S:
            times.append(times[-1] + SAMPLE_S)
            values.append(None)
        times.append(t_s)
        values.append(size)
    return [("in the modem", (times, values, None))]


def rate_curves(modem: Mapping[str, pa.Table]) -> list[tuple[str, Points]]:
    """What the modem sent, and the packets that the host sent; a curve for each column that is known."""
    if "modem_rates" not in modem:
        return []
    table = modem["modem_rates"]
    times, spans = table["t_s"].to_pylist(), table["span_s"].to_pylist()
    curves: list[tuple[str, Points]] = []
    for column, label in RATES:
        values = table[column].to_pylist()
        if any(value for value in values):
            rates = [value * 8 / span for value, span in zip(values, spans, strict=True)]
            curves.append((label, (times, rates, spans[0])))
    return curves


def encoded_spans(rows: Sequence[tuple[float, str, float]], kinds: Sequence[str]) -> Encoded:
    """Spans and moments as events: when each begins, its kind, its length; all in seconds."""
    columns = {
        "t_s": seconds(pa.array([row[0] for row in rows], pa.float64())),
        "kind": codes(pa.array([row[1] for row in rows], pa.string()), list(kinds)),
        "value": floats(pa.array([row[2] for row in rows], pa.float64())),
        "seq": steps(pa.array([0 for _ in rows], pa.int64())),
    }
    return encode(columns, len(rows))


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
