"""The command line, whole: arguments in; exit code, standard output and standard error out.

Snapshots lie in `snapshots/`; `UNBLOAT_BLESS=1 pytest tests/python/test_cli.py` renews them, and the difference is reviewed
like any other. The analysis behind them is made up by `fake_native`.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from array import array
from pathlib import Path

import pytest

import unbloat as package

HERE = Path(__file__).parent
SNAPSHOTS = HERE / "snapshots"
PACKAGE = Path(package.__file__).parents[1]
BLESS = os.environ.get("UNBLOAT_BLESS") == "1"

ENVIRONMENT = {
    **{
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")
    },
    "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(HERE)]),
    "LC_ALL": "C.UTF-8",
}

# Name of the snapshot → arguments.
CASES = {
    "no-arguments": "",
    "version": "--version",
    "help": "--help",
    "help-analyze": "analyze --help",
    "help-compare": "compare --help",
    "help-demo": "demo --help",
    "help-plot": "plot --help",
    "help-list": "list --help",
    "help-locate": "locate --help",
    "help-measure": "measure --help",
    "analyze": "analyze cubic.pcapng",
    "analyze-csv": "analyze cubic.pcapng --csv tables",
    "analyze-wrong-top": "analyze cubic.pcapng --top many",
    "compare-wrong-connection": "compare cubic.pcapng bbr.pcapng --connection 0 --connection x",
    "plot-wrong-connection": "plot cubic.pcapng --out cubic.svg --connection 9",
    "analyze-top": "analyze cubic.pcapng --top 1 --sort grade",
    "analyze-several": "analyze cubic.pcapng bad.pcap bbr.pcapng missing.pcap",
    "analyze-merged": "analyze cubic.pcapng bbr.pcapng --merge",
    "analyze-unreadable": "analyze bad.pcap",
    "analyze-missing": "analyze missing.pcap",
    "analyze-directory": "analyze .",
    "analyze-connection": "analyze cubic.pcapng --connection 0",
    "analyze-connection-without-figures": "analyze cubic.pcapng --connection 1",
    "analyze-connection-udp": "analyze cubic.pcapng --connection 2",
    "analyze-connection-missing": "analyze cubic.pcapng --connection 9",
    "analyze-json": "analyze cubic.pcapng --json --connection 1 --events",
    "analyze-samples-without-json": "analyze cubic.pcapng --samples",
    "analyze-unknown-option": "analyze cubic.pcapng --frobnicate",
    "analyze-wrong-sort": "analyze cubic.pcapng --sort size",
    "analyze-twice-stdin": "analyze - -",
    "analyze-out-on-a-file": "analyze cubic.pcapng --out bad.pcap/x",
    "compare": "compare cubic.pcapng bbr.pcapng",
    "compare-labels": "compare cubic.pcapng bbr.pcapng --labels CUBIC,BBR --connection 0→ --connection 1←",
    "compare-wrong-labels": "compare cubic.pcapng bbr.pcapng --labels one",
    "compare-one-direction": "compare cubic.pcapng",
    "compare-unreadable": "compare cubic.pcapng bad.pcap",
    "list-rules": "list rules",
    "list-rule": "list rules bufferbloat",
    "list-rule-misspelt": "list rules bufferblot",
    "list-limits": "list limits",
    "list-linktypes": "list linktypes",
    "list-unknown": "list frogs",
    "plot-wrong-format": "plot cubic.pcapng --out figure.txt",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with captures that the stand-in knows."""
    for name in ("cubic.pcapng", "bbr.pcapng"):
        (tmp_path / name).write_bytes(b"anything")
    (tmp_path / "bad.pcap").write_bytes(b"bad")
    return tmp_path


