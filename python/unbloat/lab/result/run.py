"""`run_of`: from the raw directory of a lab run to a `Run` with the tables of a simulated one.

signal: what the lab, the emulator, the traffic programs and the captures left in a directory · model: transfers are measured at
the node that sends their data, queues by the emulator, probes and applications by the programs that made them; statistics
leave the warm-up out · action: the tables of docs/format.md, and warnings of everything that makes a figure doubtful
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.errors import UnbloatError
from unbloat.lab.result.from_captures import (
    Seen,
    analysed,
    merged,
    numbered,
    renamed,
    seen_at,
    shifted,
)
from unbloat.lab.result.from_tcp_info import from_sockets
from unbloat.lab.result.links import data_losses, link_tables
from unbloat.lab.result.raw_files import Raw, raw_of
from unbloat.lab.result.traffic_logs import Known, TrafficLogs, log_tables, read_logs
from unbloat.lab.traffic.sockets import KERNEL_NAMES
from unbloat.run.arrow import SERIES, arrow_table
from unbloat.run.run import Run
from unbloat.run.tables import Row, only_flows, pair
from unbloat.run.write import FORMAT
from unbloat.text.format import ms_text, plural

if TYPE_CHECKING:
    import pyarrow as pa

# Later than this, a delay is no longer the scenario's.
LATE_US = 1000.0
# A capture without packets: magic of microseconds, version 2.4, no zone, length, link type.
EMPTY_PCAP = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


def run_of(raw: Path) -> Run:
    """The run whose files lie in a directory. Labels, settings and the scenario's text are the caller's to add."""
    found = raw_of(Path(raw))
    programs = read_logs(found)
    losses = data_losses(found)
    sending = sorted({flow["from"] for flow in found.plan["flows"]})
    seen = [seen_at(found, node, programs) for node in sending if found.captures(node)]
    numbered(seen)
    tables = merged(found, seen, programs, losses, empty_tables(found))
    blind = unseen(seen, programs)
    if blind:
        schemas = {name: table.schema for name, table in tables.items()}
        first_id = sum(len(one.picks) for one in seen)
        tables = joined(tables, from_sockets(found, blind, programs, losses, first_id, schemas))
    tables |= link_tables(found) | log_tables(programs)
    info = info_of(found, tables, seen) | {"warnings": warnings(found, programs, seen, blind)}
    kept = {name: table for name, table in tables.items() if name not in SERIES}
    return Run(info, kept, Series(found, tables, info, seen))


def empty_tables(raw: Raw) -> dict[str, pa.Table]:
    """Every table without rows: what a capture without packets gives."""
    import unbloat._native as _native

    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(EMPTY_PCAP)
        file.flush()
        result: dict[str, Any] = _native.analyze(
            [file.name], samples="all", events="all", span=raw.span_ns
        )
    tables = {name: arrow_table(columns) for name, columns in result["tables"].items()}
    return {name: table.slice(0, 0) for name, table in tables.items()}


def unseen(seen: Sequence[Seen], programs: TrafficLogs) -> list[Known]:
    """Connections that the programs reported and no capture shows."""
    shown = {
        frozenset((pick.known.sender, pick.known.receiver)) for one in seen for pick in one.picks
    }
    return [known for ends, known in programs.connections.items() if ends not in shown]


def joined(tables: dict[str, pa.Table], more: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Tables with further rows."""
    import pyarrow as pa

    return {
        name: pa.concat_tables([table, more[name]]).unify_dictionaries().combine_chunks()
        if name in more
        else table
        for name, table in tables.items()
    }


