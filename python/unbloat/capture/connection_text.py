"""The second screen of `analyze`: one connection, both directions with all measures in groups.

It shows one row of `connections`, two of `flows`, their findings and samples, in lines of at most 80 columns. A measure
that neither direction has is left out.
"""

from __future__ import annotations

from collections.abc import Callable

from unbloat.capture.file_text import direction_text, findings, proto_text
from unbloat.run.run import Run
from unbloat.run.tables import Row
from unbloat.run.verdict import limit_shares
from unbloat.text.format import (
    LACKING,
    base_rtt_of_grade,
    byte_text,
    count_text,
    endpoint_text,
    ends_text,
    limit_text,
    ms_text,
    no_limit_text,
    number,
    plural,
    rate_text,
    seconds_text,
    share_text,
)
from unbloat.text.terminal import BAR, Terminal, left, on_grid, plain, right, sparkline

Text = Callable[[float | None], str]
Getter = Callable[[Row], str]

LABEL = 23
# Cells of a sparkline: with its label and its largest value it fits 80 columns.
SPARK = 50
# Characters of an IPv6 address in full.
MAX_NAME = 39


def connection_screen(terminal: Terminal, run: Run, id_: int, bin_ms: float) -> None:
    """One connection: both directions with all measures in groups, limits, findings, the series as sparklines."""
    connection = run.connection(id_)
    flows = [run.flow(2 * id_), run.flow(2 * id_ + 1)]
    for line in heading(connection, terminal.width):
        terminal.line(terminal.style(line, "bold"))
    terminal.wrapped(connection_facts(run, connection))
    room = (min(terminal.width, 110) - LABEL) // 2
    heads = "".join(right(title, room) for title in ("a → b", "b → a"))
    answered = any(flow["rtt_method"] in ("echo", "answer") for flow in flows)
    for title, lines in groups(connection["proto"] == "tcp", answered):
        cells = [(label, [getter(flow) for flow in flows]) for label, getter in lines]
        cells = [
            (label, texts)
            for label, texts in cells
            if any(text not in ("–", "0") for text in texts)
        ]
        if cells:
            terminal.line()
            terminal.line(terminal.style(left(title, LABEL) + heads, "dim"))
            for label, texts in cells:
                terminal.line(left(label, LABEL) + "".join(right(text, room) for text in texts))
    for title, flow in zip(("a → b", "b → a"), flows, strict=True):
        if flow.get("congestion_control"):
            evidence = flow["congestion_control_evidence"]
            terminal.line()
            terminal.wrapped(
                f"congestion control {title}: {flow['congestion_control']} ({evidence})"
            )
    for flow in flows:
        limit_bar(terminal, run, flow)
    for flow in flows:
        series(terminal, run, flow, bin_ms)
    findings(terminal, run, run.findings_of(connection=id_), None)


def heading(connection: Row, room: int) -> list[str]:
    """Number, both ends in full, protocol; three lines where two long IPv6 addresses leave no other way."""
    number_, proto = f"connection {connection['id']}", proto_text(connection["proto"])
    line = f"{number_} · {ends_text(connection, width=MAX_NAME)} · {proto}"
    if len(line) <= room:
        return [line]
    ends = (
        endpoint_text(connection[f"{end}_addr"], connection[f"{end}_port"], MAX_NAME)
        for end in ("a", "b")
    )
    return [
        f"{number_} · {proto}",
        *(f"{name}  {end}" for name, end in zip("ab", ends, strict=True)),
    ]


def connection_facts(run: Run, connection: Row) -> str:
    """How it began and ended, and where the capture was taken."""
    facts = [f"from {connection['start_s']:.3f} s for {seconds_text(connection['duration_s'])}"]
    facts.append(f"{plural(connection['packets'], 'packet')}, {byte_text(connection['bytes'])}")
    places = {
        "a": "captured near a",
        "b": "captured near b",
        "middle": "captured in between",
        "unknown": "capture point unknown",
    }
    place = places.get(str(connection["vantage"]), str(connection["vantage"]))
    if connection["proto"] == "tcp":
        ends = {"fin": "closed by FIN", "rst": "reset", "open": "still open at the end"}
        facts += [ends.get(str(connection["end"]), str(connection["end"])), place]
        facts.append("SYN seen" if connection["syn_seen"] else "its SYN is not in the capture")
        if connection["initial_rtt_ms"] is not None:
            facts.append(f"handshake RTT {ms_text(connection['initial_rtt_ms'])}")
        if connection["mptcp"]:
            facts.append("a subflow of MPTCP")
    elif connection["vantage"] != "unknown":
        facts.append(place)
    if connection["duplicates"]:
        facts.append(f"{plural(connection['duplicates'], 'packet')} twice in the capture")
    if connection["capture_gap_bytes"]:
        facts.append(f"{byte_text(connection['capture_gap_bytes'])} missing from the capture")
    names = run.info.get("interfaces") or []
    if len(names) > 1 and connection["interface"] < len(names):
        facts.append(f"interface {plain(names[connection['interface']])}")
    return " · ".join(facts)


