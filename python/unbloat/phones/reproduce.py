"""`reproduce phones`: a fitted population beside QCUT's study of traffic, and a population that nothing was fitted to.

signal: phones of a seed that was not used for the fit · model: each phone is made, analysed as a corpus of its own, and its
views are counted at the paper's points · action: an `Outcome` per series: its distance with a 95 % interval over phones,
within the tolerance or not; the control has to lie outside
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from random import Random

from unbloat.corpus.open import corpus
from unbloat.corpus.run import RunOptions, run_corpus
from unbloat.errors import UnbloatError
from unbloat.phones.expected import expected, share_at
from unbloat.phones.figures import FIGURES, Figure
from unbloat.phones.make import make_phone
from unbloat.phones.population import POPULATIONS
from unbloat.run.store import Store

NAMES = ("population", "phone")
# Raised when phones are made or counted in another way, so that stored counts no longer count.
METHOD = 2
# The laws were fitted with seeds 1 to 9 (population.py). With seed 101 the rise of the RTT above 100 KB up failed: its upload
# queues were drawn too long, and were fitted again. Phones of this seed were not looked at before.
SEED = 102
# A resample has as many phones, drawn with replacement: values of one phone are alike.
RESAMPLES = 1000

Counts = dict[str, list[int]]
"""By figure: number of values, and how many are at most x at each of the paper's points."""


@dataclass(frozen=True)
class Sample:
    """Phones of one population."""

    population: str
    phones: int
    days: float
    seed: int = SEED


# The rarest series, uploads above 10 MB, has a hundred values then. With the first 45 phones alone the intervals of eight
# figures of transfers reached beyond their tolerances: 166 uploads of 1 to 10 MB were too few. The control needs its distance alone.
JUDGED, CONTROL = Sample("paper", 135, 6.0), Sample("plain", 15, 3.0)


@dataclass(frozen=True)
class Distance:
    """Of a series of one population from the paper's."""

    shares: tuple[float, ...]
    """At the paper's points."""
    values: int
    distance: float
    low: float
    high: float
    """Ends of the 95 % interval."""


@dataclass(frozen=True)
class Outcome:
    """One series, judged."""

    figure: Figure
    ours: Distance | None
    control: Distance | None
    from_truth: float
    """Largest difference between the view and what is true of the same phones, at the paper's points."""

    @property
    def passes(self) -> bool:
        """The whole interval within the tolerance, and no part of the control's."""
        if self.ours is None or self.control is None:
            return False
        return self.ours.high <= self.figure.tolerance < self.control.low


def settings(sample: Sample) -> str:
    """Names what is made."""
    text = f"{METHOD} {sample.seed} {sample.days} {POPULATIONS[sample.population]!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def measured(sample: Sample, phone: int) -> list[Counts]:
    """Of one phone: counts of the views, and of what is true."""
    with tempfile.TemporaryDirectory() as folder:
        made, out = Path(folder, "phones"), Path(folder, "out")
        truth = make_phone(made, POPULATIONS[sample.population], phone, sample.days, sample.seed)
        outcome = run_corpus([made], out, RunOptions(jobs=1))
        if outcome.errors:
            raise UnbloatError(outcome.errors[0])
        seen: Counts = {}
        views = corpus(out)
        for figure in FIGURES:
            rows = views.sql(
                f"SELECT x, F, n FROM {figure.view} WHERE series = '{figure.series}' ORDER BY x"
            ).fetchall()
            at = [
                max((share for x, share, _ in rows if x <= point), default=0.0)
                for point, _ in figure.points
            ]
            number = rows[0][2] if rows else 0
            seen[figure.key] = [number, *(round(share * number) for share in at)]
        known = expected(truth.rows)
        true: Counts = {}
        for figure in FIGURES:
            values = known.get((figure.view, figure.series), [])
            shares = [share_at(values, x) for x, _ in figure.points]
            true[figure.key] = [len(values), *(round(share * len(values)) for share in shares)]
    return [seen, true]


def reproduce_phones(
    *,
    store: Path | None = None,
    samples: tuple[Sample, Sample] = (JUDGED, CONTROL),
    only_stored: bool = False,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Make what is missing in the store, and judge the first sample, with the second as its control.

    With `only_stored` nothing is made.
    """
    kept = Store(store, NAMES)
    cases = [(sample, phone) for sample in samples for phone in range(sample.phones)]
    todo = [one for one in cases if kept.runs(key(*one), settings(one[0])) is None]
    if todo and not only_stored:
        context = multiprocessing.get_context("spawn")
        workers = min(jobs or os.cpu_count() or 1, len(todo))
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            futures = {pool.submit(measured, *one): one for one in todo}
            for done, future in enumerate(as_completed(futures), 1):
                sample, phone = futures[future]
                kept.put(key(sample, phone), settings(sample), list(future.result()))
                if progress is not None:
                    progress(done, len(todo))
        kept.sort()
    found = {
        sample.population: [
            runs
            for phone in range(sample.phones)
            if (runs := kept.runs(key(sample, phone), settings(sample))) is not None
        ]
        for sample in samples
    }
    ours, control = (found[sample.population] for sample in samples)
    return [judged(figure, ours, control) for figure in FIGURES]


def key(sample: Sample, phone: int) -> tuple[str, str]:
    """Of a phone in the store."""
    return sample.population, f"{phone:03}"


def judged(
    figure: Figure,
    ours: Sequence[Sequence[Mapping[str, list[int]]]],
    control: Sequence[Sequence[Mapping[str, list[int]]]],
) -> Outcome:
    """One series by the counts of each phone: of the views, then of the truth."""
    seen = [runs[0][figure.key] for runs in ours]
    true = [runs[1][figure.key] for runs in ours]
    apart = [abs(a - b) for a, b in zip(shares(seen), shares(true), strict=True)]
    return Outcome(
        figure,
        distance(figure, seen),
        distance(figure, [runs[0][figure.key] for runs in control]),
        max(apart, default=0.0),
    )


def shares(counts: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """At each point, over all phones."""
    sums = [sum(column) for column in zip(*counts, strict=True)]
    return tuple(one / sums[0] for one in sums[1:]) if sums and sums[0] else ()


def distance(figure: Figure, counts: Sequence[Sequence[int]]) -> Distance | None:
    """From the paper, with the interval over phones; None where there is no value."""
    own = shares(counts)
    if not own:
        return None
    random = Random(1)  # always the same, so that pages can be compared
    drawn = []
    for _ in range(RESAMPLES):
        found = shares(random.choices(counts, k=len(counts)))
        if found:
            drawn.append(apart_from(figure, found))
    drawn.sort()
    edge = round(0.025 * len(drawn))
    number = sum(row[0] for row in counts)
    return Distance(own, number, apart_from(figure, own), drawn[edge], drawn[-1 - edge])


def apart_from(figure: Figure, own: Sequence[float]) -> float:
    """The largest difference from the paper's shares."""
    return max(abs(one - theirs) for one, (_, theirs) in zip(own, figure.points, strict=True))
