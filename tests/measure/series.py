"""Client, home router, provider's router and server in a row, with a slow link between two of them, or a shaper at the home router."""

from __future__ import annotations

from pathlib import Path
from socket import IPPROTO_UDP

from path import Link, Measured

NODES = ("client", "home", "provider", "server")
# Of each pair of neighbours the nearer one's address, then the farther one's.
ADDRESSES = (
    ("192.168.1.2", "192.168.1.1"),
    ("100.64.0.2", "100.64.0.1"),
    ("203.0.113.1", "203.0.113.5"),
)
# The same of IPv6: a unique local prefix at home (RFC 4193), and the one for documentation (RFC 3849).
ADDRESSES6 = (
    ("fd00:1::2", "fd00:1::1"),
    ("2001:db8:1::2", "2001:db8:1::1"),
    ("2001:db8:2::1", "2001:db8:2::5"),
)
SLOW_UP, SLOW_DOWN, WIDE = Link(8, 200), Link(20, 500), Link(100, 1000)
# Of each pair, one way.
DELAY_MS = (1.0, 6.0, 4.0)


class Series(Measured):
    """`slow`: the number of the slow pair, 0 next to the client, or none; `six`: over IPv6."""

    def __init__(self, folder: Path, slow: int | None, six: bool = False) -> None:
        sysctls = {
            "net.ipv6.conf.default.disable_ipv6": "0" if six else "1",
            "net.ipv6.conf.default.accept_ra": "0",
            "net.ipv4.conf.default.rp_filter": "0",
        }
        self.slow, self.six = slow, six
        self.addresses = ADDRESSES6 if six else ADDRESSES
        super().__init__(folder, *NODES, server=self.addresses[-1][1], sysctls=sysctls)
        self.hops = [pair[1] for pair in self.addresses[:-1]]
        """The routers, as the client sees them."""
        self.devices: dict[tuple[str, str], str] = {}
        """Of each node, towards each neighbour."""

    def build(self) -> None:
        """Addresses, routes, the emulator's clock."""
        text = 'name = "series"\nduration = "100 s"\n'
        text += "".join(f'[[node]]\nname = "{name}"\n' for name in NODES)
        for pair, delay_ms in enumerate(DELAY_MS):
            near, far = NODES[pair], NODES[pair + 1]
            for start, end, slow in ((near, far, SLOW_UP), (far, near, SLOW_DOWN)):
                link = slow if pair == self.slow else WIDE
                text += f"""[[link]]
name = "{start}-{end}"
from = "{start}"
to = "{end}"
rate = "{link.mbps} Mbit/s"
delay = "{delay_ms} ms"
queue = {{ kind = "droptail", limit = "{link.queue_kb} KB" }}
"""
        text += '[[flow]]\nfrom = "client"\nto = "server"\n'
        for device in self.emulate(text):
            pair, farther = min(device.node, device.peer), int(device.node > device.peer)
            own, peer = self.addresses[pair][farther], self.addresses[pair][1 - farther]
            node, bits = NODES[device.node], 128 if self.six else 32
            self.devices[node, NODES[device.peer]] = device.name
            self.address(node, device.name, f"{own}/{bits}")
            self.ip(node, f"route add {peer}/{bits} dev {device.name} src {own}")
            # What is beyond that neighbour: the other pairs, and of them each address.
            beyond = self.addresses[:pair] if farther else self.addresses[pair + 1 :]
            for address in (one for both in beyond for one in both):
                self.ip(node, f"route add {address}/{bits} via {peer} dev {device.name} src {own}")
        for router in NODES[1:-1]:
            self.sysctl(router, "net.ipv4.ip_forward", "1")
            if self.six:
                self.sysctl(router, "net.ipv6.conf.all.forwarding", "1")
        self.go()

    def shape_uploads(self, passes: str, *, blocks_quic: bool = False) -> None:
        """8 Mbit/s at the home router, with 200 packets of queue. What passes that queue: `udp`, `other udp`, which is no QUIC, or
        nothing. QUIC is dropped, or is not."""
        device = ("dev", self.devices["home", "provider"])
        rates = ("htb", "rate", "4mbit", "ceil", "8mbit", "burst", "3000", "cburst", "3000")
        for words in (
            ("qdisc", "add", *device, "root", "handle", "1:", "htb", "default", "20"),
            ("class", "add", *device, "parent", "1:", "classid", "1:1", *rates[:2], "8mbit"),
            ("class", "add", *device, "parent", "1:1", "classid", "1:10", *rates, "prio", "0"),
            ("class", "add", *device, "parent", "1:1", "classid", "1:20", *rates, "prio", "1"),
            ("class", "add", *device, "parent", "1:1", "classid", "1:30", *rates, "prio", "0"),
            ("qdisc", "add", *device, "parent", "1:20", "pfifo", "limit", "200"),
            # It takes no packet at all.
            ("qdisc", "add", *device, "parent", "1:30", "pfifo", "limit", "0"),
        ):
            self.ask("home", "tc", *words)
        udp = ("u32", "match", "ip", "protocol", str(IPPROTO_UDP), "0xff")
        # The long header of QUIC, in the first bit behind the headers of IPv4 and UDP.
        quic, other = ((*udp, "match", "u8", bit, "0x80", "at", "28") for bit in ("0x80", "0x00"))
        filters = []
        if passes:
            filters.append((*(udp if passes == "udp" else other), "flowid", "1:10"))
        if blocks_quic:
            filters.append((*quic, "flowid", "1:30"))
        for words in filters:
            self.ask(
                "home", "tc", "filter", "add", *device, "parent", "1:", "protocol", "ip", *words
            )
