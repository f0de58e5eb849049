"""The tables of one run as data: of a capture, or of a scenario that was simulated or run in the lab.

`connections`, `flows` and `findings` are always there. `samples`, `events` and `segments` grow with the capture: they
are computed when they are first asked for, by another pass over the files, and kept. The run of a scenario has its
series from the beginning, and tables of queues, probes and applications besides (docs/format.md lists all columns).

Everything that reads a run (verdict, metrics, tables, pages, Parquet) takes this class and imports nothing above it.
`Run`, what users get, adds the methods that say something about the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from unbloat.errors import UnbloatError
from unbloat.run.arrow import EXTRA, MODEM, SERIES

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
Which = int | Iterable[int] | None
"""One id, several, or None for all."""

# Where runs of a scenario come from, and those of `unbloat measure`, which have their tables.
ORIGINS = ("simulated", "lab", "measured")
# Figures every 100 ms show a 200 ms round trip and keep an hour at 36,000 rows.
BIN_MS = 100.0
# Segments of a flow beyond this are thinned out; more than a screen can show, few enough for a page.
MAX_SEGMENTS = 200_000
# Findings are listed the most severe first.
SEVERITY_ORDER = {"serious": 0, "warning": 1, "info": 2}


class Source(Protocol):
    """Where series come from: the capture files, read again, or the tables of a stored run."""

    def fetch(
        self, kinds: Sequence[str], connections: list[int] | None, bin_ms: float, max_segments: int
    ) -> dict[str, pa.Table]:
        """The asked tables, of the given connections or (None) of all."""


class RunTables:
    """The tables of one run, and access to single rows and to the series."""

    def __init__(
        self, info: Mapping[str, Any], tables: Mapping[str, pa.Table], source: Source | None = None
    ) -> None:
        self.info: Row = dict(info)
        """What docs/format.md lists under *run*: files, start_s, duration_s, packets …"""
        self.connections: pa.Table = tables["connections"]
        """One row per connection."""
        self.flows: pa.Table = tables["flows"]
        """One row per direction of a connection; id = 2 · connection + direction."""
        self.findings: pa.Table = tables["findings"]
        """What the rules found, with evidence and cure."""
        self.extra: dict[str, pa.Table] = {name: tables[name] for name in EXTRA if name in tables}
        """What only the run of a scenario or a measurement has: queues, stages, probes, apps."""
        self.modem: dict[str, pa.Table] = {name: tables[name] for name in MODEM if name in tables}
        """What only a capture with a modem's log has: modem_buffer, modem_grants, modem_rates."""
        self.source = source
        """Where series come from; None: there are no others."""
        # (table, bin or cap) → connections it covers (None: all), and the rows so far.
        self._series: dict[tuple[str, float], tuple[set[int] | None, pa.Table]] = {}

    @property
    def name(self) -> str:
        """The first file's name, for titles; of a scenario's run that, with its labels."""
        if self.made:
            lab = ["lab"] if self.info["origin"] == "lab" else []
            return ", ".join([str(self.info["name"]), *self.info.get("labels", []), *lab])
        files = self.info.get("files") or ["-"]
        first = "standard input" if files[0] == "-" else Path(files[0]).name
        return first if len(files) == 1 else f"{first} and {len(files) - 1} more"

    @property
    def made(self) -> bool:
        """Whether a scenario made it, in the simulator or in the lab, rather than a capture."""
        return self.info.get("origin") in ORIGINS

    @property
    def warnings(self) -> list[str]:
        """Where and why reading stopped, and the like."""
        return list(self.info.get("warnings", []))

    @property
    def bin_ms(self) -> float:
        """Length of a bin of the series unless another is asked for: that of a stored or simulated run, else 100 ms."""
        return float(self.info.get("bin_ms", BIN_MS))

    @property
    def queues(self) -> pa.Table:
        """Of a scenario: what stood in each queue, bin by bin."""
        return self._extra("queues")

    @property
    def stages(self) -> pa.Table:
        """Of a scenario: each queue over the whole run."""
        return self._extra("stages")

    @property
    def probes(self) -> pa.Table:
        """Of a scenario: every probe packet."""
        return self._extra("probes")

    @property
    def apps(self) -> pa.Table:
        """Of a scenario: what the applications measured."""
        return self._extra("apps")

    @cached_property
    def main_flow(self) -> int | None:
        """The TCP flow that carried most payload; None when no TCP data was seen."""
        tcp = set(self._tcp_connections)
        connections = self.flows.column("connection").to_pylist()
        largest = max(
            (
                (payload, -id_)
                for (id_, payload), connection in zip(
                    self.payloads.items(), connections, strict=True
                )
                if connection in tcp
            ),
            default=(0, 0),
        )
        return -largest[1] if largest[0] > 0 else None

    @cached_property
    def payloads(self) -> dict[int, int]:
        """Payload of each flow; what was delivered, where it comes from the sender's kernel alone."""
        columns = (self.flows.column(name).to_pylist() for name in ("id", "payload_bytes", "bytes"))
        return {
            id_: (delivered if payload is None else payload) or 0
            for id_, payload, delivered in zip(*columns, strict=True)
        }

    def connection(self, id: int) -> Row:
        """One row of `connections`, as a dictionary."""
        return self._row(self.connections, self._connection_rows, id, "connection")

    def flow(self, id: int) -> Row:
        """One row of `flows`, as a dictionary."""
        return self._row(self.flows, self._flow_rows, id, "flow")

    def findings_of(self, flow: int | None = None, connection: int | None = None) -> list[Row]:
        """Findings about one flow, one connection or (neither given) everything, the most severe first."""
        wanted = (
            None
            if flow is None and connection is None
            else {flow}
            if flow is not None
            else pair(connection or 0)
        )
        rows = [row for row in self.findings.to_pylist() if wanted is None or row["flow"] in wanted]
        return sorted(
            rows, key=lambda row: SEVERITY_ORDER.get(row["severity"], len(SEVERITY_ORDER))
        )

    def samples(
        self, connection: Which = None, flow: Which = None, bin_ms: float | None = None
    ) -> pa.Table:
        """The series, one row per flow and bin: goodput, RTT, bytes in flight, window, limit."""
        return self._one_series("samples", flow, connection, bin_ms or self.bin_ms, MAX_SEGMENTS)

    def events(self, connection: Which = None, flow: Which = None) -> pa.Table:
        """What happened at a moment: retransmissions, full and zero windows, idle gaps."""
        return self._one_series("events", flow, connection, self.bin_ms, MAX_SEGMENTS)

    def segments(
        self, connection: Which = None, flow: Which = None, max_segments: int = MAX_SEGMENTS
    ) -> pa.Table:
        """Every data segment and ACK, thinned out beyond `max_segments` per flow."""
        return self._one_series("segments", flow, connection, self.bin_ms, max_segments)

    def load(
        self,
        connections: Which = None,
        kinds: Sequence[str] = ("samples", "events"),
        bin_ms: float | None = None,
        max_segments: int = MAX_SEGMENTS,
    ) -> None:
        """Compute several series of several connections in one pass, so that later calls find them ready."""
        bin_ms = bin_ms or self.bin_ms
        unknown = [kind for kind in kinds if kind not in SERIES]
        if unknown:
            raise UnbloatError(f"no series is called {unknown[0]!r}; there are {', '.join(SERIES)}")
        wanted = None if connections is None else id_set(connections)
        groups: dict[tuple[int, ...] | None, list[str]] = {}
        for kind in kinds:
            covered, _ = self._series.get(series_key(kind, bin_ms, max_segments), (set(), None))
            if covered is None:
                continue
            missing = None if wanted is None else tuple(sorted(wanted - covered))
            if missing is None or missing or kind_is_new(self._series, kind, bin_ms, max_segments):
                groups.setdefault(missing, []).append(kind)
        for missing, together in groups.items():
            self._fetch(together, None if missing is None else list(missing), bin_ms, max_segments)

    @cached_property
    def _tcp_connections(self) -> list[int]:
        ids, protos = (
            self.connections.column("id").to_pylist(),
            self.connections.column("proto").to_pylist(),
        )
        return [id_ for id_, proto in zip(ids, protos, strict=True) if proto == "tcp"]

    @cached_property
    def _connection_rows(self) -> dict[int, int]:
        return {id_: row for row, id_ in enumerate(self.connections.column("id").to_pylist())}

    @cached_property
    def _flow_rows(self) -> dict[int, int]:
        return {id_: row for row, id_ in enumerate(self.flows.column("id").to_pylist())}

    def _extra(self, name: str) -> pa.Table:
        if name not in self.extra:
            raise UnbloatError(f"{self.name}: has no {name}; only the run of a scenario has")
        return self.extra[name]

    def _row(self, table: pa.Table, rows: dict[int, int], id_: int, noun: str) -> Row:
        if id_ not in rows:
            raise UnbloatError(
                f"{self.name}: no {noun} {id_}; the {'run' if self.extra else 'capture'} has {len(rows)} (numbered from 0)"
            )
        row: Row = table.slice(rows[id_], 1).to_pylist()[0]
        return row

    def _one_series(
        self, kind: str, flow: Which, connection: Which, bin_ms: float, max_segments: int
    ) -> pa.Table:
        flows = None if flow is None else id_set(flow)
        wanted = None if connection is None else id_set(connection)
        if flows is not None:
            for id_ in flows:
                self._row(self.flows, self._flow_rows, id_, "flow")
            wanted = {id_ // 2 for id_ in flows}
        elif wanted is not None:
            for id_ in wanted:
                self._row(self.connections, self._connection_rows, id_, "connection")
        self.load(wanted, (kind,), bin_ms, max_segments)
        covered, table = self._series[series_key(kind, bin_ms, max_segments)]
        if flows is not None:
            return only_flows(table, flows)
        return (
            table
            if wanted is None or covered == wanted
            else only_flows(table, set().union(*map(pair, wanted)))
        )

    def _fetch(
        self, kinds: list[str], missing: list[int] | None, bin_ms: float, max_segments: int
    ) -> None:
        if self.source is None:
            raise UnbloatError(
                f"{self.name}: this run has no {kinds[0]}, and no capture to compute them from"
            )
        tables = self.source.fetch(kinds, missing, bin_ms, max_segments)
        for kind, table in tables.items():
            key = series_key(kind, bin_ms, max_segments)
            covered, before = self._series.get(key, (set(), None))
            if missing is None or covered is None or before is None:
                self._series[key] = (None if missing is None else set(missing), table)
            else:
                import pyarrow as pa

                # Dictionaries of two passes may differ; unifying them keeps the column readable as one.
                both = pa.concat_tables([before, table]).unify_dictionaries()
                self._series[key] = (covered | set(missing), both)


def pair(connection: int) -> set[int]:
    """Both flows of a connection."""
    return {2 * connection, 2 * connection + 1}


def id_set(which: int | Iterable[int]) -> set[int]:
    """One id or several as a set."""
    return {which} if isinstance(which, int) else set(which)


def series_key(kind: str, bin_ms: float, max_segments: int) -> tuple[str, float]:
    """What distinguishes two passes of one table."""
    return kind, {"samples": bin_ms, "segments": float(max_segments)}.get(kind, 0.0)


def kind_is_new(
    series: Mapping[tuple[str, float], object], kind: str, bin_ms: float, max_segments: int
) -> bool:
    """Whether nothing of this table has been computed."""
    return series_key(kind, bin_ms, max_segments) not in series


def only_flows(table: pa.Table, flows: set[int]) -> pa.Table:
    """The rows of some flows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return table.filter(
        pc.is_in(table.column("flow"), value_set=pa.array(sorted(flows), pa.uint32()))
    )
