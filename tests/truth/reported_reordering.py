"""Reordering and spurious retransmissions as the receiver's ACKs report them: all that can be known of them at the sender's end.

signal: the segments of one connection in the order of sending, and the ACKs that reached the sender, both from the
        relay's log
model:  the receiver has a segment once an ACK or a SACK block covers it. The segment was *missing*
        once a complete ACK left it out while later data had arrived; an ACK is complete when its
        SACK option has space for one more block (RFC 2018 section 4). Missing, then acknowledged,
        and not retransmitted in between: it came late. Retransmitted while the receiver reported
        later data and not this, then shown to have come anyway: every copy came, the first one
        late. Duplicate reports (RFC 2883) show it, as many as there were retransmissions; fewer
        leave open which copy was lost. So does the first ACK
        that begins with the segment, if it echoes a timestamp older than the first
        retransmission (RFC 3522); then none of its retransmissions was needed.
action: the numbers of segments reported late and of retransmissions shown to be spurious

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

    start: int
    end: int
    missing: bool = False
    retransmitted: bool = False
    overtaken: bool = False  # retransmitted while the receiver was known to have later data
    reported: bool = False
    times: int = 0  # it was retransmitted
    first_tsval: int = 0  # of its first retransmission
    twice: int = 0  # reported as a duplicate
    spurious: int = 0  # of its retransmissions, those shown to be


@dataclass
class ReportedReordering:
    """Of one connection."""

    late: int = 0
    spurious: int = 0
    edge: int = 0  # of the last ACK
    highest: int = 0  # end of what the receiver is known to have
    # not known to have arrived, in order of sequence
    open: list[Segment] = field(default_factory=list)
    retransmitted: list[Segment] = field(default_factory=list)

    def sent(self, start: int, end: int) -> None:
        """A first transmission."""
        self.open.append(Segment(start, end))

    def sent_again(self, start: int, end: int, tsval: int) -> None:
        """A retransmission."""
        for segment in self.open:
            if segment.start < end and start < segment.end:
                segment.times += 1
                if not segment.retransmitted:
                    segment.retransmitted, segment.overtaken = True, self.highest > segment.end
                    segment.first_tsval = tsval
                    self.retransmitted.append(segment)

    def ack(self, edge: int, blocks: list[tuple[int, int]], echo: int | None) -> None:
        """An ACK arrived at the sender, with the timestamp that it echoes."""
        complete = len(blocks) < (MAX_BLOCKS if echo is None else MAX_BLOCKS_BESIDE_STAMPS)
        if echo is not None:
            for segment in self.retransmitted:
                original = 0 < (segment.first_tsval - echo) % 2**32 < 2**31
                if segment.start == self.edge and segment.end <= edge and original:
                    self.show(segment, segment.times)
        self.edge = max(self.edge, edge)
        if blocks and (
            blocks[0][1] <= edge
            or (len(blocks) > 1 and blocks[1][0] <= blocks[0][0] and blocks[0][1] <= blocks[1][1])
        ):
            self.twice(*blocks[0])
            blocks = blocks[1:]
        came: list[Segment] = []
        still: list[Segment] = []
        for segment in self.open:
            arrived = segment.end <= edge or any(
                a <= segment.start and segment.end <= b for a, b in blocks
            )
            (came if arrived else still).append(segment)
        self.open = still
        self.late += sum(segment.missing and not segment.retransmitted for segment in came)
        self.highest = max([self.highest, edge, *(b for _, b in blocks)])
        if complete and blocks:
            for segment in still:
                segment.missing |= segment.end <= self.highest

    def twice(self, start: int, end: int) -> None:
        """The receiver got these bytes twice."""
        for segment in self.retransmitted:
            if segment.start < end and start < segment.end and segment.twice < segment.times:
                segment.twice += 1
                self.show(segment, segment.twice)

    def show(self, segment: Segment, spurious: int) -> None:
        """So many retransmissions of a segment were spurious."""
        self.spurious += max(spurious - segment.spurious, 0)
        segment.spurious = max(spurious, segment.spurious)
        if not segment.reported and segment.spurious == segment.times:
            segment.reported = True
            self.late += segment.overtaken
