"""A fitted link under a cure: the scenario of one draw, and what it gives in the simulator.

signal: one of the draws of a `LinkFit`, a cure · model: the transfer from its first packet on, in bulk or object by object with the pauses
of its application, over a link with the rate of the draw slot by slot, and the delay and queue that were fitted; on the way back ACKs are
held as the capture shows it · action: goodput, and the time that the transfer's own packets wait
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unbloat.errors import ScenarioError, TraceMissing, UnbloatError
from unbloat.link.model import Beside, Hold, LinkFit
from unbloat.prediction.cures import Cure, Way, shaped_kbps
from unbloat.prediction.draws import DROPTAIL, EARLY, Draw, Object
from unbloat.run.figures import Figures
from unbloat.scenario.run_jobs import run_all
from unbloat.scenario.simulate import RunOptions, finished, prepared

# Holds begin later where ACKs were free for so many of their periods at first.
FREE_HOLDS = 3.0
# Each hold leaves a moment in which ACKs come.
MAX_HELD = 0.98
# The buffer of a receiver that is twice as large as its window: Linux, as the simulator has it.
WINDOW = '{{ kind = "autotune", max = "{buffer_bytes} B" }}'
# What the analysis calls them, and the simulator, the commonest first.
OF_RECOGNISED = {"cubic": ("cubic", "cubic-rfc"), "reno": ("newreno",), "bbr": ("bbr",)}
# Where it recognises none.
USUAL = ("cubic",)
# As a scenario has them. Linux's CUBIC leaves slow start at the first sign of a queue, and then grows by 5 % per round trip until the first
# loss. RFC 9438 has HyStart++ there (Windows, Apple).
CONGESTION = {
    "cubic": '{ kind = "cubic", rules = "linux", hystart = "linux" }',
    "cubic-rfc": '"cubic"',
}
# What sends until shortly before the end is not stopped.
STOPPED_S = 1.0
SCENARIO = """\
name = "what-if"
duration = "{duration_ms} ms"
[[node]]
name = "{sender}"
{at_sender}
[[node]]
name = "{receiver}"
[[link]]
name = "slowest"
from = "{sender}"
to = "{receiver}"
rate = {{ profile = [{rates}], unit = "kbit/s", slot = "{slot_us} us" }}
delay = "{way_us} us"
queue = {queue}
{loss}
[[link]]
name = "back"
from = "{receiver}"
to = "{sender}"
rate = "1 Gbit/s"
delay = "{way_us} us"
{hold}
{device}
{change}
[[flow]]
name = "transfer"
from = "{sender}"
to = "{receiver}"
congestion = {congestion}
tsq = false
{at_socket}
{app}
{at_receiver}
{beside}
"""
BESIDE = """\
[[flow]]
name = "beside-{id}"
from = "{sender}"
to = "{receiver}"
congestion = {congestion}
tsq = false
start = "{begin_ms} ms"
{stop}
{at_receiver}
"""
DEVICE = """\
[[device]]
node = "{sender}"
link = "slowest"
qdisc = {qdisc}
gate = {gate}
firmware = {{ buffer = "{first_bytes} B", report_every = "5 ms", report_delay = "100 ms" }}
"""
# Of the gate: in the lab it is the agent's, which has no queue above it.
AGENTS_GATE = """\
[lab]
gate = "agent"
"""
HOLD_CHANGE = """\
[[change]]
at = "{at_ms} ms"
"link.back".{layers}
"""
CHANGE = """\
[[change]]
at = "{at_ms} ms"
"{key}" = "{bytes} B"
"""


@dataclass(frozen=True)
class Outcome:
    """What a transfer got, and what its packets met."""

    goodput_bps: float
    queue_ms_p50: float
    queue_ms_p95: float
    loss_rate: float
    grade: str | None
    near_p95_ms: tuple[float, float] | None = None
    """Of a replay: its quantiles half a per cent of the time below and above p95."""


InLab = Mapping[str, Sequence[Outcome] | str]
"""By the name of a cure: what its runs on kernels gave, or why it has none."""
Case = tuple[Draw, Cure]
Progress = Callable[[int, int], None]


def way_of(fitted: LinkFit) -> Way:
    """Who opened the connection is the client."""
    return "up" if fitted.flow["id"] % 2 == 0 else "down"


def scenario(case: Case, way: Way) -> str:
    """The scenario file."""
    draw, cure = case
    ends = ("client", "server") if way == "up" else ("server", "client")
    rate_bps = math.fsum(draw.rates_bps) / len(draw.rates_bps)
    device = ""
    if cure.gate or cure.shaper:
        device = DEVICE.format(
            sender=ends[0],
            qdisc=cure.shaper.format(rate=shaped_kbps(rate_bps)) if cure.shaper else '"fq_codel"',
            gate=cure.gate or '"none"',
            first_bytes=first_bytes(draw),
        )
        device += AGENTS_GATE if cure.gate else ""
    duration_s = draw.slot_s * len(draw.rates_bps)
    # An agent at the receiver limits all that come from one host.
    at_receiver = f"[flow.receiver]\nwindow = {cure.receiver}" if cure.receiver else ""
    own = at_receiver
    if draw.window_bytes is not None and not cure.receiver:
        own = f"[flow.receiver]\nwindow = {WINDOW.format(buffer_bytes=2 * draw.window_bytes)}"
    return SCENARIO.format(
        duration_ms=max(round(1000 * duration_s), 1),
        sender=ends[0],
        receiver=ends[1],
        rates=", ".join(f"{bps / 1000:.1f}" for bps in draw.rates_bps),
        slot_us=round(1e6 * draw.slot_s),
        way_us=round(500 * draw.rtt_ms),
        queue=cure.queue or queue_of(draw),
        at_socket=socket_lines(draw),
        app=app_line(draw.objects),
        at_sender=f"window = {cure.sender}" if cure.sender else "",
        at_receiver=own,
        device=device,
        change=change_lines(case, ends[0]) + hold_change(draw.hold),
        hold=hold_line(draw.hold),
        congestion=congestion_text(cure.congestion or draw.sort.congestion),
        loss=loss_line(draw.loss_rate, draw.loss_burst),
        beside="".join(beside_lines(one, ends, duration_s, at_receiver) for one in draw.beside),
    )


def beside_lines(one: Beside, ends: tuple[str, str], duration_s: float, at_receiver: str) -> str:
    """Another transfer, as long as the capture has it, by its own congestion control: that of most hosts where it is not recognised."""
    return BESIDE.format(
        id=one.id,
        sender=ends[0],
        receiver=ends[1],
        congestion=congestion_text(OF_RECOGNISED.get(one.congestion or "", USUAL)[0]),
        begin_ms=max(round(1000 * one.begin_s), 0),
        at_receiver=at_receiver,
        stop=f'stop = "{round(1000 * one.end_s)} ms"' if one.end_s < duration_s - STOPPED_S else "",
    )


def congestion_text(name: str) -> str:
    """A sender's congestion control in a scenario."""
    return CONGESTION.get(name, f'"{name}"')


