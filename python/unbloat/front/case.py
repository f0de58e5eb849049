"""One run of the front: a control on a link, simulated.

signal: a link with its rates, a control, a seed · model: a minute of one bulk transfer over the link, 50 ms of base RTT, a
ping every 100 ms, the way back at 20 Mbit/s · action: goodput, and p95 of the ping and of the transfer's own queue
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import unbloat.run.run
from unbloat.errors import UnbloatError
from unbloat.front.controls import BUFFER, Control
from unbloat.front.links import DURATION_S, Track
from unbloat.run.figures import Figures, statistics
from unbloat.run.tables import Row
from unbloat.scenario.job import run_job
from unbloat.scenario.simulate import RunOptions, finished, prepared

BASE_MS = 50.0
"""Round trip of the empty path, without the time on the link."""
LAST_PING_S = 58.0
"""Later pings do not count. An earlier one that is still on its way at the end counts as long as it has waited, two seconds at
least."""
METHOD = 2
"""Raised when figures are measured in another way, so that stored ones no longer count."""
BACK_BPS = 20e6
"""Of the other direction: no control finds its limit there."""
PING_MS, PING_BYTES = 100, 84


@dataclass(frozen=True)
class Run:
    """What one run gave."""

    goodput_bps: float
    ping_p95_ms: float
    flow_p95_ms: float
    """Queueing delay of the transfer's own packets."""


def scenario(track: Track, control: Control) -> str:
    """The scenario file."""
    link, way = track.link, track.link.way
    sender, receiver = ("server", "client") if way == "down" else ("client", "server")
    if link.recorded:
        rate = 'trace = "link"'
    else:
        rate = f'rate = {{ profile = {list(link.profile)}, unit = "Mbit/s", slot = "{link.slot_s:g} s" }}'
    at_sender = f"window = {control.window}" if control.window and way == "up" else ""
    at_receiver = (
        f"[flow.receiver]\nwindow = {control.window}" if control.window and way == "down" else ""
    )
    text = f"""name = "front"
duration = "{DURATION_S} s"
[[node]]
name = "{sender}"
{at_sender}
[[node]]
name = "{receiver}"
[[link]]
name = "bottleneck"
from = "{sender}"
to = "{receiver}"
{rate}
delay = "{BASE_MS / 2:g} ms"
queue = {control.queue}
[[link]]
name = "back"
from = "{receiver}"
to = "{sender}"
rate = "{BACK_BPS:.0f} bit/s"
delay = "{BASE_MS / 2:g} ms"
queue = {{ kind = "droptail", limit = "{BUFFER}" }}
"""
    if control.gate:
        # The rates that a person would set for the line, where the gate asks for them.
        rates = {
            "min": f"{max(track.mean_bps / 10, 1000):.0f}",
            "mean": f"{track.mean_bps:.0f}",
            "max": f"{2 * track.mean_bps:.0f}",
        }
        gate = control.gate.format(**rates) if "{mean}" in control.gate else control.gate
        text += f"""[[device]]
node = "{sender}"
link = "bottleneck"
qdisc = {control.qdisc}
gate = {gate}
firmware = {{ buffer = "{BUFFER}", report_every = "5 ms", report_delay = "100 ms" }}
"""
    return f"""{text}[[flow]]
name = "transfer"
from = "{sender}"
to = "{receiver}"
congestion = {control.congestion}
tsq = false
{at_receiver}
[[probe]]
name = "ping"
from = "client"
to = "server"
every = "{PING_MS} ms"
bytes = "{PING_BYTES} B"
"""


def settings(track: Track, control: Control) -> str:
    """Names what is simulated, so that a stored run of other settings does not count."""
    return digest(scenario(track, control), track.text)


def digest(*texts: str) -> str:
    """Of what is simulated, and of how it is measured."""
    return hashlib.sha256(f"{METHOD}{''.join(texts)}".encode()).hexdigest()[:10]


def waits_ms(probes: Sequence[Row], last_s: float, end_s: float) -> list[float]:
    """How long each ping waited, of those sent before `last_s`.

    A lost one counts until the answer to a later one: a sender of pings waits so long; else a queue that drops what
    waited for an outage would seem to have none.
    """
    answered, waits = end_s, []
    for row in sorted(probes, key=lambda row: row["t_s"], reverse=True):
        if row["rtt_ms"] is not None:
            answered = min(answered, row["t_s"] + row["rtt_ms"] / 1000)
            own = row["t_s"] + row["rtt_ms"] / 1000
        else:
            own = answered if row["lost"] else end_s
        if row["t_s"] < last_s:
            waits.append((own - row["t_s"]) * 1000)
    return waits


def simulated(
    text: str, *, seed: int = 1, traces: dict[str, str] | None = None
) -> unbloat.run.run.Run:
    """The only run of a scenario file; `traces`: the text of each trace that it names."""
    work = prepared(text, RunOptions(seed=seed, events=False))
    outcome = run_job(replace(work.jobs[0], traces=traces or {}))
    if isinstance(outcome, Exception):
        raise outcome
    return finished(work.jobs[0], outcome, work.source)


def simulate_case(track: Track, control: Control, seed: int) -> Run:
    """One run."""
    traces = {"link": track.text} if track.link.recorded else {}
    return read(simulated(scenario(track, control), seed=seed, traces=traces), track, control)


def read(run: unbloat.run.run.Run, track: Track, control: Control) -> Run:
    """The figures of a run, simulated or of the lab."""
    figures = Figures(run)
    ping = statistics(waits_ms(run.probes.to_pylist(), LAST_PING_S, DURATION_S))
    queue = figures.transfer_queue_ms("transfer")
    goodput = figures.goodput_bps("transfer")
    if ping is None or goodput is None:
        raise UnbloatError(f"{track.link.name}, {control.label}: no packet arrived")
    flow = math.nan if queue is None else queue.p95
    return Run(goodput, ping.p95, flow)
