"""The emulator keeps its rates, replays recorded traces, and names every packet that it loses.

Counted three times: by the sender, by the receiver and by the emulator's own log. How late a packet came fails no test;
a rate that a starved machine could not offer is measured once more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.emu import bed, roads  # noqa: E402
from bench.emu.cases import ideal, rate_setting, saturated, traces  # noqa: E402
from bench.emu.programs import Stream, send_udp  # noqa: E402
from bench.emu.run import build  # noqa: E402


def emulator() -> Path | None:
    """The program: named by the environment, built here, or on the PATH."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = target / "release" / "unbloat-emu"
    named = os.environ.get("UNBLOAT_EMU") or (str(built) if built.exists() else "unbloat-emu")
    found = shutil.which(named) or shutil.which(str(Path(sys.executable).parent / named))
    return Path(found) if found else None


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> roads.Tools:
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        pytest.skip("network namespaces and TUN devices need root")
    if absent := [program for program in ("gcc", "ip") if not shutil.which(program)]:
        pytest.skip(f"{', '.join(absent)} not found")
    if not (own := emulator()):
        pytest.skip("unbloat-emu is not built: cargo build --release -p unbloat-emu")
    return replace(build(tmp_path_factory.mktemp("tools"), emulator=False), emulator=own)


def unnamed(stream: Stream, road: roads.Road) -> int:
    """Packets that were lost, and that no log and no counter names."""
    return road.unnamed(stream.sent, stream.received, stream.socket_drops)


def measured(
    tools: roads.Tools, rate_bps: int, size: int, packets: int
) -> tuple[Stream, roads.Road]:
    """A sender at twice a link's rate, until the link has sent so many packets."""
    with roads.emulator(tools, rate_setting(rate_bps, size)) as road:
        stream = saturated(rate_bps, size, packets, road, tools)
    return stream, road


@pytest.mark.parametrize(
    ("rate_bps", "size", "packets"), [(1_000_000, 100, 2_100), (100_000_000, 1_500, 8_400)]
)
def test_a_saturated_link_delivers_its_rate(
    tools: roads.Tools, rate_bps: int, size: int, packets: int
) -> None:
    for attempt in range(2):
        stream, road = measured(tools, rate_bps, size, packets)
        # Once more where the machine, and not the link, may have been slow.
        if attempt or abs(stream.rate_bps / rate_bps - 1) < 0.005:
            break
    assert stream.received >= 2_000
    assert abs(stream.rate_bps / rate_bps - 1) < 0.005
    assert road.delivered["up"] == stream.received
    assert stream.overtaken == 0
    if not road.kernel.total():
        assert unnamed(stream, road) == 0


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


@contextlib.contextmanager
def all_at_once(tools: roads.Tools, found: list[Path]) -> Iterator[roads.Road]:
    """All traces side by side; all users live in one namespace."""
    with bed.namespaces("a", "b") as (a, b):
        places = {"server": a} | {f"user{i}": b for i in range(len(found))}
        options = [word for i, path in enumerate(found) for word in ("--trace", f"trace{i}={path}")]
        with roads.emulated(tools, many_traces(found), places, options=options) as road:
            yield road


def test_every_recorded_trace_is_replayed_under_load(tools: roads.Tools, tmp_path: Path) -> None:
    found = traces(tmp_path)
    if not found:
        pytest.skip("the recorded traces are not there; set UNBLOAT_SHARED")
    assert len(found) == 13
    to = [roads.address(1 + i) for i in range(len(found))]
    with all_at_once(tools, found) as road:
        stream = send_udp(road, tools, 26_000, 1_500, 2.0, to=to, idle=3.0, drain=12.0)
    assert road.named["udp overflow"] > 0, (
        "each trace is offered 24 Mbit/s, some carry less than one"
    )
    until_ms = len(stream.per_ms) + 1
    for i, path in enumerate(found):
        offered, got = sum(ideal(path, until_ms)), stream.per_flow[i]
        assert 0 < got <= offered, f"{path.name}: {got} of {offered} bytes"
        assert road.delivered[f"to{i}"] == got // 1_500
    if not road.kernel.total():
        assert unnamed(stream, road) == 0
