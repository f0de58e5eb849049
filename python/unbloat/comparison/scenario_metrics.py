"""What runs of a scenario are compared by beside their main transfer: all transfers, queues, probes, applications, by name.

Figures of each run stand under the names that the scenario gives (`run/metrics.py` has all of them); of two runs also the
difference of the second to the first. Terminal, page and `--json` show the same sections of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unbloat.run.figures import Figures, Statistics, statistics
from unbloat.run.metrics import METRICS, Text, figure
from unbloat.run.run import Run
from unbloat.run.tables import Row
from unbloat.text.format import (
    LIMITS,
    NOTHING,
    app_words,
    count_text,
    limit_text,
    ms_text,
    number,
    seconds_text,
    share_text,
)

Get = Callable[[Figures], float | str | None]
# A smaller difference counts as none: what repeated runs of one scenario differ by is more.
SAME_WITHIN = 0.005
# From a share of this size on, a limit has a line.
MIN_SHARE = 0.05


@dataclass(frozen=True)
class Line:
    """One figure of every run."""

    place: str
    """Transfer, queue or probe."""
    name: str
    """Of the figure, as in `[[expect]]` where it has a name there."""
    label: str
    values: list[float | str | None]
    texts: list[str]
    difference: str | None
    """Of the second to the first; None for more runs than two."""


@dataclass(frozen=True)
class Section:
    """Lines about the same kind of thing."""

    title: str
    lines: list[Line]

    def to_dict(self) -> Row:
        """As `--json` prints it."""
        return {
            "section": self.title,
            "lines": [
                {
                    "place": line.place,
                    "name": line.name,
                    "values": line.values,
                    "difference": line.difference,
                }
                for line in self.lines
            ],
        }


@dataclass(frozen=True)
class MetricRow:
    """One row of a section: a figure of every run, its label and its form."""

    name: str
    label: str
    text: Text
    get: Get


def sections(runs: Sequence[Run]) -> list[Section]:
    """Everything that at least one of the runs has a figure for."""
    found = [Figures(run) for run in runs]
    made = [
        Section(title, [line for place in places(found) for line in lines(found, place, rows)])
        for title, places, rows in (
            ("transfer", every(lambda one: one.transfers), transfer_figures),
            ("queue", every(lambda one: [place for place, *_ in stages(one)]), stage_figures),
            ("probe", every(lambda one: one.probes), probe_figures),
            ("application", every(lambda one: one.transfers), app_figures),
        )
    ]
    return [section for section in made if section.lines]


def every(names: Callable[[Figures], list[str]]) -> Callable[[Sequence[Figures]], list[str]]:
    """The names of all runs, in the order of the first that has them."""
    return lambda found: list(dict.fromkeys(name for one in found for name in names(one)))


def lines(
    found: Sequence[Figures],
    place: str,
    rows: Callable[[Sequence[Figures], str], Sequence[MetricRow]],
) -> list[Line]:
    """The figures of one transfer, queue or probe."""
    made = []
    for one in rows(found, place):
        values = [one.get(figures) for figures in found]
        if all(value is None for value in values):
            continue
        texts = [
            NOTHING if value is None else value if isinstance(value, str) else one.text(value)
            for value in values
        ]
        difference = apart(values, one.text) if len(values) == 2 else None
        made.append(Line(place, one.name, one.label, values, texts, difference))
    return made


def apart(values: Sequence[float | str | None], text: Text) -> str:
    """How the second differs from the first: in percent, in points of a share, in the unit where the first is 0."""
    before, now = values
    if before is None or now is None:
        return NOTHING
    if isinstance(before, str) or isinstance(now, str):
        return "same" if before == now else "differs"
    if text is share_text:
        points = (now - before) * 100
        return "same" if abs(points) < SAME_WITHIN * 100 else f"{signed(points)} points"
    if before == now:
        return "same"
    if before == 0:
        return f"{'+' if now > 0 else '−'}{text(abs(now))}"
    share = (now - before) / abs(before)
    if abs(share) < SAME_WITHIN:
        return "same"
    # Beyond that a factor is read more easily.
    return f"× {number(now / before)}" if share >= 2 else f"{signed(share * 100)} %"


def signed(value: float) -> str:
    """With its sign, to the first place below ten."""
    shown = f"{abs(value):.1f}" if abs(value) < 9.95 else f"{abs(value):.0f}"
    return f"{'+' if value > 0 else '−'}{shown}"


def of(found: Statistics | None, part: str) -> float | None:
    """One figure of a distribution."""
    value: float | None = None if found is None else getattr(found, part)
    return value


def metric_row(metric: str, place: str, part: str = "", label: str = "") -> MetricRow:
    """The row of a metric; of a distribution that of one statistic."""
    row = METRICS[metric]
    return MetricRow(
        f"{metric}_{part}" if part else metric,
        label or f"{row.label} {part}".rstrip(),
        row.text,
        lambda one: figure(one, metric, place, part or None),
    )


def transfer_figures(found: Sequence[Figures], name: str) -> list[MetricRow]:
    """Of a transfer, all its connections together. What its data waited in queues stands with the queues: the simulator knows it
    of each packet, in the lab it is what round trips show, with the queues on the ACKs' way in it."""
    rows = [
        metric_row("flow_goodput_bps", name),
        metric_row("flow_rtt_ms", name, "p50"),
        metric_row("flow_rtt_ms", name, "p95"),
        metric_row("flow_in_flight_bytes", name, "mean", "in flight"),
        metric_row("flow_loss_rate", name),
        metric_row("flow_retransmissions", name),
        MetricRow(
            "flow_congestion", "algorithm", str, lambda one: largest(one, name, "congestion")
        ),
        MetricRow("flow_limit", "main limit", str, lambda one: limit_of(one, name)),
    ]
    for limit in LIMITS:
        if any((one.share(name, limit) or 0.0) >= MIN_SHARE for one in found):
            rows.append(metric_row(f"flow_share_{limit}", name))
    return rows


