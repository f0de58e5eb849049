"""DRWA on forwarded ACKs, on a real kernel: a router's downloads and uploads without telemetry,
judged by ping and iperf3.

8 Mbit/s down and 2 Mbit/s up, 60 ms, 2 MB and 1 MB of buffer: without the cure 1.6 and 4 s of delay.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest
from ack_windows import Acks, capture, changed, payloads, pure_acks, retractions, six
from measured import Figures, judged
from uplink import NOTEBOOK, OUTAGE, PHONE, SERVER, SERVER6, STEPS, Uplink, scenario

from unbloat.lab.instruments import Ping

pytestmark = pytest.mark.usefixtures("acks_program")

BASE_MS = 60.0
DOWN, UP = 8 * 1448 / 1500, 2 * 1448 / 1500
"""What TCP carries, Mbit/s."""
PING = 84 * 8 / 0.1 / 1e6 * 1448 / 1500
"""What the ping of 84 bytes every 0.1 s takes of it."""
CUBIC = ("-C", "cubic")
SECONDS, BEGINNING = 11, 2
"""Of a transfer, and what is left out of its goodput at its beginning."""
TIGHT_SECONDS = 36
"""Of a transfer whose delay has a bound of 12 %: p95 of 30 s. A stall of the machine by 0.1 s raises delay for 0.7 s."""


def transfer(
    testbed: Uplink, node: str, *options: str, seconds: int = SECONDS, server: str = ""
) -> tuple[float, Ping]:
    """Goodput in Mbit/s after its beginning, as its receiver reports it; and the phone's ping
    beside it."""
    ping = testbed.ping()
    report = testbed.iperf(
        node, seconds, "--get-server-output", *CUBIC, *options, server=server
    ).done()
    receiver = report if "-R" in options else report["server_output_json"]
    rates = [
        one["sum"]["bits_per_second"]
        for one in receiver["intervals"]
        if one["sum"]["seconds"] > 0.5
    ]
    return fmean(rates[BEGINNING:]) / 1e6, ping.stop()


@pytest.mark.measured
def test_a_download_through_the_router_has_lambda_times_the_smallest_rtt(
    folders: Iterator[Path],
) -> None:

    def play(factor: float, node: str) -> Figures:
        with Uplink(next(folders), scenario()) as testbed:
            Acks(testbed, f"down={factor}")
            goodput, ping = transfer(testbed, node, "-R", seconds=TIGHT_SECONDS)
        middle, high = (ping.p(q) / (factor * BASE_MS) for q in (0.5, 0.95))
        return {"share": goodput / DOWN, "p50 off by": abs(middle - 1), "p95 over": high}

    cases = [(3.0, "notebook"), (1.5, "notebook"), (2.0, "phone")]
    bounds = {"share": (">=", 0.98), "p50 off by": ("<=", 0.12), "p95 over": ("<=", 1.12)}
    # 5 % of 36 s are hardly more than the beginning: p95 of two runs of nine was 1.15 and 1.19.
    judged({f"{case}": partial(play, *case) for case in cases}, bounds, count=5)


def test_without_the_cure_the_same_testbed_has_seconds_of_delay(tmp_path: Path) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        _, ping = transfer(testbed, "notebook")
    assert ping.p(0.95) > 2_000, "the testbed shows what the cure is for"


@pytest.mark.measured
def test_on_a_steady_link_the_law_holds_a_quarter_of_the_rtt_and_the_link_full(
    folders: Iterator[Path],
) -> None:
    """With λ as by default, in either direction, of the phone itself and forwarded."""

    def play(node: str, *options: str) -> Figures:
        with Uplink(next(folders), scenario()) as testbed:
            Acks(testbed)
            goodput, ping = transfer(testbed, node, *options, seconds=TIGHT_SECONDS)
        share = goodput / ((DOWN if options else UP) - PING)
        return {"share": share, "p50": ping.p(0.5), "p95": ping.p(0.95)}

    # λ is 1.25 on a steady link: 75 ms, and up to 2 ms until ping itself has a processor. The first second, in which nothing
    # is known of the path, is in the ping's figures. An upload's queue is one segment, 6 ms, and empty where another program
    # has the processor for longer. 36 s have a share of 0.997 on an idle machine, 0.994 if other programs take a twentieth of
    # it in pieces of 8 ms, and 0.990 was seen on a shared one.
    bounds = {"share": (">=", 0.98), "p50": ("<=", 1.25 * BASE_MS + 2), "p95": ("<=", 85.0)}
    plays = {
        "upload": partial(play, "phone"),
        "forwarded upload": partial(play, "notebook"),
        "download": partial(play, "phone", "-R"),
    }
    judged(plays, bounds)


def test_after_an_outage_an_upload_has_no_larger_window_than_before(tmp_path: Path) -> None:
    """It was silent for as long as a pause, but had data on its way: no flow that begins again. The
    cwnd from before the outage would be a second of the link afterwards."""
    with Uplink(tmp_path, scenario('rate = "10 Mbit/s"', steps=OUTAGE)) as testbed:
        Acks(testbed)
        _, ping = transfer(testbed, "phone", seconds=14)
    after = sorted(ms for at, ms in ping.rtts if at >= ping.rtts[0][0] + 8.5)
    assert after[len(after) // 2] < 2.5 * BASE_MS


@pytest.mark.measured
def test_after_every_step_of_the_rate_delay_is_low_again(folders: Iterator[Path]) -> None:
    """The law permits two segments of queue where an RTTmin carries fewer than eight: at 0.5 Mbit/s 132 ms, of 60 ms, 24 of a
    packet and 48 of two more. 5 % of the pings are two seconds: the first queue, and what follows each fall of the rate. Without
    those two segments p95 is 12 ms smaller, and the simulator's windows stay small after the step: 0.4 of the goodput."""

    def play() -> Figures:
        with Uplink(next(folders), scenario(steps=STEPS)) as testbed:
            Acks(testbed)
            goodput, ping = transfer(testbed, "notebook", seconds=40)
        return {"p95": ping.p(0.95), "share": goodput / ((2 + 0.5 + 4 + 2) / 4 * 1448 / 1500)}

    judged({"steps": play}, {"p95": ("<=", 150), "share": (">=", 0.95)})


