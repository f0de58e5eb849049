"""A path of this repository that code or documentation names exists.

What is found: words that begin with a folder of the repository, in backticks, links, comments or prose. Patterns
(`*`, `{a,b}`, `NAME`, `…`) are not paths; a file that a command in the same sentence writes is listed below.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = r"(?:docs|crates|tests|bench|python/unbloat|samples|scenarios|fuzz|packaging)"
PATH = re.compile(rf"(?<![\w./-])({FOLDERS}/[\w./-]+)(?![\w*{{<…]|-[{{])")
KINDS = {".rs", ".py", ".c", ".h", ".js", ".md", ".toml", ".j2", ""}
# Written by a command, so not in the repository.
WRITTEN = {"bench/data", "python/unbloat/_native.abi3.so"}


def tracked() -> list[str]:
    """Files that git knows, relative to the top."""
    text = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [name for name in text.splitlines() if (ROOT / name).is_file()]


def bases(path: Path) -> list[Path]:
    """Where a path may begin: the top, the folder of the file that names it, and its crate."""
    relative = path.relative_to(ROOT).parts
    crate = [ROOT / "crates" / relative[1]] if relative[0] == "crates" else []
    return [ROOT, path.parent, *crate]


def test_paths_that_are_named_exist() -> None:
    missing = []
    for name in tracked():
        path = ROOT / name
        if path.suffix not in KINDS or name == "CHANGELOG.md":
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for match in PATH.finditer(line):
                cited = match[1].rstrip("./-")
                if re.search(r"[A-Z]{3,}$", Path(cited).stem) and not Path(cited).suffix:
                    continue  # a placeholder, docs/NAME
                if any(cited == w or cited.startswith(w + "/") for w in WRITTEN):
                    continue
                if not any((base / cited).exists() for base in bases(path)):
                    missing.append(f"{name}:{number}: {cited}")
    assert not missing, "\n".join(missing)