class Series:
    """The series of a lab run: bins and events are there, segments are read from the captures while those are."""

    def __init__(
        self, raw: Raw, tables: dict[str, pa.Table], info: Row, seen: Sequence[Seen]
    ) -> None:
        self.raw = raw
        self.tables = {name: table for name, table in tables.items() if name in SERIES}
        self.bin_ms = float(info["bin_ms"])
        self.seen = seen

    def fetch(
        self, kinds: Sequence[str], connections: list[int] | None, bin_ms: float, max_segments: int
    ) -> dict[str, pa.Table]:
        """The rows of some connections."""
        if "samples" in kinds and bin_ms != self.bin_ms:
            raise UnbloatError(f"this run was made in bins of {self.bin_ms:g} ms, not {bin_ms:g}")
        found = {
            kind: self.tables[kind]
            if kind != "segments"
            else self.segments(connections, max_segments)
            for kind in kinds
        }
        if connections is None:
            return found
        flows: set[int] = set().union(*map(pair, connections))
        return {kind: only_flows(table, flows) for kind, table in found.items()}

    def segments(self, connections: list[int] | None, max_segments: int) -> pa.Table:
        """Every data segment and ACK."""
        import pyarrow as pa

        parts = []
        for one in self.seen:
            picks = [pick for pick in one.picks if connections is None or pick.new in connections]
            if not picks:
                continue
            if not all(path.is_file() for path in one.paths):
                raise UnbloatError("the captures of this run are gone, and with them its segments")
            wanted: dict[str, Any] = {
                "segments": [pick.old for pick in picks],
                "max_segments": max_segments,
            }
            _, tables, _ = analysed(self.raw, one.node, wanted)
            ids = {2 * pick.old + way: 2 * pick.new + way for pick in picks for way in (0, 1)}
            parts.append(shifted(renamed(tables["segments"], {"flow": ids}), ("t_s",), one.shift_s))
        if not parts:
            raise UnbloatError("this run has no captures, and without them no segments")
        return pa.concat_tables(parts).combine_chunks()


def info_of(raw: Raw, tables: dict[str, pa.Table], seen: Sequence[Seen]) -> Row:
    """What docs/format.md lists under *run*."""
    import pyarrow.compute as pc

    import unbloat._native as _native

    plan, connections = raw.plan, tables["connections"]
    packets = pc.sum(connections.column("packets")).as_py() or 0
    lateness = raw.emulator.get("lateness_us") or {}
    return {
        "format": FORMAT,
        "tool": f"unbloat {_native.version}",
        "origin": "lab",
        "name": plan["name"],
        "about": plan.get("about", ""),
        "seed": plan["seed"],
        "start_s": raw.t0_ns / 1e9,
        "duration_s": raw.duration_s,
        "warmup_s": raw.warmup_s,
        "bin_ms": raw.bin_ms,
        "packets": packets,
        "bytes": pc.sum(connections.column("bytes")).as_py() or 0,
        "tcp_packets": packets,
        "nodes": raw.nodes,
        "links": raw.links,
        "transfers": raw.transfers,
        "probed": raw.probed,
        "captures": [str(path) for node in range(len(raw.nodes)) for path in raw.captures(node)],
        "reported_drops": capture_drops(seen) or None,
        "kernel": flat_text(raw.lab.get("kernel")),
        "offloads": flat_list(raw.lab.get("offloads")),
        "agents": flat_list(raw.lab.get("agents")),
        "kernel_drops": kernel_drops(raw),
        **{f"lateness_us_{part}": lateness.get(part) for part in ("p50", "p95", "p99", "max")},
    }


def flat_text(value: Any) -> str | None:
    """One line of anything."""
    return (
        None if value is None else value if isinstance(value, str) else ", ".join(flat_list(value))
    )


def flat_list(value: Any) -> list[str]:
    """Lines of anything that JSON holds."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [f"{key}: {', '.join(flat_list(one))}" for key, one in value.items()]
    if isinstance(value, list):
        return [text for one in value for text in flat_list(one)]
    return [("on" if value else "off") if isinstance(value, bool) else str(value)]


def kernel_drops(raw: Raw) -> int | None:
    """Packets that the kernel's rings in front of the emulator lost."""
    drops = raw.emulator.get("kernel_drops")
    return None if drops is None else int(drops)


