"""The scenarios whose truth is known: an upload over one router, each with another thing that holds it back.

signal: a name · model: client → router → server, 60 ms round trip, a bottleneck of 20 Mbit/s behind the router (or, for
the phone, at the client) · action: the text of a scenario

Bins of 10 ms and delays in whole bins, so that a bin of the sender is a bin of the receiver 30 ms earlier or later.
The application stops two seconds before the end: what was lost is repaired by then.
"""

from __future__ import annotations

# What a bin of the sender lags behind that of the receiver: the way back of the ACK.
BACK_S = 0.03
BIN_MS = 10.0
DURATION_S = 20
STOP_S = 18
# The handshake's packets have next to no sending time of their own, those of the data have it once: 1,440 bytes more.
OWN_MS = 1_440 * 8 / 20e6 * 1e3

NODES = """[[node]]
name = "client"
[[node]]
name = "router"
[[node]]
name = "server"
"""
HEAD = (
    f"""
name = "{{name}}"
duration = "{DURATION_S} s"
bin = "{BIN_MS:.0f} ms"
"""
    + NODES
)
LINK = """
[[link]]
name = "{name}"
from = "{start}"
to = "{end}"
rate = {rate}
delay = "{delay}"
{more}
"""
FLOW = f"""
[[flow]]
name = "{{name}}"
from = "client"
to = "server"
opens = "sender"
start = "{{start}}"
stop = "{STOP_S} s"
congestion = "{{congestion}}"
{{more}}
"""
FAST = '"1 Gbit/s"'
QUEUE = 'queue = { kind = "droptail", limit = "300 packets" }'


def ways(rate: str, access: str, way: str, bottleneck: str = "", back: str = "") -> str:
    """Access, bottleneck, and the way back. `rate` is that of the bottleneck, in TOML; `access` and `way` are delays."""
    return "".join(
        LINK.format(name=name, start=start, end=end, rate=rate, delay=delay, more=more)
        for name, start, end, rate, delay, more in (
            ("access", "client", "router", FAST, access, ""),
            ("bottleneck", "router", "server", rate, way, bottleneck),
            ("back", "server", "router", FAST, way, back),
            ("home", "router", "client", FAST, access, ""),
        )
    )


def links(bottleneck: str = QUEUE) -> str:
    """20 Mbit/s and 60 ms."""
    return ways('"20 Mbit/s"', "10 ms", "20 ms", bottleneck)


def phone(device: str) -> str:
    """The bottleneck is the phone's own radio link."""
    return device + "".join(
        LINK.format(name=name, start=start, end=end, rate=rate, delay=delay, more="")
        for name, start, end, rate, delay in (
            ("up", "client", "router", '"20 Mbit/s"', "10 ms"),
            ("core", "router", "server", FAST, "20 ms"),
            ("back", "server", "router", FAST, "20 ms"),
            ("down", "router", "client", FAST, "10 ms"),
        )
    )


def flow(
    more: str = "", congestion: str = "cubic", name: str = "upload", start: str = "0 s"
) -> str:
    """A transfer from the client to the server."""
    return FLOW.format(name=name, congestion=congestion, more=more, start=start)


DEVICE = """
[[device]]
node = "client"
link = "up"
qdisc = { kind = "droptail", limit = "1000 packets" }
firmware = { buffer = "300 KB", report_every = "5 ms", report_delay = "100 ms" }
gate = { kind = "none" }
"""

BODIES: dict[str, str] = {
    "deep buffer": links() + flow(),
    "CoDel": links('queue = "codel"') + flow(),
    "ECN": links('queue = { kind = "codel", ecn = true }') + flow("ecn = true"),
    "random loss": links(QUEUE + "\nloss = 0.003") + flow(),
    "receive window": links()
    + flow('[flow.receiver]\nwindow = { kind = "fixed", window = "60 KB" }'),
    "application": links()
    + flow('app = { kind = "rate-profile", profile = [6, 3], unit = "Mbit/s", slot = "2 s" }'),
    "slow reader": links()
    + flow(
        '[flow.receiver]\nwindow = { kind = "fixed", window = "200 KB" }\n'
        'read = { profile = [12, 0], unit = "Mbit/s", slot = "1500 ms", tick = "10 ms" }'
    ),
    "BBR": links() + flow(congestion="bbr"),
    "phone": phone(DEVICE) + flow(),
    "three flows": links()
    + flow(name="first")
    + flow(name="second", start="1 s")
    + flow(name="third", start="2 s", congestion="newreno"),
}


def scenario(name: str) -> str:
    """The scenario file."""
    return HEAD.format(name=name) + BODIES[name]
