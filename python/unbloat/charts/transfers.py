"""Goodput and RTT of all transfers of a run: how they share the path."""

from unbloat.charts.spec import Chart, Many

GOODPUT = Chart(
    name="transfer-goodput",
    title="Goodput of all transfers",
    about="What each transfer delivered per bin.",
    unit="bit/s",
    marks=(Many("transfer_goodput", "bit/s of a transfer"),),
    needs=("transfer_goodput.t_s",),
    height=220,
)
RTT = Chart(
    name="transfer-rtt",
    title="RTT of all transfers",
    about="The mean RTT of each transfer per bin.",
    unit="ms",
    marks=(Many("transfer_rtt", "ms of a transfer"),),
    needs=("transfer_rtt.t_s",),
    height=220,
)
