"""Whether a cure suits the congestion control that was recognised.

signal: a finding's cure and `congestion_control` of its flow · model: BBR is no advice to BBR, and to a sender that is not
known only on a condition · action: what is wrong with it, or nothing
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

# What a cure that names BBR must say of each sender; a delay-based one may need it on a path that loses at random.
WORDS = {
    "bbr": ("runs BBR already",),
    "cubic": ("Use BBR instead of CUBIC (this sender runs CUBIC)",),
    "reno": ("Use BBR instead of Reno (this sender cuts and grows as Reno does)",),
    "loss-based": ("Use BBR at the sender (its congestion control is loss-based)",),
    "delay-based": (
        "sends less when the delay rises already",
        "Use BBR at the sender (its congestion control is delay-based): it does not take such loss",
    ),
    None: ("If the sender uses CUBIC, use BBR instead",),
}
# Senders to which BBR is no cure of a queue.
NOT_NEEDED = ("bbr", "delay-based")
# Findings about another sender than the flow's own, or about any paced one.
OTHERS = ("(BBR, unless it runs that already)", "a paced sender (BBR, or fq)")
ADVICE = ("Use BBR", "use BBR")


def fault(control: str | None, cure: str) -> str | None:
    """What is wrong with `cure` for a sender that was recognised as `control`."""
    rest = cure
    for words in OTHERS:
        rest = rest.replace(words, "")
    if control == "bbr" and any(words in rest for words in ADVICE):
        return f"BBR is advised to BBR: {cure}"
    if "BBR" in rest and not any(words in rest for words in WORDS[control]):
        return f"not worded by {control}: {cure}"
    return None


def plan_advises_bbr(agent: str, capture: Path) -> bool:
    """Whether `plan --capture` has the advice to switch the congestion control."""
    argv = [agent, "plan", "--json", "--capture", str(capture)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return any(advice["cure"] == "congestion" for advice in json.loads(done.stdout)["advice"])