@pytest.mark.parametrize("down", [False, True])
def test_on_the_wire_no_window_is_raised_no_edge_goes_back_and_every_checksum_is_right(
    tmp_path: Path, down: bool
) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        links = json.loads(testbed.start("server", "ip", "-j", "link").communicate()[0])
        device = next(link["ifname"] for link in links if link["ifname"] != "lo")
        acks = Acks(testbed)
        with (
            capture(testbed, "notebook", "lan", "notebook") as near,
            capture(testbed, "server", device, "server") as far,
        ):
            transfer(testbed, "notebook", *(["-R"] if down else []), seconds=8)
        rewritten = acks.off()["rewritten"]
    source = NOTEBOOK if down else SERVER
    before, after = (pure_acks(path, source) for path in ((near, far) if down else (far, near)))
    lower, raised = changed(before, after)
    assert raised == 0
    assert lower > 0.5 * rewritten > 100
    assert retractions(after) == 0
    assert not any(one.bad for one in after), "checksums"


def test_a_window_makes_no_sender_send_a_part_of_a_segment(tmp_path: Path) -> None:
    """Such a part would hold back the last segment of an upload for up to one RTT (Nagle's algorithm)."""
    text = scenario('rate = "1 Mbit/s"', buffer="150 KB").replace("30 ms", "150 ms")
    with Uplink(tmp_path, text) as testbed:
        acks = Acks(testbed)
        with capture(testbed, "phone", testbed.device, "phone") as sent:
            transfer(testbed, "phone", seconds=8)
        rewritten = acks.off()["rewritten"]
    sizes = payloads(sent, PHONE)
    whole = max(sizes)
    # The tool's own head and its last bytes may be smaller. Without the rule it was one in each round trip.
    assert sum(size < whole for size in sizes) <= 2
    assert len(sizes) > 300
    assert rewritten > 100


