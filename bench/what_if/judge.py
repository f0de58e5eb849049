"""Judges predictions of cures by their truth: errors, intervals, best cures, refusals, and the tables of the pages.

signal: a row per transfer, with the truth of each cure and what was predicted from the captures of both ends · model: the prediction
of a cure is an interval and a median of goodput and of the p95 of the queueing delay · action: goals with yes or no, and tables by
half of the links, end and figure, beside the baselines
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench.what_if.findings import ENDS, percent, share  # noqa: E402
from bench.what_if.links import TEST, TUNING  # noqa: E402
from bench.what_if.stored import Case  # noqa: E402

from unbloat.prediction.cures import AS_IT_WAS  # noqa: E402
from unbloat.prediction.predict import IN_MOST, KEPT_GOODPUT, SHORTER  # noqa: E402

# The rule of `fit` for a queue. A transfer whose packets waited so long, half of them, filled its link.
SATURATED_MS = 8.0
# What is judged, by name: goodput in bit/s and the p95 of the queueing delay in ms. Of a short queue the error is counted
# as a share of these many ms.
GOODPUT, QUEUE = "goodput", "queue"
FLOOR_MS = 10.0
OURS = "unbloat"
CONSTANT, ARRIVALS, CROSS = "constant link", "replay of arrivals", "constant less cross traffic"
BASELINES = (CONSTANT, ARRIVALS, CROSS)

Judged = tuple[float, float, float, float]
"""Truth, 5 % quantile, median, 95 % quantile."""
Runs = Sequence[tuple[Case, dict[str, Any]]]


def judged(runs: Runs, ends: Sequence[str], kind: str, beyond: bool = False) -> Iterator[Judged]:
    """Of every cure but the sender's own congestion control, which the capture shows: those that are marked as beyond the capture,
    or the others."""
    first, place = (0, 0) if kind == GOODPUT else (3, 2)
    for (_, by, _), row in runs:
        for end in ends:
            for name, values in row[end].get(OURS, {}).items():
                if name not in (by, AS_IT_WAS.name) and values[7] == beyond:
                    low, middle, high = values[first : first + 3]
                    yield row["truth"][name][place], low, middle, high


def judged_baseline(runs: Runs, ends: Sequence[str], kind: str, by_name: str) -> Iterator[Judged]:
    """The same of a baseline, which has no interval."""
    ours, place = (0, 0) if kind == GOODPUT else (1, 2)
    for (_, by, _), row in runs:
        for end in ends:
            for name, values in row[end].get(by_name, {}).items():
                if name not in (by, AS_IT_WAS.name):
                    value = values[ours]
                    yield row["truth"][name][place], value, value, value


def error(one: Judged, kind: str) -> float:
    """Relative; of a queue that is shorter than `FLOOR_MS`, as a share of that."""
    true, _, middle, _ = one
    return abs(middle - true) / (true if kind == GOODPUT else max(true, FLOOR_MS))


def width(one: Judged, kind: str) -> float:
    """Of the interval, relative in the same way."""
    true, low, _, high = one
    return (high - low) / (true if kind == GOODPUT else max(true, FLOOR_MS))


def best_of(figures: Mapping[str, Sequence[float]], was: Sequence[float]) -> str | None:
    """The shortest queue of the cures that leave nine tenths of the goodput: by the rule of `what-if`."""
    better = {
        name: values[-1]
        for name, values in figures.items()
        if name != AS_IT_WAS.name
        and values[0] >= KEPT_GOODPUT * was[0]
        and values[-1] <= SHORTER * was[-1]
    }
    return min(better, key=better.__getitem__, default=None)


def as_good(truth: Mapping[str, Sequence[float]], named: str | None) -> bool:
    """Whether the cure that is named is as good as the best, within 10 ms or 20 %."""
    was = truth[AS_IT_WAS.name]
    best = best_of(truth, was)
    if named is None or best is None:
        return named == best
    longest = max(truth[best][-1] + FLOOR_MS, 1.2 * truth[best][-1])
    return truth[named][0] >= KEPT_GOODPUT * was[0] and truth[named][-1] <= longest


def named(row: dict[str, Any]) -> str | None:
    """The best cure by the prediction: as `WhatIf.best`."""
    better = {
        name: values[4]
        for name, values in row[OURS].items()
        if name != AS_IT_WAS.name and values[6] >= IN_MOST
    }
    return min(better, key=better.__getitem__, default=None)


def kendall(row: dict[str, Any], truth: Mapping[str, Sequence[float]]) -> float:
    """Rank correlation of the p95 of the cures; pairs within `FLOOR_MS` by the truth do not count."""
    names = [name for name in row[OURS] if name != AS_IT_WAS.name]
    pairs = [
        math.copysign(
            1.0, (truth[one][-1] - truth[other][-1]) * (row[OURS][one][4] - row[OURS][other][4])
        )
        for at, one in enumerate(names)
        for other in names[:at]
        if abs(truth[one][-1] - truth[other][-1]) > FLOOR_MS
    ]
    return statistics.mean(pairs) if pairs else 1.0


GROUPS: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    (TUNING, lambda case: case[0].half == TUNING and not case[0].rivals),
    (TEST, lambda case: case[0].half == TEST and not case[0].rivals),
    ("rivals", lambda case: case[0].rivals > 0),
)
# By the specification: median and p90 of the error, and the share in the interval.
GOALS = {GOODPUT: (0.10, 0.20), QUEUE: (0.20, 0.40)}
COVERED = (0.85, 0.95)
MAX_WIDTH, NAMED, MAX_REFUSED = 0.40, 0.90, 0.10


def at_end(runs: Runs, keep: Callable[[dict[str, Any]], bool]) -> list[tuple[Case, dict[str, Any]]]:
    """The same runs with the ends that are kept."""
    return [
        (case, row | {end: row[end] if keep(row[end]) else {} for end in ENDS})
        for case, row in runs
    ]


def passed(row: dict[str, Any]) -> bool:
    """Predicted, and not withheld."""
    return "refused" not in row


def withheld(row: dict[str, Any]) -> bool:
    """By the check."""
    return row.get("refused") == "check"


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that so many do not exceed."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def saturated(row: dict[str, Any]) -> bool:
    """Whether the transfer filled its link, by the truth."""
    return float(row["truth"][AS_IT_WAS.name][1]) >= SATURATED_MS


def refusals(runs: Runs) -> tuple[int, int]:
    """Of saturated transfers: how many are refused, for whatever reason, and how many there are, both ends."""
    rows = [row[end] for _, row in runs if saturated(row) for end in ENDS]
    return sum("refused" in row for row in rows), len(rows)


def best(runs: Runs) -> tuple[int, int, int]:
    """How often a cure is named that is as good as the best; how often the commonest best would be; of how many. Where only a part of
    the cures was run, none is the best."""
    rows = [
        (row["truth"], named(row[end]))
        for _, row in runs
        for end in ENDS
        if passed(row[end]) and not row.get("part")
    ]
    if not rows:
        return 0, 0, 0
    common, _ = Counter(best_of(truth, truth[AS_IT_WAS.name]) for truth, _ in rows).most_common(1)[
        0
    ]
    return (
        sum(as_good(truth, name) for truth, name in rows),
        sum(as_good(truth, common) for truth, _ in rows),
        len(rows),
    )


def goals(runs: Runs) -> str:
    """The goals on the test half."""
    text = "On the whole test half, rivals included, both ends:\n\n| goal | reached | is |\n|---|---|---|\n"
    mine = at_end(runs, passed)
    for kind, (middle, most) in GOALS.items():
        errors = [error(one, kind) for one in judged(mine, ENDS, kind)]
        is_middle, is_most = statistics.median(errors), quantile(errors, 0.9)
        text += goal(
            f"error of {kind}, median, at most {percent(middle)}",
            is_middle <= middle,
            percent(is_middle),
        )
        text += goal(
            f"error of {kind}, 90 %, at most {percent(most)}", is_most <= most, percent(is_most)
        )
    for kind in GOALS:
        rows = list(judged(mine, ENDS, kind))
        part = sum(low <= true <= high for true, low, _, high in rows) / len(rows)
        text += goal(
            f"{kind} in the interval, 85 to 95 %", COVERED[0] <= part <= COVERED[1], percent(part)
        )
        middle = statistics.median(width(one, kind) for one in rows)
        text += goal(
            f"width of {kind}, median, at most {percent(MAX_WIDTH)}",
            middle <= MAX_WIDTH,
            percent(middle),
        )
    right, common, count = best(runs)
    text += goal(
        f"a cure as good as the best is named, {percent(NAMED)} and more often than by the commonest",
        right >= NAMED * count and right > common,
        f"{right} of {count}; by the commonest {common}",
    )
    refused, full = refusals(runs)
    return text + goal(
        f"saturated transfers refused, at most {percent(MAX_REFUSED)}",
        refused <= MAX_REFUSED * full,
        f"{refused} of {full} = {percent(refused / full)}",
    )


def goal(name: str, reached: bool, text: str) -> str:
    """One line."""
    return f"| {name} | {'yes' if reached else '**no**'} | {text} |\n"


def line(names: Sequence[str], rows: Sequence[Judged], kind: str) -> str:
    """One row of a table of errors."""
    if not rows:
        return f"| {' | '.join(names)} | 0 | – | – | – | – |\n"
    errors = [error(one, kind) for one in rows]
    inside = sum(low <= true <= high for true, low, _, high in rows)
    wide = statistics.median(width(one, kind) for one in rows)
    cells = [
        *names,
        str(len(rows)),
        f"{inside} of {len(rows)}{share(inside, len(rows))}" if wide else "–",
    ]
    cells += [percent(statistics.median(errors)), percent(quantile(errors, 0.9))]
    return f"| {' | '.join(cells)} | {percent(wide) if wide else '–'} |\n"


def answers(group: str, runs: Runs) -> str:
    """Refusals and best cures of a group."""
    rows = [row[end] for _, row in runs for end in ENDS]
    refused, full = refusals(runs)
    right, common, count = best(runs)
    ranks = [kendall(row[end], row["truth"]) for _, row in runs for end in ENDS if passed(row[end])]
    cells = [
        group,
        str(len(rows)),
        str(sum(row.get("refused") == "link" for row in rows)),
        str(sum(map(withheld, rows))),
        f"{refused} of {full}",
        f"{right} of {count}",
        f"{common} of {count}",
        f"{statistics.median(ranks):.2f}" if ranks else "–",
    ]
    return f"| {' | '.join(cells)} |\n"


def of_run(group: str, case: Case, row: dict[str, Any]) -> str:
    """A line of the last table."""
    link, by, _ = case
    mine = at_end([(case, row)], passed)
    why = [str(row[end].get("refused", "no")) for end in ENDS]
    first = [next(iter(row[end]["senders"])) for end in ENDS if "senders" in row[end]]
    cells = [group, link.name, by, " / ".join(why), " / ".join(first) or "–"]
    inside = count = 0
    for kind in GOALS:
        rows = list(judged(mine, ENDS, kind))
        errors = [error(one, kind) for one in rows]
        cells.append(percent(quantile(errors, 0.9)) if errors else "–")
        inside += sum(low <= true <= high for true, low, _, high in rows)
        count += len(rows)
    return f"| {' | '.join(cells)} | {f'{inside} of {count}' if count else '–'} |\n"


ERROR_TITLES = "| links | by | capture at | figure | judged | in the interval | error | error, 90 % | width |\n|---|---|---|---|---|---|---|---|---|\n"


def by_group(runs: Runs) -> list[tuple[str, Runs]]:
    """Halves of the links, and those with rivals."""
    return [(name, [(case, row) for case, row in runs if keep(case)]) for name, keep in GROUPS]


def tables(groups: Sequence[tuple[str, Runs]]) -> str:
    """Errors, refusals and best cures by group, and a line per transfer."""
    text = f"\n## Errors\n\n{ERROR_TITLES}"
    for group, own in groups:
        for kind in GOALS:
            mine = at_end(own, passed)
            for end in ENDS:
                text += line((group, OURS, end, kind), list(judged(mine, (end,), kind)), kind)
            marked = list(judged(mine, ENDS, kind, beyond=True))
            text += line((group, "unbloat, beyond the capture", "both", kind), marked, kind)
            for name in BASELINES:
                text += line(
                    (group, name, "both", kind), list(judged_baseline(mine, ENDS, kind, name)), kind
                )
            rows = list(judged(at_end(own, withheld), ENDS, kind))
            text += line((group, "unbloat, withheld by the check", "both", kind), rows, kind)
    text += "\n## Refused, and the best cure\n\n| links | transfers, both ends | link unknown | withheld by the check | of saturated ones | best cure | by the commonest | rank correlation |\n|---|---|---|---|---|---|---|---|\n"
    for group, own in groups:
        text += answers(group, own)
    text += (
        "\n*Rank correlation*: Kendall's τ of the p95 of the cures, the median over transfers.\n"
    )
    text += "\n## Link by link\n\nBoth ends; errors of what is not withheld.\n\n| links | link | sender | refused | recognised | goodput: error, 90 % | queue: error, 90 % | in the interval |\n|---|---|---|---|---|---|---|---|\n"
    for group, own in groups:
        for case, row in own:
            text += of_run(group, case, row)
    return text
