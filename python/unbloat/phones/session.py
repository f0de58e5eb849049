"""One session of a phone: what is drawn for it, before there is any packet.

signal: a population, a random generator · model: bytes, upload's share, large transfers and small connections, in groups
that begin together with a pause of a few seconds between them · action: a `Session` of decisions
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from unbloat.phones.population import BULK_BYTES, LARGE_BYTES, LARGEST, MIDDLE_BYTES, Population

# A session of less is one connection: there is nothing to divide.
SMALL_BYTES = 1_500
# Between groups of connections: far from the second that ends a flow, and from the minute that ends a session.
GROUP_PAUSE_S = (2.0, 40.0)
# Connections of a group begin within this time, as those of a page.
TOGETHER_S = 0.4
# What a session with a large transfer has besides: its share, and at most so much.
BESIDE_SHARE, BESIDE_BYTES = 0.05, 20_000
# A request and an answer are at least so long.
MIN_BYTES = 40
# Between messages of a trickle; a pause of a second would end it.
TRICKLE_STEP_S = (0.4, 0.8)
# A trickle and a slow download last longer than the 3 s from which on QCUT's figure 3 has a rate.
MIN_LONG_S = 3.5
# A download of so much is slow in some sessions.
SLOW_BYTES = 20_000
# From request to answer at the server.
THINK_S = (0.01, 0.15)
# Requests from here on wait by the other law of their queue: the class border of QCUT's figure 4.
LONG_BYTES = 5_000


@dataclass(frozen=True)
class Exchange:
    """A request and its answer."""

    pause_s: float
    """From the end of what came before."""
    up_bytes: int
    down_bytes: int
    rise_ms: float
    """RTT of the request above the path's own."""
    think_s: float
    paced: bool = False
    """The pause is from request to request, as in a trickle."""
    ack_ms: float = 0.1
    """From data of the answer to its ACK on the phone; in a trickle less than the pause after it."""


@dataclass(frozen=True)
class Small:
    """A connection of small exchanges."""

    after_s: float
    """From the begin of the group."""
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True)
class Bulk:
    """A large transfer over a connection of its own."""

    after_s: float
    upload: bool
    size_bytes: int
    rate_bps: float
    queue_ms: float
    """What a full queue lasts; of an upload alone."""
    paced: bool = False
    """The application of an upload has that rate, and not the link."""
    ack_ms: float = 0.1
    """As of an exchange, of a download alone."""

    @property
    def long_s(self) -> float:
        """How long it takes at its rate."""
        return self.size_bytes * 8 / self.rate_bps


@dataclass(frozen=True)
class Group:
    """What begins together."""

    pause_s: float
    """From the last data of the group before."""
    parts: tuple[Small | Bulk, ...]


@dataclass(frozen=True)
class Session:
    """What a phone does without a minute of silence."""

    groups: tuple[Group, ...]


def draw_session(population: Population, random: Random) -> Session:
    """The decisions of one session."""
    rank = random.random()
    total = population.session_bytes.at(rank)
    up, down, size_rank = both_ways(population, random, rank, total)
    parts: list[Small | Bulk] = []
    for upload, size in ((True, up), (False, down)):
        if size >= BULK_BYTES:
            beside = min(size * BESIDE_SHARE, BESIDE_BYTES)
            parts.append(draw_bulk(population, random, upload, size - beside, size_rank))
            up, down = (beside, down) if upload else (up, beside)
    if SLOW_BYTES <= down < BULK_BYTES and random.random() < population.slow_downloads:
        parts.append(draw_slow(population, random, down - MIN_BYTES))
        down = MIN_BYTES
    trickle = SMALL_BYTES <= total < BULK_BYTES and random.random() < population.trickles
    if trickle:
        smalls = [draw_trickle(population, random, up, down)]
    else:
        smalls = draw_smalls(population, random, up, down)
    # A large transfer begins with the first group; what it leaves over may come later.
    cut = random.randint(1, len(smalls)) if len(smalls) > 2 else len(smalls)
    groups = [Group(0.0, (*smalls[:cut], *parts))]
    if smalls[cut:]:
        groups.append(Group(random.uniform(*GROUP_PAUSE_S), tuple(smalls[cut:])))
    return Session(tuple(groups))


