"""Delay of each segment of a path above its smallest, one direction: where the queue stands."""

from unbloat.charts.spec import Chart, Constant, Many, Points

# Where the analysis begins to speak of a standing queue.
QUEUE_MS = 30.0


def chart(direction: str, towards: str, word: str) -> Chart:
    """The chart of one direction; `towards` is the last point on its way."""
    way = "" if word == direction else f", {word}"
    return Chart(
        name=f"segments-{direction}",
        title=f"Delay of each segment towards {towards}{way}",
        about=(
            "Mean delay per bin above the smallest of that segment, by the time at which packets entered it. "
            "Clock drift is removed; the offset has no part in it."
        ),
        unit="ms",
        marks=(
            Many("forward" if direction == "forward" else "backward", "ms on a segment"),
            Constant(QUEUE_MS, "30 ms", "muted"),
            Points((f"lost_{direction}",), "lost", "red", "cross", at="bottom"),
        ),
        needs=(),
        height=280,
    )
