"""Boots a guest in QEMU and returns what its cases print to the second serial port.

Without hardware virtualization: TCG emulates the processor, so that the result is the same wherever
it runs. With `clock` the guest's time counts instructions, so that the load of the host changes
nothing. A guest takes one core, and minutes.
"""

import json
import math
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A guest whose first process has not started by then does not boot. On an idle host it takes 4 to 9 s.
BOOT_LIMIT_S = 90.0
POLL_S = 0.2
# The host's other work goes first.
NICENESS = 19
# The first process prints this line before anything else.
BOOTED = "booted"
# Newer kernels allocate the state of sockets (bpf_sk_storage_get) by kmalloc_nolock, which needs
# cmpxchg16b. Without it a program gets no state at all: 7.3 fails so, 6.18 does not.
NEEDS_CX16 = (6, 19)
# One instruction is a nanosecond of the guest's clock, and an idle guest does not wait.
COUNTED = ("-icount", "shift=0,sleep=off")
# Of the guest's calendar, so that each run has the same.
BEGINS = "2026-01-01"


def clock(seed: int) -> tuple[str, ...]:
    """QEMU's words for a guest whose clock counts instructions, and whose random numbers follow a seed.

    The load of the host changes nothing. Runs of one seed still differ by single packets.
    """
    return (*COUNTED, "-seed", str(seed), "-rtc", f"base={BEGINS},clock=vm")


@dataclass(frozen=True)
class Run:
    """What a guest printed: a result per case, and the end of its console."""

    cases: dict[str, dict[str, Any]]
    console: str
    timed_out: bool
    booted: bool
    # From QEMU's start to the guest's first process.
    boot_s: float

    def why_missing(self) -> str:
        """Why a case has no result."""
        if not self.booted:
            return f"did not boot in {self.boot_s:.0f} s"
        return "the time limit was reached" if self.timed_out else "the guest ended"


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
    boot_limit_s: float = BOOT_LIMIT_S,
    until: float = math.inf,
    niceness: int = NICENESS,
) -> Run:
    """Runs cases in a guest. A guest that exceeds its time is ended; finished cases count.

    limit_s counts from the first process, which has boot_limit_s to start; the guest is ended in any
    case when the monotonic clock shows `until`.
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
            *("nice", "-n", str(niceness)),
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
    begun = time.monotonic()
    booted = False
    try:
        booted = _wait_for_first_process(machine, results, min(begun + boot_limit_s, until))
        boot_s = time.monotonic() - begun
        timed_out = not booted and machine.poll() is None
        if booted:
            try:
                machine.wait(max(0.0, min(limit_s, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                timed_out = True
    finally:
        machine.kill()
        machine.wait()
    found: dict[str, dict[str, Any]] = {}
    for line in _text(results).splitlines():
        try:
            found.update(json.loads(line))
        except ValueError:
            continue
    found.pop(BOOTED, None)
    return Run(found, _text(console)[-4000:], timed_out, booted, round(boot_s, 1))


def _wait_for_first_process(
    machine: "subprocess.Popen[bytes]", results: Path, until: float
) -> bool:
    """Whether the guest's first process has started. Ends early where QEMU ends."""
    while BOOTED not in _text(results):
        if machine.poll() is not None:
            # It may have printed and ended since.
            return BOOTED in _text(results)
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
