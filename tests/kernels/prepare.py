"""A kernel of the archive and all that a guest boots from, ready to run."""

import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import archive
import image
import machine

CACHE = Path(__file__).resolve().parents[2] / "target" / "kernels"
ARCHIVE = archive.Archive(CACHE)
# Of a case; a busy host is several times slower than an idle one.
LIMIT_S = 120


@dataclass(frozen=True)
class Guest:
    """A kernel and all that it boots from, in a folder of its own."""

    kernel: image.Kernel
    initramfs: Path
    folder: Path

    def run(
        self,
        cases: list[str],
        until: float = math.inf,
        words: str = "",
        devices: Sequence[str] = (),
        limit_s: float = LIMIT_S,
    ) -> machine.Run:
        """Boots it, and runs these cases, each with a limit of time.

        Not longer than until that time of the monotonic clock; words and devices as in
        `machine.boot`.
        """
        kernel = self.kernel
        print(f"{kernel.release}: {', '.join(cases)}", file=sys.stderr)
        return machine.boot(
            kernel.image,
            self.initramfs,
            kernel.release,
            cases,
            limit_s * len(cases),
            self.folder,
            words=words,
            devices=devices,
            until=until,
        )


def guest(family: str, agent: Path) -> Guest:
    """Fetches and unpacks a kernel. Raises `archive.Unavailable`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    kernel = image.kernel(ARCHIVE.fetch(family), CACHE)
    folder = CACHE / "guest" / family
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    base = image.userland(CACHE)
    whole = image.initramfs(folder / "initramfs", [agent], base, kernel.modules)
    return Guest(kernel, whole, folder)