def size_class(size: float) -> int:
    """Of 100 KB and more: below 1 MB, below 10 MB, above."""
    return (size >= MIDDLE_BYTES) + (size >= LARGE_BYTES)


def both_ways(
    population: Population, random: Random, rank: float, total: float
) -> tuple[float, float, float | None]:
    """Bytes up and down of a session; of an upload its rank among those of its class."""
    place = size_class(total)
    if total >= BULK_BYTES and random.random() < population.upload_sessions[place]:
        of_class = random.random()
        up = population.upload_bytes[place].at(of_class)
        return up, up / population.upload_share_upload.at(random.random()) - up, of_class
    if total >= BULK_BYTES:
        chosen = population.upload_share_download[total >= MIDDLE_BYTES]
    elif rank >= LARGEST:
        chosen = population.upload_share_large
    else:
        chosen = population.upload_share_small
    up = total * chosen.at(random.random())
    return up, total - up, None


def draw_bulk(
    population: Population, random: Random, upload: bool, size: float, rank: float | None
) -> Bulk:
    """A large transfer; `rank` is that of the size of an upload."""
    laws = population.upload_s if upload else population.download_s
    place = size_class(size)
    alike = upload and rank is not None and random.random() < population.uploads_alike
    long_s = laws[place].at(rank if alike and rank is not None else random.random())
    queue_ms = population.upload_queue_ms[place].at(random.random())
    paced = upload and random.random() < population.uploads_paced[place]
    after_s = random.uniform(0, TOGETHER_S)
    return Bulk(after_s, upload, int(size), size * 8 / long_s, queue_ms, paced)


def draw_slow(population: Population, random: Random, size: float) -> Bulk:
    """A download of less, over a bad link."""
    long_s = max(population.trickle_s.at(random.random()), MIN_LONG_S)
    return Bulk(random.uniform(0, TOGETHER_S), False, int(size), size * 8 / long_s, 0.0)


def draw_smalls(population: Population, random: Random, up: float, down: float) -> list[Small]:
    """Small connections that share the bytes."""
    total = up + down
    count = max(1, min(40, round(total / population.exchange_bytes)))
    weights = [0.2 + random.random() for _ in range(count)]
    whole = sum(weights)
    exchanges = []
    for weight in weights:
        up_bytes = max(MIN_BYTES, int(up * weight / whole))
        down_bytes = max(MIN_BYTES, int(down * weight / whole))
        exchanges.append(draw_exchange(population, random, up_bytes, down_bytes))
    wanted = int(population.connections.at(random.random())) if total >= SMALL_BYTES else 1
    number = max(1, min(wanted, count))
    return [
        Small(random.uniform(0, TOGETHER_S), tuple(exchanges[place::number]))
        for place in range(number)
    ]


def draw_exchange(
    population: Population, random: Random, up_bytes: int, down_bytes: int
) -> Exchange:
    """A request and its answer."""
    waits = population.rise_long_ms if up_bytes >= LONG_BYTES else population.rise_ms
    return Exchange(
        population.pause_s.at(random.random()),
        up_bytes,
        down_bytes,
        waits.at(random.random()),
        random.uniform(*THINK_S),
    )


def draw_trickle(population: Population, random: Random, up: float, down: float) -> Small:
    """A connection that sends a little again and again."""
    long_s = max(population.trickle_s.at(random.random()), MIN_LONG_S)
    steps = []
    left_s = long_s
    while left_s > 0:
        steps.append(random.uniform(*TRICKLE_STEP_S))
        left_s -= steps[-1]
    answers = random.random() < population.trickle_answers
    up_bytes = max(MIN_BYTES, int(up / len(steps)))
    each = max(MIN_BYTES, int(down / len(steps))) if answers else 0
    found = []
    for place, step in enumerate(steps):
        down_bytes = max(MIN_BYTES, int(down)) if place == 0 and not answers else each
        rise_ms = min(
            population.rise_ms.at(random.random()), 1000 * (TRICKLE_STEP_S[0] - THINK_S[1]) / 2
        )
        found.append(Exchange(step, up_bytes, down_bytes, rise_ms, random.uniform(*THINK_S), True))
    return Small(random.uniform(0, TOGETHER_S), tuple(found))