@pytest.mark.parametrize("down", [False, True])
def test_four_flows_share_one_low_delay(tmp_path: Path, down: bool) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        Acks(testbed)
        goodput, ping = transfer(testbed, "notebook", "-P", "4", *(["-R"] if down else []))
    assert goodput >= 0.97 * (DOWN if down else UP)
    p95 = ping.p(0.95)
    # Four floors of two segments and the rounding to the scale come on top of λ.
    assert p95 <= (1.15 * 3 if down else 1.25 * 2) * BASE_MS


def test_a_late_flow_knows_the_empty_path_from_the_first(tmp_path: Path) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        acks = Acks(testbed)
        ping, first = testbed.ping(), testbed.iperf("notebook", 16, *CUBIC, "-R")
        time.sleep(5)
        late = testbed.iperf("notebook", 10, *CUBIC, "-R")
        time.sleep(8)
        flows = [flow for flow in acks.last()["flows"] if flow["bytes"] > 100_000]
        late.mbps(), first.mbps()
        ping.stop()
    assert len(flows) == 2
    assert all(flow["rtt_min_ms"] < 1.1 * BASE_MS for flow in flows)
    assert ping.p(0.5, 9, 15) <= 1.15 * 3 * BASE_MS


def test_a_flow_that_is_already_open_is_held_where_it_ends_here_and_left_alone_where_not(
    tmp_path: Path,
) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        ping = testbed.ping()
        upload = testbed.iperf("phone", 26, "--get-server-output", *CUBIC)
        time.sleep(4)
        acks = Acks(testbed)
        # As the receiver counts them: the sender's socket takes half a megabyte at a time.
        intervals = upload.done()["server_output_json"]["intervals"]
        seconds = [one["sum"]["bits_per_second"] / 1e6 for one in intervals]
        ping.stop()
        assert acks.off()["rewritten"] > 100
    assert ping.p(0.95, 3, 5) > 300, "the queue stands when the agent comes"
    # Its socket has seen the empty path in its handshake, and reports that RTT.
    assert ping.p(0.5, 14, 25) <= 1.1 * 2 * BASE_MS
    assert sum(seconds[14:25]) / 11 >= 0.97 * UP
    with Uplink(tmp_path / "forwarded", scenario()) as testbed:
        upload = testbed.iperf("notebook", 6, *CUBIC)
        time.sleep(2)
        acks = Acks(testbed)
        upload.mbps()
        last = acks.off()
    assert last["rewritten"] == 0
    assert last["unknown"] > 100


@pytest.mark.parametrize("down", [False, True])
def test_without_timestamps_sequence_numbers_and_windows_are_enough(
    tmp_path: Path, down: bool
) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        for node in testbed.spaces:
            testbed.sysctl(node, "ipv4/tcp_timestamps", "0")
        Acks(testbed)
        goodput, ping = transfer(
            testbed, "notebook", *(["-R"] if down else []), seconds=TIGHT_SECONDS
        )
    assert ping.p(0.95) <= (1.2 * 3 if down else 1.1 * 2) * BASE_MS
    assert goodput >= 0.97 * (DOWN if down else UP)


@pytest.mark.parametrize("down", [False, True])
def test_ipv6_is_treated_alike(tmp_path: Path, down: bool) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        six(testbed)
        Acks(testbed)
        goodput, ping = transfer(
            testbed, "phone", *(["-R"] if down else []), seconds=TIGHT_SECONDS, server=SERVER6
        )
    assert ping.p(0.95) <= (1.12 * 3 * BASE_MS if down else 125)
    assert goodput >= 0.97 * (DOWN if down else UP) * 1428 / 1448


