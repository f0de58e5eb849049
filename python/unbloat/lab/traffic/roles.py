"""Which program plays which role.

A process gets ready, prints `ready`, reads one line (the time zero of the scenario, nanoseconds of CLOCK_MONOTONIC),
works until the scenario is over, and ends at once when its standard input ends, because then its parent is gone.
"""

from __future__ import annotations

import json
import sys

from unbloat.lab.traffic.loop import hurry

ROLES = ("streams", "datagrams", "ping", "iperf3", "nginx", "browser", "player")


def main(argv: list[str]) -> int:
    """Runs one role; 0, or 1 with one line on standard error."""
    if len(argv) != 2 or argv[0] not in ROLES:
        print(f"usage: traffic {{{','.join(ROLES)}}} SPEC", file=sys.stderr)
        return 2
    role, path = argv
    try:
        with open(path, encoding="utf-8") as file:
            spec = json.load(file)
    except (OSError, ValueError) as error:
        print(f"traffic: {path}: {error}", file=sys.stderr)
        return 3
    if role != "browser":
        # Not the browser: its rendering would come before the others' packets.
        hurry()
    try:
        # Only the role's own module is imported: start-up time counts.
        if role == "streams":
            from unbloat.lab.traffic.streams import run
        elif role == "datagrams":
            from unbloat.lab.traffic.datagrams import run
        elif role == "ping":
            from unbloat.lab.traffic.ping import run
        elif role == "iperf3":
            from unbloat.lab.traffic.iperf3 import run
        elif role == "nginx":
            from unbloat.lab.traffic.web_server import run
        elif role == "browser":
            from unbloat.lab.traffic.browser import run
        else:
            from unbloat.lab.traffic.player import run
        run(spec)
    except OSError as error:
        print(f"traffic: {role}: {error}", file=sys.stderr)
        return 1
    return 0
