"""Network namespaces of a run: one per node, with addresses, routes and the TCP settings of the scenario.

signal: a plan, the devices that the emulator made · model: every node has one address, a /32 on all its devices; routes
by the fewest hops · action: `ip` and, inside the namespaces, sysctls. The machine itself is never changed.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unbloat.errors import LabError
from unbloat.lab.requirements import found
from unbloat.lab.setup.routes import first_links
from unbloat.lab.setup.tcp_settings import Plan, route_options, sysctls

# Timeout of one `ip` call: a kernel that takes longer hangs.
IP_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Device:
    """A TUN device of the emulator: a node's way to a neighbour."""

    node: int
    peer: int
    name: str
    outgoing: int | None
    """Number of the link that it feeds."""

    @staticmethod
    def of(said: dict[str, Any]) -> Device:
        """From the emulator's event."""
        return Device(said["node"], said["peer"], said["name"], said["links"][0])


def create(namespaces: Sequence[str], plan: Plan) -> None:
    """Makes the namespaces, with their sysctls and loopback."""
    batch(None, [f"netns add {name}" for name in namespaces])
    for name, settings in zip(namespaces, sysctls(plan), strict=True):
        batch(name, ["link set lo up"])
        set_sysctls(name, settings)


def set_sysctls(namespace: str, settings: dict[str, str]) -> None:
    """Of the namespace alone. What this kernel does not have (IPv6) is left out."""
    script = ""
    for name, value in settings.items():
        path = shlex.quote(f"/proc/sys/{name.replace('.', '/')}")
        # Names of devices have no dots here: only the scenario's own keys come this way.
        script += f"if [ -e {path} ]; then echo {shlex.quote(value)} > {path} || exit 1; fi\n"
    argv = [found("ip") or "ip", "netns", "exec", namespace, "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=IP_TIMEOUT_S)
    if done.returncode != 0:
        raise LabError(f"{namespace}: settings refused: {line_of(done.stderr, -1)}")


def connect(namespaces: Sequence[str], plan: Plan, devices: Sequence[Device]) -> None:
    """Addresses and routes, when the devices are there."""
    for node, namespace in enumerate(namespaces):
        own = [device for device in devices if device.node == node]
        address = plan["nodes"][node]["address"]
        lines = [f"addr add {address}/32 dev {device.name}" for device in own]
        lines.append(f"addr add {address}/32 dev lo")
        for other, link in first_links(plan, node).items():
            device = device_for_link(own, plan, link)
            to = plan["nodes"][other]["address"]
            options = " ".join(route_options(plan, node, other))
            lines.append(f"route add {to}/32 dev {device.name} src {address} {options}".rstrip())
        batch(namespace, lines)


def device_for_link(own: Sequence[Device], plan: Plan, link: int) -> Device:
    """The device by which packets get to a link."""
    for device in own:
        if device.outgoing == link:
            return device
    name = plan["links"][link]["name"]
    raise LabError(f"unbloat-emu made no device for the link {name}")


def batch(namespace: str | None, lines: Sequence[str]) -> None:
    """Commands of `ip`, the first that fails ends it."""
    inside = [] if namespace is None else ["-netns", namespace]
    argv = [found("ip") or "ip", *inside, "-batch", "-"]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=IP_TIMEOUT_S)
    if done.returncode != 0:
        where = "" if namespace is None else f"{namespace}: "
        raise LabError(f"{where}ip: {line_of(done.stderr, 0)}")


def line_of(text: str, place: int) -> str:
    """The first (0) or last (-1) line that is not empty of what a program wrote on standard error."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return lines[place] if lines else "exited with no error output"
