"""The head of the page: files, figures, grade, and the verdict in words."""

from __future__ import annotations

from dataclasses import dataclass

from unbloat.run.tables import RunTables
from unbloat.run.verdict import verdict
from unbloat.text.format import base_rtt_of_grade, byte_text, count_text, ms_text, seconds_text

# What a grade stands for, in the order of the page's legend.
GRADES = {
    "A+": "under 5 ms of added delay",
    "A": "under 30 ms of added delay",
    "B": "under 60 ms of added delay",
    "C": "under 200 ms of added delay",
    "D": "under 400 ms of added delay",
    "F": "400 ms of added delay or more",
}


@dataclass(frozen=True)
class Headline:
    """Ready to be shown."""

    title: str
    verdict: str
    grade: str | None
    grade_means: str
    figures: list[tuple[str, str]]


def headline(run: RunTables) -> Headline:
    """Everything above the table of connections."""
    info = run.info
    grade = None if run.main_flow is None else run.flow(run.main_flow)["grade"]
    files = [str(file) for file in info.get("files") or []]
    names = [file.replace("\\", "/").rsplit("/", 1)[-1] for file in files]
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    if run.made:
        lab = ["lab"] if info["origin"] == "lab" else []
        title = ", ".join([str(info["name"]), *info.get("labels", []), *lab])
    figures = [
        ("Duration", seconds_text(info.get("duration_s"))),
        ("Packets", count_text(info.get("packets"))),
        ("On the wire", byte_text(info.get("bytes"))),
        ("Connections", count_text(run.connections.num_rows)),
    ]
    for key, words in (
        ("tcp_packets", "TCP packets"),
        ("udp_packets", "UDP packets"),
        ("icmp_packets", "ICMP packets"),
        ("duplicates", "Duplicates dropped"),
        ("reported_drops", "Drops reported"),
        ("kernel_drops", "Lost in the kernel"),
        ("broken_packets", "Broken packets"),
        ("dropped_packets", "Dropped in queues"),
        ("lost_packets", "Lost on links"),
    ):
        if info.get(key):
            figures.append((words, count_text(info[key])))
    base = None if run.main_flow is None else base_rtt_of_grade(run.flow(run.main_flow))
    means = GRADES.get(grade or "", "") + (f", base RTT {ms_text(base)}" if base else "")
    return Headline(title or "capture", verdict(run), grade, means, figures)
