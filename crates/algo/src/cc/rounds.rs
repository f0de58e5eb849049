//! Round trips counted by delivered data.
//!
//! signal: [`super::RateSample::prior_delivered`] of each ACK · model: a round ends when a segment that was sent after
//! the round began is delivered (draft-ietf-ccwg-bbr section 5.5.1) · action: [`Rounds::on_ack`] says when.

use units::Bytes;

use super::Ack;

/// Counts round trips.
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

    /// Begins a round here: the next one starts when something sent from now on is delivered.
    pub fn restart(&mut self, delivered: Bytes) {
        self.next = delivered;
    }

    /// Rounds begun.
    pub fn count(&self) -> u64 {
        self.count
    }
}
