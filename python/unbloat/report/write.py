"""Writing the report: one HTML file that holds everything it shows.

Figures stand in it as JSON, series as encoded columns per flow; a jinja2 template with autoescape fills in style, program
and data. Nothing is loaded from anywhere: a Content-Security-Policy in the page forbids it. The page draws the largest
connections; the others are listed with their figures.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from unbloat.charts import CHARTS, Chart
from unbloat.errors import UnbloatError
from unbloat.report import downsample
from unbloat.report.encode import Encoded, codes, encode, flat, floats, seconds, steps
from unbloat.report.headline import headline
from unbloat.report.series import MAX_TRANSFERS, run_series, transfer_flows
from unbloat.run.summary import run_tables
from unbloat.run.tables import RunTables
from unbloat.text.format import LIMITS, direction_id
from unbloat.text.table import Cells

# Rows in the table of connections; a table of 20,000 rows is of no use and costs megabytes.
MAX_LISTED = 1_000
MAX_FINDINGS = 2_000
# Segments and ACKs in memory at once while a page is written: 29 bytes each, so about 120 MB.
MAX_ROWS = 4_000_000
# UDP and ICMP flows whose series are drawn, beside the TCP connections.
TOP_COUNTED = 5

ASSETS = Path(__file__).parent / "page"
STYLES = ("style.css",)
PROGRAM = (
    "units.js",
    "data.js",
    "pen.js",
    "marks.js",
    "chart.js",
    "view.js",
    "export.js",
    "panel.js",
)

# Columns of `samples` that not every run has: the first two only that of a scenario, the others none of an earlier version.
SOMETIMES = ("cwnd_bytes", "queue_ms", "data_queue_ms", "ack_queue_ms")

EVENT_KINDS = [
    "syn",
    "fin",
    "rst",
    "retransmission_fast",
    "retransmission_timeout",
    "retransmission_tail_probe",
    "retransmission_spurious",
    "out_of_order",
    "ambiguous",
    "window_full",
    "zero_window",
    "zero_window_probe",
    "keep_alive",
    "dsack",
    "ecn",
    "idle",
    "ack_burst",
    "answer",
    "drop_overflow",
    "drop_aqm",
    "drop_link",
    "ecn_mark",
]


@dataclass(frozen=True)
class ReportInfo:
    """What was written."""

    path: Path
    bytes: int
    seconds: float
    """Time it took to write, s; the analysis not counted unless the run had to read the capture again."""
    listed: int
    """Connections in the table."""
    charted: int
    """Connections with charts."""


def finite(value: Any) -> Any:
    """JSON knows neither NaN nor infinity: no figure."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def columns(table: pa.Table) -> dict[str, list[Any]]:
    """A table as JSON holds it shortest: one list per column."""
    return {name: [finite(value) for value in values] for name, values in table.to_pydict().items()}


def directed(table: dict[str, list[Any]], flow: str) -> dict[str, list[Any]]:
    """The same with one id of a direction, that of its connection with an arrow, in place of the flow's number in column `flow`."""
    names = [None if number is None else direction_id(number) for number in table[flow]]
    rest = {name: values for name, values in table.items() if name not in (flow, "connection")}
    return {"direction": names, **rest}


def largest(connections: pa.Table) -> pa.Table:
    """The connections, most bytes first."""
    return connections.take(
        pc.sort_indices(connections, sort_keys=[("bytes", "descending"), ("id", "ascending")])
    )


def charted(ranked: pa.Table, top: int) -> tuple[list[int], list[int]]:
    """Ids of the TCP connections, and of the merely counted flows, that are drawn."""
    tcp = pc.equal(flat(ranked["proto"]).cast(pa.string()), "tcp")
    return (
        ranked.filter(tcp)["id"][:top].to_pylist(),
        ranked.filter(pc.invert(tcp))["id"][: min(top, TOP_COUNTED)].to_pylist(),
    )


# Columns of a bin that need more of a transfer than the capture has, where it lacks most of it.
NEEDS_ALL = ("rtt_ms_min", "rtt_ms", "rtt_ms_max", "in_flight_bytes", "window_full_s", "limit")


