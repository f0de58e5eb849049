"""A fitted link under a cure: the scenario of one draw, and what it gives in the simulator.

signal: one of the draws of a `LinkFit`, a cure · model: one bulk transfer from its first packet on, over a
link with the rate of the draw slot by slot, and the delay and buffer that were fitted; on the way back ACKs are held as the capture
shows it · action: goodput, and the time that the transfer's own packets wait
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from unbloat.errors import ScenarioError, TraceMissing, UnbloatError
from unbloat.link.fit import Beside, Buffer, Hold, LinkFit, RandomLoss
from unbloat.prediction.cures import Cure, Way, shaped_kbps
from unbloat.run.figures import Figures
from unbloat.scenario.run_jobs import run_all
from unbloat.scenario.simulate import RunOptions, finished, prepared

# Where no loss shows the end of the buffer, it may be so much larger than the queue that was seen: those of phones
# hold seconds (`docs/findings/buffer-size.md`).
UNSEEN = 8.0
# So many buffers are tried then, one of each part of that range.
STRATA = 4
# Each hold leaves a moment in which ACKs come.
MAX_HELD = 0.98
# Hosts hold packets up for a millisecond or two, also in the shortest round trip.
HELD_UP_MS = 2.0
# Part of the time in which a receive window that is full is one of the transfer's limits.
MIN_FULL = 0.1
# The buffer of a receiver that is twice as large as its window: Linux, as the simulator has it.
WINDOW = '{{ kind = "autotune", max = "{buffer_bytes} B" }}'
# Of a full packet.
PACKET_BITS = 12_000
# What the analysis calls them, and the simulator.
OF_RECOGNISED = {"cubic": "cubic", "reno": "newreno", "bbr": "bbr"}
USUAL = "cubic"
# What sends until shortly before the end is not stopped.
STOPPED_S = 1.0
# The smallest buffer: two packets, as the simulator needs them.
MIN_BUFFER_BYTES = 3000
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
[[flow]]
name = "transfer"
from = "{sender}"
to = "{receiver}"
congestion = "{congestion}"
tsq = false
{at_receiver}
{beside}
"""
BESIDE = """\
[[flow]]
name = "beside-{id}"
from = "{sender}"
to = "{receiver}"
congestion = "{congestion}"
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
firmware = {{ buffer = "{buffer_bytes} B", report_every = "5 ms", report_delay = "100 ms" }}
"""


@dataclass(frozen=True)
class Draw:
    """One of the links that explain the capture."""

    rates_bps: Sequence[float]
    slot_s: float
    rtt_ms: float
    """Of a packet that needs no time on the link."""
    hold: Hold | None
    buffer_bytes: int
    congestion: str
    """Of the sender, where no cure changes it."""
    seed: int
    beside: Sequence[Beside] = ()
    """Others that share the queue."""
    loss_rate: float = 0.0
    """Of packets that are lost at random."""
    window_bytes: int | None = None
    """The largest that the receiver advertises, where that held the sender back."""


@dataclass(frozen=True)
class Outcome:
    """What a transfer got, and what its packets met."""

    goodput_bps: float
    queue_ms_p50: float
    queue_ms_p95: float
    loss_rate: float
    grade: str | None


InLab = Mapping[str, Sequence[Outcome] | str]
"""By the name of a cure: what its runs on kernels gave, or why it has none."""
Case = tuple[Draw, Cure]
Progress = Callable[[int, int], None]


def way_of(fitted: LinkFit) -> Way:
    """Who opened the connection is the client."""
    return "up" if fitted.flow["id"] % 2 == 0 else "down"


def drawn(fitted: LinkFit, senders: Sequence[str], seed: int, tries: int = 1) -> list[Draw]:
    """Each draw of the rate with each sender, and with so many buffers from its interval, or several where its end was not seen. The first of
    several tries has the round trip as it was measured, others what hosts may have held up less."""
    random = Random(seed)
    rtt_ms = base_rtt_ms(fitted)
    links = []
    for at, rates in enumerate(fitted.draws):
        # Whether a cure that keeps the queue short meets holds is not known, where only a long queue has them.
        held = fitted.hold is not None and not (fitted.hold.in_long_queue and at % 2)
        loss_rate = drawn_loss(fitted.random_loss, random)
        for sender in senders:
            for number in range(tries):
                held_up_ms = min(random.uniform(0, HELD_UP_MS), rtt_ms) if number else 0.0
                links += [
                    Draw(
                        *(
                            rates,
                            fitted.slot_s,
                            rtt_ms - held_up_ms,
                            fitted.hold if held else None,
                            size,
                            sender,
                        ),
                        seed=(seed + at) + len(fitted.draws) * number,
                        beside=fitted.sharing.beside,
                        loss_rate=loss_rate,
                        window_bytes=window_of(fitted),
                    )
                    for size in buffers(fitted.buffer, random)
                ]
    return links


