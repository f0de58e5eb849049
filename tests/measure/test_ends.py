"""How a measurement ends, and what strangers can do: dead servers and links, forged probes, broken frames and handshakes, a
second client."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from path import ADDRESSES, Link, MeasuredPath

from unbloat.lab.testbed import TIMEOUT_S

pytestmark = pytest.mark.usefixtures("machine")

LINKS = (Link(20, 100), Link(20, 100))

# Sends 200 forged probes from three addresses, and every true probe that it sees again from another port: how many
# true ones it saw, and how many answers it got.
FORGE = """
import os, socket, sys, time
server = (sys.argv[1], 26110)
sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
sniffer.settimeout(0.2)
sockets = []
for own in sys.argv[2:]:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((own, 0))
    s.setblocking(False)
    sockets.append(s)
forgers = {s.getsockname()[1] for s in sockets}
seen = sent = 0
end = time.monotonic() + 2.5
while time.monotonic() < end:
    try:
        packet = sniffer.recv(2048)
    except TimeoutError:
        continue
    udp = packet[20:]
    if packet[9] != 17 or udp[2:4] != (26110).to_bytes(2, "big") or udp[8:12] != b"UBP1":
        continue
    if int.from_bytes(udp[:2], "big") in forgers:
        continue
    seen += 1
    probe = udp[8:]
    for s in sockets:
        s.sendto(probe, server)                                  # again, as it is
        if sent < 200:
            s.sendto(probe[:72] + os.urandom(16), server)        # a wrong tag
            s.sendto(probe + bytes(12), server)                  # another length
            sent += 2
time.sleep(0.5)
answers = 0
for s in sockets:
    try:
        while s.recv(2048):
            answers += 1
    except BlockingIOError:
        pass
print(seen, sent, answers)
"""

# 10,000 broken beginnings, a connection each: mostly what shall be TLS and is none, every tenth a frame inside TLS that is none.
BREAK = """
import random, socket, ssl
draw = random.Random(1)
tls = ssl.create_default_context()
tls.check_hostname = False
tls.verify_mode = ssl.CERT_NONE
tls.set_alpn_protocols(["unbloat/1"])
framed = 0
for n in range(10_000):
    body = draw.randbytes(draw.randrange(60))
    with socket.create_connection(("127.0.0.1", 26110), timeout=5) as plain:
        try:
            if n % 10:
                length = draw.choice([len(body), draw.randrange(1 << 16)])
                plain.sendall(bytes([22, 3, draw.randrange(5)]) + length.to_bytes(2, "big") + body)
            else:
                with tls.wrap_socket(plain) as sealed:
                    length = draw.choice([len(body), draw.randrange(1 << 32)])
                    sealed.sendall(length.to_bytes(4, "big") + body)
                    framed += 1
        except OSError:
            pass
print(n + 1, framed)
"""

# Holds 64 connections, twice what one host may, each with a part of a handshake: one that is closed is opened again, until
# a line of input comes. Prints how many the server closed at once, and how many after it had waited.
STALL = """
import select, socket, sys, time
held, ages = {}, []
while not select.select([sys.stdin], [], [], 0)[0]:
    while len(held) < 64:
        s = socket.create_connection((sys.argv[1], 26110), timeout=5, source_address=("10.0.0.3", 0))
        s.sendall(bytes([22, 3, 1, 2, 0, 1])[: len(held) % 7])
        held[s] = time.monotonic()
    for s in select.select(list(held), [], [], 0.1)[0]:
        ages.append(time.monotonic() - held.pop(s))
        s.close()
