"""The emulator keeps its rates, replays recorded traces, and names every packet that it loses.

Counted three times: by the sender, by the receiver and by the emulator's own log. How late a packet came fails no test.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from emulated_path import LinkPath, Tools, address, emulated, emulator, path_testbed
from measured import RUNS
from requirements import require, unavailable
from udp_load import HERE, Stream, compiled, ideal, rate_setting, saturated, send_udp, traces


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """The sender and receiver of datagrams."""
    require("root", "tun", "gcc", "ip", "nsenter", "unbloat-emu")
    udp = compiled(HERE / "udp.c", tmp_path_factory.mktemp("tools"))
    return Tools(udp, udp, None)


def unnamed(stream: Stream, path: LinkPath) -> int:
    """Packets that were lost, and that no log and no counter names."""
    return path.unnamed(stream.sent, stream.received, stream.socket_drops)


@pytest.mark.measured
@pytest.mark.parametrize(
    ("rate_bps", "size", "packets"), [(1_000_000, 100, 2_100), (100_000_000, 1_500, 8_400)]
)
def test_a_saturated_link_delivers_its_rate(
    tmp_path: Path, tools: Tools, rate_bps: int, size: int, packets: int
) -> None:
    rates = []
    for number in range(RUNS):
        with emulator(tmp_path / str(number), rate_setting(rate_bps, size)) as path:
            stream = saturated(rate_bps, size, packets, path, tools)
        assert stream.received >= 2_000
        assert path.delivered["up"] == stream.received
        assert stream.overtaken == 0
        if not path.kernel.total():
            assert unnamed(stream, path) == 0
        rates.append(stream.rate_bps)
    assert abs(statistics.median(rates) / rate_bps - 1) < 0.005, rates


def many_traces(found: list[Path]) -> str:
    """A server, and a user at the end of each trace."""
    text = [
        'name = "all-traces"',
        'duration = "60 s"',
        "[lab]",
        'offload = "off"',
        "[[node]]",
        'name = "server"',
    ]
    for i in range(len(found)):
        text += ["[[node]]", f'name = "user{i}"']
    for i in range(len(found)):
        for name, ends, medium in (
            (f"to{i}", f'from = "server"\nto = "user{i}"', f'trace = "trace{i}"'),
            (f"from{i}", f'from = "user{i}"\nto = "server"', 'rate = "1 Gbit/s"'),
        ):
            text += ["[[link]]", f'name = "{name}"', ends, medium, 'delay = "0 s"']
            text += ['queue = { kind = "droptail", limit = "30 KB" }']
    for i in range(len(found)):
        text += ["[[flow]]", 'from = "server"', f'to = "user{i}"']
    return "\n".join(text)


def test_every_recorded_trace_is_replayed_under_load(tools: Tools, tmp_path: Path) -> None:
    found = traces(tmp_path)
    if not found:
        unavailable("traces", "the recorded traces are not there; set UNBLOAT_SHARED")
    assert len(found) == 13
    to = [address(1 + i) for i in range(len(found))]
    # All users live in one namespace.
    places = {"server": "a"} | {f"user{i}": "b" for i in range(len(found))}
    options = [word for i, path in enumerate(found) for word in ("--trace", f"trace{i}={path}")]
    with (
        path_testbed(tmp_path / "testbed", "a", "b") as made,
        emulated(made, many_traces(found), places, options=options) as link,
    ):
        stream = send_udp(link, tools, 26_000, 1_500, 2.0, to=to, idle=3.0, drain=12.0)
    assert link.named["udp overflow"] > 0, (
        "each trace is offered 24 Mbit/s, some carry less than one"
    )
    until_ms = len(stream.per_ms) + 1
    for i, path in enumerate(found):
        offered, got = sum(ideal(path, until_ms)), stream.per_flow[i]
        assert 0 < got <= offered, f"{path.name}: {got} of {offered} bytes"
        assert link.delivered[f"to{i}"] == got // 1_500
    if not link.kernel.total():
        assert unnamed(stream, link) == 0
