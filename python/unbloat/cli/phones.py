"""What `unbloat reproduce phones` does once its arguments are read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from unbloat.cli.output import need_writable, writing
from unbloat.errors import UnbloatError
from unbloat.phones.page import phones_json, phones_page, phones_screen
from unbloat.phones.reproduce import reproduce_phones
from unbloat.text.progress import ProgressBar
from unbloat.text.terminal import Terminal


def judge_phones(
    store: Path | None, page: Path | None, stored: bool, as_json: bool, jobs: int | None
) -> int:
    """Makes the phones that the store lacks and prints the verdicts; 1 where one fails."""
    for path in (page, store):
        if path is not None:
            need_writable(path)  # before the run, so that a wrong path costs no time
    if stored and store is None:
        raise UnbloatError("--stored needs --store FILE")
    with ProgressBar("making phones") as progress:
        outcomes = reproduce_phones(store=store, only_stored=stored, jobs=jobs, progress=progress)
    if page is not None:
        with writing(page):
            page.write_text(phones_page(outcomes), encoding="utf-8")
    if as_json:
        print(json.dumps(phones_json(outcomes), ensure_ascii=False))
    else:
        phones_screen(Terminal(sys.stdout), outcomes)
    return int(not all(outcome.passes for outcome in outcomes))
