"""Window utilisation: how much of the receive window was in use."""

from unbloat.charts.spec import Chart, Constant, Line, Ratio

CHART = Chart(
    name="window-utilisation",
    title="Window utilisation",
    about="Bytes in flight as a share of the receive window. At 100 % the sender waits for the receiver.",
    unit="%",
    marks=(
        Line(
            # A bin keeps the most that was in flight and the last window: where the window shrank meanwhile, their
            # ratio says nothing beyond "full".
            Ratio("in_flight_bytes", "rwnd_bytes", 100.0, at_most=100.0),
            "utilisation",
            "purple",
            width=1.75,
            area=True,
            overlay=True,
        ),
        Constant(100.0, "window full", "red"),
    ),
    needs=("samples.t_s", "samples.in_flight_bytes", "samples.rwnd_bytes"),
    figures=(
        ("Median", "window_utilisation_pct_p50"),
        ("p95", "window_utilisation_pct_p95"),
        ("Window full", "window_full_s"),
        ("Share of the active time", "window_full_share"),
        ("First full at", "window_full_first_s"),
        ("Smallest RTT at which it bit", "window_full_rtt_ms"),
        ("Segments that filled it", "window_full_count"),
    ),
    height=160,
)
