"""A modem's log under a capture of its host: tables `modem_buffer`, `modem_grants` and `modem_rates` of a run.

signal: packets that the host sent, samples of the modem's buffer, grants · model: the buffer is what the host sent less
what left; at one offset of the clocks both agree · action: the log on the clock of the capture, and throughput at
each layer beside what the modem really sent (QCUT section 4.4)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unbloat.errors import CaptureError, UnbloatError
from unbloat.modem.log import ModemLog, modem_log
from unbloat.modem.rates import error_shares, rates_table
from unbloat.run.arrow import arrow_table
from unbloat.run.tables import Row, RunTables

if TYPE_CHECKING:
    import pyarrow as pa


def lay(run: RunTables, log_path: str | os.PathLike[str], captures: Sequence[str]) -> None:
    """Adds the tables of a log to the run of its capture, and what `run` says of it.

    Raises `CaptureError` where the log cannot be read, and `UnbloatError` where no offset of the clocks explains it.
    """
    import unbloat._native as _native

    path = os.fspath(log_path)
    log = modem_log(path)
    hosts = hosts_of(run)
    try:
        clock = _native.modem_clock(path, list(captures), hosts)
    except _native.CaptureError as error:
        raise CaptureError(str(error)) from None
    except ValueError as error:
        raise UnbloatError(f"{path}: {error}") from None
    start_ns = round(run.info["start_s"] * 1e9)
    buffer = on_host_clock(log.buffer, clock, start_ns)
    grants = on_host_clock(log.grants, clock, start_ns)
    layer = "mac" if "mac" in grants["layer"].to_pylist() else "phy"
    sent = arrow_table(clock["tables"]["sent"])
    times = [(at - start_ns) / 1e9 for at in sent["host_ns"].to_pylist()]
    packets = list(zip(times, sent["bytes"].to_pylist(), strict=True))
    rates = rates_table(run, hosts, packets, buffer, grants, layer)
    run.modem = {
        "modem_buffer": within(buffer, run.info["duration_s"]),
        "modem_grants": within(grants, run.info["duration_s"]),
        "modem_rates": rates,
    }
    run.info |= {
        "modem_log": path,
        "modem_offset_s": clock["offset_ns"] / 1e9,
        "modem_offset_uncertainty_ms": clock["uncertainty_ns"] / 1e6,
        "modem_skew_ppm": None if clock["skew"] is None else clock["skew"] * 1e6,
        "modem_explained": clock["explained"],
        "modem_layer": layer,
        **error_shares(rates),
    }
    run.info["warnings"] = [*run.warnings, *warnings(path, log)]


def hosts_of(run: RunTables) -> list[str]:
    """Addresses of the host at which the capture was taken: those at whose end most bytes say so.

    Where no connection says so, the address that all connections share.
    """
    near: dict[str, int] = {}
    shared: set[str] | None = None
    for row in run.connections.to_pylist():
        ends = {row["a_addr"], row["b_addr"]}
        shared = ends if shared is None else shared & ends
        if row["vantage"] in ("a", "b"):
            far = "b" if row["vantage"] == "a" else "a"
            near[row[f"{row['vantage']}_addr"]] = (
                near.get(row[f"{row['vantage']}_addr"], 0) + row["bytes"]
            )
            near[row[f"{far}_addr"]] = near.get(row[f"{far}_addr"], 0) - row["bytes"]
    hosts = [address for address, size in near.items() if size > 0]
    if not hosts and shared is not None and len(shared) == 1:
        hosts = list(shared)
    if not hosts:
        raise UnbloatError(
            f"{run.name}: no connection shows which host is behind the modem; capture at that host"
        )
    return sorted(hosts)


def on_host_clock(table: pa.Table, clock: Row, start_ns: int) -> pa.Table:
    """The table with `t_s`, seconds of the capture, in place of `modem_ns`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    since = pc.subtract(table["modem_ns"].cast(pa.int64()), clock["at_ns"]).cast(pa.float64())
    begin_s = (clock["at_ns"] + clock["offset_ns"] - start_ns) / 1e9
    t_s = pc.add(pc.multiply(since, (1 + (clock["skew"] or 0.0)) / 1e9), begin_s)
    place = table.column_names.index("modem_ns")
    return table.set_column(place, "t_s", t_s)


def within(table: pa.Table, duration_s: float) -> pa.Table:
    """The rows during the capture."""
    import pyarrow.compute as pc

    return table.filter(
        pc.and_(pc.greater_equal(table["t_s"], 0.0), pc.less_equal(table["t_s"], duration_s))
    )


def warnings(path: str, log: ModemLog) -> list[str]:
    """What of the log was not read, and what was read without a check."""
    lines = [f"{path}: {count} records not read, {why}" for why, count in log.unread.items()]
    if log.damaged:
        lines.append(f"{path}: {log.damaged} damaged frames were left out")
    described: set[Any] = {
        f"{row['code']} version {row['version']}"
        for row in log.records.to_pylist()
        if row["described"]
    }
    if described:
        names = ", ".join(sorted(described))
        lines.append(f"{path}: no record of a modem was there to check the layout of {names} with")
    return lines
