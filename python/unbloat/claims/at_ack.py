"""Bytes in flight at the n-th ACK of a transfer, as DRWA figure 3 counts them.

signal: the capture at the sender · model: what was sent and not acknowledged, without SACK: as the paper's tcpdump on the
sender's side shows it · action: at the n-th ACK, or the most up to it. Exact, not by bins.
"""

from __future__ import annotations

from functools import lru_cache

from unbloat.run.run import Run

# Kinds of `segments`: data, data again, ACK.
DATA, AGAIN, ACK = 0, 1, 2
# Rows are thinned out beyond a number; a count of ACKs needs each of them.
ALL = 10_000_000


# A chart asks for a number of ACKs of the same capture one after the other.
@lru_cache(maxsize=8)
def in_flight_by_ack(run: Run) -> list[int]:
    """Of the main transfer: bytes in flight at each of its ACKs, before what the ACK lets go."""
    flow = run.main_flow
    segments = run.segments(flow=flow, max_segments=ALL)
    table = segments.select(["kind", "from_seq", "to_seq"]).to_pylist()
    found: list[int] = []
    sent = 0
    for row in table:
        if row["kind"] in (DATA, AGAIN):
            sent = max(sent, row["to_seq"])
        elif row["kind"] == ACK and sent:
            found.append(sent - row["from_seq"])
    return found


def at_ack(run: Run, count: int, most: bool) -> float | None:
    """At the ACK of this number, or the most up to it; None where fewer came."""
    if run.main_flow is None:
        return None
    found = in_flight_by_ack(run)
    if len(found) < count:
        return None
    return float(max(found[:count]) if most else found[count - 1])