def quantiles(name: str, text: Text) -> list[tuple[str, Getter]]:
    """min, p50, p95, max of a statistic."""
    return [
        ("min / p50", lambda flow: twice(text(flow[f"{name}_min"]), text(flow[f"{name}_p50"]))),
        ("p95 / max", lambda flow: twice(text(flow[f"{name}_p95"]), text(flow[f"{name}_max"]))),
    ]


def twice(one: str, two: str) -> str:
    """Two figures in one cell."""
    return "–" if one == two == "–" else f"{one} / {two}"


def column(name: str, text: Text) -> Getter:
    """One figure."""
    return lambda flow: text(flow[name])


Lines = list[tuple[str, Getter]]
"""Label and value."""


def pair(first: str, second: str, text: Text) -> Getter:
    """Two figures in one cell."""
    return lambda flow: twice(text(flow[first]), text(flow[second]))


def if_any(name: str, getter: Getter, nothing: str = "0") -> Getter:
    """A cell that is worth reading where a figure is above zero."""
    return lambda flow: getter(flow) if flow[name] else nothing


def groups(tcp: bool, answered: bool) -> list[tuple[str, Lines]]:
    """Every measure of a flow, under the heading where one would look for it."""
    if not tcp:
        counted = [("transfer", counted_lines())]
        return [*counted, ("request to answer", answer_lines())] if answered else counted
    return [
        ("transfer", counted_lines() + transfer_lines()),
        ("round-trip time", rtt_lines()),
        ("in flight and window", window_lines()),
        ("loss and reordering", loss_lines()),
        ("pauses and bursts", pause_lines()),
    ]


def counted_lines() -> Lines:
    """What is known of every flow, TCP or not."""
    return [
        ("packets", column("packets", count_text)),
        ("bytes on the wire", column("wire_bytes", byte_text)),
        ("payload", column("payload_bytes", byte_text)),
    ]


def transfer_lines() -> Lines:
    """How much was delivered, and how fast."""
    return [
        ("delivered", column("bytes", byte_text)),
        ("active", column("active_s", lambda value: seconds_text(value or None))),
        ("goodput / peak", pair("goodput_bps", "peak_bps", rate_text)),
        ("segment size", column("mss_bytes", lambda value: f"{value:,.0f} B" if value else "–")),
    ]


def answer_lines() -> Lines:
    """What answers took, of those that asked."""
    return [
        *((f"RTT {label}", get) for label, get in quantiles("rtt_ms", ms_text)),
        ("RTT loaded p50 / p95", pair("loaded_rtt_ms_p50", "loaded_rtt_ms_p95", ms_text)),
        ("answer took p50 / max", pair("answer_ms_p50", "answer_ms_max", ms_text)),
        ("without an answer", column("loss_rate", share_text)),
    ]


def rtt_lines() -> Lines:
    """Round trips, and the queue in them."""
    return [
        *quantiles("rtt_ms", ms_text),
        (
            "at most, p50 / p95",
            lambda flow: twice(
                ms_text(flow.get("rtt_bound_ms_p50")), ms_text(flow.get("rtt_bound_ms_p95"))
            ),
        ),
        ("measured by", lambda flow: METHODS.get(flow["rtt_method"], flow["rtt_method"] or "–")),
        ("loaded p50 / p95", pair("loaded_rtt_ms_p50", "loaded_rtt_ms_p95", ms_text)),
        ("queue p50 / p95", pair("queue_ms_p50", "queue_ms_p95", ms_text)),
        ("  of the data", pair("data_queue_ms_p50", "data_queue_ms_p95", ms_text)),
        ("  of the ACKs", pair("ack_queue_ms_p50", "ack_queue_ms_p95", ms_text)),
        ("bufferbloat grade", grade_text),
    ]


def grade_text(flow: Row) -> str:
    """The grade; on a long path with its base RTT, since the grade is of the added delay alone."""
    base = base_rtt_of_grade(flow)
    return (flow["grade"] or "–") if base is None else f"{flow['grade']}, base RTT {ms_text(base)}"


def window_lines() -> Lines:
    """Bytes in flight against the path's capacity and the receive window."""
    return [
        ("in flight p50 / p95", pair("in_flight_bytes_p50", "in_flight_bytes_p95", byte_text)),
        ("in flight max", column("in_flight_bytes_max", byte_text)),
        ("path holds (BDP)", column("bdp_bytes", byte_text)),
        (
            "in flight / BDP",
            column("in_flight_over_bdp", lambda value: "–" if value is None else number(value)),
        ),
        ("window min / max", pair("rwnd_bytes_min", "rwnd_bytes_max", byte_text)),
        ("window scale", scale_text),
        (
            "window used p50 / p95",
            pair("window_utilisation_pct_p50", "window_utilisation_pct_p95", percent),
        ),
        (
            "window full",
            if_any(
                "window_full_s",
                lambda flow: twice(
                    seconds_text(flow["window_full_s"]), share_text(flow["window_full_share"])
                ),
            ),
        ),
        (
            "first full at",
            column("window_full_first_s", lambda value: "–" if value is None else f"{value:.3f} s"),
        ),
        ("bites above RTT", column("rtt_ceiling_ms", ms_text)),
        ("larger window allows", column("unlimited_goodput_bps", rate_text)),
        (
            "zero windows",
            if_any(
                "zero_window_count",
                lambda flow: twice(
                    count_text(flow["zero_window_count"]), seconds_text(flow["zero_window_s"])
                ),
            ),
        ),
        ("zero-window probes", column("zero_window_probes", count_text)),
        ("keep-alives", column("keep_alives", count_text)),
    ]


