"""The connections with the most added delay, each with the command that writes its report."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from unbloat.corpus.archive import archive_kind
from unbloat.corpus.report.when import minute_text
from unbloat.corpus.unit import INSIDE, is_remote
from unbloat.text.format import byte_text, ends_text, limit_text, ms_text, rate_text

if TYPE_CHECKING:
    import duckdb

SHOWN = 100
# In place of a name that the expression of `--device-from` did not find.
NO_DEVICE = "no device"
WORST = f"""
SELECT file, connection, flow, device, upload, a_addr, a_port, b_addr, b_port, begin_s, bytes,
       goodput_bps, queue_ms_p95, "limit", grade
FROM judged WHERE queue_ms_p95 IS NOT NULL
ORDER BY queue_ms_p95 DESC, bytes DESC, file, connection LIMIT {SHOWN}
"""
# Copies what fsspec opens to standard output.
FETCH = "import fsspec, shutil, sys; shutil.copyfileobj(fsspec.open(sys.argv[1]).open(), sys.stdout.buffer)"
PACKINGS = (
    (re.compile(r"gz$", re.I), "z"),
    (re.compile(r"bz2?$", re.I), "j"),
    (re.compile(r"xz$", re.I), "J"),
)


@dataclass(frozen=True)
class Worst:
    """One row of the page."""

    device: str
    ends: str
    when: str
    """Date and time, UTC."""
    bytes: str
    goodput: str
    delay: str
    """p95 of the time in queues."""
    limit: str
    grade: str
    file: str
    command: str
    """Empty where no command leads to the capture."""


def worst(connection: duckdb.DuckDBPyConnection) -> list[Worst]:
    """At most a hundred, the most delay first."""
    found = connection.execute(WORST)
    names = [column[0] for column in found.description or []]
    return [row_of(dict(zip(names, row, strict=True))) for row in found.fetchall()]


def row_of(row: Mapping[str, Any]) -> Worst:
    """In words."""
    way = "upload" if row["upload"] else "download"
    return Worst(
        row["device"] or NO_DEVICE,
        f"{ends_text({**row, 'proto': 'tcp'}, towards_a=row['flow'] % 2 == 1)}, {way}",
        minute_text(row["begin_s"]),
        byte_text(row["bytes"]),
        rate_text(row["goodput_bps"]),
        ms_text(row["queue_ms_p95"]),
        limit_text(row["limit"]),
        row["grade"] or "none",
        row["file"],
        command(row["file"], row["connection"]),
    )


def command(file: str, number: int) -> str:
    """What writes the report of a connection's capture: `--connection` prints its figures besides."""
    archive, _, member = file.partition(INSIDE)
    kind = archive_kind(PurePosixPath(archive).name) if member else None
    source, steps = file, []
    if kind is not None:
        source = archive
    if is_remote(source):
        if kind == "zip":  # its directory is at its end
            return ""
        steps.append(f"python3 -c {shlex.quote(FETCH)} {shlex.quote(source)}")
    if kind == "zip":
        # unzip takes names as patterns.
        name = re.sub(r"([*?\[])", r"[\1]", member)
        steps.append(f"unzip -p {shlex.quote(archive)} {shlex.quote(name)}")
    elif kind is not None:
        # From a pipe, tar does not find out by itself how it is packed.
        packing = next((how for ending, how in PACKINGS if ending.search(archive)), "")
        name = "-" if steps else shlex.quote(archive)
        steps.append(f"tar -x{packing}Of {name} -- {shlex.quote(member)}")
    name = "-" if steps else shlex.quote(file)
    steps.append(f"unbloat analyze {name} --connection {number} --report connection-{number}.html")
    return " | ".join(steps)
