"""Bytes in flight against the receive window: who holds the sender back."""

from unbloat.charts.spec import Chart, Level, Line, Spans

CHART = Chart(
    name="in-flight",
    title="Bytes in flight and receive window",
    about="Data sent and not yet acknowledged, against the window that the receiver offers and what the path itself can hold (BDP). Where the curves meet, the receiver's window is the limit. The congestion window is known of runs of a scenario only.",
    unit="bytes",
    marks=(
        Spans("window_full", "window full", "red"),
        Line(
            "rwnd_bytes",
            "receive window",
            "orange",
            width=1.75,
            dash=(6, 3),
            step=True,
            overlay=True,
        ),
        Line("cwnd_bytes", "congestion window", "purple", width=1.25, step=True),
        Line("in_flight_bytes", "in flight", "blue", width=1.75, area=True, overlay=True),
        Level("bdp_bytes", "BDP", "green", dash=(8, 3)),
    ),
    needs=("samples.t_s", "samples.in_flight_bytes", "samples.rwnd_bytes"),
    rules=("receive-window", "flat-window"),
    figures=(
        ("In flight, median", "in_flight_bytes_p50"),
        ("In flight p95", "in_flight_bytes_p95"),
        ("In flight, largest", "in_flight_bytes_max"),
        ("Smallest window", "rwnd_bytes_min"),
        ("Largest window", "rwnd_bytes_max"),
        ("Window scale", "window_scale"),
        ("What the path holds (BDP)", "bdp_bytes"),
        ("In flight over BDP", "in_flight_over_bdp"),
        ("RTT above which the window stalls it", "rtt_ceiling_ms"),
    ),
)
