"""The log of a modem that the emulator played: from its decisions, in the framing of DIAG.

The decisions say when each packet entered and left the firmware, and what the modem reported as granted and as padding
since its report before (`crates/emu/src/log.rs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import diag_log

# Fields behind the time of each record; that of a start has one byte more, as has that of a loss.
FIELDS = {0: 4, 1: 2, 2: 1, 3: 1, 4: 4, 5: 2, 6: 0, 7: 1}
BYTE_BEHIND = (1, 2)
ARRIVED, STARTED, PASSED, REPORTED = 0, 1, 3, 4


@dataclass
class Modem:
    """What the emulated modem did, by millisecond of the scenario."""

    entered: Counter[int] = field(default_factory=Counter)
    left: Counter[int] = field(default_factory=Counter)
    granted: Counter[int] = field(default_factory=Counter)
    padding: Counter[int] = field(default_factory=Counter)
    end_ms: int = 0

    def held(self) -> list[int]:
        """Bytes in the firmware at the end of each millisecond."""
        bytes_ = 0
        result = []
        for ms in range(self.end_ms + 1):
            bytes_ += self.entered[ms] - self.left[ms]
            result.append(bytes_)
        return result

    def log(self, first_ms: int) -> bytes:
        """As a log whose clock is `first_ms` at the begin of the scenario."""
        held = self.held()
        # A report at the end of a millisecond is about the block before it.
        return diag_log.log(
            [
                diag_log.Tti(
                    first_ms + ms + 1, held[ms], self.granted[ms + 1], self.padding[ms + 1]
                )
                for ms in range(self.end_ms)
            ]
        )


def records(data: bytes) -> Iterator[tuple[int, int, list[int]]]:
    """Tag, time in ns and fields of each decision."""
    assert data[:4] == b"UBDL"
    place, now = 8, 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(data):
        tag = data[place]
        place += 1
        now += number()
        yield tag, now, [number() for _ in range(FIELDS[tag])]
        place += tag in BYTE_BEHIND


def played(decisions: Path) -> Modem:
    """What the modem of a link did."""
    modem = Modem()
    sizes: list[int] = []
    for tag, now_ns, fields in records(decisions.read_bytes()):
        ms = now_ns // 1_000_000
        modem.end_ms = ms
        if tag == ARRIVED:
            sizes.append(fields[0])
        elif tag == PASSED:
            modem.entered[ms] += sizes[-fields[0]]
        elif tag == STARTED:
            modem.left[ms] += sizes[-fields[0]]
        elif tag == REPORTED:
            at_ms = round((now_ns - fields[0]) / 1_000_000)
            modem.granted[at_ms] += fields[2]
            modem.padding[at_ms] += fields[3]
    return modem
