"""The cures whose effect is predicted: what each one is, where it must be installed, and the command that does it.

signal: a direction and the fitted rate · model: a cure is a few lines of a scenario, with the parameters that the agent, or
the kernel, has by default · action: `CURES`; another cure is one line of it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from unbloat.errors import UnbloatError
from unbloat.front.controls import ADAPTIVE, GATE, law

Way = Literal["up", "down"]
"""From the host that opened the connection, or to it."""
# As one sets a shaper after a speed test: `scenarios/beyond-matrix-up.toml`.
SHAPED_SHARE = 0.85
WINDOW = law("agent", 1.75, ADAPTIVE)
# The agent's gate has no queue of its own: a refused packet stays in its socket, and CUBIC takes that for congestion (`docs/agent-uplink.md`).
REFUSING = GATE.gate.replace(" }", ", refuse = true }")
# What a predicted p95 of the queue is off by beside a kernel, in 16 to 19 of 20 figures of the tuning half of `docs/generated/what-if-kernel.md` that
# the draws and the quantiles beside p95 do not have: of BBR and FQ-CoDel, and of laws on windows and the gate. That of all others is smaller
# than the least.
ERROR, ERROR_SHORT, ERROR_LAW = 0.15, 0.35, 0.6


@dataclass(frozen=True)
class Cure:
    """One cure; an empty text leaves that part of the path as it was fitted."""

    name: str
    where: str
    """The host on which it is installed."""
    command: str
    """`{rate}`: 85 % of the fitted rate, kbit/s; `DEV`: the device in front of the slowest link."""
    congestion: str = ""
    queue: str = ""
    """Of the slowest link."""
    sender: str = ""
    """Law for the windows of ACKs that reach the sender's host."""
    receiver: str = ""
    """Law for the windows that the receiver advertises."""
    gate: str = ""
    """In front of the slowest link, which is a modem then."""
    shaper: str = ""
    """A queue discipline with a rate in front of the slowest link."""
    ways: tuple[Way, ...] = ("up", "down")
    error: float = field(default=ERROR, repr=False)
    """What the queueing delay is off by beside a kernel, as a share. It belongs to the interval and not to the cure, so that what names a run leaves it out."""

    @property
    def lab_settings(self) -> list[tuple[str, str]]:
        """What a run of the lab is given besides: otherwise the emulator's own gate would run."""
        return [("lab.gate", "agent")] if self.gate else []

    def installed(self, rate_bps: float) -> str:
        """The command."""
        return self.command.format(rate=shaped_kbps(rate_bps))


CURES = (
    Cure(
        "cubic",
        "sender",
        "sysctl -w net.ipv4.tcp_congestion_control=cubic",
        congestion="cubic",
    ),
    Cure("bbr", "sender", "sysctl -w net.ipv4.tcp_congestion_control=bbr", congestion="bbr", error=ERROR_SHORT),
    Cure("newreno", "sender", "sysctl -w net.ipv4.tcp_congestion_control=reno", congestion="newreno"),
    Cure("drwa", "receiver", "unbloat agent on", receiver=WINDOW, error=ERROR_LAW),
    # No stock kernel has it, and the agent has its rate term alone.
    Cure("afc", "both hosts, in no kernel", "", receiver='"afc"'),
    Cure("acks", "sender", "unbloat agent on --set uplink.mode=acks", sender=WINDOW, error=ERROR_LAW),
    Cure("gate", "sender, with a modem that reports", "unbloat agent on --set uplink.mode=gate", gate=REFUSING, ways=("up",), error=ERROR_LAW),
    Cure("fq_codel", "router in front of the link", "tc qdisc replace dev DEV root fq_codel", queue='"fq_codel"', error=ERROR_SHORT),
    Cure(
        "cake",
        "router in front of the link",
        "tc qdisc replace dev DEV root cake bandwidth {rate}kbit",
        shaper='{{ kind = "cake", rate = "{rate} kbit/s" }}',
    ),
)  # fmt: skip
AS_IT_WAS = Cure("as it was", "", "")


def shaped_kbps(rate_bps: float) -> int:
    """What a shaper is set to."""
    return max(round(SHAPED_SHARE * rate_bps / 1000), 1)


def for_way(way: Way, names: Sequence[str] = ()) -> list[Cure]:
    """Those of a direction, or those that are named; `UnbloatError` for a name that is none."""
    known = {cure.name: cure for cure in CURES}
    for name in names:
        if name not in known:
            raise UnbloatError(f"no cure {name!r}: {', '.join(known)}")
        if way not in known[name].ways:
            raise UnbloatError(f"{name} is no cure for this direction ({way})")
    return [cure for cure in CURES if way in cure.ways and (not names or cure.name in names)]
