"""`unbloat measure --out`: the program as a child, and its result as a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import measured_result as made
import pytest

import unbloat
from unbloat.errors import UnbloatError
from unbloat.measured.run import run_of
from unbloat.run.figures import Figures
from unbloat.run.tables import Row

UNBLOAT = [sys.executable, "-m", "unbloat"]
# Writes the result where the last word says, and prints something.
MEASURES = (
    'for last; do :; done\ncp "$RESULT" "$last"\necho "the text"\necho progress >&2\nexit {code}'
)


def front(folder: Path, body: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`unbloat measure` with a stand-in for the program."""
    result = folder / "result.json"
    result.write_text(json.dumps(made.result()))
    environment = made.environment(made.program(folder, body)) | {"RESULT": str(result)}
    argv = [*UNBLOAT, "measure", *words]
    return subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60)


@pytest.fixture(scope="module")
def run() -> unbloat.Run:
    return run_of(made.result())


def test_streams_are_connections_with_the_delay_and_grade_of_their_phase(run: unbloat.Run) -> None:
    assert run.connections.num_rows == 2
    for id_, (name, grade) in enumerate((("down", "B"), ("up", "D"))):
        ms, _, _, _, _ = made.LOADS[name]
        flow = run.flow(2 * id_)
        assert (flow["transfer"], flow["grade"], flow["congestion"]) == (name, grade, "cubic")
        assert flow["queue_ms_p95"] == pytest.approx(ms)
        assert flow["goodput_bps"] == pytest.approx(made.RATE_BPS, rel=0.01)
        assert flow["in_flight_bytes_max"] == 90 * 1448
        assert flow["lost_packets"] is None
        assert run.flow(2 * id_ + 1)["grade"] is None
    assert run.connection(0)["a_addr"] == "10.0.0.2", "the sender of the download"
    assert run.connection(1)["a_port"] == 40_001


def by_quic(result: Row) -> Row:
    """The same measurement, as if QUIC had carried all loads: what its sender does not know is null, and both ends count."""
    known = {"t_s", "congestion_control", "rtt_ms", "rtt_min_ms", "cwnd_segments", "mss_bytes"}
    for one in [*result["phases"], *result["samples"]["streams"], *result["samples"]["steps"]]:
        one["transport"] = None if one.get("name") == "idle" else "quic"
    for stream in result["samples"]["streams"]:
        ends = ("at_client", "at_server")
        sender, receiver = ends if stream["direction"] == "up" else reversed(ends)
        rows = stream[sender]
        # The receiver looks a little later.
        stream[receiver] = [
            {"t_s": row["t_s"] + 0.02, "received_bytes": row["acked_bytes"]} for row in rows
        ]
        stream[sender] = [
            {name: value if name in known else None for name, value in row.items()} for row in rows
        ]
    return result


def test_a_connection_of_quic_has_what_the_receiver_counted_and_no_figure_of_tcp() -> None:
    run = run_of(by_quic(made.result()))
    assert {row["proto"] for row in run.connections.to_pylist()} == {"udp"}
    for id_, name in enumerate(("down", "up")):
        flow = run.flow(2 * id_)
        assert (flow["transfer"], flow["grade"]) == (
            f"{name}, quic",
            {"down": "B", "up": "D"}[name],
        )
        assert flow["goodput_bps"] == pytest.approx(made.RATE_BPS, rel=0.03)
        assert flow["retransmissions"] is flow["in_flight_bytes_max"] is None
        assert flow["limit"] == "unknown"
    assert set(Figures(run).probes) == {"idle", "down, quic", "up, quic", "settling"}


def test_probes_belong_to_the_phase_that_was_measured(run: unbloat.Run) -> None:
    figures = Figures(run)
    assert set(figures.probes) == {"idle", "down", "up", "settling"}
    up = figures.probe("up", "rtt_ms")
    assert up is not None
    assert up.min == up.max == 270.0, "what the filling queue adds is not in it"
    sent, lost = figures.probe_counts("up")
    assert sent == 150
    assert lost == pytest.approx(sent / made.LOST_EVERY, abs=1)
    assert figures.probe_counts("idle") == (75, 0)
    rows = [row for row in run.probes.to_pylist() if row["lost"]]
    assert {row["lost_on"] for row in rows} == {"up"}
    settling = [row["added_up_ms"] for row in run.probes.to_pylist() if row["probe"] == "settling"]
    assert max(filter(None, settling)) == pytest.approx(245, abs=1)