def queue_of(draw: Draw) -> str:
    """Of the slowest link."""
    if draw.sort.queue == DROPTAIL:
        return f'{{ kind = "droptail", limit = "{first_bytes(draw)} B" }}'
    return f"{{ {EARLY[draw.sort.queue]}, ecn = {str(draw.marks).lower()} }}"


def first_bytes(draw: Draw) -> int:
    """Of a buffer that may have had two sizes in time, the first one."""
    return draw.buffer_bytes if draw.before_bytes is None else draw.before_bytes


def change_lines(case: Case, sender: str) -> str:
    """The later size of the buffer, wherever a cure leaves one."""
    draw, cure = case
    if draw.before_bytes is None or cure.queue or draw.sort.queue != DROPTAIL:
        return ""
    key = (
        f"device.{sender}.firmware.buffer"
        if cure.gate or cure.shaper
        else "link.slowest.queue.limit"
    )
    return CHANGE.format(at_ms=round(1000 * draw.changed_s), key=key, bytes=draw.buffer_bytes)


def socket_lines(draw: Draw) -> str:
    """What the capture shows of the sender's socket."""
    lines = ["ecn = true"] if draw.marks else []
    if draw.initial_window is not None:
        lines.append(f"initial_window = {draw.initial_window}")
    if draw.sort.send_buffer_bytes is not None:
        lines.append(f'buffer = "{draw.sort.send_buffer_bytes} B"')
    return "\n".join(lines)


