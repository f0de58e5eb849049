"""The uplink's gate on a phone with a megabyte in its modem: delay, goodput, fairness, and every way in which it ends."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from daemon import phone, reports
from measured import Figures, judged
from modem import relay, steady
from uplink import NOTEBOOK, SERVER, STEPS, Gate, Uplink, scenario

CARRIED = 1.93
"""What TCP carries of 2 Mbit/s, Mbit/s: 1,448 of 1,500 bytes."""
OPEN_MS = 170.0
"""More than a gate that holds lets a ping take, less than CUBIC brings about within seconds of its opening."""


@pytest.mark.measured
def test_an_upload_keeps_the_rate_and_the_ping(folders: Iterator[Path], gate_program: str) -> None:

    def play(node: str, flows: int, six: bool) -> Figures:
        with Uplink(next(folders), scenario(), six=six) as testbed:
            gate, ping = testbed.gate(gate_program), testbed.ping(node)
            goodput = testbed.iperf(node, 12, "-C", "cubic", "-O", "3", "-P", str(flows)).mbps()
            ping.stop()
            last = gate.off()
        assert last["refused_own" if node == "phone" else "refused_forwarded"] > 0
        alone = node == "notebook" and flows == 1
        # A header of IPv6 is 20 bytes longer: the link carries less.
        share = goodput / (CARRIED * 1428 / 1448 if six else CARRIED)
        return {"share": share, "p95 forwarded alone" if alone else "p95": ping.p(0.95)}

    # After a cut a single forwarded flow leaves the link dry for a moment, and the slack rises in one run of five: of 16
    # runs 13 had 89 to 110 ms, and three 114, 116 and 129.
    bounds = {
        "share": (">=", 0.97),
        "p95": ("<=", 110),
        "p95 forwarded alone": ("<=", 130),
    }
    cases = [("phone", 1, False), ("notebook", 1, True), ("phone", 4, True), ("notebook", 4, False)]
    judged({f"{case}": partial(play, *case) for case in cases}, bounds)


def test_segments_that_are_cut_later_count_with_all_their_headers(
    tmp_path: Path, gate_program: str
) -> None:
    with Uplink(tmp_path, scenario('rate = "40 Mbit/s"')) as testbed:
        gate = testbed.gate(gate_program)
        sent = testbed.iperf("notebook", 3, "-C", "cubic").done()["end"]["sum_sent"]["bytes"]
        last = gate.off()
    assert last["passed_bytes"] > 1_600 * last["passed"], "larger than any packet on the air"
    # 1,448 bytes of data in 1,500; what a full buffer refused is not in it, nor what was under way at the end.
    assert 0.9 < last["passed_bytes"] / (sent * 1_500 / 1_448) < 1.05


def test_the_modem_s_share_of_the_delay_is_gone_and_comes_back_without_a_lease(
    folders: Iterator[Path], gate_program: str
) -> None:

    def play(*options: str) -> tuple[float, float]:
        with Uplink(next(folders), scenario()) as testbed:
            gate = testbed.gate(gate_program, *options)
            # Datagrams fill a megabyte in seconds; CUBIC alone takes half a minute.
            testbed.iperf("phone", 8, "-u", "-b", "6M").done()
            last = gate.off()
        return testbed.firmware_ms(4, 8), last["unguarded"]

    with ThreadPoolExecutor(2) as pool:
        open_, held = pool.submit(play, "lease=no"), pool.submit(play)
        (before, unguarded), (after, _) = open_.result(), held.result()
    assert before > 1_000, (
        "a gate whose lease is not renewed is open, and the testbed shows what a gate is for"
    )
    assert unguarded > 50
    assert after <= 0.04 * before, "QCUT section 7.2: 96 % and more of the delay in the firmware"


@pytest.mark.measured
def test_the_delay_follows_every_step_of_the_rate(
    folders: Iterator[Path], gate_program: str
) -> None:

    def play(node: str) -> Figures:
        with Uplink(next(folders), scenario(steps=STEPS)) as testbed:
            testbed.gate(gate_program)
            ping = testbed.ping(node)
            goodput = testbed.iperf(node, 39, "-C", "cubic").mbps()
            ping.stop()
        return {"goodput": goodput, "p95": ping.p(0.95, 2)}

    # Of the 2.05 Mbit/s that TCP could carry in that time.
    plays = {node: partial(play, node) for node in ("phone", "notebook")}
    judged(plays, {"goodput": (">=", 0.85 * 2.05), "p95": ("<=", 250)})


@pytest.mark.measured
def test_a_flood_of_datagrams_leaves_the_ping_alone_and_an_upload_its_share(
    folders: Iterator[Path], gate_program: str
) -> None:

    def flood(node: str) -> Figures:
        with Uplink(next(folders), scenario()) as testbed:
            testbed.gate(gate_program)
            ping = testbed.ping(node)
            testbed.iperf(node, 8, "-u", "-b", "10M").done()
            ping.stop()
        # The last one may be under way.
        return {"lost": ping.lost() - 1, "p95": ping.p(0.95, 2)}

    def beside(node: str) -> Figures:
        # Packets of QUIC's size, at twice what the link carries.
        with Uplink(next(folders), scenario()) as testbed:
            testbed.gate(gate_program)
            testbed.iperf(node, 12, "-u", "-b", "4M", "-l", "1200")
            upload = testbed.iperf("phone", 8, "-C", "cubic", "-O", "2").mbps()
        return {"share": upload / CARRIED}

    plays: dict[str, Callable[[], Figures]] = {}
    for node in ("phone", "notebook"):
        plays[f"flood of the {node}"] = partial(flood, node)
        plays[f"upload beside one of the {node}"] = partial(beside, node)
    judged(plays, {"lost": ("<=", 0), "p95": ("<=", 110), "share": (">=", 0.25)})


def test_voice_beside_two_uploads_loses_nothing(tmp_path: Path, gate_program: str) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        testbed.gate(gate_program)
        uploads = [testbed.iperf(node, 9, "-C", "cubic") for node in ("phone", "notebook")]
        time.sleep(2)
        voice = testbed.iperf("notebook", 5, "-u", "-b", "80k", "-l", "160").done()
        shares = [upload.mbps() for upload in uploads]
    assert voice["end"]["sum"]["lost_percent"] <= 0.5
    assert min(shares) >= 0.25 * sum(shares), "neither upload is starved"


def test_a_download_beside_the_upload_is_as_fast_as_alone(
    folders: Iterator[Path], gate_program: str
) -> None:

    def play(upload: bool) -> float:
        with Uplink(next(folders), scenario()) as testbed:
            testbed.gate(gate_program)
            if upload:
                testbed.iperf("phone", 25, "-C", "cubic")
            time.sleep(3)
            return testbed.iperf("phone", 6, "-C", "cubic", "-R", "-O", "2").mbps()

    with ThreadPoolExecutor(2) as pool:
        alone, beside = pool.map(play, (False, True))
    assert beside >= 0.95 * alone


ANSWERS = """
import socket
listening = socket.create_server(("", 7000))
print("listening", flush=True)
asking, _ = listening.accept()
while asking.recv(65536):
    asking.send(b"yes")
