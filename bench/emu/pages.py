"""The section of `bench/RESULTS.md`: tables from the outcomes, medians with their ranges."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from bench.emu.cases import Case, Outcome

TITLE = "## Emulator"
Results = dict[tuple[Case, str], list[Outcome]]
# Errors of the one-way delay in µs at which the histogram's rows end.
EDGES = (10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000, 2000, 5000, 20000)
OWN, FLOOR = "unbloat-emu", "floor"


def values(outcomes: Iterable[Outcome], figure: str) -> list[float]:
    """A figure in all rounds that have it."""
    found = [o.figures[figure] for o in outcomes if figure in o.figures]
    return [value for value in found if not math.isnan(value)]


def middle(outcomes: Iterable[Outcome], figure: str) -> float:
    """Its median."""
    several = values(outcomes, figure)
    return statistics.median(several) if several else math.nan


def spread(outcomes: Sequence[Outcome], figure: str, form: str = ",.0f", scale: float = 1.0) -> str:
    """Median and range."""
    several = [value * scale for value in values(outcomes, figure)]
    if not several:
        return "failed" if values(outcomes, "failed") else ""
    text = format(statistics.median(several), form)
    if len(several) > 1:
        text += f" [{min(several):{form}}–{max(several):{form}}]"
    return text


def of(results: Results, group: str) -> list[tuple[Case, dict[str, list[Outcome]]]]:
    """The cases of a group, in their order, with what each path gave."""
    found: dict[Case, dict[str, list[Outcome]]] = {}
    for (case, path), outcomes in results.items():
        if case.group == group:
            found.setdefault(case, {})[path] = outcomes
    return list(found.items())


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; empty without rows."""
    body = ["| " + " | ".join(row) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body, ""] if body else []


def yes(held: bool) -> str:
    return "yes" if held else "no"


def rate_table(results: Results) -> list[str]:
    rows = []
    for case, by_path in of(results, "rate"):
        for path, outcomes in by_path.items():
            worst = max((abs(v) for v in values(outcomes, "error_pct")), default=math.nan)
            row = [
                case.label,
                path,
                spread(outcomes, "rate_bps", ",.3f", 1e-6),
                spread(outcomes, "error_pct", "+.3f"),
            ]
            row += [spread(outcomes, "received"), spread(outcomes, "cpu", ".0%"), yes(worst <= 0.5)]
            rows.append(row)
    head = ("set", "path", "delivered Mbit/s", "error %", "packets", "CPU", "within 0.5 %")
    return grid(head, rows)


def delay_table(results: Results) -> list[str]:
    rows, drawn = [], []
    for case, by_path in of(results, "delay"):
        for path, outcomes in by_path.items():
            figures = [
                spread(outcomes, name, ".3f")
                for name in ("mean", "sd", "p50", "p99", "p999", "max")
            ]
            held = yes(middle(outcomes, "p99") < 0.3) if path == OWN else ""
            figures.append(spread(outcomes, "own late p99", ".3f"))
            rows.append([case.label, path, *figures, spread(outcomes, "cpu", ".0%"), held])
        drawn += histogram(by_path)
    head = (
        "case",
        "path",
        "mean ms",
        "sd",
        "p50",
        "p99",
        "p99.9",
        "max",
        "late p99 by its log",
        "CPU",
        "p99 below 0.3 ms",
    )
    return grid(head, rows) + drawn


def histogram(by_path: dict[str, list[Outcome]]) -> list[str]:
    """How the error of the one-way delay is distributed, all rounds together; a mark is two per cent."""
    shares = {path: binned(outcomes) for path, outcomes in by_path.items()}
    lines = ["```", "error of the one-way delay, share of the packets of all rounds", ""]
    lines.append(f"{'below ms':>9}" + "".join(f"  {path[:26]:<26}" for path in shares))
    for i in range(len(EDGES) + 1):
        edge = f"{EDGES[i] / 1000:g}" if i < len(EDGES) else "more"
        parts = (
            f"  {share[i]:7.3%} {'#' * round(share[i] * 50):<18.18}" for share in shares.values()
        )
        lines.append(f"{edge:>9}" + "".join(parts).rstrip())
    return [*lines, "```", ""]


def binned(outcomes: Iterable[Outcome]) -> list[float]:
    """Shares of the packets between the edges."""
    counts = [0] * (len(EDGES) + 1)
    for outcome in outcomes:
        for us, n in outcome.histogram_us or []:
            counts[sum(us >= edge for edge in EDGES)] += n
    total = sum(counts) or 1
    return [n / total for n in counts]


