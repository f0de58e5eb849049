"""A corpus of synthetic phones: a folder per phone with a capture per hour, and what is true of them.

signal: a population, numbers of phones and days, a seed · model: each phone has a random generator of its own, so that it
is the same whatever the others are; a minute of silence and more lies between its sessions · action: `DIR/phone-NN/*.pcap`
and `DIR/truth/*.parquet`; the same arguments give the same bytes
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from unbloat.errors import UnbloatError
from unbloat.phones.acks import with_acks
from unbloat.phones.connection import download, small
from unbloat.phones.packets import End, Talk, write_pcap
from unbloat.phones.population import POPULATIONS, Population
from unbloat.phones.session import Bulk, Group, Session, Small, draw_session
from unbloat.phones.truth import Known, Truth
from unbloat.phones.upload import upload

# Midnight of 2024-01-01 UTC: results must not depend on today's date.
EPOCH_S = 1_704_067_200
SECOND_US, HOUR_US = 1_000_000, 3_600_000_000
DAY_US = 24 * HOUR_US
# From the last data of a session to the first packet of the next, at least: clear of the minute that ends a session.
SILENCE_S = 61.0
# TEST-NET-3 (RFC 5737): addresses that no host has.
SERVER_NET = bytes((203, 0, 113))
# Ephemeral ports of the phone (RFC 6335), by turns.
FIRST_PORT, PORTS = 49_152, 16_384
HTTPS = 443


@dataclass(frozen=True)
class Made:
    """What was written."""

    devices: int
    captures: int
    sessions: int
    packets: int
    bytes: int


@dataclass
class Phone:
    """A phone while its captures are made."""

    name: str
    address: bytes
    base_us: int
    out: Path
    truth: Truth = field(default_factory=Truth)
    connections: int = 0
    hour: int = -1
    pending: list[Known] = field(default_factory=list)
    """Connections of the hour that is not written yet."""

    def talk(self) -> Talk:
        """A new connection to one of many servers."""
        number = self.connections
        self.connections += 1
        server = SERVER_NET + bytes((1 + number % 254,))
        # Sequence numbers begin somewhere, and differently.
        begin = number * 2_654_435_761 & 0xFFFFFFFF
        port = FIRST_PORT + number % PORTS
        return Talk(End(self.address, port, begin), End(server, HTTPS, begin ^ 0x5A5A5A5A))

    def group(self, group: Group, at_us: int) -> tuple[int, list[Known]]:
        """What begins together; the time of its last data. It belongs to the hour in which it begins."""
        hour = at_us // HOUR_US
        if hour != self.hour:
            self.write()
            self.hour = hour
        made, last_us = [], 0
        for part in group.parts:
            made.append(connect(self.talk(), part, at_us + round(part.after_s * 1e6), self.base_us))
            last_us = max(last_us, made[-1].last_us)
        self.pending += made
        return last_us, made

    def session(self, session: Session, at_us: int) -> int:
        """A session that begins then; the time of its last data."""
        data: list[tuple[int, bool, int]] = []
        last_us = at_us
        for group in session.groups:
            last_us, made = self.group(group, last_us + round(group.pause_s * 1e6))
            data += [packet for one in made for packet in one.talk.data]
        self.truth.session(self.name, data)
        return max(at for at, _, _ in data)

    def write(self) -> None:
        """The capture of an hour."""
        if not self.pending:
            return
        name = f"hour-{self.hour - EPOCH_S * SECOND_US // HOUR_US:04}.pcap"
        records = [record for one in self.pending for record in one.talk.records]
        t0_us = write_pcap(self.out / self.name / name, records)
        self.truth.file(self.name, name, t0_us, self.pending)
        self.pending = []


def connect(talk: Talk, part: Small | Bulk, at_us: int, base_us: int) -> Known:
    """The packets of a connection."""
    if isinstance(part, Small):
        last_us, rises = small(talk, part, at_us, base_us)
        return Known(talk, rises, last_us)
    last_us, rises = (upload if part.upload else download)(talk, part, at_us, base_us)
    return Known(talk, rises, last_us, part.upload)


def make_phone(out: Path, population: Population, number: int, days: float, seed: int) -> Truth:
    """The captures of one phone, and what is true of them."""
    random, ack_random = Random(f"{seed}/{number}"), Random(f"{seed}/{number}/acks")
    name = f"phone-{number:02}"
    address = bytes((10, 0, number // 250, 2 + number % 250))
    phone = Phone(name, address, round(population.base_ms.at(random.random()) * 1000), out)
    mean_s = 3600 / population.sessions_per_hour
    at_us = EPOCH_S * SECOND_US
    end_us = at_us + round(days * DAY_US)
    while True:
        silent_s = SILENCE_S + random.expovariate(1 / max(mean_s - SILENCE_S, 1.0))
        at_us += round(silent_s * 1e6)
        if at_us >= end_us:
            break
        session = with_acks(draw_session(population, random), population, ack_random)
        at_us = phone.session(session, at_us)
    phone.write()
    return phone.truth


def make_phones(
    out: str | os.PathLike[str],
    *,
    population: str | Population = "paper",
    devices: int = 15,
    days: float = 1.0,
    seed: int = 1,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Made:
    """Write captures of phones and their truth to a new or empty folder.

    `population` is a name of `POPULATIONS` or your own. `days` may be a fraction. The same arguments give the same bytes,
    whatever `jobs` is. Raises `UnbloatError` where the folder has something in it.
    """
    folder = Path(out)
    if folder.exists() and any(folder.iterdir()):
        raise UnbloatError(f"{folder} is not empty: name a new folder")
    chosen = named(population)
    truth = Truth()
    work = [(folder, chosen, number, days, seed) for number in range(devices)]
    for done, one in enumerate(truths(work, jobs or os.cpu_count() or 1)):
        truth.add(one)
        if progress is not None:
            progress(done + 1, devices)
    if not truth.rows["sessions"]:
        raise UnbloatError("no session begins in this time: ask for more days or more devices")
    truth.write(folder / "truth")
    return Made(
        devices,
        len(truth.rows["files"]),
        len(truth.rows["sessions"]),
        sum(row["packets"] for row in truth.rows["files"]),
        sum(path.stat().st_size for path in folder.rglob("*.pcap")),
    )


def named(population: str | Population) -> Population:
    """A population by its name."""
    if isinstance(population, Population):
        return population
    if population not in POPULATIONS:
        raise UnbloatError(f"no population is called {population!r}: {', '.join(POPULATIONS)}")
    return POPULATIONS[population]


def truths(work: Sequence[tuple[Path, Population, int, float, int]], jobs: int) -> Iterator[Truth]:
    """Of each phone, in order; processes side by side where there is more than one."""
    if min(jobs, len(work)) == 1:
        yield from (make_phone(*one) for one in work)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(work)), mp_context=context) as pool:
        yield from pool.map(make_phone, *zip(*work, strict=True))
