"""The agent's figures: what a scraper reads is what `status` says, no other host can read it, and
no client hinders the agent; the dashboard names existing metrics only."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_program import agent_path
from download import Agent, Download
from modem import steady

from unbloat.lab.testbed import end, run, until

pytestmark = pytest.mark.usefixtures("machine")
TREE = Path(__file__).resolve().parents[2]
DASHBOARD = TREE / "packaging/grafana/unbloat-agent.json"
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class OfUnix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self) -> None:
        """As its name says."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(str(self.path))


def page(connection: http.client.HTTPConnection) -> str:
    """What a scraper reads."""
    connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert (answer.status, answer.headers["Content-Type"]) == (200, CONTENT_TYPE)
    assert text.endswith("# EOF\n")
    return text


def samples(text: str) -> dict[str, float]:
    """Value by name with labels."""
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    found = {name: float(value) for name, value in rows}
    assert len(found) == len(rows), "no sample is there twice"
    return found


@pytest.fixture
def modem(tmp_path: Path) -> Iterator[Path]:
    """A modem whose buffer stays as good as empty."""
    with steady(tmp_path / "modem.sock", occupancy=3_000, drained=2_500) as modem:
        yield modem.path


def named_by_panels() -> set[str]:
    """Every metric of ours that a panel's query names."""
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return {name for query in queries for name in re.findall(r"\bunbloat_\w+(?=[{\[ ]|$)", query)}