def tcp_table(results: Results, group: str = "tcp") -> list[str]:
    rows = []
    for case, by_path in of(results, group):
        if not case.label.startswith(("cubic", "bbr", "TCP")):
            continue
        floors = [
            middle(outcomes, "goodput_bps")
            for path, outcomes in by_path.items()
            if path.startswith(FLOOR)
        ]
        floor = max((figure for figure in floors if not math.isnan(figure)), default=math.nan)
        for path, outcomes in by_path.items():
            own = middle(outcomes, "goodput_bps")
            ratio = "" if path.startswith(FLOOR) or math.isnan(floor) else f"{own / floor:.2f}"
            row = [case.label, path, spread(outcomes, "goodput_bps", ",.0f", 1e-6), ratio]
            row += [spread(outcomes, "retransmits"), spread(outcomes, "cpu", ".0%")]
            row += [spread(outcomes, "named"), spread(outcomes, "kernel")]
            rows.append(row)
    head = (
        "case",
        "path",
        "goodput Mbit/s",
        "× the faster floor",
        "retransmits",
        "CPU",
        "lost by its log",
        "lost by the kernel",
    )
    return grid(head, rows)


def ladder_table(results: Results) -> list[str]:
    rows = []
    for case, by_path in of(results, "ladder"):
        for path, outcomes in by_path.items():
            row = [
                case.label,
                path,
                spread(outcomes, "lost_pct", ".3f"),
                spread(outcomes, "kernel"),
            ]
            row += [spread(outcomes, name) for name in ("named", "unnamed")]
            rows.append([*row, spread(outcomes, "p99", ".2f"), spread(outcomes, "cpu", ".0%")])
    head = (
        "offered",
        "path",
        "lost %",
        "by the kernel",
        "by its log",
        "unnamed",
        "delay p99 ms",
        "CPU",
    )
    return grid(head, rows)


def loss_free(results: Results) -> list[str]:
    """Up to which step each path lost nothing in half of the rounds."""
    best: dict[str, str] = {}
    broken: set[str] = set()
    for case, by_path in of(results, "ladder"):
        for path, outcomes in by_path.items():
            if middle(outcomes, "lost_pct") == 0 and path not in broken:
                best[path] = case.label
            else:
                broken.add(path)
                best.setdefault(path, "no step")
    return (
        [f"Free of loss (median) up to: {'; '.join(f'{r} {s}' for r, s in best.items())}.", ""]
        if best
        else []
    )


def trace_table(results: Results, group: str) -> list[str]:
    rows = []
    for case, by_path in of(results, group):
        for path, outcomes in by_path.items():
            if not values(outcomes, "total") and not values(outcomes, "failed"):
                continue
            row = [
                case.label,
                path,
                spread(outcomes, "offered_bps", ",.2f", 1e-6),
                spread(outcomes, "total", ".4f"),
            ]
            row += [spread(outcomes, "nrms10", ".4f"), spread(outcomes, "nrms100", ".4f")]
            row += [spread(outcomes, name) for name in ("named", "kernel", "unnamed")]
            rows.append([*row, spread(outcomes, "cpu", ".0%")])
    head = ("trace", "path", "offered Mbit/s", "delivered / offered", "nrms 10 ms", "100 ms", "lost by its log",
            "by the kernel", "unnamed", "CPU")  # fmt: skip
    return grid(head, rows)


def crowd_table(results: Results) -> list[str]:
    rows = []
    for case, by_path in of(results, "crowd"):
        for outcomes in by_path.values():
            row = [
                case.label,
                spread(outcomes, "rate_bps", ",.2f", 1e-6),
                spread(outcomes, "jain", ".5f"),
            ]
            row += [
                spread(outcomes, "least", ".3f"),
                spread(outcomes, "most", ".3f"),
                spread(outcomes, "cpu", ".0%"),
            ]
            row += [spread(outcomes, "rss_before", ".0f"), spread(outcomes, "rss", ".0f")]
            rows.append(
                [*row, *(spread(outcomes, name) for name in ("named", "kernel", "unnamed"))]
            )
    head = ("case", "delivered Mbit/s", "Jain's index", "least / mean", "most / mean", "CPU", "RSS MB before", "after",
            "lost by its log", "by the kernel", "unnamed")  # fmt: skip
    return grid(head, rows)


