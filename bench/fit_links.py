"""Fits the Markov link models: `python3 -m bench.fit_links` reads traces, writes `link/models.txt`.

signal: delivery opportunities (mahimahi) and rates per second (irish5g, norway3g) under
        $UNBLOAT_SHARED/traces
model:  a Markov chain over seconds. Its states are classes of the rate, cut so that no quantile of
        interest lies on an edge; seconds without any delivery are a state of their own. Where the
        trace is finer than a second, each state has ten shares: the mean profile of its seconds'
        tenths in ascending order. The simulator shuffles them in every step
action: the data file that `algo` compiles in, with the figures of trace and model for comparison

`--check` writes nothing and fails if the file differs from what the traces give. Standard library
only. A new model also needs a line in the enum `Model` of `link/chain.rs`; a test compares the two.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from bench.link_traces import Trace, irish5g, mahimahi, norway3g, one_second

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "crates/algo/src/link/models.txt"
# Of the data file.
HEAD = """\
# Markov link models: written by `python3 -m bench.fit_links`, not by hand. chain.rs reads them.
#
# They contain only statistics of the traces: mean rates of classes of seconds, and how often one
# class follows another.
#
# chain   name in scenario files
# about   what it was fitted to
# trace   figures of the trace, whole seconds: number of seconds, mean (bit/s), coefficient of
#         variation, 10 % quantile, median, 90 % quantile (bit/s), correlation after 1 s, after 10 s,
#         coefficient of variation of tenths of a second (-: the trace has none)
# model   the same figures of the chain
# step    milliseconds that a state lasts
# start   probability of each state over a long time, cumulative, in millionths
# state   mean rate (kbit/s); rates of its equal parts in thousandths of the mean; probability of
#         each next state, cumulative, in millionths"""
# Edges between the classes, as shares of the ranks. The 10 %, 50 % and 90 % quantiles lie in the
# middle of a class, so that small changes do not move them far; the last class keeps the peaks.
EDGES = (0.0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 0.99, 1.0)
# Seconds without delivery become a state of their own from this share on: below it, there are too
# few of them for transition counts.
OUTAGE_SHARE = 0.01
MILLION = 1_000_000
# So many that the third digit of the model's figures does not depend on the seed.
SIMULATED_SECONDS = 200_000


@dataclass
class State:
    """One class of seconds: its mean rate, its tenths in ascending order, its next states."""

    kbps: int
    shares: list[int]
    successors: list[int]


@dataclass
class Figures:
    """What is compared between trace and model; rates of whole seconds, bit/s."""

    seconds: int
    mean: float
    cv: float
    p10: float
    p50: float
    p90: float
    lag1: float
    lag10: float
    cv_tenth: float | None


@dataclass
class Model:
    """A fitted or invented chain. `word`: name in scenario files; `step`: in milliseconds."""

    word: str
    about: str
    step: int
    states: list[State]
    start: list[int]
    trace: Figures | None
    figures: Figures