"""
ASKS = """
import socket, sys, time
asking = socket.create_connection((sys.argv[1], 7000))
for _ in range(30):
    begun = time.monotonic()
    asking.send(bytes(1000))
    asking.recv(100)
    print(time.monotonic() - begun)
    time.sleep(0.02)
"""


def test_a_socket_with_nothing_in_flight_is_never_left_to_its_timer(
    tmp_path: Path, gate_program: str
) -> None:
    """As after an outage: the modem is full. The socket would not learn of a refusal, since no ACK
    is on its way."""
    full = steady(tmp_path / "modem.sock", occupancy=16_000, drained=0)
    with full as modem, Uplink(tmp_path / "testbed", scenario()) as testbed:
        testbed.gate(gate_program, f"socket={modem.path}")
        answers = testbed.start("server", sys.executable, "-c", ANSWERS)
        assert answers.stdout is not None
        assert answers.stdout.readline() == "listening\n"
        said, errors = testbed.start("phone", sys.executable, "-c", ASKS, SERVER).communicate(
            timeout=60
        )
    took = sorted(map(float, said.split()))
    assert len(took) == 30, errors
    # 60 ms, and at least 200 more where a timer has to expire (RFC 6298 and Linux' TCP_RTO_MIN).
    assert took[20] < 0.15


@pytest.mark.measured
def test_an_upload_beside_an_unlimited_download_is_not_starved(
    folders: Iterator[Path], gate_program: str
) -> None:
    """Two seconds of round trip, most of it the download's queue: a window that fills the uplink is half a megabyte, and comes
    in bursts. An eighth of what TCP carries was left to it before bursts were allowed on an idle link."""

    def play() -> Figures:
        with Uplink(next(folders), scenario()) as testbed:
            testbed.gate(gate_program)
            upload, download = (
                testbed.iperf("phone", 24, "-C", "cubic", *way) for way in ((), ("-R",))
            )
            return {"up": upload.mbps(), "down": download.mbps()}

    # The download is on its own for the seconds in which its queue grows.
    judged({"both": play}, {"up": (">=", 0.2 * CARRIED), "down": (">=", 0.85 * 8 * 1448 / 1500)})


TAKES = """
import socket, threading
def take(one):
    while one.recv(65536):
        pass
