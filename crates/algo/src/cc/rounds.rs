//! Round trips, counted by delivered data ([`super::RateSample::prior_delivered`]).
//!
//! A round ends when a segment is delivered that was sent after the round began (draft-ietf-ccwg-bbr
//! section 5.5.1).

use units::Bytes;

use super::Ack;

/// Counts the round trips of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    next: Bytes,
    count: u64,
}

impl Rounds {
    /// Whether this ACK begins a new round.
    #[inline]
    pub fn on_ack(&mut self, ack: &Ack) -> bool {
        if ack.rate.prior_delivered < self.next || ack.acked == Bytes::ZERO {
            return false;
        }
        self.next = ack.delivered;
        self.count += 1;
        true
    }

    /// Begins a round now; the next one begins when data sent from now on is delivered.
    pub fn restart(&mut self, delivered: Bytes) {
        self.next = delivered;
    }

    /// Number of rounds begun.
    pub fn count(&self) -> u64 {
        self.count
    }
}
