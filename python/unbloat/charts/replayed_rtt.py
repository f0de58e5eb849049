"""The RTT of a transfer in its capture, and in its replays on the fitted link."""

from unbloat.charts.spec import Band, Chart, Line

CHART = Chart(
    name="replayed-rtt",
    title="The capture and its replay",
    about=(
        "RTT of the transfer, as the capture has it and as the replays have it, which are nearest to the capture. The window of a "
        "sender rises and falls in both; the moments differ, since each replay has its own random numbers."
    ),
    unit="ms",
    marks=(
        Band("replayed_ms_low", "replayed_ms_high", "replays, smallest to largest", "sky"),
        Line("replayed_ms", "the nearest replay", "blue", width=1.75),
        Line("captured_ms", "capture", "ink", width=1.25),
    ),
    needs=("samples.t_s", "samples.captured_ms", "samples.replayed_ms"),
    height=320,
)
