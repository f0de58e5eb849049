"""The controls of the front: what a sender, receiver, bottleneck or host does about the queue.

signal: a table of controls, each with its published defaults first and then a stated sweep of one parameter · model: a
control is a few lines of a scenario · action: `CONTROLS`

Roles: `untreated` is CUBIC in an open buffer, `peer` a published control, `ours` one of this project by its defaults. A new
form of the window law is one line of `LAWS`.

cake-autorate needs rates that a person sets for each line. It gets a tenth, the whole and twice the mean rate of the run,
which is not known beforehand: that favours it. It stands directly in front of the bottleneck, which favours it, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unbloat.front.links import Way

Role = Literal["untreated", "peer", "ours"]
# Of an open buffer: seconds at a few Mbit/s (`scenarios/beyond-traces.toml`).
BUFFER = "2 MB"
OPEN = f'{{ kind = "droptail", limit = "{BUFFER}" }}'


@dataclass(frozen=True)
class Control:
    """One control with one set of parameters."""

    name: str
    variant: str = "default"
    role: Role = "peer"
    congestion: str = '"cubic"'
    queue: str = OPEN
    """In front of the bottleneck, where no device feeds it."""
    window: str = ""
    """The law of the receiver for a download; on ACKs that reach the sender for an upload."""
    gate: str = ""
    """Of the device in front of the bottleneck; `{min}`, `{mean}` and `{max}` are bit/s of the link."""
    qdisc: str = '"fq_codel"'
    """Above the gate."""
    ways: tuple[Way, ...] = ("down", "up")

    @property
    def label(self) -> str:
        """In words."""
        return self.name if self.variant == "default" else f"{self.name}, {self.variant}"


def law(form: str, factor: float, more: str = "") -> str:
    """The window law with the agent's constants; `factor` is λ."""
    return (
        f'{{ kind = "drwa", form = "{form}", alpha = 8, quick = true, lambda = {factor:g}{more} }}'
    )


ADAPTIVE = ", lambda_min = 1.25, fair = true"
"""λ and the rate adapt, and flows share: the agent's defaults."""
# The window law as the agent runs it by its defaults, and with a constant λ as before. Another form is a line more.
LAWS = (
    Control("window", role="ours", window=law("agent", 1.75, ADAPTIVE), ways=("down",)),
    Control("window, λ 3", role="ours", window=law("agent", 3.0), ways=("down",)),
    Control("ACKs", role="ours", window=law("agent", 1.75, ADAPTIVE), ways=("up",)),
    Control("ACKs, λ 1.75", role="ours", window=law("agent", 1.75), ways=("up",)),
)
GATE = Control(
    "gate",
    role="ours",
    gate='{ kind = "qcut_d", target = "20 ms", hold = true, slack = "150 ms" }',
    ways=("up",),
)
UNTREATED = Control("nothing", role="untreated")


def codel(kind: str, target_ms: int) -> str:
    """A queue discipline; the interval stays twenty targets, as RFC 8289 section 4.3 chooses it."""
    return f'{{ kind = "{kind}", target = "{target_ms} ms", interval = "{20 * target_ms} ms" }}'


def swept(name: str, key: str, texts: dict[str, str]) -> tuple[Control, ...]:
    """Variants of a control by the text of one of its fields."""
    fields = {variant: {key: text} for variant, text in texts.items()}
    return tuple(Control(name, variant, **given) for variant, given in fields.items())  # type: ignore[arg-type]


def autorate(late_ms: int) -> str:
    """cake-autorate; the largest cut stays at twice the delay that is late, as in its defaults."""
    return (
        '{{ kind = "autorate", min = "{min} bit/s", base = "{mean} bit/s", max = "{max} bit/s", '
        f'threshold = "{late_ms} ms", cut_most_at = "{2 * late_ms} ms" }}}}'
    )


CONTROLS: tuple[Control, ...] = (
    UNTREATED,
    *swept(
        "codel",
        "queue",
        {"default": '"codel"'} | {f"target {ms} ms": codel("codel", ms) for ms in (10, 20, 50)},
    ),
    *swept(
        "fq_codel",
        "queue",
        {"default": '"fq_codel"'}
        | {f"target {ms} ms": codel("fq_codel", ms) for ms in (10, 20, 50)},
    ),
    *swept(
        "bbr",
        "congestion",
        {"default": '"bbr"'}
        | {
            f"window gain {gain:g}": f'{{ kind = "bbr", window_gain = {gain} }}'
            for gain in (1.25, 1.5, 3.0)
        },
    ),
    *swept(
        "bbr3",
        "congestion",
        {"default": '"bbr3"'}
        | {
            f"window gain {gain:g}": f'{{ kind = "bbr3", window_gain = {gain} }}'
            for gain in (1.25, 1.5, 3.0)
        },
    ),
    *swept(
        "rledbat",
        "window",
        {"default": '"rledbat"'}
        | {
            f"target {ms} ms": f'{{ kind = "rledbat", target = "{ms} ms" }}' for ms in (20, 30, 100)
        },
    ),
    *swept(
        "copa",
        "congestion",
        {"default": '"copa"'}
        | {f"δ {delta:g}": f'{{ kind = "copa", delta = {delta} }}' for delta in (0.04, 0.1)}
        | {
            f"δ {delta:g}, default mode only": f'{{ kind = "copa", delta = {delta}, competes = false }}'
            for delta in (0.04, 0.1, 0.5)
        },
    ),
    *(
        Control("cake-autorate", variant, gate=autorate(late), qdisc='"cake"')
        for variant, late in (("default", 30), ("late at 15 ms", 15), ("late at 100 ms", 100))
    ),
    *LAWS,
    GATE,
)


def for_way(way: Way) -> list[Control]:
    """Those that there are in a direction."""
    return [control for control in CONTROLS if way in control.ways]
