"""Stands in for unbloat-emu where it has to go wrong: `fake_emulator.py MODE run … --netns NODE=NAMESPACE …`.

Modes: `dies` before it says anything · `silent` · `nonsense` · `other` event than expected · `half` of a device · `stops`
in mid-run with a reason · `killed` in mid-run · `hangs` at the end. Devices are a veth pair, which shapes nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

NAMES = ("up", "down")


def say(**event: object) -> None:
    """An event."""
    print(json.dumps(event), flush=True)


def main(mode: str, argv: list[str]) -> int:
    """Its life up to the mistake."""
    if mode == "dies":
        print("fake: I have read the scenario", file=sys.stderr)
        print("fake: and I do not like it", file=sys.stderr)
        return 3
    if mode == "silent":
        time.sleep(60)
    if mode == "nonsense":
        print("hello", flush=True)
        time.sleep(60)
    if mode == "other":
        say(event="counters", t_s=0)
        time.sleep(60)
    namespaces = [argv[i + 1].split("=", 1)[1] for i, word in enumerate(argv) if word == "--netns"]
    line = ["ip", "-netns", namespaces[0], "link", "add", "name", NAMES[0], "type", "veth"]
    subprocess.run([*line, "peer", "name", NAMES[1], "netns", namespaces[1]], check=True)
    devices: list[dict[str, object]] = []
    for node, name in enumerate(NAMES):
        subprocess.run(
            ["ip", "-netns", namespaces[node], "link", "set", "dev", name, "up"], check=True
        )
        devices.append({"node": node, "peer": 1 - node, "name": name, "links": [node, 1 - node]})
    if mode == "half":
        del devices[1]["links"]
    say(event="devices", devices=devices)
    assert sys.stdin.readline() == "go\n"
    zero = time.monotonic_ns() + 20_000_000
    say(event="started", t0_monotonic_ns=zero, t0_unix_ns=time.time_ns() + 20_000_000)
    time.sleep(0.5)
    if mode == "stops":
        print("fake: cannot write queues.jsonl", file=sys.stderr)
        return 1
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
