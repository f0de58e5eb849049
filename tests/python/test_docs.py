"""The examples of docs/commands are what the program prints.

A fenced block below `<!-- output -->` begins with a command and goes on with its output; `UNBLOAT_BLESS=1` renews them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from conftest import ROOT

from unbloat.cli.arguments import app
from unbloat.cli.list import families

PAGES = sorted((ROOT / "docs/commands").glob("*.md"))
BLOCK = re.compile(r"(<!-- output -->\n```console\n\$ unbloat ([^\n]*)\n)(.*?)(```)", re.S)


def answer(arguments: str) -> str:
    """What the program prints, at 80 columns."""
    environment = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")
    }
    command = [sys.executable, "-m", "unbloat", *shlex.split(arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_examples_are_what_the_program_prints(path: Path) -> None:
    text = path.read_text()
    real = BLOCK.sub(lambda block: block[1] + answer(block[2]) + block[4], text)
    if os.environ.get("UNBLOAT_BLESS") == "1":
        path.write_text(real)
    assert real == path.read_text()


def test_every_command_has_a_page_that_names_its_options() -> None:
    command = typer.main.get_command(app)
    commands: dict[str, typer.core.TyperCommand] = command.commands  # type: ignore[attr-defined]
    assert {path.stem for path in PAGES} == set(commands)
    for name, entry in commands.items():
        text = (ROOT / f"docs/commands/{name}.md").read_text()
        below: dict[str, typer.core.TyperCommand] = getattr(entry, "commands", {})
        for part, one in {name: entry, **below}.items():
            assert part in text, f"{name} {part}"
            for parameter in one.params:
                for option in parameter.opts:
                    assert not option.startswith("--") or option in text, f"{name} {part} {option}"


@pytest.mark.parametrize("path", [*PAGES, ROOT / "docs/python.md"], ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


NUMBERS = ("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen")


def test_the_readme_counts_congestion_controls_as_the_program_lists_them() -> None:
    [(_, listed)] = [group for group in families() if group[0] == "congestion control"]
    counted = re.search(r"(\w+) congestion controls", (ROOT / "README.md").read_text())
    assert counted is not None
    assert NUMBERS.index(counted[1].lower()) + 10 == len(listed)
