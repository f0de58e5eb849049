"""One number of a simulated run: metrics by the names of `[[expect]]`, in a span of time where asked, and figures of the
analysis of a capture that the run wrote.

Over the whole run it is a metric of `run/metrics.py`. In a span of time it is made from the bins (of flows and queues) or
packets (of probes) in it, bins weighted by what they delivered. None: nothing was measured.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import correlation

from unbloat.claims.at_ack import at_ack
from unbloat.claims.figure import Picked
from unbloat.claims.of_probes import pause_step, queue_hop
from unbloat.claims.uplink_estimate import estimate_error, estimate_silent
from unbloat.errors import UnbloatError
from unbloat.run.figures import Figures, Statistics, statistics
from unbloat.run.metrics import METRICS, figure
from unbloat.run.run import Run
from unbloat.run.tables import Row


# A claim measures a few runs again and again; a matrix has hundreds, whose rows shall not all stay.
@lru_cache(maxsize=32)
def figures_of(run: Run) -> Figures:
    """The figures of a run, made once for all that are picked of it."""
    return Figures(run)


@lru_cache(maxsize=8)
def analysis(path: Path) -> Run:
    """The analysis of a capture, made once for all that are picked of it."""
    from unbloat.capture.analyze import analyze

    return analyze(path)


def measure(run: Run, what: Picked, captures: Path | None = None) -> float | None:
    """The number that `what` picks."""
    metric, _, statistic = what.metric.partition(" ")
    if what.capture is not None:
        if captures is None:
            raise UnbloatError(f"{what.metric}: needs the capture of {what.capture}")
        # The simulator writes pcapng, the lab's programs pcap.
        path = captures / f"{what.capture}.pcapng"
        return analysed(path if path.exists() else path.with_suffix(".pcap"), metric, statistic)
    figures = figures_of(run)
    name = named(what, metric) or first(figures, metric)
    if metric.startswith("flow_share_"):
        return share(figures, name, metric.removeprefix("flow_share_"), what.between)
    if metric in METRICS and METRICS[metric].summed and metric != "flow_retransmissions":
        return figure(figures, metric, name, None)
    if metric.startswith("app_"):
        kind = metric.removeprefix("app_")
        values = figures.app(name, kind)
        return float(len(values)) if statistic == "count" else part(statistics(values), statistic)
    if metric == "probe_pause_step":
        return pause_step(figures, name, statistic)
    if metric == "probe_queue_hop":
        return queue_hop(figures, what.between)
    if metric.startswith("estimate_error_"):
        return estimate_error(figures, name, metric.removeprefix("estimate_error_"))
    if metric.startswith("estimate_silent_"):
        return estimate_silent(figures, name, metric.removeprefix("estimate_silent_"))
    if what.between is not None:
        return windowed(figures, metric, statistic, name, what.between)
    if metric == "flow_queue_ms":
        return part(figures.transfer_queue_ms(name), statistic)
    if metric in ("qdisc_correlation", "firmware_correlation"):
        return delay_by_bytes(figures, name, metric.removesuffix("_correlation"))
    if metric in ("qdisc_acks_ms", "firmware_acks_ms"):
        return part(figures.stage_ms(name, metric.removesuffix("_ms")), statistic)
    if metric not in METRICS:
        raise UnbloatError(f"no metric is called {metric!r}")
    return figure(figures, metric, name, statistic or None)


# How metrics of a link begin; others are a probe's, or a flow's.
OF_LINK = ("queue", "qdisc", "firmware", "link", "estimate")


def named(what: Picked, metric: str) -> str | None:
    """The name that is given for what a metric speaks of; a number that is related to another has two or three."""
    if metric.startswith("probe"):
        return what.probe
    return what.link if metric.startswith(OF_LINK) else what.flow


def first(figures: Figures, metric: str) -> str:
    """What a metric speaks of where nothing is named: the first flow, probe or link."""
    if metric.startswith("probe"):
        names = figures.probes
    elif metric.startswith(OF_LINK):
        names = figures.links
    else:
        names = figures.transfers
    return names[0] if names else ""


def part(found: Statistics | None, statistic: str) -> float | None:
    """One figure of a distribution; its mean without a name."""
    if found is None:
        return None
    value: float | None = getattr(found, statistic or "mean")
    return value


def share(
    figures: Figures, flow: str, limit: str, between: tuple[float, float] | None
) -> float | None:
    """Share of time under a limit, by bins."""
    begin, end = between or (figures.warmup_s, float("inf"))
    ids = {row["id"] for row in figures.flows(flow)}
    table = figures.run.samples().select(["flow", "t_s", "span_s", "limit"]).to_pylist()
    rows = [row for row in table if row["flow"] in ids and begin <= row["t_s"] < end]
    total = sum(row["span_s"] for row in rows)
    limited = sum(row["span_s"] for row in rows if row["limit"] == limit)
    return limited / total if total else None


# Column of `samples` behind a flow's metric.
SAMPLED = {
    "flow_rtt_ms": "rtt_ms",
    "flow_queue_ms": "queue_ms",
    "flow_in_flight_bytes": "in_flight_bytes",
    "flow_rwnd_bytes": "rwnd_bytes",
    "flow_cwnd_bytes": "cwnd_bytes",
}
# … and behind its ends: a bin's mean has neither.
ENDS = {("flow_rtt_ms", "min"): "rtt_ms_min", ("flow_rtt_ms", "max"): "rtt_ms_max"}
# Stage of `queues` behind a link's metric.
STAGED = {"queue_ms": "queue", "qdisc_ms": "qdisc", "firmware_ms": "firmware"}


def windowed(
    figures: Figures, metric: str, statistic: str, name: str, between: tuple[float, float]
) -> float | None:
    """A metric in a span of time."""
    begin, end = between
    inside: Callable[[Row], bool] = lambda row: begin <= row["t_s"] < end  # noqa: E731
    if metric in ("probe_rtt_ms", "probe_owd_ms"):
        column = metric.removeprefix("probe_")
        rows = [
            row for row in figures.run.probes.to_pylist() if row["probe"] == name and inside(row)
        ]
        return part(statistics(row[column] for row in rows), statistic)
    if metric in STAGED:
        rows = [
            row for row in figures.run.queues.to_pylist() if row["link"] == name and inside(row)
        ]
        return part(
            statistics(row["delay_ms"] for row in rows if row["stage"] == STAGED[metric]), statistic
        )
    ids = {row["id"] for row in figures.flows(name)}
    rows = [row for row in figures.run.samples().to_pylist() if row["flow"] in ids and inside(row)]
    if metric == "flow_goodput_bps":
        return sum(row["delivered_bytes"] for row in rows) * 8 / (end - begin) if rows else None
    if metric == "flow_goodput_cv":
        return variation(row["goodput_bps"] for row in rows)
    if metric in ("flow_goodput_wave", "flow_goodput_lag"):
        share, lag = wave(rows, float(statistic), begin)
        return share if metric == "flow_goodput_wave" else lag
    if metric == "flow_wave_error_bps":
        period, swing = map(float, statistic.split())
        return wave_error(rows, period, swing, (begin, end))
    if metric == "flow_in_flight_cv":
        return variation(row["in_flight_bytes"] for row in rows)
    if metric == "flow_rtt_cv":
        return variation(row["rtt_ms"] for row in rows)
    if metric in SAMPLED:
        column = ENDS.get((metric, statistic), SAMPLED[metric])
        return part(statistics(row[column] for row in rows), statistic)
    raise UnbloatError(f"{metric} cannot be measured between two times")


# The highest level of a buffer status report says no more than this (3GPP TS 36.321 table 6.1.3.1-1).
REPORTED_AT_MOST = {"qdisc": math.inf, "firmware": 150_000}


def delay_by_bytes(figures: Figures, link: str, stage: str) -> float | None:
    """Correlation (Pearson) of the delay in a stage with the bytes that stand there, by bins after the warm-up."""
    pairs = [
        (min(row["bytes"], REPORTED_AT_MOST[stage]), row["delay_ms"])
        for row in figures.run.queues.to_pylist()
        if row["link"] == link
        and row["stage"] == stage
        and row["t_s"] >= figures.warmup_s
        and row["delay_ms"] is not None
    ]
    if len(pairs) < 3:
        return None
    here, waits = zip(*pairs, strict=True)
    return correlation(here, waits) if len(set(here)) > 1 and len(set(waits)) > 1 else None


def variation(found: Iterable[float | None]) -> float | None:
    """Standard deviation of the values of bins over their mean."""
    values = [value for value in found if value is not None]
    if len(values) < 2 or not sum(values):
        return None
    mean = sum(values) / len(values)
    return float((sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5 / mean)


def wave(
    rows: Sequence[Row], period_s: float, origin_s: float
) -> tuple[float | None, float | None]:
    """The goodput's wave of a period: its amplitude over the mean, and its lag in degrees behind a sine from `origin_s` on."""
    turn = 2 * math.pi / period_s
    middles = [(row["t_s"] + row["span_s"] / 2 - origin_s, row["delivered_bytes"]) for row in rows]
    total = sum(value for _, value in middles)
    if not total:
        return None, None
    sine = 2 * math.fsum(value * math.sin(turn * t) for t, value in middles) / total
    cosine = 2 * math.fsum(value * math.cos(turn * t) for t, value in middles) / total
    return math.hypot(sine, cosine), math.degrees(math.atan2(-cosine, sine)) % 360


