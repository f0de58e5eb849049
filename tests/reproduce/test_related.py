"""What a figure speaks of: its own flow, probe or link, its own run, and what is added to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unbloat.claims.claim import read_claim
from unbloat.claims.figure import Picked
from unbloat.claims.measure import measure
from unbloat.claims.reproduce import examine
from unbloat.claims.uplink_estimate import estimate_error, estimate_silent
from unbloat.run.figures import Figures
from unbloat.run.run import Run
from unbloat.scenario.simulate import simulate

UPLOAD = """
name = "phone"
duration = "10 s"
warmup = "3 s"
[link.up]
rate = "4 Mbit/s"
delay = "25 ms"
[link.down]
rate = "20 Mbit/s"
delay = "25 ms"
[device]
qdisc = { kind = "droptail", limit = "10 MB" }
firmware = { buffer = "100 KB" }
[[flow]]
name = "upload"
from = "client"
tsq = false
buffer = "300 KB"
[flow.receiver]
window = { kind = "fixed", window = "3 MB" }
"""


@pytest.fixture(scope="module")
def phone() -> Run:
    """A phone that uploads at a rate that never changes."""
    run = simulate(UPLOAD)
    assert isinstance(run, Run)
    return run


def test_behind_a_full_modem_the_qdisc_shows_the_throughput_and_the_application_does_not(
    phone: Run,
) -> None:
    figures = Figures(phone)
    application, tcp, qdisc = (
        estimate_error(figures, "up", layer) for layer in ("application", "tcp", "qdisc")
    )
    assert application is not None
    assert tcp is not None
    assert qdisc is not None
    # A third of 300 KB at 0.5 MB/s is written each 0.2 s: bursts N bins apart make an error of the root of N - 1.
    assert 0.7 < application < 2.0
    assert qdisc < 0.05 < application
    assert tcp < application


def test_portions_of_writer_and_driver_show_at_their_own_layers() -> None:
    run = simulate(
        UPLOAD.replace('buffer = "300 KB"', 'buffer = "300 KB"\nwaits_for_space = true').replace(
            'buffer = "100 KB"', 'buffer = "100 KB", wake = "75 KB"'
        )
    )
    assert isinstance(run, Run)
    layers = ("application", "tcp", "qdisc")
    errors = [estimate_error(Figures(run), "up", layer) or 0.0 for layer in layers]
    silent = [estimate_silent(Figures(run), "up", layer) or 0.0 for layer in layers]
    # 75 KB each 0.15 s below the qdisc; 100 KB each 0.2 s above it, as far as the congestion window lets them go at once.
    assert 0.5 < errors[1] < 2.0
    assert 0.5 < errors[2] < 1.0
    assert silent[1] > 0.1
    assert silent[2] > 0.2


def test_a_figure_names_a_flow_and_a_link_and_each_metric_takes_its_own(phone: Run) -> None:
    named = Picked("firmware_ms mean", flow="upload", link="up")
    assert measure(phone, named) == measure(phone, Picked("firmware_ms mean"))
    rtt = measure(phone, Picked("flow_rtt_ms mean", flow="upload", link="up"))
    assert rtt is not None
    assert rtt > 300


def test_plus_is_added_to_what_was_measured(written: Callable[..., Path]) -> None:
    plain = read_claim(written())
    more = read_claim(written('run = { queue = "deep" }', 'run = { queue = "deep" }\nplus = "1 s"'))
    assert plain is not None
    assert more is not None
    first, second = examine(plain)[0].value, examine(more)[0].value
    assert first is not None
    assert second == pytest.approx(first + 1000)


RATIO = """
[[figure]]
name = "ratio"
metric = "probe_rtt_ms p95"
run = { queue = "deep" }
as = "ratio"
against = { metric = "probe_rtt_ms min" }
min = 2
why = "it is made up"
control = { run = { queue = "shallow" } }
"""


def test_a_control_is_related_to_a_number_of_its_own_run(written: Callable[..., Path]) -> None:
    path: Path = written(more=RATIO)
    claim = read_claim(path)
    assert claim is not None
    figure = claim.figures[1]
    assert figure.control_against is not None
    assert figure.control_against.run == (("queue", "shallow"),)
    elsewhere = RATIO.replace('min" }', 'min", run = { queue = "deep" } }')
    claim = read_claim(written(more=elsewhere))
    assert claim is not None
    assert claim.figures[1].control_against is not None
    assert claim.figures[1].control_against.run == (("queue", "deep"),)