def largest(figures: Figures, name: str, column: str) -> str | None:
    """A word of its largest connection."""
    rows = figures.flows(name)
    if not rows:
        return None
    value = max(rows, key=lambda row: (row["bytes"], -row["id"]))[column]
    return None if value is None else str(value)


def limit_of(figures: Figures, name: str) -> str | None:
    """What held it back, in words."""
    word = figures.limit(name)
    return None if word is None else limit_text(word)


def stages(figures: Figures) -> list[tuple[str, str, str]]:
    """What a queue is called, its link and its stage."""
    return [
        (link if stage == "queue" else f"{link} {stage}", link, stage)
        for link in figures.links
        for stage in figures.stages(link)
    ]


def stage_figures(found: Sequence[Figures], place: str) -> list[MetricRow]:
    """Of a stage in front of a link; those of the link stand with the first of its stages."""
    named = {name: (link, stage) for one in found for name, link, stage in stages(one)}
    link, stage = named[place]
    if not any((one.stage(link, stage) or {}).get("packets") for one in found):
        return []
    first = any(one.stages(link)[:1] == [stage] for one in found)
    rows = [
        MetricRow(part, f"delay {part}", ms_text, get_stage(link, stage, part))
        for part in ("p50", "p95", "max")
    ]
    if first:
        rows += [
            metric_row("link_throughput_bps", link),
            metric_row("queue_drops", link),
            MetricRow(
                "lost_on_link",
                "lost on the link",
                count_text,
                lambda one: lost_on(one, link, stage),
            ),
        ]
    return rows


def get_stage(link: str, stage: str, part: str) -> Get:
    """A figure of a stage in front of a link."""
    return lambda one: of(one.stage_ms(link, stage), part)


def lost_on(figures: Figures, link: str, stage: str) -> float | None:
    """Packets that a link lost."""
    row = figures.stage(link, stage)
    return None if row is None else float(row["lost_on_link"])


def probe_figures(found: Sequence[Figures], name: str) -> list[MetricRow]:
    """Of a probe: there and back, or one way."""
    metric = "probe_rtt_ms" if any(one.probe(name, "rtt_ms") for one in found) else "probe_owd_ms"
    parts = [metric_row(metric, name, part) for part in ("p50", "p95", "p99", "max")]
    return [*parts, metric_row("probe_loss_rate", name)]


def app_figures(found: Sequence[Figures], name: str) -> list[MetricRow]:
    """What the application of a transfer reported."""
    rows = []
    for kind in dict.fromkeys(kind for one in found for kind in one.app_kinds(name)):
        words, text = app_words(kind)
        for part in ("p50", "p95"):
            label = words if most(found, name, kind) < 2 else f"{words} {part}"
            rows.append(MetricRow(f"{kind}_{part}", label, text, get_app(name, kind, part)))
            if most(found, name, kind) < 2:
                break
        rows.append(
            MetricRow(f"{kind}_count", f"{words}, times", count_text, get_app(name, kind, "count"))
        )
    return [
        *rows,
        MetricRow("stall_s", "stalled in all", seconds_text, lambda one: one.stall_s(name)),
    ]


def most(found: Sequence[Figures], name: str, kind: str) -> int:
    """How often it was reported at most."""
    return max(len(one.app(name, kind)) for one in found)


def get_app(name: str, kind: str, part: str) -> Get:
    """A figure of an application."""
    return lambda one: of(statistics(one.app(name, kind)), part)
