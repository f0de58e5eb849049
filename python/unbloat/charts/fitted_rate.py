"""The rate of a link over time, as it was fitted, with what arrived."""

from unbloat.charts.spec import Band, Chart, Line

CHART = Chart(
    name="fitted-rate",
    title="Rate of the slowest link",
    about=(
        "What the link can deliver, by the time at which data reached the receiver: median and 90 % interval of the draws. "
        "Where no queue stood, what arrived is only a lower bound."
    ),
    unit="bit/s",
    marks=(
        Band("rate_bps_low", "rate_bps_high", "90 % interval", "sky"),
        Line("rate_bps", "rate of the link", "blue", width=1.75, step=True),
        Line("queued_bps", "arrived, with a queue", "ink", width=1.25, step=True),
        Line("unqueued_bps", "arrived, without one", "orange", width=1.25, step=True),
    ),
    needs=("samples.t_s", "samples.rate_bps"),
    height=320,
)
