"""The page of `never_worse.py`: a row for each file of each path, and the processor time.

A row passes where its whole 95 % interval lies below the limit: 1.05 of the completion time, and for files of at least 3 s
1 / 0.98, the limit of goodput. With fewer pairs than were fixed beforehand a row does not pass.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from bench.agent.paths import CASES

from unbloat.scenario.confidence import spread

LIMIT, LIMIT_LONG, LONG_S = 1.05, 1 / 0.98, 3.0


def interval(off: list[float], on: list[float]) -> tuple[float, float, float]:
    """The mean ratio of on to off, and its 95 % interval."""
    found = spread([math.log(b / a) for a, b in zip(off, on, strict=True)])
    half = math.inf if found.half is None else found.half
    return math.exp(found.mean), math.exp(found.mean - half), math.exp(found.mean + half)


def page(lines: list[dict[str, Any]]) -> str:
    """The tables."""
    rows, processor = [], []
    for case in CASES:
        mine = [line for line in lines if line["path"] == case.label]
        if mine:
            used = statistics.median(line["on"]["cpu_s"] for line in mine)
            lasted = statistics.median(
                sum(line["on"][file.label] for file in case.files) for line in mine
            )
            processor.append(f"| {case.label} | {used * 1e3:.0f} | {lasted:.1f} |")
        for file in case.files if mine else ():
            off, on = ([float(line[side][file.label]) for line in mine] for side in ("off", "on"))
            mean, low, high = interval(off, on)
            limit = LIMIT_LONG if statistics.median(off) >= LONG_S else LIMIT
            passed = "pass" if high <= limit else "no"
            if len(mine) < case.pairs:
                passed = "not complete"
            rows.append(
                f"| {case.label} | {file.label} | {len(mine)} of {case.pairs} | {statistics.median(off):.3f} | {statistics.median(on):.3f} "
                f"| {mean:.3f} ({low:.3f} to {high:.3f}) | {limit:.3f} | {passed} |"
            )
    passing = sum(row.endswith("| pass |") for row in rows)
    days = sorted({line["date"] for line in lines})
    commits = sorted({line["commit"] for line in lines})
    kernels = sorted({line["kernel"] for line in lines})
    missing = [case.label for case in CASES if case.label not in {line["path"] for line in lines}]
    head = f"""# What the agent costs where it does not help

Made by `make never-worse` on {", ".join(days)} from commit {", ".join(commits)}. Each row compares the completion time of a file with the agent's
defaults to that without the agent, in pairs of runs in alternating order. A row passes if its whole 95 % interval lies below the
limit: 1.05, and 1.020 (2 % of goodput) for files of at least {LONG_S:g} s. {passing} of {len(rows)} rows pass. The number of pairs was
fixed before the runs. Paths without any pair yet: {"; ".join(missing) or "none"}.

Every row is from a guest under QEMU without hardware virtualization, with Linux {", ".join(kernels)} and one processor. The guest's clock
counts instructions: one is a nanosecond, and an idle guest does not wait.

- The load of the host changes nothing: the same run twice gives the same times, up to some nanoseconds. The driver with byte queue
  limits is an exception: QEMU carries its packets outside the guest's clock, so that these times vary with the load.
- Both runs of a pair resume from one stored state of the path: one as it is, the other after the agent has started. The link's random
  numbers are the same in both. Pairs differ by their number: so many more packets pass beforehand, and the files begin later.
- The time that the agent and its BPF programs take delays the transfer, as on a computer with one processor. An instruction that
  misses the cache costs as little as any other. Most processors execute more than one instruction in a nanosecond, so the agent's
  share of the time is larger here.
- The intervals say how much start phases and random numbers matter, not what another computer or kernel would do.

| path | file | pairs | off, s | on, s | on / off (95 %) | limit | |
|---|---|---|---|---|---|---|---|
"""
    tail = """
## Processor time

What the program `unbloat-agent` used in a run with all files of a path, its start included; the median of the runs. A millisecond is a
million instructions. The BPF programs' time is not in it.

| path | ms of processor | s of transfers |
|---|---|---|
"""
    return head + "\n".join(rows) + "\n" + tail + "\n".join(processor) + "\n"
