"""DRWA on a real kernel's sockets: delay and goodput, judged by ping and iperf3."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from statistics import fmean

import pytest
from receive_bed import Agent, Bed, Reader, finished, quantile, right_edges, rtts, scenario, sender

pytestmark = pytest.mark.usefixtures("receiving")
BASE_MS = 60.0
LINK = 7.72
"""What TCP carries of 8 Mbit/s, Mbit/s: 1,448 of 1,500 bytes."""


@pytest.mark.parametrize(("factor", "version"), [(3.0, 4), (1.5, 4), (2.0, 6)])
def test_a_download_has_lambda_times_the_smallest_rtt_and_all_of_the_link(
    tmp_path: Path, factor: float, version: int
) -> None:
    with Bed(tmp_path) as bed, Agent(bed, f"receive.lambda={factor}") as agent:
        bed.iperf_server()
        agent.serve()
        ping, download = bed.ping(16, version), bed.download(16, version=version)
        goodput, found = finished(download), rtts(ping)
        assert quantile(found, 0.5) == pytest.approx(factor * BASE_MS, rel=0.12), "λ · RTTmin"
        assert goodput.mean >= 0.99 * LINK * (1428 / 1448 if version == 6 else 1)
        (flow,) = [flow for flow in agent.status()["flows"] if flow["bytes"] > 1_000_000]
        assert flow["limit"] == "agent"
        assert flow["rtt_min_ms"] == pytest.approx(BASE_MS, rel=0.1)


def test_without_the_agent_the_same_download_has_half_a_second_of_delay_and_more(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed:
        bed.iperf_server()
        ping, download = bed.ping(16), bed.download(16)
        finished(download)
        assert quantile(rtts(ping), 0.5) > 500, "the bed shows what the agent is for"


def test_a_large_path_is_filled_as_by_autotuning(tmp_path: Path) -> None:
    text = scenario(down="30 Mbit/s", up="10 Mbit/s", delay="50 ms", queue="6 MB")
    with Bed(tmp_path, text) as bed, Agent(bed, "receive.lambda=1.5") as agent:
        bed.iperf_server()
        agent.serve()
        ping, download = bed.ping(16), bed.download(16)
        goodput = finished(download)
        assert quantile(rtts(ping), 0.5) <= 1.6 * 100
        # Single seconds of iperf3 swing by a twentieth.
        assert fmean(goodput.seconds[3:]) >= 0.985 * 30 * 1448 / 1500


def test_the_delay_is_back_soon_after_every_step_of_the_rate(tmp_path: Path) -> None:
    steps = (("8 s", "2 Mbit/s"), ("16 s", "16 Mbit/s"))
    with Bed(tmp_path, scenario(steps=steps)) as bed, Agent(bed, "receive.lambda=3") as agent:
        bed.iperf_server()
        agent.serve()
        ping, download = bed.ping(24), bed.download(24)
        goodput, found = finished(download), rtts(ping, after_s=0)
        # What was under way at the step has to pass a link of a quarter of the rate: no receiver can change that.
        after = found[int(len(found) * 12 / 24) : int(len(found) * 16 / 24)]
        assert quantile(after, 0.5) < 4 * BASE_MS, "four seconds after the step down"
        assert min(goodput.seconds[20:23]) > 0.95 * 2 * LINK, "four seconds after the step up"


def test_a_connection_that_exists_already_is_treated_within_seconds(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed, Agent(bed, "receive.lambda=3") as agent:
        bed.iperf_server()
        ping, download = bed.ping(28), bed.download(28)
        time.sleep(10)
        agent.serve()
        goodput, found = finished(download), rtts(ping, after_s=0)
        before, after = found[60:95], found[220:]
        assert quantile(before, 0.5) > 500
        # The handshake's RTT is the socket's smallest: it tells the empty path although the queue stands.
        assert quantile(after, 0.5) == pytest.approx(3 * BASE_MS, rel=0.2)
        assert goodput.mean > 0.9 * LINK
        assert "connections that existed are treated now" in agent.log()


def test_a_latecomer_knows_the_empty_path_from_the_flow_before_it(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed, Agent(bed, "receive.lambda=3") as agent:
        bed.iperf_server()
        bed.iperf_server(5202)
        agent.serve()
        ping, first = bed.ping(26), bed.download(26)
        time.sleep(8)
        second = bed.download(16, port=5202)
        time.sleep(12)
        flows = [flow for flow in agent.status()["flows"] if flow["bytes"] > 200_000]
        one, two = finished(first), finished(second)
        found = rtts(ping, after_s=14)
        assert len(flows) == 2
        assert all(flow["rtt_min_ms"] == pytest.approx(BASE_MS, rel=0.1) for flow in flows), flows
        assert quantile(found, 0.5) < 4 * BASE_MS, "the queue is that of λ, not of λ²"
        assert min(one.seconds[12:20]) + min(two.seconds[4:12]) > 0.85 * LINK


def test_windows_are_found_without_timestamps(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed, Agent(bed, "receive.lambda=3") as agent:
        for space in (bed.host, bed.server):
            bed.ask(space, "sysctl", "-qw", "net.ipv4.tcp_timestamps=0")
        bed.iperf_server()
        agent.serve()
        ping, download = bed.ping(16), bed.download(16)
        goodput, found = finished(download), rtts(ping)
        assert quantile(found, 0.5) == pytest.approx(3 * BASE_MS, rel=0.2)
        assert goodput.mean >= 0.99 * LINK


def test_the_clamp_comes_back_whenever_autotuning_moves_it(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed, Agent(bed, "receive.lambda=3") as agent:
        sender(bed, 12_000_000)
        agent.serve()
        reader = Reader(bed)
        time.sleep(8)
        wanted = agent.status()["flows"][0]["wanted_bytes"]
        assert reader.clamp() == pytest.approx(wanted, rel=0.2)
        # A smaller λ leaves the kernel with more buffer than it needs, a larger one makes it grow the buffer and move the clamp.
        agent.set("receive.lambda=6")
        time.sleep(3)
        status = agent.status()
        assert status["cures"]["receive"]["reapplied"] > 0, "the kernel moved it"
        assert status["cures"]["receive"]["refused"] == 0
        assert reader.clamp() == pytest.approx(status["flows"][0]["wanted_bytes"], rel=0.2)


def test_the_right_edge_of_the_window_never_moves_back(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed, Agent(bed, "receive.lambda=6") as agent:
        sender(bed, 30_000_000)
        agent.serve()
        with bed.capture() as capture:
            reader = Reader(bed)
            time.sleep(4)
            # Down and up, in mid-flow.
            for factor in ("1.5", "4", "1", "3"):
                agent.set(f"receive.lambda={factor}")
                time.sleep(2)
            assert reader.bytes() > 5_000_000
        edges = right_edges(capture, 5301)
        assert len(edges) > 1_000
        # A window is a multiple of the scale's unit; rounding is not retraction.
        back = [a - b for a, b in itertools.pairwise(edges) if b < a]
        assert not back, f"RFC 9293 section 3.8.6.2.1: {len(back)} of {len(edges)}, at most {max(back)} bytes"


def test_short_replies_keep_the_kernels_window(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed, Agent(bed) as agent:
        sender(bed, 15_000)
        agent.serve()
        readers = [Reader(bed) for _ in range(5)]
        sums = {reader.ask("sum") for reader in readers}
        assert len(sums) == 1
        counters = agent.status()["cures"]["receive"]
        assert counters["connections"] >= 5
        assert counters["acks"] > 10
        assert (counters["applied"], counters["decisions"]) == (0, 0)


def test_destinations_that_are_excepted_are_left_alone(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed, Agent(bed, 'receive.except=["10.0.0.0/8"]') as agent:
        sender(bed, 6_000_000)
        agent.serve()
        four, six = Reader(bed), Reader(bed, version=6)
        time.sleep(4)
        remotes = {flow["remote"] for flow in agent.status()["flows"]}
        assert remotes == {"fd00:1::2"}
        # Prefixes at run time: what is excepted now is given back at its next ACK.
        held = six.clamp()
        agent.set('receive.except=["fd00::/8"]')
        time.sleep(2)
        assert six.clamp() > 2 * held
        assert four.clamp() < six.clamp()
        assert agent.status()["cures"]["receive"]["lifted"] >= 1


def test_a_clamp_of_the_application_is_not_exceeded_and_comes_back(tmp_path: Path) -> None:
    own = 40_000
    with Bed(tmp_path) as bed, Agent(bed, "receive.lambda=6") as agent:
        sender(bed, 20_000_000)
        # A locked buffer: else autotuning takes the application's clamp away by itself.
        reader = Reader(bed, setup="s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 400_000)")
        # The kernel takes it away once more when it has learnt how full segments are.
        time.sleep(2)
        reader.ask(f"set {own}")
        agent.serve()
        time.sleep(3)
        (flow,) = agent.status()["flows"]
        assert flow["wanted_bytes"] > own
        assert reader.clamp() == own
        agent.do("off")
        assert reader.clamp() == own


def test_the_whole_host_is_the_scope_without_a_cgroup(tmp_path: Path) -> None:
    # Restricted to the bed's own prefix, since this host has other connections than the test's.
    with Bed(tmp_path) as bed, Agent(bed, 'receive.only=["fd00:1::/64"]') as agent:
        agent.settings[0] = "scope.cgroup="
        sender(bed, 6_000_000)
        early = Reader(bed, version=6, inside=False)
        time.sleep(2)
        agent.serve()
        late = Reader(bed, version=6)
        time.sleep(6)
        remotes = {flow["remote"] for flow in agent.status()["flows"]}
        assert len(agent.status()["flows"]) == 2
        assert remotes == {"fd00:1::2"}
        assert max(early.clamp(), late.clamp()) < 400_000
        agent.do("off")
        agent.nothing_left()
