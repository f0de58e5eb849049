"""Fits the Markov link models: `python3 -m bench.fit_links` reads the traces and writes `link/models.rs`.

signal: delivery opportunities (mahimahi) and rates per second (irish5g, norway3g) under $UNBLOAT_SHARED/traces
model:  a Markov chain over seconds; its states are classes of the rate, cut where no quantile of interest lies on an
        edge, and seconds without any delivery a state of their own; where the trace is finer than a second, each
        state has ten shares, the mean profile of its seconds' tenths in ascending order, dealt in random order
action: the table that `algo` compiles, with the figures of trace and model beside each other

`--check` writes nothing and fails where the file is not what the traces give. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from bench.link_traces import Trace, irish5g, mahimahi, norway3g, one_second

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "crates/algo/src/link/models.rs"
# Classes by rank. The 10 %, 50 % and 90 % quantiles lie in the middle of a class, so that the model's quantiles do
# not jump with the luck of the draw; the last one keeps the peaks.
EDGES = (0.0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 0.99, 1.0)
# Seconds without delivery become a state of their own from this share on: below, there are too few to count.
OUTAGE_SHARE = 0.01
MILLION = 1_000_000
# Long enough that the third digit of the model's figures does not depend on the seed.
SIMULATED_SECONDS = 200_000


@dataclass
class State:
    """One class of seconds: its mean rate, its tenths in ascending order, and where it goes."""

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
    """A fitted or invented chain; `step` in milliseconds."""

    word: str
    variant: str
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
        # so many outages that they reach into the class of the 10 % quantile: it is kept in the middle of the rest
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
    """The chain that has the trace's classes and transitions; the end is taken to lead back to the beginning."""
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
    dice = random.Random(1)
    current = bisect_right(start, dice.random() * MILLION)
    made: Trace = []
    for _ in range(SIMULATED_SECONDS):
        second: list[float] = []
        for _ in range(per_second):
            state = states[current]
            second.extend(state.kbps * share for share in state.shares or [1_000])
            current = bisect_right(state.successors, dice.random() * MILLION)
        made.append(second)
    return made


def fitted(word: str, variant: str, about: str, trace: Trace) -> Model:
    """A model of a trace."""
    states, start = fit(trace)
    return Model(
        word,
        variant,
        about,
        1_000,
        states,
        start,
        figures(trace),
        figures(simulate(states, start, 1)),
    )


def wifi_busy() -> Model:
    """Invented: a station among others that send too. It gets all of the channel, shares of it, or nothing."""
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
    # far more rounds than the chain remembers: its stationary distribution
    for _ in range(1_000):
        occupied = [
            sum(occupied[i] * moves[i][j] / 100 for i in range(len(rates)))
            for j in range(len(rates))
        ]
    start = per_million([round(MILLION * share) for share in occupied])
    about = "synthetic, fitted to nothing: a WiFi station whose channel is busy with others"
    return Model(
        "wifi-busy",
        "WifiBusy",
        about,
        100,
        states,
        start,
        None,
        figures(simulate(states, start, 10)),
    )


def models(traces: Path) -> list[Model]:
    """All of them, in the order of the table."""
    made = []
    for word, variant, files in (
        ("lte-drive", "LteDrive", ["ATT-LTE-driving", "ATT-LTE-driving-2016"]),
        ("umts-drive", "UmtsDrive", ["TMobile-UMTS-driving"]),
        ("evdo-drive", "EvdoDrive", ["Verizon-EVDO-driving"]),
    ):
        for suffix, ending, direction in (("", "down", "downlink"), (".up", "up", "uplink")):
            names = [f"{name}.{ending}" for name in files]
            trace = [s for name in names for s in mahimahi(traces / "mahimahi" / f"{name}.gz")]
            about = f"{direction}, fitted to mahimahi's {' and '.join(names)}"
            made.append(fitted(word + suffix, variant + ("Up" if suffix else ""), about, trace))
    for word, variant, prefix, mode in (
        ("5g-drive", "FiveGDrive", "Driving", "runs at least half on 5G"),
        ("5g-static", "FiveGStatic", "Static", "all runs"),
    ):
        trace, count = irish5g(traces / "irish5g", prefix)
        about = f"downlink, fitted to {count} {prefix} runs of UCC's 5G set ({mode}; pauses between downloads cut out)"
        made.append(fitted(word, variant, about, trace))
    trace, count = norway3g(traces / "norway3g", "norway_bus")
    about = f"downlink, fitted to {count} bus rides of the Norway 3G set"
    made.append(fitted("hsdpa-bus", "HsdpaBus", about, trace))
    return [*made, wifi_busy()]


