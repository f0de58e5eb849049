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
from unbloat.fairness.page import fairness_page
from unbloat.fairness.text import fairness_json, fairness_screen
from unbloat.front.chart import chart
from unbloat.front.front import front
from unbloat.front.links import Half
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


def reproduce_front(options: FrontOptions) -> int:
    """Runs the front, or what is missing of it in the store, and prints the verdicts."""
    check(options)
    with ProgressBar("simulating") as progress:
        found = front(
            HALVES[options.half],
            traces=options.traces,
            store=options.store,
            only_stored=options.stored,
            progress=progress,
        )
    if options.page is not None:
        picture = options.page.with_suffix(".svg")
        with writing(options.page):
            chart(found.fields, picture)
            options.page.write_text(front_page(found, picture.name), encoding="utf-8")
    show(options, found, front_json, front_screen)
    return 0


def reproduce_fairness(options: FrontOptions) -> int:
    """Runs the cases of fairness, or what is missing of them in the store, and prints the verdicts."""
    check(options)
    with ProgressBar("simulating") as progress:
        found = fairness(store=options.store, only_stored=options.stored, progress=progress)
    if options.page is not None:
        with writing(options.page):
            options.page.write_text(fairness_page(found), encoding="utf-8")
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
