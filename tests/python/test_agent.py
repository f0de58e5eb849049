"""`unbloat agent …`, whole: arguments in; exit code, standard output and standard error out. A stand-in answers for the program.

Snapshots lie in `snapshots/agent/`; `UNBLOAT_BLESS=1` renews them.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from requirements import require
from test_cli import BLESS, ENVIRONMENT, HERE, SNAPSHOTS

FAKE = HERE / "fake_agent.py"
COMMANDS = ("plan", "on", "off", "status", "run", "watch", "features", "defaults", "serve")

# Name of the snapshot → the program's life, columns, arguments.
CASES: dict[str, tuple[str, int, str]] = {
    "no-arguments": ("on", 80, ""),
    **{f"help-{name}": ("on", 80, f"{name} --help") for name in COMMANDS},
    "status-passed-on": ("on", 80, "status"),
    "status-without-root": ("rights", 80, "status"),
    "on-passed-on": ("on", 80, "on --set receive.lambda=2"),
    "on-set-passed-on": ("set", 80, "on --set receive.lambda=2"),
    "on-wrong-key": ("unknown", 80, "on --config agent.toml"),
    "on-wrong-set": ("on", 80, "on --set lambda"),
    "run": ("on", 80, "run --for 20s"),
    "run-narrow": ("on", 44, "run --for 20s"),
    "run-costs": ("costs", 80, "run --for 20s"),
    "run-idle": ("idle", 80, "run --for 20s"),
    "run-without-time": ("on", 80, "run"),
    "run-without-root": ("rights", 80, "run --for 20s"),
    "run-report-nowhere": ("on", 80, "run --for 20s --report nowhere/x.html"),
    "watch": ("on", 80, "watch --for 0s"),
    "watch-wide": ("on", 130, "watch --for 0s"),
    "watch-nonsense": ("nonsense", 80, "watch"),
    "watch-off": ("off", 80, "watch --for 0s"),
    "watch-wrong-time": ("on", 80, "watch --for soon"),
    "plan-passed-on": (
        "on",
        70,
        "plan --capture a.pcap --capture b.pcap --device wwan0 --out p.toml",
    ),
    "plan-live-passed-on": ("on", 80, "plan --live 30s --telemetry /run/modem.sock --json"),
    "plan-both": ("on", 80, "plan --capture a.pcap --live 30s"),
    "serve-passed-on": ("on", 80, "serve --config a.toml --set receive.lambda=2 --take-over"),
    "places-passed-on": ("on", 80, "--runtime /run/x --pins /sys/fs/bpf/x defaults"),
}


def environment(life: str = "on", columns: int = 80) -> dict[str, str]:
    """As a user's, with the stand-in."""
    return ENVIRONMENT | {"UNBLOAT_AGENT": str(FAKE), "FAKE_AGENT": life, "COLUMNS": str(columns)}


def agent(
    place: Path, *words: str, life: str = "on", columns: int = 80, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the front, with nothing that is a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "unbloat", "agent", *words],
        cwd=place,
        env=environment(life, columns) | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", CASES)
def test_the_front_answers_as_in_its_snapshot(tmp_path: Path, name: str) -> None:
    life, columns, words = CASES[name]
    done = agent(tmp_path, *words.split(), life=life, columns=columns)
    text = (
        f"$ unbloat agent {words}".rstrip()
        + f"\nexit {done.returncode}\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}"
    )
    path = SNAPSHOTS / "agent" / f"{name}.txt"
    if BLESS:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    assert "Traceback" not in text
    assert "\x1b" not in text
    if not name.endswith("-passed-on"):
        assert all(len(line) <= columns for line in done.stdout.splitlines()), columns


def test_no_snapshot_is_left_of_a_case_that_is_gone() -> None:
    assert {path.stem for path in (SNAPSHOTS / "agent").glob("*.txt")} == set(CASES)


def test_every_command_shows_an_example() -> None:
    for name in COMMANDS:
        text = (SNAPSHOTS / "agent" / f"help-{name}.txt").read_text()
        assert re.search(rf"Example:( sudo)? unbloat agent {name}", text.replace("\n  ", " ")), name


@pytest.mark.parametrize("command", ["status", "off", "features"])
def test_json_is_the_programs_own(tmp_path: Path, command: str) -> None:
    done = agent(tmp_path, command, "--json")
    own = subprocess.run(
        [FAKE, command, "--json"], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, own.stdout)


def test_json_of_what_was_refused_keeps_the_exit_code(tmp_path: Path) -> None:
    done = agent(tmp_path, "status", "--json", life="rights")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "ok": False,
        "error": "needs root: it loads BPF programs and changes sockets",
    }


