"""What a chart is: a name, the columns it needs, and what to draw from them.

A chart draws nothing itself. It states its marks (a line, a band, a level, a ribbon …) as data; the page draws them on
a canvas, and the same drawing code writes them as SVG. Adding a chart is one file here and one line in `CHARTS`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Unit = Literal["bit/s", "ms", "bytes", "%", "sequence", "limit", "share"]
Color = Literal["ink", "muted", "blue", "sky", "green", "orange", "red", "purple", "yellow"]


# A curve breaks where there is no sample for longer than this, s: the first retransmission timeout of a sender that has no
# sample either (RFC 6298 section 2). An older figure says nothing about the path, so no line may lead from it to the next.
BREAK_S = 1.0


@dataclass(frozen=True)
class Ratio:
    """A column made of two others: `times` · over / under, no more than `at_most`."""

    over: str
    under: str
    times: float = 1.0
    at_most: float | None = None


@dataclass(frozen=True)
class Line:
    """A curve of one column of `samples`; `overlay` also draws it on the compare page, one curve per run."""

    column: str | Ratio
    label: str
    color: Color
    width: float = 1.5
    dash: tuple[float, ...] = ()
    step: bool = False
    area: bool = False
    overlay: bool = False
    bridge_s: float = 0.0
    """A faint stroke between two figures at most so far apart, s, and a dot for a lone one; 0: neither."""
    mark: str = "line"


@dataclass(frozen=True)
class Band:
    """The space between two columns of `samples`."""

    low: str
    high: str
    label: str
    color: Color
    mark: str = "band"


@dataclass(frozen=True)
class Level:
    """A horizontal line at a figure of the flow (a column of `flows`), plus a constant."""

    figure: str
    label: str
    color: Color
    plus: float = 0.0
    dash: tuple[float, ...] = (5, 4)
    mark: str = "level"


@dataclass(frozen=True)
class Constant:
    """A horizontal line at a fixed value."""

    value: float
    label: str
    color: Color
    dash: tuple[float, ...] = (5, 4)
    mark: str = "constant"


@dataclass(frozen=True)
class Spans:
    """Shaded time in which an event lasted: its `value` is the length in seconds."""

    kind: str
    label: str
    color: Color
    mark: str = "spans"


@dataclass(frozen=True)
class Points:
    """Marks along an edge of the chart, or at the event's sequence number, where events happened."""

    kinds: tuple[str, ...]
    label: str
    color: Color
    shape: Literal["diamond", "circle", "cross", "triangle"]
    at: Literal["sequence", "bottom", "top"] = "sequence"
    mark: str = "points"


@dataclass(frozen=True)
class Ticks:
    """Data segments or SACK blocks as vertical ticks from first to last byte."""

    kind: Literal["data", "again", "late", "sack"]
    label: str
    color: Color
    width: float = 1.0
    mark: str = "ticks"


@dataclass(frozen=True)
class Stairs:
    """The acknowledged edge or the right edge of the window as a staircase."""

    edge: Literal["ack", "right"]
    label: str
    color: Color
    mark: str = "stairs"


@dataclass(frozen=True)
class Many:
    """One curve for each queue, probe or transfer of a run, or of its modem: what is the whole run's, not one flow's."""

    table: Literal[
        "queues",
        "probes",
        "transfer_goodput",
        "transfer_rtt",
        "forward",
        "backward",
        "rtt",
        "goodput",
        "windows",
        "added_delay",
        "modem_buffer",
        "modem_rates",
    ]
    label: str
    color: Color = "ink"
    mark: str = "many"


@dataclass(frozen=True)
class Ribbon:
    """What held the flow back, as a band of colours, patterns and words."""

    column: str
    label: str
    color: Color = "ink"
    mark: str = "ribbon"


@dataclass(frozen=True)
class Histogram:
    """How a column of `samples` is distributed within the visible time: bars and their running sum."""

    column: str
    label: str
    color: Color
    quantiles: str
    axis: str = "mean RTT of a bin, logarithmic"
    of: str = "bins"
    mark: str = "histogram"


Mark = Line | Band | Level | Constant | Spans | Points | Ticks | Stairs | Many | Ribbon | Histogram


@dataclass(frozen=True)
class Chart:
    """One chart of the report."""

    name: str
    """Short name, used in file names of exports."""
    title: str
    about: str
    """One sentence that says how to read it."""
    unit: Unit
    marks: tuple[Mark, ...]
    needs: tuple[str, ...]
    """`table.column` of everything it draws; a flow without them gets a sentence in its place."""
    only_with: str = ""
    """A column of `flows` without which a page leaves it out: no connection of its runs has what it draws."""
    rules: tuple[str, ...] = ()
    """Findings that are shown beside it."""
    figures: tuple[tuple[str, str], ...] = ()
    """Words and `flows` column for the table beside the drawing."""
    height: int = 260
    floor: float | None = 0.0
    """Where the y axis begins; None: at the smallest visible value."""

    @property
    def needs_more(self) -> bool:
        """Whether it draws what a capture alone does not have: only a simulated run does, or a modem's log."""
        more = ("queues.", "probes.", "transfer_", "modem_")
        return any(need.startswith(more) for need in self.needs)

    def to_json(self) -> dict[str, Any]:
        """As the page reads it."""
        return asdict(self)