def only_counts(run: RunTables, samples: pa.Table | None) -> pa.Table | None:
    """The samples without RTTs, bytes in flight and limits of transfers that the capture lacks too much of."""
    if samples is None or "capture_lacks" not in run.flows.column_names:  # an earlier version's
        return samples
    lacking = run.flows.filter(pc.is_valid(flat(run.flows["capture_lacks"])))["id"]
    if not lacking.length():
        return samples
    blank = pc.is_in(flat(samples["flow"]), value_set=flat(lacking))
    for name in NEEDS_ALL:
        column = flat(samples[name])
        kept = pc.if_else(blank, pa.scalar(None, column.type), column)
        samples = samples.set_column(samples.column_names.index(name), name, kept)
    return samples


# Events that say how far the window was used: they need all of a transfer as well.
WINDOW_EVENTS = ("window_full",)


def only_certain(run: RunTables, events: pa.Table | None) -> pa.Table | None:
    """The events without full windows of transfers that the capture lacks too much of."""
    if events is None or "capture_lacks" not in run.flows.column_names:  # an earlier version's
        return events
    lacking = run.flows.filter(pc.is_valid(flat(run.flows["capture_lacks"])))["id"]
    unknown = pc.and_(
        pc.is_in(flat(events["flow"]), value_set=flat(lacking)),
        pc.is_in(flat(events["kind"]).cast(pa.string()), value_set=pa.array(WINDOW_EVENTS)),
    )
    return events.filter(pc.invert(unknown))


def encode_samples(table: pa.Table) -> tuple[Encoded, int]:
    """The bins of one flow."""
    downsampled = downsample.samples(table)
    part = downsampled.table
    encoded = encode(
        {
            "t_s": seconds(flat(part["t_s"])),
            "span_s": seconds(flat(part["span_s"]).cast(pa.float64())),
            "sent_bytes": steps(flat(part["sent_bytes"])),
            "delivered_bytes": steps(flat(part["delivered_bytes"])),
            "rtt_ms_min": floats(flat(part["rtt_ms_min"])),
            "rtt_ms": floats(flat(part["rtt_ms"])),
            "rtt_ms_max": floats(flat(part["rtt_ms_max"])),
            "in_flight_bytes": floats(flat(part["in_flight_bytes"])),
            "rwnd_bytes": floats(flat(part["rwnd_bytes"])),
            "window_full_s": floats(flat(part["window_full_s"])),
            "retransmissions": steps(flat(part["retransmissions"])),
            "limit": codes(flat(part["limit"]), list(LIMITS)),
            **{name: floats(flat(part[name])) for name in SOMETIMES if name in part.column_names},
        },
        part.num_rows,
    )
    return encoded, downsampled.factor


def encode_events(table: pa.Table) -> tuple[Encoded, int]:
    """The events of one flow."""
    downsampled = downsample.events(table)
    part = downsampled.table
    encoded = encode(
        {
            "t_s": seconds(flat(part["t_s"])),
            "kind": codes(flat(part["kind"]), EVENT_KINDS),
            "value": floats(flat(part["value"])),
            "seq": steps(flat(part["seq"])),
        },
        part.num_rows,
    )
    return encoded, downsampled.factor


def encode_segments(table: pa.Table, cap: int) -> dict[str, tuple[Encoded, int]]:
    """The segments and ACKs of one flow, one encoded table per kind."""
    encoded: dict[str, tuple[Encoded, int]] = {}
    for name, downsampled in downsample.segments(table, cap).items():
        part = downsampled.table
        start, end = flat(part["from_seq"]).cast(pa.int64()), flat(part["to_seq"]).cast(pa.int64())
        figures = {
            "t_s": seconds(flat(part["t_s"])),
            "from_seq": steps(start),
            "length": steps(pc.subtract(end, start)),
        }
        encoded[name] = (encode(figures, part.num_rows), downsampled.factor)
    return encoded