@pytest.mark.parametrize("node", ["phone", "notebook"])
def test_large_segments_are_held_alike(tmp_path: Path, node: str) -> None:
    """At the phone by offload of its link; at the notebook on Ethernet, where its card cuts them."""

    with Uplink(tmp_path, scenario(), "--offload", "on") as testbed:
        acks = Acks(testbed, node=node, device="lan" if node == "notebook" else "")
        with capture(testbed, "notebook", "lan", "notebook") as near:
            goodput, ping = transfer(testbed, "notebook")
        last = acks.off()
    assert last["superpackets"] > 100
    assert last["rewritten"] > 100
    assert ping.p(0.95) <= 125
    assert goodput >= 0.97 * UP
    assert node == "notebook" or retractions(pure_acks(near, SERVER)) == 0


def test_when_the_lease_ends_every_window_passes(tmp_path: Path) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        acks = Acks(testbed, "lease=no")
        _, ping = transfer(testbed, "notebook", seconds=15)
        lines = [line["rewritten"] for line in acks.lines() if "flows" in line]
        acks.off()
    assert lines[-1] == lines[-10], "nothing after the lease"
    assert ping.p(0.5, 12, 15) > 500, "the queue is that of an uncured upload"


def test_an_upload_that_fills_the_other_direction_does_not_close_a_downloads_window(
    tmp_path: Path,
) -> None:
    """Datagrams without congestion control make a queue on the way of the ACKs, which grows to two
    seconds."""

    with Uplink(tmp_path, scenario()) as testbed:
        acks = Acks(testbed)
        ping, download = testbed.ping(), testbed.iperf("notebook", 22, *CUBIC, "-R")
        time.sleep(6)
        flood = testbed.iperf("phone", 14, "-u", "-b", "2.2M", "-l", "1200")
        time.sleep(10)
        towards, away = max((one[1:3] for one in acks.last()["known"]), key=max)
        seconds = [one["sum"]["bits_per_second"] / 1e6 for one in download.done()["intervals"]]
        flood.done()
        ping.stop()
    assert ping.p(0.5, 12, 18) > 600, "the queue is there"
    assert away > 600_000, "and known for what it is"
    assert towards < 0.5 * away, "its own has not grown beyond what it may"
    assert sum(seconds[10:20]) / 10 >= 0.8 * DOWN


@pytest.mark.parametrize("sender", ["phone", "notebook"])
def test_without_the_kernels_types_an_upload_is_treated_from_its_syn_on(
    tmp_path: Path, sender: str
) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        early = testbed.iperf("phone", 4, *CUBIC)
        acks = Acks(testbed, without_types=True)
        early.done()
        assert acks.last()["flows"] == [], "one that is older is left alone"
        goodput, ping = transfer(testbed, sender)
    assert ping.p(0.95) <= 125
    assert goodput >= 0.97 * UP


@pytest.mark.measured
def test_both_directions_at_once_are_cured(folders: Iterator[Path]) -> None:

    def play() -> Figures:
        with Uplink(next(folders), scenario()) as testbed:
            Acks(testbed)
            ping = testbed.ping()
            up, down = (
                testbed.iperf("notebook", 24, *CUBIC),
                testbed.iperf("notebook", 22, *CUBIC, "-R"),
            )
            goodput = {"up": up.mbps(), "down": down.mbps()}
            steady = fmean(
                one["sum"]["bits_per_second"] / 1e6 for one in down.done()["intervals"][8:]
            )
            ping.stop()
        return {"p95": ping.p(0.95), "steady_down": steady, **goodput}

    # Both queues share what the download's λ leaves; the upload's first window comes before its law. Beside the download ACKs need
    # their share of the uplink, one of 60 bytes for two packets or fewer, which leaves an upload 1.77 of 1.93 Mbit/s. The beginning
    # of the download is judged apart: the upload's first queue ends its slow start at 31 to 51 packets, where the link needs 70, and
    # it needs 2 to 5 s to reach the link's rate. In 39 runs p95 had a median of 112 ms, the upload one of 1.69 Mbit/s, the download
    # one of 7.18 (6.89 to 7.37); after 8 s it had 7.3 to 7.7. Later, of 62 runs on two machines, 17 had less than the bound of the upload,
    # so that the median of nine was below it once in twenty-five times; of 21 it is in one of a hundred.
    bounds = {
        "p95": ("<=", 2.5 * BASE_MS),
        "steady_down": (">=", 0.95 * DOWN),
        "down": (">=", 0.88 * DOWN),
        "up": (">=", 0.8 * UP),
    }
    judged({"both": play}, bounds, count=21)