def unbloat(
    place: Path, *arguments: str, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the program as a user would, with nothing that is a terminal."""
    command = [sys.executable, str(HERE / "run_fake.py"), *arguments]
    done = subprocess.run(
        command,
        cwd=place,
        env=ENVIRONMENT | environment,
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(
        command, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


@pytest.mark.parametrize("name", CASES)
def test_the_program_answers_as_in_its_snapshot(place: Path, name: str) -> None:
    done = unbloat(place, *CASES[name].split())
    text = (
        f"$ unbloat {CASES[name]}".rstrip()
        + f"\nexit {done.returncode}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}"
    )
    path = SNAPSHOTS / f"{name}.txt"
    if BLESS:
        SNAPSHOTS.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    assert "Traceback" not in text
    if "analyze" in name or "compare" in name:
        assert all(len(line) <= 80 or line.startswith("{") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [
        "analyze cubic.pcapng --report gone/x.html",
        "analyze cubic.pcapng --out cubic.pcapng/x",
        "analyze cubic.pcapng --csv cubic.pcapng",
        "compare cubic.pcapng bbr.pcapng --report gone/x.html",
        "plot cubic.pcapng --out gone/x.svg",
        "reproduce drwa-2-overbuffered --report gone/x.html",
        "demo --report gone/x.html",
        "agent run --for 60s --report gone/x.html",
        "record gone/x.pcap --ping 127.0.0.1",
    ],
)
def test_a_place_that_cannot_be_written_is_wrong_usage(place: Path, arguments: str) -> None:
    done = unbloat(place, *arguments.split())
    assert (done.returncode, "cannot be written" in done.stderr) == (2, True), done.stderr
    assert done.stderr.count("\n") == 1


def test_output_onto_a_full_disk_is_wrong_usage(place: Path) -> None:
    command = f"{sys.executable} {HERE / 'run_fake.py'} analyze cubic.pcapng --json > /dev/full"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=place,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "unbloat: output cannot be written: no space left on device\n"


def test_segments_are_a_table_of_csv_as_well(place: Path) -> None:
    done = unbloat(place, "analyze", "cubic.pcapng", "--csv", "tables-csv", "--segments")
    assert done.returncode == 0, done.stderr
    assert (place / "tables-csv" / "segments.csv").is_file()
    assert unbloat(place, "analyze", "cubic.pcapng", "--segments").returncode == 2


def test_no_snapshot_is_left_of_a_case_that_is_gone() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(CASES)


def test_a_wide_terminal_gets_one_line_per_connection(place: Path) -> None:
    lines = unbloat(place, "analyze", "cubic.pcapng", COLUMNS="130").stdout.splitlines()
    row = next(line for line in lines if "10.77.0.2:5201" in line)
    assert "15.9 MB" in row
    assert "receive window" in row


def test_standard_input_is_read_twice_when_series_are_asked_for(place: Path) -> None:
    done = unbloat(place, "analyze", "-", "--connection", "0", stdin=b"anything")
    assert done.returncode == 0
    assert "over time" in done.stdout
    bad = unbloat(place, "analyze", "-", "--json", "--samples", stdin=b"bad")
    assert bad.returncode == 3
    assert bad.stderr.startswith("unbloat: standard input: not a capture file")


def test_several_captures_give_a_line_of_json_each(place: Path) -> None:
    done = unbloat(place, "analyze", "cubic.pcapng", "bad.pcap", "bbr.pcapng", "--json")
    assert done.returncode == 3
    assert [json.loads(line)["run"]["files"] for line in done.stdout.splitlines()] == [
        ["cubic.pcapng"],
        ["bbr.pcapng"],
    ]


def test_tables_of_several_captures_lie_side_by_side(place: Path) -> None:
    done = unbloat(place, "analyze", "cubic.pcapng", "bbr.pcapng", "--out", "tables", "--segments")
    assert done.returncode == 0
    for name in ("cubic", "bbr"):
        assert (place / "tables" / name / "segments.parquet").is_file()
    again = unbloat(place, "analyze", "tables/cubic")
    assert (
        again.stdout.splitlines()[4:]
        == unbloat(place, "analyze", "cubic.pcapng").stdout.splitlines()[4:]
    )
    one = unbloat(place, "analyze", "cubic.pcapng", "--out", "run.unbloat")
    assert one.stdout.endswith("tables: run.unbloat\n")
    assert unbloat(place, "compare", "run.unbloat", "tables/bbr").returncode == 0


def test_reports_of_several_captures_have_distinct_names(place: Path) -> None:
    done = unbloat(place, "analyze", "cubic.pcapng", "bbr.pcapng", "--report", "x.html")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in place.glob("*.html")} == {"x-cubic.html", "x-bbr.html"}
    assert "report: x-bbr.html" in done.stdout


def test_a_comparison_becomes_a_page(place: Path) -> None:
    done = unbloat(place, "compare", "cubic.pcapng", "bbr.pcapng", "--report", "x.html", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"].startswith("bbr: ")
    assert done.stderr == "report: x.html\n"
    assert "<html" in (place / "x.html").read_text()


def test_a_page_that_cannot_be_written_is_a_wrong_argument(place: Path) -> None:
    done = unbloat(place, "analyze", "cubic.pcapng", "--report", "nowhere/x.html")
    assert (done.returncode, done.stderr) == (
        2,
        "unbloat: nowhere/x.html: cannot be written: no such file or directory\n",
    )


def test_the_demo_writes_its_report(place: Path) -> None:
    done = unbloat(place, "demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"report: {place / 'unbloat-report.html'}\n")
    assert (place / "unbloat-report.html").stat().st_size > 10_000


def test_a_figure_is_drawn(place: Path) -> None:
    done = unbloat(place, "plot", "cubic.pcapng", "--out", "figure.svg")
    assert (done.returncode, done.stdout) == (0, "figure: figure.svg\n"), done.stderr
    assert "<svg" in (place / "figure.svg").read_text()


def test_a_reader_that_has_seen_enough_ends_the_program_quietly(place: Path) -> None:
    command = f"{sys.executable} {HERE / 'run_fake.py'} analyze cubic.pcapng --json --samples --events --segments | head -c 100"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env=ENVIRONMENT,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert len(done.stdout) == 100
    assert done.stderr == b""


def test_a_file_name_cannot_steer_the_terminal(place: Path) -> None:
    (place / "a\x1b[2Jb\n.pcap").write_bytes(b"anything")
    (place / "bad\x1b[2J.pcap").write_bytes(b"bad")
    done = unbloat(place, "analyze", "a\x1b[2Jb\n.pcap", "bad\x1b[2J.pcap")
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout.startswith("a�[2Jb�.pcap · ")


def test_colour_is_for_terminals_and_can_be_refused(place: Path) -> None:
    assert "\x1b[" in on_terminal(place, {"TERM": "xterm"})
    assert "\x1b[" not in on_terminal(place, {"TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b[" not in on_terminal(place, {"TERM": "dumb"})


def on_terminal(place: Path, environment: dict[str, str]) -> str:
    """What `analyze` writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, str(HERE / "run_fake.py"), "analyze", "cubic.pcapng"]
    with subprocess.Popen(
        command, cwd=place, env=ENVIRONMENT | environment, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:
            pass  # Linux says so when the other side is closed
        process.wait(timeout=30)
    os.close(ours)
    return seen.decode()


def test_ctrl_c_ends_it_with_130_and_without_a_traceback(place: Path) -> None:
    command = [sys.executable, str(HERE / "run_fake.py"), "analyze", "-"]
    # Standard input never ends here. The program has begun when it has read the first byte.
    with subprocess.Popen(
        [*command, "--connection", "0"],
        cwd=place,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"a")
        process.stdin.flush()
        left = array("i", [1])
        while left[0]:
            time.sleep(0.02)
            fcntl.ioctl(process.stdin, termios.FIONREAD, left)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in out + err


def test_heavy_modules_wait_until_they_are_needed(place: Path) -> None:
    code = (
        "import sys, unbloat, unbloat.cli; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not {"pyarrow", "rich", "jinja2", "numpy", "pandas", "matplotlib"} & set(
        done.stdout.split()
    )