def test_goodput_is_what_the_receiver_counted(run: unbloat.Run) -> None:
    figures = Figures(run)
    for name in ("down", "up"):
        rates = figures.app(name, "goodput_bps")
        assert len(rates) in (39, 40, 41)
        assert sorted(rates)[len(rates) // 2] == pytest.approx(made.RATE_BPS, rel=0.01)


def test_a_stored_measurement_is_read_back_compared_and_drawn(
    run: unbloat.Run, tmp_path: Path
) -> None:
    again = unbloat.open_run(run.write(tmp_path / "a.unbloat"))
    assert again.probes.equals(run.probes)
    assert again.flows.equals(run.flows)
    assert json.loads(again.info["result"])["phases"] == made.result()["phases"]
    assert "samples" not in json.loads(again.info["result"])
    other = run_of(made.result()).write(tmp_path / "b")
    compared = unbloat.compare(tmp_path / "a.unbloat", other).to_dict()
    transfers = next(one for one in compared["scenario"] if one["section"] == "transfer")
    assert {line["place"] for line in transfers["lines"]} == {"down", "up"}
    assert "grade B" not in compared["verdict"], "they do not differ"
    assert "<svg" in again._repr_html_()
    assert "10.0.0.2:26110 sent 4.0 MB" in again.verdict or "3.9 MB" in again.verdict


def test_a_result_without_samples_is_refused() -> None:
    with pytest.raises(UnbloatError, match="nothing to store"):
        run_of(made.result() | {"samples": None})


@pytest.mark.parametrize("code", [0, 5])
def test_text_and_exit_code_are_the_programs(tmp_path: Path, code: int) -> None:
    out = tmp_path / "run.unbloat"
    done = front(tmp_path, MEASURES.format(code=code), "my-server", "--quick", "--out", str(out))
    assert done.returncode == code, done.stderr
    assert done.stdout == f"the text\ntables: {out}\n"
    assert done.stderr == "progress\n"
    words = (tmp_path / "words").read_text().split()
    assert words[:3] == ["my-server", "--quick", "--samples"]
    assert len(words) == 4
    assert unbloat.open_run(out).info["origin"] == "measured"
    assert not Path(words[3]).exists()


def test_json_stays_alone_on_standard_output(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = front(tmp_path, MEASURES.format(code=0), "my-server", "--json", "--out", str(out))
    assert done.stdout == "the text\n"
    assert done.stderr.endswith(f"tables: {out}\n")


def test_the_page_is_written_without_a_stored_run(tmp_path: Path) -> None:
    report = tmp_path / "page.html"
    words = ("my-server", "--report", str(report))
    done = front(tmp_path, MEASURES.format(code=0), *words)
    assert done.stdout == f"the text\nreport: {report}\n"
    assert "Delay under load to my-server" in report.read_text()
    assert list(tmp_path.glob("*.unbloat")) == []


def test_nothing_is_stored_where_nothing_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "run.unbloat"
    body = "echo 'unbloat-measure: no server' >&2\nexit 3"
    done = front(tmp_path, body, "my-server", "--out", str(out))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "unbloat-measure: no server\n"
    assert not out.exists()


@pytest.mark.parametrize(
    "words", [("serve",), ("my-server", "--idle-gaps", "quick"), ("my-server", "--every", "1h")]
)
def test_what_measures_no_load_once_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = front(tmp_path, MEASURES.format(code=0), *words, "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "--out" in done.stderr
    assert not (tmp_path / "words").exists()


def test_an_interruption_reaches_the_program_and_ends_the_front(tmp_path: Path) -> None:
    # The shell runs its trap when the sleep ends; a short one lets it look often.
    body = f"trap 'touch {tmp_path}/got; trap - INT; kill -INT $$' INT\ntouch {tmp_path}/runs\nwhile :; do sleep 0.05; done"
    environment = made.environment(made.program(tmp_path, body))
    argv = [*UNBLOAT, "measure", "my-server", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not (tmp_path / "runs").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert (tmp_path / "got").exists()
    assert not (tmp_path / "run").exists()


def test_a_place_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    out = tmp_path / "no-such" / "run.unbloat"
    done = front(tmp_path, MEASURES.format(code=0), "my-server", "--out", str(out))
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert not (tmp_path / "words").exists()
    shutil.rmtree(tmp_path / "no-such", ignore_errors=True)