def unnamed_losses(raw: Raw) -> list[str]:
    """Devices whose packets were lost outside of the scenario's queues and links: no log names them."""
    lines = []
    for device in raw.emulator.get("devices", []):
        where = f"{device['node']}.{device['name']}"
        if device.get("dropped"):
            lines.append(
                f"the kernel's ring of {where} lost {plural(device['dropped'], 'packet')} because the emulator was late: the machine was too busy for this scenario"
            )
        if device.get("refused"):
            lines.append(
                f"the kernel refused {plural(device['refused'], 'packet')} that arrived at {where}"
            )
    for link in raw.emulator.get("links", []):
        if link.get("oversize"):
            lines.append(
                f"{link['link']}: {plural(link['oversize'], 'packet')} too large for the link"
            )
    return lines


def capture_drops(seen: Sequence[Seen]) -> int:
    """Packets that the capture programs missed."""
    return sum(int(one.info.get("reported_drops", 0)) for one in seen)


def warnings(
    raw: Raw, programs: TrafficLogs, seen: Sequence[Seen], blind: Sequence[Known]
) -> list[str]:
    """Everything that makes a figure doubtful."""
    lines = [*map(str, raw.plan.get("warnings", []))]
    lines += [
        line
        for key in ("warnings", "vetoes")
        for line in flat_list(raw.lab.get(key))
        if line not in lines
    ]
    if not raw.emulator:
        lines.append("the emulator left no summary: it did not end as it should")
    lines += unnamed_losses(raw)
    late = (raw.emulator.get("lateness_us") or {}).get("p99")
    if late is not None and late > LATE_US:
        lines.append(
            f"deliveries were late: 1 % by more than {ms_text(late / 1000)}; the machine was too busy for this scenario"
        )
    if raw.emulator.get("log_complete") is False:
        lines.append("the emulator's log is not complete, so this run cannot be replayed")
    missed = capture_drops(seen)
    if missed:
        lines.append(
            f"the captures miss {plural(missed, 'packet')}: figures taken from them are estimates"
        )
    lines += [line for one in seen for line in map(str, one.info.get("warnings", []))]
    lines += other_congestion(raw, programs)
    names = sorted({known.transfer for known in blind})
    if names and raw.plan.get("lab", {}).get("capture") == "none":
        lines.append(
            f"no capture was taken: figures of {', '.join(names)} are those that the kernel reports of its sockets"
        )
    elif names:
        lines.append(
            f"{plural(len(blind), 'connection')} of {', '.join(names)} not in any capture: their figures are those that the kernel reports of its sockets"
        )
    lines += missing_transfers(raw, programs, seen)
    return lines + list(dict.fromkeys(programs.errors)) + raw.broken


def other_congestion(raw: Raw, programs: TrafficLogs) -> list[str]:
    """Transfers whose congestion control was not the one that was asked for."""
    asked = {
        str(flow["name"]): str(flow["sender"]["congestion"]["kind"]) for flow in raw.plan["flows"]
    }
    lines = {
        f"{known.transfer}: asked for {asked[known.transfer]}, and {known.congestion} ran"
        for known in programs.connections.values()
        if known.congestion is not None
        and known.transfer in asked
        and known.congestion != KERNEL_NAMES.get(asked[known.transfer], asked[known.transfer])
    }
    return sorted(lines)


def missing_transfers(raw: Raw, programs: TrafficLogs, seen: Sequence[Seen]) -> list[str]:
    """TCP transfers that ought to have begun and of which nothing is known."""
    begun = {known.transfer for known in programs.connections.values()}
    begun |= {pick.known.transfer for one in seen for pick in one.picks}
    return [
        f"{flow['name']}: no connection came about"
        for flow in raw.plan["flows"]
        if flow["app"]["kind"] != "voip"
        and flow["start_s"] < raw.duration_s
        and flow["name"] not in begun
    ]
