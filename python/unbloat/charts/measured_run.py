"""A measurement over time: added delay per direction, goodput, and how the added delay of each phase is distributed."""

from unbloat.charts.spec import Chart, Histogram, Many, Points, Spans

PHASES = (
    Spans("down", "download, measured", "orange"),
    Spans("up", "upload, measured", "green"),
    Spans("both", "both ways, measured", "purple"),
)

CHARTS = (
    Chart(
        name="measure-delay",
        title="Added delay per direction",
        about="Each probe's delay above the smallest one, towards this host (↓) and towards the server (↑). It is the time in queues. Shaded is what was measured; before, the load grew, and after it the queue drained.",
        unit="ms",
        marks=(
            *PHASES,
            Many("added_delay", "added delay"),
            Points(("lost_down",), "answer lost ↓", "orange", "cross", at="top"),
            Points(("lost_up",), "probe lost ↑", "green", "triangle", at="top"),
        ),
        needs=(),
        height=300,
    ),
    Chart(
        name="measure-goodput",
        title="Goodput",
        about="What all streams of a direction delivered to the receiving program, ten times a second.",
        unit="bit/s",
        marks=(*PHASES, Many("goodput", "goodput")),
        needs=(),
        height=240,
    ),
    Chart(
        name="measure-distribution",
        title="Distribution of the added delay",
        about="For each phase the share of answered probes within the visible time whose added delay was no larger. Of a download it is the delay ↓, of an upload ↑, else of the round trip. Delays below 0.1 ms are drawn there.",
        unit="share",
        marks=(
            Histogram(
                "added_ms",
                "added delay",
                "orange",
                quantiles="added_ms",
                axis="added delay of a probe, logarithmic",
                of="probes",
            ),
        ),
        needs=(),
        height=280,
    ),
)
