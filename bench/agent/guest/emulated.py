"""In a guest: a phone behind the link that `unbloat-emu` emulates, a server, and a notebook tethered to the phone.

The same addresses, routes and scenario as in `tests/agent/uplink.py`, without the lab, whose Python the guest does not have.
"""

import json
import subprocess
from pathlib import Path

from testbed import inside, shell

CUBIC = "congctl cubic"


def build(scenario: str, options: list[str], six: bool, bridge: bool) -> None:
    """Nodes `phone`, `server` and `notebook`, the link, and routes."""
    for node in ("phone", "server", "notebook"):
        shell(f"ip netns add {node} && ip -n {node} link set lo up")
        sysctl(node, "net.ipv6.conf.default.disable_ipv6=1", "net.ipv4.tcp_no_metrics_save=1")
    phone, far = emulator(scenario, options)
    shell("ip link add lan netns phone type veth peer name lan netns notebook")
    at_notebook = "lan"
    if bridge:
        shell("ip -n notebook link add br0 type bridge && ip -n notebook link set lan master br0")
        shell("ip -n notebook link set lan up")
        at_notebook = "br0"
    for node, device, address in (
        ("phone", phone, "10.0.0.1/32"),
        ("server", far, "10.0.0.2/32"),
        ("phone", "lan", "10.0.1.1/24"),
        ("notebook", at_notebook, "10.0.1.2/24"),
    ):
        shell(f"ip -n {node} addr add {address} dev {device}")
        shell(f"ip -n {node} link set dev {device} up")
    shell(f"ip -n phone route add 10.0.0.2/32 dev {phone} src 10.0.0.1 {CUBIC}")
    for behind in ("10.0.0.1", "10.0.1.2"):
        shell(f"ip -n server route add {behind}/32 dev {far} src 10.0.0.2 {CUBIC}")
    shell(f"ip -n notebook route add default via 10.0.1.1 {CUBIC}")
    shell(f"ip -n phone route add default dev {phone}")
    sysctl("phone", "net.ipv4.ip_forward=1")
    if six:
        for node, device, address in (("phone", phone, "fd00::1"), ("server", far, "fd00::2")):
            sysctl(node, f"net.ipv6.conf.{device}.disable_ipv6=0")
            shell(f"ip -n {node} addr add {address}/64 dev {device} nodad")


def emulator(scenario: str, options: list[str]) -> tuple[str, str]:
    """Starts `unbloat-emu` and its clock; the devices of phone and server."""
    file = Path("/run/scenario.toml")
    file.write_text(scenario)
    argv = ["unbloat-emu", "run", str(file), "--out", "/run/emu", *options]
    for node, space in (("client", "phone"), ("server", "server")):
        argv += ["--netns", f"{node}={space}"]
    running = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdin is not None
    devices = json.loads(running.stdout.readline())["devices"]
    names = {device["node"]: device["name"] for device in devices}
    print("go", file=running.stdin, flush=True)
    if json.loads(running.stdout.readline())["event"] != "started":
        raise RuntimeError("the emulator did not start")
    # Its counters, once a second, would fill the pipe.
    subprocess.Popen(["cat"], stdin=running.stdout, stdout=subprocess.DEVNULL)
    return names[0], names[1]


def sysctl(node: str, *settings: str) -> None:
    """Of the node's network namespace."""
    argv = inside(node, "sysctl", "-w", *settings)
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
