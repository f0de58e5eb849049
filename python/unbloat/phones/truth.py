"""What is true of a file of a phone: made of the packets that were decided, before they are written and without any analysis.

Sessions are those that were drawn. `bursts` cuts each direction of a connection at a second without data, `slots` divides
the time of a file into seconds from its first packet on, as the tables of a corpus do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.phones.connection import Rise
from unbloat.phones.packets import Talk

if TYPE_CHECKING:
    import pyarrow as pa

SECOND_US = 1_000_000
# A second without data ends a flow (QCUT, section 3).
BURST_GAP_US = SECOND_US
TABLES = ("files", "sessions", "connections", "bursts", "slots")

Row = dict[str, Any]


@dataclass
class Known:
    """A connection: its packets, and the round trips that were decided."""

    talk: Talk
    rises: list[Rise]
    last_us: int
    """Time of its last data."""
    empty_first: bool = False
    """Whether its first packet is known to have found an empty queue: the log of a queue has no line of that."""

    @property
    def least_ms(self) -> float:
        """The smallest rise: that of the paper is above the smallest round trip of the flow, which may have waited as well."""
        return 0.0 if self.empty_first else min((rise.rise_ms for rise in self.rises), default=0.0)


@dataclass
class Truth:
    """Rows of each table."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})

    def session(self, device: str, data: Iterable[tuple[int, bool, int]]) -> None:
        """A session by all of its packets with payload."""
        every = list(data)
        self.rows["sessions"].append(
            {
                "device": device,
                "begin_s": min(at for at, _, _ in every) / SECOND_US,
                "end_s": max(at for at, _, _ in every) / SECOND_US,
                "bytes_up": sum(size for _, up, size in every if up),
                "bytes_down": sum(size for _, up, size in every if not up),
            }
        )

    def file(self, device: str, name: str, t0_us: int, connections: list[Known]) -> None:
        """Everything about a file but its sessions, which may go on in another one."""
        about = {"device": device, "file": name, "t0_s": t0_us / SECOND_US}
        packets = sum(len(one.talk.records) for one in connections)
        self.rows["files"].append(about | {"packets": packets})
        for one in connections:
            talk = one.talk
            key = {"phone_port": talk.phone.port, "server_port": talk.server.port}
            ups = [(at, size) for at, up, size in talk.data if up]
            downs = [(at, size) for at, up, size in talk.data if not up]
            self.rows["connections"].append(
                about
                | key
                | {
                    "bytes_up": sum(size for _, size in ups),
                    "bytes_down": sum(size for _, size in downs),
                }
            )
            for upload, data in ((True, ups), (False, downs)):
                for begin, end, size in bursts(data):
                    self.rows["bursts"].append(
                        about
                        | key
                        | {
                            "upload": upload,
                            "from_s": (begin - t0_us) / SECOND_US,
                            "to_s": (end - t0_us) / SECOND_US,
                            "bytes": size,
                        }
                    )
        self.rows["slots"] += [about | row for row in slots(t0_us, connections)]

    def add(self, other: Truth) -> None:
        """The rows of another phone behind these."""
        for name, rows in other.rows.items():
            self.rows[name] += rows

    def write(self, folder: Path) -> None:
        """A Parquet file per table."""
        import pyarrow.parquet as pq

        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in self.rows.items():
            pq.write_table(table_of(rows), folder / f"{name}.parquet")


def table_of(rows: list[Row]) -> pa.Table:
    """Rows as columns."""
    import pyarrow as pa

    return pa.Table.from_pylist(rows)


def bursts(data: list[tuple[int, int]]) -> Iterable[tuple[int, int, int]]:
    """First and last time and bytes of what has no pause of a second."""
    begin = end = size = 0
    for at, part in sorted(data):
        if size and at - end >= BURST_GAP_US:
            yield begin, end, size
            size = 0
        begin = begin if size else at
        end, size = at, size + part
    if size:
        yield begin, end, size


def slots(t0_us: int, connections: list[Known]) -> list[Row]:
    """Seconds with data, an ACK or a round trip: bytes, connections with data, connections that are open, mean rise of the RTT,
    mean time from data to its ACK on the phone."""
    ups: dict[int, int] = {}
    downs: dict[int, int] = {}
    active: dict[int, set[int]] = {}
    rises: dict[int, list[float]] = {}
    delays: dict[int, list[float]] = {}
    opened: dict[int, int] = {}
    for number, one in enumerate(connections):
        for at, up, size in one.talk.data:
            slot = (at - t0_us) // SECOND_US
            counted = ups if up else downs
            counted[slot] = counted.get(slot, 0) + size
            active.setdefault(slot, set()).add(number)
        for rise in one.rises:
            above_ms = rise.rise_ms - one.least_ms
            rises.setdefault((rise.at_us - t0_us) // SECOND_US, []).append(above_ms)
        for ack in one.talk.acks:
            delays.setdefault((ack.at_us - t0_us) // SECOND_US, []).append(ack.delay_ms)
        times = [at for at, _ in one.talk.records]
        for slot in range((min(times) - t0_us) // SECOND_US, (max(times) - t0_us) // SECOND_US + 1):
            opened[slot] = opened.get(slot, 0) + 1
    return [
        {
            "from_s": float(slot),
            "bytes_up": ups.get(slot, 0),
            "bytes_down": downs.get(slot, 0),
            "connections": len(active.get(slot, ())),
            "open_connections": opened.get(slot, 0),
            "rtt_rise_ms": sum(rises[slot]) / len(rises[slot]) if slot in rises else None,
            "ack_delay_ms": sum(delays[slot]) / len(delays[slot]) if slot in delays else None,
        }
        for slot in sorted(active.keys() | rises.keys() | delays.keys())
    ]