def app_line(objects: Sequence[Object]) -> str:
    """Requests of the receiver, whose answers are the objects. Each is asked for after the pause behind the one before."""
    if not objects:
        return ""
    sizes = ", ".join(f'"{one.bytes} B"' for one in objects)
    pauses = ", ".join(f'"{round(1000 * one.pause_s)} ms"' for one in objects)
    return f'app = {{ kind = "requests", request = "100 B", response = [{sizes}], think = [{pauses}] }}'


def loss_line(rate: float, burst: float | None) -> str:
    """Random loss; in bursts by Gilbert's model, whose bad state loses all."""
    if not rate:
        return ""
    if burst is None:
        return f"loss = {rate:.6f}"
    leave = 1 / burst
    enter = min(leave * rate / max(1 - rate, leave * rate), 1.0)
    return f'layers = [{{ kind = "burst_loss", enter = {enter:.6f}, leave = {leave:.6f} }}]'


def hold_line(hold: Hold | None) -> str:
    """The layer of the way back from the beginning on."""
    return "" if hold is None or begins_later(hold) else layers_of(hold)


def begins_later(hold: Hold) -> bool:
    """Whether ACKs were free for some time at first."""
    return hold.from_ms > FREE_HOLDS * hold.every_ms


def layers_of(hold: Hold) -> str:
    """Of the way back."""
    every_us = round(1000 * hold.every_ms)
    length_us = round(1000 * min(hold.length_ms, MAX_HELD * hold.every_ms))
    return f'layers = [{{ kind = "outage", every = "{every_us} us", length = "{length_us} us" }}]'


def hold_change(hold: Hold | None) -> str:
    """Where ACKs were free at first."""
    if hold is None or not begins_later(hold):
        return ""
    return HOLD_CHANGE.format(at_ms=round(hold.from_ms - hold.length_ms), layers=layers_of(hold))


def replayed(
    cases: Sequence[Case], way: Way, jobs: int | None, progress: Progress | None
) -> list[Outcome]:
    """What each of them gives, in order."""
    works = [
        prepared(scenario(case, way), RunOptions(seed=case[0].seed, events=False)) for case in cases
    ]
    made = [work.jobs[0] for work in works]
    outcomes = []
    for work, job, result in zip(works, made, run_all(made, None, jobs, progress), strict=True):
        if isinstance(result, TraceMissing):
            raise result
        if not isinstance(result, tuple):
            raise UnbloatError(result.reason)
        outcomes.append(outcome_of(Figures(finished(job, result, work.source))))
    return outcomes


def outcome_of(figures: Figures) -> Outcome:
    """Of the only transfer."""
    (flow,) = figures.flows("transfer")
    queue = figures.transfer_queue_ms("transfer")
    if queue is None:
        raise ScenarioError("a replay of the transfer delivered nothing")
    return Outcome(
        flow["goodput_bps"] or 0.0,
        queue.p50,
        queue.p95,
        flow["loss_rate"] or 0.0,
        flow["grade"],
        (flow["queue_ms_p94_5"], flow["queue_ms_p95_5"]),
    )
