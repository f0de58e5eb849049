"""DRWA on a real kernel's sockets: delay and goodput, judged by ping and iperf3."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest
from download import Agent, Download, rtts, scenario
from measured import Figures, judged
from reader import Reader, Sender

from unbloat.lab.instruments import Goodput
from unbloat.lab.testbed import quantile, until

pytestmark = pytest.mark.usefixtures("machine")
BASE_MS = 60.0
LINK = 7.72
"""What TCP carries of 8 Mbit/s, Mbit/s: 1,448 of 1,500 bytes."""


@pytest.mark.measured
@pytest.mark.parametrize(
    ("factor", "bound", "version"), [(3.0, 3.2, 4), (1.5, 1.6, 4), (2.0, 2.1, 6)]
)
def test_a_download_has_lambda_times_the_smallest_rtt_and_all_of_the_link(
    folders: Iterator[Path], factor: float, bound: float, version: int
) -> None:

    def play() -> Figures:
        with (
            Download(next(folders)) as testbed,
            Agent(testbed, f"receive.lambda={factor}") as agent,
        ):
            testbed.iperf_server()
            agent.serve()
            ping, download = testbed.ping(12, version), testbed.download(12, version=version)
            goodput, found = Goodput.of(download), rtts(ping)
            (flow,) = [flow for flow in agent.status()["flows"] if flow["bytes"] > 1_000_000]
            assert flow["limit"] == "agent"
            assert flow["rtt_min_ms"] == pytest.approx(BASE_MS, rel=0.1)
        middle, high = (quantile(found, q) for q in (0.5, 0.95))
        return {"p50_least": middle, "p50": middle, "p95": high, "goodput": goodput.mean}

    bounds = {
        "p50_least": (">=", 0.9 * factor * BASE_MS),
        "p50": ("<=", bound * BASE_MS),
        "p95": ("<=", (bound + 0.1) * BASE_MS),
        "goodput": (">=", 0.99 * LINK * (1428 / 1448 if version == 6 else 1)),
    }
    judged({f"λ = {factor}": play}, bounds)


@pytest.mark.measured
def test_by_default_a_steady_link_has_a_quarter_more_than_the_smallest_rtt(
    folders: Iterator[Path],
) -> None:

    def play() -> Figures:
        with (
            Download(next(folders)) as testbed,
            Agent(testbed, "receive.lambda_min=1.25") as agent,
        ):
            testbed.iperf_server()
            agent.serve()
            ping, download = testbed.ping(12), testbed.download(12)
            goodput, found = Goodput.of(download), rtts(ping)
            (flow,) = [flow for flow in agent.status()["flows"] if flow["bytes"] > 1_000_000]
            assert flow["limit"] == "agent"
        middle, high = (quantile(found, q) for q in (0.5, 0.95))
        return {"p50": middle, "p95": high, "goodput": goodput.mean}

    # λ = 1.25, and a packet of 1.5 ms or two.
    bounds = {
        "p50": ("<=", 1.32 * BASE_MS),
        "p95": ("<=", 1.4 * BASE_MS),
        "goodput": (">=", 0.99 * LINK),
    }
    judged({"download": play}, bounds)


def test_without_the_agent_the_same_download_has_half_a_second_of_delay_and_more(
    tmp_path: Path,
) -> None:
    with Download(tmp_path) as testbed:
        testbed.iperf_server()
        ping, download = testbed.ping(12), testbed.download(12)
        Goodput.of(download)
        assert quantile(rtts(ping), 0.5) > 500, "the testbed shows what the agent is for"


def test_a_large_path_is_filled_where_a_phones_fixed_window_leaves_most_of_it(
    tmp_path: Path,
) -> None:
    text = scenario(down="30 Mbit/s", up="10 Mbit/s", delay="50 ms", queue="6 MB")
    with Download(tmp_path, text) as testbed, Agent(testbed, "receive.lambda=1.5") as agent:
        testbed.iperf_server()
        kernels = testbed.ask("host", "sysctl", "-n", "net.ipv4.tcp_rmem").strip()
        testbed.ask("host", "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 87380 110208")
        fixed = Goodput.of(testbed.download(5))
        testbed.ask("host", "sysctl", "-qw", f"net.ipv4.tcp_rmem={kernels}")
        agent.serve()
        ping, download = testbed.ping(14), testbed.download(14)
        goodput = Goodput.of(download)
        assert quantile(rtts(ping), 0.5) <= 1.6 * 100
        # Single seconds of iperf3 swing by a twentieth.
        assert fmean(goodput.seconds[3:]) >= 0.985 * 30 * 1448 / 1500
        assert fixed.mean < 0.25 * fmean(goodput.seconds[3:])


def test_the_delay_is_back_soon_after_every_step_of_the_rate(tmp_path: Path) -> None:
    steps = (("6 s", "2 Mbit/s"), ("14 s", "16 Mbit/s"))
    with (
        Download(tmp_path, scenario(steps=steps)) as testbed,
        Agent(testbed, "receive.lambda=3") as agent,
    ):
        testbed.iperf_server()
        agent.serve()
        ping, download = testbed.ping(22), testbed.download(22)
        goodput, found = Goodput.of(download), rtts(ping, after_s=0)
        # What was under way at the step has to pass a link of a quarter of the rate: no receiver can change that.
        after = found[int(len(found) * 10 / 22) : int(len(found) * 13.5 / 22)]
        assert quantile(after, 0.5) < 4 * BASE_MS, "four seconds after the step down"
        assert min(goodput.seconds[18:21]) > 0.95 * 2 * LINK, "four seconds after the step up"


def test_short_replies_keep_the_kernels_window(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed) as agent:
        Sender(testbed, 15_000)
        agent.serve()
        readers = [Reader(testbed) for _ in range(5)]
        sums = {reader.ask("sum") for reader in readers}
        assert len(sums) == 1
        counters = agent.status()["cures"]["receive"]
        assert counters["connections"] >= 5
        assert counters["acks"] > 10
        assert (counters["applied"], counters["decisions"]) == (0, 0)


def test_destinations_that_are_excepted_are_left_alone(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, Agent(testbed, 'receive.except=["10.0.0.0/8"]') as agent:
        Sender(testbed)
        agent.serve()
        four, six = Reader(testbed), Reader(testbed, version=6)
        until(lambda: {flow["remote"] for flow in agent.status()["flows"]} == {"fd00:1::2"})
        time.sleep(3)
        assert {flow["remote"] for flow in agent.status()["flows"]} == {"fd00:1::2"}
        # Prefixes at run time: what is excepted now is given back at its next ACK.
        held = six.clamp()
        agent.set('receive.except=["fd00::/8"]')
        until(lambda: six.clamp() > 2 * held)
        until(lambda: four.clamp() < six.clamp())
        assert agent.status()["cures"]["receive"]["lifted"] >= 1


def test_the_whole_host_is_the_scope_without_a_cgroup(tmp_path: Path) -> None:
    # Restricted to a prefix of the testbed's own, since this host has other connections than the test's.
    text, only = scenario(), 'receive.only=["fd00:77::/64"]'
    with Download(tmp_path, text, net6="fd00:77") as testbed, Agent(testbed, only) as agent:
        agent.settings[0] = "scope.cgroup="
        Sender(testbed)
        early = Reader(testbed, version=6, inside=False)
        time.sleep(2)
        agent.serve()
        late = Reader(testbed, version=6)
        until(lambda: len(agent.status()["flows"]) == 2)
        assert {flow["remote"] for flow in agent.status()["flows"]} == {"fd00:77::2"}
        until(lambda: max(early.clamp(), late.clamp()) < 400_000)
        agent.do("off")
        agent.nothing_left()
