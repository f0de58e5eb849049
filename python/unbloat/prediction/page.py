"""The page of `unbloat what-if`: the best cure, a chart and a table of all, the capture and its replay, and the fitted rate."""

from __future__ import annotations

import time
from pathlib import Path

from markupsafe import Markup

from unbloat.charts.replayed_rtt import CHART
from unbloat.link.page import rate_chart
from unbloat.link.text import facts, heading
from unbloat.prediction.cures_svg import cures_svg
from unbloat.prediction.overlay import overlay
from unbloat.prediction.predict import WhatIf
from unbloat.prediction.text import (
    BEYOND_NOTE,
    LAB_TITLE,
    LAB_TITLES,
    NOTE,
    TITLES,
    best_text,
    explained,
    lab_notes,
    lab_rows,
    row,
)
from unbloat.report.write import ReportInfo, render, save
from unbloat.version import __version__


def write_what_if_page(found: WhatIf, path: Path) -> ReportInfo:
    """Writes the page."""
    begun = time.perf_counter()
    fitted = found.fitted
    store, shown = rate_chart(fitted, overlay(found), (CHART,))
    name = Path(fitted.capture).name
    every = (found.as_it_was, *found.cures)
    text = render(
        "what_if.html.j2",
        ("locate.js",),
        facts=shown,
        blobs=store.blobs,
        name=name,
        title=best_text(found),
        about=heading(fitted),
        drawing=Markup(cures_svg(found)),
        titles=(*TITLES, "command"),
        rows=[(*row(one), one.cure.installed(found.rate_bps)) for one in every],
        parameters=[*explained(found), *facts(fitted)],
        lab_titles=LAB_TITLES,
        lab_rows=lab_rows(found),
        lab_title=LAB_TITLE,
        notes=[
            NOTE,
            *([BEYOND_NOTE] if any(one.beyond for one in every) else []),
            *(lab_notes(found) if found.lab else []),
        ],
        tool=f"unbloat {__version__}",
    )
    return save(text, path, begun, 1, 1)
