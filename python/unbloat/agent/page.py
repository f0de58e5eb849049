"""The page of a run of the agent: RTT, goodput and windows over time with the moment of the cure, before and after in a table.

Bytes between two observations are goodput. A connection that an observation does not contain has a gap. The page is one file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from unbloat.agent.before_after import WAYS, Measured, now_text, rows
from unbloat.agent.client import Answer
from unbloat.agent.flows import ARROWS, flow_key, flow_name
from unbloat.charts.agent_run import charts
from unbloat.report.series import encoded_curve, encoded_spans
from unbloat.report.write import ReportInfo, Store, render, save
from unbloat.text.format import seconds_text
from unbloat.version import __version__

EVENT_KINDS = ["settling", "cure"]
# More curves than colours cannot be distinguished; one place is the probe's.
MAX_CURVES = 5
WINDOWS = {
    "wanted_bytes": "target",
    "advertised_bytes": "advertised",
    "in_flight_bytes": "in flight",
}
Curve = tuple[str, str, list[float], list[float | None]]


def write_page(measured: Measured, path: Path) -> ReportInfo:
    """Writes the page."""
    begun = time.perf_counter()
    store = Store()
    series: list[dict[str, str]] = []
    for table, label, times, values in curves(measured):
        place = f"{table}-{len(series)}"
        store.put(place, *encoded_curve(times, values, None))
        series.append({"table": table, "label": label, "place": place})
    spans(measured, store)
    drawn = [
        chart
        for chart in charts(least_ms(measured))
        if any(f"agent-{one['table']}" == chart.name for one in series)
    ]
    facts = {
        "charts": [chart.to_json() for chart in drawn],
        "series": series,
        "event_kinds": EVENT_KINDS,
        "tables": store.index,
        "duration_s": measured.end_s,
        "stem": "unbloat-agent-run",
    }
    text = render(
        "agent.html.j2",
        ("locate.js",),
        facts=facts,
        blobs=store.blobs,
        verdict=str(measured.done["verdict"]),
        about=about(measured),
        warnings=problems(measured),
        rows=rows(measured.done),
        log=log_lines(measured),
        tool=f"unbloat {__version__}",
    )
    return save(text, path, begun, len(connections(measured)), len(drawn))


def about(measured: Measured) -> str:
    """What was done when."""
    return (
        f"{now_text()} · {seconds_text(measured.moment_s)} without the cure, {seconds_text(measured.settled_s - measured.moment_s)} "
        f"while the old queue drained, {seconds_text(measured.end_s - measured.settled_s)} with it; undone afterwards."
    )


def last(measured: Measured) -> Answer:
    """The last status of the agent."""
    return measured.looks[-1]["status"] if measured.looks else {}


def problems(measured: Measured) -> list[str]:
    """What did not work."""
    return [str(one) for one in last(measured).get("problems") or []]


def log_lines(measured: Measured) -> list[str]:
    """The agent's log."""
    return [str(one) for one in last(measured).get("log") or []]


def flows_of(measured: Measured) -> Iterator[tuple[float, Answer]]:
    """Every connection of every observation, with its time."""
    for look in measured.looks:
        for flow in look["status"].get("flows") or []:
            if flow.get("cure") in ARROWS:
                yield float(look["t_s"]), flow


def connections(measured: Measured) -> list[str]:
    """Keys of all connections, the one that carried most while watched first."""
    first: dict[str, float] = {}
    carried: dict[str, float] = {}
    for _, flow in flows_of(measured):
        key, count = flow_key(flow), float(flow.get("bytes") or 0)
        carried[key] = count - first.setdefault(key, count)
    return sorted(carried, key=lambda key: -carried[key])


def least_ms(measured: Measured) -> float | None:
    """The smallest RTT that was seen on any path."""
    found = [float(flow["rtt_min_ms"]) for _, flow in flows_of(measured) if flow.get("rtt_min_ms")]
    return min(found, default=None)


def curves(measured: Measured) -> list[Curve]:
    """Every curve: its chart, its name, times, values."""
    largest = connections(measured)[:MAX_CURVES]
    found = [one_flow(measured, key, "rtt", "rtt_ms") for key in largest]
    pings = [
        (float(look["t_s"]), ms) for look in measured.looks for ms in look.get("probe_ms") or []
    ]
    if pings:
        found.append(("rtt", "ping", *probe(pings)))
    found += [("goodput", way, *goodput(measured, way)) for way in WAYS]
    if largest:
        for column, label in WINDOWS.items():
            _, _, times, values = one_flow(measured, largest[0], "windows", column)
            found.append(("windows", label, times, values))
    return [curve for curve in found if any(curve[3])]


def probe(pings: list[tuple[float, float]]) -> tuple[list[float], list[float | None]]:
    """The largest ping of each observation: the exact time of a ping is not reported."""
    worst: dict[float, float] = {}
    for t_s, ms in pings:
        worst[t_s] = max(ms, worst.get(t_s, 0.0))
    return list(worst), list(worst.values())


def one_flow(measured: Measured, key: str, table: str, column: str) -> Curve:
    """A figure of one connection over time; a gap where an observation does not contain it."""
    times: list[float] = []
    values: list[float | None] = []
    label = key
    for look in measured.looks:
        flow = next(
            (one for one in look["status"].get("flows") or [] if flow_key(one) == key), None
        )
        times.append(float(look["t_s"]))
        values.append(None if flow is None else flow.get(column))
        if flow is not None:
            label = f"{flow_name(flow)} (port {flow.get('local_port')} here)"
    return table, label, times, values


def goodput(measured: Measured, way: str) -> tuple[list[float], list[float | None]]:
    """Goodput of all connections of one direction between two observations, bit/s."""
    return [float(look["t_s"]) for look in measured.looks], [
        look["goodput_bps"][way] for look in measured.looks
    ]


def spans(measured: Measured, store: Store) -> None:
    """The time under the cure."""
    moment, settled, end = measured.moment_s, measured.settled_s, measured.end_s
    rows = [(moment, "settling", settled - moment), (settled, "cure", end - settled)]
    store.put("path-events", encoded_spans(rows, EVENT_KINDS), 1)