def test_json_of_a_run_is_one_line_and_the_page_is_named_beside_it(tmp_path: Path) -> None:
    done = agent(tmp_path, "run", "--for", "20s", "--json", "--report", "x.html")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["helped"] is True
    assert done.stderr == "report: x.html\n"
    page = (tmp_path / "x.html").read_text()
    assert "Downloads: it helped." in page
    assert '"agent-rtt"' in page


@pytest.mark.parametrize("command", ["status", "watch"])
def test_the_program_itself_says_that_no_agent_runs(tmp_path: Path, command: str) -> None:
    require("unbloat-agent")
    argv = [sys.executable, "-m", "unbloat", "agent", "--runtime", str(tmp_path), command]
    argv += ["--for", "0s"] if command == "watch" else []
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["off"]


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = agent(tmp_path, "status", UNBLOAT_AGENT="/nonexistent/unbloat-agent")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("unbloat: unbloat-agent is not there")
    assert done.stderr.count("\n") == 1


def test_a_program_that_dies_is_said_in_one_line(tmp_path: Path) -> None:
    dying = tmp_path / "unbloat-agent"
    dying.write_text("#!/bin/sh\nkill -9 $$\n")
    dying.chmod(0o755)
    for words in (["watch"], ["run", "--for", "20s"]):
        done = agent(tmp_path, *words, UNBLOAT_AGENT=str(dying))
        assert (done.returncode, done.stderr) == (1, "unbloat: unbloat-agent ended with -9\n")


def test_ctrl_c_during_a_run_lets_the_program_undo_first(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "unbloat", "agent", "run", "--for", "20s", "--report", "x.html"],
        cwd=tmp_path,
        env=environment("slow"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(2)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=30)
    assert (child.returncode, out) == (130, "")
    assert errors == "unbloat: interrupted; everything is as it was\n"
    assert not (tmp_path / "x.html").exists()


class Terminal:
    """The front on a terminal of its own."""

    def __init__(self, place: Path, *words: str, **more: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(place)
            kept = {key: value for key, value in environment().items() if key != "COLUMNS"}
            argv = [sys.executable, "-m", "unbloat", "agent", *words]
            os.execve(sys.executable, argv, kept | {"TERM": "xterm-256color", "LINES": "24"} | more)
        self.text = b""

    def until(self, wanted: Callable[[bytes], bool], within_s: float = 30.0) -> bytes:
        """Reads until the text so far is as wanted."""
        end = time.monotonic() + within_s
        while not wanted(self.text):
            assert time.monotonic() < end, self.text[-2000:]
            if select.select([self.fd], [], [], 0.2)[0]:
                self.text += os.read(self.fd, 65_536)
        return self.text

    def press(self, keys: bytes) -> None:
        """Types."""
        os.write(self.fd, keys)

    def ended(self) -> int:
        """Waits for its end: exit code."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65_536)
                except OSError:  # the other end is closed
                    break
        else:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"it did not end: {self.text[-500:]!r}")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


ALTERNATE, NORMAL = b"\x1b[?1049h", b"\x1b[?1049l"
HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"


@pytest.mark.parametrize("how", ["q", "ctrl-c", "term", "time"])
def test_the_live_view_leaves_the_terminal_as_it_was(tmp_path: Path, how: str) -> None:
    terminal = Terminal(tmp_path, "watch", *(["--for", "1s"] if how == "time" else []))
    terminal.until(lambda text: b"192.0.2.7:443" in text)
    if how == "q":
        terminal.press(b"x")  # other keys do nothing
        terminal.press(b"q")
    elif how == "ctrl-c":
        terminal.press(b"\x03")
    elif how == "term":
        os.kill(terminal.pid, signal.SIGTERM)
    code = terminal.ended()
    assert code == (128 + signal.SIGTERM if how == "term" else 0)
    assert terminal.text.count(ALTERNATE) == terminal.text.count(NORMAL) == 1
    assert terminal.text.rindex(SHOWN) > terminal.text.rindex(HIDDEN)
    assert b"Traceback" not in terminal.text
    assert (
        b"\x1b[31m that bites" not in terminal.text
    )  # what a log line contains never reaches the terminal


def test_the_live_view_draws_the_course_of_an_rtt_and_names_the_uplink(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "watch")
    text = terminal.until(lambda text: "██".encode() in text)
    terminal.press(b"q")
    assert terminal.ended() == 0
    assert b"no modem reports on" in text
    assert b"/run/unbloat/modem.sock" in text


def test_no_color_is_honoured(tmp_path: Path) -> None:
    colours = re.compile(rb"\x1b\[\d+(;\d+)*m")
    for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        terminal = Terminal(tmp_path, "watch", "--for", "0s", **more)
        assert terminal.ended() == 0
        assert bool(re.search(rb"\x1b\[2m", terminal.text)) is coloured
        assert coloured or not colours.search(terminal.text)