def quantile(ordered: list[float], share: float) -> float:
    """The value below which that share lies."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def deviation_over_mean(values: list[float]) -> float:
    """The coefficient of variation."""
    mean = sum(values) / len(values)
    return float((sum((x - mean) ** 2 for x in values) / len(values)) ** 0.5 / mean)


def autocorrelation(values: list[float], lag: int) -> float:
    """Of the values with those `lag` seconds later."""
    mean = sum(values) / len(values)
    variance = sum((x - mean) ** 2 for x in values) / len(values)
    pairs = zip(values, values[lag:], strict=False)
    return sum((x - mean) * (y - mean) for x, y in pairs) / (len(values) - lag) / variance


def figures(trace: Trace) -> Figures:
    """Of a trace, or of what a model made."""
    seconds = one_second(trace)
    ordered = sorted(seconds)
    tenths = [x for second in trace for x in second]
    return Figures(
        seconds=len(seconds),
        mean=sum(seconds) / len(seconds),
        cv=deviation_over_mean(seconds),
        p10=quantile(ordered, 0.1),
        p50=quantile(ordered, 0.5),
        p90=quantile(ordered, 0.9),
        lag1=autocorrelation(seconds, 1),
        lag10=autocorrelation(seconds, 10),
        cv_tenth=deviation_over_mean(tenths) if len(tenths) > len(seconds) else None,
    )


def classify(seconds: list[float]) -> list[int]:
    """The class of each second, 0 the slowest, none of them empty."""
    order = sorted(range(len(seconds)), key=lambda i: seconds[i])
    zeros = sum(1 for x in seconds if x == 0)
    edges = list(EDGES)
    if 0.05 < zeros / len(seconds) < 0.1:
        # The outages reach into the class of the 10 % quantile: keep it in the middle of the rest.
        edges.insert(2, 0.2 - zeros / len(seconds))
    classes = [0] * len(seconds)
    for rank, i in enumerate(order):
        classes[i] = bisect_right(edges, rank / len(seconds))
    if zeros >= OUTAGE_SHARE * len(seconds):
        for i in order[:zeros]:
            classes[i] = 0
    used = sorted(set(classes))
    return [used.index(c) for c in classes]


def per_million(counts: list[int]) -> list[int]:
    """Cumulative probabilities in millionths; the last one is a million."""
    total, running, result = sum(counts), 0, []
    for count in counts:
        running += count
        result.append(running * MILLION // total)
    return result


def shares(seconds: list[list[float]]) -> list[int]:
    """Mean profile of the seconds' parts in ascending order, in thousandths of the mean."""
    parts = len(seconds[0])
    moving = [sorted(second) for second in seconds if sum(second) > 0]
    if parts == 1 or not moving:
        return []
    profile = [sum(s[k] * parts / sum(s) for s in moving) / len(moving) for k in range(parts)]
    return [round(1_000 * x) for x in profile]


def fit(trace: Trace) -> tuple[list[State], list[int]]:
    """The chain with the trace's classes and transitions; the last second leads to the first."""
    seconds = one_second(trace)
    classes = classify(seconds)
    count = max(classes) + 1
    moves = [[0] * count for _ in range(count)]
    for now, then in zip(classes, classes[1:] + classes[:1], strict=True):
        moves[now][then] += 1
    states = []
    for c in range(count):
        members = [i for i, other in enumerate(classes) if other == c]
        mean = sum(seconds[i] for i in members) / len(members)
        states.append(
            State(round(mean / 1_000), shares([trace[i] for i in members]), per_million(moves[c]))
        )
    return states, per_million([classes.count(c) for c in range(count)])


def simulate(states: list[State], start: list[int], per_second: int) -> Trace:
    """What the chain does, second by second."""
    rng = random.Random(1)
    current = bisect_right(start, rng.random() * MILLION)
    made: Trace = []
    for _ in range(SIMULATED_SECONDS):
        second: list[float] = []
        for _ in range(per_second):
            state = states[current]
            second.extend(state.kbps * share for share in state.shares or [1_000])
            current = bisect_right(state.successors, rng.random() * MILLION)
        made.append(second)
    return made


def fitted(word: str, about: str, trace: Trace) -> Model:
    """A model of a trace."""
    states, start = fit(trace)
    return Model(
        word,
        about,
        1_000,
        states,
        start,
        figures(trace),
        figures(simulate(states, start, 1)),
    )


