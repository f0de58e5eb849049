"""Several captures of one path: what others show of its buffer, delay and random loss.

signal: the fit of the capture that is asked about, and those of others · model: the path is the same, the rate at the time of each is
not · action: the fit with the narrowest interval of the buffer, the smallest round trip and all losses; or in what the captures
contradict each other
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unbloat.link.model import Buffer, LinkFit, RandomLoss
from unbloat.text.format import byte_text

# Ends of a buffer that differ by more are those of two buffers: as the finding `buffer-size` has it.
SAME_BUFFER = 1.25


def narrowed(fitted: LinkFit, others: Sequence[LinkFit]) -> tuple[LinkFit, list[str]]:
    """The fit with what the others know, and where they contradict it: a line each."""
    contradictions = [line for other in others for line in contradiction(fitted, other)]
    if contradictions:
        return fitted, contradictions
    every = (fitted, *others)
    known = [one.buffer for one in every if one.buffer is not None]
    trips = [one.rtt_ms for one in every if one.rtt_ms is not None]
    losses = [one.random_loss for one in every if one.random_loss is not None]
    flow = fitted.flow | ({"rtt_ms_min": min(trips)} if trips else {})
    loss = together(losses) if losses else None
    return replace(fitted, flow=flow, buffer=narrowest(known), random_loss=loss), []


def together(losses: Sequence[RandomLoss]) -> RandomLoss:
    """Of all captures. Where one of them shows bursts, they are as long as there."""
    return RandomLoss(
        sum(one.losses for one in losses),
        sum(one.segments for one in losses),
        sum(one.packets for one in losses),
        max((one.burst for one in losses if one.burst), default=None),
    )


def narrowest(buffers: Sequence[Buffer]) -> Buffer | None:
    """The smallest interval; where no end was seen, the largest lower bound."""
    ended = [one for one in buffers if one.high_bytes is not None]
    if ended:
        return min(ended, key=lambda one: (one.high_bytes or 0.0) / one.low_bytes)
    return max(buffers, key=lambda one: one.low_bytes, default=None)


def contradiction(one: LinkFit, other: LinkFit) -> list[str]:
    """Whether two captures cannot be of one path."""
    found = []
    if one.flow["id"] % 2 != other.flow["id"] % 2:
        found.append(f"{other.capture} is of the other direction")
    first, second = one.buffer, other.buffer
    if first is None or second is None:
        return found
    for ended, seen in ((first, second), (second, first)):
        if ended.high_bytes is not None and seen.low_bytes > SAME_BUFFER * ended.high_bytes:
            found.append(
                f"the buffer of {other.capture} is another one: {byte_text(second.size_bytes)} and {byte_text(first.size_bytes)}"
            )
    return found
