"""Boots a guest in QEMU and returns what its cases print to the second serial port.

Without hardware virtualization: TCG emulates the processor, so that the result is the same wherever
it runs. A guest takes one core, and minutes.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Newer kernels allocate the state of sockets (bpf_sk_storage_get) by kmalloc_nolock, which needs
# cmpxchg16b. Without it a program gets no state at all: 7.3 fails so, 6.18 does not.
NEEDS_CX16 = (6, 19)


@dataclass(frozen=True)
class Run:
    """What a guest printed: a result per case, and the end of its console."""

    cases: dict[str, dict[str, Any]]
    console: str
    timed_out: bool


def processor(release: str) -> str:
    """QEMU's model of a processor for a kernel.

    QEMU 7.2 once spoilt the flags after cmpxchg16b (a double fault in kmalloc of Linux 6.12), so
    kernels that do without it get a processor without it. Five levels of page tables cost time.
    """
    major, minor = (int(part) for part in release.split(".")[:2])
    return "max,-la57" if (major, minor) >= NEEDS_CX16 else "max,-la57,-cx16"


def boot(
    image: Path,
    initramfs: Path,
    release: str,
    cases: list[str],
    limit_s: float,
    folder: Path,
    words: str = "",
    devices: Sequence[str] = (),
) -> Run:
    """Runs cases in a guest. A guest that exceeds its time is ended; finished cases count.

    words: more words of the kernel's command line; devices: more of QEMU's.
    """
    console, results = folder / "console.txt", folder / "results.jsonl"
    for path in (console, results):
        path.unlink(missing_ok=True)
    words = (
        f"console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off cases={','.join(cases)} {words}"
    )
    machine = subprocess.Popen(
        [
            "nice",
            "-n",
            "19",
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-cpu",
            processor(release),
            "-smp",
            "1",
            "-m",
            "1024",
            "-nodefaults",
            "-display",
            "none",
            "-no-reboot",
            "-kernel",
            str(image),
            "-initrd",
            str(initramfs),
            "-append",
            words,
            "-serial",
            f"file:{console}",
            "-serial",
            f"file:{results}",
            *devices,
        ],
        stdin=subprocess.DEVNULL,
    )
    timed_out = False
    try:
        machine.wait(limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        machine.kill()
        machine.wait()
    found: dict[str, dict[str, Any]] = {}
    printed = results.read_text(errors="replace") if results.exists() else ""
    for line in printed.splitlines():
        try:
            found.update(json.loads(line))
        except ValueError:
            continue
    text = console.read_text(errors="replace") if console.exists() else ""
    return Run(found, text[-4000:], timed_out)
