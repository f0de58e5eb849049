"""Flows that share the queue, and random loss: found by `unbloat fit` on simulated links, and replayed by `unbloat what-if`."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import unbloat
from unbloat.errors import LinkUnknown
from unbloat.phones.upload import BEFORE_PACKET_BYTES, PACKET_BLOCK
from unbloat.prediction.replay import Outcome
from unbloat.run.figures import Figures

RATE_BPS, BUFFER_BYTES, LOSS = 6e6, 200_000, 0.003
SCENARIO = """
name = "shared"
duration = "20 s"
seed = 3
[link.up]
rate = "6 Mbit/s"
delay = "20 ms"
queue = {{ kind = "droptail", limit = "200 KB" }}
loss = {loss}
[link.down]
rate = "100 Mbit/s"
delay = "20 ms"
[[flow]]
name = "upload"
from = "client"
to = "server"
congestion = "{congestion}"
"""
RIVAL = """
[[flow]]
name = "rival"
from = "client"
to = "server"
start = "2 s"
"""


def simulated(folder: Path, text: str, end: str = "client") -> tuple[Path, unbloat.Run]:
    """The capture of one end, and the run."""
    path = folder / "link.toml"
    path.write_text(text)
    run = unbloat.simulate(path, pcap=folder)
    assert isinstance(run, unbloat.Run)
    return next(folder.rglob(f"{end}.pcapng")), run


def without(capture: Path, port: int) -> Path:
    """The same capture without the packets of a port."""
    raw, kept, at = capture.read_bytes(), bytearray(), 0
    while at < len(raw):
        kind, length = struct.unpack_from("<II", raw, at)
        # Behind an IPv4 header without options.
        if kind != PACKET_BLOCK or port not in struct.unpack_from(
            ">HH", raw, at + BEFORE_PACKET_BYTES + 20
        ):
            kept += raw[at : at + length]
        at += length
    one = capture.with_name("one.pcapng")
    one.write_bytes(kept)
    return one


@pytest.mark.parametrize("end", ["client", "server"])
def test_a_flow_that_shares_the_queue_counts_in_the_rate_and_in_the_buffer(
    tmp_path: Path, end: str
) -> None:
    capture, run = simulated(tmp_path, SCENARIO.format(loss=0, congestion="cubic") + RIVAL, end)
    fitted = unbloat.fit(capture, connection="0→")
    assert fitted.sharing.found
    assert [one.congestion for one in fitted.sharing.beside] == ["cubic"]
    assert fitted.sharing.beside[0].begin_s == pytest.approx(2, abs=0.3)
    assert fitted.mean_bps[1] == pytest.approx(RATE_BPS, rel=0.01)
    assert fitted.buffer is not None
    assert fitted.buffer.bytes == pytest.approx(BUFFER_BYTES, rel=0.05)
    # The control: the flow alone had much less.
    assert (Figures(run).goodput_bps("upload") or 0.0) < 0.8 * RATE_BPS


def test_what_a_cure_gets_beside_it_is_predicted(tmp_path: Path) -> None:
    text = SCENARIO.format(loss=0, congestion="cubic") + RIVAL
    capture, was = simulated(tmp_path, text)
    found = unbloat.what_if(capture, connection="0→", cures=("bbr",), draws=8)
    cured = unbloat.simulate(tmp_path / "link.toml", set=[("flow.upload.congestion", "bbr")])
    assert isinstance(cured, unbloat.Run)
    true_bps, before_bps = (Figures(run).goodput_bps("upload") or 0.0 for run in (cured, was))
    [bbr] = found.cures
    assert bbr.goodput_bps[1] == pytest.approx(true_bps, rel=0.2)
    # The control: alone it would fill the link.
    assert max(true_bps, before_bps) < 0.8 * RATE_BPS


def test_beside_flows_that_the_capture_does_not_have_the_answer_is_withheld(tmp_path: Path) -> None:
    capture, run = simulated(tmp_path, SCENARIO.format(loss=0, congestion="newreno") + RIVAL)
    port = run.connections.column("a_port").to_pylist()[1]
    alone = without(capture, port)
    fitted = unbloat.fit(alone)
    assert fitted.sharing.found
    assert not fitted.sharing.beside
    with pytest.raises(LinkUnknown, match="flows that the capture does not have"):
        unbloat.what_if(alone, cures=("bbr",), draws=8)
    found = unbloat.what_if(alone, cures=("bbr",), draws=8, anyway=True)
    assert any("pause" in line for line in found.differs)


@pytest.mark.parametrize("congestion", ["cubic", "newreno"])
def test_a_flow_alone_shares_nothing_and_loses_nothing_at_random(
    tmp_path: Path, congestion: str
) -> None:
    capture, _ = simulated(tmp_path, SCENARIO.format(loss=0, congestion=congestion))
    fitted = unbloat.fit(capture)
    assert not fitted.sharing.found
    assert fitted.random_loss is None


def test_random_loss_is_found_and_replayed(tmp_path: Path) -> None:
    text = SCENARIO.format(loss=LOSS, congestion="cubic")
    capture, run = simulated(tmp_path, text)
    fitted = unbloat.fit(capture)
    assert fitted.random_loss is not None
    assert fitted.random_loss.rate == pytest.approx(LOSS, rel=0.5)
    found = unbloat.what_if(capture, cures=("bbr",), draws=8)
    seen: Outcome = found.seen
    assert seen.goodput_bps == pytest.approx(Figures(run).goodput_bps("upload"), rel=0.02)
    # BBR does not answer losses: it gets what CUBIC leaves.
    [bbr] = found.cures
    assert bbr.goodput_bps[1] > 1.02 * found.as_it_was.goodput_bps[1]
