"""In a guest: links that the host's kernel may lack between a phone and a router, and a fast one.

The router's token buckets give 5 Mbit/s with a FIFO of 75 KB in each direction, netem at the server adds 60 ms: VLAN, WireGuard, and
a driver with byte queue limits, two virtio cards of the guest that QEMU connects by a hub. `veth` has no router and no limit.
"""

from pathlib import Path

import testbed
from testbed import shell, write_in

QUEUES = (("c0", "5mbit", 75_000), ("s0", "5mbit", 75_000))
# Keys of the tunnel's two ends: any 32 bytes are a private key.
KEYS = {
    "c": "Y2xpZW50Y2xpZW50Y2xpZW50Y2xpZW50Y2xpZW50MDA=",
    "r": "cm91dGVycm91dGVycm91dGVycm91dGVycm91dGVyMDA=",
}
# A window of 2 Gbit/s × 40 ms, as `bench/agent/pair.py` has it.
BUFFERS = (("tcp_wmem", "4096 65536 134217728"), ("tcp_rmem", "4096 131072 134217728"))


def cards() -> None:
    """The same names for two cards of the machine, which a hub connects."""
    for device, space, name in (("card0", "c", "eth0"), ("card1", "r", "c0")):
        shell(f"ip link set {device} netns {space} && ip -n {space} link set {device} name {name}")
    shell("ip netns exec c ls -d /sys/class/net/eth0/queues/tx-0/byte_queue_limits")


def vlan() -> None:
    """VLAN 7 on the pair."""
    for space, device in (("c", "eth0"), ("r", "c0")):
        shell(f"ip -n {space} link add link {device} name inner type vlan id 7")


def wireguard() -> None:
    """A tunnel on the pair, between 10.0.9.1 and .2."""
    public = {space: shell(f"echo {key} | wg pubkey") for space, key in KEYS.items()}
    for space, device, peer, number in (("c", "eth0", "r", 1), ("r", "c0", "c", 2)):
        Path("/run/key").write_text(KEYS[space])
        shell(f"ip -n {space} addr add 10.0.9.{number}/24 dev {device}")
        shell(f"ip -n {space} link add inner type wireguard")
        shell(
            f"ip netns exec {space} wg set inner listen-port 51820 private-key /run/key"
            f" peer {public[peer]} allowed-ips 0.0.0.0/0 endpoint 10.0.9.{3 - number}:51820"
        )


def pair() -> None:
    """A device `veth` each, with all offloads."""
    for space in "cs":
        shell(f"ip netns add {space} && ip -n {space} link set lo up")
        for name, value in (*BUFFERS, ("tcp_no_metrics_save", "1")):
            write_in(space, f"/proc/sys/net/ipv4/{name}", value)
    shell("ip link add eth0 netns c type veth peer name eth0 netns s")
    for space, address in (("c", "10.0.2.1"), ("s", testbed.SERVER)):
        shell(f"ip -n {space} addr add {address}/24 dev eth0 && ip -n {space} link set eth0 up")


def build(link: str) -> None:
    """The path with this link; its spaces are named `c` and `server`."""
    if link == "veth":
        pair()
    else:
        testbed.build(
            pair=cards if link == "bql" else testbed.veth,
            inner={"vlan": vlan, "wireguard": wireguard}.get(link),
            queues=QUEUES,
            hystart=True,
        )
    # Its second name.
    shell("ln -s s /run/netns/server")
