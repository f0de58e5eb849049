"""What a process and the machine cost: processors and memory."""

from __future__ import annotations

import time
from pathlib import Path


def busy(seconds: float = 0.4) -> float:
    """Share of all processors in use for so long; before and after a run that is what others use."""

    def used() -> tuple[int, int]:
        # user nice system idle iowait irq softirq steal
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return sum(fields) - fields[3] - fields[4], sum(fields)

    first, all_first = used()
    time.sleep(seconds)
    last, all_last = used()
    return (last - first) / max(1, all_last - all_first)


def memory_mb(pid: int) -> float:
    """Its resident set now, in MB of 10⁶ bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1.024e-3
    return 0.0
