"""Round trips of the probes: the delay of all other traffic on the path."""

from unbloat.charts.spec import Chart, Constant, Many

CHART = Chart(
    name="probe-rtt",
    title="Probes",
    about="Each probe packet's round-trip time (one way, where it is isochronous): what a call, a game or a page would feel beside the transfers.",
    unit="ms",
    marks=(
        Many("probes", "ms there and back"),
        # ITU-T G.114: up to 150 ms one way suits most conversations.
        Constant(150.0, "150 ms", "green"),
    ),
    needs=("probes.t_s",),
    height=220,
)
