"""What `unbloat locate` says in sentences: the verdict, clocks, routers and marks, what the captures missed."""

from __future__ import annotations

from unbloat.path.tables import (
    BACKWARD,
    FORWARD,
    SMALL_MS,
    STANDING_MS,
    WORTH_NAMING,
    PathSegment,
    PathTables,
)
from unbloat.run.tables import Row
from unbloat.text.format import byte_text, ms_text, number, plural, seconds_text, share_text

# A drift below this is the resolution of the fit.
NO_DRIFT_PPM = 0.5


def order_text(located: PathTables) -> str:
    """How the order of the points was found, and what was matched."""
    how = {
        "given": "in the order given",
        "hops": "in the order in which TTLs fall, not as given",
        "delays": "in the order that delays show, not as given",
    }[located.info["order_by"]]
    count = len(located.connections)
    return (
        f"{plural(len(located.names), 'point')} {how} · {seconds_text(located.info['duration_s'])} · "
        f"{plural(count, 'connection')} seen at two of them or more"
    )


def main_segment(located: PathTables, direction: str) -> PathSegment | None:
    """The one with most of the queueing delay."""
    known = [s for s in located.segments(direction) if s.row["queue_ms_mean"] is not None]
    return max(known, key=lambda s: s.row["queue_ms_mean"], default=None)


def clock_lines(located: PathTables) -> list[str]:
    """How the clocks differ, with what cannot be known."""
    lines = []
    for row in located.clocks:
        near, far = located.names[row["from_point"]], located.names[row["to_point"]]
        if row["one_clock"]:
            lines.append(f"{near} and {far} may read one clock: no drift, and {known_offset(row)}.")
            continue
        lines.append(
            f"The clock of {far} {ahead(row['offset_ms'])} that of {near} ({known_offset(row)}){drift(row)}."
        )
    for step in located.steps:
        near, far = located.names[step["from_point"]], located.names[step["from_point"] + 1]
        way = "forward" if step["step_ms"] > 0 else "back"
        lines.append(
            f"At {step['t_s']:.1f} s the clock of {far} stepped {way} by {ms_text(abs(step['step_ms']))} "
            f"against that of {near}."
        )
    return lines


def ahead(offset_ms: float) -> str:
    """`is 3.70 s ahead of`"""
    size = abs(offset_ms)
    text = f"{size / 1000:,.3f} s" if size >= 1000 else f"{number(size)} ms"
    return f"is {text} {'ahead of' if offset_ms >= 0 else 'behind'}"


def known_offset(row: Row) -> str:
    """The assumption under every offset, with its uncertainty."""
    if row["uncertainty_ms"] is None:
        return "packets of one direction only: the smallest delay counts as 0"
    return f"±{number(row['uncertainty_ms'])} ms, as both directions are taken to have the same smallest delay"


def drift(row: Row) -> str:
    """`, and gains 40 ppm`"""
    size = abs(row["drift_ppm"])
    if size < NO_DRIFT_PPM:
        return ", without drift"
    return f", and {'gains' if row['drift_ppm'] > 0 else 'loses'} {number(size)} ppm"


def fact_lines(located: PathTables) -> list[str]:
    """What else happens between the points: routers, NAT, a smaller MSS, marks, other windows, reordering."""
    lines = []
    for row in located.clocks:
        between = f"Between {located.names[row['from_point']]} and {located.names[row['to_point']]}"
        facts = []
        if row["hops"]:
            facts.append(plural(row["hops"], "router"))
        if row["renamed_connections"]:
            facts.append(
                f"address translation ({plural(row['renamed_connections'], 'connection')})"
            )
        if row["mss_before"] is not None:
            facts.append(
                f"the MSS of SYNs becomes {row['mss_behind']} instead of {row['mss_before']}"
            )
        if facts:
            lines.append(f"{between}: {', '.join(facts)}.")
    for direction in (FORWARD, BACKWARD):
        for segment in located.segments(direction):
            row = segment.row
            facts = []
            if row["ecn_marked_packets"]:
                facts.append(f"{plural(row['ecn_marked_packets'], 'packet')} marked CE")
            if row["windows_rewritten"]:
                facts.append(
                    f"the window rewritten in {plural(row['windows_rewritten'], 'segment')}"
                )
            if row["reordered_packets"]:
                facts.append(f"{plural(row['reordered_packets'], 'packet')} overtaken by others")
            if facts:
                lines.append(f"{segment.name}: {', '.join(facts)}.")
    return lines


