"""How well `unbloat what-if` predicts what cures do on kernels, from captures of kernels: `make what-if-runs`.

signal: the runs of `kernel_runs.py`, and of `netem_runs.py` in guests · model: a prediction starts from the capture of a run by CUBIC,
NewReno or BBR, at either end; the truth of each cure is another run of the same link on the kernel's own TCP · action: a line of
`docs/generated/what-if-kernel.jsonl` per start, and the page: errors, intervals, best cures and refusals, as `predictions.py` has them for
the simulator, whose judge this is
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench.what_if import judge, kernel_runs, netem_runs, predictions, stored  # noqa: E402
from bench.what_if.findings import ENDS, GENERATED, percent  # noqa: E402
from bench.what_if.judge import GOALS, Runs, judged  # noqa: E402
from bench.what_if.kernel_runs import CURES_RUN, SENDER, STARTS, capture_of, key  # noqa: E402
from bench.what_if.links import DURATION_S, TEST  # noqa: E402

from unbloat.prediction.cures import AS_IT_WAS  # noqa: E402
from unbloat.run.store import Store  # noqa: E402

STORE, PAGE = GENERATED / "what-if-kernel.jsonl", GENERATED / "what-if-kernel.md"
NAMES = ("testbed", "link", "cure", "run")
# Raised when captures are predicted in another way, or what the code makes of them has changed.
METHOD = 12
Case = kernel_runs.Case
Row = dict[str, Any]
Truths = Mapping[tuple[str, int], Mapping[str, Row]]
"""Rows by the name of the cure, of each link and number of a run."""


@dataclass(frozen=True)
class Testbed:
    """Where runs were made."""

    name: str
    cases: Sequence[Case]
    settings: Callable[[Case], str]
    store: Path
    captures: Path

    @property
    def starts(self) -> list[Case]:
        """The runs of which captures are kept."""
        return [case for case in self.cases if case[1] in STARTS]

    def truths(self) -> Truths:
        """What is stored."""
        kept = Store(self.store, kernel_runs.NAMES)
        found: dict[tuple[str, int], dict[str, Row]] = {}
        for case in self.cases:
            for row in (kept.runs(key(case), self.settings(case)) or [])[:1]:
                found.setdefault((case[0].name, case[2]), {})[case[1].name] = row
        return found


LAB = Testbed(
    "lab", kernel_runs.cases(), kernel_runs.settings, kernel_runs.STORE, kernel_runs.CAPTURES
)
NETEM = Testbed(
    "netem",
    netem_runs.cases(kernel_runs.RUNS),
    netem_runs.settings,
    netem_runs.STORE,
    netem_runs.CAPTURES,
)
TESTBEDS = (LAB, NETEM)


def named(testbed: Testbed, case: Case) -> tuple[str, ...]:
    """Of a prediction in the store."""
    return testbed.name, *key(case)


def settings(testbed: Testbed, case: Case) -> str:
    """Names what is made: the run, and how it is predicted."""
    text = f"{METHOD} {predictions.DRAWS} {testbed.settings(case)}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def predicted(case: Case, captures: Path) -> Row:
    """By the captures of both ends."""
    return {end: predictions.said(capture_of(case, end, captures)) for end in ENDS}


def make(store: Path, jobs: int) -> None:
    """Predicts what is missing. A run whose captures are gone keeps its line."""
    kept = Store(store, NAMES)
    todo = [
        (testbed, case)
        for testbed in TESTBEDS
        for case in testbed.starts
        if kept.runs(named(testbed, case), settings(testbed, case)) is None
        and capture_of(case, ENDS[0], testbed.captures).exists()
    ]
    starts = [case for _, case in todo]
    folders = [testbed.captures for testbed, _ in todo]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for (testbed, case), row in zip(todo, pool.map(predicted, starts, folders), strict=True):
            kept.put(named(testbed, case), settings(testbed, case), [row])
            print(*named(testbed, case), flush=True)
    kept.sort()


def joined(testbed: Testbed, truths: Truths, store: Path) -> list[tuple[stored.Case, Row]]:
    """Predictions beside their truths, as the judge reads them. A start by BBR or NewReno is judged by the other congestion controls
    alone: cures were run under CUBIC."""
    kept = Store(store, NAMES)
    congestion = {cure.congestion for cure in CURES_RUN if cure.congestion}
    found = []
    for case in testbed.starts:
        link, start, run = case
        of_link = truths.get((link.name, run), {})
        rows: Sequence[Row] = kept.runs(named(testbed, case), settings(testbed, case)) or []
        if not rows or start.name not in of_link:
            continue
        by = start.congestion or SENDER
        figures = {name: row["figures"] for name, row in of_link.items()}
        if start is AS_IT_WAS:
            truth = figures
        else:
            truth = {name: figures[name] for name in congestion if name in figures}
            truth[AS_IT_WAS.name] = figures[start.name]
            if AS_IT_WAS.name in figures:
                truth[SENDER] = figures[AS_IT_WAS.name]
        ends = {end: only(rows[0][end], truth) for end in ENDS}
        whole = {case[1].name for case in testbed.cases} | {SENDER}
        part = len(truth.keys() | {SENDER}) < len(whole)
        found.append(((link, by, run), {"truth": truth, "part": part} | ends))
    return found


def only(row: Row, truth: Mapping[str, Any]) -> Row:
    """The prediction of cures that were run."""
    names = (judge.OURS, *judge.BASELINES)
    return {
        name: {cure: value for cure, value in values.items() if cure in truth}
        if name in names
        else values
        for name, values in row.items()
    }


HEAD = """\
# Predicted cures on kernels

