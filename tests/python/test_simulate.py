"""Simulated runs through the real extension module: the same file and seed give the same bytes, sweeps, seeds, what is
refused, and the command line whole (snapshots in `snapshots/sim/`, renewed with `UNBLOAT_BLESS=1`).
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import unbloat
from unbloat import _native as native
from unbloat.cli.list import entries, page
from unbloat.lab.testbed import until
from unbloat.run.arrow import EXTRA
from unbloat.run.figures import Figures, gathered, statistics
from unbloat.run.json import json_line, run_object
from unbloat.run.metrics import METRICS
from unbloat.scenario.confidence import spread, t_975
from unbloat.scenario.job import Job, run_job
from unbloat.scenario.scenario import Scenario, source_of, text_of
from unbloat.scenario.sweep import RunSet
from unbloat.text.table import table
from unbloat.text.terminal import Terminal

HERE = Path(__file__).parent
SNAPSHOTS = HERE / "snapshots" / "sim"
PACKAGE = Path(unbloat.__file__).parents[1]
BLESS = os.environ.get("UNBLOAT_BLESS") == "1"

# A window of 30 KB over 100 ms on an idle path: 2.4 Mbit/s, whatever else changes.
WINDOW = """\
name = "window"
about = "A small static window on a long path"
duration = "10 s"
[link.up]
rate = "20 Mbit/s"
delay = "50 ms"
[link.down]
rate = "20 Mbit/s"
delay = "50 ms"
[[flow]]
name = "download"
from = "server"
[flow.receiver]
window = { kind = "fixed", window = "30 KB" }
[[probe]]
kind = "ping"
every = "200 ms"
[[expect]]
flow_goodput_bps = { min = "2 Mbit/s", max = "2.6 Mbit/s" }
probe_rtt_ms = { p95 = { max = 110 } }
"""

# Luck is in the loss, so that seeds differ.
LOSSY = """\
name = "lossy"
duration = "4 s"
[link.up]
rate = "8 Mbit/s"
delay = "10 ms"
loss = 0.01
queue = { kind = "droptail", limit = "60 KB" }
[link.down]
rate = "8 Mbit/s"
delay = "10 ms"
[[flow]]
name = "upload"
from = "client"
[[flow]]
name = "pages"
from = "server"
app = { kind = "web" }
[[flow]]
name = "call"
from = "client"
app = { kind = "voip" }
[[probe]]
kind = "ping"
every = "100 ms"
"""


def one(scenario: str, **options: Any) -> unbloat.Run:
    """A single run."""
    run = unbloat.simulate(scenario, **options)
    assert isinstance(run, unbloat.Run)
    return run


def several(scenario: str, **options: Any) -> RunSet:
    """The runs of a sweep."""
    runs = unbloat.simulate(scenario, **options)
    assert isinstance(runs, RunSet)
    return runs


def digest(run: unbloat.Run) -> dict[str, str]:
    """Of every table, all its columns."""
    tables = {
        "connections": run.connections,
        "flows": run.flows,
        "samples": run.samples(),
        "events": run.events(),
        **run.extra,
    }
    return {
        name: hashlib.sha256(json.dumps(table.to_pydict()).encode()).hexdigest()
        for name, table in tables.items()
    }


def test_the_same_seed_gives_the_same_columns_and_the_same_captures(tmp_path: Path) -> None:
    first, second = one(LOSSY, pcap=tmp_path / "a"), one(LOSSY, pcap=tmp_path / "b")
    assert first.events().num_rows > 0
    assert digest(first) == digest(second)
    captures = [sorted((tmp_path / name).rglob("*.pcapng")) for name in "ab"]
    assert [path.name for path in captures[0]] == ["client.pcapng", "server.pcapng"]
    for ours, theirs in zip(*captures, strict=True):
        assert ours.stat().st_size > 100_000
        assert ours.read_bytes() == theirs.read_bytes()
    other = digest(one(LOSSY, seed=2))
    assert other["samples"] != digest(first)["samples"]


def test_a_capture_shows_what_the_simulator_knows(tmp_path: Path) -> None:
    truth = one(WINDOW, pcap=tmp_path)
    run = unbloat.analyze(tmp_path / "server.pcapng")
    assert run.main_flow is not None
    printed = run.flow(run.main_flow)
    [known] = Figures(truth).flows("download")
    assert printed["bytes"] == pytest.approx(known["bytes"], rel=0.01)
    assert printed["goodput_bps"] == pytest.approx(known["goodput_bps"], rel=0.01)
    assert printed["limit"] == known["limit"] == "receive_window"
    assert run.info["start_s"] == pytest.approx(truth.info["start_s"], abs=1)


def test_a_static_window_gives_window_over_round_trip() -> None:
    run = one(WINDOW)
    figures = Figures(run)
    # 30 KB hold 20 full segments of 1,448 bytes, acknowledged every two within the round trip of 100 ms.
    assert figures.goodput_bps("download") == pytest.approx(20 * 1448 * 8 / 0.1, rel=0.05)
    rtt = figures.rtt_ms("download")
    assert rtt is not None
    assert 100 <= rtt.min <= rtt.p50 <= rtt.p95 < 110
    assert run.info["conserved"] is True
    assert run.info["checks"][0].startswith("held: download: flow_goodput_bps ")


def test_flows_have_the_columns_of_captured_ones_and_more(tmp_path: Path) -> None:
    simulated = one(LOSSY, pcap=tmp_path)
    captured = unbloat.analyze(tmp_path / "client.pcapng")
    for ours, theirs in (
        (simulated.connections, captured.connections),
        (simulated.flows, captured.flows),
        (simulated.samples(), captured.samples()),
        (simulated.events(), captured.events()),
        (simulated.findings, captured.findings),
    ):
        shared = theirs.column_names
        assert ours.column_names[: len(shared)] == shared
        for name in shared:
            assert ours.schema.field(name).type == theirs.schema.field(name).type, name
        ours.validate(full=True)
    assert set(simulated.extra) == set(EXTRA)
    for row in simulated.flows.to_pylist():
        shares = [row[name] for name in row if name.startswith("share_") and row[name] is not None]
        assert not shares or sum(shares) == pytest.approx(1.0, abs=1e-9)
    assert json_line(run_object(simulated, series=("samples", "events")))


def test_applications_report_their_figures() -> None:
    figures = Figures(one(LOSSY))
    assert figures.app("pages", "page_load_ms")
    mos = figures.mos("call")
    assert mos is not None
    assert 1 <= mos <= 4.5


def test_a_stored_run_is_the_run(tmp_path: Path) -> None:
    run = one(LOSSY, set={"bin": "50 ms"})
    for name in ("run", "run.unbloat"):
        stored = unbloat.open_run(run.write(tmp_path / name))
        assert digest(stored) == digest(run)
        assert stored.name == "lossy"
        assert stored.info == {key: value for key, value in run.info.items() if value is not None}
    comparison = unbloat.compare(tmp_path / "run", one(LOSSY, seed=9), labels=["stored", "new"])
    assert comparison.labels == ["stored", "new"]


def test_a_sweep_is_the_product_of_its_values() -> None:
    sweep = '[sweep]\n"flow.0.congestion" = ["cubic", "vegas"]\n"link.up.rate" = ["4 Mbit/s", "8 Mbit/s"]\n'
    runs = several(LOSSY + sweep)
    assert [dict(labels) for labels in runs.labels] == [
        {"congestion": congestion, "rate": rate}
        for congestion in ("cubic", "vegas")
        for rate in ("4 Mbit/s", "8 Mbit/s")
    ]
    assert runs.table.num_rows == 4
    assert runs.table.column("congestion").to_pylist() == ["cubic", "cubic", "vegas", "vegas"]
    slow, fast = runs.select(congestion="cubic")
    assert Figures(slow).goodput_bps("upload") < Figures(fast).goodput_bps("upload")  # type: ignore[operator]
    # Each is the run that its keys give when they are set by hand.
    alone = one(LOSSY, set={"flow.0.congestion": "vegas", "link.up.rate": "8 Mbit/s"})
    assert digest(runs[3]) == digest(alone)
    assert runs.compare().labels == [
        "cubic, 4 Mbit/s",
        "cubic, 8 Mbit/s",
        "vegas, 4 Mbit/s",
        "vegas, 8 Mbit/s",
    ]


def test_seeds_are_repeated_and_given_as_mean_and_interval() -> None:
    runs = several(LOSSY, seeds=3)
    assert [run.info["seed"] for run in runs] == [1, 2, 3]
    [case] = runs.cases
    rates = [Figures(run).goodput_bps("upload") for run in runs]
    known = [rate for rate in rates if rate is not None]
    value = case.figures["upload.goodput_bps"]
    mean = sum(known) / 3
    deviation = math.sqrt(sum((rate - mean) ** 2 for rate in known) / 2)
    assert value.mean == pytest.approx(mean)
    assert value.half == pytest.approx(4.303 * deviation / math.sqrt(3))
    row = runs.summary.to_pylist()[0]
    assert row["runs"] == 3
    assert row["upload.goodput_bps_ci95"] == value.half


def test_students_t_joins_its_expansion_without_a_step() -> None:
    assert spread([2.0]).half is None
    assert spread([1.0, 3.0]).half == pytest.approx(12.706)
    assert t_975(30) > t_975(31) > t_975(40) > t_975(1000) > 1.9599
    # Table values: 31 → 2.0395, 40 → 2.0211, 120 → 1.9799.
    assert [t_975(n) for n in (31, 40, 120)] == pytest.approx([2.0395, 2.0211, 1.9799], abs=1e-4)


def test_any_executor_gives_the_same_runs() -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as pool:
        apart = several(LOSSY, seeds=2, executor=pool)
    assert [digest(run) for run in apart] == [
        digest(run) for run in several(LOSSY, seeds=2, jobs=1)
    ]


def test_a_job_and_its_result_can_be_sent_away() -> None:
    job = pickle.loads(
        pickle.dumps(Job(WINDOW, "", (), (("duration", "1 s"),), 1, {}, None, False))
    )
    info, tables = pickle.loads(pickle.dumps(run_job(job)))
    assert info["duration_s"] == 1.0
    assert tables["samples"].num_rows > 0


def test_scenarios_are_files_text_dictionaries_or_objects(tmp_path: Path) -> None:
    path = tmp_path / "window.toml"
    path.write_text(WINDOW)
    upload = Scenario("made", duration="2 s", seed=3)
    upload.link("up", rate="4 Mbit/s", delay="30 ms").link("down", rate="20 Mbit/s", delay="30 ms")
    upload.flow(sender="client", congestion={"kind": "cubic"}).probe(kind="ping", every="100 ms")
    upload.change("1 s", **{"link.up.rate": "2 Mbit/s"}).expect(probe_rtt_ms={"p50": {"max": 1000}})
    forms: list[tuple[Any, str]] = [
        (path, WINDOW),
        (str(path), WINDOW),
        (upload, upload.to_toml()),
        (upload.to_dict(), upload.to_toml()),
    ]
    for form, text in forms:
        run = unbloat.simulate(form)
        assert isinstance(run, unbloat.Run)
        assert digest(run) == digest(one(text))
    assert one(upload.to_toml()).info["seed"] == 3
    assert source_of(path).prefix == f"{path}: "
    assert (
        text_of({"a.b": 'x"\n', "c": None, "d": [1, 2.5, True]})
        == '"a.b" = "x\\"\\n"\nd = [1, 2.5, true]\n'
    )
    with pytest.raises(unbloat.ScenarioError, match="rate: nan is no figure"):
        text_of({"rate": math.nan})


# A sweep whose values are cases with labels.
LABELLED = HERE.parents[1] / "scenarios" / "afc-1-buffer-cap.toml"


@pytest.mark.parametrize("first", ["# " + "é" * 250, "# " + "ä" * 5_000, '# "\0"'])
def test_text_that_no_file_name_can_be_is_a_scenario(first: str) -> None:
    # 255 characters of two bytes each are longer than a file's name may be.
    text = f"{first}\n{WINDOW}"
    assert source_of(text).text == text
    assert source_of(text).path is None


def test_a_case_of_a_sweep_is_chosen_by_its_label() -> None:
    runs = unbloat.simulate(LABELLED, set={"buffer": "2 MB", "duration": "1 s"})
    assert isinstance(runs, unbloat.RunSet)
    assert [dict(labels) for labels in runs.labels] == [{"buffer": "2 MB"}]
    with pytest.raises(unbloat.ScenarioError, match="no case is called"):
        unbloat.simulate(LABELLED, set={"buffer": "3 MB"})


def test_a_case_that_replaces_what_was_set_warns_and_no_other() -> None:
    window = '{ kind = "fixed", window = "1 MiB" }'
    options = {"flow.download.receiver.window": window, "duration": "1 s"}
    runs = unbloat.simulate(LABELLED, set=options)
    assert isinstance(runs, unbloat.RunSet)
    warned = [sum("in a case" in text for text in run.warnings) for run in runs]
    assert warned == [0, 1]
    with pytest.raises(unbloat.ScenarioError, match="in each of its cases"):
        unbloat.simulate(LABELLED, set=options | {"buffer": "2 MB"})


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (WINDOW.replace('rate = "20', 'rat = "20'), 'rat: unknown key; did you mean "rate"'),
        (WINDOW.replace('delay = "50 ms"', 'delay = "-1 ms"'), "delay"),
        (WINDOW.replace('"20 Mbit/s"', '"0 Mbit/s"'), "rate"),
        (WINDOW + "[[", "line 21"),
        (WINDOW.replace("fixed", "fxed"), 'did you mean "fixed"'),
    ],
)
def test_a_wrong_scenario_is_refused_with_its_key(broken: str, said: str) -> None:
    with pytest.raises(unbloat.ScenarioError) as raised:
        unbloat.simulate(broken)
    assert said in str(raised.value)


def test_a_trace_that_is_not_there_is_named(tmp_path: Path) -> None:
    text = WINDOW.replace('[link.up]\nrate = "20 Mbit/s"', '[link.up]\ntrace = "drive.up"')
    with pytest.raises(unbloat.TraceMissing, match=r'trace "drive\.up"'):
        unbloat.simulate(text)
    (tmp_path / "drive.up").write_text("".join(f"{ms}\n" for ms in range(1, 1001)))
    assert one(text, traces=tmp_path).info["conserved"] is True
    runs = several(text + '[sweep]\n"link.up.trace" = ["drive.up", "walk.up"]\n', traces=tmp_path)
    assert len(runs) == 1
    assert [(dict(skipped.labels), "walk.up" in skipped.reason) for skipped in runs.skipped] == [
        ({"trace": "walk.up"}, True)
    ]


def test_every_metric_of_a_scenario_has_its_figure() -> None:
    known = {name: on for name, on, _, _ in native.scenario_metrics()}
    assert {m.name: m.on for m in METRICS.values() if m.expected} == known
    figures = Figures(one(LOSSY))
    for name, on, _, _ in native.scenario_metrics():
        for place in {
            "flow": figures.transfers,
            "probe": figures.probes,
            "link": figures.links,
            "run": [""],
        }[on]:
            METRICS[name].get(figures, place)


def test_distributions_are_put_together_by_their_counts() -> None:
    row = {
        "x_count": 100,
        "x_min": 0.0,
        "x_p50": 50.0,
        "x_p95": 95.0,
        "x_p99": 99.0,
        "x_max": 100.0,
    }
    shifted = {key: value + (100 if key != "x_count" else 0) for key, value in row.items()}
    both = gathered([row, shifted], "x", None)
    assert both is not None
    assert (both.count, both.min, both.max) == (200, 0.0, 200.0)
    assert both.p50 == pytest.approx(100, abs=1)
    assert both.p95 == pytest.approx(190, abs=1)
    assert statistics([]) is None
    assert statistics([3.0, 1.0, 2.0, None]) is not None


def test_expectations_fail_where_nothing_was_measured() -> None:
    runs = unbloat.simulate(WINDOW + "[[expect]]\nmos = { min = 4 }\n")
    assert isinstance(runs, unbloat.Run)
    assert (
        runs.info["checks"][-1] == "not held: download: mos was never measured, expected at least 4"
    )


def test_every_algorithm_is_listed_with_its_parameters() -> None:
    known = native.algorithms()
    assert {one["family"] for one in known} == {
        "congestion control",
        "window law",
        "queue discipline",
        "gate",
        "medium",
        "layer",
    }
    for one_ in known:
        assert one_["about"], one_
        assert one_["source"], one_
    assert (
        "cubic",
        next(about for name, about in entries("algorithms") if name == "cubic"),
    ) in entries("algorithms")
    assert 'target = "5 ms"' in page("algorithms", "codel")
    with pytest.raises(unbloat.UnbloatError, match="did you mean cubic"):
        page("algorithms", "cubik")


# Name of the snapshot → arguments.
CASES = {
    "run": "window.toml",
    "set": "window.toml --set duration=2\\ s --seed 7",
    "not-held": "window.toml --set flow.download.receiver.window.window=60\\ KB",
    "sweep": "sweep.toml",
    "seeds": "sweep.toml --seeds 3",
    "applications": "lossy.toml",
    "pcap-and-out": "window.toml --pcap captures --out tables",
    "json-line": "window.toml --set duration=200\\ ms --json",
    "missing": "nowhere.toml",
    "directory": ".",
    "no-text": "binary.toml",
    "wrong-key": "wrong.toml",
    "wrong-set": "window.toml --set flow.download.congestoin=bbr",
    "set-without-value": "window.toml --set duration",
    "no-trace": "trace.toml",
    "samples-without-json": "window.toml --samples",
    "out-on-a-file": "window.toml --out window.toml/x",
    "help": "--help",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory of scenarios."""
    (tmp_path / "window.toml").write_text(WINDOW)
    (tmp_path / "lossy.toml").write_text(LOSSY)
    (tmp_path / "sweep.toml").write_text(
        LOSSY
        + '[sweep]\n"flow.0.congestion" = ["cubic", "vegas"]\n[[expect]]\nprobe_rtt_ms = { p50 = { max = 100 } }\n'
    )
    (tmp_path / "wrong.toml").write_text(WINDOW.replace("delay", "dealy", 1))
    (tmp_path / "trace.toml").write_text(
        WINDOW.replace('rate = "20 Mbit/s"', 'trace = "drive.up"', 1)
    )
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    return tmp_path


