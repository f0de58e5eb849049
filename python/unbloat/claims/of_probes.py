"""What a sweep of pings says: after which pause a radio sleeps (DRWA figure 5), and at which hop a queue stands (figure 4).

signal: round trips of pings, the pauses before them, or the TTL with which they were sent · model: a packet after a long pause
wakes the radio, so its round trip has a step over the pause; a router beyond a queue answers later by the queue, one before it
does not · action: the step (`flow::diagnose::pauses`, the search of `unbloat measure --idle-gaps`); the first hop from which on
every answer is later by at least half of what the farthest one's are (the rule of `unbloat measure`, `hops.rs`, without its
draws).

Neither sees the scenario: only rows of the run's table of probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from unbloat.run.figures import Figures, statistics

# Share of the added delay that a hop beyond the queue shows at least, and the added delay below which none is looked for
# (both of `unbloat measure`).
HALF, MIN_ADDED_MS = 0.5, 10.0


def pause_step(figures: Figures, probe: str, what: str) -> float | None:
    """Of the largest step over the pause before a ping: `from` and `until` (s, the pauses around it), `middle` (s), `extra`
    (ms); `count`: how many steps there are.
    """
    import unbloat._native as _native

    rows = [row for row in figures.run.probes.to_pylist() if row["probe"] == probe]
    rows.sort(key=lambda row: float(row["t_s"]))
    # A pause begins with the answer to the packet before.
    pauses = [
        (later["t_s"] - earlier["t_s"] - earlier["rtt_ms"] / 1000, later["rtt_ms"])
        for earlier, later in pairwise(rows)
        if earlier["rtt_ms"] is not None and later["rtt_ms"] is not None
    ]
    if not pauses:
        return None
    least = min(rtt for _, rtt in pauses)
    steps = _native.pause_steps([pause for pause, _ in pauses], [rtt - least for _, rtt in pauses])
    if what == "count":
        return float(len(steps))
    if not steps:
        return None
    begin, until, extra = max(steps, key=lambda step: step[2])
    return {"from": begin, "until": until, "middle": (begin + until) / 2, "extra": extra}[what]


def queue_hop(figures: Figures, between: tuple[float, float] | None) -> float | None:
    """The hop at which the queue stands in a span of time; the run's probes are one hop farther each, in their order."""
    begin, end = between or (figures.warmup_s, float("inf"))
    rows = figures.run.probes.to_pylist()
    late: list[float] = []
    for probe in figures.probes:
        answers = [
            (row["t_s"], row["rtt_ms"])
            for row in rows
            if row["probe"] == probe and row["rtt_ms"] is not None
        ]
        loaded = statistics(rtt for t_s, rtt in answers if begin <= t_s < end)
        if loaded is None:
            return None
        late.append(loaded.p50 - min(rtt for _, rtt in answers))
    return hop_of(late)


def hop_of(late_ms: Sequence[float]) -> float | None:
    """From the added delay of each hop; None without a queue."""
    if not late_ms or late_ms[-1] < MIN_ADDED_MS:
        return None
    hop = len(late_ms)
    while hop > 1 and late_ms[hop - 2] >= HALF * late_ms[-1]:
        hop -= 1
    return float(hop)
