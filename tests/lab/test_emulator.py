"""The emulator between two namespaces: bytes unharmed, every loss named, logs that replay, telemetry, and its end."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from emulation import FLOOD, RECEIVE, SEND, Emulation, replay

from unbloat.lab.requirements import found
from unbloat.lab.testbed import output, run

pytestmark = pytest.mark.usefixtures("machine")

PLAIN = """
name = "plain"
duration = "20 s"
[link.up]
{up}
delay = "5 ms"
[link.down]
rate = "1 Gbit/s"
delay = "5 ms"
[[flow]]
from = "client"
"""
MEGABYTES = 3_000_000


def scenario(up: str, more: str = "") -> str:
    """A client, a server, and the way up."""
    return PLAIN.format(up=up) + more


def transfer(emulation: Emulation, size: int = MEGABYTES) -> bool:
    """Sends bytes from client to server; whether they arrived as they were sent."""
    receiver = emulation.start("server", sys.executable, "-c", RECEIVE)
    emulation.listens("server", 5001)
    sent = emulation.ask("client", sys.executable, "-c", SEND, "10.0.0.2", str(size))
    received = output(receiver)
    return bool(sent) and sent == received


@pytest.mark.parametrize("offload", ["on", "off"])
def test_bytes_arrive_unharmed_over_a_link_that_loses_and_marks(
    tmp_path: Path, offload: str
) -> None:
    up = 'rate = "100 Mbit/s"\nloss = 0.002\nqueue = { kind = "codel", ecn = true, target = "1 ms", interval = "10 ms" }'
    with Emulation(tmp_path, scenario(up), "--offload", offload) as emulation:
        for node in ("client", "server"):
            emulation.sysctl(node, "net.ipv4.tcp_ecn", "1")
            emulation.sysctl(node, "net.ipv4.tcp_congestion_control", "reno")
        assert transfer(emulation, 4 * MEGABYTES)
        assert emulation.counter("server", "TcpInCsumErrors") == 0
        assert emulation.counter("server", "IpInHdrErrors") == 0
        marks = emulation.counter("server", "IpExtInCEPkts")
        summary = emulation.summary()
        named = emulation.losses()
    assert marks > 0, "the queue marks, and the kernel sees a good header"
    assert {row["why"] for row in named} <= {"link", "aqm", "overflow"}
    assert any(
        row["why"] == "link" and row["proto"] == "tcp" and row["dport"] == 5001 for row in named
    )
    up_link = summary["links"][0]
    assert (
        up_link["offered"]
        == up_link["arrived"] + up_link["dropped"] + up_link["lost"] + up_link["held"]
    )
    assert len(named) == sum(link["dropped"] + link["lost"] for link in summary["links"])
    assert summary["kernel_drops"] == 0
    assert summary["log_complete"]
    again = replay(emulation.out)
    assert again.returncode == 0, again.stderr


REPLAYED = {
    "two stages": (
        'medium = "grants"',
        '[device]\ngate = { kind = "qcut_d", hold = true }\nfirmware = { buffer = "100 KB" }\nqdisc = { kind = "fq_codel" }\n',
    ),
    "probing": (
        'rate = "2 Mbit/s"',
        '[device]\ngate = { kind = "autorate", min = "1 Mbit/s", base = "2 Mbit/s", max = "4 Mbit/s" }\n',
    ),
    "shaped": (
        'rate = "20 Mbit/s"\nqueue = { kind = "cake", rate = "15 Mbit/s" }\njitter = true',
        "",
    ),
    "changing": (
        'rate = "4 Mbit/s"\nqueue_per = "user"',
        '[[change]]\nat = "1 s"\n"link.up.rate" = "8 Mbit/s"\n[[change]]\nat = "2 s"\n"link.up.delay" = "50 ms"\n',
    ),
}


# Of each record its LEB128 numbers, and the single bytes after them (the table in crates/emu/src/log.rs).
FIELDS = {0: (5, 0), 1: (3, 1), 2: (2, 1), 3: (2, 0), 4: (5, 0), 5: (3, 0), 6: (1, 0), 7: (2, 0)}


def places_of_marks(log: bytes | bytearray) -> list[int]:
    """Where in a decision log each packet that started on the link says whether it is marked.

    A decision, not an arrival: an arrival that reads otherwise may well be decided alike.
    """
    places = []
    at = 8
    while at < len(log):
        tag = log[at]
        numbers, single = FIELDS[tag]
        at += 1
        for _ in range(numbers):
            while log[at] & 0x80:
                at += 1
            at += 1
        if tag == 1:
            places.append(at)
        at += single
    return places


@pytest.mark.parametrize("kind", REPLAYED)
def test_a_run_replayed_without_a_clock_decides_the_same(tmp_path: Path, kind: str) -> None:
    up, more = REPLAYED[kind]
    with Emulation(tmp_path, scenario(up, more)) as emulation:
        assert transfer(emulation, 700_000)
        if kind == "probing":
            assert emulation.counter("server", "IcmpInEchos") > 30, "20 probes a second"
            assert emulation.counter("client", "IcmpInEchoReps") == 0, "the answers are the gate's"
        emulation.summary()
    again = replay(emulation.out)
    assert again.returncode == 0, again.stderr
    assert "all alike" in again.stdout
    log = emulation.out / "up.decisions"
    kept = bytearray(log.read_bytes())
    marks = places_of_marks(kept)
    kept[marks[len(marks) // 2]] ^= 1
    log.write_bytes(kept)
    changed = replay(emulation.out)
    assert changed.returncode == 1
    assert "up.decisions: decision" in changed.stderr
    assert changed.stderr.count("\n") == 1


def test_what_the_kernel_drops_while_the_emulator_sleeps_is_reported(tmp_path: Path) -> None:
    with Emulation(
        tmp_path, scenario('rate = "1 Gbit/s"\nqueue = { kind = "droptail", limit = "100 MB" }')
    ) as emulation:
        emulation.child.process.send_signal(signal.SIGSTOP)
        taken = int(
            emulation.ask("client", sys.executable, "-c", FLOOD, "10.0.0.2", "14000", "100")
        )
        emulation.child.process.send_signal(signal.SIGCONT)
        time.sleep(1)
        came = emulation.counter("server", "UdpNoPorts")
        summary = emulation.summary()
    # Its ring holds 10,000 packets; the answers of the far kernel take the other way.
    assert summary["kernel_drops"] > 3_000
    assert came + summary["kernel_drops"] == taken
    assert summary["links"][0]["arrived"] == came


def test_telemetry_reports_the_firmware_buffer_with_its_age(tmp_path: Path) -> None:
    device = (
        '[device]\nfirmware = { buffer = "60 KB", report_every = "5 ms", report_delay = "40 ms" }\n'
    )
    with Emulation(tmp_path, scenario('rate = "1 Mbit/s"', device)) as emulation:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as reader:
            reader.settimeout(5)
            reader.connect(str(emulation.out / "telemetry.sock"))
            emulation.ask("client", sys.executable, "-c", FLOOD, "10.0.0.2", "200", "1000")
            numbers, occupancies, ages_ms = [], [], []
            for _ in range(100):
                magic, version, node, number, written_ns, held, *_ = struct.unpack(
                    "<4sHHQQQQQ", reader.recv(100)
                )
                assert (magic, version, node) == (b"UBTM", 1, 0)
                ages_ms.append((time.monotonic_ns() - written_ns) / 1e6)
                numbers.append(number)
                occupancies.append(held)
        emulation.summary()
    assert numbers == list(range(numbers[0], numbers[0] + 100)), "none is missing"
    assert max(occupancies) >= 60_000, "the buffer fills"
    assert min(ages_ms) > 37, "no report is younger than its delay allows"
    assert not (emulation.out / "telemetry.sock").exists()


def test_several_queues_carry_what_one_does(tmp_path: Path) -> None:
    with Emulation(tmp_path, scenario('rate = "100 Mbit/s"'), "--queues", "4") as emulation:
        assert transfer(emulation)
        summary = emulation.summary()
    assert summary["kernel_drops"] == 0
    assert replay(emulation.out).returncode == 0


@pytest.mark.parametrize("end", ["stop", "end of input", "SIGINT", "SIGTERM", "SIGHUP"])
def test_it_stops_cleanly_on_request_and_takes_its_devices_along(tmp_path: Path, end: str) -> None:
    with Emulation(tmp_path, scenario('rate = "1 Mbit/s"')) as emulation:
        emulation.ask("client", "ping", "-c", "1", "10.0.0.2")
        if end == "stop":
            emulation.child.say("stop")
        elif end.startswith("SIG"):
            emulation.child.process.send_signal(getattr(signal, end))
        code, errors = emulation.end()
        assert (code, errors) == (0, "")
        assert "up" not in emulation.ask("client", "ip", "-br", "link")
        assert replay(emulation.out).returncode == 0


def test_killed_it_leaves_no_device(tmp_path: Path) -> None:
    with Emulation(tmp_path, scenario('rate = "1 Mbit/s"')) as emulation:
        emulation.child.process.kill()
        assert emulation.child.process.wait(10) == -signal.SIGKILL
        assert "up" not in emulation.ask("client", "ip", "-br", "link")


def test_a_namespace_or_device_that_is_taken_away_is_one_line(tmp_path: Path) -> None:
    with Emulation(tmp_path, scenario('rate = "1 Mbit/s"')) as emulation:
        run("ip", "netns", "del", emulation.spaces["server"])
        code, errors = emulation.ended()
    assert (code, errors) == (1, f"unbloat-emu: namespace {emulation.spaces['server']} is gone\n")
    with Emulation(tmp_path, scenario('rate = "1 Mbit/s"')) as emulation:
        emulation.ip("client", "link del dev up")
        code, errors = emulation.ended()
    assert code == 1
    assert errors.startswith("unbloat-emu: up: ")
    assert errors.count("\n") == 1


def test_a_full_disk_is_one_line_and_no_hung_run(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)]
    subprocess.run(mount, check=True)
    try:
        emulation = Emulation(small, scenario('rate = "50 Mbit/s"'))
        emulation.logs = tmp_path
        with emulation:
            with contextlib.suppress(AssertionError):
                emulation.ask("client", sys.executable, "-c", FLOOD, "10.0.0.2", "20000", "60")
            code, errors = emulation.ended()
        assert code == 1
        assert "No space left on device" in errors
        assert errors.count("\n") == 1
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize(
    "gate",
    [
        '[device]\ngate = { kind = "qcut_d", refuse = true }\n',
        '[device]\n[[change]]\nat = "1 s"\n"device.gate" = { kind = "qcut_d", refuse = true }\n',
    ],
    ids=["from the beginning", "in mid-run"],
)
def test_a_gate_without_a_queue_above_it_is_refused(tmp_path: Path, gate: str) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(scenario('rate = "1 Mbit/s"') + gate)
    argv = [found("unbloat-emu") or "", "run", str(file), "--out", str(tmp_path / "out"), "--now"]
    named = ("--netns", "client=unbloat-none", "--netns", "server=unbloat-none")
    done = subprocess.run([*argv, *named], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr == (
        "unbloat-emu: node client: gate.refuse: the emulator has a queue above its gate; "
        'lab.gate = "agent" has none\n'
    )


def test_a_node_without_a_namespace_is_named(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(scenario('rate = "1 Mbit/s"'))
    argv = [found("unbloat-emu") or "", "run", str(file), "--out", str(tmp_path / "out"), "--now"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr == "unbloat-emu: no namespace for node client: give --netns client=NAME\n"