def loss_lines() -> Lines:
    """Retransmissions by cause, loss, reordering, ECN."""
    return [
        ("retransmissions", column("retransmissions", count_text)),
        ("  fast", column("retransmissions_fast", count_text)),
        ("  timeout", column("retransmissions_timeout", count_text)),
        ("  tail-loss probe", column("retransmissions_tail_probe", count_text)),
        ("  spurious, of all", column("retransmissions_spurious", count_text)),
        ("timer expiries", column("timeouts", count_text)),
        ("loss rate", column("loss_rate", lambda value: "0" if value == 0 else share_text(value))),
        ("reordered", column("out_of_order", count_text)),
        ("reordered by at most", column("reordering_ms_max", ms_text)),
        ("late, cause unknown", column("ambiguous", count_text)),
        ("duplicate ACKs", column("dup_acks", count_text)),
        ("SACK blocks", column("sack_blocks", count_text)),
        ("DSACKs", column("dsacks", count_text)),
        ("ECN CE marks", column("ecn_ce", count_text)),
        ("ECN echoes", column("ecn_ece", count_text)),
    ]


def pause_lines() -> Lines:
    """Idle times, silences and bursts."""
    return [
        (
            "idle",
            if_any(
                "idle_count",
                lambda flow: twice(count_text(flow["idle_count"]), seconds_text(flow["idle_s"])),
            ),
        ),
        ("ACK bursts", column("ack_bursts", count_text)),
        *(
            (label, if_any(name, column(name, text), "–"))
            for label, name, text in (
                ("longest ACK silence", "ack_silence_max_ms", ms_text),
                ("largest ACK burst", "ack_burst_bytes_max", byte_text),
                ("largest data burst", "data_burst_bytes_max", byte_text),
            )
        ),
    ]


METHODS = {
    "seq_ack": "data and ACK",
    "timestamps": "timestamps",
    "halves": "both halves",
    "window": "window (upper bound)",
    "echo": "echo request and reply",
    "answer": "request and answer",
    "none": "–",
}


def percent(value: float | None) -> str:
    """A figure that is in percent already."""
    return "–" if value is None else f"{value:.0f} %"


def scale_text(flow: Row) -> str:
    """The window scale; inferred ones are lower bounds."""
    if flow["window_scale"] is None:
        return "–"
    return f"{'≥ ' if flow['window_scale_inferred'] else ''}{flow['window_scale']}"


def limit_bar(terminal: Terminal, run: Run, flow: Row) -> None:
    """Shares of the limits of one direction, as bars."""
    shares = limit_shares(flow)
    why = no_limit_text(flow) if flow["data_packets"] else None
    if not shares and why is None:
        return
    terminal.line()
    terminal.line(terminal.style(f"held back, {direction_text(run, flow['id'])}", "dim"))
    if lacks := flow.get("capture_lacks"):
        terminal.line(f"unknown: the capture lacks {LACKING[lacks]}")
    elif why is not None:
        terminal.line(why)
    room = min(terminal.width, READABLE_BAR) - LABEL - 9
    for name, share in shares:
        bar = BAR * round(share * room)
        terminal.line(
            f"{left(limit_text(name), LABEL)}{right(share_text(share), 7)}  {bar}".rstrip()
        )


# Beyond this a bar only gets longer, not clearer.
READABLE_BAR = 80


def series(terminal: Terminal, run: Run, flow: Row, bin_ms: float) -> None:
    """Goodput, RTT and bytes in flight over time, each with its largest value."""
    if not flow["payload_bytes"] or flow.get("capture_lacks"):
        return
    samples = run.samples(flow=flow["id"], bin_ms=bin_ms)
    if samples.num_rows < 2:
        return
    times = samples.column("t_s").to_pylist()
    terminal.line()
    terminal.line(
        terminal.style(
            f"over time, {direction_text(run, flow['id'])}: {times[0]:.1f} s to {times[-1]:.1f} s",
            "dim",
        )
    )
    for label, name, text in (
        ("goodput", "goodput_bps", rate_text),  # the mean of each cell: bursts would hide every dip
        ("RTT", "rtt_ms", ms_text),
        ("in flight", "in_flight_bytes", byte_text),
    ):
        column_ = samples.column(name).to_pylist()
        values = on_grid(times, column_, min(SPARK, len(times)), mean=name == "goodput_bps")
        top = max((value for value in column_ if value is not None), default=None)
        if top is not None:
            terminal.line(
                f"{left(label, 11)}{left(sparkline(values, SPARK), SPARK + 1)} max {text(top)}"
            )
