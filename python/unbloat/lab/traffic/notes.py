"""What a scenario asks of an end of a connection and a stock kernel, or a program that is not ours, cannot do.

Said to the user as warnings, once per flow; the flow runs with what there is.
"""

from __future__ import annotations

from typing import Any

# What Linux does with every connection (net/ipv4/tcp_input.c, TCP_DELACK_MIN).
_ACK_EVERY = 2
_ACK_DELAY_MS = 40.0
# Ethernet and TUN, less IP and TCP headers.
_MOST_MSS = 1460
_BROWSER_CONNECTIONS = 6

_FOREIGN = {"iperf3": "iperf3", "browser": "nginx", "player": "nginx"}


def notes(flow: dict[str, Any], by: str = "", changes: list[dict[str, Any]] | None = None) -> list[str]:
    """One line for each thing that will be otherwise; `by`: the role, where it is not our own ends."""
    sender, receiver, app = flow["sender"], flow["receiver"], flow["app"]
    name = flow["name"]
    found = []
    if receiver["ack_every"] != _ACK_EVERY or receiver["ack_delay_ms"] != _ACK_DELAY_MS:
        found.append("ack_every and ack_delay are the kernel's own (2 segments, 40 ms)")
    if receiver["window_update"] != "linux":
        found.append("window updates are the kernel's own")
    law = receiver["window"]["kind"]
    if law not in ("fixed", "autotune"):
        found.append(f"window law {law} is not in the kernel; it tunes the window itself")
    if sender["mss_bytes"] + (12 if sender["timestamps"] else 0) > _MOST_MSS:
        found.append(f"segments have {_MOST_MSS} bytes at most")
    if by:
        program = _FOREIGN[by]
        if receiver["read"] is not None:
            found.append("it reads at once: only our own receiver reads by a profile")
        if law == "fixed" and by == "browser":
            found.append("a browser's window is the namespace's own, not the flow's")
        if by == "iperf3" and law == "fixed" and receiver["window"].get("window"):
            found.append("iperf3 sets a buffer, not a window: the window is what the kernel makes of it")
        found += [f"{program} cannot change its {change['what']} in mid-run" for change in changes or ()]
    if by in ("browser", "player") and flow["sender_opens"]:
        found.append("who fetches opens the connection")
    if by == "browser" and app["connections"] > _BROWSER_CONNECTIONS:
        found.append(f"a browser opens {_BROWSER_CONNECTIONS} connections at most")
    return [f"{name}: {text}" for text in found]
