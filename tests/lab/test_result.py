"""What `run_of` makes of a raw directory, against the run that the directory was made of: the simulator knows the truth, and
its captures are those of a node."""

from __future__ import annotations

import json
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from made_raw import raw_run

import unbloat
from unbloat.errors import UnbloatError
from unbloat.lab.result import from_captures as result_flows
from unbloat.lab.result.run import run_of
from unbloat.run.arrow import EXTRA
from unbloat.run.figures import Figures
from unbloat.run.json import json_line, run_object
from unbloat.run.run import Run
from unbloat.run.tables import Row
from unbloat.scenario.expectations import checked
from unbloat.text.format import LIMITS

# Four things that hold a transfer back, and every kind of traffic: losses and a queue, a window, the application, a reader
# that stops at times; pages and a call beside them.
MIXED = """
name = "mixed"
about = "Four transfers, each held back by something else"
duration = "14 s"
warmup = "3 s"
[[node]]
name = "client"
[[node]]
name = "router"
[[node]]
name = "server"
[[link]]
name = "access"
from = "client"
to = "router"
rate = "200 Mbit/s"
delay = "5 ms"
[[link]]
name = "bottleneck"
from = "router"
to = "server"
rate = "20 Mbit/s"
delay = "20 ms"
queue = { kind = "droptail", limit = "200 packets" }
loss = 0.001
[[link]]
name = "back"
from = "server"
to = "router"
rate = "100 Mbit/s"
delay = "20 ms"
[[link]]
name = "home"
from = "router"
to = "client"
rate = "100 Mbit/s"
delay = "5 ms"
[[flow]]
name = "first"
from = "client"
to = "server"
[[flow]]
name = "windowed"
from = "server"
to = "client"
opens = "receiver"
[flow.receiver]
window = { kind = "fixed", window = "60 KB" }
[[flow]]
name = "paced"
from = "server"
to = "client"
app = { kind = "rate-profile", profile = [6, 3], unit = "Mbit/s", slot = "2 s" }
[[flow]]
name = "slow"
from = "client"
to = "server"
start = "4 s"
[flow.receiver]
window = { kind = "fixed", window = "100 KB" }
read = { profile = [2, 0], unit = "Mbit/s", slot = "1500 ms", tick = "10 ms" }
[[flow]]
name = "pages"
from = "server"
to = "client"
app = { kind = "web", every = "3 s" }
[[flow]]
name = "call"
from = "client"
to = "server"
app = { kind = "voip" }
[[probe]]
kind = "ping"
from = "client"
to = "server"
every = "100 ms"
[[expect]]
flow = "windowed"
flow_goodput_bps = { min = "7 Mbit/s", max = "9 Mbit/s" }
"""
BULK = ("first", "windowed", "paced", "slow")
# Statistics of transfers are the same within so much: the capture sees data acknowledged where the simulator counts it
# delivered, half a round trip earlier.
WITHIN = 0.02


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run that is known, and its raw directory; of the scenario with or without a warm-up."""

    @cache
    def of(warmup: str = "3 s") -> tuple[Run, Path]:
        text = MIXED.replace('warmup = "3 s"', f'warmup = "{warmup}"')
        return raw_run(text, tmp_path_factory.mktemp("raw"))

    return of


@pytest.fixture
def copy(made: Any, tmp_path: Path) -> Path:
    """A raw directory that may be changed."""
    return Path(shutil.copytree(made()[1], tmp_path / "raw"))


@pytest.fixture
def sim_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator's servers listen elsewhere than the lab's."""
    monkeypatch.setattr(result_flows, "FLOW_PORT", 5201)


def change(path: Path, **values: Any) -> None:
    """Sets keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def rows(run: Run, transfer: str) -> list[Row]:
    """Its connections' data directions."""
    return Figures(run).flows(transfer)


def test_goodput_and_bytes_in_flight_are_those_of_the_simulator(made: Any) -> None:
    truth, raw = made()
    known, found = Figures(truth), Figures(run_of(raw))
    assert found.transfers == known.transfers
    for name in BULK:
        assert found.goodput_bps(name) == pytest.approx(known.goodput_bps(name), rel=WITHIN), name
        ours, theirs = found.in_flight_bytes(name), known.in_flight_bytes(name)
        assert ours is not None
        assert theirs is not None
        # No p95: where a distribution leaps, one bin more or less decides on which side of the leap it lies.
        for part in ("p50", "mean", "max"):
            assert getattr(ours, part) == pytest.approx(getattr(theirs, part), rel=WITHIN), (
                name,
                part,
            )