ENVIRONMENT = {
    **{
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")
    },
    "PYTHONPATH": str(PACKAGE),
    "LC_ALL": "C.UTF-8",
}


def program(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `unbloat sim` as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "unbloat", "sim", *arguments],
        cwd=place,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def words(arguments: str) -> list[str]:
    """Arguments at blanks that no backslash keeps."""
    return [part.replace("\0", " ") for part in arguments.replace("\\ ", "\0").split()]


@pytest.mark.parametrize("name", CASES)
def test_the_program_answers_as_in_its_snapshot(place: Path, name: str) -> None:
    done = program(place, *words(CASES[name]))
    text = f"$ unbloat sim {CASES[name]}\nexit {done.returncode}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}"
    path = SNAPSHOTS / f"{name}.txt"
    if BLESS:
        path.write_text(text)
    assert text == path.read_text()
    assert "Traceback" not in text
    if "--json" not in CASES[name]:
        assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_no_snapshot_is_left_of_a_case_that_is_gone() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize(("left_columns", "columns"), [(1, 40), (1, 80), (2, 40), (2, 80)])
def test_figures_wider_than_the_terminal_are_printed_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, left_columns: int, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    titles = ["qdisc", "rate", *(f"figure {number}" for number in range(9))]
    row = ["droptail", "4 Mbit/s", *(f"{number}.25 ± 0.75 Mbit/s" for number in range(9))]
    table(Terminal(stream), titles, [row, ["fq_codel", *row[1:]]], left_columns)
    lines = stream.getvalue().splitlines()
    assert all(len(line) <= columns for line in lines), lines
    assert ("droptail" if left_columns == 1 else "droptail · 4 Mbit/s") in lines
    printed = stream.getvalue().replace("\u00a0", " ")
    assert all(
        printed.count(f"figure {number} {number}.25 ± 0.75 Mbit/s") == 2 for number in range(9)
    )


