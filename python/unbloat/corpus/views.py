"""`views.sql`: the tables of a corpus for any DuckDB, and the questions that are asked most."""

from __future__ import annotations

from pathlib import Path

from unbloat.corpus.qcut_views import qcut_views
from unbloat.corpus.tables import NAMES

# What held transfers back, by bytes, by time and by number of flows; only what can be judged counts.
VERDICTS = """
CREATE OR REPLACE VIEW verdicts AS
SELECT "limit",
       count(*) AS flows,
       sum(bytes) AS bytes,
       sum(active_s) AS active_s,
       sum(bytes) / sum(sum(bytes)) OVER () AS share_of_bytes,
       sum(active_s) / sum(sum(active_s)) OVER () AS share_of_time,
       count(*) / sum(count(*)) OVER () AS share_of_flows
FROM flows WHERE "limit" IS NOT NULL GROUP BY "limit" ORDER BY bytes DESC, "limit";
"""
# The gap is that of spans within a file; between two files of a device it is closed here.
SESSIONS = """
CREATE OR REPLACE VIEW sessions AS
WITH absolute AS (
  SELECT device, t0_s + from_s AS begin_s, t0_s + to_s AS end_s, bytes_up, bytes_down FROM spans
), marked AS (
  SELECT *, coalesce(begin_s - max(end_s) OVER (
    PARTITION BY device ORDER BY begin_s, end_s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) >= 60, true) AS new FROM absolute
), numbered AS (
  SELECT *, sum(new::INT) OVER (PARTITION BY device ORDER BY begin_s, end_s
    ROWS UNBOUNDED PRECEDING) AS session FROM marked
)
SELECT device, session, min(begin_s) AS begin_s, max(end_s) AS end_s,
       sum(bytes_up)::UBIGINT AS bytes_up, sum(bytes_down)::UBIGINT AS bytes_down
FROM numbered GROUP BY device, session ORDER BY device, session;
"""
# A connection is judged by one of its directions, so that it counts once. An interface has a name only where the capture
# stores one: it distinguishes the networks of a phone.
JUDGED = """
CREATE OR REPLACE VIEW judged AS
SELECT f.unit, f.device, f.file, f.connection, f.id AS flow, f.upload,
       c.a_addr, c.a_port, c.b_addr, c.b_port, f.t0_s + c.start_s AS begin_s,
       (floor((f.t0_s + c.start_s) / 3600) % 24)::INT AS hour_utc,
       nullif(i.interfaces[c.interface + 1], '') AS interface,
       f.bytes, f.active_s, f.goodput_bps, f.rtt_ms_min, f.queue_ms_p95, f."limit", f.grade
FROM flows AS f
JOIN connections AS c ON c.unit = f.unit AND c.file = f.file AND c.id = f.connection
LEFT JOIN captures AS i ON i.unit = f.unit AND i.file = f.file
WHERE f."limit" IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY f.unit, f.file, f.connection ORDER BY f.bytes DESC, f.id) = 1;
"""


def views_sql(out: Path) -> str:
    """The statements, for the tables that have rows."""
    there = [name for name in NAMES if any((out / "table" / name).glob("*.parquet"))]
    lines = ["-- Tables and views of a corpus. In DuckDB: .read views.sql\n"]
    for name in there:
        files = str(out / "table" / name / "*.parquet").replace("'", "''")
        lines.append(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM read_parquet('{files}');\n")
    if "flows" in there:
        lines.append(VERDICTS)
    if {"captures", "connections", "flows"} <= set(there):
        lines.append(JUDGED)
    if "spans" in there:
        lines.append(SESSIONS)
    lines.append(qcut_views(there))
    return "".join(lines)
