"""The page of a measurement: grades, added delay and goodput over time, distribution by phase, the place of the queue, cures.

Everything comes from the run, so that a stored one has the same page. The page is one file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from unbloat.charts.measured_run import CHARTS
from unbloat.measured.history import GRADED, title
from unbloat.measured.run import ADDED, SETTLING, kind_of, with_kind
from unbloat.report.encode import encode, floats, seconds
from unbloat.report.series import encoded_curve, encoded_spans, without_rows
from unbloat.report.write import ReportInfo, Store, render, save
from unbloat.run.run import Run
from unbloat.run.tables import Row
from unbloat.text.format import NOTHING, ms_text, rate_text, share_text
from unbloat.version import __version__

TITLES = (
    "phase",
    "grade",
    "added delay p50",
    "p95",
    "p99",
    "goodput ↓",
    "goodput ↑",
    "lost ↓",
    "lost ↑",
)
EVENT_KINDS = ["down", "up", "both", "lost_down", "lost_up"]
# A delay of zero has no place on a logarithmic axis; below it, clocks and schedulers are measured.
MIN_MS = 0.1
# Longer than the gap between two probes at any rate: a bin of the distribution is one probe.
SPAN_S = 0.1


def write_page(run: Run, path: Path) -> ReportInfo:
    """Writes the page."""
    begun = time.perf_counter()
    result: Row = json.loads(run.info["result"])
    store = Store()
    probes = run.probes.to_pylist()
    series = [*delays(store, probes), *goodputs(store, run)]
    marked(store, run, result, probes)
    facts = {
        "charts": [chart.to_json() for chart in CHARTS],
        "series": series,
        "phases": list(distributions(store, result, probes)),
        "event_kinds": EVENT_KINDS,
        "tables": store.index,
        "duration_s": run.info["duration_s"],
        "stem": run.info["name"],
    }
    text = render(
        "measure.html.j2",
        ("locate.js",),
        facts=facts,
        blobs=store.blobs,
        title=f"Delay under load to {result['host']}",
        about=about(result),
        warnings=run.warnings,
        grades=[
            (name_of(phase), phase["grade"]["grades"][0])
            for phase in result["phases"]
            if len(phase["grade"]["grades"]) == 1
        ],
        titles=TITLES,
        rows=[row(phase) for phase in result["phases"]],
        lines=[line for phase in result["phases"] for line in lines(phase)],
        places=[line for phase in result["phases"] if (line := place(phase, result["hops"]))],
        cures=[cure(one) for one in result["cures"]],
        tool=f"unbloat {__version__}",
    )
    return save(text, path, begun, run.connections.num_rows, len(CHARTS))


def name_of(phase: Row) -> str:
    """As on the screen."""
    return title(with_kind(phase["phase"], kind_of(phase)))


def about(result: Row) -> str:
    """When and from where it was measured."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(result["at_unix_s"]))
    around = result.get("surroundings") or {}
    parts = [when, f"RTT without load {ms_text(result['rtt_min_ms'])}"]
    parts += [
        str(around[name]) for name in ("device", "kind", "qdisc", "kernel") if around.get(name)
    ]
    parts += radio(around)
    return " · ".join(parts)


def radio(around: Row) -> Iterator[str]:
    """Signal, technology and retries of the client's radio, as far as they are known."""
    wifi, modem = around.get("wifi") or {}, around.get("modem") or {}
    if (dbm := wifi.get("signal_dbm")) is not None:
        yield f"{dbm} dBm"
    if (retries := wifi.get("retries_per_packet")) is not None:
        yield f"{retries:.2f} retries per packet"
    if (busy := wifi.get("channel_busy_share")) is not None:
        yield f"channel busy {share_text(busy)}"
    yield from modem.get("technologies", [])
    if (percent := modem.get("signal_percent")) is not None:
        yield f"signal {percent:.0f} %"


def delay_text(value: float | str) -> str:
    """Or that it falls on lost probes."""
    return value if isinstance(value, str) else ms_text(value)


def row(phase: Row) -> tuple[str, ...]:
    """A phase in the table."""
    grade = " or ".join(phase["grade"]["grades"]) or "none"
    delay = phase[GRADED[phase["grade"]["of"]]]
    quantiles = (NOTHING, NOTHING, NOTHING)
    if delay is not None:
        p95, low, high = (delay_text(value) for value in delay["p95_ms"])
        quantiles = (
            delay_text(delay["p50_ms"][0]),
            f"{p95} ({low} – {high})",
            delay_text(delay["p99_ms"][0]),
        )
    rates = (rate_text(phase[f"goodput_{way}_bps"]) for way in ("down", "up"))
    losses = (phase[f"delay_{way}"] for way in ("down", "up"))
    return (
        name_of(phase),
        grade,
        *quantiles,
        *rates,
        *(NOTHING if one is None else share_text(one["loss"]) for one in losses),
    )