def quality_lines(located: PathTables) -> list[str]:
    """What the captures themselves missed."""
    lines = []
    for name, row in zip(located.names, located.points, strict=True):
        if row["capture_drops"]:
            lines.append(
                f"The capture of {name} misses {plural(row['capture_drops'], 'packet')} "
                f"({byte_text(row['capture_drop_bytes'])}) that passed it, as the other points show."
            )
        if row["reported_drops"]:
            lines.append(
                f"The capture program at {name} reported {plural(row['reported_drops'], 'drop')}."
            )
        if row["duplicates"]:
            lines.append(
                f"The capture of {name} holds {plural(row['duplicates'], 'packet')} twice."
            )
        if row["packets_elsewhere"]:
            lines.append(
                f"At {name} {plural(row['packets_elsewhere'], 'packet')} belong to flows that no other point saw."
            )
    undecided = sum(
        s.row["undecided_packets"] for d in (FORWARD, BACKWARD) for s in located.segments(d)
    )
    if undecided:
        lines.append(
            f"{plural(undecided, 'packet')} had not arrived when a capture ended, or set out before it began: not counted as lost."
        )
    return lines


def verdict(located: PathTables) -> str:
    """Both directions in sentences; the one with the longer queue first."""
    ways = sorted((FORWARD, BACKWARD), key=lambda d: -(located.path(d).queue_ms or 0))
    sentences = [queue_sentence(located, direction) for direction in ways]
    if all((located.path(d).queue_ms or 0) < SMALL_MS for d in ways) and any(
        located.path(d).queue_ms is not None for d in ways
    ):
        most = max(located.path(d).queue_ms or 0 for d in ways)
        sentences = [
            f"No queue stands anywhere between {located.names[0]} and {located.names[-1]}: p95 {ms_text(most)} at most."
        ]
    return " ".join([*filter(None, sentences), loss_sentence(located)])


def queue_sentence(located: PathTables, direction: str) -> str:
    """`The queue stands between B and C, upstream: p95 412 ms of 431 ms.`"""
    path, worst, word = (
        located.path(direction),
        main_segment(located, direction),
        located.way(direction),
    )
    if worst is None or worst.queue_ms is None:
        return f"No packet was followed {word}."
    whole = path.queue_ms if path.queue_ms is not None else worst.queue_ms
    if whole < SMALL_MS and worst.queue_ms < SMALL_MS:
        return f"No queue stands {word}: p95 {ms_text(whole)}."
    what = "The queue stands" if worst.queue_ms >= STANDING_MS else "A short queue stands"
    text = f"{what} between {worst.start} and {worst.end}, {word}: p95 {ms_text(worst.queue_ms)} of {ms_text(whole)}"
    others = [
        s
        for s in located.segments(direction)
        if s is not worst
        and (s.row["share"] or 0) >= WORTH_NAMING
        and (s.queue_ms or 0) >= SMALL_MS
    ]
    text += "".join(f"; {ms_text(s.queue_ms)} between {s.start} and {s.end}" for s in others)
    return text + "."


def loss_sentence(located: PathTables) -> str:
    """Where packets were lost."""
    parts = []
    for direction in (FORWARD, BACKWARD):
        for segment in located.segments(direction):
            lost, passed = segment.row["lost_packets"], segment.row["packets"]
            if lost:
                share = share_text(lost / (lost + passed))
                parts.append((lost, f"{plural(lost, 'packet')} ({share}) on {segment.name}"))
    if not parts:
        return "No packet was lost on the way."
    parts.sort(key=lambda part: -part[0])
    return f"Lost: {', '.join(text for _, text in parts)}."
