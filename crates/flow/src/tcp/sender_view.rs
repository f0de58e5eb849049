//! What the sender of a stream knew when it sent a segment, for captures that were not taken at the sender.
//!
//! signal: TSval of the ACKs that pass, TSecr of the data that comes (RFC 7323 section 4: the echo names the ACK
//! that the sender had last taken in) · model: a queue of the ACKs still under way to the sender · action: the
//! first echo of a TSval is an RTT sample (capture → sender → capture), and the ACK it names gives cumulative ACK,
//! SACKed bytes and right edge *as the sender saw them*, hence its true bytes in flight.
//!
//! Deviation: ACKs that share a tick of the receiver's clock cannot be told apart by TSval. The RTT counts from the
//! first of them, the cumulative ACK is that of the last, and the right edge that of the first one whose window
//! allowed the segment, since a sender stays inside the window. The error is at most one tick (1 ms on Linux).

use std::collections::VecDeque;

use units::{Duration, Instant};

use crate::packet::sequence::Pos;

/// The sender's knowledge at the moment it sent a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Cumulative ACK.
    pub una: Pos,
    /// Bytes above it that were SACKed.
    pub sacked: u64,
    /// Right edge of the window.
    pub right_edge: Pos,
}

#[derive(Clone, Copy, Debug)]
struct Passed {
    tsval: u32,
    time: Instant,
    known: Known,
    /// This TSval was first seen on an ACK that took in new data, so that the sender answers at once.
    clocks_out: bool,
}

/// ACKs under way to the sender.
#[derive(Debug, Default)]
pub struct Echoes {
    passed: VecDeque<Passed>,
    current: Option<(u32, Known)>,
    /// Right edges of the ACKs of the current tick, from the one that the sender is known to have used on.
    edges: VecDeque<Pos>,
}

/// Four seconds of ACKs at one per millisecond tick; an idle sender's later ACKs are not needed one by one.
const MAX_PASSED: usize = 4096;

impl Echoes {
    /// An ACK with `tsval` passed the capture at `now`.
    #[inline]
    pub fn passed(&mut self, tsval: u32, now: Instant, known: Known, clocks_out: bool) {
        let mut first = true;
        if let Some(last) = self.passed.back() {
            first = last.tsval != tsval;
            if (tsval.wrapping_sub(last.tsval) as i32) < 0 {
                return;
            }
        } else if let Some((current, _)) = self.current {
            // The echo of this tick has already come: what follows in it is knowledge, not a sample.
            first = current != tsval;
        }
        if self.passed.len() >= MAX_PASSED {
            self.passed.pop_front();
        }
        self.passed.push_back(Passed { tsval, time: now, known, clocks_out: clocks_out && first });
    }

    /// A data segment with `tsecr` that ends at `end` came by. Returns an RTT sample if this is the first echo of
    /// that TSval, and the sender's knowledge if it is known.
    #[inline]
    pub fn echoed(
        &mut self,
        tsecr: u32,
        end: Pos,
        now: Instant,
    ) -> (Option<Duration>, Option<Known>) {
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
        (sample, Some(Known { right_edge, ..known }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }
    fn known(una: Pos) -> Known {
        Known { una, sacked: 0, right_edge: una + 1000 }
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
        let first = Known { right_edge: 1010, ..known(500) };
        assert_eq!(e.echoed(100, 900, ms(40)), (Some(Duration::from_millis(40)), Some(first)));
        assert_eq!(e.echoed(100, 1400, ms(40)), (None, Some(known(500))));
    }

    #[test]
    fn an_old_echo_tells_nothing_new() {
        let mut e = Echoes::default();
        e.passed(100, ms(0), known(10), true);
        assert_eq!(e.echoed(90, 500, ms(10)), (None, None));
    }
}
