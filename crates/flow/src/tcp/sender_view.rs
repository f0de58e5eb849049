//! What the sender of a stream knew when it sent a segment, for captures that were not taken at the sender.
//!
//! ACKs pass the capture with a TSval. Data comes back with a TSecr, which names the last ACK that the sender had
//! processed (RFC 7323 section 4). A queue holds the ACKs still on their way to the sender. The first echo of a TSval is
//! an RTT sample (capture → sender → capture). The ACK it names gives cumulative ACK, SACKed bytes and right edge *as
//! the sender saw them*, and so its true bytes in flight.
//!
//! Deviation: TSval does not distinguish ACKs of the same tick of the receiver's clock. The RTT counts from the first
//! of them, and the cumulative ACK is that of the last. The right edge is that of the first whose window allowed the
//! segment, since a sender stays within the window. The error is at most one tick (1 ms on Linux).

use std::collections::VecDeque;

use units::{Duration, Instant};

use crate::identity::sequence::Pos;

/// The state of ACKs and window that the sender knew when it sent a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderView {
    /// Highest cumulative ACK.
    pub una: Pos,
    /// Bytes above it that were reported by SACK.
    pub sacked: u64,
    /// Right edge of the advertised window.
    pub right_edge: Pos,
}

#[derive(Clone, Copy, Debug)]
struct PassedAck {
    tsval: u32,
    time: Instant,
    known: SenderView,
    /// This TSval first appeared on an ACK or SACK of new data, which the sender answers with data at once.
    clocks_out: bool,
}

/// ACKs on their way to the sender.
#[derive(Debug, Default)]
pub struct Echoes {
    passed: VecDeque<PassedAck>,
    current: Option<(u32, SenderView)>,
    /// Right edges of the ACKs of the current tick, beginning with the one that the sender had used.
    edges: VecDeque<Pos>,
}

/// Four seconds of ACKs at one per tick of a millisecond. Beyond, the oldest are dropped: an echo of one gives no sample,
/// and the sender's view stays as it was.
const MAX_PASSED: usize = 4096;

impl Echoes {
    /// An ACK with `tsval` passed the capture at `now`. Returns whether its echo will be an RTT sample.
    #[inline]
    pub fn passed(
        &mut self,
        tsval: u32,
        now: Instant,
        known: SenderView,
        clocks_out: bool,
    ) -> bool {
        let mut first = true;
        if let Some(last) = self.passed.back() {
            first = last.tsval != tsval;
            if (tsval.wrapping_sub(last.tsval) as i32) < 0 {
                return false;
            }
        } else if let Some((current, _)) = self.current {
            // This tick was echoed already: later ACKs of it update the view, but give no sample.
            first = current != tsval;
        }
        if self.passed.len() >= MAX_PASSED {
            self.passed.pop_front();
        }
        let clocks_out = clocks_out && first;
        self.passed.push_back(PassedAck { tsval, time: now, known, clocks_out });
        clocks_out
    }

    /// Whether ACKs passed, and no data was sent after the sender had received one of them.
    pub fn unanswered(&self) -> bool {
        self.current.is_none() && !self.passed.is_empty()
    }

    /// A data segment with `tsecr` that ends at `end` passed. Returns an RTT sample if this is the first echo of that
    /// TSval, and the sender's view if it is known.
    #[inline]
    pub fn echoed(
        &mut self,
        tsecr: u32,
        end: Pos,
        now: Instant,
    ) -> (Option<Duration>, Option<SenderView>) {
        let mut sample = None;
        while let Some(first) = self.passed.front() {
            let ahead = tsecr.wrapping_sub(first.tsval) as i32;
            if ahead < 0 {
                break;
            }
            if ahead == 0 && first.clocks_out {
                sample = Some(now.since(first.time));
            }
            if self.current.is_none_or(|(tsval, _)| tsval != first.tsval) {
                self.edges.clear();
            }
            self.edges.push_back(first.known.right_edge);
            self.current = Some((first.tsval, first.known));
            self.passed.pop_front();
        }
        while self.edges.len() > 1 && self.edges.front().is_some_and(|edge| *edge < end) {
            self.edges.pop_front();
        }
        let Some((tsval, known)) = self.current else { return (sample, None) };
        if (tsecr.wrapping_sub(tsval) as i32) < 0 {
            return (sample, None);
        }
        let right_edge = self.edges.front().copied().unwrap_or(known.right_edge);
        (sample, Some(SenderView { right_edge, ..known }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }
    fn known(una: Pos) -> SenderView {
        SenderView { una, sacked: 0, right_edge: una + 1000 }
    }

    #[test]
    fn the_first_echo_is_the_round_trip_and_names_what_the_sender_knew() {
        let mut e = Echoes::default();
        e.passed(100, ms(0), known(10), true);
        e.passed(105, ms(5), known(20), true);
        assert_eq!(e.echoed(100, 500, ms(40)), (Some(Duration::from_millis(40)), Some(known(10))));
        assert_eq!(e.echoed(100, 600, ms(41)), (None, Some(known(10))));
        assert_eq!(e.echoed(105, 700, ms(46)), (Some(Duration::from_millis(41)), Some(known(20))));
    }

    #[test]
    fn an_echo_that_skips_acks_measures_only_the_one_it_names() {
        let mut e = Echoes::default();
        e.passed(100, ms(0), known(10), true);
        e.passed(110, ms(10), known(20), true);
        assert_eq!(e.echoed(110, 500, ms(60)), (Some(Duration::from_millis(50)), Some(known(20))));
    }

    #[test]
    fn within_a_tick_the_window_says_which_ack_the_sender_had() {
        let mut e = Echoes::default();
        e.passed(100, ms(0), known(10), true);
        e.passed(100, ms(0), known(500), true);
        let first = SenderView { right_edge: 1010, ..known(500) };
        assert_eq!(e.echoed(100, 900, ms(40)), (Some(Duration::from_millis(40)), Some(first)));
        assert_eq!(e.echoed(100, 1400, ms(40)), (None, Some(known(500))));
    }

    #[test]
    fn beyond_the_maximum_the_oldest_acks_are_dropped() {
        let mut e = Echoes::default();
        let last = MAX_PASSED as u32;
        for tsval in 0..=last {
            e.passed(tsval, ms(tsval.into()), known(tsval.into()), true);
        }
        assert_eq!(e.echoed(0, 5, ms(9_000)), (None, None), "dropped");
        let (sample, view) = e.echoed(last, 5, ms(9_000));
        assert_eq!(sample, Some(Duration::from_millis(9_000 - u64::from(last))));
        assert_eq!(view.map(|v| v.una), Some(last.into()));
    }

    #[test]
    fn an_old_echo_has_no_effect() {
        let mut e = Echoes::default();
        e.passed(100, ms(0), known(10), true);
        assert_eq!(e.echoed(90, 500, ms(10)), (None, None));
    }
}
