"""The examples of README.md and docs/ are what the program prints, and their links lead somewhere.

A fenced block below `<!-- output -->` begins with a command and goes on with its output. A Python block below
`<!-- python -->` is run, and the block after it holds what it printed. `UNBLOAT_BLESS=1` renews both. The pages of the
commands have a test of their own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from reading import ROOT

PAGES = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "samples/README.md",
        )
    ),
    *sorted((ROOT / "docs").glob("*.md")),
]
COMMAND = re.compile(r"(<!-- output -->\n```console\n\$ unbloat ([^\n]*)\n)(.*?)(```)", re.S)
PYTHON = re.compile(r"(<!-- python -->\n```python\n(.*?)```\n\n```text\n)(.*?)(```)", re.S)


def answer(*command: str) -> str:
    """What a program prints at 80 columns, whatever its exit code."""
    environment = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def renewed(text: str) -> str:
    text = COMMAND.sub(lambda b: b[1] + answer("-m", "unbloat", *shlex.split(b[2])) + b[4], text)
    return PYTHON.sub(lambda b: b[1] + answer("-c", b[2]) + b[4], text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_examples_of_a_page_are_what_the_program_prints(path: Path) -> None:
    real = renewed(path.read_text())
    if os.environ.get("UNBLOAT_BLESS") == "1":
        path.write_text(real)
    assert real == path.read_text()


def test_there_are_examples() -> None:
    readme = (ROOT / "README.md").read_text()
    assert COMMAND.search(readme)
    assert PYTHON.search(readme)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_links_of_a_page_lead_somewhere(path: Path) -> None:
    # written by the benchmark and by the tests against truth, which may not have run here yet
    made = {ROOT / "bench/RESULTS.md", ROOT / "docs/judges.md"}
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        place = (path.parent / target).resolve()
        assert target.startswith("https://") or place.exists() or place in made, target


def test_every_command_and_every_finding_is_linked_from_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text()
    for path in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")]:
        if path.name != "README.md":
            assert f"({path.relative_to(ROOT / 'docs')})" in index, path
