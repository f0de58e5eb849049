"""Distribution of the RTT: the share of the bins at each delay, and its quantiles."""

from unbloat.charts.spec import Chart, Histogram

CHART = Chart(
    name="rtt-distribution",
    title="RTT distribution",
    about="Mean RTT of each bin within the visible time: bars are the share of bins, the curve their running sum. The marks are quantiles of all RTT samples of the flow.",
    unit="share",
    marks=(Histogram("rtt_ms", "RTT", "orange", quantiles="rtt_ms"),),
    needs=("samples.rtt_ms",),
    figures=(
        ("RTT samples", "rtt_ms_count"),
        ("Smallest", "rtt_ms_min"),
        ("Median", "rtt_ms_p50"),
        ("p95", "rtt_ms_p95"),
        ("p99", "rtt_ms_p99"),
        ("Largest", "rtt_ms_max"),
    ),
)
