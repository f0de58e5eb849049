"""`unbloat-modem serve` and the gate: a DIAG port whose records are made of the emulator's reports holds the figures that these
reports hold by themselves.

The link and the modem are those of the claim `qcut-6-b` at -98 dBm; the gate is the agent's, with its own target."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from agent_program import example
from measured import Figures, medians
from requirements import require, unavailable
from uplink import Uplink, scenario

from unbloat.lab.requirements import MODEM, found
from unbloat.lab.testbed import until

# Span of a record, ms, which is 40 in public logs of modems; how near the figures have to be; runs.
SPANS = ((40, 0.1, 5), (0, 0.2, 3), (100, 0.2, 3), (200, 0.2, 3))
# Goodput of equal runs differs by up to a quarter on a busy machine: what `make test` asks of three runs. Without reports, p95 is
# several times as long.
SAMPLE = ((40, 0.35, 3),)
BY_ITSELF, BLOCKS, BUFFER = "emulator", "blocks", "buffer"


def path(reports: str) -> str:
    """The link and the modem of the claim."""
    return scenario(
        up='medium = { kind = "grants", signal = "-98 dBm" }',
        down='rate = "20 Mbit/s"',
        buffer="222 KB",
        delay="29 ms",
        reports=reports,
    )


@pytest.fixture(scope="session")
def played_program(machine: None) -> str:
    """The modem that is played."""
    require(MODEM)
    return example("played") or unavailable("cargo", "the example played is not built")


def port(testbed: Uplink, played: str, batch_ms: int, kind: str) -> Path:
    """A modem with a DIAG port, and the program that reads it: its socket."""
    telemetry, reports = testbed.out / "telemetry.sock", testbed.folder / "modem.sock"
    modem = testbed.start(
        "phone", played, str(telemetry), str(batch_ms), kind, stdin=subprocess.PIPE
    )
    assert modem.stdout is not None
    tty = modem.stdout.readline().strip()
    words = (found(MODEM) or MODEM, "serve", "--diag", tty, "--socket", str(reports))
    serving = testbed.start("phone", *words)
    assert serving.stdout is not None
    line = serving.stdout.readline()
    assert "reports at" in line, line
    return reports


def upload(folders: Iterator[Path], gate: str, played: str, batch_ms: int, kind: str) -> Figures:
    """Goodput of an upload beside a ping, and the ping's RTT, behind the gate."""
    # Handed over at the end of their batch, and with no delay on top.
    own = f'report_delay = "{batch_ms / 2} ms", report_batch = "{batch_ms} ms"'
    text = path(own if kind == BY_ITSELF else 'report_delay = "0 ms"')
    with Uplink(next(folders), text) as testbed:
        options: tuple[str, ...] = ()
        if kind != BY_ITSELF:
            options = (f"socket={port(testbed, played, batch_ms, kind)}",)
        running = testbed.gate(gate, *options)
        until(lambda: kind == BUFFER or running.line()["reports"] > 20)
        ping = testbed.ping()
        goodput = testbed.iperf("phone", 20, "-C", "cubic", "-O", "5").mbps()
        ping.stop()
        last = running.off()
    assert last["telemetry"]["state"] == "fresh"
    assert last["refused_own"] > 0, "it is the gate that holds the delay"
    return {"goodput": goodput, "p50": ping.p(0.5), "p95": ping.p(0.95)}


@pytest.mark.measured
@pytest.mark.parametrize(
    ("batch_ms", "near", "count"), SPANS if os.environ.get("UNBLOAT_MODEM_SPANS") else SAMPLE
)
def test_records_of_a_modem_hold_what_the_emulator_s_reports_hold(
    folders: Iterator[Path],
    gate_program: str,
    played_program: str,
    batch_ms: int,
    near: float,
    count: int,
) -> None:
    plays = {
        kind: partial(upload, folders, gate_program, played_program, batch_ms, kind)
        for kind in (BY_ITSELF, BLOCKS, BUFFER)
    }
    of = medians(plays, count)
    own = of.pop(BY_ITSELF)
    changes = {
        kind: {key: figures[key] / own[key] - 1 for key in own} for kind, figures in of.items()
    }
    # pytest shows it where the test fails, and with -rP
    print(f"{batch_ms} ms: {own}", *changes.items(), sep="\n")
    worst = max(abs(change) for one in changes.values() for change in one.values())
    assert worst <= near, changes
