"""A kernel of the archive and all that a guest boots from, ready to run."""

import math
import shutil
import sys
import tempfile
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
        seed: int | None = None,
        boot_limit_s: float = machine.BOOT_LIMIT_S,
        niceness: int = machine.NICENESS,
    ) -> machine.Run:
        """Boots it, and runs these cases, each with a limit of time.

        Not longer than until that time of the monotonic clock; words, devices, boot_limit_s and
        niceness as in `machine.boot`. With a seed its clock counts instructions
        (`machine.clock`).
        """
        kernel = self.kernel
        number = "" if seed is None else f" (seed {seed})"
        print(f"{kernel.release}{number}: {', '.join(cases)}", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            return machine.boot(
                *(kernel.image, self.initramfs, kernel.release, cases),
                limit_s * len(cases),
                Path(folder),
                words=words,
                devices=(*devices, *(() if seed is None else machine.clock(seed))),
                boot_limit_s=boot_limit_s,
                niceness=niceness,
                until=until,
            )


def guest(
    family: str, program: Path, programs: Sequence[Path] = (), flavour: str = archive.CLOUD
) -> Guest:
    """Fetches and unpacks a kernel. Raises `archive.Unavailable`.

    program: what is tested; programs: tests for its folder `tests`; flavour: which of Debian's builds.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    kernel = image.kernel(ARCHIVE.fetch(family, flavour), CACHE)
    folder = CACHE / "guest" / (family if flavour == archive.CLOUD else f"{family}-{flavour}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    base = image.userland(CACHE)
    whole = image.initramfs(folder / "initramfs", [program], base, kernel.modules, tests=programs)
    return Guest(kernel, whole, folder)
