"""What the lab knows of a connection beside its capture: transfer, congestion control, socket samples, losses.

signal: the analysis of one capture, the connections and samples that the programs reported, losses
from the emulator · model: of a bin the socket's sample nearest to its end counts; a loss is a
direction's by the two ends of its packet · action: further columns and events, as simulated runs
have them
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unbloat.lab.result.links import Loss
from unbloat.lab.result.raw_files import Raw
from unbloat.lab.result.traffic_logs import Known, TrafficLogs
from unbloat.run.figures import statistics
from unbloat.run.tables import Row

if TYPE_CHECKING:
    import pyarrow as pa

# A sequence number begins again after so many bytes.
SEQUENCES = 1 << 32
# A socket is asked once per bin, give or take what a busy machine is late.
LATE_BINS = 1.5


@dataclass(frozen=True)
class Pick:
    """A connection of a capture that carries a transfer."""

    old: int
    new: int
    way: int
    """Direction of the transfer's data: 0 is a → b."""
    known: Known


def with_transfers(table: pa.Table, picks: dict[int, Pick]) -> pa.Table:
    """The transfer of each connection; interfaces of several captures have no common numbers."""
    import pyarrow as pa

    ids = table.column("id").to_pylist()
    place = table.column_names.index("interface")
    table = table.set_column(
        place, table.schema.field("interface"), pa.array([0] * len(ids), pa.uint32())
    )
    return table.append_column("transfer", words(picks[id_].known.transfer for id_ in ids))


def words(values: Any) -> pa.Array:
    """A column of words from a short list."""
    import pyarrow as pa

    return pa.array(list(values), pa.dictionary(pa.int32(), pa.string()))


