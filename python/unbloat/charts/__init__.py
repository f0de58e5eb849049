"""The charts of the report, in the order in which they are shown."""

from unbloat.charts import (
    directions,
    in_flight,
    limits,
    modem_buffer,
    modem_rates,
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
    modem_rates.CHART,
    rtt.CHART,
    directions.CHART,
    queue.CHART,
    probe_rtt.CHART,
    in_flight.CHART,
    modem_buffer.CHART,
    utilisation.CHART,
    time_sequence.CHART,
    rtt_distribution.CHART,
)

__all__ = ["CHARTS", "Chart"]
