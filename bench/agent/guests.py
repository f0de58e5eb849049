"""Pairs of `never_worse.py` in guests: Debian's kernel of one family under QEMU, with `guest/never_worse.py` in it.

signal: a path · model: a guest boots once for all paths, builds the path once, and starts the agent once; each run resumes from the
stored state without the agent or from that with it (`frozen_guests.py`) · action: the seconds of each file
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.agent.paths import CASES, PathCase

from unbloat.lab.requirements import AGENT, found

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "kernels"))

import image  # noqa: E402
import prepare  # noqa: E402

from bench.agent import frozen_guests  # noqa: E402

# virtio_net has byte queue limits since Linux 6.11.
FAMILY = "6.12"
# Of one step; a busy host is many times slower than an idle one.
LIMIT_S = 1800.0
SCRIPTS = (*sorted((ROOT / "bench/agent/guest").glob("*.py")), ROOT / "bench/agent/transfers.py")
Took = dict[str, float]


def words(case: PathCase) -> dict[str, Any]:
    """A path as the guest reads it."""
    files = [asdict(file) | {"label": file.label} for file in case.files]
    return asdict(case) | {"files": files, "options": list(case.options)}


@dataclass(frozen=True)
class Booted:
    """A guest that has booted, as it was stored."""

    kernel: image.Kernel
    initramfs: Path
    state: Path

    def step(self, word: dict[str, Any], state: Path | None, store: Path | None = None) -> Took:
        """What the guest does at this word, from this state on: stored, or its answer."""
        with frozen_guests.guest(self.kernel, self.initramfs, word, state) as guest:
            if store is None:
                return guest.answer(LIMIT_S)
            guest.store(store, LIMIT_S)
            return {}


@contextmanager
def booted(cases: Sequence[PathCase] = CASES) -> Iterator[Booted]:
    """A guest that knows these paths. Raises `archive.Unavailable`."""
    prepare.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="never-worse-", dir=prepare.CACHE) as place:
        paths = Path(place) / "paths.json"
        paths.write_text(json.dumps([words(case) for case in cases]))
        programs = [Path(found(name) or name) for name in (AGENT, "unbloat-emu")]
        made = prepare.guest(FAMILY, programs, (*SCRIPTS, paths))
        guest = Booted(made.kernel, made.initramfs, Path(place) / "boot")
        guest.step({}, None, guest.state)
        yield guest


def pairs(
    guest: Booted, number_of_case: int, case: PathCase, numbers: Sequence[int]
) -> Iterator[tuple[int, Took, Took]]:
    """The pairs of these numbers: number, run without the agent, run with it.

    With an even number first without the agent, else first with it. Each run resumes from a stored state, so the order decides
    nothing; it is kept for a host that makes a difference after all.
    """
    every = list(range(len(case.files)))
    sets = [[one] for one in every] if case.apart else [every]
    with tempfile.TemporaryDirectory(dir=guest.state.parent) as place:
        off, on = Path(place) / "off", Path(place) / "on"
        guest.step({"do": "build", "path": number_of_case}, guest.state, off)
        guest.step({"do": "agent"}, off, on)
        for number in numbers:
            took: dict[Path, Took] = {off: {}, on: {}}
            for files in sets:
                for state in (off, on) if number % 2 == 0 else (on, off):
                    word = {"do": "play", "pair": number, "files": files}
                    run = guest.step(word, state)
                    run["cpu_s"] += took[state].get("cpu_s", 0.0)
                    took[state] |= run
            yield number, took[off], took[on]
