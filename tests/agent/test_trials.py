"""Trials: a cure that costs goodput is withdrawn, and said so; one that costs nothing stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uplink
from daemon import phone, reports, within
from download import Agent, Download, scenario
from measured import Figures, judged

from unbloat.lab.instruments import Ping
from unbloat.lab.testbed import end, quantile

pytestmark = pytest.mark.usefixtures("machine")
TRIED = ("trial.enabled=true", "trial.every=2 s", "trial.span=1.5 s")


MORE_MS, FELT_S = 50.0, 2.0
"""What a trial may add to the RTT, and for how long."""
RARE = ("trial.enabled=true", "trial.every=8 s")
"""The first trial comes when a deep queue of the slow start has drained."""


def felt(ping: Ping, lifted_at: float, smooth: int = 1) -> tuple[float, float, float]:
    """RTT before a trial (median of 3 s), and during it: the most above that, ms, and how long more
    than two fifths of what is permitted was added, s; of medians of so many answers."""
    before = quantile([ms for at, ms in ping.rtts if -3 < at - lifted_at < 0], 0.5)
    during = [ms - before for at, ms in ping.rtts if 0 <= at - lifted_at < 12]
    if smooth > 1:
        starts = range(len(during) - smooth + 1)
        during = [quantile(during[at : at + smooth], 0.5) for at in starts]
    return before, max(during), sum(more > MORE_MS * 2 / 5 for more in during) / 10


def felt_of_a_trial(agent: Any, ping: Callable[[], Ping], smooth: int = 1) -> Figures:
    """Waits for the first trial of a transfer that runs, and its verdict; what a ping felt of it."""
    pinging = ping()
    within(40, lambda: "are lifted" in agent.log() or "is lifted" in agent.log())
    lifted_at = time.time()
    within(20, lambda: "cost nothing" in agent.log())
    # As long as any trial and its queue took before they were bounded.
    time.sleep(max(0.0, lifted_at + 14 - time.time()))
    before, more, seconds = felt(pinging.stop(), lifted_at - 0.2, smooth)
    # The queue drains in one round trip.
    return {"more_ms": more, "felt_s": seconds - before / 1e3}


@pytest.mark.measured
def test_a_trial_is_hardly_felt(folders: Iterator[Path]) -> None:
    """One run of uploads had 2.4 s, sixteen others 1.1 to 1.7 s: one alone says too little."""

    def download() -> Figures:
        with Download(next(folders)) as testbed, Agent(testbed, *RARE) as agent:
            agent.serve()
            testbed.iperf_server()
            transfer = testbed.download(60)
            found = felt_of_a_trial(agent, lambda: testbed.ping(0))
            end(transfer)
        return found

    def upload(cure: str) -> Figures:
        folder = next(folders)
        settings = (*RARE, f"uplink.mode={cure}")
        with (
            phone(folder, uplink.scenario(), *settings) as (testbed, agent),
            reports(testbed, folder) if cure == "gate" else nullcontext(),
        ):
            agent.serve()
            transfer = testbed.iperf("phone", 60, "-C", "cubic")
            # Under the gate single pings swing by 25 ms with and without a trial.
            found = felt_of_a_trial(agent, testbed.ping, smooth=5 if cure == "gate" else 1)
            transfer.process.kill()
        return found

    plays: dict[str, Callable[[], Figures]] = {
        "download": download,
        "upload, windows": partial(upload, "acks"),
        "upload, gate": partial(upload, "gate"),
    }
    judged(plays, {"more_ms": ("<=", MORE_MS), "felt_s": ("<=", FELT_S)})


def trial(status: dict[str, Any], cure: str) -> dict[str, Any]:
    """How the trial of a cure stands, where there is one flow."""
    (one,) = (one for one in status["trials"] if one["cure"] == cure)
    found: dict[str, Any] = one
    return found


@pytest.mark.alone
def test_windows_that_are_too_small_for_downloads_are_withdrawn_and_the_right_ones_are_not(
    tmp_path: Path,
) -> None:
    """20 Mbit/s over 60 ms are 150 KB: 64 KB carry not half of it, three round trips all."""
    with (
        Download(tmp_path, scenario(down="20 Mbit/s")) as testbed,
        Agent(testbed, *TRIED) as agent,
    ):
        agent.serve()
        testbed.iperf_server()
        download = testbed.download(60)
        within(15, lambda: "cost nothing" in agent.log())
        found = trial(agent.status(), "receive")
        assert found["state"] == "resting"
        assert found["with_bps"] == pytest.approx(19e6, rel=0.1)
        assert found["without_bps"] == pytest.approx(19e6, rel=0.1)
        agent.set("receive.largest=65536 B")
        within(30, lambda: "are withdrawn, since they cost goodput" in agent.log())
        assert agent.log().count("are withdrawn") == 1
        status = agent.status()
        found = trial(status, "receive")
        assert found["state"] == "withdrawn"
        # By as much as the sender's cwnd has grown within the trial: 12.5 Mbit/s for 8.5 in a slow case.
        assert found["without_bps"] > 1.2 * found["with_bps"], found
        assert "! withdrawn: the cure of downloads: " in agent.do("status")
        assert "a larger receive.lambda costs less" in agent.log()
        within(3, lambda: not any(flow["applied"] for flow in agent.status()["flows"]))
        end(download)


def test_windows_of_an_upload_whose_path_became_longer_are_withdrawn(tmp_path: Path) -> None:
    """A longer path looks like a queue: windows for 60 ms carry an eighth of it over 500."""
    longer = '[[change]]\nat = "8 s"\n"link.up.delay" = "470 ms"\n'
    with phone(tmp_path, uplink.scenario(more=longer), *TRIED, "uplink.driver=false") as (
        testbed,
        agent,
    ):
        agent.serve()
        transfer = testbed.iperf("phone", 60, "-C", "cubic")
        # The first trial mostly finds no regression; the path becomes longer during it.
        within(40, lambda: "are withdrawn, since they cost goodput" in agent.log())
        found = trial(agent.status(), "acks")
        assert (found["remote"], found["state"]) == (uplink.SERVER, "withdrawn")
        # The agent's own bound (trial.gain): windows grow from round to round, of half a second each.
        assert found["without_bps"] > 1.05 * found["with_bps"], found
        assert f"! withdrawn: the cure of the flow with {uplink.SERVER}:" in agent.do("status")
        transfer.process.kill()
