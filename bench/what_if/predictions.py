"""How well `unbloat what-if` predicts cures on known links, from the capture at either end: `make what-if`.

signal: the first run of each link of `links.py` under each congestion control · model: the truth of a cure is the same run with
that cure, simulated on the link as it is; beside it two baselines that know less of the link · action: a line of
`docs/generated/what-if.jsonl` per run, and the page: errors, how often the 90 % interval has the truth, how often the best
cure is named, and what was refused

The truth is the simulator's, as the replay is: what is judged is the fit, the check and the intervals, and not whether the simulator is
the kernel (`docs/generated/congestion-control.md` and `docs/generated/front.md` are about that).
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench.what_if.findings import ENDS, GENERATED, percent, rounded, share  # noqa: E402
from bench.what_if.links import (  # noqa: E402
    CONGESTION,
    DURATION_S,
    LINKS,
    STEP_S,
    TEST,
    TUNING,
    Link,
    scenario,
)
from bench.what_if.stored import Case, main_of, settings_of, stored_by  # noqa: E402

import unbloat  # noqa: E402
from unbloat.errors import LinkUnknown  # noqa: E402
from unbloat.link.fit import LinkFit  # noqa: E402
from unbloat.prediction.cures import AS_IT_WAS, CURES, Cure  # noqa: E402
from unbloat.prediction.predict import KEPT_GOODPUT, SHORTER, Predicted, WhatIf, what_if  # noqa: E402
from unbloat.prediction.replay import MIN_BUFFER_BYTES, Draw, longest_queue_ms, replayed  # noqa: E402
from unbloat.run.figures import Figures  # noqa: E402

STORE, PAGE = GENERATED / "what-if.jsonl", GENERATED / "what-if.md"
# Raised when runs are made or judged in another way.
METHOD = 2
RUNS = 1
# Fewer than the command's own, for the time that the runs take.
DRAWS = 20
# The rule of `fit` for a queue. A transfer whose packets waited so long, half of them, filled its link.
SATURATED_MS = 8.0
# What is judged, by name: goodput in bit/s and the p95 of the queueing delay in ms. Of a short queue the error is counted
# as a share of these many ms.
GOODPUT, QUEUE = "goodput", "queue"
FLOOR_MS = 10.0
OURS = "unbloat"
CONSTANT, ARRIVALS = "constant link", "replay of arrivals"
BASELINES = (CONSTANT, ARRIVALS)


def settings(case: Case) -> str:
    """Names what is made."""
    return settings_of(METHOD, case)


def measured(case: Case, traces: Path) -> dict[str, Any]:
    """The truth of each cure, and what is predicted from the capture of each end."""
    link, by, run = case
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "link.toml"
        path.write_text(scenario(link, by, run, traces, folder))
        was = Figures(of_one(unbloat.simulate(path, pcap=folder)))
        shaped_bps = mean_bps(link, folder)
        truth = {AS_IT_WAS.name: true_figures(was)}
        for cure in CURES:
            path.write_text(scenario(link, by, run, traces, folder, cure, shaped_bps))
            truth[cure.name] = true_figures(Figures(of_one(unbloat.simulate(path, events=False))))
        captures = {end: next(folder.rglob(f"{end}.pcapng")) for end in ENDS}
        return {"truth": truth} | {end: said(captures[end]) for end in ENDS}


def of_one(made: unbloat.Run | unbloat.RunSet) -> unbloat.Run:
    """Of a scenario without a sweep."""
    assert isinstance(made, unbloat.Run)
    return made


def mean_bps(link: Link, folder: Path) -> float:
    """What the link can deliver in the mean."""
    if link.trace:
        packets = len((folder / "link.trace").read_text().split()) - 1
        return packets * 12_000 / DURATION_S
    later_mbps = link.then_mbps or link.rate_mbps
    return 1e6 * (link.rate_mbps * STEP_S + later_mbps * (DURATION_S - STEP_S)) / DURATION_S


def true_figures(figures: Figures) -> list[float]:
    """Goodput, and p50 and p95 of the queueing delay."""
    queue = figures.transfer_queue_ms("upload")
    assert queue is not None
    return [round(figures.goodput_bps("upload") or 0.0), rounded(queue.p50), rounded(queue.p95)]


def said(capture: Path) -> dict[str, Any]:
    """By the capture of one end. What is withheld by the check is kept, to be judged as well."""
    try:
        found = what_if(capture, connection="0→", draws=DRAWS, anyway=True, jobs=1)
    except LinkUnknown:
        return {"refused": "link"}
    ours = {one.cure.name: bands(one) for one in (found.as_it_was, *found.cures)}
    row: dict[str, Any] = {"senders": found.senders, OURS: ours}
    row |= {name: of_baseline(found, name) for name in BASELINES}
    return row | ({"refused": "check"} if found.differs else {})


def bands(one: Predicted) -> list[Any]:
    """Intervals of goodput and queue, whether it is better, and whether it is beyond the capture."""
    goodput = [round(value) for value in one.goodput_bps]
    return [*goodput, *(rounded(value) for value in one.queue_ms_p95), one.better, one.beyond]


def of_baseline(found: WhatIf, name: str) -> dict[str, list[float]]:
    """Goodput and p95 by a simpler link: as long a queue as was seen, and the same sender as ours."""
    fitted = found.fitted
    rates = rates_of(fitted, name)
    queued_bytes = round(statistics.mean(rates) / 8 * longest_queue_ms(fitted) / 1000)
    buffer_bytes = max(queued_bytes, MIN_BUFFER_BYTES)
    sender = next(iter(found.senders))
    draw = Draw(rates, fitted.slot_s, fitted.rtt_ms or 0.0, None, buffer_bytes, sender, 1)
    cures: Sequence[Cure] = (AS_IT_WAS, *(one.cure for one in found.cures))
    outcomes = replayed([(draw, cure) for cure in cures], "up", 1, None)
    return {
        cure.name: [round(one.goodput_bps), rounded(one.queue_ms_p95)]
        for cure, one in zip(cures, outcomes, strict=True)
    }


def rates_of(fitted: LinkFit, name: str) -> list[float]:
    """The mean of what arrived (Pantheon's calibrated emulators), or what arrived slot by slot (as users of mahimahi do)."""
    if name == ARRIVALS:
        return list(fitted.arrived_bps)
    return [statistics.mean(fitted.arrived_bps)] * len(fitted.arrived_bps)


def stored_runs(store: Path) -> list[tuple[Case, dict[str, Any]]]:
    """Runs that are stored."""
    return stored_by(METHOD, store, RUNS)


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
        if name != AS_IT_WAS.name and values[6] >= 0.9
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


HEAD = """\
# Predicted cures on known links

How well [`unbloat what-if`](../commands/what-if.md) predicts, from the capture of one transfer, what a cure would have done to it. Written by
`make what-if`.

{count} uploads of {duration_s} s were simulated over {links} links (`bench/what_if/links.py`), by {by}. Each was predicted from the captures at
both ends, with {draws} links per cure. The links of the *test* half are for judging alone: the halves were written down before
the first figure, and the widths of the intervals were chosen on the tuning half.

*Truth*: the same transfer with that cure, simulated on the link as it is. So this page judges the fit, the check and the
intervals. It does not judge whether the simulator is the kernel. *Judged*: every cure but the sender's own congestion control,
which the capture shows. What is marked as beyond the capture has a line of its own. *Goodput* is relative. *Queue* is the p95 of the queueing delay; its error is relative, and below
{floor_ms:.0f} ms a share of {floor_ms:.0f} ms. *In the interval*: how often the 90 % interval has the truth, with the 95 % interval of that
share; the cures of one run are not independent. *Rivals*: links with another flow in the same queue, which the capture has. It reacts to
a cure, and what it does then depends on chance more than a flow alone does, so they stand alone.

Two baselines know less of the link: a *constant link* has the mean of what arrived, and a *replay of arrivals* has what arrived slot by
slot. Both have a buffer for the longest queue that was seen, and the same sender.

## Goals

"""
GROUPS: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    (TUNING, lambda case: case[0].half == TUNING and not case[0].rivals),
    (TEST, lambda case: case[0].half == TEST and not case[0].rivals),
    ("rivals", lambda case: case[0].rivals > 0),
)
PASSED, WITHHELD = "passed", "withheld"
# By the specification: median and p90 of the error, and the share in the interval.
GOALS = {GOODPUT: (0.10, 0.20), QUEUE: (0.20, 0.40)}
COVERED = (0.85, 0.95)
MAX_WIDTH, NAMED, MAX_REFUSED = 0.40, 0.90, 0.10


