"""Reordering as the receiver's ACKs report it: all that can be known of it at the sender's end.

signal: the segments of one connection in the order of sending, and the ACKs that reached the sender, both from the
        relay's log
model:  the receiver has a segment once an ACK or a SACK block covers it. The segment was *missing*
        once a complete ACK left it out while later data had arrived; an ACK is complete when its
        SACK option has space for one more block (RFC 2018 section 4). Missing, then acknowledged,
        and not retransmitted in between: it came late. Retransmitted while the receiver reported
        later data and not this, then reported as a duplicate (RFC 2883): both copies came, the
        first one late.
action: the number of segments reported late, and for each ACK the newest segment that it
        acknowledges

Linux compresses the ACKs of out-of-order data, so that many a hole opens and closes without any ACK that shows it;
and what the receiver refuses (PAWS) it neither acknowledges nor reports. `late` in the log counts these, this does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# 40 bytes of options hold four blocks of 8 bytes, three beside timestamps (RFC 2018 section 3).
MAX_BLOCKS, MAX_BLOCKS_BESIDE_STAMPS = 4, 3


@dataclass
class Segment:
    """A first transmission."""

    n: int  # its number in the log
    start: int
    end: int
    missing: bool = False
    retransmitted: bool = False
    overtaken: bool = False  # retransmitted while the receiver was known to have later data
    reported: bool = False


@dataclass
class ReportedReordering:
    """Of one connection."""

    late: int = 0
    highest: int = 0  # end of what the receiver is known to have
    # not known to have arrived, in order of sequence
    open: list[Segment] = field(default_factory=list)
    retransmitted: list[Segment] = field(default_factory=list)

    def sent(self, n: int, start: int, end: int) -> None:
        """A first transmission."""
        self.open.append(Segment(n, start, end))

    def sent_again(self, start: int, end: int) -> None:
        """A retransmission."""
        for segment in self.open:
            if segment.start < end and start < segment.end and not segment.retransmitted:
                segment.retransmitted, segment.overtaken = True, self.highest > segment.end
                self.retransmitted.append(segment)

    def ack(self, edge: int, blocks: list[tuple[int, int]], stamps: bool) -> int | None:
        """An ACK arrived at the sender. Returns the newest segment that it acknowledges, if that
        was sent once."""
        complete = len(blocks) < (MAX_BLOCKS_BESIDE_STAMPS if stamps else MAX_BLOCKS)
        if blocks and (
            blocks[0][1] <= edge
            or (len(blocks) > 1 and blocks[1][0] <= blocks[0][0] and blocks[0][1] <= blocks[1][1])
        ):
            self.twice(*blocks[0])
            blocks = blocks[1:]
        news: list[Segment] = []
        still: list[Segment] = []
        for segment in self.open:
            arrived = segment.end <= edge or any(
                a <= segment.start and segment.end <= b for a, b in blocks
            )
            (news if arrived else still).append(segment)
        self.open = still
        self.late += sum(segment.missing and not segment.retransmitted for segment in news)
        self.highest = max([self.highest, edge, *(b for _, b in blocks)])
        if complete and blocks:
            for segment in still:
                segment.missing |= segment.end <= self.highest
        return news[-1].n if news and not news[-1].retransmitted else None

    def twice(self, start: int, end: int) -> None:
        """The receiver got these bytes twice."""
        for segment in self.retransmitted:
            if segment.start < end and start < segment.end and not segment.reported:
                segment.reported = True
                self.late += segment.overtaken
