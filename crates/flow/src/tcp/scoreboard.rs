//! Segments in flight with the times at which they were sent: the source of seq/ACK RTT samples and of bytes in
//! flight. It also shows whether a retransmitted segment had arrived.
//!
//! There is one entry per segment sent, in order of sequence. A retransmission updates the entries it covers. An ACK
//! gives an RTT sample for the newest byte it covers, unless Karn's rule or a retransmission in between forbids it.
//!
//! Sources: RFC 6298 section 3 (Karn), RFC 2018 (SACK), RFC 6675 section 3.
//! Deviation: at most [`Scoreboard::MAX_ENTRIES`] entries are stored, because a capture without ACKs would need all.
//! Beyond that the oldest are dropped and give no RTT sample.

use std::collections::VecDeque;

use units::{Duration, Instant};

use crate::identity::sequence::{Pos, RangeSet};

/// One segment as it was sent.
#[derive(Clone, Copy, Debug)]
struct Entry {
    end: Pos,
    sent: Instant,
    ip_id: u16,
    retransmitted: bool,
    sacked: bool,
}

/// Result of a cumulative ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AckResult {
    /// Round-trip time to the receiver and back, if one could be taken.
    pub rtt: Option<Duration>,
    /// Time since the newest transmission of what it acknowledges, where Karn's rule forbids a sample: the round trip took
    /// that long at least, whichever copy is acknowledged.
    pub at_least: Option<Duration>,
    /// Segments reported missing by SACK that arrived without a retransmission: reordering on the path.
    pub reordered: u64,
    /// Maximum delay after the segment that overtook them.
    pub reordered_by: Duration,
}

/// Result of a SACK option.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SackResult {
    /// Round-trip time of the newest segment it adds, if that was sent only once.
    pub rtt: Option<Duration>,
    /// Whether it reported anything new.
    pub progress: bool,
    /// Reordered segments, as [`AckResult::reordered`].
    pub reordered: u64,
    /// Their maximum delay, as [`AckResult::reordered_by`].
    pub reordered_by: Duration,
}

/// Segments in flight of one stream.
#[derive(Debug, Default)]
pub struct Scoreboard {
    entries: VecDeque<Entry>,
    /// Position where the first entry begins.
    front: Pos,
    sacked: RangeSet,
    /// When the first SACK block above the cumulative ACK arrived.
    sacked_since: Option<Instant>,
    /// Below this, bytes without SACK had not arrived when later data had: the last SACK option with space for another
    /// block listed everything that the receiver had. A full option proves nothing, because Linux compresses the
    /// ACKs of out-of-order data into up to three blocks each.
    proven: Pos,
    /// Retransmitted segments in flight; until they are acknowledged no cumulative ACK gives a valid sample.
    retransmitted_in_flight: u32,
}

impl Scoreboard {
    /// 131,072 segments of 1,448 bytes are 190 MB in flight, more than any receive window (1 GB) is in practice.
    pub const MAX_ENTRIES: usize = 1 << 17;

    /// `[start, end)` is missing in the capture. An entry without a send time prevents wrong samples from ACKs of it.
    pub fn missing(&mut self, start: Pos, end: Pos) {
        if self.entries.is_empty() {
            self.front = start;
            self.entries.push_back(Entry {
                end,
                sent: Instant::ZERO,
                ip_id: 0,
                retransmitted: true,
                sacked: false,
            });
            self.retransmitted_in_flight += 1;
        }
    }

