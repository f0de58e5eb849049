"""A sender that knows the link: the bound that no control can pass.

signal: the link's delivery opportunities, or its rates · model: the sender has each packet arrive at the very moment at
which the link can begin to carry it, and knows of the pings · action: goodput is what the link carries, less the pings; the
delay of a ping is what packets force upon it

- On a mahimahi trace a ping waits for the next opportunity, and so does every byte: nothing is queued before it.
- On a link with rates, full packets follow each other without a gap. A ping waits until the packet on the link has left,
  and while the rate is zero.

So its p95 is above the base RTT by what outages and packets cost. The excess of a control is its own p95 above that.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from unbloat.front.case import BACK_BPS, BASE_MS, LAST_PING_S, PING_BYTES, PING_MS, Run
from unbloat.front.links import DURATION_S, PACKET, Track
from unbloat.run.figures import statistics

# Payload of a full packet: Ethernet's 1,500 bytes less 40 of headers and 12 of timestamps.
PAYLOAD = 1448


def oracle(track: Track) -> Run:
    """What that sender gets."""
    back_s = PING_BYTES * 8 / BACK_BPS
    # A ping reaches the bottleneck at once on its way up, or as a reply after the way back.
    up = track.link.way == "up"
    before_s = 0.0 if up else BASE_MS / 2000 + back_s
    after_s = BASE_MS / 1000 + back_s if up else BASE_MS / 2000
    count = DURATION_S * 1000 // PING_MS
    rtts = []
    for sent in (number * PING_MS / 1000 for number in range(count)):
        leaves = departure(track, sent + before_s)
        arrives = DURATION_S if leaves is None else min(leaves + after_s, DURATION_S)
        if sent < LAST_PING_S:
            rtts.append((arrives - sent) * 1000)
    bits = track.bits_until(DURATION_S) - count * PING_BYTES * 8
    found = statistics(rtts)
    assert found is not None, "there are pings"
    return Run(bits * PAYLOAD / PACKET / DURATION_S, found.p95, 0.0)


def departure(track: Track, arrives: float) -> float | None:
    """When a ping leaves the link that arrives there at a time; None after the end of the run."""
    if track.opportunities:
        place = bisect_left(track.opportunities, arrives - 1e-9)
        return track.opportunities[place] if place < len(track.opportunities) else None
    packet = PACKET * 8
    # The packet on the link ends at the next multiple; then the ping follows.
    before = math.ceil(track.bits_until(arrives) / packet - 1e-9) * packet
    return track.time_of(before + PING_BYTES * 8)
