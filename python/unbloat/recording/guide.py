"""What to type on each system, so that a slow or lagging transfer is captured with a ping beside it.

Each line of a command works as it stands after its names are replaced. `docs/commands/record.md` prints every system, compared
by a test, so that page and program cannot differ.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

SNAP = 128
"""Bytes of each packet: IPv6 and TCP with all options, and hardly any content."""
BUFFER_KIB = 16_384
"""Of the kernel, for tcpdump: a second of full segments cut to `SNAP`, at several gigabits per second."""
PING = "1.1.1.1"
"""A host beyond the slow link that answers pings; any other will do."""
KINDS = "tcp or udp or icmp or icmp6"
"""What is captured: transfers and pings."""
FILE = "lag.pcap"
TRANSFER = (
    "After five seconds start the upload that lags (a backup, a large file to a cloud drive) and let it run for 30 s. "
    "Record a download separately."
)


@dataclass(frozen=True)
class System:
    """A system on which a capture is taken."""

    name: str
    title: str
    start: Sequence[str]
    """Lines that begin the capture."""
    stop: Sequence[str]
    """What ends it: sentences, or lines of a command."""
    ping: str
    """The line for a second window."""
    notes: Sequence[str]
    file: str = FILE


SYSTEMS = (
    System(
        "linux",
        "Linux, as root",
        (f"sudo tcpdump -i eth0 -s {SNAP} -B {BUFFER_KIB} -w {FILE} '{KINDS}'",),
        ("Ctrl-C",),
        f"ping -i 0.2 {PING}",
        (
            f"`ip route get {PING}` names the interface behind `dev`. Use it in place of eth0.",
            f"`sudo unbloat record {FILE}` does all of this.",
        ),
    ),
    System(
        "macos",
        "macOS",
        (f"sudo tcpdump -i en0 -s {SNAP} -w {FILE} '{KINDS}'",),
        ("Ctrl-C",),
        f"ping {PING}",
        ("`route get default` names the interface. Use it in place of en0.",),
    ),
    System(
        "windows",
        "Windows 10 (2004) or later, as administrator",
        (f"pktmon start --capture --comp nics --pkt-size {SNAP} --file-name lag.etl",),
        ("pktmon stop", "pktmon etl2pcap lag.etl --out lag.pcapng"),
        f"ping -t {PING}",
        (
            "Wireshark writes such a file, too.",
            "Windows sends no TCP timestamps by default. Of a download there is only an upper bound of the RTT; record an upload.",
        ),
        "lag.pcapng",
    ),
    System(
        "android",
        "Android with root, from a computer with adb",
        (f"adb shell su -c 'tcpdump -i rmnet_data0 -s {SNAP} -w -' > {FILE}",),
        ("Ctrl-C",),
        f"adb shell ping -i 0.2 {PING}",
        (
            "`adb shell ip route get 1.1.1.1` names the interface behind `dev`. On Wi-Fi it is wlan0.",
            "Without root, capture on the Wi-Fi router, or on a computer that uses the phone's hotspot. Apps that capture as a VPN "
            "record their own TCP and not that of the network: RTT and windows are wrong there.",
        ),
    ),
    System(
        "router",
        "Router with OpenWrt, from a computer with ssh",
        (f"ssh root@192.168.1.1 \"tcpdump -i br-lan -s {SNAP} -w - 'not port 22'\" > {FILE}",),
        ("Ctrl-C",),
        f"ping {PING}",
        (
            "tcpdump is a package there: `opkg install tcpdump-mini`, or `apk add tcpdump-mini`.",
            "br-lan shows each host by its own address. The ping runs on a host behind the router.",
        ),
    ),
)
NAMES = tuple(system.name for system in SYSTEMS)


def this_system() -> str:
    """The name of the system that this program runs on; Linux where it is another Unix."""
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")


def guide(name: str) -> list[str]:
    """The lines that `unbloat record` prints for a system: steps, notes, and the command that reads the capture."""
    system = next(system for system in SYSTEMS if system.name == name)
    return [
        f"{system.title}:",
        "",
        "1. Begin the capture.",
        *(f"     {line}" for line in system.start),
        "2. In a second window, let a ping run beside it.",
        f"     {system.ping}",
        f"3. {TRANSFER}",
        "4. End the ping and the capture.",
        *(f"     {line}" for line in system.stop),
        "5. Read it.",
        f"     unbloat analyze {system.file} --report lag.html",
        "",
        *(f"Note: {note.replace('`', '')}" for note in system.notes),
    ]