listening = socket.create_server(("", 7001))
print("listening", flush=True)
while True:
    threading.Thread(target=take, args=(listening.accept()[0],), daemon=True).start()
"""
BOUNDED = """
import select, socket, sys, time
sending = socket.create_connection((sys.argv[1], 7001))
bound = int(sys.argv[2])
if bound:
    sending.setsockopt(socket.SOL_SOCKET, 47, bound)
sending.setblocking(False)
end, shown = time.monotonic() + float(sys.argv[3]), 0
while time.monotonic() < end:
    if select.select([], [sending], [], 0.02)[1]:
        sending.send(bytes(16384))
    if time.monotonic() - shown > 0.02:
        shown = time.monotonic()
        print(time.time(), sending.getsockopt(socket.SOL_SOCKET, 47) & 0xffffffff, flush=True)
"""
"""SO_MAX_PACING_RATE is 47."""
UNBOUNDED, OWN = 0xFFFFFFFF, 600_000
"""No bound; the application's own, bytes per second: twice the link's rate and more."""


def bounds(testbed: Uplink, server: str, own: int, seconds: float) -> subprocess.Popen[str]:
    """An upload of the phone that shows the bound of its pacing rate."""
    return testbed.start("phone", sys.executable, "-c", BOUNDED, server, str(own), str(seconds))


def shown(upload: subprocess.Popen[str]) -> list[tuple[float, int]]:
    """Time and bound, every 20 ms."""
    said, errors = upload.communicate(timeout=60)
    rows = [line.split() for line in said.splitlines()]
    assert len(rows) > 50, errors
    return [(float(at), int(bound)) for at, bound in rows]


def takes(testbed: Uplink, node: str) -> None:
    """Takes uploads at a node."""
    program = testbed.start(node, sys.executable, "-c", TAKES)
    assert program.stdout is not None
    assert program.stdout.readline() == "listening\n"


@pytest.mark.parametrize("end", ["kill", "off"])
def test_uploads_beside_a_download_are_paced_and_get_their_own_bound_back(
    tmp_path: Path, gate_program: str, end: str
) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        takes(testbed, "server")
        takes(testbed, "notebook")
        gate = testbed.gate(gate_program, "pace")
        # Its ACKs show that there is a download; it makes no queue.
        testbed.iperf("phone", 12, "-R", "-b", "2M")
        uploads = {own: bounds(testbed, SERVER, own, 11) for own in (0, OWN)}
        elsewhere = bounds(testbed, NOTEBOOK, OWN, 7)
        time.sleep(7)
        if end == "kill":
            gate.process.kill()
            gate.process.wait()
        else:
            assert gate.off()["paced"]["paced"] >= 2
        ended = time.time()
        seen = {own: shown(upload) for own, upload in uploads.items()}
        other = shown(elsewhere)
        if end == "kill":
            testbed.undone("phone", tmp_path / "journal.jsonl")
    for own, rows in seen.items():
        before = [bound for at, bound in rows if at < ended - 1]
        # A lease lasts two seconds; then a packet has to be acknowledged.
        after = [bound for at, bound in rows if at > ended + 2.5]
        assert before[0] == after[0] == after[-1] == (own or UNBOUNDED)
        # Two uploads share 2 Mbit/s.
        assert 15_000 <= min(before) < 250_000
        assert max(before) <= (own or UNBOUNDED), "an application's bound is an upper bound"
        assert len(set(before)) > 10, "it follows the buffer"
        assert len(set(after)) == 1
    assert {bound for _, bound in other} == {OWN}, "its packets do not come to the gate"


@pytest.mark.parametrize("end", ["off", "killed", "both killed"])
def test_the_daemon_s_pacing_ends_with_it(tmp_path: Path, end: str) -> None:
    with phone(tmp_path, scenario(), "uplink.mode=gate") as (testbed, agent):
        takes(testbed, "server")
        modem = reports(testbed, tmp_path)
        agent.serve()
        testbed.iperf("phone", 11, "-R", "-b", "2M")
        upload = bounds(testbed, SERVER, OWN, 10)
        time.sleep(6)
        assert agent.status()["cures"]["gate"]["paced"]["paced"] >= 1
        if end == "off":
            agent.do("off")
        else:
            agent.kill(supervisor=end == "both killed")
        ended = time.time()
        rows = shown(upload)
        if end == "both killed":
            agent.do("off")
        modem.cut()
        agent.nothing_left(5.0)
    assert min(bound for at, bound in rows if at < ended) < OWN
    # The supervisor is faster than a lease.
    until_s = 2.5 if end == "both killed" else 1.0
    assert {bound for at, bound in rows if at > ended + until_s} == {OWN}


def test_an_upload_alone_and_one_without_the_option_are_not_paced(
    folders: Iterator[Path], gate_program: str
) -> None:

    def play(download: bool, *options: str) -> set[int]:
        with Uplink(next(folders), scenario()) as testbed:
            takes(testbed, "server")
            gate = testbed.gate(gate_program, *options)
            if download:
                testbed.iperf("phone", 6, "-R", "-b", "2M")
            found = {bound for _, bound in shown(bounds(testbed, SERVER, 0, 6))}
            # Its pins are removed.
            gate.off()
            return found

    with ThreadPoolExecutor(2) as pool:
        alone, without = pool.submit(play, False, "pace"), pool.submit(play, True)
        assert alone.result() == without.result() == {UNBOUNDED}


def eventually(gate: Gate, wanted: Callable[[dict[str, object]], bool]) -> bool:
    """Whether the gate says so within ten seconds."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if wanted(gate.line()):
            return True
    return False


