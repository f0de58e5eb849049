"""`bench/RESULTS.md`: a section for each benchmark, and where it ran."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"


def machine(more: str = "") -> str:
    """One line on where this ran."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} × {model}, Linux {platform.release()}{more}, load {load:.1f} at the start"


def options(about: str | None) -> argparse.ArgumentParser:
    """The options of a benchmark in namespaces."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help="one round of short runs; nothing is written"
    )
    parser.add_argument(
        "--wait", type=float, default=0, help="seconds to wait in all for a quiet machine"
    )
    parser.add_argument("--out", type=Path, help="write the section to this file as well")
    return parser


def missing(reason: str, programs: Sequence[str]) -> str | None:
    """Why nothing can be measured here: `reason` says why root is needed."""
    if os.geteuid() != 0:
        return f"root is needed: {reason}"
    absent = [program for program in programs if not shutil.which(program)]
    return f"{', '.join(absent)} not found" if absent else None


def put_section(title: str, lines: Sequence[str]) -> None:
    """Replaces a benchmark's section of the file, and leaves the others as they are."""
    text = RESULTS.read_text() if RESULTS.exists() else "# Benchmark results\n"
    before, found, rest = text.partition(f"\n{title}\n")
    after = rest[rest.index("\n## ") :] if found and "\n## " in rest else ""
    head, body = before.rstrip("\n"), "\n".join(lines).rstrip("\n")
    RESULTS.write_text(f"{head}\n\n{title}\n\n{body}\n{after}")
