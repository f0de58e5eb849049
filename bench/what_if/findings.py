"""What `bottleneck-rate` and `buffer-size` say about links that are known, at both ends: `make link-findings`.

signal: runs of the simulator over the links of `links.py`, by three congestion controls · model: the true rate is what the
link can deliver in bins of 100 ms with a queue, by the simulator's log; the true size is the scenario's · action: a line of
`docs/generated/link-findings.jsonl` per run, and the page: coverage of the intervals, errors, widths, and findings that were
withheld. No analysis is in the truth
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

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

GENERATED = HERE.parents[1] / "docs" / "generated"
STORE, PAGE = GENERATED / "link-findings.jsonl", GENERATED / "link-findings.md"
# Raised when runs are made or judged in another way.
METHOD = 5
ENDS = ("client", "server")
RATE, SIZE = "bottleneck-rate", "buffer-size"
BIN_NS = 100_000_000
# A second.
MIN_BINS = 10
# The finding is about queues that held packets up for so long: shorter ones it does not count.
MIN_WAIT_MS = 8.0
# Values of a finding that are kept, with so many digits.
KEPT = {
    RATE: ("bottleneck_bps", "bottleneck_bps_low", "bottleneck_bps_high"),
    SIZE: ("buffer_bytes", "buffer_bytes_low", "buffer_bytes_high", "limit"),
}
DIGITS = 6


def settings(case: Case) -> str:
    """Names what is made."""
    return settings_of(METHOD, case)


def measured(case: Case, traces: Path) -> dict[str, Any]:
    """The truth of a run, and what each end's capture says."""
    link, by, run = case
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "link.toml"
        path.write_text(scenario(link, by, run, traces, folder))
        made = unbloat.simulate(path, pcap=folder)
        assert isinstance(made, unbloat.Run)  # the scenario has no sweep
        captures = {end: next(folder.rglob(f"{end}.pcapng")) for end in ENDS}
        rate = true_rate(link, folder, made.queues.to_pylist(), captures["server"].read_bytes())
        row: dict[str, Any] = {"rate_bps": rate and rounded(rate)}
        for end in ENDS:
            row[end] = said(unbloat.analyze(captures[end]))
    return row


def true_rate(
    link: Link, folder: Path, queues: Sequence[dict[str, Any]], raw: bytes
) -> float | None:
    """Bits per second of the link in bins with a queue at both ends that held packets up for `MIN_WAIT_MS` in the mean; None for
    less than a second of them. Beside rivals it is what arrived of the flow."""
    # The log has what stands at the end of each bin: here the mean wait of those with a queue then.
    waits_ms = {
        round(row["t_s"] * 1e9) // BIN_NS: row["delay_ms"] or 0.0
        for row in queues
        if row["link"] == "up" and row["bytes"]
    }
    busy = [at for at, ms in waits_ms.items() if ms >= MIN_WAIT_MS and at - 1 in waits_ms]
    if len(busy) < MIN_BINS:
        return None
    known = arrivals(raw) if link.rivals else capacity(link, folder)
    return sum(known[at] for at in busy) / (len(busy) * BIN_NS / 1e9)