def state(status: dict[str, object]) -> object:
    """Of its telemetry."""
    telemetry = status["telemetry"]
    assert isinstance(telemetry, dict)
    return telemetry["state"]


def test_telemetry_that_dries_up_opens_the_gate_and_says_so(
    tmp_path: Path, gate_program: str
) -> None:
    with (
        Uplink(tmp_path, scenario()) as testbed,
        relay(testbed.out / "telemetry.sock", tmp_path / "relay.sock") as modem,
    ):
        gate = testbed.gate(gate_program, f"socket={modem.path}")
        assert eventually(gate, lambda status: state(status) == "fresh")
        upload, ping = testbed.iperf("phone", 12, "-C", "cubic"), testbed.ping()
        time.sleep(3)
        modem.quiet.set()
        assert eventually(gate, lambda status: state(status) == "silent")
        time.sleep(5)
        modem.quiet.clear()
        assert eventually(gate, lambda status: state(status) == "fresh")
        assert upload.done()["end"]["sum_received"]["bytes"] > 0
        ping.stop()
        assert gate.off()["unguarded"] > 50
    # Without reports the buffer fills as it would without the gate.
    assert ping.p(1.0) > OPEN_MS


def test_a_killed_gate_leaves_nothing_and_its_uploads_go_on(
    tmp_path: Path, gate_program: str
) -> None:
    with Uplink(tmp_path, scenario()) as testbed:
        gate, ping = testbed.gate(gate_program), testbed.ping()
        upload = testbed.iperf("phone", 10, "-C", "cubic")
        time.sleep(4)
        gate.process.kill()
        gate.process.wait()
        killed = time.time()
        goodput = upload.mbps()
        ping.stop()
    before = [ms for at, ms in ping.rtts if killed - 2 < at < killed - 0.3]
    after = [ms for at, ms in ping.rtts if at > killed + 2.5]
    assert max(before) < OPEN_MS < max(after), "held before, as without it afterwards"
    assert goodput > 0.8 * CARRIED


def test_by_clsact_a_killed_gate_is_opened_by_its_lease_and_taken_away_by_the_journal(
    tmp_path: Path, gate_program: str
) -> None:

    def tc(testbed: Uplink, *words: str) -> str:
        command = ["ip", "netns", "exec", testbed.spaces["phone"], "tc", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with Uplink(tmp_path, scenario()) as testbed:
        clean = tc(testbed, "qdisc", "show", "dev", testbed.device)
        gate, ping = testbed.gate(gate_program, "clsact"), testbed.ping()
        upload = testbed.iperf("phone", 8, "-C", "cubic")
        time.sleep(2)
        assert "egress" in tc(testbed, "filter", "show", "dev", testbed.device, "egress")
        gate.process.kill()
        gate.process.wait()
        killed = time.time()
        time.sleep(3)
        assert "egress" in tc(testbed, "filter", "show", "dev", testbed.device, "egress"), (
            "clsact outlives the process"
        )
        upload.done()
        ping.stop()
        after = [ms for at, ms in ping.rtts if at > killed + 3.5]
        assert max(after) > OPEN_MS, "its lease has opened it"
        testbed.undone("phone", tmp_path / "journal.jsonl")
        assert tc(testbed, "qdisc", "show", "dev", testbed.device) == clean
        # And an end as it should be leaves the device as it was.
        again = testbed.gate(gate_program, "clsact")
        assert tc(testbed, "qdisc", "show", "dev", testbed.device) != clean
        again.off()
        assert tc(testbed, "qdisc", "show", "dev", testbed.device) == clean


def test_without_a_device_it_says_so_in_one_line(gate_program: str, tmp_path: Path) -> None:
    command = [gate_program, "no-such-device", f"journal={tmp_path / 'journal'}"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode != 0
    assert "no-such-device" in said.stderr
