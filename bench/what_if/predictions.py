"""How well `unbloat what-if` predicts cures on known links, from the capture at either end: `make what-if`.

signal: the first run of each link of `links.py` under each congestion control · model: the truth of a cure is the same run with
that cure, simulated on the link as it is; beside it two baselines that know less of the link · action: a line of
`docs/generated/what-if.jsonl` per run, and the page: errors, how often the 90 % interval has the truth, how often the best
cure is named, and what was refused

The truth is the simulator's, as the replay is: what is judged is the fit, the check and the intervals, and not whether the simulator is
the kernel (`docs/generated/congestion-control.md` and `docs/generated/front.md` are about that).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench.what_if.findings import ENDS, GENERATED, rounded  # noqa: E402
from bench.what_if.judge import (  # noqa: E402
    ARRIVALS,
    BASELINES,
    CROSS,
    FLOOR_MS,
    OURS,
    Runs,
    by_group,
    goals,
    tables,
)
from bench.what_if.links import (  # noqa: E402
    CONGESTION,
    DURATION_S,
    LINKS,
    STEP_S,
    TEST,
    Link,
    scenario,
)
from bench.what_if.stored import Case, main_of, settings_of, stored_by  # noqa: E402

import unbloat  # noqa: E402
from unbloat.errors import LinkUnknown  # noqa: E402
from unbloat.link.model import LinkFit  # noqa: E402
from unbloat.prediction.cures import AS_IT_WAS, CURES, Cure  # noqa: E402
from unbloat.prediction.draws import MIN_BUFFER_BYTES, Draw, Sort, longest_queue_ms  # noqa: E402
from unbloat.prediction.predict import Predicted, WhatIf, what_if  # noqa: E402
from unbloat.prediction.replay import replayed  # noqa: E402
from unbloat.run.figures import Figures  # noqa: E402

STORE, PAGE = GENERATED / "what-if.jsonl", GENERATED / "what-if.md"
# Raised when runs are made or judged in another way.
METHOD = 11
RUNS = 1
# Fewer than the command's own, for the time that the runs take.
DRAWS = 20
# Of the series of cross traffic (iBox, HotNets 2020).
CROSS_S = 1.0


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
    draw = Draw(rates, fitted.slot_s, fitted.delay_ms, None, buffer_bytes, Sort(sender), 1)
    cures: Sequence[Cure] = (AS_IT_WAS, *(one.cure for one in found.cures))
    outcomes = replayed([(draw, cure) for cure in cures], "up", 1, None)
    return {
        cure.name: [round(one.goodput_bps), rounded(one.queue_ms_p95)]
        for cure, one in zip(cures, outcomes, strict=True)
    }


def rates_of(fitted: LinkFit, name: str) -> list[float]:
    """The mean of what arrived (Pantheon's calibrated emulators), what arrived slot by slot (as users of mahimahi do), or the largest rate of
    a second, less what others took in each second with a queue (iBox)."""
    arrived = fitted.arrived_bps
    if name == ARRIVALS:
        return list(arrived)
    if name == CROSS:
        slots = max(round(CROSS_S / fitted.slot_s), 1)
        spans = [range(at, min(at + slots, len(arrived))) for at in range(0, len(arrived), slots)]
        means = [statistics.mean(arrived[at] for at in span) for span in spans]
        queued = [all(fitted.queued[at] for at in span) for span in spans]
        # Without a queue nothing shows others.
        rates = [mean if full else max(means) for mean, full in zip(means, queued, strict=True)]
        return [rate for rate, span in zip(rates, spans, strict=True) for _ in span]
    return [statistics.mean(arrived)] * len(arrived)


def stored_runs(store: Path) -> list[tuple[Case, dict[str, Any]]]:
    """Runs that are stored."""
    return stored_by(METHOD, store, RUNS)


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

Three baselines know less of the link. A *constant link* has the mean of what arrived, as Pantheon's calibrated emulators have. A *replay of
arrivals* has what arrived slot by slot, as users of mahimahi replay it. *Constant less cross traffic* has the largest rate of a second, less what others
are taken to have sent in each second with a queue, as iBox has it. All have a buffer for the longest queue that was seen, and the same sender.

## Goals

"""


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
    return text + tables(by_group(runs))


if __name__ == "__main__":
    main_of(__doc__, METHOD, measured, page, STORE, PAGE, RUNS)
