"""Queueing delay by stage: where the delay stands."""

from unbloat.charts.spec import BREAK_S, Chart, Line, Many

CHART = Chart(
    name="queue",
    title="Queueing delay by stage",
    about="How long packets waited in each queue of the network, mean per bin; and what this transfer's own data waited in all of them.",
    unit="ms",
    marks=(
        Many("queues", "ms in a queue"),
        Line(
            "queue_ms",
            "this transfer, all queues",
            "ink",
            width=1.25,
            dash=(2, 2),
            bridge_s=BREAK_S,
        ),
    ),
    needs=("queues.t_s",),
    figures=(
        ("In queues, median", "queue_ms_p50"),
        ("In queues p95", "queue_ms_p95"),
        ("In queues, longest", "queue_ms_max"),
        ("Lost in the network", "lost_packets"),
    ),
)