def wave_error(
    rows: Sequence[Row], period_s: float, swing: float, between_s: tuple[float, float]
) -> float | None:
    """Amplitude of the difference between a reader and the goodput, bit/s: the reader's rate is a sine from the begin of the
    span on, of the goodput's mean and so many times that mean.
    """
    begin, end = between_s
    share, lag = wave(rows, period_s, begin)
    if share is None or lag is None:
        return None
    mean_bps = sum(row["delivered_bytes"] for row in rows) * 8 / (end - begin)
    return float(mean_bps * abs(swing - cmath.rect(share, -math.radians(lag))))


def analysed(path: Path, metric: str, statistic: str = "") -> float | None:
    """A figure of the main transfer in the analysis of a capture: a column of `flows`, `finding_RULE` (1 or 0), or bytes in
    flight at the n-th ACK (`in_flight_bytes_at_ack N`), or the most up to it (`in_flight_bytes_to_ack N`).
    """
    run = analysis(path)
    if metric in ("in_flight_bytes_at_ack", "in_flight_bytes_to_ack"):
        return at_ack(run, int(statistic), metric == "in_flight_bytes_to_ack")
    if run.main_flow is None:
        return None
    if metric.startswith("finding_"):
        rule = metric.removeprefix("finding_")
        return float(any(row["rule"] == rule for row in known_findings(run)))
    value = run.flow(run.main_flow).get(metric)
    return None if value is None else float(value)


def known_findings(run: Run) -> Iterable[Row]:
    """Findings about the main transfer, or the capture as a whole."""
    return [row for row in run.findings_of() if row["flow"] in (None, run.main_flow)]
