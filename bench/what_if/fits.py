"""How well `unbloat fit` knows the rate of known links over time, at both ends: `make link-fits`.

signal: the runs of `findings.py` over the links of `links.py` · model: the truth of each second is what the link can deliver
in it, by the scenario; beside rivals that were not found, and only while a queue stood, what arrived of the flow · action: a line of
`docs/generated/link-fits.jsonl` per run, and the page: how often the 90 % interval of a second contains its truth, errors,
widths, and transfers that were refused
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench.what_if.findings import (  # noqa: E402
    ENDS,
    GENERATED,
    percent,
    rounded,
    share,
)
from bench.what_if.links import (  # noqa: E402
    CONGESTION,
    DURATION_S,
    LINKS,
    PACKET_BYTES,
    RUNS,
    STEP_S,
    TEST,
    TUNING,
    Link,
    scenario,
)
from bench.what_if.stored import (  # noqa: E402
    Case,
    first_connection,
    main_of,
    settings_of,
    stored_by,
)

import unbloat  # noqa: E402
from unbloat.errors import LinkUnknown  # noqa: E402
from unbloat.link.fit import DRAWS, fit  # noqa: E402
from unbloat.link.model import LinkFit  # noqa: E402
from unbloat.phones.upload import SIMULATED_EPOCH_NS  # noqa: E402

STORE, PAGE = GENERATED / "link-fits.jsonl", GENERATED / "link-fits.md"
# Raised when runs are made or judged in another way.
METHOD = 9
WINDOW_S = 1.0
# Part of the slots of a second with a queue: then the rate was seen in it.
QUEUED = 0.9
SEEN, HIDDEN = "queue", "no queue"

Judged = tuple[float, float, float, float, float]
"""Truth, 5 % quantile, median, 95 % quantile, and what arrived, bit/s."""
Bits = Callable[[float], float]
"""Bits until a time, s since the begin of the run."""


def settings(case: Case) -> str:
    """Names what is made."""
    return settings_of(METHOD, case)


def measured(case: Case, traces: Path) -> dict[str, Any]:
    """How the fit of each end's capture compares with the link."""
    link, by, run = case
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "link.toml"
        text = scenario(link, by, run, traces, folder)
        path.write_text(text)
        unbloat.simulate(path, pcap=folder)
        captures = {end: next(folder.rglob(f"{end}.pcapng")) for end in ENDS}
        whole = capacity(link, folder, way_s(text))
        own = arrived(captures["server"].read_bytes()) if link.rivals else whole
        return {end: compared(captures[end], whole, own) for end in ENDS}


def compared(capture: Path, whole: Bits, own: Bits) -> dict[str, Any]:
    """By kind of second: how many, in how many the truth lies in the interval, errors and widths; of all in one, too. `whole`: what
    the link can deliver; `own`: without what rivals took, where there are some."""
    try:
        fitted = fit(capture, connection="0→")
    except LinkUnknown:
        return {"refused": True}
    sharing = fitted.sharing
    found: dict[str, Any] = {"shared": sharing.found, "pauses": sharing.pauses}
    found["filled"] = rounded(sharing.filled)
    known = whole is own or sharing.found
    bits = whole if known else own
    for kind, judged in seconds(fitted, bits).items():
        if judged and (kind == SEEN or known):
            found[kind] = summary(judged)
    if known:
        begin_s = fitted.start_s - SIMULATED_EPOCH_NS / 1e9
        true_bps = (bits(begin_s + fitted.duration_s) - bits(begin_s)) / fitted.duration_s
        arrived_bps = statistics.mean(fitted.arrived_bps)
        found["all"] = summary([(true_bps, *fitted.mean_bps, arrived_bps)])
    return found


def seconds(fitted: LinkFit, bits: Bits) -> dict[str, list[Judged]]:
    """The true rate of each second, its interval, and what arrived, with a queue and without."""
    begin_s = fitted.start_s - SIMULATED_EPOCH_NS / 1e9
    slots = max(round(WINDOW_S / fitted.slot_s), 1)
    found: dict[str, list[Judged]] = {SEEN: [], HIDDEN: []}
    for at in range(0, len(fitted.seen_bps) - slots + 1, slots):
        from_s = begin_s + at * fitted.slot_s
        true_bps = (bits(from_s + slots * fitted.slot_s) - bits(from_s)) / (slots * fitted.slot_s)
        queued = sum(fitted.queued[at : at + slots]) / slots
        kind = SEEN if queued >= QUEUED else HIDDEN
        arrived_bps = statistics.mean(fitted.arrived_bps[at : at + slots])
        found[kind].append((true_bps, *fitted.over(at, at + slots), arrived_bps))
    return found


def summary(judged: Sequence[Judged]) -> dict[str, Any]:
    """Of truths and intervals. Errors and widths are relative, of rates above those at which a link stands still."""
    moving = [row for row in judged if row[0] >= PACKET_BYTES * 8 / WINDOW_S]
    errors = sorted(abs(math.log(middle / true)) for true, _, middle, *_ in moving)
    widths = [(high - low) / middle for _, low, middle, high, _ in moving]
    # A replay of arrivals takes them for the rate.
    of_arrivals = [abs(arrived - true) / true for true, *_, arrived in moving]
    return {
        "count": len(judged),
        "inside": sum(low <= true <= high for true, low, _, high, _ in judged),
        "error": rounded(statistics.median(errors)) if errors else None,
        "error_p90": rounded(errors[math.ceil(0.9 * len(errors)) - 1]) if errors else None,
        "width": rounded(statistics.median(widths)) if widths else None,
        "arrivals": rounded(statistics.median(of_arrivals)) if widths else None,
    }


