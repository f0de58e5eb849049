"""A run of the agent over time: RTT, goodput and windows, with the moment of the cure."""

from unbloat.charts.spec import Chart, Constant, Many, Spans

CURE = (
    Spans("settling", "cure applied, old queue drains", "yellow"),
    Spans("cure", "cure applied, counted as after", "green"),
)


def charts(least_ms: float | None) -> list[Chart]:
    """The charts of one run; `least_ms` is the smallest RTT of its connections."""
    path = (
        (Constant(least_ms, "smallest RTT", "muted", dash=(8, 3)),) if least_ms is not None else ()
    )
    return [
        Chart(
            name="agent-rtt",
            title="Round-trip time",
            about="RTT of the largest connections, twice a second, and of pings if the run sent any. The part above the smallest RTT is time in queues.",
            unit="ms",
            marks=(*CURE, Many("rtt", "RTT of a connection"), *path),
            needs=(),
            height=280,
        ),
        Chart(
            name="agent-goodput",
            title="Goodput",
            about="Payload of all connections between two observations, by direction. The agent counts bytes at its decisions, once per RTT. So after a long RTT one observation can contain the bytes of several, as a peak above the rate of the link.",
            unit="bit/s",
            marks=(*CURE, Many("goodput", "goodput")),
            needs=(),
            height=240,
        ),
        Chart(
            name="agent-windows",
            title="Windows of the largest connection",
            about="The target window of the agent, the advertised window, and the bytes in flight. The right edge of a window never moves back, so a smaller window takes effect as data arrives.",
            unit="bytes",
            marks=(*CURE, Many("windows", "window")),
            needs=(),
            height=240,
        ),
    ]