    /// New data `[start, end)` was sent.
    #[inline]
    pub fn sent(&mut self, start: Pos, end: Pos, now: Instant, ip_id: u16) {
        match self.entries.back() {
            None => self.front = start,
            // A hole in the capture: an entry without a send time fills the gap in the sequence.
            Some(last) if last.end < start => {
                self.entries.push_back(Entry {
                    end: start,
                    sent: Instant::ZERO,
                    ip_id: 0,
                    retransmitted: true,
                    sacked: false,
                });
                self.retransmitted_in_flight += 1;
            }
            Some(_) => {}
        }
        self.entries.push_back(Entry {
            end,
            sent: now,
            ip_id,
            retransmitted: false,
            sacked: false,
        });
        if self.entries.len() > Self::MAX_ENTRIES {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(gone) = self.entries.pop_front() {
            self.front = gone.end;
            self.retransmitted_in_flight -= u32::from(gone.retransmitted);
        }
    }

    fn index_of(&self, pos: Pos) -> usize {
        self.entries.partition_point(|e| e.end <= pos)
    }

    /// `[start, end)` was retransmitted. Returns the time of the last transmission, and whether the IP identification is
    /// the same. Senders never reuse it so soon: then it is a duplicate made by the capture.
    pub fn retransmitted(
        &mut self,
        start: Pos,
        end: Pos,
        now: Instant,
        ip_id: u16,
    ) -> Option<(Instant, bool)> {
        let mut i = self.index_of(start);
        let first = *self.entries.get(i)?;
        let same_id = ip_id != 0 && first.ip_id == ip_id && !first.retransmitted;
        if same_id {
            return Some((first.sent, true));
        }
        let mut at = if i == 0 { self.front } else { self.entries[i - 1].end };
        while let Some(e) = self.entries.get_mut(i) {
            if at >= end {
                break;
            }
            at = e.end;
            if !e.retransmitted {
                e.retransmitted = true;
                self.retransmitted_in_flight += 1;
            }
            e.sent = now;
            e.ip_id = ip_id;
            i += 1;
        }
        Some((first.sent, false))
    }

    /// Processes the blocks of one SACK option, all above the cumulative ACK. `capacity` is the number of blocks that
    /// fit into it.
    pub fn sack(&mut self, blocks: &[(Pos, Pos)], capacity: usize, now: Instant) -> SackResult {
        let Scoreboard { entries, sacked, sacked_since, proven, .. } = self;
        let mut out = SackResult::default();
        let mut newest: Option<Entry> = None;
        let overtaken = *proven;
        for &(start, end) in blocks {
            sacked.insert(start, end, |from, to| {
                out.progress = true;
                let mut i = entries.partition_point(|e| e.end <= from);
                while let Some(e) = entries.get_mut(i) {
                    if e.end > to {
                        break;
                    }
                    if !e.sacked {
                        e.sacked = true;
                        newest = Some(*e);
                        out.reordered += u64::from(e.end <= overtaken && !e.retransmitted);
                    }
                    i += 1;
                }
            });
        }
        if out.reordered > 0
            && let Some(since) = *sacked_since
        {
            out.reordered_by = now.since(since);
        }
        if out.progress && sacked_since.is_none() {
            *sacked_since = Some(now);
        }
        if blocks.len() < capacity {
            *proven = sacked.highest().map_or(*proven, |high| high.max(*proven));
        }
        out.rtt = newest.filter(|e| !e.retransmitted).map(|e| now.since(e.sent));
        out
    }

    /// Processes a cumulative ACK up to `una`.
    #[inline]
    pub fn acked(&mut self, una: Pos, now: Instant) -> AckResult {
        let mut out = AckResult::default();
        let clean = self.retransmitted_in_flight == 0;
        let any_sacked = !self.sacked.is_empty();
        let mut newest: Option<Entry> = None;
        let mut retransmitted = false;
        let mut sent = Instant::ZERO;
        let mut all_known = true;
        // Proven missing, and neither SACKed nor retransmitted since: it arrived late.
        let overtaken = self.proven.min(una);
        while let Some(e) = self.entries.front() {
            let start = self.front;
            if e.end > una {
                if start < una {
                    self.front = una;
                    newest = Some(*e);
                    retransmitted |= e.retransmitted;
                    sent = sent.max(e.sent);
                    all_known &= e.sent > Instant::ZERO;
                }
                break;
            }
            if !e.sacked && !e.retransmitted && e.end <= overtaken {
                out.reordered += 1;
            }
            newest = Some(*e);
            retransmitted |= e.retransmitted;
            sent = sent.max(e.sent);
            all_known &= e.sent > Instant::ZERO;
            self.retransmitted_in_flight -= u32::from(e.retransmitted);
            self.front = e.end;
            self.entries.pop_front();
        }
        if any_sacked {
            if out.reordered > 0
                && let Some(since) = self.sacked_since
            {
                out.reordered_by = now.since(since);
            }
            self.sacked.remove_below(una);
            self.sacked_since = if self.sacked.is_empty() { None } else { Some(now) };
        }
        if let Some(e) = newest
            && !e.sacked
            && (clean || !retransmitted)
            && !e.retransmitted
        {
            out.rtt = Some(now.since(e.sent));
        }
        if retransmitted && all_known && !any_sacked {
            out.at_least = Some(now.since(sent));
        }
        out
    }

    /// Bytes above the cumulative ACK that the receiver reported by SACK.
    #[inline]
    pub fn sacked_bytes(&self) -> u64 {
        self.sacked.total()
    }

    /// Whether SACK has reported all of `[start, end)`.
    pub fn is_sacked(&self, start: Pos, end: Pos) -> bool {
        self.sacked.covers(start, end)
    }

    /// Whether something above `pos` has been SACKed.
    #[inline]
    pub fn sacked_above(&self, pos: Pos) -> bool {
        self.sacked.highest().is_some_and(|h| h > pos)
    }

    /// Number of entries.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    #[test]
    fn one_ack_for_many_segments_measures_the_newest() {
        let mut s = Scoreboard::default();
        s.sent(0, 100, ms(0), 1);
        s.sent(100, 200, ms(5), 2);
        s.sent(200, 300, ms(9), 3);
        assert_eq!(s.acked(200, ms(45)).rtt, Some(Duration::from_millis(40)));
        assert_eq!(s.len(), 1);
    }

    #[test]
    fn an_ack_inside_a_gso_segment_measures_that_segment() {
        let mut s = Scoreboard::default();
        s.sent(0, 60_000, ms(0), 1);
        assert_eq!(s.acked(1_448, ms(20)).rtt, Some(Duration::from_millis(20)));
        assert_eq!(s.acked(60_000, ms(26)).rtt, Some(Duration::from_millis(26)));
    }

    #[test]
    fn karn_forbids_samples_of_retransmitted_data_and_across_it() {
        let mut s = Scoreboard::default();
        s.sent(0, 100, ms(0), 1);
        s.sent(100, 200, ms(1), 2);
        assert_eq!(s.retransmitted(0, 100, ms(300), 3), Some((ms(0), false)));
        assert_eq!(s.acked(200, ms(340)).rtt, None);
        s.sent(200, 300, ms(350), 4);
        assert_eq!(s.acked(300, ms(390)).rtt, Some(Duration::from_millis(40)));
    }

    #[test]
    fn what_was_sent_again_bounds_the_round_trip_by_its_newest_copy() {
        let mut s = Scoreboard::default();
        s.sent(0, 100, ms(0), 1);
        s.sent(100, 200, ms(1), 2);
        assert_eq!(s.acked(100, ms(40)).at_least, None, "a sample instead");
        s.retransmitted(100, 200, ms(300), 3);
        s.retransmitted(100, 200, ms(700), 4);
        assert_eq!(s.acked(200, ms(900)).at_least, Some(Duration::from_millis(200)));
        s.missing(200, 300);
        assert_eq!(s.acked(300, ms(950)).at_least, None, "when it was sent is unknown");
    }

    #[test]
    fn a_copy_with_the_same_ip_id_is_the_captures_duplicate() {
        let mut s = Scoreboard::default();
        s.sent(0, 100, ms(0), 7);
        assert_eq!(s.retransmitted(0, 100, ms(30), 7), Some((ms(0), true)));
        assert_eq!(s.acked(100, ms(40)).rtt, Some(Duration::from_millis(40)));
    }

    #[test]
    fn sack_gives_samples_and_what_it_skipped_without_retransmission_was_reordered() {
        let mut s = Scoreboard::default();
        for i in 0..4 {
            s.sent(i * 100, (i + 1) * 100, ms(i as u64), i as u16 + 1);
        }
        let first = s.sack(&[(100, 200)], 3, ms(41));
        assert_eq!((first.rtt, first.progress), (Some(Duration::from_millis(40)), true));
        let again = s.sack(&[(100, 200)], 3, ms(42));
        assert_eq!((again.rtt, again.progress), (None, false));
        assert_eq!(s.sacked_bytes(), 100);
        let acked = s.acked(400, ms(43));
        assert_eq!(acked.reordered, 1);
        assert_eq!(acked.rtt, Some(Duration::from_millis(40)));
        assert_eq!(s.sacked_bytes(), 0);
    }

    #[test]
    fn a_gap_between_sack_blocks_that_closes_without_a_retransmission_was_reordering() {
        let mut s = Scoreboard::default();
        for i in 0..5 {
            s.sent(i * 100, (i + 1) * 100, ms(i as u64), i as u16 + 1);
        }
        assert_eq!(s.sack(&[(100, 200), (300, 400)], 3, ms(40)).reordered, 0);
        let closed = s.sack(&[(100, 400)], 3, ms(47));
        assert_eq!((closed.reordered, closed.reordered_by), (1, Duration::from_millis(7)));
        assert_eq!(
            s.sack(&[(100, 500)], 3, ms(48)).reordered,
            0,
            "new data above is no reordering"
        );
    }

    #[test]
    fn a_sack_option_without_room_proves_nothing() {
        let mut s = Scoreboard::default();
        for i in 0..9 {
            s.sent(i * 100, (i + 1) * 100, ms(i as u64), i as u16 + 1);
        }
        s.sack(&[(700, 800), (500, 600), (100, 200)], 3, ms(40));
        assert_eq!(s.sack(&[(300, 400), (700, 800), (500, 600)], 3, ms(41)).reordered, 0);
    }

    #[test]
    fn a_capture_without_acks_stays_bounded() {
        let mut s = Scoreboard::default();
        for i in 0..(Scoreboard::MAX_ENTRIES as i64 + 10) {
            s.sent(i, i + 1, ms(1), 0);
        }
        assert_eq!(s.len(), Scoreboard::MAX_ENTRIES);
    }
}
