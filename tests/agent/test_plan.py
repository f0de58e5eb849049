"""`unbloat-agent plan` on real sockets behind the emulator: it names the right cure, and `on` with its configuration keeps the promise."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import uplink
from agent_program import agent_path
from download import Agent, Download, rtts, scenario

from unbloat.lab.testbed import Testbed, output, run

pytestmark = pytest.mark.usefixtures("machine")

BASE_MS = 60.0


def asked(testbed: Testbed, node: str, *words: str) -> dict[str, Any]:
    """What it says in a network namespace, where the sockets are."""
    name = agent_path()
    argv = (name, "--json", "plan", "--device", "up", *words)
    said: dict[str, Any] = json.loads(testbed.ask(node, *argv))
    assert said["ok"]
    return said


def plan(testbed: Download, *words: str) -> tuple[dict[str, Any], Path]:
    """What it says about the host, and the configuration that it wrote."""
    out = testbed.folder / "plan.toml"
    return asked(testbed, "host", "--out", str(out), *words), out


def recommended(said: dict[str, Any]) -> dict[str, Any]:
    """The one that it would apply."""
    (advice,) = [advice for advice in said["advice"] if advice["rank"] == "recommended"]
    assert advice["finding"] == "bufferbloat"
    assert advice["blocked"] is None
    assert advice["confidence"] == "high"
    return dict(advice)


def applied(testbed: Download, agent: Agent, config: Path) -> None:
    """`on` with that configuration, for the testbed's own connections."""
    scope = ("--set", f"scope.cgroup={testbed.cgroup}")
    run(*testbed.argv("host", *agent.argv("on", "--config", str(config), *scope), grouped=False))


def settled(
    testbed: Download, after_s: float, lasting_s: float, counter: str
) -> tuple[float, float]:
    """Median RTT of a ping, when a cure has had its time, and bit/s beside it: what the largest of the host's sockets counts."""

    def counted() -> int:
        return max(
            int(n) for n in re.findall(rf"{counter}:(\d+)", testbed.ask("host", "ss", "-Htin"))
        )

    time.sleep(after_s)
    began, before = time.monotonic(), counted()
    found = rtts(testbed.ping(lasting_s), 0.0)
    return statistics.median(found), (counted() - before) * 8 / (time.monotonic() - began)


