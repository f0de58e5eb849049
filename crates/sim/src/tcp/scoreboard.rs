//! What a sender knows of each segment in flight.
//!
//! signal: segments sent, cumulative ACKs, SACK blocks · model: one [`Segment`] per transmission
//! unit, never split, because a simulated receiver acknowledges whole segments · action: counters
//! of what is in flight (RFC 6675's pipe as Linux counts it: sent − SACKed − lost + retransmitted), and
//! RACK's order of sending.

use std::collections::VecDeque;

use units::Instant;

use crate::ranges::Ranges;

/// A segment in flight.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub seq: u64,
    /// Bytes of sequence space.
    pub len: u32,
    /// Number of transmissions.
    pub sends: u32,
    /// Reported as delivered by SACK.
    pub sacked: bool,
    /// Whether it is marked as lost.
    pub lost: bool,
    /// Its newest copy is a retransmission in flight.
    pub retransmitted: bool,
    /// The last of the stream.
    pub fin: bool,
    /// The sender lacked data when it was sent.
    pub app_limited: bool,
    /// Time of the last transmission.
    pub sent: Instant,
    /// When the first of the flight that it belongs to was sent (rate sample).
    pub flight_sent: Instant,
    /// When the sender last learnt of a delivery before it was sent (rate sample).
    pub delivered_at: Instant,
    /// Bytes delivered in total at that time.
    pub delivered: u64,
    /// In flight when sent, itself included.
    pub in_flight: u64,
    /// Total marked lost when sent.
    pub lost_total: u64,
}

impl Segment {
    /// Bytes of data: a FIN takes a number, but carries none.
    #[inline]
    pub fn payload(&self) -> u64 {
        u64::from(self.len) - u64::from(self.fin)
    }

    /// One behind its last byte.
    #[inline]
    pub fn end(&self) -> u64 {
        self.seq + u64::from(self.len)
    }
}

/// All segments in flight.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    segments: VecDeque<Segment>,
    /// Number of the first segment.
    first: u64,
    /// (number, how often sent then) in order of sending; entries whose segment was sent again or
    /// delivered are stale and dropped when they come to the front.
    order: VecDeque<(u64, u32)>,
    pub sacked_ranges: Ranges,
    /// Bytes reported as delivered by SACK.
    pub sacked: u64,
    /// Bytes marked as lost.
    pub lost: u64,
    /// Bytes of retransmissions in flight.
    pub retransmitted: u64,
    /// Bytes lost and not yet retransmitted.
    pub pending: u64,
    /// Number of the first segment that may be pending.
    hint: u64,
    /// Total ever marked lost.
    pub lost_total: u64,
}

impl Scoreboard {
    /// Number of segments in flight.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The oldest segment.
    #[inline]
    pub fn front(&self) -> Option<&Segment> {
        self.segments.front()
    }

    /// The newest segment.
    pub fn back(&self) -> Option<&Segment> {
        self.segments.back()
    }

    /// Number of the newest.
    pub fn last_number(&self) -> Option<u64> {
        (self.first + self.segments.len() as u64)
            .checked_sub(1)
            .filter(|_| !self.segments.is_empty())
    }

    /// A new segment was sent.
    #[inline]
    pub fn push(&mut self, segment: Segment) {
        self.order.push_back((self.first + self.segments.len() as u64, 1));
        self.segments.push_back(segment);
    }

    /// Takes the oldest segment off if it ends at or below `ack`.
    #[inline]
    pub fn pop_acked(&mut self, ack: u64) -> Option<Segment> {
        let front = self.segments.front()?;
        if front.end() > ack {
            return None;
        }
        let segment = self.segments.pop_front()?;
        self.first += 1;
        let len = u64::from(segment.len);
        if segment.sacked {
            self.sacked -= len;
        } else {
            self.leave(&segment);
        }
        Some(segment)
    }

    /// Takes a segment that is delivered out of the counters of loss.
    fn leave(&mut self, segment: &Segment) {
        let len = u64::from(segment.len);
        if segment.lost {
            self.lost -= len;
            if !segment.retransmitted {
                self.pending -= len;
            }
        }
        if segment.retransmitted {
            self.retransmitted -= len;
        }
    }

    /// Marks the segments of a SACK block, calling `new` with each one that was not known to be
    /// there.
    pub fn sack(&mut self, from: u64, to: u64, mut new: impl FnMut(&Segment)) {
        // Blocks grow by a segment or two; only after lost ACKs are there more new parts than fit,
        // and then the whole block is walked.
        let mut fresh = [(0, 0); 8];
        let mut count = 0;
        self.sacked_ranges.insert(from, to, |a, b| {
            if let Some(part) = fresh.get_mut(count) {
                *part = (a, b);
            }
            count += 1;
        });
        match fresh.get(..count) {
            Some(parts) => parts.iter().for_each(|&(a, b)| self.mark_sacked(a, b, &mut new)),
            None => self.mark_sacked(from, to, &mut new),
        }
    }

    fn mark_sacked(&mut self, from: u64, to: u64, new: &mut impl FnMut(&Segment)) {
        let start = self.segments.partition_point(|s| s.end() <= from);
        for i in start..self.segments.len() {
            let segment = self.segments[i];
            if segment.end() > to {
                break;
            }
            if segment.sacked || segment.seq < from {
                continue;
            }
            self.leave(&segment);
            self.sacked += u64::from(segment.len);
            let kept = &mut self.segments[i];
            kept.sacked = true;
            kept.lost = false;
            kept.retransmitted = false;
            new(&segment);
        }
    }

