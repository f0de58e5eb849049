"""A run of the agent over time: RTT, goodput and windows, with the moment of the cure."""

from unbloat.charts.spec import Chart, Constant, Many, Spans

CURE = (
    Spans("settling", "cure applied, old queue drains", "yellow"),
    Spans("cure", "cure applied, counted as after", "green"),
)


def charts(least_ms: float | None) -> list[Chart]:
    """The charts of one run; `least_ms` is the smallest RTT of its connections."""
    path = (
        (Constant(least_ms, "smallest RTT", "green", dash=(8, 3)),) if least_ms is not None else ()
    )
    return [
        Chart(
            name="agent-rtt",
            title="Round-trip time",
            about="RTT of the largest connections, twice a second, and of pings where they were asked for. What lies above the smallest is waiting in queues.",
            unit="ms",
            marks=(*CURE, Many("rtt", "RTT of a connection"), *path),
            needs=(),
            height=280,
        ),
        Chart(
            name="agent-goodput",
            title="Goodput",
            about="Payload that arrived between two looks, of all connections together, by direction.",
            unit="bit/s",
            marks=(*CURE, Many("goodput", "goodput")),
            needs=(),
            height=240,
        ),
        Chart(
            name="agent-windows",
            title="Windows of the largest connection",
            about="The window that the agent wants, the one that is on offer, and what is under way. The edge of a window never moves back: a smaller one comes as data arrives.",
            unit="bytes",
            marks=(*CURE, Many("windows", "window")),
            needs=(),
            height=240,
        ),
    ]
