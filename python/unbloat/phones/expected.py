"""The curves of QCUT's study that follow from what is true of the phones: values of each series, by view.

It reads the rows of the truth alone. Definitions are those of the paper, and are written here a second time on purpose:
`unbloat.corpus.qcut_views` is what they judge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

# A flow of 3 s and less has no rate in figure 3; a second with 5 KB down and more has no rise in figure 4a.
RATE_FROM_S, DOWN_BELOW_BYTES = 3.0, 5_000
LARGEST = 0.2

Rows = Sequence[Mapping[str, Any]]
Values = dict[tuple[str, str], list[float]]
"""By view and series."""


def expected(rows: Mapping[str, Rows]) -> Values:
    """Every view by the tables `sessions`, `bursts` and `slots` of the truth."""
    found: Values = defaultdict(list)
    of_sessions(rows["sessions"], found)
    of_bursts(rows["bursts"], found)
    of_slots(rows["slots"], found)
    return found


def of_sessions(rows: Rows, found: Values) -> None:
    """Figure 1, MB, and upload's share, per cent."""
    for row in rows:
        up, down = row["bytes_up"], row["bytes_down"]
        for series, size in (("upload", up), ("download", down), ("both", up + down)):
            found["qcut_fig1", series].append(size / 1e6)
    by_size = sorted(rows, key=lambda row: row["bytes_up"] + row["bytes_down"], reverse=True)
    for place, row in enumerate(by_size, 1):
        share = 100 * row["bytes_up"] / (row["bytes_up"] + row["bytes_down"])
        found["qcut_upload_share", "all sessions"].append(share)
        if place <= LARGEST * len(rows):
            found["qcut_upload_share", "largest 20 %"].append(share)


def size_class(size_bytes: int) -> str | None:
    """Of figures 2 and 3b."""
    if size_bytes < 100_000:
        return None
    if size_bytes < 1_000_000:
        return "0.1–1 MB"
    return "1–10 MB" if size_bytes < 10_000_000 else "> 10 MB"


def of_bursts(rows: Rows, found: Values) -> None:
    """Figure 2, s, and figure 3, Mbit/s."""
    for row in rows:
        way = "upload" if row["upload"] else "download"
        long_s, kind = row["to_s"] - row["from_s"], size_class(row["bytes"])
        if kind is not None:
            found["qcut_fig2", f"{way}, {kind}"].append(long_s)
        if long_s > RATE_FROM_S:
            rate = row["bytes"] * 8 / long_s / 1e6
            found["qcut_fig3", way].append(rate)
            if row["upload"] and kind is not None:
                found["qcut_fig3", f"upload, {kind}"].append(rate)


def of_slots(rows: Rows, found: Values) -> None:
    """Figures 4a and 4b, ms, and figure 5."""
    for row in rows:
        up, rise_ms = row["bytes_up"], row["rtt_rise_ms"]
        series = "< 5 KB up" if up < 5_000 else "5–100 KB up" if up <= 100_000 else "> 100 KB up"
        if rise_ms is not None and row["bytes_down"] < DOWN_BELOW_BYTES:
            found["qcut_fig4", series].append(rise_ms)
        if row["ack_delay_ms"] is not None:
            found["qcut_fig4b", series].append(row["ack_delay_ms"])
        if row["connections"]:
            found["qcut_fig5", "all slots"].append(float(row["connections"]))


def share_at(values: Sequence[float], x: float) -> float:
    """F: the share of the values with no more than x."""
    return sum(value <= x for value in values) / len(values) if values else 0.0