    /// Marks a segment lost; false where it is delivered or already known to be lost and not
    /// retransmitted.
    pub fn mark_lost(&mut self, number: u64) -> bool {
        let Some(i) = number.checked_sub(self.first).and_then(|i| usize::try_from(i).ok()) else {
            return false;
        };
        let Some(segment) = self.segments.get_mut(i) else { return false };
        let len = u64::from(segment.len);
        if segment.sacked || (segment.lost && !segment.retransmitted) {
            return false;
        }
        if segment.retransmitted {
            segment.retransmitted = false;
            self.retransmitted -= len;
        }
        if !segment.lost {
            segment.lost = true;
            self.lost += len;
        }
        self.pending += len;
        self.lost_total += len;
        self.hint = self.hint.min(number);
        true
    }

    /// Marks everything lost that is not SACKed: a timeout.
    pub fn mark_all_lost(&mut self) {
        for number in self.first..self.first + self.segments.len() as u64 {
            self.mark_lost(number);
        }
        self.order.clear();
    }

    /// Takes every mark of loss back that has not led to a retransmission: a timeout that was a mistake.
    pub fn forgive(&mut self) {
        for (i, segment) in self.segments.iter_mut().enumerate() {
            if segment.lost && !segment.retransmitted {
                segment.lost = false;
                let len = u64::from(segment.len);
                self.lost -= len;
                self.pending -= len;
                self.lost_total -= len;
                self.order.push_back((self.first + i as u64, segment.sends));
            }
        }
    }

    /// The first segment that is lost and not retransmitted.
    pub fn next_pending(&mut self) -> Option<(u64, Segment)> {
        if self.pending == 0 {
            self.hint = u64::MAX;
            return None;
        }
        let mut number = self.hint.max(self.first);
        while let Some(segment) = self.segments.get((number - self.first) as usize) {
            if segment.lost && !segment.retransmitted {
                self.hint = number;
                return Some((number, *segment));
            }
            number += 1;
        }
        None
    }

    /// A segment is sent again: `now` counts as its time of sending.
    pub fn retransmit(&mut self, number: u64, stamp: impl FnOnce(&mut Segment)) {
        let Some(i) = number.checked_sub(self.first).and_then(|i| usize::try_from(i).ok()) else {
            return;
        };
        let Some(segment) = self.segments.get_mut(i) else { return };
        let len = u64::from(segment.len);
        if segment.lost && !segment.retransmitted {
            self.pending -= len;
        }
        if !segment.retransmitted {
            segment.retransmitted = true;
            self.retransmitted += len;
        }
        segment.sends += 1;
        stamp(segment);
        let entry = (number, segment.sends);
        self.order.push_back(entry);
    }

    /// The segment that was sent longest ago of those in flight, with its number.
    #[inline]
    pub fn oldest_in_flight(&mut self) -> Option<(u64, Segment)> {
        loop {
            let &(number, sends) = self.order.front()?;
            if let Some(i) = number.checked_sub(self.first)
                && let Some(segment) = self.segments.get(i as usize)
                && segment.sends == sends
                && !segment.sacked
                && (!segment.lost || segment.retransmitted)
            {
                return Some((number, *segment));
            }
            self.order.pop_front();
        }
    }

    /// Drops the front of the order of sending: its segment has been judged.
    pub fn skip_oldest(&mut self) {
        self.order.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(n: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for i in 0..n {
            board.push(Segment {
                seq: i * 100,
                len: 100,
                sends: 1,
                sacked: false,
                lost: false,
                retransmitted: false,
                fin: false,
                app_limited: false,
                sent: Instant(i),
                flight_sent: Instant(0),
                delivered_at: Instant(0),
                delivered: 0,
                in_flight: 0,
                lost_total: 0,
            });
        }
        board
    }

    #[test]
    fn the_counters_agree_with_the_segments_after_any_order_of_events() {
        let mut x = 99_u64;
        for _ in 0..200 {
            let mut b = board(20);
            let mut acked = 0;
            for _ in 0..60 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let i = (x >> 40) % 20;
                match (x >> 33) % 5 {
                    0 => b.sack(i * 100, (i + 1 + (x >> 50) % 3) * 100, |_| {}),
                    1 => {
                        b.mark_lost(i);
                    }
                    2 => {
                        if let Some((number, _)) = b.next_pending() {
                            b.retransmit(number, |_| {});
                        }
                    }
                    3 => {
                        acked = acked.max(i * 100 / 4);
                        while b.pop_acked(acked).is_some() {}
                        b.sacked_ranges.remove_below(acked);
                    }
                    _ => {
                        if b.oldest_in_flight().is_some() {
                            b.skip_oldest();
                        }
                    }
                }
                let sum = |f: &dyn Fn(&Segment) -> bool| {
                    b.segments.iter().filter(|s| f(s)).map(|s| u64::from(s.len)).sum::<u64>()
                };
                assert_eq!(b.sacked, sum(&|s| s.sacked));
                assert_eq!(b.lost, sum(&|s| s.lost));
                assert_eq!(b.retransmitted, sum(&|s| s.retransmitted));
                assert_eq!(b.pending, sum(&|s| s.lost && !s.retransmitted));
            }
        }
    }

    #[test]
    fn stale_entries_of_the_order_of_sending_are_passed_over() {
        let mut b = board(3);
        b.mark_lost(0);
        b.retransmit(0, |s| s.sent = Instant(50));
        b.sack(100, 200, |_| {});
        assert_eq!(b.oldest_in_flight().map(|(n, _)| n), Some(2));
        b.skip_oldest();
        assert_eq!(b.oldest_in_flight().map(|(n, s)| (n, s.sent)), Some((0, Instant(50))));
    }
}
