"""Time-sequence, in tcptrace's manner: every segment, its acknowledgement, and the window's right edge."""

from .spec import Chart, Points, Spans, Stairs, Ticks

CHART = Chart(
    name="time-sequence",
    title="Time-sequence",
    about="Each segment is a tick at its sequence numbers. Below it runs what is acknowledged, above it the window's right edge: ticks that touch the edge have filled the window.",
    unit="sequence",
    marks=(
        Spans("zero_window", "zero window", "red"),
        Stairs("right", "right edge", "orange"),
        Stairs("ack", "acknowledged", "green"),
        Ticks("data", "data", "blue"),
        Ticks("sack", "SACK block", "purple"),
        Ticks("late", "out of order", "yellow", width=2),
        Ticks("again", "resent", "red", width=2),
        Points(("out_of_order", "ambiguous"), "out of order", "yellow", "diamond"),
        Points(("window_full",), "window full", "red", "circle"),
        Points(("zero_window_probe",), "zero-window probe", "purple", "triangle"),
        Points(("retransmission_timeout",), "timeout", "red", "cross"),
    ),
    needs=("segments.t_s", "segments.kind", "segments.from_seq", "segments.to_seq"),
    rules=("zero-window", "burst-after-stall", "loss-limited", "retransmission-timeouts", "reordering"),
    figures=(
        ("Data packets", "data_packets"),
        ("Resent segments", "retransmissions"),
        ("… by fast retransmit", "retransmissions_fast"),
        ("… by timeout", "retransmissions_timeout"),
        ("… by tail-loss probe", "retransmissions_tail_probe"),
        ("… needlessly", "retransmissions_spurious"),
        ("Loss rate", "loss_rate"),
        ("Out of order", "out_of_order"),
        ("Duplicate ACKs", "dup_acks"),
        ("SACK blocks", "sack_blocks"),
        ("Zero windows", "zero_window_count"),
        ("Zero-window time", "zero_window_s"),
        ("Zero-window probes", "zero_window_probes"),
        ("Longest ACK silence", "ack_silence_max_ms"),
        ("Largest burst of data", "data_burst_bytes_max"),
    ),
    height=400,
    floor=None,
)
