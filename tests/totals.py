"""`python tests/totals.py FOLDER`: the last lines of ./check: passed, known misses, skipped by reason, retried, captures made again, judged by wider bounds. Exit 1 above MAX_RETRIES.

FOLDER has rust.log (what cargo test printed), pytest.jsonl (tests/summary.py) and retries.jsonl (tests/starved.py).
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

MAX_RETRIES = 2
"""A retry is a test that the machine starved. More than two in a run: the machine, or the test, needs a look."""
RUST = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
LEFT_OUT = re.compile(r"^left out: (.*)$", re.M)


def rows(path: Path) -> list[dict[str, object]]:
    """The objects of a file of JSON lines; none where it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def totals(folder: Path) -> tuple[list[str], bool]:
    """The lines to print, and whether the number of retries is within its limit."""
    passed, failed, missed, skipped = 0, 0, 0, Counter[str]()
    log = folder / "rust.log"
    text = log.read_text() if log.exists() else ""
    wider: dict[str, object] = {}
    for counts in RUST.findall(text):
        passed, failed = passed + int(counts[0]), failed + int(counts[1])
        if int(counts[2]):
            skipped["ignored (Rust)"] += int(counts[2])
    skipped.update(LEFT_OUT.findall(text))
    for row in rows(folder / "pytest.jsonl"):
        assert isinstance(row["passed"], int)
        assert isinstance(row["failed"], int)
        passed, failed = passed + row["passed"], failed + row["failed"]
        assert isinstance(row["known_misses"], int)
        missed += row["known_misses"]
        assert isinstance(row["skipped"], dict)
        skipped.update(row["skipped"])
        assert isinstance(row["wider"], dict)
        wider |= row["wider"]
    starved = rows(folder / "retries.jsonl")
    retries = [row for row in starved if "test" in row]
    lines = [f"skipped {count}: {reason}" for reason, count in skipped.most_common()]
    for row in starved:
        assert isinstance(row["starvation"], dict)
        what = f"retried {row['test']}" if "test" in row else f"made again {row['made_again']}"
        lines.append(f"{what}: {row['starvation']['why']}")
    lines += [f"judged by wider bounds {test}: {why}" for test, why in wider.items()]
    if len(retries) > MAX_RETRIES:
        lines.append(f"{len(retries)} retries are more than {MAX_RETRIES}")
    lines.append(
        f"{passed} passed, {failed} failed, {missed} known misses, {skipped.total()} skipped, "
        f"{len(retries)} retried, {len(starved) - len(retries)} captures made again, {len(wider)} judged by wider bounds"
    )
    return lines, len(retries) <= MAX_RETRIES


if __name__ == "__main__":
    printed, fine = totals(Path(sys.argv[1]))
    print("\n".join(printed))
    sys.exit(0 if fine else 1)
