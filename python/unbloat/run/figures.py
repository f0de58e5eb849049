"""The figures of a simulated run: per transfer, per probe, per link, of the run as a whole.

A transfer is all connections of a `[[flow]]`, in the direction of its data. What happened during the warm-up is left
out. A figure that was never measured is None. `metrics.py` names the figures.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from unbloat.run.tables import Row, RunTables
from unbloat.text.format import LIMITS

if TYPE_CHECKING:
    import pyarrow as pa

PARTS = ("min", "p50", "p95", "p99", "max")
POINT_SHARES = (0.0, 0.5, 0.95, 0.99, 1.0)


@dataclass(frozen=True)
class Statistics:
    """A distribution in six figures."""

    count: int
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float | None


def statistics(values: Iterable[float | None]) -> Statistics | None:
    """Of plain values; a quantile is the smallest value that so many do not exceed."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None

    def at(share: float) -> float:
        return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]

    mean = math.fsum(ordered) / len(ordered)
    return Statistics(len(ordered), ordered[0], at(0.5), at(0.95), at(0.99), ordered[-1], mean)


def gathered(rows: Sequence[Row], name: str, mean: float | None) -> Statistics | None:
    """A distribution from the columns `NAME_min` … of one or several rows."""
    known = [row for row in rows if row.get(f"{name}_count")]
    if not known:
        return None
    count = sum(row[f"{name}_count"] for row in known)
    if len(known) == 1:
        low, p50, p95, p99, high = (float(known[0][f"{name}_{part}"]) for part in PARTS)
        return Statistics(count, low, p50, p95, p99, high, mean)
    low, high = min(row[f"{name}_min"] for row in known), max(row[f"{name}_max"] for row in known)
    p50, p95, p99 = (mixed(known, name, share, low, high) for share in (0.5, 0.95, 0.99))
    return Statistics(count, low, p50, p95, p99, high, mean)


def mixed(rows: Sequence[Row], name: str, share: float, low: float, high: float) -> float:
    """A quantile of several distributions together, each known by five points and taken for linear between them."""
    parts = [
        (row[f"{name}_count"], [float(row[f"{name}_{part}"]) for part in PARTS]) for row in rows
    ]
    wanted = share * sum(count for count, _ in parts)
    # Halved so often, what is left of the range is far below the 1 % to which the points are known.
    for _ in range(20):
        middle = (low + high) / 2
        if math.fsum(count * portion(points, middle) for count, points in parts) < wanted:
            low = middle
        else:
            high = middle
    return high


def portion(points: Sequence[float], x: float) -> float:
    """The share of one distribution that does not exceed x."""
    place = bisect_right(points, x)
    if place == 0 or place == len(points):
        return POINT_SHARES[place - 1] if place else 0.0
    left, a = points[place - 1], POINT_SHARES[place - 1]
    return a + (POINT_SHARES[place] - a) * (x - left) / (points[place] - left)


