"""Queues, links and losses as the emulator counted them.

signal: `emu/queues.jsonl`, `emu/stages.jsonl`, `emu/losses.jsonl` · model: none, the emulator runs the simulator's own port ·
action: the tables `queues` and `stages`; losses of data by the two ends of their connection
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unbloat.lab.result.raw_files import Raw
from unbloat.run.tables import Row

if TYPE_CHECKING:
    import pyarrow as pa

TCP = 6
# Headers of IPv4 and TCP without options, and with all the options that fit: a packet of not more bytes than that is
# an ACK, whose options may be SACK blocks.
MIN_HEADERS, MAX_HEADERS = 40, 80
STAMPS = 12
# What a loss is called in `events`; what could not be delivered was lost on the link's far side.
WHY = {
    "overflow": "drop_overflow",
    "aqm": "drop_aqm",
    "link": "drop_link",
    "undeliverable": "drop_link",
}
QUANTILES = ("min", "p50", "p95", "p99", "max")


@dataclass(frozen=True)
class Loss:
    """A data segment that the network lost."""

    t_s: float
    event: str
    payload: int
    seq: int | None


def data_losses(raw: Raw) -> dict[tuple[str, str], list[Loss]]:
    """Losses of TCP data by sender and receiver, in order of time."""
    stamps = {str(flow["name"]): bool(flow["sender"]["timestamps"]) for flow in raw.plan["flows"]}
    header = MIN_HEADERS + (STAMPS if all(stamps.values()) else 0)
    found: dict[tuple[str, str], list[Loss]] = {}
    for row in raw.lines("emu/losses.jsonl"):
        size = int(row["bytes"])
        if row["proto"] not in (TCP, "tcp") or size <= MAX_HEADERS:
            continue
        ends = f"{row['src']}:{row['sport']}", f"{row['dst']}:{row['dport']}"
        loss = Loss(
            float(row["t_s"]), WHY.get(str(row["why"]), "drop_link"), size - header, row.get("seq")
        )
        found.setdefault(ends, []).append(loss)
    for losses in found.values():
        losses.sort(key=lambda loss: loss.t_s)
    return found


def link_tables(raw: Raw) -> dict[str, pa.Table]:
    """`queues` and `stages`, with the columns of a simulated run."""
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    queues = pa.schema(
        [
            ("link", word),
            ("stage", word),
            ("t_s", pa.float64()),
            ("packets", pa.uint64()),
            ("bytes", pa.uint64()),
            ("delay_ms", pa.float64()),
            ("delay_ms_max", pa.float64()),
            ("drops", pa.uint64()),
        ]
    )
    stages = pa.schema(
        [
            ("link", word),
            ("stage", word),
            ("from_node", word),
            ("to_node", word),
            ("delay_ms_count", pa.uint64()),
        ]
        + [(f"delay_ms_{part}", pa.float64()) for part in (*QUANTILES, "mean")]
        + [
            (name, pa.uint64())
            for name in ("packets", "drops_overflow", "drops_aqm", "lost_on_link")
        ]
        + [("throughput_bps", pa.uint64()), ("rate_bps", pa.uint64())]
    )
    return {
        "queues": pa.Table.from_pylist(
            sorted(
                (queue_row(raw, row) for row in raw.lines("emu/queues.jsonl")),
                key=lambda row: (row["t_s"], raw.links.index(row["link"])),
            ),
            schema=queues,
        ),
        "stages": pa.Table.from_pylist(
            [stage_row(raw, row) for row in raw.lines("emu/stages.jsonl")], schema=stages
        ),
    }


def queue_row(raw: Raw, row: Row) -> Row:
    """A bin of a stage."""
    kept = ("stage", "t_s", "packets", "bytes", "delay_ms", "delay_ms_max", "drops")
    return {"link": raw.links[row["link"]], **{name: row[name] for name in kept}}


def stage_row(raw: Raw, row: Row) -> Row:
    """A stage over the whole run."""
    link = raw.plan["links"][row["link"]]
    delays = row["delay_ms"] or {}
    counted = ("packets", "drops_overflow", "drops_aqm", "lost_on_link", "throughput_bps")
    return {
        "link": link["name"],
        "stage": row["stage"],
        "from_node": raw.nodes[link["from"]],
        "to_node": raw.nodes[link["to"]],
        **{f"delay_ms_{part}": delays.get(part) for part in ("count", *QUANTILES, "mean")},
        **{name: row[name] for name in counted},
        "rate_bps": constant_rate(raw, row["link"]),
    }


def constant_rate(raw: Raw, link: int) -> int | None:
    """The rate of a link that has one and keeps it."""
    changed = any(
        what["kind"] == "link" and what["link"] == link
        for change in raw.plan["changes"]
        for what in change["what"]
    )
    medium = raw.plan["links"][link]["medium"]
    return None if changed or medium["kind"] != "fixed" else round(medium["rate"])
