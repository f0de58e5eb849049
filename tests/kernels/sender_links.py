"""The links on which senders of real kernels are judged, and which of them may be looked at while thresholds are set.

signal: a seed · model: four kinds of bottleneck, several links of each, their figures drawn from ranges · action: the
links, by name; the first two of each kind are for tuning, the others are held out

The seed and ranges were fixed before the first run. Number 1 of each kind was held out once, and was looked at; numbers 2
and 3 were drawn by the same seed, and no rule was changed after a look at them. Runs in the host's Python and in the
guest's.
"""

import random
from dataclasses import asdict, dataclass

SEED = 2026
KINDS = ("deep", "shallow", "codel", "loss")
PER_KIND = 4
# Of each kind: the first ones, which may be looked at while rules are made.
FOR_TUNING = 2
# Every congestion control that Linux has.
CONTROLS = (
    *("reno", "cubic", "bbr", "vegas", "westwood", "htcp", "highspeed", "hybla", "illinois"),
    *("scalable", "veno", "yeah", "lp", "nv", "cdg", "dctcp", "bic"),
)
# Of one upload.
SECONDS = 30
SEGMENT = 1514


@dataclass(frozen=True)
class Link:
    """A bottleneck with its queue, the path's RTT without it, random loss, and whether the sender's host segments late."""

    name: str
    rate_mbps: int
    rtt_ms: int
    # Length of the queue in bytes; of CoDel, which stays far below it.
    queue: int
    codel: str
    loss_pct: float
    offload: bool

    def text(self) -> str:
        """One line for a page."""
        queue = f"{self.codel}" if self.codel else f"FIFO of {self.queue // SEGMENT} packets"
        loss = f", {self.loss_pct:g} % random loss" if self.loss_pct else ""
        late = ", with segmentation offload" if self.offload else ""
        return f"{self.name}: {self.rate_mbps} Mbit/s, {self.rtt_ms} ms, {queue}{loss}{late}"


def held_out(link: str) -> bool:
    """Whether thresholds must not be set by it."""
    return int(link.rsplit("-", 1)[1]) >= FOR_TUNING


def links() -> dict[str, Link]:
    """All of them. The first of each kind come first, so that a run that was ended early has some of each."""
    found = {}
    for number in range(PER_KIND):
        for kind in KINDS:
            draw = random.Random(f"{SEED} {kind} {number}")
            rate, rtt = draw.choice((4, 6, 10, 16, 24)), draw.randint(20, 110)
            bdp = rate * 1e6 / 8 * rtt / 1e3
            share = {"deep": draw.uniform(2, 6), "shallow": draw.uniform(0.3, 1.0)}.get(kind, 2.0)
            name = f"{kind}-{number}"
            found[name] = Link(
                name,
                rate,
                rtt,
                queue=max(int(bdp * share), 8 * SEGMENT) if kind != "codel" else 1_000_000,
                codel=draw.choice(("codel", "fq_codel")) if kind == "codel" else "",
                loss_pct=round(draw.uniform(0.1, 1.0), 2) if kind == "loss" else 0.0,
                offload=draw.random() < 0.5,
            )
    return found


def as_json(link: Link) -> dict[str, object]:
    """For the guest and for the rows."""
    return asdict(link)