def numbers(value: dict[str, Any], before: str = "") -> Iterator[str]:
    """Paths of all numbers."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from numbers(inner, f"{before}{key}.")
        elif isinstance(inner, int | float) and not isinstance(inner, bool):
            yield f"{before}{key}"


def exported_by(code: str, key: str) -> bool:
    """Whether the function `samples` with which the code begins exports a number of the status. A group of numbers may
    have a function of its own behind it."""
    group, _, number = key.partition(".")
    within = number and f"self.{group}." in code
    return f"self.{key}" in code or bool(
        within and f"self.{number}" in code.partition("fn samples(")[2]
    )


def test_a_scraper_reads_what_status_says_and_every_metric_of_the_dashboard(
    tmp_path: Path, modem: Path
) -> None:
    path = tmp_path / "metrics.sock"
    settings = (
        "scope.device=up",
        "uplink.mode=gate",
        f"uplink.telemetry={modem}",
        "uplink.driver=false",
    )
    figures = (f"metrics.listen=unix:{path}", "metrics.flows=2")
    # Trials begin soon, so that there are some.
    with (
        Download(tmp_path) as testbed,
        Agent(
            testbed,
            *settings,
            *figures,
            "receive.start=1 KB",
            "trial.enabled=true",
            "trial.every=1 s",
            inside=True,
        ) as agent,
    ):
        testbed.iperf_server()
        testbed.iperf_server(5202)
        agent.serve()
        assert path.stat().st_mode & 0o777 == 0o600
        down, up = (
            testbed.download(30),
            testbed.start(
                "host", "iperf3", "-c", testbed.addresses[4][1], "-p", "5202", "-t", "30"
            ),
        )

        def under_way(cure: str) -> bool:
            flows = agent.status()["flows"]
            return any(
                flow["cure"].startswith(cure) and flow["bytes"] > 1_000_000 for flow in flows
            )

        until(lambda: under_way("receive"), 20)
        held = agent.status()
        gate = page(OfUnix(path))
        after = agent.status()
        found = samples(gate)
        counted = found['unbloat_acks_total{cure="receive"}']
        assert held["cures"]["receive"]["acks"] <= counted <= after["cures"]["receive"]["acks"], (
            "between the two"
        )
        assert found['unbloat_uplink{unbloat_uplink="gate"}'] == 1, held["uplink"]
        assert found["unbloat_gate_reports_fresh"] == 1
        assert found["unbloat_gate_reported_bytes"] == 3_000
        assert 0 < found["unbloat_gate_report_age_seconds"] < 1
        assert found['unbloat_goodput_bytes_per_second{cure="receive"}'] == pytest.approx(
            965_000, rel=0.7
        )
        assert found['unbloat_flow_rtt_seconds_gcount{cure="receive"}'] >= 1
        assert found["unbloat_problems"] == 0, held["problems"]
        assert (
            len([name for name in found if name.startswith("unbloat_busy_flow_rtt_seconds{")]) <= 2
        )
        missing = {(cure, key) for cure, about in held["cures"].items() for key in numbers(about)}
        agent.set("uplink.mode=acks")
        until(lambda: under_way("acks"), 20)
        acks = page(OfUnix(path))
        assert samples(acks)['unbloat_uplink{unbloat_uplink="acks"}'] == 1
        about = agent.status()["cures"]
        missing |= {(cure, key) for cure in about for key in numbers(about[cure])}
        for process in (down, up):
            end(process)
        exported = {name.partition("{")[0] for text in (gate, acks) for name in samples(text)}
        assert named_by_panels() - exported == set()
        # A number that a cure has more than before belongs on the page.
        folder = TREE / "crates/agent/src/cures"
        # Its figures are in its module, or in a file of their own below it.
        sources = {
            cure: next(
                text
                for path in (folder / f"{cure}.rs", folder / cure / "figures.rs")
                if path.exists() and "fn samples(" in (text := path.read_text())
            )
            for cure, _ in missing
        }
        # A key of the status that is not the field's name: #[serde(rename = "key")] before it.
        renamed = re.compile(r'rename = "(\w+)"\)\]\s*(?:pub(?:\(\w+\))? )?(\w+):')
        fields = {cure: dict(renamed.findall(source)) for cure, source in sources.items()}
        missing = {
            (cure, key)
            for cure, key in missing
            if not exported_by(
                sources[cure].partition("fn samples(")[2], fields[cure].get(key, key)
            )
        }
        assert missing <= {("gate", "telemetry.for_s")}
        if importlib.util.find_spec("prometheus_client") is not None:
            parser = importlib.import_module("prometheus_client.openmetrics.parser")
            for text in (gate, acks):
                assert len(list(parser.text_string_to_metric_families(text))) > 20
    assert not path.exists(), "it goes with the agent"


def port_of(agent: Agent) -> int:
    """The only port on which the agent listens, which is one of loopback."""
    assert agent.daemon is not None
    mine = [
        line.split()
        for line in run("ss", "-Hltnp").splitlines()
        if f"pid={agent.daemon.pid}," in line
    ]
    (line,) = mine
    address, _, port = line[3].rpartition(":")
    assert address in ("127.0.0.1", "[::1]")
    return int(port)


def cpu_s(agent: Agent) -> float:
    """CPU time of the daemon so far."""
    assert agent.daemon is not None
    fields = Path(f"/proc/{agent.daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answered(agent: Agent) -> float:
    """How long `status` takes."""
    begun = time.monotonic()
    agent.status()
    return time.monotonic() - begun


def test_silent_slow_and_many_clients_do_not_hinder_the_agent(tmp_path: Path) -> None:
    with (
        Download(tmp_path) as testbed,
        Agent(testbed, "uplink.mode=off", "metrics.listen=127.0.0.1:0") as agent,
    ):
        agent.serve()
        port = port_of(agent)

        def client(said: bytes) -> socket.socket:
            one = socket.create_connection(("127.0.0.1", port), timeout=10)
            one.sendall(said)
            return one

        usual = answered(agent)
        odd = [
            b"",
            b"G",
            b"GET /metrics HTTP/1.1\r\n",
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ]
        silent = [client(odd[number % 4]) for number in range(60)]
        begun, before = time.monotonic(), cpu_s(agent)
        time.sleep(2)
        assert cpu_s(agent) - before < 0.25 * (time.monotonic() - begun), (
            "silent clients do not keep the agent busy"
        )
        assert answered(agent) < usual + 0.5
        page(http.client.HTTPConnection("127.0.0.1", port, timeout=10))
        with client(b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 100_000) as long:
            assert long.recv(4096).startswith(b"HTTP/1.1 431 ")
        flood = f"""
