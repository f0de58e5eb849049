"""Fairness on a terminal: a line per case, then a flow alone, then both ways at once."""

from __future__ import annotations

from typing import Any

from unbloat.fairness.fairness import Fairness
from unbloat.fairness.jain import HOLDS, per_second
from unbloat.fairness.judge import (
    PING_MS,
    UPLOAD_SHARE,
    WITHIN_S,
    BothVerdict,
    SharedVerdict,
    judge_all,
    judge_alone,
    judge_groups,
)
from unbloat.text.format import NOTHING
from unbloat.text.table import table
from unbloat.text.terminal import Terminal

TITLES = ("flows", "RTT", "starts", "Jain", "holds", "least", "RTT / base", "fair", "RTT ok")
YES = {True: "yes", False: "no", None: NOTHING}


def fairness_screen(terminal: Terminal, found: Fairness) -> None:
    """Prints it."""
    for group in judge_groups(found.shared):
        terminal.line()
        terminal.wrapped(
            f"{group.control}, {group.way}: fair within {WITHIN_S} s in {group.fair} of {len(group.verdicts)} cases"
        )
        table(terminal, TITLES, [row(verdict) for verdict in group.verdicts], left_columns=3)
    terminal.line()
    terminal.wrapped(
        f"Jain: index over the last 20 s. holds: seconds from the last start until the index is {HOLDS} or more to the"
        " end. least: goodput of the smallest flow over an equal share. RTT / base: largest median of a flow."
    )
    terminal.line()
    table(terminal, ("a flow alone", "way", "of untreated", "kept"), alone_rows(found), 2)
    terminal.line()
    table(
        terminal,
        ("both ways", "upload", "of alone", "download", "ping p95", "goal"),
        [both_row(BothVerdict(both)) for both in found.both],
    )
    terminal.wrapped(
        f"8 Mbit/s down, 2 up. goal: the upload keeps {UPLOAD_SHARE} of its goodput alone, ping p95 of at most {PING_MS:.0f} ms."
    )


def row(verdict: SharedVerdict) -> tuple[str, ...]:
    """One case."""
    _, flows, starts, rtts, _ = verdict.shared.case.key
    return (
        flows,
        rtts,
        starts,
        NOTHING if verdict.jain is None else f"{verdict.jain:.2f}",
        "never" if verdict.holds_s is None else f"{verdict.holds_s} s",
        f"{verdict.smallest:.2f} ×",
        f"{verdict.rtt_share:.2f} ×",
        YES[verdict.fair],
        YES[verdict.short],
    )


def alone_rows(found: Fairness) -> list[tuple[str, ...]]:
    """A flow alone under each control."""
    return [
        (
            verdict.shared.case.sharing.name,
            verdict.shared.case.way,
            f"{100 * verdict.share:.1f} %",
            YES[verdict.kept],
        )
        for verdict in judge_alone(found.shared)
    ]


def both_row(verdict: BothVerdict) -> tuple[str, ...]:
    """Both ways under one control."""
    both = verdict.both
    return (
        both.name,
        f"{both.upload_bps / 1e6:.2f} Mbit/s",
        f"{verdict.share:.2f} ×",
        f"{both.download_bps / 1e6:.2f} Mbit/s",
        f"{both.ping_p95_ms:.0f} ms",
        YES[verdict.reaches],
    )


def fairness_json(found: Fairness) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "format": 1,
        "cases": [
            dict(zip(("way", "flows", "starts", "rtts", "control"), one.case.key, strict=True))
            | shared_json(verdict)
            for verdict in judge_all(found.shared)
            for one in (verdict.shared,)
        ],
        "alone": [
            {
                "control": verdict.shared.case.sharing.name,
                "way": verdict.shared.case.way,
                "share": verdict.share,
                "kept": verdict.kept,
            }
            for verdict in judge_alone(found.shared)
        ],
        "both_ways": [{"control": both.name} | both_json(BothVerdict(both)) for both in found.both],
    }


def shared_json(verdict: SharedVerdict) -> dict[str, Any]:
    """A case of several flows."""
    return {
        "jain": verdict.jain,
        "jain_per_second": per_second(verdict.shared.goodputs),
        "holds_s": verdict.holds_s,
        "least_share": verdict.smallest,
        "rtt_over_base": verdict.rtt_share,
        "rtt_bound": verdict.rtt_bound,
        "fair": verdict.fair,
        "rtt_ok": verdict.short,
    }


def both_json(verdict: BothVerdict) -> dict[str, Any]:
    """Both ways under one control."""
    both = verdict.both
    return {
        "upload_alone_bps": both.alone_bps,
        "upload_bps": both.upload_bps,
        "download_bps": both.download_bps,
        "ping_p95_ms": both.ping_p95_ms,
        "reaches": verdict.reaches,
    }
