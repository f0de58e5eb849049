"""AFC's rate term: the agent enlarges a buffer of fixed size by what the application reads in a round trip, and no byte is dropped for want of memory."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

import pytest
from download import Agent, Download, rtts, scenario
from paced_reader import BUFFER, Paced, counters
from reader import Reader, Sender, right_edges

from unbloat.lab.testbed import quantile, run

pytestmark = pytest.mark.usefixtures("machine")
LINK = scenario(down="20 Mbit/s", up="10 Mbit/s", delay="50 ms", queue="6 MB")
RATE_TERM = ("receive.lambda=3", "receive.rate_term=true")
BUFFER_CAP = 6.1
"""What a buffer of 64 KB lets through in 100 ms, Mbit/s: 80 KB of payload, after the kernel has learnt how full segments are."""


def mbits(reader: Paced, seconds: float) -> float:
    """How fast it reads."""
    begun, before = time.monotonic(), reader.bytes()
    time.sleep(seconds)
    return (reader.bytes() - before) * 8e-6 / (time.monotonic() - begun)


def lost(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What was dropped or thrown away."""
    harmless = ("TCPToZeroWindowAdv",)
    return {
        name: n - before[name]
        for name, n in after.items()
        if n != before[name] and name not in harmless
    }


def test_a_fixed_buffer_holds_back_neither_a_fast_reader_nor_the_empty_queue(
    tmp_path: Path,
) -> None:
    with Download(tmp_path, LINK) as testbed, Agent(testbed, *RATE_TERM) as agent:
        Sender(testbed, 200_000_000)
        without = Paced(testbed, 1000)
        time.sleep(2)
        assert mbits(without, 4) == pytest.approx(BUFFER_CAP, rel=0.1), (
            "the testbed shows what the term is for"
        )
        without.process.kill()
        agent.serve()
        before = counters(testbed)
        reader, ping = Paced(testbed, 1000), testbed.ping(16)
        time.sleep(8)
        assert mbits(reader, 6) > 17
        assert quantile(rtts(ping, 8), 0.5) < 160
        assert reader.buffer() > 2 * 2 * BUFFER
        assert lost(before, counters(testbed)) == {}
        agent.do("off")
        assert reader.buffer() == 2 * BUFFER
        assert reader.clamp() <= 2 * BUFFER
        time.sleep(2)
        assert mbits(reader, 4) == pytest.approx(BUFFER_CAP, rel=0.1), "as without the agent"
        agent.nothing_left()


def test_a_reader_by_turns_gets_what_it_reads(tmp_path: Path) -> None:
    with Download(tmp_path, LINK) as testbed, Agent(testbed, *RATE_TERM) as agent:
        Sender(testbed, 200_000_000)
        without = Paced(testbed, 0, 12, 12)
        time.sleep(2)
        assert mbits(without, 7.2) < 5
        without.process.kill()
        agent.serve()
        before = counters(testbed)
        reader = Paced(testbed, 0, 12, 12)
        time.sleep(6)
        assert mbits(reader, 7.2) > 7.2, "8 Mbit/s on average"
        assert lost(before, counters(testbed)) == {}


def test_a_reader_that_stops_finds_every_byte_in_memory(tmp_path: Path) -> None:
    with Download(tmp_path, LINK) as testbed, Agent(testbed, *RATE_TERM) as agent:
        Sender(testbed, 200_000_000)
        agent.serve()
        before = counters(testbed)
        reader = Paced(testbed, 1000)
        time.sleep(8)
        larger = reader.buffer()
        reader.ask("rates 0")
        time.sleep(3)
        assert reader.buffer() <= larger * 9 / 8, "nothing more is promised"
        assert counters(testbed)["TCPToZeroWindowAdv"] > before["TCPToZeroWindowAdv"], "it is full"
        assert lost(before, counters(testbed)) == {}
        # Full, and given back: what is in it stays, and what comes has to wait.
        agent.do("off")
        assert reader.buffer() == 2 * BUFFER
        reader.ask("rates 1000")
        time.sleep(3)
        assert mbits(reader, 3) == pytest.approx(BUFFER_CAP, rel=0.1)
        assert lost(before, counters(testbed)) == {}


def test_the_kernel_gives_the_buffer_back_where_no_program_can(tmp_path: Path) -> None:
    with Download(tmp_path, LINK) as testbed, Agent(testbed, *RATE_TERM) as agent:
        Sender(testbed, 200_000_000)
        agent.serve()
        before = counters(testbed)
        reader = Paced(testbed, 1000)
        time.sleep(6)
        assert reader.buffer() > 2 * 2 * BUFFER
        os.kill(agent.supervisor(), signal.SIGKILL)
        agent.kill()
        # Two seconds of lease, and the round trips in which what was promised arrives.
        time.sleep(3.5)
        assert reader.buffer() == 2 * BUFFER
        assert lost(before, counters(testbed)) == {}


def test_what_the_application_sets_itself_is_its_own(tmp_path: Path) -> None:
    with Download(tmp_path, LINK) as testbed, Agent(testbed, *RATE_TERM) as agent:
        Sender(testbed, 200_000_000)
        agent.serve()
        tuned, fixed = Paced(testbed, 1000, buffer=0), Paced(testbed, 1000)
        time.sleep(4)
        kernels = agent.status()["cures"]["receive"]["raised"]
        assert kernels > 0
        fixed.ask("set 300000")
        time.sleep(3)
        agent.do("off")
        assert fixed.buffer() == 600_000
        # Autotuning goes on in sockets that it was never taken from.
        assert tuned.buffer() != 2 * BUFFER
        agent.nothing_left()


def test_no_window_is_larger_than_its_memory_from_the_first_one_on(tmp_path: Path) -> None:
    small = 16_384
    with Download(tmp_path, LINK) as testbed, Agent(testbed, *RATE_TERM) as agent:
        sender = Sender(testbed, 6_000_000)
        agent.serve()
        with testbed.captured() as capture:
            reader = Reader(
                testbed, setup=f"s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, {small})"
            )
            time.sleep(4)
            agent.do("off")
            assert reader.ask("sum") == sender.sum()
        first = run(
            "tshark", "-r", str(capture), "-Y", "tcp.flags.syn == 1 && tcp.dstport == 5301", "-T", "fields",
            "-e", "tcp.window_size_value",
        )  # fmt: skip
        assert int(first) <= small
        edges = right_edges(capture, 5301)
        assert all(a <= b for a, b in itertools.pairwise(edges)), "never to the left"


@pytest.mark.alone
def test_nothing_is_promised_where_memory_is_scarce(tmp_path: Path) -> None:
    marks = Path("/proc/sys/net/ipv4/tcp_mem")
    was = marks.read_text()
    low, pressure, high = was.split()
    with Download(tmp_path, LINK) as testbed, Agent(testbed, *RATE_TERM) as agent:
        Sender(testbed, 200_000_000)
        agent.serve()
        reader = Paced(testbed, 1000)
        time.sleep(5)
        assert reader.buffer() > 2 * 2 * BUFFER
        try:
            # The kernel's own pressure begins at the second mark, which stays.
            marks.write_text(f"0 {pressure} {high}")
            time.sleep(3)
            assert reader.buffer() == 2 * BUFFER
            assert "memory is scarce" in agent.log()
        finally:
            marks.write_text(f"{low} {pressure} {high}")
        time.sleep(6)
        assert reader.buffer() > 2 * 2 * BUFFER
        assert "memory is free again" in agent.log()