How well [`unbloat what-if`](../commands/what-if.md) predicts what a cure does to a transfer of the kernel's own TCP, from a capture of that kernel. Written by
`make what-if-runs`.

*Truth*: uploads of {duration_s} s by Linux over the links of `bench/what_if/links.py`, once as it was (CUBIC), and once with each cure. Congestion controls
are the kernel's. DRWA, the law on ACKs and the gate are unbloat-agent's. AFC is in no kernel.

- *lab*: {lab} of {lab_whole} runs are stored. The link, FQ-CoDel and CAKE are the emulator's. A run during which 1 % of the deliveries were
  more than 3 ms late is not stored, nor one during which the machine paused for 10 ms.
- *netem*: {netem} of {netem_whole} runs, of a quarter of the test half. The link is the kernel's own token bucket, with its own FIFO, FQ-CoDel and CAKE, and netem
  on the way back, in a guest. None of this project's code is in the path, and no modem, so that the gate is not run.

The figures are what packets needed from one capture to the other, over time, read by `unbloat.prediction.pairs`. What waits in the sender's own host, above the gate, is
in no capture.

Runs by {kernels}, {days}. *Predicted* from the captures at both ends of {predicted} of {starts} runs by {by}, with {draws} links per cure.
From a capture by BBR or NewReno only the other congestion controls are judged, since the other cures were run under CUBIC, and no best cure.

The simulator makes the predictions and not the truth here, so that this page judges the whole chain. Two runs of a kernel
differ, too. The other words are those of [what-if.md](what-if.md). The links of the *test* half are for judging alone.

## Goals

