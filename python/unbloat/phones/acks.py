"""How long ACKs of downloads wait on the phone: drawn for a session whose traffic is known.

signal: a session, a population's laws, a random generator of its own · model: ACKs wait above the capture, in the queue of
what the phone sends. So the upload beside an ACK chooses its law, in the classes of QCUT's figure 4b: below 5 KB in a second,
up to 100 KB, above · action: the same session, with `ack_ms` of each exchange and of each large download · deviation: the
simulated uploads have their queue below the capture, and their waits are not those of the ACKs: two laws, as of two figures
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from unbloat.phones.population import BULK_BYTES, Population
from unbloat.phones.session import (
    LONG_BYTES,
    THINK_S,
    TRICKLE_STEP_S,
    Bulk,
    Exchange,
    Group,
    Session,
    Small,
)

# In a trickle the next message may come 0.4 s after the last. RTT, wait and answer take most of that; an ACK has to be out
# before it.
PACED_MS = 1000 * (TRICKLE_STEP_S[0] - THINK_S[1]) / 4


def with_acks(session: Session, population: Population, random: Random) -> Session:
    """The session with delays of its ACKs."""
    return Session(
        tuple(
            Group(
                group.pause_s,
                tuple(part_of(part, group, population, random) for part in group.parts),
            )
            for group in session.groups
        )
    )


def part_of(
    part: Small | Bulk, group: Group, population: Population, random: Random
) -> Small | Bulk:
    """A connection of a group."""
    if isinstance(part, Bulk):
        if part.upload:
            return part
        beside = uploaded(group, part.after_s, part.after_s + part.long_s)
        return replace(part, ack_ms=drawn(beside, population, random))
    found: list[Exchange] = []
    at_s = part.after_s
    for exchange in part.exchanges:
        at_s += exchange.pause_s if found else 0.0
        beside = exchange.up_bytes + uploaded(group, at_s, at_s)
        ack_ms = drawn(beside, population, random)
        if exchange.paced:
            ack_ms = min(ack_ms, PACED_MS)
        found.append(replace(exchange, ack_ms=ack_ms))
        if not exchange.paced:
            at_s += exchange.rise_ms / 1000 + exchange.think_s
    return Small(part.after_s, tuple(found))


def uploaded(group: Group, from_s: float, to_s: float) -> float:
    """Bytes per second of the large uploads that begin before `to_s` and end after `from_s`, in seconds of the group."""
    return sum(
        one.rate_bps / 8
        for one in group.parts
        if isinstance(one, Bulk)
        and one.upload
        and one.after_s <= to_s
        and from_s < one.after_s + one.long_s
    )


def drawn(up_bytes: float, population: Population, random: Random) -> float:
    """The delay of an ACK beside so many bytes up in a second, ms."""
    place = (up_bytes >= LONG_BYTES) + (up_bytes > BULK_BYTES)
    return population.ack_ms[place].at(random.random())