def lines(phase: Row) -> Iterator[str]:
    """What the figures of a phase mean."""
    if phase["grade"]["why"] is not None:
        yield f"{name_of(phase)}: no grade: {phase['grade']['why']}."
    yield f"{name_of(phase)}: {phase['usability']}."
    yield from treated(phase, "handshakes", "TCP handshakes", "the probes", ", which are UDP")
    yield from treated(phase, "quic_probes", "QUIC probes", "the other probes", "")
    if not phase["steady"]:
        yield f"{name_of(phase)}: goodput was not steady yet when measuring began."


def treated(phase: Row, key: str, what: str, others: str, more: str) -> Iterator[str]:
    """What the network does with some packets otherwise than with others."""
    # Results of an older program do not have it, and servers of others answer none.
    found = phase.get(key)
    if found is None or not found["differs"]:
        return
    later_ms = found["later_ms"]
    if later_ms is None:
        seen = f"none of {found['sent']} {what} was answered, but {others} were"
        does = "blocks them"
    else:
        way = "longer" if later_ms > 0 else "shorter"
        seen = f"{what} take {abs(later_ms):.0f} ms {way} than {others}{more}"
        does = "treats them differently"
    yield f"{name_of(phase)}: {seen}: the network {does}, and the grade is that of {others}."


def place(phase: Row, hops: list[Row]) -> str | None:
    """Where its queue stands, or why that is not known; nothing of a phase of both ways."""
    found = phase["place"]
    if found is None:
        why = phase["place_why"]
        return None if why is None else f"{name_of(phase)}: unknown, {why}."
    after = "this host" if found["after"] == 0 else hop(found["after"], hops)
    before = "the server" if found["before"] is None else hop(found["before"], hops)
    share = share_text(found["share"])
    return f"{name_of(phase)}: between {after} and {before}, at {found['device']}; so in {share} of the draws."


def hop(number: int, hops: list[Row]) -> str:
    """A router by number and address."""
    known = (f" ({one['address']})" for one in hops if one["hop"] == number)
    return f"hop {number}{next(known, '')}"


def cure(one: Row) -> tuple[str, str, str | None]:
    """What to try, what it does, and its command."""
    return f"{title(one['direction'])}, {one['on']}: {one['name']}", one["effect"], one["command"]


def delays(store: Store, probes: list[Row]) -> Iterator[Row]:
    """Added delay of each direction; a lost probe leaves a gap."""
    times = [row["t_s"] for row in probes]
    for label, column in (("↓ to this host", "added_down_ms"), ("↑ to the server", "added_up_ms")):
        store.put(column, *encoded_curve(times, [row[column] for row in probes], None))
        yield {"table": "added_delay", "label": label, "place": column}


def goodputs(store: Store, run: Run) -> Iterator[Row]:
    """Goodput of each direction, whatever the phase."""
    rows = [row for row in run.apps.to_pylist() if row["kind"] == "goodput_bps"]
    for label, way in (("↓ to this host", "down"), ("↑ to the server", "up")):
        ways = ((one["t_s"], one["value"]) for one in rows if way in one["transfer"].split(", "))
        own = sorted(ways)
        if own:
            span_s = run.bin_ms / 1000
            points = without_rows([t_s for t_s, _ in own], [rate for _, rate in own], span_s)
            store.put(f"goodput-{way}", *encoded_curve(*points))
            yield {"table": "goodput", "label": label, "place": f"goodput-{way}"}


def distributions(store: Store, result: Row, probes: list[Row]) -> Iterator[Row]:
    """The delay that each phase is graded by, probe by probe; of the idle path that of the round trip."""
    phases = {
        with_kind(phase["phase"], kind_of(phase)): ADDED[phase["grade"]["of"]]
        for phase in result["phases"]
    }
    named = dict.fromkeys(row["probe"] for row in probes if row["probe"] != SETTLING)
    for number, name in enumerate(named):
        column = phases.get(name, ADDED["rtt"])
        own = [row for row in probes if row["probe"] == name and row[column] is not None]
        columns = {
            "t_s": seconds(pa.array([row["t_s"] for row in own], pa.float64())),
            "span_s": floats(pa.array([SPAN_S] * len(own), pa.float64())),
            "added_ms": floats(pa.array([max(row[column], MIN_MS) for row in own])),
        }
        store.put(f"phase{number}-samples", encode(columns, len(own)), 1)
        yield {"label": title(name), "key": f"phase{number}"}


def marked(store: Store, run: Run, result: Row, probes: list[Row]) -> None:
    """When each phase was measured, and lost probes."""
    rows = [
        (
            phase["from_unix_s"] - run.info["start_s"],
            phase["phase"],
            phase["until_unix_s"] - phase["from_unix_s"],
        )
        for phase in result["phases"]
    ]
    rows += [
        (row["t_s"], f"lost_{row['lost_on']}", 0.0) for row in probes if row["lost_on"] in ADDED
    ]
    rows.sort()
    store.put("path-events", encoded_spans(rows, EVENT_KINDS), 1)
