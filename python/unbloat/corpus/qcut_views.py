"""The curves of QCUT's study of traffic (IMC 2016, section 3) as views: series, x, F, and the number n behind F.

F is the share of a series with no more than x. Sizes have MB of 10⁶ bytes, as those of the whole project.
"""

from __future__ import annotations

# A rate over less time says more about the start of a flow than about its network.
MIN_RATE_S = 3
# Of a slot: with more data on its way down, the RTT is that of a download's queue.
MAX_DOWN_BYTES = 5_000

BURST_SIZES = """CASE WHEN bytes < 1e5 THEN NULL WHEN bytes < 1e6 THEN '0.1–1 MB'
    WHEN bytes < 1e7 THEN '1–10 MB' ELSE '> 10 MB' END"""
BYTES_UP = """CASE WHEN bytes_up < 5000 THEN '< 5 KB up' WHEN bytes_up <= 100000
         THEN '5–100 KB up' ELSE '> 100 KB up' END"""
DIRECTIONS = "CASE WHEN upload THEN 'upload' ELSE 'download' END"

# View → the table or view that it needs, and the rows of which it is the distribution.
SAMPLES: dict[str, tuple[str, str]] = {
    "qcut_fig1": (
        "spans",
        """SELECT 'upload' AS series, bytes_up / 1e6 AS x FROM sessions
  UNION ALL SELECT 'download', bytes_down / 1e6 FROM sessions
  UNION ALL SELECT 'both', (bytes_up + bytes_down) / 1e6 FROM sessions""",
    ),
    "qcut_upload_share": (
        "spans",
        """SELECT unnest(CASE WHEN rank <= 0.2 THEN ['all sessions', 'largest 20 %']
         ELSE ['all sessions'] END) AS series, 100 * bytes_up / (bytes_up + bytes_down) AS x
  FROM (SELECT *, cume_dist() OVER (ORDER BY bytes_up + bytes_down DESC) AS rank
        FROM sessions WHERE bytes_up + bytes_down > 0)""",
    ),
    "qcut_fig2": (
        "bursts",
        f"""SELECT {DIRECTIONS} || ', ' || {BURST_SIZES} AS series, to_s - from_s AS x
  FROM bursts""",
    ),
    "qcut_fig3": (
        "bursts",
        f"""SELECT unnest([{DIRECTIONS}, CASE WHEN upload THEN 'upload, ' || {BURST_SIZES} END])
         AS series, bytes * 8 / (to_s - from_s) / 1e6 AS x
  FROM bursts WHERE to_s - from_s > {MIN_RATE_S}""",
    ),
    "qcut_fig4": (
        "slots",
        f"""SELECT {BYTES_UP} AS series, rtt_rise_ms AS x
  FROM slots WHERE bytes_down < {MAX_DOWN_BYTES}""",
    ),
    "qcut_fig4b": (
        "slots",
        f"SELECT {BYTES_UP} AS series, ack_delay_ms AS x FROM slots",
    ),
    "qcut_fig5": (
        "slots",
        """SELECT 'all slots' AS series, connections::DOUBLE AS x
  FROM slots WHERE connections > 0""",
    ),
}
CURVE = """
CREATE OR REPLACE VIEW {name} AS
WITH samples AS (
  {samples}
), counted AS (
  SELECT series, x, count(*) AS c FROM samples
  WHERE series IS NOT NULL AND x IS NOT NULL GROUP BY series, x
)
SELECT series, x, (sum(c) OVER (PARTITION BY series ORDER BY x)
                   / sum(c) OVER (PARTITION BY series))::DOUBLE AS F,
       (sum(c) OVER (PARTITION BY series))::BIGINT AS n
FROM counted ORDER BY series, x;
"""


def qcut_views(there: list[str]) -> str:
    """The statements of the views whose table has rows."""
    return "".join(
        CURVE.format(name=name, samples=samples)
        for name, (table, samples) in SAMPLES.items()
        if table in there
    )
