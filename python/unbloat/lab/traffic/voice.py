"""Score of a call by the E-model: the simulator's `apps/voip.rs` in Python.

signal: delay and loss of the packets that arrived · model: ITU-T G.107 with its default values and G.711 with packet-loss
concealment (G.113 appendix I: Ie 0, Bpl 25.1): R = 93.2 − Id − Ie,eff; a packet that comes later than the jitter buffer can
wait is lost to it · action: MOS per ten seconds, and for the whole call.
"""

from __future__ import annotations

# Basic rating with all of G.107's defaults: Ro − Is.
_BASE = 93.2
# Robustness of G.711 with concealment against random loss (G.113 appendix I).
_BPL = 25.1
# Time that a score covers; the simulator's.
_WINDOW_S = 10.0
# Delay where nothing arrived; the simulator's.
_SILENCE_S = 1.0


def mos(delay_s: float, loss: float) -> float:
    """MOS of a mouth-to-ear delay and a share of lost packets (G.107 clauses 7.4, 7.5 and annex B)."""
    d = delay_s * 1000
    # Clause 7.4's Idd in Cole and Rosenbluth's simplification for echo-free calls: flat to 177.3 ms.
    delay_impairment = 0.024 * d + (0.11 * (d - 177.3) if d > 177.3 else 0.0)
    percent = loss * 100
    r = _BASE - delay_impairment - 95.0 * percent / (percent + _BPL)
    if r <= 0:
        return 1.0
    if r >= 100:
        return 4.5
    return max(1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6, 1.0)


class Voice:
    """One direction of a call; packets in the order in which they were sent and came."""

    def __init__(self, every_s: float, jitter_buffer_s: float) -> None:
        self._every, self._jitter_buffer = every_s, jitter_buffer_s
        # Smallest delay so far: the jitter buffer counts from there.
        self._base: float | None = None
        self._sent = self._in_time = 0
        self._window_from = 0.0
        self._total = (0, 0)

    def on_sent(self, now_s: float) -> float | None:
        """A packet was sent; the score of a window that is complete."""
        score = None
        if self._sent > 0 and now_s - self._window_from >= _WINDOW_S:
            score = self._score(self._sent, self._in_time)
            self._total = (self._total[0] + self._sent, self._total[1] + self._in_time)
            self._sent = self._in_time = 0
        if self._sent == 0:
            self._window_from = now_s
        self._sent += 1
        return score

    def on_arrived(self, delay_s: float) -> None:
        """A packet arrived after so long."""
        base = delay_s if self._base is None else self._base
        self._base = min(base, delay_s)
        if delay_s <= base + self._jitter_buffer:
            self._in_time += 1

    def _score(self, sent: int, in_time: int) -> float:
        # Mouth to ear: the network, the jitter buffer, and the packet that had to be filled first.
        network = _SILENCE_S if self._base is None else self._base
        # Packets on the way at the end of a window count as in time with the next one: the share stays below 1.
        return mos(
            network + self._jitter_buffer + self._every, 1.0 - min(in_time, sent) / max(sent, 1)
        )

    def total(self) -> float | None:
        """MOS of the whole call; None where nothing was sent."""
        sent, in_time = self._total[0] + self._sent, self._total[1] + self._in_time
        return self._score(sent, in_time) if sent else None


def scores(
    every_s: float, jitter_buffer_s: float, sent_s: list[float], arrived: list[tuple[float, float]]
) -> tuple[list[tuple[float, float]], float | None]:
    """(time, MOS) of each ten seconds, and of the whole: from the times of sending and the (time, delay) of arrivals."""
    call = Voice(every_s, jitter_buffer_s)
    windows = []
    coming = sorted(arrived)
    at = 0
    for sent in sent_s:
        while at < len(coming) and coming[at][0] <= sent:
            call.on_arrived(coming[at][1])
            at += 1
        score = call.on_sent(sent)
        if score is not None:
            windows.append((sent, score))
    for _, delay in coming[at:]:
        call.on_arrived(delay)
    return windows, call.total()