def with_facts(
    raw: Raw, table: pa.Table, picks: dict[int, Pick], lost: dict[int, list[Loss]]
) -> pa.Table:
    """Transfer, congestion control, window law and losses of each direction."""
    import pyarrow as pa

    ids = table.column("id").to_pylist()
    ours = [picks[id_ // 2] for id_ in ids]
    carries = [id_ % 2 == pick.way for id_, pick in zip(ids, ours, strict=True)]
    plan = {flow["name"]: flow for flow in raw.plan["flows"]}
    laws = [
        plan[pick.known.transfer]["receiver"]["window"]["kind"] if data else None
        for pick, data in zip(ours, carries, strict=True)
    ]
    # With segmentation offload a captured packet is many on the wire.
    counted = zip(
        *(
            table.column(name).to_pylist()
            for name in ("data_packets", "payload_bytes", "mss_bytes")
        ),
        strict=True,
    )
    packets = [max(packets, -(-payload // mss) if mss else 0) for packets, payload, mss in counted]
    gone = [len(lost[id_]) for id_ in ids]
    rates = [
        min(count / sent, 1.0) if sent else None for count, sent in zip(gone, packets, strict=True)
    ]
    for name, values in (
        ("data_packets", pa.array(packets, pa.uint64())),
        ("loss_rate", pa.array(rates, pa.float64())),
    ):
        table = table.set_column(table.column_names.index(name), table.schema.field(name), values)
    transfers = [
        pick.known.transfer if data else None for pick, data in zip(ours, carries, strict=True)
    ]
    table = table.append_column("transfer", words(transfers))
    table = table.append_column("congestion", words(pick.known.congestion for pick in ours))
    table = table.append_column("window_law", words(laws))
    table = table.append_column("lost_packets", pa.array(gone, pa.uint64()))
    # What only the sender's own bookkeeping knows.
    for name in ("recoveries", "undone"):
        table = table.append_column(name, pa.array([None] * len(ids), pa.uint64()))
    for name in ("window_idle_s", "queue_ms_p94_5", "queue_ms_p95_5"):
        table = table.append_column(name, pa.array([None] * len(ids), pa.float64()))
    return table


def with_sockets(
    raw: Raw, table: pa.Table, flows: pa.Table, picks: dict[int, Pick], logs: TrafficLogs
) -> pa.Table:
    """What the sender's socket reported at the end of each bin, and the queueing delay that its
    round trips show."""
    import pyarrow as pa

    bases = dict(zip(flows.column("id").to_pylist(), map(path_ms, flows.to_pylist()), strict=True))
    late_s = LATE_BINS * raw.bin_ms / 1000
    found: dict[int, Callable[[float], Row | None]] = {}
    columns: dict[str, list[float | int | None]] = {
        "cwnd_bytes": [],
        "ssthresh_bytes": [],
        "pacing_bps": [],
        "queue_ms": [],
    }
    rows = zip(
        *(table.column(name).to_pylist() for name in ("flow", "t_s", "span_s", "rtt_ms")),
        strict=True,
    )
    for flow, t_s, span_s, rtt in rows:
        if flow not in found:
            known = picks[flow // 2].known
            ends = (known.sender, known.receiver)
            found[flow] = at(
                logs.sockets.get(ends if flow % 2 == picks[flow // 2].way else ends[::-1], []),
                late_s,
            )
        row = found[flow](t_s + span_s)
        columns["cwnd_bytes"].append(segments(row, "cwnd_segments"))
        columns["ssthresh_bytes"].append(segments(row, "ssthresh_segments"))
        columns["pacing_bps"].append(
            None if row is None or row.get("pacing_bps") is None else round(row["pacing_bps"])
        )
        base = bases[flow]
        columns["queue_ms"].append(None if rtt is None or base is None else max(rtt - base, 0.0))
    for name, values in columns.items():
        table = table.append_column(
            name, pa.array(values, pa.float32() if name == "queue_ms" else pa.uint64())
        )
    return table


def in_flight_by_bin(raw: Raw, table: pa.Table, samples: pa.Table) -> pa.Table:
    """Bytes in flight as the simulator gives them: the most of each bin. The analysis of a capture takes them at each packet,
    where the two differ as soon as data comes in bursts."""
    import pyarrow as pa

    rows = zip(
        *(
            samples.column(name).to_pylist()
            for name in ("flow", "t_s", "span_s", "in_flight_bytes")
        ),
        strict=True,
    )
    found: dict[int, list[float | None]] = {}
    for flow, t_s, span_s, most in rows:
        if t_s + span_s > raw.warmup_s:
            found.setdefault(flow, []).append(most)
    of = [statistics(found.get(id_, [])) for id_ in table.column("id").to_pylist()]
    for part in ("count", "min", "p50", "p95", "p99", "max"):
        name = f"in_flight_bytes_{part}"
        field = table.schema.field(name)
        values = [None if one is None else getattr(one, part) for one in of]
        table = table.set_column(
            table.column_names.index(name), field, pa.array(values, field.type)
        )
    return table


def path_ms(flow: Row) -> float | None:
    """The smallest round trip that the path is known to have: what added delay is measured against."""
    if flow["queue_ms_max"] is not None:
        return float(flow["loaded_rtt_ms_max"] - flow["queue_ms_max"])
    known = [flow[name] for name in ("rtt_ms_min", "initial_rtt_ms") if flow[name] is not None]
    return min(known, default=None)


def at(rows: Sequence[Row], late_s: float) -> Callable[[float], Row | None]:
    """The sample nearest to a time, if one was taken about then."""
    times = [float(row["t_s"]) for row in rows]

    def nearest(t_s: float) -> Row | None:
        place = bisect_left(times, t_s)
        near = [i for i in (place - 1, place) if 0 <= i < len(times)]
        best = min(near, key=lambda i: abs(times[i] - t_s), default=None)
        return None if best is None or abs(times[best] - t_s) > late_s else rows[best]

    return nearest


def segments(row: Row | None, name: str) -> int | None:
    """A figure that the kernel keeps in segments, in bytes."""
    if row is None or row.get(name) is None:
        return None
    return round(float(row[name]) * float(row["mss_bytes"]))


def with_losses(
    table: pa.Table, lost: dict[int, list[Loss]], first: dict[int, int | None]
) -> pa.Table:
    """What the network lost, among the events."""
    import pyarrow as pa

    rows: list[Row] = []
    for flow, losses in lost.items():
        place = 0
        for loss in losses:
            begin = first.get(flow)
            if loss.seq is not None and begin is not None:
                # The position nearest to the last one: sequence numbers begin again after 4 GB.
                step = (loss.seq - begin - place) % SEQUENCES
                place = max(place + (step - SEQUENCES if step > SEQUENCES // 2 else step), 0)
            rows.append(
                {
                    "flow": flow,
                    "t_s": loss.t_s,
                    "kind": loss.event,
                    "value": float(loss.payload),
                    "seq": place,
                }
            )
    return (
        pa.concat_tables([table, pa.Table.from_pylist(rows, schema=table.schema)])
        if rows
        else table
    )