def jain_index(rates: Sequence[float]) -> float | None:
    """Jain's index of fairness: 1 where all are equal, 1/n where one has everything; None where none sends."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


class Figures:
    """All figures of one simulated run."""

    def __init__(self, run: RunTables) -> None:
        self.run = run
        self.warmup_s = float(run.info.get("warmup_s", 0.0))
        self.transfers: list[str] = list(run.info.get("transfers", []))
        self.probes: list[str] = list(run.info.get("probed", []))
        self.links: list[str] = list(run.info.get("links", []))

    @cached_property
    def _flows(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {name: [] for name in self.transfers}
        for row in self.run.flows.to_pylist():
            if row.get("transfer") is not None:
                found[row["transfer"]].append(row)
        return found

    @cached_property
    def _times(self) -> dict[int, Row]:
        """When each connection was."""
        rows = self.run.connections.select(["id", "start_s", "duration_s"]).to_pylist()
        return {row["id"]: row for row in rows}

    @cached_property
    def _samples(self) -> dict[int, list[Row]]:
        names = [
            "flow",
            "t_s",
            "span_s",
            "delivered_bytes",
            "rtt_ms",
            "in_flight_bytes",
            "rwnd_bytes",
        ]
        rows: dict[int, list[Row]] = {}
        for row in self.run.samples().select(names).to_pylist():
            if row["t_s"] >= self.warmup_s:
                rows.setdefault(row["flow"], []).append(row)
        return rows

    @cached_property
    def _probe_rows(self) -> dict[str, list[Row]]:
        return self._measured(self.run.probes, "probe", self.probes)

    @cached_property
    def _app_rows(self) -> dict[str, list[Row]]:
        return self._measured(self.run.apps, "transfer", self.transfers)

    @cached_property
    def _queue_rows(self) -> dict[str, list[Row]]:
        return self._measured(self.run.queues, "link", self.links)

    @cached_property
    def _stages(self) -> dict[str, dict[str, Row]]:
        found: dict[str, dict[str, Row]] = {name: {} for name in self.links}
        for row in self.run.stages.to_pylist():
            found[row["link"]][row["stage"]] = row
        return found

    def _measured(self, table: pa.Table, key: str, names: Sequence[str]) -> dict[str, list[Row]]:
        """Rows after the warm-up, by name."""
        found: dict[str, list[Row]] = {name: [] for name in names}
        for row in table.to_pylist():
            if row["t_s"] >= self.warmup_s:
                found.setdefault(row[key], []).append(row)
        return found

    # Of a transfer.

    def flows(self, transfer: str) -> list[Row]:
        """Its rows of `flows`."""
        return self._flows.get(transfer, [])

    def _series(self, transfer: str) -> list[Row]:
        return [row for flow in self.flows(transfer) for row in self._samples.get(flow["id"], [])]

    def sum(self, transfer: str, column: str) -> float | None:
        """A column of `flows`, all its connections together."""
        known = [row[column] for row in self.flows(transfer) if row[column] is not None]
        return math.fsum(known) if known else None

    def share(self, transfer: str, limit: str) -> float | None:
        """Share of the time under a limit, over its connections by their time."""
        rows = [row for row in self.flows(transfer) if row[f"share_{limit}"] is not None]
        active = math.fsum(row["active_s"] for row in rows)
        return (
            math.fsum(row[f"share_{limit}"] * row["active_s"] for row in rows) / active
            if active
            else None
        )

    def limit(self, transfer: str) -> str | None:
        """The limit with the largest share, over its connections by their time; of two the one that takes precedence."""
        shares = {name: self.share(transfer, name) for name in LIMITS}
        known = [(share, name) for name, share in shares.items() if share]
        return max(known, key=lambda one: one[0])[1] if known else None

    def goodput_bps(self, transfer: str) -> float | None:
        """Delivered per time: of one connection from its first data on, of several from the first's begin to the last's end."""
        rows = self.flows(transfer)
        if len(rows) == 1:
            value = rows[0]["goodput_bps"]
            return 0.0 if value is None else float(value)
        if not rows:
            return None
        connections = [self._times[row["connection"]] for row in rows]
        begin = max(min(row["start_s"] for row in connections), self.warmup_s)
        end = max(row["start_s"] + row["duration_s"] for row in connections)
        delivered = sum(row["delivered_bytes"] for row in self._series(transfer))
        return delivered * 8 / (end - begin) if end > begin else None

    def rtt_ms(self, transfer: str) -> Statistics | None:
        """At the sender. The mean is that of the bins, by the bytes that they delivered."""
        weighted = [(row["rtt_ms"], row["delivered_bytes"]) for row in self._series(transfer)]
        known = [(value, weight) for value, weight in weighted if value is not None and weight]
        total = sum(weight for _, weight in known)
        mean = sum(value * weight for value, weight in known) / total if total else None
        return gathered(self.flows(transfer), "rtt_ms", mean)

    def transfer_queue_ms(self, transfer: str) -> Statistics | None:
        """Time that its data waited, in all queues of its way."""
        return gathered(self.flows(transfer), "queue_ms", None)

    def in_flight_bytes(self, transfer: str) -> Statistics | None:
        """The most of each bin."""
        found = statistics(row["in_flight_bytes"] for row in self._series(transfer))
        return gathered(self.flows(transfer), "in_flight_bytes", found.mean if found else None)

    def rwnd_bytes(self, transfer: str) -> Statistics | None:
        """At the end of each bin."""
        return statistics(row["rwnd_bytes"] for row in self._series(transfer))

    def retransmitted_share(self, transfer: str) -> float | None:
        """Share of the data segments sent that were retransmissions, over the whole transfer."""
        sent = self.sum(transfer, "data_packets")
        again = self.sum(transfer, "retransmissions")
        return again / sent if sent and again is not None else None

    def loss_rate(self, transfer: str) -> float | None:
        """Share of the data packets that the network lost."""
        sent = self.sum(transfer, "data_packets")
        lost = self.sum(transfer, "lost_packets")
        return lost / sent if sent and lost is not None else None

    def app(self, transfer: str, kind: str) -> list[float]:
        """What its application reported under a name."""
        return [row["value"] for row in self._app_rows.get(transfer, []) if row["kind"] == kind]

    def app_kinds(self, transfer: str) -> list[str]:
        """The names under which it reported anything."""
        return sorted({row["kind"] for row in self._app_rows.get(transfer, [])})

    def stall_s(self, transfer: str) -> float | None:
        """Video: time without picture after the start; None where none was played."""
        if not self.app(transfer, "bitrate_bps"):
            return None
        return math.fsum(self.app(transfer, "stall_ms")) / 1000

    def mos(self, transfer: str) -> float | None:
        """Voice: the worse of both ways, since a conversation needs both."""
        return min([*self.app(transfer, "mos"), *self.app(transfer, "mos_back")], default=None)

    # Of a probe.

    def probe(self, probe: str, column: str) -> Statistics | None:
        """`rtt_ms` or `owd_ms` of those that came back."""
        return statistics(row[column] for row in self._probe_rows.get(probe, []))

    def probe_counts(self, probe: str) -> tuple[int, int]:
        """Sent, lost."""
        rows = self._probe_rows.get(probe, [])
        return len(rows), sum(row["lost"] for row in rows)

    def probe_loss_rate(self, probe: str) -> float | None:
        """Share of the packets that did not come back; those on the way at the end count as neither."""
        rows = self._probe_rows.get(probe, [])
        ended = [
            row
            for row in rows
            if row["lost"] or row["rtt_ms"] is not None or row["owd_ms"] is not None
        ]
        return sum(row["lost"] for row in ended) / len(ended) if ended else None

    # Of a link.

    def stage_ms(self, link: str, stage: str) -> Statistics | None:
        """Time spent in one stage."""
        row = self.stage(link, stage)
        return None if row is None else gathered([row], "delay_ms", row["delay_ms_mean"])

    def stage(self, link: str, stage: str) -> Row | None:
        """Its row of `stages`."""
        return self._stages.get(link, {}).get(stage)

    def stages(self, link: str) -> list[str]:
        """`queue`, or `qdisc` and `firmware`; those of ACKs alone are a part of these."""
        return [name for name in self._stages.get(link, {}) if not name.endswith("_acks")]

    def link_ms(self, link: str) -> Statistics | None:
        """Time in front of a link. Behind a device both stages add up, bin by bin."""
        names = self.stages(link)
        if len(names) < 2:
            return self.stage_ms(link, names[0]) if names else None
        bins: dict[float, float] = {}
        for row in self._queue_rows.get(link, []):
            if row["delay_ms"] is not None:
                bins[row["t_s"]] = bins.get(row["t_s"], 0.0) + row["delay_ms"]
        return statistics(bins.values())

    def link_bytes(self, link: str) -> Statistics | None:
        """What stood in front of a link at the end of each bin; without a row in a bin the queue was empty."""
        bins: dict[float, float] = {}
        for row in self._queue_rows.get(link, []):
            bins[row["t_s"]] = bins.get(row["t_s"], 0.0) + row["bytes"]
        span = float(self.run.info["duration_s"]) - self.warmup_s
        empty = round(span * 1000 / float(self.run.info["bin_ms"])) - len(bins)
        return statistics([*bins.values(), *([0.0] * max(empty, 0))])

    def throughput_bps(self, link: str) -> float | None:
        """What arrived, on the IP layer."""
        for row in self._stages.get(link, {}).values():
            return None if row["throughput_bps"] is None else float(row["throughput_bps"])
        return None

    def utilization(self, link: str) -> float | None:
        """Throughput over the link's rate, where that is constant."""
        for row in self._stages.get(link, {}).values():
            if row["rate_bps"] and row["throughput_bps"] is not None:
                return min(float(row["throughput_bps"] / row["rate_bps"]), 1.0)
        return None

    def drops(self, link: str) -> float | None:
        """Packets dropped in front of a link."""
        rows = list(self._stages.get(link, {}).values())
        return (
            float(max(row["drops_overflow"] + row["drops_aqm"] for row in rows)) if rows else None
        )

    # Of the run.

    def fairness(self) -> float | None:
        """Jain's index of the transfers' goodputs."""
        rates = [rate for name in self.transfers if (rate := self.goodput_bps(name)) is not None]
        return jain_index(rates)

    def total_goodput_bps(self) -> float | None:
        """Of all transfers together."""
        rates = [rate for name in self.transfers if (rate := self.goodput_bps(name)) is not None]
        return math.fsum(rates) if rates else None


Figure = float | Statistics | None