def test_round_trips_are_those_that_the_sender_measured(made: Any) -> None:
    truth, raw = made("0 s")
    known, found = Figures(truth), Figures(run_of(raw))
    for name in BULK:
        ours, theirs = found.rtt_ms(name), known.rtt_ms(name)
        assert ours is not None
        assert theirs is not None
        for part in ("min", "p50", "p95", "mean"):
            assert getattr(ours, part) == pytest.approx(getattr(theirs, part), rel=WITHIN), (
                name,
                part,
            )
    assert {row["rtt_method"] for name in BULK for row in rows(run_of(raw), name)} == {"seq_ack"}


def test_the_queue_that_round_trips_show_is_the_one_that_data_stood_in(made: Any) -> None:
    # Only the upload that fills the queue: of the others the ACKs wait, which is no queue of their data.
    truth, raw = made("0 s")
    ours, theirs = (Figures(run).transfer_queue_ms("first") for run in (run_of(raw), truth))
    assert ours is not None
    assert theirs is not None
    # The RTT has the delayed ACK in it, the packet's own sending, and the pages that its ACKs wait behind.
    assert theirs.p95 > 50
    assert ours.p95 == pytest.approx(theirs.p95, abs=6)
    assert ours.p50 == pytest.approx(theirs.p50, abs=6)


def test_limits_are_those_that_held_the_sender(made: Any) -> None:
    truth, raw = made()
    known, found = Figures(truth), Figures(run_of(raw))
    for name in BULK:
        for limit in LIMITS:
            # Behind a queue of a packet or two both words are right.
            if limit not in ("bottleneck", "congestion_window"):
                assert found.share(name, limit) == pytest.approx(
                    known.share(name, limit), abs=0.03
                ), (
                    name,
                    limit,
                )
        both = [
            sum(one.share(name, word) or 0.0 for word in ("bottleneck", "congestion_window"))
            for one in (found, known)
        ]
        assert both[0] == pytest.approx(both[1], abs=0.03), name
        assert found.sum(name, "window_full_s") == pytest.approx(
            known.sum(name, "window_full_s"), abs=0.1
        )
        assert found.sum(name, "zero_window_count") == known.sum(name, "zero_window_count")


def test_losses_are_counted_and_placed(made: Any) -> None:
    truth, raw = made()
    lab = run_of(raw)
    for name in BULK:
        [ours], [theirs] = rows(lab, name), rows(truth, name)
        for column in ("lost_packets", "loss_rate", "retransmissions", "data_packets", "mss_bytes"):
            assert ours[column] == theirs[column], (name, column)
        drops = [
            sorted(
                (row["kind"], round(row["t_s"], 9), row["value"], row["seq"])
                for row in run.events(flow=flow["id"]).to_pylist()
                if row["kind"].startswith("drop_")
            )
            for run, flow in ((lab, ours), (truth, theirs))
        ]
        assert drops[0] == drops[1]
    assert sum(flow["lost_packets"] for flow in lab.flows.to_pylist()) > 100


def test_queues_stages_probes_and_applications_are_taken_as_they_are(made: Any) -> None:
    truth, raw = made()
    lab = run_of(raw)
    assert set(lab.extra) == set(EXTRA)
    for name in ("queues", "stages", "probes"):
        assert lab.extra[name].to_pylist() == truth.extra[name].to_pylist(), name
    by_time = [
        sorted(run.apps.to_pylist(), key=lambda row: (row["t_s"], str(row))) for run in (lab, truth)
    ]
    assert by_time[0] == by_time[1]
    assert {row["kind"] for row in lab.apps.to_pylist()} >= {"page_load_ms", "mos"}


def test_tables_have_the_columns_of_a_simulated_run(made: Any) -> None:
    truth, raw = made()
    lab = run_of(raw)
    for ours, theirs in (
        (lab.connections, truth.connections),
        (lab.flows, truth.flows),
        (lab.samples(), truth.samples()),
        (lab.events(), truth.events()),
        (lab.findings, truth.findings),
        *((lab.extra[name], truth.extra[name]) for name in EXTRA),
    ):
        assert ours.schema.names == theirs.schema.names
        for name in theirs.schema.names:
            assert ours.schema.field(name).type == theirs.schema.field(name).type, name
        ours.validate(full=True)
    assert json_line(run_object(lab, series=("samples", "events")))


