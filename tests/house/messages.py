"""Prints the messages of the programs as Markdown, so that the prose check reads them like a page.

Help texts come from the commands themselves: of `unbloat` by its table of commands, of the programs in Rust by `--help`. Error
messages come from the snapshots of tests/python. Rust sources are not parsed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import typer.core
import typer.main

from unbloat.cli.arguments import app

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("unbloat-agent", "unbloat-emu", "unbloat-modem")
ERROR = re.compile(r"^(?:unbloat[\w-]*|Error): ", re.M)


def of_command(name: str, command: typer.core.TyperCommand) -> Iterator[str]:
    """Help of a command, its options and its subcommands."""
    yield f"# {name}"
    if command.help:
        yield command.help
    if command.epilog:
        yield command.epilog
    for parameter in command.params:
        if text := getattr(parameter, "help", None):
            yield text
    below: dict[str, typer.core.TyperCommand] = getattr(command, "commands", {})
    for part, one in below.items():
        yield from of_command(f"{name} {part}", one)


def help_text(*command: str) -> str:
    """What a program prints about itself."""
    return subprocess.run(
        [*command, "--help"], capture_output=True, check=True, text=True, timeout=30
    ).stdout


def entries(text: str) -> Iterator[str]:
    """The texts of a help page: a line that is indented further than an entry continues it."""
    entry: list[str] = []
    for line in [*text.splitlines(), ""]:
        begins = re.match(r" {2,6}(?:-|\w[\w-]* {2,})", line)
        if begins or not line.strip():
            if entry:
                yield " ".join(entry)
            entry = []
        if not re.match(r"\w+:$|Usage:", line) and line.strip():
            # The name of an option or a command is two spaces from its text.
            entry.append(re.split(r" {2,}", line.strip(), maxsplit=1)[-1])


def of_program(name: str) -> Iterator[str]:
    """Help of a program in Rust and of its commands."""
    path = shutil.which(name, path=f"{Path(sys.executable).parent}:/usr/bin")
    if path is None:
        return
    top = help_text(path)
    yield f"# {name}"
    yield from entries(top)
    commands = re.search(r"^Commands:\n((?: .*\n)+)", top, re.M)
    for part in re.findall(r"^ {2}(\w+)", commands[1] if commands else "", re.M):
        if part != "help":
            yield f"# {name} {part}"
            yield from entries(help_text(path, part))


def of_snapshots() -> Iterator[str]:
    """Error messages of the command line."""
    for path in sorted((ROOT / "tests/python/snapshots").rglob("*.txt")):
        _, _, stderr = path.read_text().partition("--- stderr\n")
        if ERROR.search(stderr):
            yield f"# {path.relative_to(ROOT)}"
            yield from stderr.strip().split("\n\n")


def main() -> None:
    """Prints all messages; `<`, `|` and `*` are plain text there."""
    parts = [*of_command("unbloat", typer.main.get_command(app))]  # type: ignore[arg-type]
    for name in PROGRAMS:
        parts += of_program(name)
    parts += of_snapshots()
    print("\n\n".join(re.sub(r"([<|*\[_])", r"\\\1", part) for part in parts))


if __name__ == "__main__":
    main()