waited = sum(age > 2.9 for age in ages)
print(len(ages) - waited, waited)
"""


def ended(client: subprocess.Popen[str], since: float) -> tuple[float, int, dict[str, Any]]:
    """How long it took, exit code, result."""
    out, errors = client.communicate(timeout=TIMEOUT_S)
    took = time.monotonic() - since
    assert out, errors
    return took, client.returncode, json.loads(out)


@pytest.mark.parametrize("what", ["server", "link"])
def test_a_server_or_link_that_dies_ends_it_with_what_it_has(tmp_path: Path, what: str) -> None:
    with MeasuredPath(tmp_path, *LINKS) as made:
        server = made.serve()
        client = made.client("--phases", "up", "--streams", "4", "--quick")
        # Idle for 1 s; measured after at most 1.2 s more, for 2.2 s.
        time.sleep(3.4)
        assert client.poll() is None
        died = time.monotonic()
        if what == "server":
            server.kill()
        else:
            made.ip("server", f"route del {ADDRESSES['client']}/32")
        took, code, result = ended(client, died)
    assert took < 4
    assert code == 5
    assert result["complete"] is False
    assert isinstance(result["ended"], str)
    (phase,) = result["phases"]
    assert phase["delay_up"]["probes"] > 20
    assert phase["delay_up"]["p50_ms"][0] > 5
    # What the death cut off is no loss of the path.
    assert phase["delay_rtt"]["loss"] < 0.1


def test_forged_probes_get_no_answer_and_broken_or_stalled_handshakes_end_nothing(
    tmp_path: Path,
) -> None:
    with MeasuredPath(tmp_path, *LINKS) as made:
        made.serve()
        made.ip("client", "address add 10.0.0.3/32 dev lo")
        made.ip("server", f"route add 10.0.0.3/32 via {ADDRESSES['client']} onlink dev down")
        own = ADDRESSES["client"]
        server = ADDRESSES["server"]
        stall = (sys.executable, "-c", STALL, server)
        stalled = made.start("client", *stall, stdin=subprocess.PIPE)
        client = made.client("--phases", "down", "--quick")
        time.sleep(0.5)
        forged = made.ask("client", sys.executable, "-c", FORGE, server, own, own, "10.0.0.3")
        broken = made.start("server", sys.executable, "-c", BREAK)
        out, errors = client.communicate(timeout=TIMEOUT_S)
        count, _ = broken.communicate(timeout=TIMEOUT_S)
        again, _ = made.measure("--phases", "down", "--quick")
        closes, _ = stalled.communicate("enough\n", timeout=TIMEOUT_S)
    seen, sent, answers = map(int, forged.split())
    assert seen > 100, "the client probed meanwhile"
    assert sent >= 200
    assert answers == 0
    ends, framed = map(int, count.split())
    assert (ends, framed) == (10_000, 1000)
    too_many, waited = map(int, closes.split())
    assert too_many > 0
    assert waited > 0
    result = json.loads(out)
    assert result["complete"], errors
    assert result["phases"][0]["delay_rtt"]["loss"] < 0.2
    assert again in (0, 5), "and the server still serves"


def test_a_second_client_waits_and_a_stranger_is_refused(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, *LINKS) as made:
        made.serve()
        words = ("--phases", "up", "--quick")
        first, begun = made.client(*words), time.monotonic()
        time.sleep(0.5)
        second = made.client(*words)
        asks = (made.program, ADDRESSES["server"], "--token", "wrong", "--pin")
        stranger = made.start("client", *asks, made.pin)
        _, errors = stranger.communicate(timeout=TIMEOUT_S)
        assert stranger.returncode == 4
        assert errors == "unbloat-measure: the server refuses: wrong token\n"
        deceived = made.start("client", *asks, "00112233445566778899")
        _, errors = deceived.communicate(timeout=TIMEOUT_S)
        assert deceived.returncode == 4
        assert errors == "unbloat-measure: 10.0.0.2: the server's key is not that of --pin: " + (
            "the server has a new one, or another host answers for it\n"
        )
        one, _, result = ended(first, begun)
        other, _, second_result = ended(second, begun)
    assert result["complete"]
    assert second_result["complete"]
    assert other > one + 4, "it measured when the first had ended"


def test_over_a_modem_it_asks_first(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, *LINKS) as made:
        made.serve()
        made.ip("client", "link set dev up down", "link set dev up name wwan0")
        made.ip("client", "link set dev wwan0 up", f"route add {ADDRESSES['server']}/32 dev wwan0")
        words = ("--max-data", "5 MB", "--phases", "up", "--quick")
        asked = made.client(*words)
        out, errors = asked.communicate(timeout=TIMEOUT_S)
        assert (asked.returncode, out) == (2, "")
        expected = "wwan0 is a mobile modem; the test may transfer 5 MB: --yes permits it\n"
        assert errors == f"unbloat-measure: {expected}"
        code, result = made.measure(*words, "--yes")
    assert code == 5
    assert result["ended"] == "the limit of data (--max-data) of client or server was reached"


def test_without_a_server_one_line_says_so(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, *LINKS) as made:
        client = made.start("client", made.program, ADDRESSES["server"])
        _, errors = client.communicate(timeout=TIMEOUT_S)
    assert client.returncode == 3
    assert errors.startswith("unbloat-measure: 10.0.0.2: no answer from 10.0.0.2:26110")
    assert errors.count("\n") == 1