def wifi_busy() -> Model:
    """Invented: a station among other senders; it gets the whole channel, a share, or nothing."""
    rates = [0, 6_000, 18_000, 36_000, 54_000]
    moves = [
        [40, 35, 15, 5, 5],
        [15, 45, 25, 10, 5],
        [5, 15, 50, 20, 10],
        [3, 7, 20, 50, 20],
        [3, 4, 13, 20, 60],
    ]
    states = [State(rate, [], per_million(row)) for rate, row in zip(rates, moves, strict=True)]
    occupied = [1.0 / len(rates)] * len(rates)
    # The stationary distribution: far more rounds than the chain remembers.
    for _ in range(1_000):
        occupied = [
            sum(occupied[i] * moves[i][j] / 100 for i in range(len(rates)))
            for j in range(len(rates))
        ]
    start = per_million([round(MILLION * share) for share in occupied])
    about = "synthetic, fitted to nothing: a WiFi station whose channel is busy with others"
    return Model(
        "wifi-busy",
        about,
        100,
        states,
        start,
        None,
        figures(simulate(states, start, 10)),
    )


def models(traces: Path) -> list[Model]:
    """All models, in the order of the file."""
    made = []
    for word, files in (
        ("lte-drive", ["ATT-LTE-driving", "ATT-LTE-driving-2016"]),
        ("umts-drive", ["TMobile-UMTS-driving"]),
        ("evdo-drive", ["Verizon-EVDO-driving"]),
    ):
        for suffix, ending, direction in (("", "down", "downlink"), (".up", "up", "uplink")):
            names = [f"{name}.{ending}" for name in files]
            trace = [s for name in names for s in mahimahi(traces / "mahimahi" / f"{name}.gz")]
            about = f"{direction}, fitted to mahimahi's {' and '.join(names)}"
            made.append(fitted(word + suffix, about, trace))
    for word, prefix, mode in (
        ("5g-drive", "Driving", "runs at least half on 5G"),
        ("5g-static", "Static", "all runs"),
    ):
        trace, count = irish5g(traces / "irish5g", prefix)
        about = (
            f"downlink, fitted to {count} {prefix} runs of UCC's 5G set "
            f"({mode}; pauses between downloads cut out)"
        )
        made.append(fitted(word, about, trace))
    trace, count = norway3g(traces / "norway3g", "norway_bus")
    about = f"downlink, fitted to {count} bus rides of the Norway 3G set"
    made.append(fitted("hsdpa-bus", about, trace))
    return [*made, wifi_busy()]


def figures_line(key: str, f: Figures) -> str:
    """The figures as a line of the data file, in the order that its head names."""
    tenth = "-" if f.cv_tenth is None else f"{f.cv_tenth:.3f}"
    return (
        f"{key} {f.seconds} {f.mean:.0f} {f.cv:.3f} {f.p10:.0f} {f.p50:.0f} {f.p90:.0f} "
        f"{f.lag1:.3f} {f.lag10:.3f} {tenth}"
    )


def spaced(numbers: list[int]) -> str:
    """The numbers with blanks between them."""
    return " ".join(map(str, numbers))


def text_of(made: list[Model]) -> str:
    """The whole data file."""
    lines = [HEAD]
    for model in made:
        lines += ["", f"chain {model.word}", f"about {model.about}"]
        if model.trace is not None:
            lines.append(figures_line("trace", model.trace))
        lines.append(figures_line("model", model.figures))
        lines += [f"step {model.step}", f"start {spaced(model.start)}"]
        for state in model.states:
            fields = (str(state.kbps), spaced(state.shares), spaced(state.successors))
            lines.append(f"state {'; '.join(fields)}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes or checks the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="compare with the file instead of writing it"
    )
    arguments = parser.parse_args()
    traces = Path(os.environ.get("UNBLOAT_SHARED", ROOT.parent / "shared")) / "traces"
    if not traces.is_dir():
        print(
            f"{traces} is absent; UNBLOAT_SHARED names the folder that holds traces/",
            file=sys.stderr,
        )
        return 1
    text = text_of(models(traces))
    if not arguments.check:
        OUTPUT.write_text(text, encoding="utf-8")
        print("\n".join(x for x in text.splitlines() if x.startswith(("chain", "trace", "model"))))
        return 0
    if OUTPUT.read_text(encoding="utf-8") != text:
        print(
            f"{OUTPUT} is not what the traces give: run python3 -m bench.fit_links", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