import socket
request = b"GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
for _ in range(1500):
    with socket.create_connection(("127.0.0.1", {port}), timeout=10) as one:
        one.sendall(request)
"""
        flooding = subprocess.Popen([sys.executable, "-c", flood])
        while flooding.poll() is None:
            assert answered(agent) < usual + 1
        assert flooding.returncode == 0
        page(http.client.HTTPConnection("127.0.0.1", port, timeout=10))
        for one in silent:
            one.close()
        assert agent.status()["problems"] == []


def test_requests_that_are_none_get_an_answer_that_says_so(tmp_path: Path) -> None:
    with (
        Download(tmp_path) as testbed,
        Agent(testbed, "uplink.mode=off", "metrics.listen=[::1]:0") as agent,
    ):
        agent.serve()
        port = port_of(agent)
        wanted = {
            ("GET", "/", "[::1]"): 404,
            ("POST", "/metrics", "[::1]"): 405,
            # A page of elsewhere that a browser was made to read from here.
            ("GET", "/metrics", "rebound.example"): 421,
            ("HEAD", "/metrics", "localhost"): 200,
        }
        for (method, target, host), status in wanted.items():
            connection = http.client.HTTPConnection("::1", port, timeout=10)
            connection.request(method, target, headers={"Host": host})
            assert connection.getresponse().status == status, (method, target, host)
        agent.set("metrics.listen=")
        with pytest.raises(ConnectionRefusedError):
            page(http.client.HTTPConnection("::1", port, timeout=10))


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:9469", "[::]:9469", "192.0.2.1:9469", "metrics.sock", "unix:metrics.sock"]
)
def test_beyond_loopback_is_refused_before_anything_begins(tmp_path: Path, listen: str) -> None:
    places = ("--runtime", str(tmp_path / "run"), "--pins", str(tmp_path / "pins"))
    done = subprocess.run(
        [agent_path(), *places, "serve", "--set", f"metrics.listen={listen}"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 3
    assert "metrics.listen: " in line
    assert not (tmp_path / "run").exists()


def test_a_port_that_is_taken_is_said_and_the_cures_go_on(tmp_path: Path) -> None:
    with Download(tmp_path) as testbed, socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"metrics.listen=127.0.0.1:{taken.getsockname()[1]}"
        with Agent(testbed, "uplink.mode=off", listen) as agent:
            agent.serve()
            status = agent.status()
            (problem,) = status["problems"]
            assert problem.startswith("metrics: 127.0.0.1:")
            assert "Address already in use" in problem
            assert "receive" in status["cures"]


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["schemaVersion"] >= 36
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {
        "datasource",
        "instance",
    }
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        for at in (panel["gridPos"] for panel in panels)
    ]
    assert sum(map(len, places)) == len(set().union(*places)), "no panel lies on another"
    assert all(x < 24 for place in places for x, _ in place)
    for panel in panels:
        assert panel["title"]
        assert panel["type"] in ("stat", "timeseries")
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0
        for target in panel["targets"]:
            assert (
                target["datasource"]
                == panel["datasource"]
                == {"type": "prometheus", "uid": "${datasource}"}
            )
            assert target["expr"].count("(") == target["expr"].count(")")
            assert 'instance=~"$instance"' in target["expr"]
    titles = " ".join(panel["title"].lower() for panel in panels)
    for subject in (
        "rtt",
        "queue",
        "goodput",
        "windows",
        "gate",
        "delay",
        "cures",
        "trials",
        "problems",
    ):
        assert subject in titles
