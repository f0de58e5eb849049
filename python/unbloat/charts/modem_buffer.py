"""The buffer of the modem: what waits below the operating system."""

from unbloat.charts.spec import Chart, Many

CHART = Chart(
    name="modem-buffer",
    title="Modem's buffer",
    about="Bytes that waited in the modem, once per millisecond, from its log. What is in flight and not here waits elsewhere, or is on its way.",
    unit="bytes",
    marks=(Many("modem_buffer", "bytes in the modem"),),
    needs=("modem_buffer.t_s",),
    height=220,
)