def memory_table(results: Results) -> list[str]:
    rows = []
    for case, by_path in of(results, "memory"):
        for outcomes in by_path.values():
            grown = middle(outcomes, "rss") - middle(outcomes, "rss_before")
            times = grown / (case.setting.buffer_bytes / 1e6)
            row = [
                case.label,
                spread(outcomes, "offered", ".0f"),
                spread(outcomes, "rss_before", ".0f"),
            ]
            rows.append([*row, spread(outcomes, "rss", ".0f"), f"{times:.2f}"])
    head = ("buffer", "MB offered", "RSS MB empty", "full", "growth / buffer")
    return grid(head, rows)


def books(results: Results) -> list[str]:
    """Where packets were lost, by name, over all runs of each path."""
    kernel: dict[str, Counter[str]] = {}
    unnamed: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for (case, path), outcomes in results.items():
        for outcome in outcomes:
            runs[path] += 1
            for figure, n in outcome.figures.items():
                if figure.startswith("kernel: ") and n:
                    kernel.setdefault(path, Counter())[figure.removeprefix("kernel: ")] += int(n)
            if case.group != "memory":
                unnamed[path] += int(abs(outcome.figures.get("unnamed", 0)))
    rows = []
    for path, n in runs.items():
        lost = ", ".join(f"{name} {count:,}" for name, count in kernel.get(path, Counter()).items())
        rows.append([path, f"{n}", lost or "none", f"{unnamed[path]:,}"])
    return grid(
        ("path", "runs", "lost by the kernel, all runs", "UDP packets lost, cause unknown"), rows
    )


def others(results: Results) -> list[str]:
    """How quiet the machine was."""
    shares = [value for outcomes in results.values() for value in values(outcomes, "busy")]
    if not shares:
        return []
    many = sum(share > 0.25 for share in shares)
    text = f"What others used of the processors just before or after each run: median {statistics.median(shares):.0%}, "
    return [
        f"{text}{min(shares):.0%}–{max(shares):.0%};",
        f"more than a quarter around {many} of {len(shares)} runs.",
        "",
    ]


def part(lines: Sequence[str], text: Sequence[str]) -> list[str]:
    """A table with the words above it; nothing where there is no table."""
    return [*text, "", *lines] if lines else []


def section(results: Results, where: str) -> list[str]:
    """All of it."""
    tables: list[tuple[Callable[[], list[str]], list[str]]] = [
        (lambda: rate_table(results), RATE_TEXT),
        (lambda: delay_table(results), DELAY_TEXT),
        (lambda: tcp_table(results), TCP_TEXT),
        (lambda: ladder_table(results) + loss_free(results), LADDER_TEXT),
        (lambda: trace_table(results, "gigabit") + tcp_table(results, "gigabit"), GIGABIT_TEXT),
        (lambda: trace_table(results, "traces"), TRACES_TEXT),
        (lambda: crowd_table(results), CROWD_TEXT),
        (lambda: memory_table(results), MEMORY_TEXT),
        (lambda: books(results), BOOKS_TEXT),
    ]
    lines = [f"Made by `python3 bench/emu/run.py`; {where}", "Median [range]. The floor is `bench/emu/floor.c`, a minimal", "forwarder between two TUN devices; compare only within this run.", ""]  # fmt: skip
    lines += others(results)
    for table, text in tables:
        lines += part(table(), text)
    return lines


RATE_TEXT = [
    "Delivered rate, a UDP sender at twice the rate set (1 Gbit/s: 15 % above): IP bytes after the first packet over the time",
    "from the first to the last arrival, as the kernel stamps them.",
]
DELAY_TEXT = ["One-way delay beyond the 20 ms set, 200-byte packets:"]
TCP_TEXT = ["One TCP connection (iperf3), windows large enough for the path:"]
LADDER_TEXT = ["UDP, packets of 1,500 bytes through 20 ms:"]
GIGABIT_TEXT = [
    "A trace of 83 opportunities per millisecond (996 Mbit/s; at most 961 Mbit/s of TCP payload), drop-tail of 5 MB; the",
    "floor shapes to the same rate:",
]
TRACES_TEXT = [
    "mahimahi's recorded traces, 96 Mbit/s offered, drop-tail of 200 ms; the first second does not count:"
]
CROWD_TEXT = ["Many queues at once, 144 Mbit/s offered in turn to 64 receivers:"]
MEMORY_TEXT = ["Memory with a full buffer in front of a link of 100 kbit/s:"]
BOOKS_TEXT = [
    "Where packets were lost. Unnamed: sent, less received, less what the emulator's log names, less what the counters of",
    "devices, sockets and input queues name.",
]
