"""`unbloat agent run` on real sockets: before and after, the page in a browser, and nothing left however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import starved
from agent_program import agent_path
from download import Agent, Download
from requirements import CHROMIUM, require, require_module

from unbloat.lab.instruments import Goodput
from unbloat.lab.testbed import TIMEOUT_S, end

pytestmark = pytest.mark.usefixtures("machine")
BASE_MS = 60.0
LINK_MBPS = 7.7  # what TCP carries of 8 Mbit/s
# Seconds of the download that lie within the run: it begins after 4 s and takes 20. Once the cure is undone, the queue
# fills again and overflows.
DURING = slice(5, 24)


def front(agent: Agent, *words: str) -> subprocess.Popen[str]:
    """`unbloat agent`, with the program and the places of a testbed."""
    name = agent_path()
    argv = [
        "agent",
        "--runtime",
        str(agent.runtime),
        "--pins",
        str(agent.pins),
        *words,
        *agent.sets(),
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "unbloat", *argv],
        env=os.environ | {"UNBLOAT_AGENT": name},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def measured(folder: Path) -> tuple[dict[str, Any], Goodput]:
    """A run beside a download: what it says, and what iperf3 does."""
    folder.mkdir()
    with (
        Download(folder) as testbed,
        Agent(testbed, "uplink.mode=off", "receive.lambda=2") as agent,
    ):
        testbed.iperf_server()
        download = testbed.download(32)
        time.sleep(4)  # the queue stands
        running = front(
            agent, "run", "--for", "20s", "--json", "--report", str(folder / "run.html")
        )
        out, errors = running.communicate(timeout=TIMEOUT_S)
        assert running.returncode == 0, errors
        agent.nothing_left()
        done: dict[str, Any] = json.loads(out)
        return done, Goodput.of(download)


def test_a_run_says_by_how_much_rtt_fell_and_leaves_nothing(tmp_path: Path) -> None:
    require_module("unbloat._native")
    folder = tmp_path / "run"
    done, judged = measured(folder)
    if (slowest := min(judged.seconds[DURING])) <= 0.9 * LINK_MBPS:
        # A machine that pauses makes another link than the one described.
        starved.measured(f"iperf3 got {slowest} of {LINK_MBPS} Mbit/s in one second")
    before, after = done["before"]["downloads"], done["after"]["downloads"]
    assert before["rtt_ms_p50"] > 4 * BASE_MS, done
    assert after["rtt_ms_p50"] < 2.3 * BASE_MS, done
    assert after["rtt_ms_p95"] < 2.6 * BASE_MS, done
    assert after["goodput_bps"] > 0.95 * before["goodput_bps"], done
    assert after["goodput_bps"] == pytest.approx(
        statistics.fmean(judged.seconds[DURING]) * 1e6, rel=0.05
    ), (done, judged)
    assert done["helped"] is True
    sentence = r"Downloads: it helped, RTT fell from \d+ to 1\d\d ms at \d+ % of the goodput\."
    assert re.fullmatch(sentence, done["verdict"])
    shows(folder / "run.html", done["verdict"])


def shows(page: Path, verdict: str) -> None:
    """A browser draws the page's charts, and complains about nothing."""
    require("chromium")
    switches = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
    ]
    argv = [
        CHROMIUM,
        *switches,
        f"--user-data-dir={page.parent / 'browser'}",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert 'data-shown="locate"' in done.stdout, done.stderr[-2000:]
    for chart in ("agent-rtt", "agent-goodput", "agent-windows"):
        assert re.search(rf'id="chart-{chart}".*?<canvas', done.stdout, re.S), chart
    assert verdict in done.stdout
    assert "CONSOLE" not in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_a_run_that_is_ended_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, "uplink.mode=off") as agent:
        testbed.iperf_server()
        download = testbed.download(12)
        argv = agent.argv("run", "--for", "8s", "--stream", *agent.sets())
        running = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert running.stdout is not None
        for line in running.stdout:
            if json.loads(line)["part"] == "after":
                break
        clamped = json.loads(line)["status"]["cures"]["receive"]["applied"]
        running.send_signal(how)
        running.communicate(timeout=TIMEOUT_S)
        assert running.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
        assert clamped > 0
        for _ in range(100):
            if not agent.pins.exists():
                break
            time.sleep(0.05)
        agent.nothing_left()
        assert json.loads(agent.do("--json", "status"))["state"] == "off"
        end(download)
