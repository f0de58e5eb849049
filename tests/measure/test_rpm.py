"""`unbloat measure rpm` against the emulator's queue, our server and nginx: the round trips are those of the path, the figure is
the draft's of them, and whatever ends a test leaves what it has."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from path import ADDRESSES, PAYLOAD, Link, MeasuredPath, Queue, ended
from requirements import require

from unbloat.lab.testbed import TIMEOUT_S, until
from unbloat.measured.history import Responsive, read_history

pytestmark = pytest.mark.usefixtures("machine")

RTT_MS = 20
# 100 ms each.
UP, DOWN = Link(10, 125), Link(30, 375)
SEPARATE = '{ kind = "fq_codel" }'
PORT = 8443
# A load has more in the four seconds of a figure, a handshake and its answer less.
LOAD_BYTES = 50_000
# Of what TCP carried: frames of HTTP/2, records of TLS, answers to probes on the same connections, what was sent twice.
LEAST = 0.95
# A load with a hole goes on until its retransmission comes. Where that is lost as well, a time-out of 0.2 s and an RTT repairs it
# (RFC 6298), and two of these where it is lost again. All loads may lose at once, when the queue is full.
HELD_S = 0.8
# A stage of ten intervals of a second for goodput, and one for responsiveness.
MAX_S = 25


def rpm(made: MeasuredPath, *words: str, pin: bool = True) -> subprocess.Popen[str]:
    """A client that runs."""
    trusted = ("--pin", made.pin) if pin else ()
    target = f"{made.server}:{PORT}"
    return made.start("client", made.program, "rpm", target, *trusted, "--json", *words)


def consistent(phase: dict[str, Any]) -> bool:
    """The figure is the draft's of the round trips beside it."""
    foreign_ms = (phase["tcp_ms"] + phase["tls_ms"] + phase["http_ms"]) / 3
    draft = (60_000 / foreign_ms + 60_000 / phase["loaded_ms"]) / 2
    of_mean = 60_000 / ((foreign_ms + phase["loaded_ms"]) / 2)
    found = (phase["rpm"], phase["rpm_of_mean"])
    return bool(found == pytest.approx((draft, of_mean)))


def true_ms(made: MeasuredPath, queues: dict[str, Any], phase: dict[str, Any], *ways: str) -> float:
    """What a round trip took while the probes of a phase were sent: the path's own time, and the queues of its loads."""
    waits = [made.waits_ms(queues[way], phase) for way in ways]
    return RTT_MS + sum(median(one) for one in waits)


def like_the_queue(phase: dict[str, Any], truth_ms: float) -> bool:
    """Whether TCP's handshakes took what the queue does. A lost SYN is sent again after a second, which is in the trimmed mean
    where more than 5 % are lost: three more are allowed."""
    lost_ms = 3 * 1000 / phase["foreign_probes"]
    return bool(0.9 * truth_ms <= phase["tcp_ms"] <= 1.1 * truth_ms + lost_ms)


def is_what_the_link_carried(
    made: MeasuredPath, queue: Queue, phase: dict[str, Any], mbps: float
) -> bool:
    """Whether the goodput of a phase is what the link carried of its loads, in the same seconds. What a lost segment holds back is
    counted when it comes again, so it may be missing in these seconds, or have been sent before them."""
    begin_s, end_s = made.span_s(phase)
    loads_mbps = queue.carried_mbps(begin_s, end_s, flow_bytes=LOAD_BYTES) * PAYLOAD
    held = HELD_S / (end_s - begin_s)
    return (LEAST - held) * loads_mbps <= mbps <= (1 + held) * loads_mbps


