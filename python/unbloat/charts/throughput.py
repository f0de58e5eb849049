"""Throughput: what was sent against what arrived."""

from unbloat.charts.spec import Chart, Level, Line, Points

CHART = Chart(
    name="throughput",
    title="Throughput",
    about="Payload sent and payload newly acknowledged (goodput) per bin. A gap between both is data retransmitted or waiting in a queue.",
    unit="bit/s",
    marks=(
        Line("sent_bps", "sent", "sky", width=1),
        Line("goodput_bps", "delivered", "blue", width=1.75, area=True, overlay=True),
        Level("goodput_bps", "mean goodput", "muted"),
        Points(
            (
                "retransmission_fast",
                "retransmission_timeout",
                "retransmission_tail_probe",
                "retransmission_spurious",
            ),
            "retransmitted",
            "red",
            "triangle",
            at="bottom",
        ),
        Points(("drop_overflow", "drop_aqm", "drop_link"), "lost", "orange", "cross", at="top"),
        Points(("ecn_mark",), "marked", "purple", "diamond", at="top"),
    ),
    needs=("samples.t_s", "samples.span_s", "samples.sent_bytes", "samples.delivered_bytes"),
    rules=("application-limited", "uneven-rate", "bottleneck-rate", "ecn-marked"),
    figures=(
        ("Goodput", "goodput_bps"),
        ("Best second", "peak_bps"),
        ("Delivered", "bytes"),
        ("Sent, with retransmissions", "payload_bytes"),
        ("With a window twice as large", "unlimited_goodput_bps"),
        ("Idle", "idle_s"),
    ),
)