"""
# Of the first table of errors, with a cure in place of links, end and sort of prediction.
CURE_TITLES = "| cure | figure | judged | in the interval | error | error, 90 % | width |\n|---|---|---|---|---|---|---|\n"


def page(stores: Sequence[tuple[Testbed, Truths, Runs]]) -> str:
    """The page."""
    every = [
        row for _, truths, _ in stores for of_link in truths.values() for row in of_link.values()
    ]
    counts = {
        testbed.name: sum(len(of_link) for of_link in truths.values())
        for testbed, truths, _ in stores
    }
    of_testbed = {testbed.name: truths for testbed, truths, _ in stores}
    text = HEAD.format(
        duration_s=DURATION_S,
        **counts,
        lab_whole=len(LAB.cases),
        netem_whole=len(NETEM.cases),
        predicted=sum(len(own) for _, _, own in stores),
        starts=sum(len(testbed.starts) for testbed, _, _ in stores),
        kernels=" and ".join(sorted({row["kernel"] for row in every})),
        days=" to ".join(dict.fromkeys(edge(row["date"] for row in every) for edge in (min, max))),
        by=", ".join(cure.congestion or SENDER for cure in STARTS),
        draws=predictions.DRAWS,
    )
    runs = [one for _, _, own in stores for one in own]
    text += judge.goals([(case, row) for case, row in runs if case[0].half == TEST])
    text += by_cure(runs)
    text += beside(
        "The simulator beside the lab",
        "The same scenarios in both: how far the simulator's figure is from the kernel's. It is what an exact fit would be off by.",
        of_simulator(),
        of_testbed[LAB.name],
    )
    text += beside(
        "Netem beside the lab",
        "The same links on both testbeds: how far two kernels are from each other, with other queues.",
        of_testbed[NETEM.name],
        of_testbed[LAB.name],
    )
    groups = [
        (f"{testbed.name}, {name}", of_group)
        for testbed, _, own in stores
        for name, of_group in judge.by_group(own)
        if of_group
    ]
    return text + judge.tables(groups)


def by_cure(runs: Runs) -> str:
    """Errors of each cure on the test half."""
    text = (
        "\n## Cure by cure\n\nThe test half, rivals included, both ends, what is not withheld.\n\n"
    )
    text += CURE_TITLES
    test = judge.at_end([(case, row) for case, row in runs if case[0].half == TEST], judge.passed)
    for cure in CURES_RUN:
        name = cure.name if cure is not AS_IT_WAS else SENDER
        own = [
            (case, {"truth": row["truth"]} | {end: one_cure(row[end], name) for end in ENDS})
            for case, row in test
        ]
        for kind in GOALS:
            text += judge.line((name, kind), list(judged(own, ENDS, kind)), kind)
    return text


def of_simulator() -> Truths:
    """The truths of `predictions.py`: the same scenarios, simulated."""
    return {
        (link.name, run): {name: {"figures": figures} for name, figures in row["truth"].items()}
        for (link, by, run), row in predictions.stored_runs(predictions.STORE)
        if by == SENDER
    }


def beside(title: str, about: str, ours: Truths, theirs: Truths) -> str:
    """How far the figures of one testbed are from those of another, cure by cure."""
    text = (
        f"\n## {title}\n\n{about}\n\n| cure | runs | goodput, median | 90 % | queue, median | 90 % |\n"
        "|---|---|---|---|---|---|\n"
    )
    for cure in CURES_RUN:
        pairs = [
            (ours[at][cure.name]["figures"], rows[cure.name]["figures"])
            for at, rows in theirs.items()
            if cure.name in rows and cure.name in ours.get(at, {})
        ]
        cells = [cure.name, str(len(pairs))]
        for kind, place in ((judge.GOODPUT, 0), (judge.QUEUE, 2)):
            errors = [judge.error((true[place], 0.0, one[place], 0.0), kind) for one, true in pairs]
            parts = (statistics.median, lambda values: judge.quantile(values, 0.9))
            cells += [percent(part(errors)) if errors else "–" for part in parts]
        text += f"| {' | '.join(cells)} |\n"
    return text


def one_cure(row: Row, name: str) -> Row:
    """The prediction of one cure."""
    ours = row.get(judge.OURS, {})
    return {judge.OURS: {name: ours[name]}} if name in ours else {}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of traces")
    parser.add_argument("--runs", type=int, default=1, help="runs of each link and cure")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--stored", action="store_true", help="no runs: predictions and the page alone"
    )
    given = parser.parse_args()
    if not given.stored:
        kernel_runs.make(LAB.store, given.traces, given.runs)
        netem_runs.make(NETEM.store, given.runs)
    make(STORE, given.jobs)
    PAGE.write_text(page(stores(STORE)))


def stores(store: Path) -> list[tuple[Testbed, Truths, Runs]]:
    """What is stored of both testbeds, and what was predicted."""
    return [
        (testbed, truths, joined(testbed, truths, store))
        for testbed in TESTBEDS
        for truths in [testbed.truths()]
    ]


if __name__ == "__main__":
    main()
