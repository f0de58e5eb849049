"""Where the queue stands, from captures at every node, against what the simulator knows of each link.

signal: simulated paths of several hops with a queue on one of them · model: one capture's clock is moved (offset, drift, a
step) before the captures are laid beside each other · action: delays within a millisecond of the stages', losses exact
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from paths import LINK
from requirements import unavailable

import unbloat
from unbloat.path.locate import Located
from unbloat.path.tables import BACKWARD, FORWARD
from unbloat.run.run import Run

ROOT = Path(__file__).parents[2]
EPOCH_NS = 1_577_836_800_000_000_000
# The program stops two seconds before the end, so that nothing is on its way then.
HEAD = """
name = "{name}"
duration = "22 s"
[[node]]
name = "notebook"
[[node]]
name = "router"
[[node]]
name = "phone"
[[node]]
name = "server"
"""
FLOW = """
[[flow]]
name = "upload"
from = "notebook"
to = "server"
opens = "sender"
stop = "18 s"
congestion = "cubic"
{more}
[[probe]]
name = "ping"
from = "notebook"
to = "server"
every = "50 ms"
"""
NODES = ("notebook", "router", "phone", "server")
LINKS = ("lan", "wifi", "up")
BACK = ("down", "wifi-back", "lan-back")
Row = dict[str, Any]


def path(rates: dict[str, tuple[str, str, str]], flow: str = "") -> str:
    """A scenario: each link has a rate, a delay and whatever else."""
    ways = {
        "lan": ("notebook", "router"),
        "wifi": ("router", "phone"),
        "up": ("phone", "server"),
        "down": ("server", "phone"),
        "wifi-back": ("phone", "router"),
        "lan-back": ("router", "notebook"),
    }
    plain = ("1 Gbit/s", "2 ms", "")
    text = HEAD.format(name="path")
    for name, (start, end) in ways.items():
        rate, delay, more = rates.get(name, plain)
        text += LINK.format(
            name=name, start=start, end=end, rate=f'"{rate}"', delay=delay, more=more
        )
    return text + FLOW.format(more=flow)


DEEP = 'queue = { kind = "droptail", limit = "150 packets" }'
SCENARIOS = {
    "lan": path({"lan": ("20 Mbit/s", "5 ms", DEEP)}),
    "wifi": path(
        {"wifi": ("20 Mbit/s", "5 ms", DEEP), "up": ("100 Mbit/s", "15 ms", "loss = 0.0005")}
    ),
    "up": path({"wifi": ("50 Mbit/s", "3 ms", "loss = 0.002"), "up": ("20 Mbit/s", "20 ms", DEEP)}),
    "codel": path({"up": ("20 Mbit/s", "20 ms", 'queue = "codel"')}),
    "ecn": path(
        {"up": ("20 Mbit/s", "20 ms", 'queue = { kind = "codel", ecn = true }')}, "ecn = true"
    ),
    "nothing": path(
        {}, 'app = { kind = "rate-profile", profile = [2], unit = "Mbit/s", slot = "1 s" }'
    ),
}
SIZE_BITS = 1_500 * 8


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Run, dict[str, Path]]]:
    @cache
    def run(name: str) -> tuple[Run, dict[str, Path]]:
        folder = tmp_path_factory.mktemp("path")
        truth = unbloat.simulate(SCENARIOS[name], pcap=folder)
        assert isinstance(truth, Run)
        return truth, {file.stem: file for file in folder.rglob("*.pcapng")}

    return run


def moved(source: Path, target: Path, change: Callable[[int], int]) -> Path:
    """A copy of a capture by another clock; `change` is given nanoseconds since the beginning of the run."""
    data, out, at = source.read_bytes(), bytearray(), 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        block = bytearray(data[at : at + length])
        if kind == 6:
            high, low = struct.unpack_from("<II", block, 12)
            time = EPOCH_NS + change((high << 32 | low) - EPOCH_NS)
            struct.pack_into("<II", block, 12, time >> 32, time & 0xFFFF_FFFF)
        out += block
        at += length
    target.write_bytes(out)
    return target


def located(
    files: dict[str, Path], folder: Path, clocks: dict[str, Callable[[int], int]]
) -> Located:
    """The captures of all nodes, some of them by other clocks."""
    paths = [
        moved(files[node], folder / f"{node}.pcapng", clocks[node])
        if node in clocks
        else files[node]
        for node in NODES
    ]
    return unbloat.locate(paths)


def off(offset_s: float, ppm: float) -> Callable[[int], int]:
    """A clock that is off by so much and drifts."""
    return lambda ns: ns + round(offset_s * 1e9) + round(ns * ppm * 1e-6)


def stages(truth: Run) -> dict[str, Row]:
    """What the simulator knows of each link."""
    return {row["link"]: row for row in truth.stages.to_pylist()}


def by_link(found: Located) -> dict[str, Row]:
    """What was found of each segment, by the link that it is."""
    forward = zip(LINKS, found.segments(FORWARD), strict=True)
    backward = zip(BACK, found.segments(BACKWARD), strict=True)
    return {name: segment.row for name, segment in (*forward, *backward)}


CLOCKS = {
    "one clock": {},
    "server off": {"server": off(3.7, 40)},
    "all off": {"router": off(-1800, -25), "phone": off(0.35, 90), "server": off(3.7, 40)},
}


@pytest.mark.parametrize("clocks", CLOCKS, ids=CLOCKS.keys())
@pytest.mark.parametrize("name", SCENARIOS)
def test_delays_are_those_of_the_stages_to_a_millisecond_whatever_the_clocks(
    made: Any, tmp_path: Path, name: str, clocks: str
) -> None:
    truth, files = made(name)
    rows = by_link(located(files, tmp_path, CLOCKS[clocks]))
    for link, stage in stages(truth).items():
        row = rows[link]
        if stage["delay_ms_mean"] is None:
            continue
        # A packet's own sending is part of its delay, and that of the smallest is part of the segment's smallest.
        own = SIZE_BITS / stage["rate_bps"] * 1e3
        assert -0.1 < row["queue_ms_mean"] - stage["delay_ms_mean"] < own + 0.4
        for part in ("p50", "p95", "p99"):
            true = stage[f"delay_ms_{part}"]
            # The simulator's quantiles are right to 0.8 %.
            assert -1.0 < row[f"queue_ms_{part}"] - true - own / 2 < 1.0 + 0.008 * true, (
                link,
                part,
            )


@pytest.mark.parametrize("clocks", CLOCKS, ids=CLOCKS.keys())
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_loss_is_found_on_the_link_that_lost_it(
    made: Any, tmp_path: Path, name: str, clocks: str
) -> None:
    truth, files = made(name)
    found = located(files, tmp_path, CLOCKS[clocks])
    for link, stage in stages(truth).items():
        row = by_link(found)[link]
        assert (
            row["lost_packets"]
            == stage["drops_overflow"] + stage["drops_aqm"] + stage["lost_on_link"]
        ), link
        assert row["undecided_packets"] <= 2, link
        assert row["reordered_packets"] == 0
    assert all(point["capture_drops"] == point["duplicates"] == 0 for point in found.points)
    listed = [row for row in found.tables["losses"].to_pylist() if row["kind"] == "lost"]
    assert sum(row["packets"] for row in listed) == sum(
        row["lost_packets"] for row in by_link(found).values()
    )


def test_losses_have_their_moment(made: Any, tmp_path: Path) -> None:
    truth, files = made("up")
    found = located(files, tmp_path, {"phone": off(-7.0, 15)})
    overflows = sorted(
        row["t_s"] for row in truth.events().to_pylist() if row["kind"] == "drop_overflow"
    )
    listed = sorted(
        row["t_s"]
        for row in found.tables["losses"].to_pylist()
        if row["kind"] == "lost" and row["place"] == LINKS.index("up") and row["bytes"] > 100
    )
    # Dropped as they came to the phone; the run counts data alone, not of pings.
    assert len(listed) == len(overflows) > 0
    assert max(abs(a - b) for a, b in zip(listed, overflows, strict=True)) < 0.03


@pytest.mark.parametrize("name", ["lan", "wifi", "up"])
def test_the_verdict_names_the_segment_with_the_queue(made: Any, tmp_path: Path, name: str) -> None:
    _, files = made(name)
    found = located(files, tmp_path, CLOCKS["all off"])
    place = LINKS.index(name)
    assert found.verdict.startswith(
        f"The queue stands between {NODES[place]} and {NODES[place + 1]}, upstream: p95 "
    )
    main = found.segments(FORWARD)[place].row
    assert main["share"] > 0.95
    assert "No queue stands downstream" in found.verdict


def test_no_queue_is_named_where_none_stands(made: Any, tmp_path: Path) -> None:
    _, files = made("nothing")
    found = located(files, tmp_path, CLOCKS["all off"])
    assert found.verdict.startswith("No queue stands anywhere between notebook and server: p95 ")
    assert found.verdict.endswith("No packet was lost on the way.")


def test_marks_are_set_where_the_queue_marks(made: Any, tmp_path: Path) -> None:
    truth, files = made("ecn")
    rows = by_link(located(files, tmp_path, CLOCKS["server off"]))
    received = sum(row["ecn_ce"] for row in truth.flows.to_pylist())
    assert rows["up"]["ecn_marked_packets"] == received > 0
    assert rows["lan"]["ecn_marked_packets"] == rows["wifi"]["ecn_marked_packets"] == 0


def test_clocks_come_out_as_they_were_set(made: Any, tmp_path: Path) -> None:
    _, files = made("up")
    found = located(files, tmp_path, CLOCKS["server off"])
    assert [row["one_clock"] for row in found.clocks] == [True, True, False]
    clock = found.clocks[2]
    assert abs(clock["drift_ppm"] - 40) < 1
    assert abs(clock["offset_ms"] - 3700) < clock["uncertainty_ms"]
    assert abs(found.clocks[0]["offset_ms"]) < 0.1
    assert not found.steps


def test_a_step_of_the_clock_is_found_while_the_queue_stands(made: Any, tmp_path: Path) -> None:
    _, files = made("up")
    whole = by_link(located(files, tmp_path, {}))["up"]
    for size in (-3.0, 0.05, 900.0):
        step = lambda ns, size=size: ns + (round(size * 1e9) if ns > 9e9 else 0)  # noqa: E731
        found = located(files, tmp_path, {"server": step})
        assert len(found.steps) == 1
        assert abs(found.steps[0]["t_s"] - 9) < 0.3
        assert abs(found.steps[0]["step_ms"] - size * 1e3) < 2
        assert abs(by_link(found)["up"]["queue_ms_p95"] - whole["queue_ms_p95"]) < 1
        assert by_link(found)["up"]["lost_packets"] == whole["lost_packets"]


def test_the_order_is_found_when_it_is_not_given(made: Any) -> None:
    _, files = made("wifi")
    found = unbloat.locate([files[node] for node in ("notebook", "phone", "server", "router")])
    assert found.names == list(NODES)
    assert found.info["order_by"] == "delays"
    back = unbloat.locate([files[node] for node in ("server", "router", "phone", "notebook")])
    assert back.names == list(reversed(NODES))
    assert "between router and phone, upstream" in back.verdict


def test_a_page_and_tables_are_written(made: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    _, files = made("up")
    found = located(files, tmp_path, CLOCKS["server off"])
    info = found.write_report(tmp_path / "path.html")
    text = info.path.read_text()
    assert found.verdict.split(":")[0] in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "src=" not in text
    found.write(tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "stretches.parquet").num_rows == 8
    printed = found.to_dict(series=True)
    assert printed["stretches"][0]["queue_ms"]["p95"] is not None
    assert len(printed["delays"]) == found.tables["delays"].num_rows


def test_a_pair_of_real_kernels_loses_what_the_sender_sent_again() -> None:
    # Both namespaces of one machine: one clock, no step, though the full buffer's delay is steadier than the quiet way back.
    shared = Path(os.environ.get("UNBLOAT_SHARED", ROOT.parent / "shared")) / "captures" / "made"
    files = [shared / f"truth_bulk_smallq_{end}.pcap.gz" for end in ("snd", "rcv")]
    if not all(file.exists() for file in files):
        unavailable("captures", f"{files[0]} is not there")
    found = unbloat.locate(files)
    # The kernel: retrans 259.
    assert found.segments(FORWARD)[0].row["lost_packets"] == 259
    assert found.segments(BACKWARD)[0].row["lost_packets"] == 0
    assert found.clocks[0]["one_clock"]
    assert not found.steps
    assert "The queue stands" in found.verdict or "A short queue stands" in found.verdict


# What the papers found with captures at several points.


def scenario_run(name: str, labels: dict[str, str], folder: Path) -> tuple[Run, list[Path]]:
    """One run of a scenario of the repository, with its captures in the order of its nodes."""
    runs = unbloat.simulate(ROOT / "scenarios" / f"{name}.toml", pcap=folder)
    assert isinstance(runs, unbloat.RunSet)
    for run, given in zip(runs.runs, runs.labels, strict=True):
        if labels.items() <= dict(given).items():
            files = [Path(file) for file in run.info["captures"]]
            return run, files
    raise AssertionError(f"no run {labels}")


def test_drwa_finds_the_queue_at_the_first_hop(tmp_path: Path) -> None:
    # DRWA section 2, figure 4: with a bulk download the delay appears between the phone and its first hop.
    text = path(
        {
            "up": ("1 Gbit/s", "30 ms", ""),
            "down": ("1 Gbit/s", "30 ms", ""),
            "wifi": ("1 Gbit/s", "5 ms", ""),
            "wifi-back": ("1 Gbit/s", "5 ms", ""),
            "lan": ("1.8 Mbit/s", "40 ms", ""),
            "lan-back": ("3.1 Mbit/s", "40 ms", 'queue = { kind = "droptail", limit = "4 MB" }'),
        }
    ).replace('from = "notebook"\nto = "server"\nopens', 'from = "server"\nto = "notebook"\nopens')
    text = (
        text.replace('opens = "sender"', 'opens = "receiver"')
        .replace("22 s", "60 s")
        .replace('"18 s"', '"40 s"')
    )
    truth = unbloat.simulate(text, pcap=tmp_path / "nodes")
    assert isinstance(truth, Run)
    files = {file.stem: file for file in (tmp_path / "nodes").rglob("*.pcapng")}
    found = located(files, tmp_path, {"server": off(12.0, -30)})
    assert found.verdict.startswith(
        "The queue stands between router and notebook, downstream: p95 "
    )
    first = found.segments(BACKWARD)[-1].row
    assert first["share"] > 0.99
    assert abs(first["queue_ms_mean"] - stages(truth)["lan-back"]["delay_ms_mean"]) < 4.5
    assert "No queue stands upstream" in found.verdict


def test_qcut_finds_the_queue_on_the_device(tmp_path: Path) -> None:
    # QCUT section 4: nearly all of an upload's delay is made before the radio; the capture at the server shows the rest.
    truth, files = scenario_run("qcut-4-anatomy", {"rate": "2 Mbit/s", "cure": "none"}, tmp_path)
    found = unbloat.locate(files)
    up = found.segments(FORWARD)[0]
    assert found.verdict.startswith(
        f"The queue stands between {up.start} and {up.end}, upstream: p95 "
    )
    rows = {row["stage"]: row for row in truth.stages.to_pylist() if row["link"] == "up"}
    both = rows["qdisc"]["delay_ms_p95"] + rows["firmware"]["delay_ms_p95"]
    # 6 ms are the packet's own sending at 2 Mbit/s.
    assert abs(up.row["queue_ms_p95"] - both) < 0.01 * both + 6