def rust_figures(f: Figures) -> str:
    """As a Rust literal."""
    tenth = "None" if f.cv_tenth is None else f"Some({f.cv_tenth:.3f})"
    return (
        f"Figures {{ seconds: {f.seconds}, mean: {f.mean:.0f}.0, cv: {f.cv:.3f}, p10: {f.p10:.0f}.0, "
        f"p50: {f.p50:.0f}.0, p90: {f.p90:.0f}.0, lag1: {f.lag1:.3f}, lag10: {f.lag10:.3f}, cv_tenth: {tenth} }}"
    )


def rust(made: list[Model]) -> str:
    """The whole file, as rustfmt leaves it."""
    lines = [
        "//! Markov link models: written by `python3 -m bench.fit_links`, not by hand.",
        "//!",
        "//! signal: the traces named in each entry · model: chains over classes of a second's rate, see the script ·",
        "//! action: the table that [`super::markov`] runs. Nothing of the traces is in here but their statistics: means",
        "//! of classes, frequencies of changes between them. Rates in kbit/s, shares in thousandths of the state's rate,",
        "//! probabilities cumulative in millionths.",
        "//!",
        "//! Trace and model, whole seconds, Mbit/s:",
        "//!",
        "//! | model | of | seconds | mean | cv | p10 | p50 | p90 | lag 1 s | lag 10 s | cv of tenths |",
        "//! |---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for model in made:
        for kind, f in (("trace", model.trace), ("model", model.figures)):
            if f is not None:
                rates = " | ".join(f"{x / 1e6:.3f}" for x in (f.p10, f.p50, f.p90))
                tenth = "–" if f.cv_tenth is None else f"{f.cv_tenth:.2f}"
                lines.append(
                    f"//! | {model.word} | {kind} | {f.seconds} | {f.mean / 1e6:.3f} | {f.cv:.2f} | {rates} | "
                    f"{f.lag1:.2f} | {f.lag10:.2f} | {tenth} |"
                )
    lines += [
        "",
        "use super::markov::{Chain, ChainState, Figures};",
        "",
        "choice! {",
        "    /// Which network.",
    ]
    lines += ["    pub enum Model {"]
    for model in made:
        lines += [f"        /// {model.about[0].upper()}{model.about[1:]}."]
        lines += [f'        {model.variant} = "{model.word}",']
    lines += [
        "    }",
        "}",
        "",
        "/// The chains, in the order of [`Model`].",
        "pub static CHAINS: &[Chain] = &[",
    ]
    for model in made:
        trace = "None" if model.trace is None else f"Some({rust_figures(model.trace)})"
        lines += [f'Chain {{ name: "{model.word}", about: "{model.about}", step_ms: {model.step},']
        lines += [
            f"start: &{model.start}, trace: {trace}, model: {rust_figures(model.figures)}, states: &["
        ]
        for state in model.states:
            lines.append(
                f"ChainState {{ kbps: {state.kbps}, shares: &{state.shares}, successors: &{state.successors} }},"
            )
        lines += ["] },"]
    lines += ["];", ""]
    command = ["rustfmt", "--edition", "2024", "--config-path", str(ROOT)]
    formatted = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=True
    )
    return formatted.stdout


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
    text = rust(models(traces))
    if not arguments.check:
        OUTPUT.write_text(text, encoding="utf-8")
        print(
            "\n".join(
                line.removeprefix("//! ") for line in text.splitlines() if line.startswith("//! |")
            )
        )
        return 0
    if OUTPUT.read_text(encoding="utf-8") != text:
        print(
            f"{OUTPUT} is not what the traces give: run python3 -m bench.fit_links", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
