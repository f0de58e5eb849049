"""What the receiver's ACKs told the sender: all that anybody can know of reordering at the sender's end.

signal: the segments of one connection in the order of sending, and the ACKs that reached the sender, both from the
        relay's log
model:  each segment is held by the receiver once an ACK or a SACK block covers it; it was *missing* once an ACK that
        names everything the receiver holds (its SACK option has room for one more block, RFC 2018 section 4) leaves it
        out, while later data is in. Missing, then held, and not resent in between: it came late. Resent while the
        receiver reported later data and not this, then reported as a duplicate (RFC 2883): both came, the first late.
action: the number of segments that were told to be late, and for each ACK the newest segment that it brings news of

Linux compresses the ACKs of out-of-order data, so that many a hole opens and closes without any ACK that shows it;
and what the receiver refuses (PAWS) it neither acknowledges nor reports. `late` in the log counts these, this does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# 40 bytes of options hold four blocks of 8 bytes, three beside timestamps (RFC 2018 section 3).
ROOM, ROOM_BESIDE_STAMPS = 4, 3


@dataclass
class Segment:
    """A first transmission."""

    n: int  # its number in the log
    start: int
    end: int
    missing: bool = False
    resent: bool = False
    overtaken: bool = False  # resent while later data was known to be held
    reported: bool = False


@dataclass
class Told:
    """One connection."""

    late: int = 0
    highest: int = 0  # end of what is known to be held
    open: list[Segment] = field(default_factory=list)  # not known to be held, in order of sequence
    resent: list[Segment] = field(default_factory=list)

    def sent(self, n: int, start: int, end: int) -> None:
        """A first transmission."""
        self.open.append(Segment(n, start, end))

    def sent_again(self, start: int, end: int) -> None:
        """A retransmission."""
        for segment in self.open:
            if segment.start < end and start < segment.end and not segment.resent:
                segment.resent, segment.overtaken = True, self.highest > segment.end
                self.resent.append(segment)

    def ack(self, edge: int, blocks: list[tuple[int, int]], stamps: bool) -> int | None:
        """An ACK arrived at the sender. Returns the newest segment it tells of, if that was sent once."""
        room = len(blocks) < (ROOM_BESIDE_STAMPS if stamps else ROOM)
        if blocks and (
            blocks[0][1] <= edge
            or (len(blocks) > 1 and blocks[1][0] <= blocks[0][0] and blocks[0][1] <= blocks[1][1])
        ):
            self.twice(*blocks[0])
            blocks = blocks[1:]
        news: list[Segment] = []
        still: list[Segment] = []
        for segment in self.open:
            held = segment.end <= edge or any(
                a <= segment.start and segment.end <= b for a, b in blocks
            )
            (news if held else still).append(segment)
        self.open = still
        self.late += sum(segment.missing and not segment.resent for segment in news)
        self.highest = max([self.highest, edge, *(b for _, b in blocks)])
        if room and blocks:
            for segment in still:
                segment.missing |= segment.end <= self.highest
        return news[-1].n if news and not news[-1].resent else None

    def twice(self, start: int, end: int) -> None:
        """The receiver got these bytes twice."""
        for segment in self.resent:
            if segment.start < end and start < segment.end and not segment.reported:
                segment.reported = True
                self.late += segment.overtaken