def test_handshakes_take_what_the_queue_does_in_each_direction_and_in_both(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        made.serve("--nq", str(PORT))
        code, result = ended(rpm(made, "--quick", "--phases", "down,up,both"), 4 * MAX_S)
        queues = made.queues()
    assert code == 0, result
    assert result["complete"]
    assert result["unloaded_rtt_ms"] == pytest.approx(RTT_MS, abs=2)
    # Three round trips of 20 ms, and some work at both ends.
    assert 2_500 <= result["unloaded_rpm"] <= 3_000
    assert [phase["phase"] for phase in result["phases"]] == ["down", "up", "both"]
    for phase, ways in zip(result["phases"], (("down",), ("up",), ("down", "up")), strict=True):
        assert phase["variant"] == "deployed"
        assert consistent(phase)
        truth = true_ms(made, queues, phase, *ways)
        # Of both ways the medians of each are added up, which the median of their sum need not be.
        assert like_the_queue(phase, truth) or (len(ways) == 2 and phase["tcp_ms"] < truth), phase
        assert phase["tcp_ms"] > 0.6 * truth
        assert phase["failed"] <= 0.1 * phase["foreign_probes"]
        # A lost packet of these has to be retransmitted, so they are not shorter.
        assert phase["tls_ms"] >= 0.9 * min(truth, phase["tcp_ms"])
        assert phase["loaded_ms"] >= 0.9 * min(truth, phase["tcp_ms"])
        for way, link in (("down", DOWN), ("up", UP)):
            goodput = phase[f"goodput_{way}_bps"]
            assert (goodput is not None) == (way in ways)
            if goodput is None:
                continue
            assert is_what_the_link_carried(made, queues[way], phase, goodput / 1e6), phase
            if len(ways) == 1:
                assert queues[way].carried_mbps(*made.span_s(phase)) >= 0.9 * link.mbps, phase


def test_with_queues_of_their_own_new_connections_do_not_wait(tmp_path: Path) -> None:
    with MeasuredPath(
        tmp_path, Link(10, 125, queue=SEPARATE), Link(30, 375, queue=SEPARATE)
    ) as made:
        made.serve("--nq", str(PORT))
        keep = ("--keep", str(tmp_path / "kept.jsonl"))
        code, result = ended(rpm(made, "--quick", "--phases", "up", *keep), 2 * MAX_S)
        queues = made.queues()
    assert code == 0, result
    (phase,) = result["phases"]
    (kept,) = read_history(tmp_path / "kept.jsonl")
    assert kept.host == f"{made.server}:{PORT}"
    assert kept.phases == {"up, deployed": Responsive(phase["rpm"])}
    assert kept.rtt_min_ms == result["unloaded_rtt_ms"]
    assert phase["tcp_ms"] <= 1.5 * RTT_MS
    assert is_what_the_link_carried(made, queues["up"], phase, phase["goodput_up_bps"] / 1e6), phase
    assert queues["up"].carried_mbps(*made.span_s(phase)) >= 0.9 * 10
    assert consistent(phase)


def test_the_drafts_interval_takes_as_many_of_them(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        made.serve("--nq", str(PORT))
        code, result = ended(rpm(made, "--phases", "up"), 4 * MAX_S)
    assert code == 0, result
    deployed, draft = result["phases"]
    assert (deployed["variant"], deployed["interval_s"]) == ("deployed", 1)
    assert (draft["variant"], draft["interval_s"]) == ("draft-09", 5)
    # Four intervals to see that goodput is steady, four for responsiveness; one connection more in each.
    assert 40 <= draft["seconds"] <= 62
    assert draft["connections"] == pytest.approx(draft["seconds"] / 5, abs=1)
    assert draft["goodput_confidence"] == "high", "the path is steady"
    assert consistent(draft)
    assert like_the_queue(draft, RTT_MS + 100), "the queue of the link, full"
    assert like_the_queue(deployed, RTT_MS + 100)


NGINX = """
daemon off;
master_process off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_max_body_size 0;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:8081; location / {{ return 200; }} }}
  server {{
    listen {port} ssl http2;
    ssl_certificate {folder}/own.crt; ssl_certificate_key {folder}/own.key; ssl_protocols TLSv1.3;
    root {folder}/www;
    default_type application/octet-stream;
    location = /.well-known/nq {{ default_type application/json; alias {folder}/nq.json; }}
    location = /upload {{ proxy_pass http://127.0.0.1:8081; }}
    location = /early {{ return 200; }}
  }}
}}
"""


def nginx(made: MeasuredPath, upload: str = "upload") -> None:
    """A server of RPM of nginx, by the names of earlier drafts; it reads an upload whole before it answers."""
    require("nginx", "openssl")
    folder = made.folder / "nginx"
    (folder / "www").mkdir(parents=True)
    (folder / "www/small").write_bytes(b"x")
    with (folder / "www/large").open("wb") as file:
        file.truncate(8_000_000_000)
    base = f"https://{made.server}:{PORT}"
    urls = {
        "small_https_download_url": f"{base}/small",
        "large_https_download_url": f"{base}/large",
        "https_upload_url": f"{base}/{upload}",
    }
    (folder / "nq.json").write_text(json.dumps({"version": 1, "urls": urls}))
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    out = ("-keyout", str(folder / "own.key"), "-out", str(folder / "own.crt"))
    made.ask("server", "openssl", "req", "-x509", *key, *out, "-subj", "/CN=nq", "-days", "2")
    folder.chmod(0o755)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=PORT))
    made.ip("server", "link set lo up")
    made.start("server", "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"))
    until(lambda: f":{PORT}" in made.ask("server", "ss", "-Htln"), TIMEOUT_S, every_s=0.1)