def test_a_cure_that_costs_goodput_is_found_out_and_withdrawn(tmp_path: Path) -> None:
    """λ = 1/4: a window for a quarter of the link."""
    with Uplink(tmp_path, scenario(buffer="60 KB")) as testbed:
        acks = Acks(testbed, "up=0.25", "trial=4")
        upload = testbed.iperf("notebook", 28, *CUBIC)
        seconds = [one["sum"]["bits_per_second"] / 1e6 for one in upload.done()["intervals"]]
        tried = acks.trials()
    assert [word.split("(")[0] for word in tried[:3]] == ["Lift", "Restore", "Withdraw"]
    assert sum(seconds[-8:]) > 1.5 * sum(seconds[1:5]) * 2


def test_a_killed_agent_leaves_nothing_on_the_device(tmp_path: Path) -> None:
    """Its programs are links of TCX, which go with the process."""
    with Uplink(tmp_path, scenario()) as testbed:
        acks = Acks(testbed)
        ping, upload = testbed.ping(), testbed.iperf("notebook", 13, *CUBIC)
        time.sleep(5)
        held = acks.last()["rewritten"]
        acks.process.kill()
        acks.process.wait()
        upload.mbps()
        ping.stop()
        assert held > 100
        assert testbed.ask("phone", "tc", "filter", "show", "dev", testbed.device, "ingress") == ""
        assert "clsact" not in testbed.ask("phone", "tc", "qdisc", "show", "dev", testbed.device)
    assert ping.p(0.5, 3, 5) < 135
    assert ping.p(0.5, 10, 13) > 400, "the queue is that of an uncured upload"


def test_on_a_clsact_discipline_it_is_undone_from_the_journal(tmp_path: Path) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        acks = Acks(testbed, "clsact")
        _, ping = transfer(testbed, "notebook", seconds=8)
        assert ping.p(0.5) < 135
        show = ["tc", "filter", "show", "dev", testbed.device, "ingress"]
        assert "acks_in" in testbed.start("phone", *show).communicate()[0]
        acks.process.kill()
        acks.process.wait()
        _, ping = transfer(testbed, "notebook", seconds=10)
        assert ping.p(0.95) > 500, "the filter is there yet, and lets everything pass"
        assert "acks_in" in testbed.start("phone", *show).communicate()[0]
        testbed.undone("phone", acks.journal)
        assert (
            "clsact"
            not in testbed.start(
                "phone", "tc", "qdisc", "show", "dev", testbed.device
            ).communicate()[0]
        )


def test_a_checksum_of_0_written_as_ffff_is_right_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    """What judges the checksums of the captures above."""
    source, other = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])

    def total(data: bytes) -> int:
        """The Internet checksum's sum (RFC 1071)."""
        summed: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
        return (summed & 0xFFFF) + (summed >> 16)

    def packet(window: int, checksum: int) -> bytes:
        tcp = struct.pack("!HHIIBBHHH", 5000, 80, 1, 1, 5 << 4, 16, window, checksum, 0)
        return struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + source + other + tcp

    pseudo = source + other + struct.pack("!HH", 6, 20)
    window = 0xFFFF - total(pseudo + packet(0, 0)[20:])
    path = tmp_path / "acks.pcap"
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for data in (packet(window, 0), packet(window, 0xFFFF), packet(window - 1, 0xFFFF)):
            out.write(struct.pack("<IIII", 0, 0, len(data), len(data)) + data)
    assert [one.bad for one in pure_acks(path, "10.0.0.1")] == [False, False, True]
