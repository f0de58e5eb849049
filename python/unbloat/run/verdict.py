"""The verdict: what limited the main transfer, and how much queue stood in the way, in one paragraph.

Everything was decided by the analysis before; these are sentences with its figures.
"""

from __future__ import annotations

from unbloat.run.pings import ping_texts
from unbloat.run.tables import Row, RunTables
from unbloat.text.format import (
    LACKING,
    LIMITS,
    base_rtt_of_grade,
    byte_text,
    endpoint_text,
    limit_phrase,
    ms_text,
    plural,
    rate_text,
    seconds_text,
    share_text,
)

# Beside the main limit, those with a smaller share of the time are not named.
WORTH_NAMING = 0.1


def verdict(run: RunTables) -> str:
    """One paragraph about the main flow; about the counts alone where there is no TCP data."""
    if run.main_flow is None:
        number = run.info.get("packets")
        # A measurement with loads by QUIC alone captured nothing: what they carried is in the table of transfers.
        which = f": {plural(number, 'packet')}, {counts(run)}" if number is not None else ""
        return " ".join([f"No TCP data in {run.name}{which}.", *ping_texts(run)[:1]])
    flow = run.flow(run.main_flow)
    sentences = [moved(run, flow), delayed(flow), limited(flow)]
    # Of this flow alone: what is said of another one would read as if it were said of this.
    others = [row for row in run.findings_of(flow=run.main_flow) if row["severity"] == "serious"]
    if others:
        sentences.append(
            others[0]["text"] if others[0]["text"].endswith(".") else others[0]["text"] + "."
        )
    sentences += ping_texts(run)[:1]
    return " ".join(sentence for sentence in sentences if sentence)


def counts(run: RunTables) -> str:
    """What kinds of packets there were."""
    kinds = [
        ("udp_packets", "UDP"),
        ("icmp_packets", "ICMP"),
        ("tcp_packets", "TCP"),
        ("other_packets", "other IP"),
        ("not_ip_packets", "not IP"),
    ]
    named = [f"{run.info[key]:,} {name}" for key, name in kinds if run.info.get(key)]
    return "of which " + ", ".join(named) if named else "none of them IP"


def moved(run: RunTables, flow: Row) -> str:
    """The sender, the receiver, and how much was sent."""
    connection = run.connection(flow["connection"])
    ends = ("a", "b") if flow["id"] % 2 == 0 else ("b", "a")
    sender, receiver = (
        endpoint_text(connection[f"{end}_addr"], connection[f"{end}_port"]) for end in ends
    )
    rate = f", {rate_text(flow['goodput_bps'])}" if flow["goodput_bps"] is not None else ""
    return f"{sender} sent {byte_text(flow['bytes'])} to {receiver} in {seconds_text(flow['active_s'])}{rate}."


def delayed(flow: Row) -> str:
    """The queue in the way, where there was load enough to see one."""
    if flow.get("rtt_bound_ms_p95") is not None:
        handshake = flow["initial_rtt_ms"]
        first = "" if handshake is None else f"{ms_text(handshake)} in the handshake, and "
        return f"Its RTT was {first}at most {ms_text(flow['rtt_bound_ms_p95'])} at p95."
    if flow["rtt_ms_min"] is None:
        if flow["initial_rtt_ms"] is not None:
            return f"Its RTT is known of the handshake only: {ms_text(flow['initial_rtt_ms'])}."
        return "Its round-trip time could not be measured."
    if flow["grade"] is None:
        return f"Its RTT was {ms_text(flow['rtt_ms_min'])} at least and {ms_text(flow['rtt_ms_p95'])} at p95."
    base = base_rtt_of_grade(flow)
    alone = "" if base is None else f" for the added delay alone, on a base RTT of {ms_text(base)}"
    return (
        f"Its RTT rose from {ms_text(flow['rtt_ms_min'])} to {ms_text(flow['rtt_ms_p95'])} (p95), "
        f"with {ms_text(flow['queue_ms_p95'])} of queue under load: grade {flow['grade']}{alone}."
    )


def limited(flow: Row) -> str:
    """What limited it, the largest share first; of a short transfer, what to record instead."""
    if lacks := flow.get("capture_lacks"):
        return f"What limited it is unknown: the capture lacks {LACKING[lacks]}."
    if flow.get("too_short"):
        return (
            "It is too short to judge what limited it: "
            "record a download or an upload of ten seconds or more."
        )
    shares = limit_shares(flow)
    if not shares:
        return ""
    (first, share), rest = shares[0], [item for item in shares[1:] if item[1] >= WORTH_NAMING]
    text = f"It was held back by {limit_phrase(first)} for {share_text(share)} of the time"
    return (
        text
        + "".join(f", by {limit_phrase(name)} for {share_text(value)}" for name, value in rest[:2])
        + "."
    )


def limit_shares(flow: Row) -> list[tuple[str, float]]:
    """Limits with their shares of time, the largest first; empty when none was determined."""
    shares = [(name, flow.get(f"share_{name}") or 0.0) for name in LIMITS]
    return sorted((item for item in shares if item[1] > 0), key=lambda item: -item[1])
