"""`unbloat corpus report`: verdicts, grades, the worst connections and the study of a corpus, as one file that holds everything it shows.

Every figure is a sum that DuckDB makes of the tables; what comes to Python is no longer than the page.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path, PurePath

from markupsafe import Markup

from unbloat.corpus.corpus import Corpus, connect
from unbloat.corpus.report.blocks import MEASURE_WORDS, Block, block
from unbloat.corpus.report.curves_svg import curves_svg
from unbloat.corpus.report.looks import LOOKS, style
from unbloat.corpus.report.places import Places, places
from unbloat.corpus.report.shares import MIN_DEVICES, PARTS, prepare
from unbloat.corpus.report.study import Compared, Study, study
from unbloat.corpus.report.summary import summary
from unbloat.corpus.report.worst import SHOWN, worst
from unbloat.report.write import ReportInfo, render_plain, save
from unbloat.text.format import NOTHING, count_text, limit_phrase, share_text
from unbloat.version import __version__

VIEWS = "SELECT view_name FROM duckdb_views() WHERE NOT internal"


@dataclass(frozen=True)
class Series:
    """A series of the study in a table."""

    name: str
    n: str
    ks: str


@dataclass(frozen=True)
class Drawing:
    """A panel of the study."""

    title: str
    caption: str
    svg: Markup
    series: list[Series]


def write_page(corpus: Corpus, path: Path) -> ReportInfo:
    """Writes the page. Raises `UnbloatError` without DuckDB."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as spill, connect(corpus.path) as connection:
        # What does not fit in memory goes there instead of to a folder where the command was started.
        connection.execute(f"SET temp_directory = '{spill}'")
        views = {str(row[0]) for row in connection.execute(VIEWS).fetchall()}
        devices = prepare(connection) if "judged" in views else 0
        head = summary(connection, views, corpus.status(), devices)
        blocks = [block(connection, kind, devices) for kind in PARTS] if devices else []
        by = places(connection, devices) if devices else []
        rows = worst(connection) if devices else []
        studied = study(connection, views)
    text = render_plain(
        "corpus.html.j2",
        tool=f"unbloat {__version__}",
        name=PurePath(corpus.name).name,
        title=headline(blocks),
        facts=head.facts,
        missing=head.missing + lacking(devices, by),
        intervals=devices >= MIN_DEVICES,
        devices=devices,
        measures=MEASURE_WORDS,
        blocks=blocks,
        by=by,
        worst=rows,
        most=SHOWN,
        study=[drawing(one) for one in studied],
        looks={style(name): look for name, look in LOOKS.items()},
    )
    return save(text, path, begun, len(rows), len(studied))


def headline(blocks: list[Block]) -> str:
    """The verdict in a sentence."""
    if not blocks:
        return "No connection of this corpus can be judged"
    largest = max(blocks[0].rows, key=lambda row: row.part.sums["bytes"]).part
    share = share_text(largest.shares["bytes"].share)
    return f"{share} of the bytes were held back by {limit_phrase(largest.name)}"


def lacking(devices: int, by: list[Places]) -> list[str]:
    """What the page cannot show of connections that are judged."""
    found = []
    if 0 < devices < MIN_DEVICES:
        found.append(
            f"there are fewer than {MIN_DEVICES} devices: no confidence interval can be computed."
        )
    if devices and all(one.word != "interface" for one in by):
        found.append(
            "no capture names its interface: nothing is known of the network that was used."
        )
    return found


def drawing(one: Study) -> Drawing:
    """A panel as the page shows it."""
    caption = f"Ours beside QCUT, {one.panel.source}. {one.panel.note}".strip()
    return Drawing(
        one.panel.title,
        caption,
        Markup(curves_svg(one)),
        [series(compared) for compared in one.series],
    )


def series(one: Compared) -> Series:
    """Its n and distance."""
    return Series(
        one.name,
        count_text(one.n) if one.n else "none",
        NOTHING if one.ks is None else f"{one.ks:.2f}",
    )
