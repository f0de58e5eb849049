"""What a program that is not ours does otherwise than the scenario says: warnings, said once per flow.

What no program can do on a stock kernel is refused before anything starts (`lab/setup/unsupported.py`).
"""

from __future__ import annotations

from typing import Any

from unbloat.lab.traffic.page import BROWSER_CONNECTIONS


def notes(flow: dict[str, Any], role: str) -> list[str]:
    """One line for each thing; `role`: `iperf3`, `browser` or `player`."""
    receiver, app = flow["receiver"], flow["app"]
    found = []
    if receiver["read"] is not None and role != "player":
        found.append(f"{role} reads at once: only our own receiver reads by a profile")
    if (
        role == "iperf3"
        and receiver["window"]["kind"] == "fixed"
        and receiver["window"].get("window")
    ):
        found.append(
            "iperf3 sets a buffer, not a window: the window is what the kernel makes of it"
        )
    if role != "iperf3" and flow["sender_opens"]:
        found.append("who fetches opens the connection")
    if role == "browser" and app["connections"] > BROWSER_CONNECTIONS:
        found.append(f"a browser opens {BROWSER_CONNECTIONS} connections at most")
    return found
