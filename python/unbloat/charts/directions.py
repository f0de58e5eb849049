"""Queueing delay by direction: whether data or ACKs wait."""

from unbloat.charts.spec import BREAK_S, Chart, Line

CHART = Chart(
    name="directions",
    title="Queueing delay by direction",
    about="What data waited on its way, and what ACKs waited on theirs, beyond the smallest delay of each; by the timestamps of both hosts, mean per bin.",
    unit="ms",
    marks=(
        Line("data_queue_ms", "data", "orange", width=1.75, overlay=True, bridge_s=BREAK_S),
        Line("ack_queue_ms", "ACKs", "blue", width=1.25, bridge_s=BREAK_S),
    ),
    needs=("samples.t_s", "samples.data_queue_ms"),
    rules=("buffer-size",),
    only_with="data_queue_ms_count",
    figures=(
        ("Data, median", "data_queue_ms_p50"),
        ("Data p95", "data_queue_ms_p95"),
        ("Data, longest", "data_queue_ms_max"),
        ("ACKs, median", "ack_queue_ms_p50"),
        ("ACKs p95", "ack_queue_ms_p95"),
        ("ACKs, longest", "ack_queue_ms_max"),
        ("Tick of the timestamps", "timestamp_tick_ms"),
    ),
)