def test_a_server_of_others_is_measured_as_well(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        nginx(made)
        code, result = ended(rpm(made, "--quick", "--insecure", pin=False), 3 * MAX_S)
        queues = made.queues()
    assert code == 0, result
    for phase, way in zip(result["phases"], ("down", "up"), strict=True):
        assert consistent(phase)
        assert like_the_queue(phase, true_ms(made, queues, phase, way)), phase


@pytest.mark.parametrize(
    ("upload", "why"),
    [
        ("early", "it answers an upload before its end"),
        ("none", "it answers 404 Not Found"),
    ],
)
def test_a_server_that_takes_no_load_is_no_full_path(tmp_path: Path, upload: str, why: str) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        nginx(made, upload)
        words = ("--quick", "--insecure", "--phases", "up")
        code, result = ended(rpm(made, *words, pin=False))
    assert code == 5
    assert not result["complete"]
    assert result["ended"] == f"a load: {why}"


@pytest.mark.parametrize("what", ["server", "link"])
def test_a_server_or_link_that_dies_ends_it_with_what_it_has(tmp_path: Path, what: str) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        server = made.serve("--nq", str(PORT))
        client = rpm(made, "--quick", "--phases", "down")
        time.sleep(3)
        assert client.poll() is None
        died = time.monotonic()
        if what == "server":
            server.kill()
        else:
            made.ip("server", f"route del {ADDRESSES['client']}/32")
        code, result = ended(client)
        took_s = time.monotonic() - died
    assert took_s < 4
    assert code == 5
    assert not result["complete"]
    assert isinstance(result["ended"], str)
    (phase,) = result["phases"]
    assert phase["confidence"] == "low"
    assert consistent(phase)
    assert phase["foreign_probes"] > 10


def test_a_limit_of_data_ends_it_with_what_it_has(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        made.serve("--nq", str(PORT))
        code, result = ended(rpm(made, "--quick", "--max-data", "5 MB", "--phases", "down"))
        down = made.queues()["down"]
    assert code == 5
    assert "--max-data" in result["ended"]
    # What was on its way, and the probes.
    assert 5e6 <= sum(down.size) <= 6.5e6


def errors_of(made: MeasuredPath, words: Sequence[str]) -> tuple[int, str]:
    """Exit code and line of a client that measures nothing."""
    client = made.start("client", made.program, "rpm", *words, "--quick")
    out, errors = client.communicate(timeout=TIMEOUT_S)
    assert not out
    return client.returncode, errors


def test_what_is_no_server_of_rpm_says_so_in_a_line(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        at = f"{made.server}:{PORT}"
        code, line = errors_of(made, [at])
        assert code == 3, "no server"
        assert "refused" in line
        nginx(made)
        code, line = errors_of(made, [at])
        assert code == 4, "a key that no authority has certified"
        assert "certificate" in line
        assert errors_of(made, [at, "--pin", "0" * 20])[0] == 4, "another key"
        code, line = errors_of(made, [f"https://{at}/none", "--insecure"])
        assert (code, line) == (
            4,
            "unbloat-measure: the server refuses: it answers 404 Not Found\n",
        )
        code, line = errors_of(made, [f"https://{at}/small", "--insecure"])
        assert (code, "its configuration: no JSON" in line) == (4, True)
        code, line = errors_of(made, [f"http://{at}/"])
        assert (code, "nor a URL of HTTPS" in line) == (2, True)


def test_a_busy_server_says_when_to_come_again(tmp_path: Path) -> None:
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        made.serve("--nq", str(PORT), "--max-data", "3 MB")
        code, result = ended(rpm(made, "--quick", "--phases", "down"))
        assert (code, result["complete"]) == (5, False)
        code, line = errors_of(made, [f"{made.server}:{PORT}", "--pin", made.pin])
    assert code == 4
    assert line.endswith("it is busy; it may be asked again in 60 s\n")
