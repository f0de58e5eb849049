"""Score of a call: delay and loss of its packets, counted as in the simulator's `apps/voip.rs`, in the simulator's E-model.

A packet that comes later than the jitter buffer can wait is lost to it. MOS per ten seconds, and for the whole call.
"""

from __future__ import annotations

from unbloat import _native as native

# Time that a score covers; the simulator's.
_WINDOW_S = 10.0
# Delay where nothing arrived; the simulator's.
_SILENCE_S = 1.0


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
        delay_s = network + self._jitter_buffer + self._every
        return native.mos(delay_s * 1000, 1.0 - min(in_time, sent) / max(sent, 1))

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
