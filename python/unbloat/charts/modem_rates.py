"""What the modem sent: grants of the base station less padding, beside the packets that the host sent."""

from unbloat.charts.spec import Chart, Many

CHART = Chart(
    name="modem-rates",
    title="Modem's throughput",
    about="Grants less padding every 100 ms, with the headers of the radio; the padding; the packets that the host sent meanwhile; and what the physical layer sent, with its own retransmissions. Packets above grants: the buffer grows.",
    unit="bit/s",
    marks=(Many("modem_rates", "bytes per 100 ms"),),
    needs=("modem_rates.t_s",),
    height=220,
)
