"""`python tests/verdicts/look.py HALF CAPTURES [MORE]`: judges a test half, once, and stores what came out.

HALF is `first`, `second` or `third`. CAPTURES holds the shared captures, MORE those of `captures_more.jsonl`, which the second half needs, or
of `captures_third.jsonl` for the third.

The rules are tuned on the other flows. Whatever is changed after a look is no longer judged blind by that half, so its file
(`first_look.jsonl` and so on) is never written again. The page in the docs shows it as it was.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import labelled

LISTS = ("right", "open", "wrong", "overstated", "fitting", "unfit")


@dataclass(frozen=True)
class Look:
    """A test half, and where its only look is stored."""

    half: str
    stored: Path
    title: str


LOOKS = {
    "first": Look("test", labelled.FOLDER / "first_look.jsonl", "First test half"),
    "second": Look("second test", labelled.FOLDER / "second_look.jsonl", "Second test half"),
    "third": Look("third test", labelled.FOLDER / "third_look.jsonl", "Third test half"),
}


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


def stored_look(look: Look) -> tuple[dict[str, Any], list[labelled.Judged]]:
    """Commit and date of a look, and the flows as they were judged then."""
    stored, *rows = labelled.lines(look.stored.name)
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


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Judges a test half, once.")
    parser.add_argument("half", choices=LOOKS)
    parser.add_argument("folders", nargs="+", type=Path, metavar="CAPTURES")
    asked = parser.parse_args(words)
    look = LOOKS[asked.half]
    if look.stored.exists():
        print(f"{look.stored.name}: the {look.half} half was judged already", file=sys.stderr)
        return 1
    if git("status", "--porcelain", "--", "../../crates", "../../python", "."):
        print("commit the rules and labels first: the look names a commit", file=sys.stderr)
        return 1
    judged = labelled.judge_all(tuple(asked.folders), look.half)
    stored = {
        "commit": git("rev-parse", "--short", "HEAD"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    lines = [stored, *(row(one) for one in judged)]
    look.stored.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(labelled.figures(list(judged)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
