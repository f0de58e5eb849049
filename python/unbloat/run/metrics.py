"""The one table of metrics: what `[[expect]]`, claims, sweeps and comparisons call a figure of a run, and how it is found.

`METRICS` has a row per name. Expectations and claims use the name; the table of a sweep has a column for each metric with
`column`; comparisons print `label`. What a screen selects and in which order is said there, by these names. The names
that `[[expect]]` may use are checked by Rust (`crates/scenario/src/expect.rs`); a test compares both lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from unbloat.run.figures import Figures, Statistics, statistics
from unbloat.text.format import (
    LIMITS,
    byte_text,
    count_text,
    limit_text,
    ms_text,
    rate_text,
    score_text,
    seconds_text,
    share_text,
)

Figure = float | Statistics | None
On = Literal["flow", "probe", "link", "run"]
Unit = Literal["bit/s", "ms", "s", "bytes", "share", "count", "score"]
Text = Callable[[float | None], str]

TEXTS: dict[Unit, Text] = {
    "bit/s": rate_text,
    "ms": ms_text,
    "s": seconds_text,
    "bytes": byte_text,
    "share": share_text,
    "count": count_text,
    "score": score_text,
}
# Kinds of figures of an application that are summed up by a metric of their own: `stall_s` and `mos`.
SUMMED_UP = ("stall_ms", "mos", "mos_back")


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    """In `[[expect]]`, in claims and in the JSON of a comparison."""
    on: On
    """What it is measured on."""
    unit: Unit
    get: Callable[[Figures, str], Figure]
    """From the figures of a run and the name of a flow, probe or link."""
    label: str = ""
    """In a comparison of runs; empty: not shown there."""
    better: Literal["higher", "lower"] | None = "lower"
    column: str = ""
    """In the table of a sweep, behind the name of the flow, probe or link; empty: not there."""
    expected: bool = True
    """Whether `[[expect]]` may name it; others belong to claims, sweeps or comparisons alone."""
    summed: bool = False
    """Whether it is a column of `flows` added up: then claims ignore `between`."""

    @property
    def text(self) -> Text:
        """How a value is printed."""
        return TEXTS[self.unit]


def reported(kind: str) -> Callable[[Figures, str], Figure]:
    """The distribution of what an application reports under a name."""
    return lambda figures, name: statistics(figures.app(name, kind))


def summed(
    name: str,
    unit: Unit,
    flows_column: str,
    label: str = "",
    column: str = "",
    expected: bool = True,
) -> Metric:
    """A column of `flows`, all connections of a transfer together."""
    return Metric(
        name,
        "flow",
        unit,
        lambda figures, transfer: figures.sum(transfer, flows_column),
        label,
        column=column,
        expected=expected,
        summed=True,
    )


def limited_by(limit: str) -> Metric:
    """The share of time under a limit."""
    return Metric(
        f"flow_share_{limit}",
        "flow",
        "share",
        lambda figures, name: figures.share(name, limit),
        f"limit: {limit_text(limit)}",
        better=None,
    )


def staged(name: str, stage: str, column: str, expected: bool = True) -> Metric:
    """Time spent in one stage in front of a link."""
    return Metric(
        name,
        "link",
        "ms",
        lambda figures, link: figures.stage_ms(link, stage),
        column=column,
        expected=expected,
    )


def application(
    kind: str, unit: Unit = "ms", better: Literal["higher", "lower"] = "lower"
) -> Metric:
    """A distribution that an application reports."""
    return Metric(kind, "flow", unit, reported(kind), better=better)


# In the order in which the columns of a sweep's table stand.
TABLE: tuple[Metric, ...] = (
    Metric(
        "total_goodput_bps",
        "run",
        "bit/s",
        lambda figures, _: figures.total_goodput_bps(),
        better="higher",
        column="total_goodput_bps",
    ),
    Metric(
        "fairness",
        "run",
        "score",
        lambda figures, _: figures.fairness(),
        better="higher",
        column="fairness",
    ),
    Metric(
        "flow_goodput_bps",
        "flow",
        "bit/s",
        Figures.goodput_bps,
        "goodput",
        "higher",
        "goodput_bps",
    ),
    Metric("flow_rtt_ms", "flow", "ms", Figures.rtt_ms, "RTT", column="rtt_ms"),
    Metric("flow_queue_ms", "flow", "ms", Figures.transfer_queue_ms, column="queue_ms"),
    Metric(
        "flow_in_flight_bytes",
        "flow",
        "bytes",
        Figures.in_flight_bytes,
        "in flight",
        column="in_flight_bytes",
    ),
    Metric("flow_rwnd_bytes", "flow", "bytes", Figures.rwnd_bytes, better=None),
    summed("flow_retransmissions", "count", "retransmissions", "retransmitted", "retransmissions"),
    Metric("flow_retransmitted_share", "flow", "share", Figures.retransmitted_share),
    summed("flow_timeouts", "count", "timeouts"),
    Metric("flow_loss_rate", "flow", "share", Figures.loss_rate, "lost", column="loss_rate"),
    summed("flow_zero_window_count", "count", "zero_window_count", column="zero_windows"),
    summed("flow_zero_window_s", "s", "zero_window_s"),
    summed("flow_window_idle_s", "s", "window_idle_s"),
    summed("flow_window_full_s", "s", "window_full_s"),
    summed("flow_peak_bps", "bit/s", "peak_bps", expected=False),
    summed("flow_bytes", "bytes", "bytes", expected=False),
    *(limited_by(limit) for limit in LIMITS),
    application("file_ms"),
    application("response_ms"),
    application("page_load_ms"),
    application("object_ms"),
    application("first_byte_ms"),
    application("connect_ms"),
    application("bitrate_bps", "bit/s", "higher"),
    application("startup_ms"),
    application("stall_ms"),
    Metric("stall_s", "flow", "s", Figures.stall_s, "stalled in all", column="stall_s"),
    Metric("mos", "flow", "score", Figures.mos, better="higher", column="mos"),
    Metric(
        "probe_rtt_ms",
        "probe",
        "ms",
        lambda figures, name: figures.probe(name, "rtt_ms"),
        "round trip",
        column="rtt_ms",
    ),
    Metric(
        "probe_owd_ms",
        "probe",
        "ms",
        lambda figures, name: figures.probe(name, "owd_ms"),
        "one way",
        column="owd_ms",
    ),
    Metric(
        "probe_loss_rate", "probe", "share", Figures.probe_loss_rate, "lost", column="loss_rate"
    ),
    Metric("queue_bytes", "link", "bytes", Figures.link_bytes, column="queue_bytes"),
    # Behind a device both stages together; the table of a sweep has each of them.
    Metric("queue_ms", "link", "ms", Figures.link_ms),
    staged("stage_queue_ms", "queue", "queue_ms", expected=False),
    staged("qdisc_ms", "qdisc", "qdisc_ms"),
    staged("firmware_ms", "firmware", "firmware_ms"),
    Metric("queue_drops", "link", "count", Figures.drops, "dropped", column="drops"),
    Metric(
        "link_utilization",
        "link",
        "share",
        Figures.utilization,
        better="higher",
        column="utilization",
        expected=False,
    ),
    Metric("link_throughput_bps", "link", "bit/s", Figures.throughput_bps, "throughput", "higher"),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in TABLE}


def figure(figures: Figures, metric: str, name: str, statistic: str | None) -> float | None:
    """One number of a metric."""
    value = METRICS[metric].get(figures, name)
    if isinstance(value, Statistics):
        number: float | None = getattr(value, statistic or "mean")
        return number
    return value


def named_figures(figures: Figures) -> dict[str, float]:
    """Every figure of a run under the columns of a sweep's table, `NAME.figure`; what was never measured is left out."""
    found: dict[str, float] = {}

    def put(name: str, value: Figure) -> None:
        if isinstance(value, Statistics):
            for part in ("min", "mean", "p50", "p95", "p99", "max"):
                put(f"{name}_{part}", getattr(value, part))
        elif value is not None:
            found[name] = float(value)

    for metric in TABLE:
        # A transfer alone shares with no other.
        if metric.on == "run" and (metric.name != "fairness" or len(figures.transfers) > 1):
            put(metric.column, metric.get(figures, ""))
    for name in figures.transfers:
        for metric in TABLE:
            if metric.name == "stall_s":
                # Whatever an application reports, whether `[[expect]]` has a name for it or not.
                for kind in figures.app_kinds(name):
                    if kind not in SUMMED_UP:
                        put(f"{name}.{kind}", statistics(figures.app(name, kind)))
            if metric.on == "flow" and metric.column:
                put(f"{name}.{metric.column}", metric.get(figures, name))
    for on, names in (("probe", figures.probes), ("link", figures.links)):
        for name in names:
            for metric in TABLE:
                if metric.on == on and metric.column:
                    put(f"{name}.{metric.column}", metric.get(figures, name))
    return found
