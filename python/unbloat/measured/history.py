"""`unbloat measure history`: grade and added delay, or responsiveness, over days.

A file has a line for each measurement, a JSON object as `unbloat measure --json` or `unbloat measure rpm --json` prints it, with `at_unix_s`
and `host`; one that failed has `failed` instead of figures. A last line that an interruption cut off is left out.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbloat.errors import UnbloatError
from unbloat.text.format import NOTHING
from unbloat.text.table import table
from unbloat.text.terminal import Terminal, sparkline

PHASES = {"down": "download", "up": "upload", "both": "both"}
# Of the delay that a phase is graded by.
GRADED = {"down": "delay_down", "up": "delay_up", "rtt": "delay_rtt"}


@dataclass(frozen=True)
class Graded:
    """A phase of a measurement."""

    grades: list[str]
    """One, two between which it lies, or none."""
    p95_ms: float | None
    """Of the added delay that was graded; infinite where it falls on lost probes."""


@dataclass(frozen=True)
class Responsive:
    """A phase of a measurement of responsiveness."""

    rpm: float | None
    """Round trips a minute."""


@dataclass(frozen=True)
class Result:
    """A measurement."""

    at_unix_s: float
    host: str
    failed: str | None
    """Why there are no figures."""
    rtt_min_ms: float | None
    phases: dict[str, Graded | Responsive]


def read_history(file: Path) -> list[Result]:
    """The measurements in a file, the oldest first. Raises `UnbloatError`."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no text"
        raise UnbloatError(f"{file}: {why}") from None
    results = []
    for number, line in enumerate(lines, 1):
        try:
            results.append(result(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError):
            if number < len(lines):
                raise UnbloatError(f"{file}:{number}: no result of unbloat measure") from None
    if lines and not results:
        raise UnbloatError(f"{file}:1: no result of unbloat measure")
    return sorted(results, key=lambda one: one.at_unix_s)


def result(value: dict[str, Any]) -> Result:
    """Of a line."""
    failed = value.get("failed")
    rtt = value.get("rtt_min_ms", value.get("unloaded_rtt_ms"))
    return Result(
        float(value["at_unix_s"]),
        str(value["host"]),
        None if failed is None else str(failed),
        None if rtt is None else float(rtt),
        {} if failed is not None else {named(phase): figure(phase) for phase in value["phases"]},
    )


def named(phase: dict[str, Any]) -> str:
    """Its phase, with the congestion control that was asked for: `up`, `up, bbr`, or `up, quic, bbr`; of RPM with its variant, `up, draft-09`."""
    # A result of before QUIC says nothing of it.
    quic = "quic" if phase.get("transport") == "quic" else None
    words = (phase["phase"], quic, phase.get("congestion_control"), phase.get("variant"))
    return ", ".join(str(word) for word in words if word is not None)


def title(name: str) -> str:
    """As it is printed."""
    phase, comma, cc = name.partition(",")
    return f"{PHASES.get(phase, phase)}{comma}{cc}"


def figure(phase: dict[str, Any]) -> Graded | Responsive:
    """Of a phase."""
    if "rpm" in phase:
        return Responsive(None if phase["rpm"] is None else float(phase["rpm"]))
    grade = phase["grade"]
    delay = phase.get(GRADED[grade["of"]])
    p95 = None if delay is None else delay["p95_ms"][0]
    return Graded(
        [str(one) for one in grade["grades"]],
        None if p95 is None else math.inf if p95 == "lost" else float(p95),
    )


def history_screen(terminal: Terminal, results: Sequence[Result]) -> None:
    """Prints a line per measurement, and for each phase how it went over time."""
    if not results:
        terminal.line("No measurement yet.")
        return
    hosts = list(dict.fromkeys(one.host for one in results))
    for host in hosts:
        own = [one for one in results if one.host == host]
        terminal.line()
        terminal.line(terminal.style(host, "bold"))
        names = list(dict.fromkeys(name for one in own for name in one.phases))
        titles = ("time", "RTT", *(title(name) for name in names))
        table(terminal, titles, [row(one, names) for one in own], left_columns=1)
        terminal.line()
        for name in names:
            terminal.wrapped(over_time(own, name))
        for why, count in Counter(one.failed for one in own if one.failed is not None).items():
            terminal.wrapped(f"failed, {count} of {len(own)}: {why}")
    terminal.line()
    every = [phase for one in results for phase in one.phases.values()]
    if any(isinstance(phase, Graded) for phase in every):
        terminal.wrapped("Grade and p95 of the added delay, ms.")
    if any(isinstance(phase, Responsive) for phase in every):
        terminal.wrapped("RPM: round trips a minute under load; more is better.")


def row(one: Result, names: Sequence[str]) -> tuple[str, ...]:
    """A measurement."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.at_unix_s))
    if one.failed is not None:
        return (when, "failed", *("" for _ in names))
    rtt = NOTHING if one.rtt_min_ms is None else f"{one.rtt_min_ms:.0f} ms"
    return (when, rtt, *(cell(one.phases.get(name)) for name in names))


def cell(phase: Graded | Responsive | None) -> str:
    """Grade and delay, or RPM."""
    if phase is None:
        return NOTHING
    if isinstance(phase, Responsive):
        return "none" if phase.rpm is None else f"{phase.rpm:.0f} RPM"
    grade = " or ".join(phase.grades) or "none"
    return f"{grade} {milliseconds(phase.p95_ms)}"


def milliseconds(value: float | None) -> str:
    """Or what there is instead."""
    if value is None:
        return NOTHING
    return "lost" if math.isinf(value) else f"{value:.0f}"


def value_of(phase: Graded | Responsive | None) -> float | None:
    """What a bar shows: p95 of the added delay, or RPM."""
    value = None if phase is None else phase.rpm if isinstance(phase, Responsive) else phase.p95_ms
    return None if value is None or math.isinf(value) else value


def over_time(results: Sequence[Result], name: str) -> str:
    """How a phase went: a bar for each measurement, the grades, the median and the largest p95."""
    phases = [one.phases.get(name) for one in results]
    values = [value_of(phase) for phase in phases]
    known = [value for value in values if value is not None]
    if any(isinstance(phase, Responsive) for phase in phases):
        if not known:
            return f"{title(name)}: no RPM."
        return f"{title(name)} {sparkline(values, 40)} {statistics.median(known):.0f} RPM in the median, {min(known):.0f} at least."
    grades = Counter(
        " or ".join(phase.grades) or "none" for phase in phases if isinstance(phase, Graded)
    )
    said = ", ".join(f"{grade} in {count}" for grade, count in sorted(grades.items()))
    if not known:
        return f"{title(name)}: {said}."
    return (
        f"{title(name)} {sparkline(values, 40)} {said};"
        f" p95 {statistics.median(known):.0f} ms in the median, {max(known):.0f} at most."
    )


def history_json(results: Sequence[Result]) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "format": 1,
        "results": [
            {
                "at_unix_s": one.at_unix_s,
                "host": one.host,
                "failed": one.failed,
                "rtt_min_ms": one.rtt_min_ms,
                "phases": {
                    name: {"rpm": phase.rpm}
                    if isinstance(phase, Responsive)
                    else {
                        "grades": phase.grades,
                        "p95_ms": "lost" if phase.p95_ms == math.inf else phase.p95_ms,
                    }
                    for name, phase in one.phases.items()
                },
            }
            for one in results
        ],
    }
