"""Round-trip time: how much queue stands in the way."""

from unbloat.charts.spec import BREAK_S, Band, Chart, Level, Line

# 30 ms is where the analysis begins to speak of a standing queue (limit `bufferbloat`, grade B).
QUEUE_MS = 30.0

CHART = Chart(
    name="rtt",
    title="Round-trip time",
    about="Smallest, mean and largest RTT per bin. What lies above the path's minimum is waiting in queues.",
    unit="ms",
    marks=(
        Band("rtt_ms_min", "rtt_ms_max", "smallest to largest", "orange"),
        Line("rtt_ms", "mean", "orange", width=1.75, overlay=True, bridge_s=BREAK_S),
        Level("initial_rtt_ms", "handshake", "blue", dash=(2, 3)),
        Level("rtt_ms_min", "path minimum", "green", dash=(8, 3)),
        Level("rtt_ms_min", "minimum + 30 ms", "red", plus=QUEUE_MS),
    ),
    needs=("samples.t_s", "samples.rtt_ms"),
    rules=("bufferbloat", "rtt-inflation-other-flow", "radio-promotion"),
    figures=(
        ("Handshake RTT", "initial_rtt_ms"),
        ("Smallest RTT", "rtt_ms_min"),
        ("Median RTT", "rtt_ms_p50"),
        ("RTT p95", "rtt_ms_p95"),
        ("Largest RTT", "rtt_ms_max"),
        ("Median RTT under load", "loaded_rtt_ms_p50"),
        ("Added delay p50", "queue_ms_p50"),
        ("Added delay p95", "queue_ms_p95"),
        ("Measured by", "rtt_method"),
        ("Samples", "rtt_ms_count"),
    ),
)
