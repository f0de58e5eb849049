"""docs/generated/fairness.md: a row per case, a flow alone, and both ways at once."""

from __future__ import annotations

from itertools import groupby

from unbloat.fairness.fairness import Fairness
from unbloat.fairness.judge import BothVerdict, judge_groups
from unbloat.fairness.lab import FairnessInLab
from unbloat.fairness.lab_page import fairness_lab_section, markdown
from unbloat.fairness.text import TITLES, alone_rows, both_row, row

HEAD = """\
# Fairness

How several flows with the same control share a bottleneck of 20 Mbit/s down or 8 Mbit/s up. Written by `make front`
(`unbloat reproduce fairness`), which [commands/reproduce.md](../commands/reproduce.md#fairness) describes. The runs are
in the simulator; the last section is of the lab.

The goals were fixed before the first run. Jain's index of the goodputs is at least 0.9 within 20 s of the last start, and from then on.
Every flow's median RTT is at most λ base RTTs and a tenth. A flow alone loses nothing.

*Jain* is the index over the last 20 s, *holds* the time from the last start until the index, over 5 s each, is at least 0.9 to the
end. *least* is the goodput of the smallest flow over an equal share, *RTT / base* the largest median of a flow. λ is 1.75 for the agent, 3 down and 1.75 up for the others.
Without a window law nothing bounds the RTT.
"""


def fairness_page(found: Fairness, lab: FairnessInLab | None = None) -> str:
    """The page."""
    text = HEAD
    for way, groups in groupby(judge_groups(found.shared), key=lambda group: group.way):
        text += f"\n## {way.capitalize()}\n"
        for group in groups:
            text += f"\n### {group.control}, {way}\n\nFair in {group.fair} of {len(group.verdicts)} cases.\n\n"
            text += markdown(TITLES, [row(verdict) for verdict in group.verdicts])
    text += "\n## A flow alone\n\n"
    text += markdown(("control", "way", "of the untreated goodput", "kept"), alone_rows(found))
    text += (
        "\n## Both ways at once\n\nA download over 8 Mbit/s beside an upload over 2 Mbit/s of the same client, 60 ms of base RTT; gate and ACK-window"
        " rewriting with the receive window law for the download. The goal: the upload keeps 0.8 of its goodput alone, and p95 of the"
        " ping is at most 100 ms.\n\n"
    )
    rows = [both_row(BothVerdict(both)) for both in found.both]
    text += markdown(("control", "upload", "of alone", "download", "ping p95", "goal"), rows)
    return text + (fairness_lab_section(lab) if lab is not None else "")