def test_a_wide_terminal_shows_more_figures_of_a_sweep(place: Path) -> None:
    narrow, wide = (
        program(place, "sweep.toml", COLUMNS=columns).stdout.splitlines()[2]
        for columns in ("80", "160")
    )
    assert narrow.split()[0] == wide.split()[0] == "congestion"
    for title in ("retrans", "MOS"):
        assert title not in narrow
        assert title in wide


def test_stored_runs_are_analysed_and_compared(place: Path) -> None:
    assert program(place, "sweep.toml", "--out", "runs").returncode == 0
    stored = sorted(path.name for path in (place / "runs").iterdir())
    assert stored == ["congestion=cubic", "congestion=vegas"]
    command = [sys.executable, "-m", "unbloat"]
    for arguments in (
        ["analyze", *(f"runs/{name}" for name in stored), "--out", "again"],
        ["compare", *(f"runs/{name}" for name in stored), "--report", "compare.html"],
    ):
        done = subprocess.run(
            [*command, *arguments],
            cwd=place,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "congestion=vegas: " in done.stdout
    assert sorted(path.name for path in (place / "again").iterdir()) == [
        f"lossy_{name}" for name in stored
    ]
    assert (place / "compare.html").stat().st_size > 50_000


def test_reports_are_written(place: Path) -> None:
    for file in ("window.toml", "sweep.toml"):
        done = program(place, file, "--report", "page.html")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("report: page.html\n")
        assert "<html" in (place / "page.html").read_text()


def test_json_is_a_line_per_run(place: Path) -> None:
    done = program(place, "sweep.toml", "--json", "--samples", "--set", "duration=1 s")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["labels"] for line in lines] == [{"congestion": "cubic"}, {"congestion": "vegas"}]
    for line in lines:
        assert line["format"] == 1
        assert line["checks"][0]["metric"] == "probe_rtt_ms"
        assert line["samples"]
        assert line["stages"][0]["delay_ms"]["p95"] is not None


@pytest.mark.parametrize(
    "sweep", ["", '[sweep]\n"flow.0.congestion" = ["cubic", "reno"]\n'.replace("reno", "newreno")]
)
def test_ctrl_c_ends_it_with_130_and_without_a_traceback(place: Path, sweep: str) -> None:
    text = (
        WINDOW.replace('"10 s"', '"300 s"')
        .replace("20 Mbit/s", "2 Gbit/s")
        .split("[flow.receiver]")[0]
    )
    (place / "long.toml").write_text(text + 'buffer = "400 MB"\n' + sweep)
    with subprocess.Popen(
        [sys.executable, "-m", "unbloat", "sim", "long.toml"],
        cwd=place,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        # The extension module is loaded last; then the simulation begins, which would take minutes.
        maps = Path(f"/proc/{process.pid}/maps")
        until(lambda: "_native" in maps.read_text(), 60)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in out + err
