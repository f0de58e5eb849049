"""What `analyze` prints of a file: what is in it, its largest connections, the most severe findings.

Everything was measured and judged before. Lines have at most 80 columns, the figures that decide first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbloat.modem.text import modem_texts
from unbloat.run.direction import main_direction, main_directions
from unbloat.run.pings import ping_texts
from unbloat.run.run import Run
from unbloat.run.tables import SEVERITY_ORDER, Row
from unbloat.text.format import (
    NOTHING,
    TOO_SHORT,
    base_rtt_of_grade,
    byte_text,
    endpoint_text,
    ends_text,
    limit_text,
    ms_text,
    no_limit_text,
    plural,
    rate_text,
    rtt_range,
    seconds_text,
    share_text,
)
from unbloat.text.terminal import Terminal, cut, left, plain, right, width

SORTS = ("bytes", "goodput", "rtt", "grade")
# Findings under the table: the most severe; the rest is counted, and listed per connection and in the report.
FINDINGS_SHOWN = 4
# Connections that are listed by number below a finding.
NAMED = 8
WHAT_TO_RECORD = (
    "Every TCP transfer is too short to judge. Record a download or an upload of ten seconds or more, "
    "from before it begins, and run a ping beside it: unbloat record shows how."
)
NO_GRADE = (
    "No TCP transfer is long enough for a grade of the delay. Record a download or an upload of ten seconds or more, "
    "from before it begins, and run a ping beside it: unbloat record shows how."
)
# Below, a transfer without a grade is taken for a short one: ten seconds at 1 Mbit/s.
SHORT_BYTES = 1_250_000
SEVERITY_STYLE = {"serious": ("red", "bold"), "warning": ("yellow",), "info": ("cyan",)}
GRADE_STYLE = {"A+": "green", "A": "green", "B": "green", "C": "yellow", "D": "red", "F": "red"}
# Those that leave calls and games usable on a short path.
GOOD_GRADES = ("A+", "A", "B")
# Long paths that are named below the table.
NAMED_PATHS = 3
SORTED_BY = ("goodput_bps", "rtt_ms_p95", "rtt_bound_ms_p95")
GRADE_ORDER = {"F": 0, "D": 1, "C": 2, "B": 3, "A": 4, "A+": 5}


def file_screen(terminal: Terminal, run: Run, top: int, sort: str) -> None:
    """The file as a whole: what is in it, its largest connections, what was found."""
    header(terminal, run)
    rows = ranked(run, top, sort)
    if rows:
        terminal.line()
        connection_table(terminal, run, rows)
        rest = run.connections.num_rows - len(rows)
        if rest > 0:
            terminal.line(
                terminal.style(
                    f"and {plural(rest, 'more connection')}: --top {run.connections.num_rows}",
                    "dim",
                )
            )
    for text in [*ping_texts(run), *modem_texts(run)]:
        terminal.line()
        terminal.wrapped(text, "", "")
    if note := long_paths(rows):
        terminal.line()
        terminal.wrapped(note, "", "")
    if (hint := what_to_record(run)) is not None:
        terminal.line()
        terminal.wrapped(hint, "", "")
    findings(terminal, run, run.findings_of(), FINDINGS_SHOWN)


def what_to_record(run: Run) -> str | None:
    """What to record instead, where every TCP transfer is too short to judge, or too short for a grade of its delay.

    A transfer is the main direction of its connection. Where a finding blames something other than the capture, it is the answer.
    """
    if "too_short" not in run.flows.column_names:  # a result of an earlier version
        return None
    columns = ("data_packets", "too_short", "grade", "bytes", "capture_lacks")
    known = [name for name in columns if name in run.flows.column_names]
    mains = [flow for flow in main_directions(run, known, tcp=True) if flow["data_packets"]]
    if not mains:
        return None
    if any(flow.get("capture_lacks") for flow in mains):
        return None  # capture-quality says what to record
    if all(flow["too_short"] for flow in mains):
        return WHAT_TO_RECORD
    blamed = any(
        row["flow"] is not None and row["severity"] in ("serious", "warning")
        for row in run.findings_of()
    )
    graded = any(flow["grade"] for flow in mains)
    long = any((flow["bytes"] or 0) >= SHORT_BYTES for flow in mains)
    return None if blamed or graded or long else NO_GRADE


def long_paths(rows: Sequence[tuple[Row, Row]]) -> str:
    """What a good grade does not say: that the path itself is long. Empty where it is not."""
    long = [
        (connection["id"], base)
        for connection, flow in rows
        if flow["grade"] in GOOD_GRADES and (base := base_rtt_of_grade(flow)) is not None
    ]
    named = [f"{ms_text(base)} on connection {id_}" for id_, base in long[:NAMED_PATHS]]
    if not named:
        return ""
    more = f" and {len(long) - NAMED_PATHS} more" if len(long) > NAMED_PATHS else ""
    return f"The grade is of the added delay alone. The path's own RTT is {', '.join(named)}{more}."


def header(terminal: Terminal, run: Run) -> None:
    """Name, size, duration, what kinds of traffic, warnings."""
    info = run.info
    packets = [plural(info["packets"], "packet")] if "packets" in info else []
    size = " · ".join(
        [seconds_text(info.get("duration_s", 0.0)), *packets, byte_text(info.get("bytes", 0))]
    )
    name = cut(plain(run.name), max(terminal.width - width(size) - 3, 12))
    terminal.line(f"{terminal.style(name, 'bold')} · {size}")
    terminal.wrapped(", ".join(shares_of_bytes(run)) or "no IP packets")
    for warning in run.warnings:
        terminal.wrapped(warning, terminal.style("warning: ", "yellow"), " " * 9)


def shares_of_bytes(run: Run) -> list[str]:
    """TCP, UDP, ICMP and others by their share of the IP bytes."""
    sums: dict[str, int] = {}
    protos, sizes = (
        run.connections.column("proto").to_pylist(),
        run.connections.column("bytes").to_pylist(),
    )
    for proto, size in zip(protos, sizes, strict=True):
        sums[proto] = sums.get(proto, 0) + size
    total = sum(sums.values())
    order = sorted(sums, key=lambda proto: -sums[proto])
    shares = [f"{proto_text(proto)} {share_text(sums[proto] / total)}" for proto in order if total]
    return [f"{shares[0]} of bytes", *shares[1:]] if shares else []


def proto_text(proto: str) -> str:
    """A protocol by name, or by its number."""
    return f"IP protocol {proto}" if proto.isdigit() else proto.upper()


def ranked(run: Run, top: int, sort: str) -> list[tuple[Row, Row]]:
    """The first `top` connections in the asked order, each with its main flow."""
    ids = run.connections.column("id").to_pylist()
    sizes = run.connections.column("bytes").to_pylist()
    by_size = [
        id_ for _, id_ in sorted(zip(sizes, ids, strict=True), key=lambda item: (-item[0], item[1]))
    ]
    if sort != "bytes":
        columns = [name for name in (*SORTED_BY, "grade") if name in run.flows.column_names]
        mains = {flow["id"] // 2: flow for flow in main_directions(run, columns)}
        by_size.sort(key=lambda id_: sort_key(mains[id_], sort))
    return [(run.connection(id_), main_direction(run, id_)) for id_ in by_size[:top]]


def sort_key(flow: Row, sort: str) -> float:
    """The smaller, the earlier a connection with this main flow stands."""
    if sort == "goodput":
        return -(flow["goodput_bps"] or 0)
    if sort == "rtt":
        return -(flow["rtt_ms_p95"] or flow.get("rtt_bound_ms_p95") or 0)
    return GRADE_ORDER.get(flow["grade"], len(GRADE_ORDER))


def connection_table(terminal: Terminal, run: Run, rows: Sequence[tuple[Row, Row]]) -> None:
    """One line per connection where the screen is wide enough, else two."""
    names = [ends_text(connection, towards_a=flow["id"] % 2 == 1) for connection, flow in rows]
    ids = max(max(len(str(connection["id"])) for connection, _ in rows), 2)
    rtts = [rtt_text(run, flow) for _, flow in rows]
    # Two spaces before it; wider only where bounds are in it.
    room = max(17, *(width(rtt) + 2 for rtt in rtts))
    figures = 9 + 12 + room + 7 + 2 + max(width(TOO_SHORT), 14)
    ends = max(width(name) for name in names) + 2
    one_line = ids + 2 + ends + figures <= terminal.width
    titles = (
        right("bytes", 9)
        + right("goodput", 12)
        + right("RTT min → p95", room)
        + right("grade", 7)
        + "  main limit"
    )
    if one_line:
        terminal.line(
            terminal.style(right("id", ids) + "  " + left("connection", ends) + titles, "dim")
        )
    else:
        terminal.line(terminal.style(right("id", ids) + "  connection", "dim"))
        terminal.line(terminal.style(" " * (ids + 2) + titles, "dim"))
    for name, rtt, (connection, flow) in zip(names, rtts, rows, strict=True):
        number_ = right(str(connection["id"]), ids)
        cells = figure_cells(terminal, connection, flow, right(rtt, room))
        if one_line:
            terminal.line(f"{number_}  {left(name, ends)}{cells}")
        else:
            terminal.line(
                f"{number_}  {terminal.style(cut(name, terminal.width - ids - 2), 'bold')}"
            )
            terminal.line(" " * (ids + 2) + cells)


def rtt_text(run: Run, flow: Row) -> str:
    """RTT of the path: of this direction's data, else of the other direction's, else of the handshake."""
    text = rtt_range(flow)
    if text == NOTHING:
        text = rtt_range(run.flow(flow["id"] ^ 1))
    return ms_text(flow["initial_rtt_ms"]) if text == NOTHING else text


def figure_cells(terminal: Terminal, connection: Row, flow: Row, rtt: str) -> str:
    """The figures of a connection's main direction; of what is not TCP only what was counted."""
    size = right(byte_text(connection["bytes"]), 9)
    if connection["proto"] != "tcp" and rtt.strip() != NOTHING:
        what = "ping" if connection["proto"] == "icmp" else proto_text(connection["proto"])
        return f"{size}{right(NOTHING, 12)}{rtt}{right(NOTHING, 7)}  {what}"
    if connection["proto"] != "tcp":
        return f"{size}  {proto_text(connection['proto'])}"
    grade = flow["grade"] or "–"
    style = [GRADE_STYLE[grade]] if grade in GRADE_STYLE else []
    return (
        size
        # Nothing was acknowledged: either nothing arrived, or the capture lacks the ACKs.
        + right(rate_text(flow["goodput_bps"] or None), 12)
        + rtt
        + " " * (7 - len(grade))
        + terminal.style(grade, *style)
        + "  "
        + judged_text(flow)
    )


