"""What `unbloat agent` prints: what an agent does, its connections, what a kernel can do.

signal: the program's JSON · model: none, it has measured and decided · action: lines and tables that fit the terminal. Counters
that a newer agent adds are shown by their own names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unbloat.text.format import (
    NOTHING,
    byte_text,
    count_text,
    endpoint_text,
    ms_text,
    number,
    rate_text,
    seconds_text,
)
from unbloat.text.table import GAP, MAX_LABEL, table
from unbloat.text.terminal import Terminal, plain, width

Answer = Mapping[str, Any]
LABEL = 12
# Cells of a sparkline: of two looks a second, the last 12 s.
SPARK = 24
CURES = {
    "receive": "downloads",
    "acks": "ACK windows",
    "gate": "gate",
    "shaper": "shaper",
    "congestion": "congestion",
}
ARROWS = {"receive": "↓", "acks down": "↓", "acks up": "↑"}
# Places of the figures that are left out where there is no room, in turn: on offer, wanted, in flight, queue, who holds it back.
GIVEN_UP = (3, 2, 4, 5, 7)
TITLES = ("", "RTT", "least", "wanted", "offered", "in flight", "queue", "rate", "held by")


def status_screen(
    terminal: Terminal, answer: Answer, sparks: Mapping[str, str] | None = None, rows: int = 0
) -> None:
    """What an agent does, and every connection; `rows` is how many lines there are, 0: enough."""
    lines = head(terminal, answer)
    flows = sorted(answer.get("flows") or [], key=lambda flow: -(flow.get("rate_bps") or 0))
    room = len(flows)
    if rows:
        # Above the table a blank line and its titles; below, how many are left out.
        room = max((rows - lines - 4) // 2, 1)
        if beside(
            terminal,
            [flow_name(flow) for flow in flows],
            [cells(flow) for flow in flows],
            bool(sparks),
        ):
            room = max(rows - lines - 3, 1)
    if flows:
        terminal.line()
        flow_table(terminal, flows[:room], sparks or {})
    if room < len(flows):
        terminal.line(terminal.style(f"… and {len(flows) - room} more", "dim"))


def head(terminal: Terminal, answer: Answer) -> int:
    """State, uplink, cures, trials, problems; how many lines that took."""
    if answer.get("state") == "off":
        pending = answer.get("pending") or 0
        terminal.line("off")
        if pending:
            terminal.wrapped(
                "an agent ended without undoing what it did; unbloat agent off undoes it",
                "! ",
                "  ",
            )
        return 1 + bool(pending)
    lines = 1
    device = f" · {answer['device']}" if answer.get("device") else ""
    said = "watching only, all cures are lifted" if answer.get("lifted") else "on"
    terminal.line(
        f"{terminal.style(said, 'bold')} for {seconds_text(answer.get('up_s'))} · process {answer.get('pid')}{plain(device)}"
    )
    entries: list[tuple[str, str]] = []
    uplink = answer.get("uplink")
    if isinstance(uplink, Mapping):
        active, why = str(uplink.get("active", NOTHING)), str(uplink.get("why") or "")
        entries.append(("uplink", f"{active}: {why}" if why else active))
    cures = answer.get("cures")
    for name, counters in cures.items() if isinstance(cures, Mapping) else ():
        if isinstance(counters, Mapping):
            entries.append((str(CURES.get(name, name)), counters_text(counters)))
    entries += [
        ("trial", trial_text(trial)) for trial in answer.get("trials") or [] if is_active(trial)
    ]
    for name, text in entries:
        terminal.wrapped(text, terminal.style(f"{name:<{LABEL}} ", "dim"), " " * (LABEL + 1))
        lines += 1
    for problem in answer.get("problems") or []:
        terminal.wrapped(str(problem), terminal.style("! ", "yellow"), "  ")
        lines += 1
    return lines


def counters_text(counters: Mapping[str, Any]) -> str:
    """Figures in the order of the program, each in the unit that its name ends with; zeros say nothing."""
    parts = []
    for name, value in counters.items():
        if name in ("cure", "device"):
            continue  # said already
        if isinstance(value, bool) or not isinstance(value, int | float):
            if isinstance(value, str) and value:
                parts.append(f"{name.replace('_', ' ')} {plain(value)}")
        elif value:
            parts.append(figure(name, value))
    # No line break between a name and its figure.
    return " · ".join(part.replace(" ", "\u00a0") for part in parts) or "nothing yet"


def figure(name: str, value: float) -> str:
    """A figure with its name."""
    units = (("_bytes", byte_text), ("_bps", rate_text), ("_ms", ms_text), ("_s", seconds_text))
    for ending, text in units:
        if name.endswith(ending):
            return f"{name.removesuffix(ending).replace('_', ' ')} {text(value)}"
    return (
        f"{name.replace('_', ' ')} {count_text(value) if isinstance(value, int) else number(value)}"
    )


def is_active(trial: Any) -> bool:
    """Whether a trial is worth a line: one that rests is none."""
    return isinstance(trial, Mapping) and trial.get("state") != "resting"


def trial_text(trial: Answer) -> str:
    """A trial in a line."""
    remote = endpoint_text(str(trial.get("remote") or ""), trial.get("remote_port"))
    text = f"{trial.get('state')}: {CURES.get(str(trial.get('cure')), trial.get('cure'))} {remote}".rstrip()
    if trial.get("with_bps") is not None and trial.get("without_bps") is not None:
        text += (
            f", {rate_text(trial['with_bps'])} with it, {rate_text(trial['without_bps'])} without"
        )
    return text


def flow_name(flow: Answer) -> str:
    """A connection as its remote end, with the way of its data."""
    arrow = ARROWS.get(str(flow.get("cure")), "·")
    return (
        f"{arrow} {endpoint_text(str(flow.get('remote') or ''), flow.get('remote_port'), width=39)}"
    )


def flow_key(flow: Answer) -> str:
    """Identifies a connection."""
    return f"{flow.get('cure')} {flow.get('remote')} {flow.get('remote_port')} {flow.get('local_port')}"


def flow_table(terminal: Terminal, flows: Sequence[Answer], sparks: Mapping[str, str]) -> None:
    """Every connection, its name beside its figures where all of it fits, above them otherwise."""
    names = [flow_name(flow) for flow in flows]
    rows = [cells(flow) for flow in flows]
    history = [sparks.get(flow_key(flow), "") for flow in flows]
    if beside(terminal, names, rows, bool(sparks)):
        more = ("RTT so far",) if sparks else ()
        lines = [
            (name, *row, *([spark] if more else []))
            for name, row, spark in zip(names, rows, history, strict=True)
        ]
        table(terminal, (*TITLES, *more), lines)
        return
    above = [f"{name}  {spark}".rstrip() for name, spark in zip(names, history, strict=True)]
    kept = that_fit(terminal, rows)
    figures = [("", *(row[place] for place in kept)) for row in rows]
    table(
        terminal,
        ("", *(TITLES[1 + place] for place in kept)),
        figures,
        names=["connection", *above],
    )


def that_fit(terminal: Terminal, rows: Sequence[Sequence[str]]) -> list[int]:
    """The figures that a narrow terminal has room for: windows go first."""
    columns = [GAP + max(map(width, column)) for column in zip(TITLES[1:], *rows, strict=True)]
    kept = list(range(len(columns)))
    for place in GIVEN_UP:
        if sum(columns[one] for one in kept) > terminal.width:
            kept.remove(place)
    return kept


def beside(
    terminal: Terminal, names: Sequence[str], rows: Sequence[Sequence[str]], sparked: bool
) -> bool:
    """Whether names fit beside their figures."""
    columns = [max(map(width, column)) for column in zip(TITLES[1:], *rows, strict=True)]
    longest = max(map(width, names), default=0)
    return (
        longest <= MAX_LABEL
        and longest + sum(columns) + GAP * len(columns) + sparked * (SPARK + GAP) <= terminal.width
    )


def cells(flow: Answer) -> list[str]:
    """The figures of a connection."""
    return [
        ms_text(flow.get("rtt_ms")),
        ms_text(flow.get("rtt_min_ms")),
        *(
            byte_text(flow.get(f"{key}_bytes"))
            for key in ("wanted", "advertised", "in_flight", "queue")
        ),
        rate_text(flow.get("rate_bps")),
        str(flow.get("limit") or NOTHING),
    ]


def features_screen(terminal: Terminal, answer: Answer) -> None:
    """What this kernel can do."""
    for feature in answer.get("features") or []:
        works = bool(feature.get("works"))
        mark = terminal.style("yes", "green") if works else terminal.style("no ", "yellow")
        text = f"{feature.get('feature')} (Linux {feature.get('since')})"
        if not works and feature.get("missing"):
            text += f": {feature['missing']}"
        terminal.wrapped(text, f"{mark}  ", "     ")
    for line in answer.get("without") or []:
        terminal.wrapped(str(line), "", "  ")


def changed_screen(terminal: Terminal, answer: Answer) -> None:
    """What `on` and `off` did."""
    state = answer.get("state")
    if state == "set":
        terminal.line("the agent that runs has the new settings")
    elif state == "off":
        undone = [str(one) for one in answer.get("undone") or []]
        terminal.line("off")
        for one in undone:
            terminal.wrapped(one, "  ", "  ")
    else:
        terminal.line(str(state))
