"""Pairs of `never_worse.py` in guests: Debian's kernel of one family under QEMU, with `guest/never_worse.py` in it.

signal: a path · model: a guest boots once for all paths, builds the path once, and starts the agent once; each run resumes from the
stored state without the agent or from that with it (`frozen_guests.py`) · action: the seconds of each file
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
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

GuestError = frozen_guests.GuestError
# virtio_net has byte queue limits since Linux 6.11.
FAMILY = "6.12"
# Of one step; a busy host is many times slower than an idle one.
LIMIT_S = 1800.0
SCRIPTS = sorted((ROOT / "bench/agent/guest").glob("*.py"))
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
        with frozen_guests.guest(self.kernel, self.initramfs, word, state, store) as guest:
            if store is None:
                return guest.answer(LIMIT_S)
            guest.store(LIMIT_S)
            return {}


def booted(cases: Sequence[PathCase] = CASES) -> Booted:
    """A guest that knows these paths; stored once for the same programs, scripts and paths. Raises `archive.Unavailable`."""
    prepare.CACHE.mkdir(parents=True, exist_ok=True)
    kernel = image.kernel(prepare.ARCHIVE.fetch(FAMILY), prepare.CACHE)
    programs = [Path(found(name) or name) for name in (AGENT, "unbloat-emu")]
    paths = json.dumps([words(case) for case in cases])
    own = sorted(path for path in image.GUEST.iterdir() if path.is_file())
    parts = (*programs, *SCRIPTS, *own, Path(frozen_guests.__file__))
    digest = hashlib.sha256(f"{kernel.release} {paths}".encode())
    for part in parts:
        digest.update(part.read_bytes())
    folder = prepare.CACHE / "never-worse" / digest.hexdigest()[:12]
    guest = Booted(kernel, folder / "initramfs", folder / "boot")
    if not (folder / "stored").exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "paths.json").write_text(paths)
        base = image.userland(prepare.CACHE)
        extra = (*SCRIPTS, folder / "paths.json")
        image.initramfs(guest.initramfs, programs, base, kernel.modules, extra=extra)
        guest.step({}, None, guest.state)
        (folder / "stored").touch()
    return guest


def same_states(case: PathCase) -> str:
    """The same for paths whose runs resume from the same states: what is built, and where the agent is."""
    own = words(case)
    keys = ("link", "scenario", "options", "six", "bridge", "agent_on")
    return json.dumps([own[key] for key in keys])


@contextmanager
def states(guest: Booted, case: PathCase, index: int) -> Iterator[tuple[Path, Path]]:
    """The stored states of a path without the agent and with it. They are kept where the block fails, and used again."""
    folder = guest.state.parent / hashlib.sha256(same_states(case).encode()).hexdigest()[:12]
    off, on = folder / "off", folder / "on"
    for word, state, to in (("build", guest.state, off), ("agent", off, on)):
        done = folder / f"{to.name}-stored"
        if not done.exists():
            shutil.rmtree(to, ignore_errors=True)
            folder.mkdir(exist_ok=True)
            guest.step({"do": word, "path": index}, state, to)
            done.touch()
    yield off, on
    shutil.rmtree(folder)


def pairs(
    guest: Booted, index: int, case: PathCase, numbers: Sequence[int], off: Path, on: Path
) -> Iterator[tuple[int, Took, Took]]:
    """The pairs of these numbers: number, run without the agent, run with it.

    With an even number first without the agent, else first with it. Each run resumes from a stored state, so the order decides
    nothing; it is kept for a host that makes a difference after all.
    """
    every = list(range(len(case.files)))
    sets = [[one] for one in every] if case.apart else [every]
    for number in numbers:
        took: dict[Path, Took] = {off: {}, on: {}}
        for files in sets:
            for state in (off, on) if number % 2 == 0 else (on, off):
                word = {"do": "play", "path": index, "pair": number, "files": files}
                run = guest.step(word, state)
                run["cpu_s"] += took[state].get("cpu_s", 0.0)
                took[state] |= run
        yield number, took[off], took[on]
