"""The judge of fairness.

signal: what came out of each case · model: the goals, fixed before the first run: Jain's index of at least 0.9 within 20 s
of the last start, and from then on; every flow's median RTT at most λ base RTTs and a tenth; a flow alone keeps 99 % of its
untreated goodput. Beside a download, an upload keeps 0.8 of its goodput alone, with a ping p95 of at most 100 ms · action:
a verdict for each case
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unbloat.fairness.fairness import Both, Shared
from unbloat.fairness.jain import holds_after
from unbloat.front.links import Way
from unbloat.run.figures import jain_index

WITHIN_S = 20
RTT_ROOM = 1.1
ALONE_SHARE = 0.99
"""Nothing lost, but for what the last packets of a minute may differ by."""
UPLOAD_SHARE = 0.8
PING_MS = 100.0


@dataclass(frozen=True)
class SharedVerdict:
    """Whether flows share."""

    shared: Shared
    jain: float | None
    """Over all that was sent in the last twenty seconds."""
    holds_s: int | None
    """From the last start until the index holds; None: never."""
    rtt_share: float
    """The largest median RTT of a flow over its base RTT."""
    rtt_bound: float | None
    """What the control allows of that, the tenth included."""
    smallest: float
    """Goodput of the flow that has least, over an equal share, in the last twenty seconds."""

    @property
    def fair(self) -> bool:
        """Soon enough."""
        return self.holds_s is not None and self.holds_s <= WITHIN_S

    @property
    def short(self) -> bool | None:
        """Whether RTTs are as the control allows; None where it allows none."""
        return None if self.rtt_bound is None else self.rtt_share <= self.rtt_bound


def judge_shared(shared: Shared) -> SharedVerdict:
    """One case."""
    case = shared.case
    late = [sum(series[-WITHIN_S:]) for series in shared.goodputs]
    bound = case.sharing.bound.get(case.way)
    ratios = [rtt / case.base_ms(flow) for flow, rtt in enumerate(shared.rtt_ms)]
    return SharedVerdict(
        shared,
        jain_index(late),
        holds_after(shared.goodputs, case.last_start_s),
        max(ratios),
        None if bound is None else bound * RTT_ROOM,
        min(late) * len(late) / sum(late) if sum(late) else 0.0,
    )


@dataclass(frozen=True)
class AloneVerdict:
    """What a control costs a flow alone."""

    shared: Shared
    share: float
    """Goodput over that without any control."""

    @property
    def kept(self) -> bool:
        """Whether nothing is lost."""
        return self.share >= ALONE_SHARE


def judge_alone(found: Sequence[Shared]) -> list[AloneVerdict]:
    """Every control that a flow alone was run under."""
    alone = [one for one in found if one.case.flows == 1]
    base = {
        one.case.way: sum(one.goodputs[0]) for one in alone if one.case.sharing.name == "nothing"
    }
    return [
        AloneVerdict(one, sum(one.goodputs[0]) / base[one.case.way])
        for one in alone
        if base.get(one.case.way) and one.case.sharing.name != "nothing"
    ]


@dataclass(frozen=True)
class BothVerdict:
    """An upload beside a download."""

    both: Both

    @property
    def share(self) -> float:
        """The upload's goodput over that alone."""
        return self.both.upload_bps / self.both.alone_bps if self.both.alone_bps else 0.0

    @property
    def reaches(self) -> bool:
        """Goodput and ping."""
        return self.share >= UPLOAD_SHARE and self.both.ping_p95_ms <= PING_MS


@dataclass(frozen=True)
class Group:
    """The cases of several flows with one control in one direction."""

    way: Way
    control: str
    verdicts: list[SharedVerdict]

    @property
    def fair(self) -> int:
        """How many are fair."""
        return sum(verdict.fair for verdict in self.verdicts)


def judge_groups(found: Sequence[Shared]) -> list[Group]:
    """All cases with several flows: by direction, then by control, in the order in which they are first found."""
    verdicts = judge_all(found)
    cases = [verdict.shared.case for verdict in verdicts]
    return [
        Group(
            way,
            control,
            [
                verdict
                for verdict, case in zip(verdicts, cases, strict=True)
                if (case.way, case.sharing.name) == (way, control)
            ],
        )
        for way in dict.fromkeys(case.way for case in cases)
        for control in dict.fromkeys(case.sharing.name for case in cases)
    ]


def judge_all(found: Sequence[Shared]) -> list[SharedVerdict]:
    """Of all cases with several flows."""
    return [judge_shared(one) for one in found if one.case.flows > 1]