def way_s(text: str) -> float:
    """From the link to the receiver, by the scenario."""
    # Both directions have the same.
    return float(re.findall(r'delay = "(\d+) us"', text)[0]) / 1e6


def capacity(link: Link, folder: Path, way_s: float) -> Bits:
    """What can arrive at the receiver: what the link can deliver, `way_s` later."""
    if link.trace:
        times_s = [int(line) / 1000 + way_s for line in (folder / "link.trace").read_text().split()]
        return lambda at_s: bisect.bisect_left(times_s, at_s) * PACKET_BYTES * 8.0
    later_mbps = link.then_mbps or link.rate_mbps
    step_s = STEP_S + way_s
    return lambda at_s: (
        1e6 * (link.rate_mbps * min(at_s, step_s) + later_mbps * max(at_s - step_s, 0.0))
    )


def arrived(raw: bytes) -> Bits:
    """What arrived at the server of the first connection."""
    packets = list(first_connection(raw))
    times_s = [ns / 1e9 for ns, _ in packets]
    sums = [0, *itertools.accumulate(wire_bytes for _, wire_bytes in packets)]
    return lambda at_s: sums[bisect.bisect_left(times_s, at_s)] * 8.0


def stored_runs(store: Path) -> list[tuple[Case, dict[str, Any]]]:
    """Runs that are stored."""
    return stored_by(METHOD, store)


HEAD = """\
# Fits of known links

How well [`unbloat fit`](../commands/fit.md) knows the rate of a link over time. Written by `make link-fits`.

{count} uploads of {duration_s} s were simulated over {links} links (`bench/what_if/links.py`), by {by}, {runs} runs each with
another RTT and another part of a trace. The link was fitted from the captures at both ends, with {draws} draws. The links of the
*test* half are for judging alone: the halves were written down before the first figure.

*Truth*: what can arrive at the receiver in a second: what the link can deliver by the scenario, a way's delay later. Beside a rival that was not found it is what arrived of the flow, and only seconds
with a queue count. *Queue*: seconds in which nine tenths of the slots had a queue, so that the rate was seen; in the others only a
lower bound was. *All*: the mean rate over the whole transfer. *In the interval*: how often the 90 % interval has the truth, with
the 95 % interval of that share; seconds of one run are not independent. *Error* and *width* are relative, medians over runs of
each run's median (*error, 90 %*: of each run's nine tenths). *Error of arrivals*, for comparison: that of what arrived, which a
replay of a capture takes for the rate of the link.

| seconds | capture at | half | runs | refused | in the interval | error | error, 90 % | width | error of arrivals |
|---|---|---|---|---|---|---|---|---|---|
"""


def table(runs: Sequence[tuple[Case, dict[str, Any]]]) -> str:
    """Rows by kind, half and end."""
    text = ""
    for kind in (SEEN, HIDDEN, "all"):
        for half in (TUNING, TEST):
            for end in ENDS:
                rows = [row[end] for case, row in runs if case[0].half == half]
                text += line((kind, end, half), rows, kind)
    return text


def line(names: Sequence[str], rows: Sequence[dict[str, Any]], kind: str) -> str:
    """One row of a table."""
    judged = [row[kind] for row in rows if kind in row]
    refused = sum("refused" in row for row in rows)
    count, inside = (sum(one[name] for one in judged) for name in ("count", "inside"))

    def middle(name: str) -> str:
        values = [one[name] for one in judged if one[name] is not None]
        return percent(statistics.median(values)) if values else "–"

    cells = [*names, str(len(rows)), str(refused), f"{inside} of {count}{share(inside, count)}"]
    cells += [middle(name) for name in ("error", "error_p90", "width", "arrivals")]
    return f"| {' | '.join(cells)} |\n"


def others(runs: Sequence[tuple[Case, dict[str, Any]]]) -> str:
    """How often others in the queue were found, where there were some and where there were none."""
    text = "| half | links | transfers, both ends | others found | part of a pause that is seen, with five pauses: least | largest |\n|---|---|---|---|---|---|\n"
    for half in (TUNING, TEST):
        for name, rivals in (("with a rival", True), ("without", False)):
            rows = [
                row[end]
                for case, row in runs
                for end in ENDS
                if case[0].half == half
                and bool(case[0].rivals) == rivals
                and "refused" not in row[end]
            ]
            filled = [row["filled"] for row in rows if row["pauses"] >= 5]
            cells = [half, name, str(len(rows)), str(sum(row["shared"] for row in rows))]
            cells += [f"{edge(filled):.2f}" if filled else "–" for edge in (min, max)]
            text += f"| {' | '.join(cells)} |\n"
    return text


def page(runs: Sequence[tuple[Case, dict[str, Any]]]) -> str:
    """The page."""
    text = HEAD.format(
        count=len(runs),
        duration_s=DURATION_S,
        links=len(LINKS),
        by=", ".join(CONGESTION),
        runs=RUNS,
        draws=DRAWS,
    )
    text += table(runs)
    text += "\n## Others in the queue\n\nWhether pauses of the sender, while a queue stood, were seen at the receiver. A rival is in the capture.\n\n"
    text += others(runs)
    text += "\n## Link by link\n\nSeconds with a queue and without one, both ends.\n\n"
    text += "| link | congestion | seconds | runs | refused | in the interval | error | error, 90 % | width | error of arrivals |\n"
    text += "|---|---|---|---|---|---|---|---|---|---|\n"
    for link in LINKS:
        for by in CONGESTION:
            rows = [row[end] for case, row in runs if case[:2] == (link, by) for end in ENDS]
            for kind in (SEEN, HIDDEN):
                if any(kind in row for row in rows) or kind == SEEN:
                    text += line((link.name, by, kind), rows, kind)
    return text


if __name__ == "__main__":
    main_of(__doc__, METHOD, measured, page, STORE, PAGE)
