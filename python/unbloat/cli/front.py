"""What `unbloat reproduce front` and `unbloat reproduce fairness` do once their arguments are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unbloat.cli.output import need_writable, writing
from unbloat.errors import UnbloatError
from unbloat.fairness.fairness import fairness
from unbloat.fairness.lab import fairness_in_lab
from unbloat.fairness.lab_page import fairness_lab_json, fairness_lab_screen
from unbloat.fairness.page import fairness_page
from unbloat.fairness.text import fairness_json, fairness_screen
from unbloat.front.chart import chart
from unbloat.front.controls import CONTROLS
from unbloat.front.front import Front, front
from unbloat.front.lab import FrontInLab, beside, front_in_lab, lab_controls, lab_links
from unbloat.front.lab_page import lab_json, lab_screen
from unbloat.front.links import LINKS, Half
from unbloat.front.page import front_page
from unbloat.front.text import front_json, front_screen
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal

HALVES: dict[str, tuple[Half, ...]] = {
    "tuning": ("tuning",),
    "test": ("test",),
    "both": ("tuning", "test"),
}


@dataclass(frozen=True)
class FrontOptions:
    """The options of both."""

    half: Literal["tuning", "test", "both"] = "tuning"
    traces: Path | None = None
    store: Path | None = None
    page: Path | None = None
    stored: bool = False
    json: bool = False
    lab: bool = False
    repeat: int = 1


def reproduce_front(options: FrontOptions) -> int:
    """Runs the front, or what is missing of it in the store, and prints the verdicts; with `lab` those cases that the lab
    runs, in the simulator and in the lab."""
    check(options)
    half, store = HALVES[options.half], options.store
    with ProgressBar("simulating") as progress:
        found = front(
            HALVES["both"] if options.lab else half,
            traces=options.traces,
            store=store,
            links=lab_links() if options.lab else LINKS,
            controls=lab_controls() if options.lab else CONTROLS,
            only_stored=options.stored,
            progress=progress,
        )
    in_lab = None
    if options.lab or store is not None:
        # The page has the runs of the lab also where this command makes none.
        with ProgressBar("in the lab") as progress:
            in_lab = front_in_lab(
                options.repeat,
                traces=options.traces,
                store=None if store is None else beside(store),
                only_stored=options.stored or not options.lab,
                progress=progress,
            )
    if options.page is not None:
        picture = options.page.with_suffix(".svg")
        whole = all_stored(options) if options.lab else found
        with writing(options.page):
            chart(whole.fields, picture)
            options.page.write_text(front_page(whole, picture.name, in_lab), encoding="utf-8")
    if options.lab and in_lab is not None:
        show_lab(options, found, in_lab)
    else:
        show(options, found, front_json, front_screen)
    return 0


def all_stored(options: FrontOptions) -> Front:
    """For the page, which has more than the links of the lab."""
    whole = front(HALVES["both"], traces=options.traces, store=options.store, only_stored=True)
    return Front([field for field in whole.fields if field.points], whole.skipped)


def show_lab(options: FrontOptions, found: Front, lab: FrontInLab) -> None:
    """On standard output, the lab beside the simulator."""
    if options.json:
        whole = front_json(found) | {"lab": lab_json(lab, found.fields)}
        print(json.dumps(whole, ensure_ascii=False))
    else:
        lab_screen(Terminal(sys.stdout), lab, found.fields)


def reproduce_fairness(options: FrontOptions) -> int:
    """Runs the cases of fairness, or what is missing of them in the store, and prints the verdicts; with `lab` those cases
    that the lab runs."""
    check(options)
    store = options.store
    with ProgressBar("simulating") as progress:
        found = fairness(store=store, only_stored=options.stored or options.lab, progress=progress)
    in_lab = None
    if options.lab or store is not None:
        # The page has the runs of the lab also where this command makes none.
        with ProgressBar("in the lab") as progress:
            in_lab = fairness_in_lab(
                options.repeat,
                store=None if store is None else beside(store),
                only_stored=options.stored or not options.lab,
                progress=progress,
            )
    if options.page is not None:
        with writing(options.page):
            options.page.write_text(fairness_page(found, in_lab), encoding="utf-8")
    if options.lab and in_lab is not None:
        show(options, in_lab, fairness_lab_json, fairness_lab_screen)
    else:
        show(options, found, fairness_json, fairness_screen)
    return 0


def check(options: FrontOptions) -> None:
    """Before the runs, so that a wrong path costs no time."""
    for path in (options.page, options.store):
        if path is not None:
            need_writable(path)
    if options.stored and options.store is None:
        raise UnbloatError("--stored needs --store FILE")


def show(
    options: FrontOptions,
    found: Any,
    as_json: Callable[[Any], dict[str, Any]],
    screen: Callable[[Terminal, Any], None],
) -> None:
    """On standard output."""
    if options.json:
        print(json.dumps(as_json(found), ensure_ascii=False))
    else:
        screen(Terminal(sys.stdout), found)