def test_an_idle_host_has_nothing_to_cure(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed:
        said, out = plan(testbed, "--live", "1s")
    assert (said["verdict"], said["advice"], said["configuration"]) == ("nothing", [], None)
    assert said["nothing"].startswith("Nothing to cure was seen")
    assert not out.exists()
    device = said["host"]["device"]
    assert (device["name"], device["link"]) == ("up", "tunnel")
    assert said["host"]["sysctls"]["tcp_rmem_bytes"].count(" ") == 2


def test_a_bloated_download_gets_drwa_and_the_rtt_that_was_promised(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        testbed.iperf_server()
        testbed.download(60)
        time.sleep(4)
        said, config = plan(testbed, "--live", "4s")
        advice = recommended(said)
        expects = advice["expects"]
        assert advice["cure"] == "receive"
        assert "receive" in config.read_text()
        assert advice["flow"]["rtt_ms_min"] == pytest.approx(BASE_MS, abs=5)
        assert advice["flow"]["grade"] == "F"
        assert expects["rtt_ms_p95_now"] > 400
        assert expects["goodput_bps"] == pytest.approx(7.7e6, rel=0.1)
        applied(testbed, agent, config)
        found, rate = settled(testbed, 4, 5, "bytes_received")
        assert found == pytest.approx(expects["rtt_ms"], rel=0.2)
        assert rate >= 0.95 * expects["goodput_bps"]


def test_a_bloated_upload_gets_windows_of_acks_and_the_rtt_that_was_promised(
    tmp_path: Path,
) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        testbed.iperf_server()
        testbed.start("host", "iperf3", "-c", "10.0.0.2", "-t", "60", "-C", "cubic", "-J")
        time.sleep(4)
        said, config = plan(testbed, "--live", "4s")
        advice = recommended(said)
        expects = advice["expects"]
        assert (advice["cure"], advice["settings_toml"]["uplink.mode"]) == ("uplink", '"acks"')
        assert advice["flow"]["congestion_control"] == "cubic"
        assert expects["rtt_ms_p95_now"] > 400
        (instead,) = [other for other in said["advice"] if other["rank"] == "instead"]
        assert (instead["cure"], instead["blocked"]) == ("congestion", None)
        applied(testbed, agent, config)
        # The queue that stands has to drain first: a megabyte at 2 Mbit/s.
        found, rate = settled(testbed, 7, 5, "bytes_acked")
        assert found == pytest.approx(expects["rtt_ms"], rel=0.2)
        assert rate >= 0.95 * expects["goodput_bps"]


def test_an_upload_above_a_modem_that_reports_gets_the_gate(tmp_path: Path) -> None:
    with uplink.Uplink(tmp_path, uplink.scenario()) as testbed:
        testbed.iperf("phone", 60, "-C", "cubic")
        time.sleep(3)
        said = asked(
            testbed,
            "phone",
            "--live",
            "4s",
            "--telemetry",
            str(tmp_path / "emu" / "telemetry.sock"),
        )
    advice = recommended(said)
    assert advice["title"].endswith("(QCUT)")
    assert 'mode = "auto"' in said["configuration"]
    assert "telemetry.sock" in said["configuration"]
    # 60 ms, 20 ms of target, and a packet at 2 Mbit/s.
    assert advice["expects"]["rtt_ms"] == pytest.approx(86, abs=4)
    assert said["host"]["forwards"]


def test_a_static_window_that_is_too_small_is_raised_by_hand_with_drwa_beside_it(
    tmp_path: Path,
) -> None:
    with Download(tmp_path, scenario(down="30 Mbit/s", delay="50 ms", queue="6 MB")) as testbed:
        testbed.sysctl("host", "net.ipv4.tcp_rmem", "4096 87380 110208")
        testbed.iperf_server()
        testbed.download(60)
        time.sleep(1)
        said, _ = plan(testbed, "--live", "4s")
    by_hand, beside = said["advice"]
    assert (by_hand["finding"], by_hand["rank"]) == ("receive-window", "by hand")
    assert by_hand["flow"]["grade"] in ("A+", "A")
    assert by_hand["flow"]["window_full_share"] > 0.8
    assert by_hand["commands"] == ['sysctl -w net.ipv4.tcp_rmem="4096 87380 6291456"']
    assert (beside["cure"], beside["rank"]) == ("receive", "recommended")


def test_a_capture_of_the_host_is_judged_as_its_own_and_a_broken_one_by_its_good_part(
    tmp_path: Path,
) -> None:
    with Download(tmp_path) as testbed:
        testbed.iperf_server()
        with testbed.captured() as capture:
            output(testbed.download(4))
        said, config = plan(testbed, "--capture", str(capture))
        advice = recommended(said)
        assert (advice["cure"], said["seen"]["of_hosts"]) == ("receive", [])
        assert advice["flow"]["local"] == "10.0.0.1"
        assert config.exists()
        whole = capture.read_bytes()
        capture.write_bytes(whole[: len(whole) // 2 + 7])
        said, _ = plan(testbed, "--capture", str(capture))
        assert said["verdict"] == "advice"
        assert "what came before is analysed" in said["seen"]["warnings"][0]


def test_without_rights_it_says_what_it_can_and_what_is_missing() -> None:
    name = agent_path()
    argv = [name, "--json", "plan", "--live", "300ms"]
    done = subprocess.run(
        argv, capture_output=True, text=True, user=65_534, env={**os.environ}, timeout=60
    )
    assert done.returncode == 0, done.stderr
    host = json.loads(done.stdout)["host"]
    assert host["features"] is None
    (missing,) = host["missing"]
    assert missing.startswith("what this kernel can do: no rights")
    assert host["device"] is not None
