"""A measurement over Wi-Fi inside the guest: two radios of mac80211_hwsim, which exist without hardware, in one cell.

The result: what `unbloat-measure` says of its surroundings, and what `iw` showed before and after it. Prints one line of
JSON to the second serial port, as the other cases do.
"""

import json
import subprocess
import threading
import time
import traceback
from pathlib import Path

from testbed import inside, shell

SERVER = "10.0.0.2"
JOIN = "iw dev wlan0 ibss join cell 2412 fixed-freq 02:00:00:00:0c:e1"
# Of guest's time, after the measurement began: its upload runs then, since packets to the server are given up.
OFF_AT_S, OFF_S = 5.0, 0.3
# Pings until the cell is joined; it takes seconds.
JOINED_AFTER = 30


def build() -> None:
    """Namespaces c and s, each with a radio, both in the cell `cell` without an access point."""
    shell("modprobe mac80211_hwsim radios=2")
    phys = sorted(Path("/sys/class/ieee80211").iterdir())
    for space, phy, address in (("c", phys[0], "10.0.0.1"), ("s", phys[1], SERVER)):
        device = next(phy.glob("device/net/*")).name
        shell(f"ip netns add {space} && ip -n {space} link set lo up")
        shell(f"iw phy {phy.name} set netns name {space}")
        for command in (
            f"iw dev {device} set type ibss",
            f"ip link set {device} name wlan0",
            "ip link set wlan0 up",
            # Leaves a survey of every channel.
            "iw dev wlan0 scan",
            JOIN,
            f"ip addr add {address}/24 dev wlan0",
        ):
            shell(f"ip netns exec {space} {command}")
    # The cell is joined when one receives from the other. A ping ends at the first that finds no station.
    for _ in range(JOINED_AFTER):
        if ", 0% packet loss" in shell(f"ip netns exec c ping -c 1 -w 2 {SERVER}", check=False):
            return
    raise RuntimeError("the radios receive nothing from each other")


def shown() -> dict[str, str]:
    """What iw says of the client's station and channel."""
    words = ("station", "survey")
    return {word: shell(f"ip netns exec c iw dev wlan0 {word} dump") for word in words}


def interrupt() -> None:
    """The server's radio leaves the cell for a moment: packets to it are sent again, and given up."""
    time.sleep(OFF_AT_S)
    shell("ip netns exec s ip link set wlan0 down")
    time.sleep(OFF_S)
    shell("ip netns exec s ip link set wlan0 up")
    shell(f"ip netns exec s {JOIN}")


def measured() -> dict[str, object]:
    """One quick upload between the radios."""
    build()
    with subprocess.Popen(
        inside("s", "unbloat-measure", "serve", "--listen", f"{SERVER}:7070"),
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout
            words = next(line.split() for line in server.stdout if "--pin" in line)
            trust = [
                part for at in ("--token", "--pin") for part in (at, words[words.index(at) + 1])
            ]
            before = shown()
            threading.Thread(target=interrupt).start()
            done = subprocess.run(
                [
                    # It sees the namespace's own /sys, which nsenter leaves as it is.
                    *("ip", "netns", "exec", "c", "unbloat-measure", f"{SERVER}:7070", *trust),
                    *("--quick", "--phases", "up", "--json"),
                ],
                capture_output=True,
                text=True,
                timeout=600,
            )
            after = shown()
        finally:
            server.terminate()
    answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    return {
        "surroundings": answer.get("surroundings"),
        "error": done.stderr[-1000:],
        "before": before,
        "after": after,
    }


try:
    result = measured()
except Exception:
    result = {"failed": traceback.format_exc()[-2000:]}
with open("/dev/ttyS1", "w") as port:
    print(json.dumps({"wifi": result}), file=port)
