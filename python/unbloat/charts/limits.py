"""Limit ribbon: what held the flow back, moment by moment."""

from unbloat.charts.spec import Chart, Ribbon

CHART = Chart(
    name="limits",
    title="What held it back",
    about="One limit per bin; colour, pattern and word say the same thing.",
    unit="limit",
    marks=(Ribbon("limit", "limit"),),
    needs=("samples.t_s", "samples.limit"),
    figures=(
        ("Mostly", "limit"),
        ("Zero window", "share_zero_window"),
        ("No answer", "share_timeout"),
        ("Receive window", "share_receive_window"),
        ("Application", "share_application"),
        ("Slow start", "share_slow_start"),
        ("Bufferbloat", "share_bufferbloat"),
        ("Bottleneck", "share_bottleneck"),
        ("Congestion window", "share_congestion_window"),
        ("Unknown", "share_unknown"),
    ),
    height=64,
)
