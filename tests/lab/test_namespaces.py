"""Namespaces, addresses, routes and settings as the kernel has them, read back by its own tools."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import SHORT, Lab, inside, plan_of

import unbloat
from unbloat.lab.cleanup.session import Session
from unbloat.lab.emulator import Emulator
from unbloat.lab.setup.namespaces import connect, create

pytestmark = pytest.mark.usefixtures("machine")

CHAIN = """
name = "chain"
duration = "4 s"
node = [{ name = "phone" }, { name = "router" }, { name = "station" }, { name = "server" }]
[[flow]]
from = "phone"
to = "server"
congestion = "newreno"
initial_window = 4
[[flow]]
from = "server"
to = "phone"
congestion = "newreno"
app = "web"
initial_window = 32
[flow.receiver]
window = { kind = "autotune", max = "1 MB" }
[[probe]]
from = "phone"
to = "server"
""" + "".join(
    f'[[link]]\nname = "{one}-{other}"\nfrom = "{one}"\nto = "{other}"\nrate = "20 Mbit/s"\ndelay = "2 ms"\n'
    for a, b in (("phone", "router"), ("router", "station"), ("station", "server"))
    for one, other in ((a, b), (b, a))
)


def host_settings() -> dict[str, str]:
    """Everything that a lab could change of the machine's own network."""
    done = subprocess.run(["sysctl", "-a"], capture_output=True, text=True)
    lines = (line.partition(" = ") for line in done.stdout.splitlines() if line.startswith("net."))
    # What the kernel counts by itself, and the entries of devices that come and go.
    apart = ("nr_", "count", "route.max", ".conf.", ".neigh.", "random", "tcp_fastopen_key", "stat")
    return {name: value for name, _, value in lines if not any(word in name for word in apart)}


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[list[str]]:
    """The four namespaces of `CHAIN`, connected, with the emulator's clock started."""
    plan = plan_of(CHAIN)
    (tmp_path / "logs").mkdir()
    (tmp_path / "emu").mkdir()
    (tmp_path / "scenario.toml").write_text(CHAIN)
    with Session() as session:
        namespaces = session.namespaces([node["name"] for node in plan["nodes"]])
        create(namespaces, plan)
        places = dict(zip((node["name"] for node in plan["nodes"]), namespaces, strict=True))
        scenario, out = tmp_path / "scenario.toml", tmp_path / "emu"
        emulator = Emulator(session, scenario, out, places, tmp_path / "logs")
        connect(namespaces, plan, emulator.devices())
        begin_ns, _ = emulator.go()
        time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
        yield namespaces


def test_packets_cross_three_hops_with_the_addresses_of_their_ends(chain: list[str]) -> None:
    phone, _, _, server = chain
    said = inside(phone, "ping", "-c", "3", "-i", "0.2", "10.0.0.4")
    assert "3 received" in said
    assert "ttl=62" in said  # two routers have passed it on
    fastest = float(said.rsplit("= ", 1)[1].split("/")[0])
    assert 12.0 <= fastest < 60.0  # three links of 2 ms, there and back
    assert "10.0.0.4 dev phone-router src 10.0.0.1" in inside(
        phone, "ip", "route", "get", "10.0.0.4"
    )
    assert "10.0.0.1 dev server-station src 10.0.0.4" in inside(
        server, "ip", "route", "get", "10.0.0.1"
    )


def test_routes_carry_initial_window_and_congestion_control(chain: list[str]) -> None:
    phone, router, _, server = chain
    assert "initcwnd 4" in inside(phone, "ip", "route", "show", "10.0.0.4")
    assert "initcwnd 32 congctl reno" in inside(server, "ip", "route", "show", "10.0.0.1")
    assert "congctl" not in inside(router, "ip", "route", "show")


def test_settings_are_those_of_the_scenario(chain: list[str]) -> None:
    phone, router, _, server = chain
    assert inside(phone, "cat", "/proc/sys/net/ipv4/tcp_rmem").split() == [
        "4096",
        "131072",
        "1000000",
    ]
    assert inside(server, "cat", "/proc/sys/net/ipv4/tcp_rmem").split() == [
        "4096",
        "131072",
        "33554432",
    ]
    for namespace, forwards in ((phone, "0"), (router, "1"), (server, "0")):
        assert inside(namespace, "cat", "/proc/sys/net/ipv4/ip_forward").strip() == forwards
        assert inside(namespace, "cat", "/proc/sys/net/ipv4/tcp_no_metrics_save").strip() == "1"
        for device in inside(namespace, "ls", "/proc/sys/net/ipv4/conf").split():
            assert (
                inside(namespace, "cat", f"/proc/sys/net/ipv4/conf/{device}/rp_filter").strip()
                == "0"
            )
        assert "inet6" not in inside(namespace, "ip", "address", "show", "type", "tun")


def test_the_machine_itself_is_not_changed(tmp_path: Path) -> None:
    before = host_settings()
    devices = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
    run = unbloat.lab(SHORT)
    assert isinstance(run, unbloat.Run)
    assert run.info["origin"] == "lab"
    assert host_settings() == before
    assert subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout == devices


def test_each_flow_runs_the_congestion_control_that_it_asks_for(tmp_path: Path) -> None:
    text = (
        SHORT.replace('"2 s"', '"60 s"')
        + '[[flow]]\nname = "other"\nfrom = "client"\ncongestion = "newreno"\n'
    )
    text += '[[flow]]\nname = "back"\nfrom = "server"\ncongestion = "bbr"\n'
    lab = Lab(tmp_path, text=text).under_way()
    time.sleep(1.0)
    client, server = lab.state["namespaces"]
    for namespace, port, wanted in (
        (client, ":5001", "cubic"),
        (client, ":5002", "reno"),
        (server, ":5003", "bbr"),
    ):
        side = "dport" if namespace == client else "sport"
        said = inside(namespace, "ss", "-tinH", "state", "established", f"( {side} = {port} )")
        assert said.strip(), f"no connection of port {port}"
        assert f" {wanted} " in f" {' '.join(said.split())} ", said
    lab.interrupt()
    lab.end()
    assert lab.left() == []