def judged_text(flow: Row) -> str:
    """The main limit, or why there is none."""
    return no_limit_text(flow) or limit_text(flow["limit"])


def findings(terminal: Terminal, run: Run, rows: Sequence[Row], most: int | None) -> None:
    """Findings in words with their cure, the most severe first; those beyond `most` are counted.

    With `most`, a rule stands once per severity: with its first finding and the connections of the others.
    """
    groups: dict[Any, list[Row]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(place if most is None else (row["severity"], row["rule"]), []).append(row)
    shown = list(groups.values())[:most]
    for row, *others in shown:
        terminal.line()
        mark = terminal.style(row["severity"], *SEVERITY_STYLE.get(row["severity"], ()))
        where = "" if row["flow"] is None else f" · {flow_text(run, row['flow'])}"
        head = f"{mark} {terminal.style(row['rule'], 'bold')}{where}"
        when = since(row)
        if width(head) + width(when) > terminal.width:
            terminal.line(head)
            terminal.line(f"  {when.removeprefix(' · ')}")
        else:
            terminal.line(head + when)
        terminal.wrapped(row["text"], "  ", "  ")
        if row["cure"]:
            terminal.wrapped("Cure: " + row["cure"], "  ", "  ")
        if others:
            terminal.wrapped(f"The same on {connections_text(row, others)}.", "  ", "  ")
    rest = [row for group in list(groups.values())[len(shown) :] for row in group]
    if rest:
        counts = [
            f"{count} {severity}"
            for severity in SEVERITY_ORDER
            if (count := sum(row["severity"] == severity for row in rest))
        ]
        terminal.line()
        more = plural(len(rest), "more finding")
        terminal.line(
            terminal.style(
                f"and {more} ({', '.join(counts)}): --connection ID or --report FILE.html", "dim"
            )
        )


def connections_text(row: Row, others: Sequence[Row]) -> str:
    """Which other connections have a finding, by their numbers."""
    ids = sorted({other["flow"] // 2 for other in others if other["flow"] is not None})
    ids = [id_ for id_ in ids if id_ != row["flow"] // 2]
    if not ids:
        return "the other direction"
    listed = ", ".join(map(str, ids[:NAMED]))
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return f"connection{'s' if len(ids) > 1 else ''} {listed}{more}"


def flow_text(run: Run, flow: int) -> str:
    """Which direction of which connection, in a few words."""
    return f"connection {flow // 2}, {direction_text(run, flow)}"


def direction_text(run: Run, flow: int) -> str:
    """`to 10.0.0.2:443`"""
    connection = run.connection(flow // 2)
    end = "b" if flow % 2 == 0 else "a"
    return f"to {endpoint_text(connection[f'{end}_addr'], connection[f'{end}_port'])}"


def since(row: Row) -> str:
    """The time span of a finding; empty for a moment at the very start, and for the capture as a whole."""
    if row["flow"] is None:
        return ""
    if row["to_s"] <= row["from_s"]:
        return f" · at {row['from_s']:,.1f} s" if row["from_s"] > 0 else ""
    return f" · {row['from_s']:,.1f} s to {row['to_s']:,.1f} s"
