"""What `unbloat corpus` prints: counts, errors, and the rows of a query."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import Any, TextIO

from unbloat.corpus.corpus import Status
from unbloat.corpus.run import Outcome
from unbloat.text.format import byte_text, plural
from unbloat.text.table import tables
from unbloat.text.terminal import Terminal, plain

# Errors that the screen names; `status` has all.
NAMED = 20
# Rows of a query on a screen; --json and --csv have all.
SHOWN_ROWS = 100


def outcome_screen(terminal: Terminal, outcome: Outcome, out: str, as_json: bool) -> None:
    """What a run did."""
    if as_json:
        facts = {
            "units": outcome.found,
            "analysed_now": outcome.ran,
            "done": outcome.done,
            "size_bytes": outcome.size_bytes,
            "errors": outcome.errors,
        }
        terminal.line(json.dumps(facts))
        return
    terminal.line(
        f"{outcome.done:,} of {plural(outcome.found, 'unit')} done, {outcome.ran:,} now "
        f"({byte_text(outcome.size_bytes)})"
    )
    terminal.line(f"tables: {out}/table")


def complain_all(stream: TextIO, errors: Sequence[str], out: str) -> None:
    """Names what could not be analysed, as `analyze` does."""
    for line in errors[:NAMED]:
        print(f"unbloat: {plain(line)}", file=stream)
    if len(errors) > NAMED:
        print(
            f"unbloat: {len(errors) - NAMED:,} more; `unbloat corpus status {out}` names all",
            file=stream,
        )


def status_screen(terminal: Terminal, found: Status, as_json: bool) -> None:
    """What is done, and what is not."""
    facts = found.to_dict()
    if as_json:
        terminal.line(json.dumps(facts))
        return
    terminal.line(f"{byte_text(found.done_bytes)} of {byte_text(found.size_bytes)} read")
    terminal.line(
        f"{plural(found.units, 'unit')}: {facts['done']:,} done, {facts['bad']:,} bad, "
        f"{facts['failed']:,} failed, {facts['left']:,} left"
    )
    if found.stale:
        terminal.line(f"{plural(found.stale, 'result')} of files that have changed since")
    rows = ", ".join(f"{name} {count:,}" for name, count in sorted(found.rows.items()))
    terminal.wrapped(f"rows: {rows or 'none'}", "", "  ")
    for line in found.errors():
        terminal.wrapped(line, "  ", "    ")


def rows_screen(
    terminal: Terminal, names: Sequence[str], rows: Sequence[Sequence[Any]], form: str
) -> None:
    """The answer to a query, as `text`, `json` or `csv`."""
    if form == "json":
        for row in rows:
            terminal.line(json.dumps(dict(zip(names, row, strict=True)), default=str))
    elif form == "csv":
        writer = csv.writer(terminal.stream, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    else:
        shown = [[cell_text(cell) for cell in row] for row in rows[:SHOWN_ROWS]]
        tables(terminal, names, shown, 1)
        if len(rows) > SHOWN_ROWS:
            terminal.line(f"{len(rows) - SHOWN_ROWS:,} more rows; --json and --csv print all")


def cell_text(cell: Any) -> str:
    """A value for a screen."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 10_000 else f"{cell:,.0f}"
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return str(cell)