class Store:
    """The encoded tables of a page, and the JSON that says where they lie."""

    def __init__(self) -> None:
        self.blobs: dict[str, str] = {}
        self.index: dict[str, dict[str, Any]] = {}

    def put(self, place: str, encoded: Encoded, factor: int) -> None:
        """Stores one table."""
        if encoded.rows:
            self.blobs[place] = encoded.data
            self.index[place] = {**encoded.describe(), "factor": factor}

    def put_flow(
        self,
        key: str,
        flow: int,
        samples: pa.Table | None,
        events: pa.Table | None,
        segments: pa.Table | None,
        cap: int,
    ) -> None:
        """Stores everything of one flow under `key`."""
        if samples is not None:
            self.put(f"{key}-samples", *encode_samples(of_flow(samples, flow)))
        if events is not None:
            self.put(f"{key}-events", *encode_events(of_flow(events, flow)))
        if segments is not None:
            for kind, (encoded, factor) in encode_segments(of_flow(segments, flow), cap).items():
                self.put(f"{key}-{kind}", encoded, factor)


def of_flow(table: pa.Table, flow: int) -> pa.Table:
    """The rows of one flow, in order of time."""
    part = table.filter(pc.equal(table["flow"], pa.scalar(flow, table["flow"].type)))
    if part.num_rows > 1:
        smallest = pc.min(pc.pairwise_diff(flat(part["t_s"]))).as_py()
        if smallest is not None and smallest < 0:
            part = part.take(pc.sort_indices(part, sort_keys=[("t_s", "ascending")]))
    return part


def render(template: str, program: Iterable[str], **values: Any) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Our own style and program are the only text that is taken as it is.
    own = {
        name: Markup((ASSETS / name).read_text(encoding="utf-8"))
        for name in (*STYLES, *PROGRAM, *program)
    }
    return environment.get_template(template).render(
        styles=[own[name] for name in STYLES],
        program=[own[name] for name in (*PROGRAM, *program)],
        **values,
    )


def render_plain(template: str, **values: Any) -> str:
    """A page without charts as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    styles = [Markup((ASSETS / name).read_text(encoding="utf-8")) for name in STYLES]
    return environment.get_template(template).render(styles=styles, **values)


def page_facts(
    runs: Sequence[RunTables], curves: Iterable[Mapping[str, Any]], segments: bool = False
) -> dict[str, Any]:
    """What every page knows: the charts that can be filled, words of the limits, kinds of events. `segments`: there are some."""
    known = {"samples", "events", *(str(curve["table"]) for curve in curves)}
    if segments or not all(run.extra for run in runs):
        known.add(
            "segments"
        )  # the run of a scenario may have none, a capture shows why it has none
    most = max((len(transfer_flows(run)) for run in runs), default=0)
    return {
        "charts": [
            {**chart.to_json(), "about": about_text(chart, most)}
            for chart in CHARTS
            if {need.split(".")[0] for need in chart.needs} <= known
            and (not chart.only_with or any(measured(run, chart.only_with) for run in runs))
        ],
        "limits": {
            name: {"short": words[0], "meaning": words[2]} for name, words in LIMITS.items()
        },
        "event_kinds": EVENT_KINDS,
    }


def measured(run: RunTables, column: str) -> bool:
    """Whether any flow has a figure in this column; a run of an earlier version may lack it."""
    known = run.flows
    return column in known.column_names and known[column].null_count < known.num_rows


def about_text(chart: Chart, transfers: int) -> str:
    """What a chart says of itself; of all transfers also how many it leaves out."""
    left_out = transfers - MAX_TRANSFERS
    if left_out <= 0 or not chart.name.startswith("transfer-"):
        return chart.about
    return f"{chart.about} The {MAX_TRANSFERS} with the most bytes are drawn, {left_out} more are in the tables."


def stem(run: RunTables) -> str:
    """What exported pictures are called."""
    files = run.info.get("files") or ["capture"]
    return Path(str(files[0])).name.split(".")[0] or "capture"


def segments_to_ask(run: RunTables, ids: list[int], cap: int) -> int:
    """The cap for the analysis: none that bites while all flows together fit in memory, so that they are downsampled
    here, evenly; else the page's own."""
    flows = run.flows.filter(
        pc.is_in(run.flows["connection"], value_set=pa.array(ids, pa.uint32()))
    )
    # A flow's rows are its data, and the ACKs that the other direction sent.
    packets = pc.sum(flows["packets"]).as_py() or 0
    largest = pc.max(run.connections["packets"]).as_py() or 0
    # Up to three SACK blocks ride on an ACK; few do.
    return int(max(cap, 2 * largest)) if cap < largest and packets <= MAX_ROWS else cap