def window_of(fitted: LinkFit) -> int | None:
    """The receive window, where it was full for a part of the time that counts."""
    flow = fitted.flow
    full = (flow["share_receive_window"] or 0.0) >= MIN_FULL
    return flow["rwnd_bytes_max"] if full else None


def drawn_loss(loss: RandomLoss | None, random: Random) -> float:
    """From its distribution, given what was counted (Jeffreys' prior)."""
    if loss is None:
        return 0.0
    return random.betavariate(loss.losses + 0.5, loss.packets - loss.losses + 0.5)


def base_rtt_ms(fitted: LinkFit) -> float:
    """The smallest round trip, without the time that a packet takes on the link: the replay's link adds it."""
    of_packet_ms = 1000 * PACKET_BITS / fitted.mean_bps[1]
    known = [
        *([] if fitted.rtt_ms is None else [fitted.rtt_ms - of_packet_ms]),
        # A SYN is short.
        *([] if fitted.flow["initial_rtt_ms"] is None else [fitted.flow["initial_rtt_ms"]]),
    ]
    return max(min(known, default=0.0), 0.0)


def longest_queue_ms(fitted: LinkFit) -> float:
    """The longest that was seen."""
    return fitted.flow["data_queue_ms_max"] or fitted.flow["queue_ms_max"] or 0.0


def buffers(buffer: Buffer | None, random: Random) -> list[int]:
    """Bytes. Where only a lower bound is known, each order of magnitude above it is as likely, up to `UNSEEN`."""
    if buffer is not None and buffer.bytes is not None and buffer.high_bytes is not None:
        return [size(buffer.low_bytes, buffer.high_bytes, random.random())]
    low = MIN_BUFFER_BYTES if buffer is None else buffer.low_bytes
    return [size(low, UNSEEN * low, (at + random.random()) / STRATA) for at in range(STRATA)]


def size(low: float, high: float, share: float) -> int:
    """Between them by their logarithms."""
    return max(round(low * math.pow(high / low, share)), MIN_BUFFER_BYTES)


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
            buffer_bytes=draw.buffer_bytes,
        )
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
        queue=cure.queue or f'{{ kind = "droptail", limit = "{draw.buffer_bytes} B" }}',
        at_sender=f"window = {cure.sender}" if cure.sender else "",
        at_receiver=own,
        device=device,
        hold=hold_line(draw.hold),
        congestion=cure.congestion or draw.congestion,
        loss=f"loss = {draw.loss_rate:.6f}" if draw.loss_rate else "",
        beside="".join(beside_lines(one, ends, duration_s, at_receiver) for one in draw.beside),
    )


def beside_lines(one: Beside, ends: tuple[str, str], duration_s: float, at_receiver: str) -> str:
    """Another transfer, as long as the capture has it, by its own congestion control: that of most hosts where it is not recognised."""
    return BESIDE.format(
        id=one.id,
        sender=ends[0],
        receiver=ends[1],
        congestion=OF_RECOGNISED.get(one.congestion or "", USUAL),
        begin_ms=max(round(1000 * one.begin_s), 0),
        at_receiver=at_receiver,
        stop=f'stop = "{round(1000 * one.end_s)} ms"' if one.end_s < duration_s - STOPPED_S else "",
    )


def hold_line(hold: Hold | None) -> str:
    """The layer of the way back."""
    if hold is None:
        return ""
    every_us = round(1000 * hold.every_ms)
    length_us = round(1000 * min(hold.length_ms, MAX_HELD * hold.every_ms))
    return f'layers = [{{ kind = "outage", every = "{every_us} us", length = "{length_us} us" }}]'


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
        flow["goodput_bps"] or 0.0, queue.p50, queue.p95, flow["loss_rate"] or 0.0, flow["grade"]
    )
