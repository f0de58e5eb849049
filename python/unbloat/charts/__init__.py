"""The charts of the report, in the order in which they are shown."""

from unbloat.charts import (
    in_flight,
    limits,
    probe_rtt,
    queue,
    rtt,
    rtt_distribution,
    throughput,
    time_sequence,
    transfers,
    utilisation,
)
from unbloat.charts.spec import Chart

CHARTS: tuple[Chart, ...] = (
    transfers.GOODPUT,
    transfers.RTT,
    limits.CHART,
    throughput.CHART,
    rtt.CHART,
    queue.CHART,
    probe_rtt.CHART,
    in_flight.CHART,
    utilisation.CHART,
    time_sequence.CHART,
    rtt_distribution.CHART,
)

__all__ = ["CHARTS", "Chart"]