def at_end(runs: Runs, keep: Callable[[dict[str, Any]], bool]) -> list[tuple[Case, dict[str, Any]]]:
    """The same runs with the ends that are kept."""
    return [
        (case, {"truth": row["truth"]} | {end: row[end] if keep(row[end]) else {} for end in ENDS})
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
    """How often a cure is named that is as good as the best; how often the commonest best would be; of how many."""
    rows = [(row["truth"], named(row[end])) for _, row in runs for end in ENDS if passed(row[end])]
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


def page(runs: Runs) -> str:
    """The page."""
    text = HEAD.format(
        count=len(runs),
        duration_s=DURATION_S,
        links=len(LINKS),
        by=", ".join(CONGESTION),
        draws=DRAWS,
        floor_ms=FLOOR_MS,
    )
    text += goals([(case, row) for case, row in runs if case[0].half == TEST])
    text += "\n## Errors\n\n| links | by | capture at | figure | judged | in the interval | error | error, 90 % | width |\n|---|---|---|---|---|---|---|---|---|\n"
    for group, keep in GROUPS:
        own = [(case, row) for case, row in runs if keep(case)]
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
    for group, keep in GROUPS:
        text += answers(group, [(case, row) for case, row in runs if keep(case)])
    text += (
        "\n*Rank correlation*: Kendall's τ of the p95 of the cures, the median over transfers.\n"
    )
    text += "\n## Link by link\n\nBoth ends; errors of what is not withheld.\n\n| link | sender | refused | recognised | goodput: error, 90 % | queue: error, 90 % | in the interval |\n|---|---|---|---|---|---|---|\n"
    for case, row in runs:
        text += of_run(case, row)
    return text


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


def of_run(case: Case, row: dict[str, Any]) -> str:
    """A line of the last table."""
    link, by, _ = case
    mine = at_end([(case, row)], passed)
    why = [str(row[end].get("refused", "no")) for end in ENDS]
    first = [next(iter(row[end]["senders"])) for end in ENDS if "senders" in row[end]]
    cells = [link.name, by, " / ".join(why), " / ".join(first) or "–"]
    inside = count = 0
    for kind in GOALS:
        rows = list(judged(mine, ENDS, kind))
        errors = [error(one, kind) for one in rows]
        cells.append(percent(quantile(errors, 0.9)) if errors else "–")
        inside += sum(low <= true <= high for true, low, _, high in rows)
        count += len(rows)
    return f"| {' | '.join(cells)} | {f'{inside} of {count}' if count else '–'} |\n"


if __name__ == "__main__":
    main_of(__doc__, METHOD, measured, page, STORE, PAGE, RUNS)