def test_every_key_of_a_run_is_documented(made: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
    for key in run_of(made()[1]).info:
        assert f"`{key}`" in page, key


def test_captures_of_several_nodes_become_one_run(made: Any) -> None:
    truth, raw = made()
    lab = run_of(raw)
    connections, flows = lab.connections.to_pylist(), lab.flows.to_pylist()
    assert [row["id"] for row in connections] == list(range(truth.connections.num_rows))
    assert [row["id"] for row in flows] == list(range(2 * len(connections)))
    assert all(row["connection"] == row["id"] // 2 for row in flows)
    starts = [row["start_s"] for row in connections]
    assert starts == sorted(starts)
    # On the run's clock, though each capture began when its first packet came.
    known = {row["transfer"]: row["start_s"] for row in reversed(truth.connections.to_pylist())}
    for row in reversed(connections):
        if row["transfer"] in BULK:
            # A server sees the SYN when it has passed the path.
            assert row["start_s"] == pytest.approx(known[row["transfer"]], abs=0.03)
    for row in flows:
        if row["transfer"] is not None:
            assert row["vantage"] == "sender"
            assert row["congestion"] == "cubic"
    [windowed] = rows(lab, "windowed")
    assert windowed["window_law"] == "fixed"
    assert lab.flow(windowed["id"] ^ 1)["window_law"] is None


def test_series_are_on_the_clock_of_the_run(made: Any) -> None:
    truth, raw = made()
    lab = run_of(raw)
    for name in ("first", "windowed"):
        [ours], [theirs] = rows(lab, name), rows(truth, name)
        begin, end = 5.0, 13.0
        delivered = [
            sum(
                row["delivered_bytes"]
                for row in run.samples(flow=flow["id"]).to_pylist()
                if begin <= row["t_s"] < end
            )
            for run, flow in ((lab, ours), (truth, theirs))
        ]
        assert delivered[0] == pytest.approx(delivered[1], rel=0.03)


def test_congestion_windows_are_those_of_the_socket(made: Any) -> None:
    truth, raw = made()
    lab = run_of(raw)
    [ours], [theirs] = rows(lab, "first"), rows(truth, "first")
    # Bins of a capture begin at the first data; the socket's sample nearest to the bin's end counts.
    known = {round(row["t_s"], 1): row for row in truth.samples(flow=theirs["id"]).to_pylist()}
    compared = 0
    for row in lab.samples(flow=ours["id"]).to_pylist():
        twin = known.get(round(row["t_s"], 1))
        if twin is not None:
            compared += 1
            assert row["cwnd_bytes"] == pytest.approx(twin["cwnd_bytes"], abs=1)
            assert row["ssthresh_bytes"] == (
                None
                if twin["ssthresh_bytes"] is None
                else pytest.approx(twin["ssthresh_bytes"], abs=1)
            )
    assert compared > 100


def test_the_warm_up_is_left_out_of_statistics_and_not_of_series(made: Any) -> None:
    (_, short), (_, whole) = made(), made("0 s")
    [late], [every] = rows(run_of(short), "first"), rows(run_of(whole), "first")
    assert late["active_s"] == pytest.approx(every["active_s"] - 3, abs=0.1)
    assert late["rtt_ms_count"] < every["rtt_ms_count"]
    assert late["bytes"] == every["bytes"]
    assert late["retransmissions"] == every["retransmissions"]
    assert run_of(short).samples().num_rows == run_of(whole).samples().num_rows


def test_connections_that_are_no_transfer_are_left_out(copy: Path, sim_ports: None) -> None:
    # As if the program had reported another connection of this transfer: the captured one is then
    # not part of it.
    path = copy / "flows" / "paced.sender.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text(
        "".join(
            json.dumps(line | {"local": "10.0.0.3:9"}) + "\n"
            for line in lines
            if line["kind"] == "connection"
        )
    )
    lab = run_of(copy)
    captured = [
        row
        for row in lab.connections.to_pylist()
        if row["transfer"] == "paced" or 5203 in (row["a_port"], row["b_port"])
    ]
    assert [row["end"] for row in captured] == ["open"]
    assert captured[0]["a_port"] == 9
    assert any("not in any capture" in line for line in lab.warnings)


def test_a_transfer_that_no_program_reported_is_known_by_its_port(
    copy: Path, sim_ports: None
) -> None:
    (copy / "flows" / "windowed.sender.jsonl").unlink()
    [flow] = rows(run_of(copy), "windowed")
    assert flow["congestion"] is None
    assert flow["limit"] == "receive_window"


def test_without_captures_figures_come_from_sockets(copy: Path, made: Any) -> None:
    truth, _ = made()
    shutil.rmtree(copy / "captures")
    plan = json.loads((copy / "plan.json").read_text())
    change(copy / "plan.json", lab=plan["lab"] | {"capture": "none"})
    lab = run_of(copy)
    known, found = Figures(truth), Figures(lab)
    for name in BULK:
        assert found.goodput_bps(name) == pytest.approx(known.goodput_bps(name), rel=0.05), name
        ours, theirs = found.in_flight_bytes(name), known.in_flight_bytes(name)
        assert ours is not None
        assert theirs is not None
        assert ours.p95 == pytest.approx(theirs.p95, rel=0.05), name
    assert found.sum("first", "timeouts") is None
    assert found.sum("first", "lost_packets") == known.sum("first", "lost_packets")
    [warning] = [line for line in lab.warnings if "capture" in line]
    assert warning.startswith("no capture was taken: figures of first, ")
    assert lab.connections.num_rows == truth.connections.num_rows
    with pytest.raises(UnbloatError, match="no captures"):
        lab.segments()


def test_segments_are_read_from_the_captures(made: Any) -> None:
    _, raw = made()
    lab = run_of(raw)
    [flow] = rows(lab, "windowed")
    table = lab.segments(flow=flow["id"])
    sent = [row for row in table.to_pylist() if row["kind"] == 0]
    assert sum(row["to_seq"] - row["from_seq"] for row in sent) == flow["payload_bytes"]
    assert all(0 <= row["t_s"] <= 14 for row in sent)


@pytest.mark.parametrize(
    ("file", "values", "warning"),
    [
        (
            "emu/emu.json",
            {
                "devices": [{"node": "client", "name": "up", "dropped": 3, "refused": 0}],
                "kernel_drops": 3,
            },
            "the kernel's ring of client.up lost 3 packets",
        ),
        (
            "emu/emu.json",
            {"devices": [{"node": "client", "name": "up", "dropped": 0, "refused": 1}]},
            "the kernel refused 1 packet that arrived at client.up",
        ),
        (
            "emu/emu.json",
            {"links": [{"link": "up", "oversize": 2}]},
            "up: 2 packets too large for the link",
        ),
        (
            "emu/emu.json",
            {"lateness_us": {"p99": 2500.0}},
            "deliveries were late: 1 % by more than 2.5 ms",
        ),
        ("emu/emu.json", {"log_complete": False}, "log is not complete"),
        ("lab.json", {"warnings": ["no fq here"]}, "no fq here"),
        ("lab.json", {"vetoes": ["vegas is not in this kernel"]}, "vegas is not in this kernel"),
    ],
)
def test_what_makes_a_figure_doubtful_is_said(
    copy: Path, file: str, values: Row, warning: str
) -> None:
    assert run_of(copy).warnings == []
    change(copy / file, **values)
    [line] = run_of(copy).warnings
    assert warning in line


def test_another_congestion_control_and_errors_of_programs_are_said(copy: Path) -> None:
    path = copy / "flows" / "first.sender.jsonl"
    lines = path.read_text().replace('"congestion": "cubic"', '"congestion": "bbr"')
    path.write_text(lines + '{"kind":"error","text":"connection refused"}\n{"kind":"sam')
    lab = run_of(copy)
    count = len(lines.splitlines()) + 2
    assert lab.warnings == [
        "first: asked for cubic, and bbr ran",
        "first: connection refused",
        f"flows/first.sender.jsonl: line {count} cannot be read and is left out",
    ]
    assert rows(lab, "first")[0]["congestion"] == "bbr"


def test_the_emulator_that_left_nothing_is_missed(copy: Path) -> None:
    (copy / "emu" / "emu.json").unlink()
    assert run_of(copy).warnings == ["the emulator left no summary: it did not end as it should"]


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnbloatError, match=r"has no plan\.json, so it is no run of the lab"):
        run_of(tmp_path)


def test_expectations_and_stored_runs_work_as_for_simulated_runs(made: Any, tmp_path: Path) -> None:
    truth, raw = made()
    lab = run_of(raw)
    assert lab.info["origin"] == "lab"
    assert lab.name == "mixed, lab"
    assert {key for key in truth.info if key not in lab.info} == {
        # The caller knows them, or only a simulator does.
        *(
            "files",
            "labels",
            "set",
            "scenario",
            "checks",
            "conserved",
            "engine_events",
            "data_packets",
        ),
        *(
            "delivered_packets",
            "dropped_packets",
            "lost_packets",
            "queued_packets",
            "flying_packets",
        ),
    }
    bound = {"metric": "flow_goodput_bps", "on": "flow", "statistic": None, "min": 7e6, "max": 9e6}
    [check] = checked(
        lab,
        (),
        [
            {
                "run": [],
                "line": 1,
                "flow": "windowed",
                "probe": None,
                "link": None,
                "bounds": [bound],
            }
        ],
    )
    assert check.held
    stored = unbloat.open_run(lab.write(tmp_path / "run"))
    assert stored.flows.to_pylist() == lab.flows.to_pylist()
    assert stored.queues.to_pylist() == lab.queues.to_pylist()
    assert stored.name == lab.name
