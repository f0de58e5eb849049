"""Pings of a capture in words: how many, their RTT, and whether they wait where the transfers wait.

signal: `rtt_ms` and `loaded_rtt_ms` of ICMP flows, and of the main transfer · model: packets in one queue wait equally long; a
queue per flow (fq_codel, CAKE) or another path lets a ping pass · action: one paragraph per ping. Beside the host that is
pinged (`answer_ms`) it says what the host took, and nothing of the path
"""

from __future__ import annotations

from unbloat.run.tables import Row, RunTables
from unbloat.text.format import endpoint_text, ms_text, plural, share_text

# Pings that are written about: those with the most replies. Routers are pinged by the hundred in scans.
NAMED = 3
# Fewer replies are no distribution.
MIN_REPLIES = 5
# Queueing delay (ms) from which a transfer stands in a queue: grade B, as for the limit `bufferbloat`.
QUEUE_MS = 30.0
# Up to this ratio two medians are the same wait: the ping's samples lie anywhere in the queue's cycle.
ALIKE = 1.5


def ping_flows(run: RunTables) -> list[Row]:
    """The flows of echo requests with replies, those with the most first."""
    import pyarrow.compute as pc

    if "rtt_method" not in run.flows.column_names:
        return []
    # Found by one column: rows of a hundred columns are slow where there are 100,000.
    pings = run.flows.filter(pc.equal(run.flows.column("rtt_method"), "echo"))
    return sorted(pings.to_pylist(), key=replies_of, reverse=True)


def replies_of(flow: Row) -> int:
    """Replies with a time, of the path or beside the host that is pinged."""
    return flow["rtt_ms_count"] or flow.get("answer_ms_count") or 0


def ping_texts(run: RunTables) -> list[str]:
    """A paragraph for each ping, the largest first."""
    flows = ping_flows(run)
    texts = [ping_text(run, flow) for flow in flows[:NAMED]]
    if len(flows) > NAMED:
        texts.append(f"{plural(len(flows) - NAMED, 'more ping')}: see the connections.")
    return texts


def ping_text(run: RunTables, flow: Row) -> str:
    """Count, loss and RTT of one ping, and what it says of the queue of the main transfer."""
    connection = run.connection(flow["connection"])
    ends = ("a", "b") if flow["id"] % 2 == 0 else ("b", "a")
    source, target = (endpoint_text(connection[f"{end}_addr"], None) for end in ends)
    lost = flow["loss_rate"] or 0.0
    counted = f"{plural(replies_of(flow), 'reply', 'replies')}, " + (
        f"{share_text(lost)} of the requests without one" if lost else "none missing"
    )
    if flow["rtt_ms_count"] is None:
        return (
            f"Ping {source} → {target}: {counted}; captured beside {target}, which took"
            f" {ms_text(flow['answer_ms_p50'])} p50 to reply. The RTT is not known there."
        )
    text = f"Ping {source} → {target}: {counted}; RTT {ms_text(flow['rtt_ms_min'])}"
    if flow["rtt_ms_count"] == 1:
        return f"{text}."
    text += " at least"
    if flow["rtt_ms_count"] < MIN_REPLIES:
        return f"{text}, {ms_text(flow['rtt_ms_max'])} at most."
    text += f", {ms_text(flow['rtt_ms_p50'])} p50, {ms_text(flow['rtt_ms_p95'])} p95."
    return text + beside(run, flow)


def beside(run: RunTables, ping: Row) -> str:
    """The ping under load compared with the main transfer under load; empty where one of them had none."""
    if run.main_flow is None or (ping["loaded_rtt_ms_count"] or 0) < MIN_REPLIES:
        return ""
    transfer = run.flow(run.main_flow)
    loaded, queue = transfer["loaded_rtt_ms_p50"], transfer["queue_ms_p50"]
    if loaded is None or queue is None:
        return ""
    pinged = ping["loaded_rtt_ms_p50"]
    text = f" Beside traffic it had {ms_text(pinged)} p50, the main transfer {ms_text(loaded)}"
    if queue < QUEUE_MS:
        return f"{text}, without a standing queue."
    if pinged > loaded * ALIKE:
        return f"{text}: the ping waits longer, in a queue that the transfer does not see."
    if pinged * ALIKE < loaded:
        return f"{text}: the ping does not wait in that queue (another path, or a queue per flow)."
    return f"{text}: both wait in the same queue."