def series(
    run: RunTables, ids: list[int], max_segments: int
) -> tuple[pa.Table | None, pa.Table | None, pa.Table | None]:
    """Samples, events and segments of some connections; None for what a stored run does not hold."""
    # One pass over the capture for all of them, where the run has not read them yet. A stored run without some of
    # them refuses: each is asked for on its own below.
    with suppress(UnbloatError):
        run.load(ids, ("samples", "events", "segments"), max_segments=max_segments)

    def asked(fetch: Callable[[], pa.Table]) -> pa.Table | None:
        try:
            return fetch()
        except UnbloatError:
            return None

    return (
        asked(lambda: run.samples(connection=ids)),
        asked(lambda: run.events(connection=ids)),
        asked(lambda: run.segments(connection=ids, max_segments=max_segments)),
    )


def write_report(
    run: RunTables, path: str | Path, *, top: int = 20, max_segments: int = 200_000
) -> ReportInfo:
    """Writes the report of `run`; the `top` largest TCP connections get charts, of at most `max_segments` segments
    and ACKs per direction."""
    begun = time.perf_counter()
    ranked = largest(run.connections)
    listed = ranked.slice(0, MAX_LISTED)
    tcp, counted = charted(ranked, top)
    flows = run.flows.filter(pc.is_in(run.flows["connection"], value_set=flat(listed["id"])))
    store = Store()
    samples, events, segments = series(
        run, [*tcp, *counted], segments_to_ask(run, tcp, max_segments)
    )
    samples, events = only_counts(run, samples), only_certain(run, events)
    drawn = {*tcp, *counted}
    for connection in (*tcp, *counted):
        for flow in (2 * connection, 2 * connection + 1):
            store.put_flow(direction_id(flow), flow, samples, events, segments, max_segments)
    rest = ranked.slice(MAX_LISTED)
    curves = run_series(store.put, run, "s")
    facts = {
        **page_facts([run], curves, segments is not None),
        "series": curves,
        "run": {key: finite(value) for key, value in run.info.items()},
        "stem": stem(run),
        "connections": columns(listed),
        "flows": directed(columns(flows), "id"),
        "findings": directed(columns(run.findings.slice(0, MAX_FINDINGS)), "flow"),
        "findings_left_out": max(run.findings.num_rows - MAX_FINDINGS, 0),
        "unlisted": {"connections": rest.num_rows, "bytes": pc.sum(rest["bytes"]).as_py() or 0},
        "charted": sorted(drawn),
        "max_segments": max_segments,
        "tables": store.index,
    }
    text = render(
        "report.html.j2",
        ("table.js", "report.js"),
        facts=facts,
        blobs=store.blobs,
        head=headline(run),
        tables=simulated_tables(run),
        info=run.info,
        warnings=list(run.warnings),
    )
    return save(text, path, begun, listed.num_rows, len(drawn))


def simulated_tables(run: RunTables) -> list[tuple[Cells, list[Cells]]]:
    """Titles and rows of what the run of a scenario shows beside its connections: transfers, queues, probes, applications."""
    return run_tables(run) if run.extra else []


def save(text: str, path: str | Path, begun: float, listed: int, drawn: int) -> ReportInfo:
    """Writes the page and says what was written."""
    target = Path(path)
    # A file name of a capture may hold bytes that are no text (surrogates): they are shown as a question mark.
    data = text.encode("utf-8", "replace")
    target.write_bytes(data)
    return ReportInfo(target, len(data), time.perf_counter() - begun, listed, drawn)
