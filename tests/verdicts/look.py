"""`python tests/verdicts/look.py CAPTURES`: judges the test half, once, and stores what came out in `first_look.jsonl`.

The rules are tuned on the other half. Whatever is changed after the first look is no longer judged blind, so the file is never
written again; the page in the docs shows it as it was.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import labelled

STORED = Path(__file__).parent / "first_look.jsonl"
LISTS = ("right", "open", "wrong", "overstated", "fitting", "unfit")


def git(*words: str) -> str:
    """What git prints."""
    done = subprocess.run(
        ["git", *words], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    return done.stdout.strip()


def row(judged: labelled.Judged) -> dict[str, Any]:
    """One flow as it is stored: by its key, without its label."""
    file, first_frame, src = labelled.key(judged.flow)
    rest = {name: asdict(judged)[name] for name in ("limit", "findings", *LISTS)}
    return {"file": file, "first_frame": first_frame, "src": src, **rest}


def first_look() -> tuple[dict[str, Any], list[labelled.Judged]]:
    """Commit and date of the first look, and the flows as they were judged then."""
    stored, *rows = labelled.lines(STORED.name)
    flows = {labelled.key(flow): flow for flow in labelled.lines("flows.jsonl")}
    labels = {labelled.key(label): label for label in labelled.lines("labels.jsonl")}
    return stored, [
        labelled.Judged(
            flows[labelled.key(one)],
            labels[labelled.key(one)],
            one["limit"],
            one["findings"],
            *(one[name] for name in LISTS),
        )
        for one in rows
    ]


def main() -> int:
    if STORED.exists():
        print(f"{STORED.name}: the test half was judged already", file=sys.stderr)
        return 1
    if git("status", "--porcelain", "--", "../../crates", "../../python"):
        print("commit the rules first: the first look names a commit", file=sys.stderr)
        return 1
    judged = labelled.judge_all(Path(sys.argv[1]), "test")
    stored = {
        "commit": git("rev-parse", "--short", "HEAD"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    lines = [stored, *(row(one) for one in judged)]
    STORED.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(labelled.figures(list(judged)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