def capacity(link: Link, folder: Path) -> dict[int, float]:
    """Bits that the link can deliver in each bin."""
    bin_ms = BIN_NS // 1_000_000
    if link.trace:
        lines = (folder / "link.trace").read_text().split()
        packets_of = Counter(int(line) // bin_ms for line in lines)
        return {
            at: packets_of[at] * PACKET_BYTES * 8.0 for at in range(DURATION_S * 1000 // bin_ms)
        }
    rates = {
        at: link.then_mbps if link.then_mbps and at * bin_ms >= STEP_S * 1000 else link.rate_mbps
        for at in range(DURATION_S * 1000 // bin_ms)
    }
    return {at: mbps * 1e6 * BIN_NS / 1e9 for at, mbps in rates.items()}


def arrivals(raw: bytes) -> Counter[int]:
    """Bits of the first connection that arrived at the server in each bin."""
    found: Counter[int] = Counter()
    for ns, wire_bytes in first_connection(raw):
        found[ns // BIN_NS] += wire_bytes * 8
    return found


def said(analysis: Any) -> dict[str, Any]:
    """The values of both findings about the upload, which is the first connection."""
    flows = {row["id"]: row["connection"] for row in analysis.flows.to_pylist()}
    found: dict[str, Any] = {}
    for row in analysis.findings.to_pylist():
        if row["rule"] in KEPT and flows[row["flow"]] == 0:
            values = json.loads(row["values"])
            found[row["rule"]] = {
                name: rounded(values[name]) for name in KEPT[row["rule"]] if name in values
            }
    return found


def rounded(value: Any) -> Any:
    """A number with `DIGITS` digits."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def stored_runs(store: Path) -> list[tuple[Case, dict[str, Any]]]:
    """Runs that are stored."""
    return stored_by(METHOD, store)


class Judged:
    """One finding at one end over some runs."""

    def __init__(self) -> None:
        self.runs = self.withheld = self.valued = self.inside = 0
        self.bounds = self.wrong_bounds = 0
        self.ratios: list[float] = []
        self.widths: list[float] = []

    def add(self, true: float, low: float, value: float | None, high: float | None) -> bool:
        """A finding; whether it is right. Without a value it is a lower bound."""
        if value is None or high is None:
            self.bounds += 1
            self.wrong_bounds += low > true
            return low <= true
        self.valued += 1
        if math.isfinite(true):
            self.ratios.append(value / true)
            self.widths.append((high - low) / value)
        right = low <= true <= high
        self.inside += right
        return right

    def cells(self) -> list[str]:
        """Of the table."""
        errors = sorted(abs(math.log(ratio)) for ratio in self.ratios)
        return [
            str(self.runs),
            str(self.withheld),
            f"{self.inside} of {self.valued}{share(self.inside, self.valued)}",
            percent(statistics.median(errors)) if errors else "–",
            percent(errors[math.ceil(0.9 * len(errors)) - 1]) if errors else "–",
            percent(statistics.median(self.widths)) if errors else "–",
            f"{self.wrong_bounds} of {self.bounds}" if self.bounds else "–",
        ]


def share(part: int, whole: int) -> str:
    """With the 95 % interval of Wilson, in per cent."""
    if not whole:
        return ""
    z2 = 1.96**2
    centre = (part + z2 / 2) / (whole + z2)
    half = math.sqrt(z2) * math.sqrt(part * (whole - part) / whole + z2 / 4) / (whole + z2)
    return f" = {100 * part / whole:.0f} % ({100 * (centre - half):.0f} to {100 * (centre + half):.0f})"


def percent(value: float) -> str:
    """A share."""
    return f"{100 * value:.1f} %"


def outcomes(
    runs: Sequence[tuple[Case, dict[str, Any]]],
) -> Iterator[tuple[str, str, Case, float | None, dict[str, Any] | None]]:
    """Rule, end, run, truth and what was said, of all."""
    for case, row in runs:
        link = case[0]
        # FQ-CoDel drops at any queue. Bytes beside a rival are those of the flow, and not known.
        size = 1000.0 * link.buffer_kb or math.inf
        for end in ENDS:
            yield RATE, end, case, row["rate_bps"], row[end].get(RATE)
            yield SIZE, end, case, None if link.rivals else size, row[end].get(SIZE)


def judged(
    runs: Sequence[tuple[Case, dict[str, Any]]],
) -> tuple[dict[tuple[str, str, str], Judged], list[str]]:
    """By rule, end and half, and a line for each finding that is not right."""
    found: dict[tuple[str, str, str], Judged] = {}
    wrong = []
    for rule, end, (link, by, run), true, values in outcomes(runs):
        one = found.setdefault((rule, end, link.half), Judged())
        if true is None:
            continue
        one.runs += 1
        if values is None:
            one.withheld += 1
            continue
        stem = KEPT[rule][0]
        low: float = values[f"{stem}_low"]
        value, high = values.get(stem), values.get(f"{stem}_high")
        if not one.add(true, low, value, high):
            said_text = f"{value:.5g}" if value is not None else "more"
            high_text = f"{high:.5g}" if high is not None else "…"
            wrong.append(
                f"| {rule} | {link.name} | {by} | {run} | {end} | {true:.5g} | {said_text} | {low:.5g} to {high_text} |"
            )
    return found, wrong


HEAD = """\
# Findings about known links

What the findings [bottleneck-rate](../findings/bottleneck-rate.md) and [buffer-size](../findings/buffer-size.md) say about links
whose rate and buffer are known. Written by `make link-findings`.

{count} uploads of {duration_s} s were simulated over {links} links (`bench/what_if/links.py`), by {by}, {runs} runs each with
another RTT and another part of a trace. Captures at both ends were analysed. The links of the *test* half are for judging
alone. The halves were written down before the first figure.

*True rate*: what the link can deliver in bins of 100 ms with a queue at both ends that held packets up for {least_ms:g} ms in the mean,
by the log of the simulator. Shorter queues are not what the finding is about: BBR has those at one rate of a link that changes,
and longer ones at the other. Beside a rival the rate is what arrived of the flow. *True size*: that of the scenario. FQ-CoDel has none, and a size is wrong there. Beside a rival it is not judged, nor is a rate
where a queue stood for less than a second. *Withheld*: runs without the finding.
*In the interval*: findings whose 90 % interval contains the truth, with the 95 % interval of that share. *Error* and *width* are
relative, medians but for *error, 90 %*. *Wrong bounds*: lower bounds above the true size.

| finding | capture at | half | runs | withheld | in the interval | error | error, 90 % | width | wrong bounds |
|---|---|---|---|---|---|---|---|---|---|
"""


def page(runs: Sequence[tuple[Case, dict[str, Any]]]) -> str:
    """The page."""
    text = HEAD.format(
        count=len(runs),
        duration_s=DURATION_S,
        links=len(LINKS),
        by=", ".join(CONGESTION),
        runs=RUNS,
        least_ms=MIN_WAIT_MS,
    )
    found, wrong = judged(runs)
    for rule in (RATE, SIZE):
        for half in (TUNING, TEST):
            for end in ENDS:
                cells = found.get((rule, end, half), Judged()).cells()
                text += f"| {rule} | {end} | {half} | {' | '.join(cells)} |\n"
    text += "\n## Findings that are not right\n\n"
    text += "| finding | link | congestion | run | capture at | truth | value | interval |\n|---|---|---|---|---|---|---|---|\n"
    return text + "\n".join(wrong) + "\n"


if __name__ == "__main__":
    main_of(__doc__, METHOD, measured, page, STORE, PAGE)
