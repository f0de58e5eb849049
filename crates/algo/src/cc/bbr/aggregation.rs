//! ACK aggregation: the bytes that ACKs deliver at once beyond those explained by the bandwidth.
//!
//! signal: bytes delivered by each ACK · model: the excess of an epoch is the delivered data minus
//! bandwidth · time; an epoch ends when ACKs fall behind the bandwidth; the largest excess of the last 5
//! to 10 rounds counts, in two slots of five · action: the window grows by that excess, so that the
//! sender continues while ACKs are delayed.
//!
//! Source: Linux `tcp_bbr.c` (`bbr_update_ack_aggregation`).

use units::{Bytes, Instant};

/// Rounds of one slot (`bbr_extra_acked_win_rtts`).
const SLOT_ROUNDS: u64 = 5;
/// Segments after which a new epoch begins (`bbr_ack_epoch_acked_reset_thresh`): an excess over a very
/// long time is not aggregation.
const EPOCH_SEGMENTS: u64 = 1 << 20;

/// The ACK aggregation of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    slots: [Bytes; 2],
    slot: usize,
    rounds: u64,
    epoch: Instant,
    acked: Bytes,
    /// Bytes after which a new epoch begins.
    max_epoch: Bytes,
}

impl Aggregation {
    /// The state before the first ACK.
    pub(super) fn new(mss: Bytes) -> Aggregation {
        Aggregation { max_epoch: mss * EPOCH_SEGMENTS, ..Aggregation::default() }
    }

    /// The largest excess of the last 5 to 10 rounds.
    #[inline]
    pub(super) fn get(&self) -> Bytes {
        self.slots[0].max(self.slots[1])
    }

    /// Begins an epoch: at the start of the connection, and after idle time.
    pub(super) fn restart(&mut self, now: Instant) {
        self.epoch = now;
        self.acked = Bytes::ZERO;
    }

    /// An ACK delivered `acked` while the bandwidth was `rate` bytes per second.
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        acked: Bytes,
        rate: f64,
        round_start: bool,
        window: Bytes,
    ) {
        if round_start {
            self.rounds += 1;
            if self.rounds >= SLOT_ROUNDS {
                self.rounds = 0;
                self.slot = 1 - self.slot;
                self.slots[self.slot] = Bytes::ZERO;
            }
        }
        let mut expected = Bytes((rate * now.since(self.epoch).as_secs_f64()) as u64);
        if self.acked <= expected || self.acked + acked >= self.max_epoch {
            self.restart(now);
            expected = Bytes::ZERO;
        }
        self.acked += acked;
        let extra = (self.acked - expected).min(window);
        let slot = &mut self.slots[self.slot];
        *slot = extra.max(*slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_remembered_for_five_to_ten_rounds() {
        let mut aggregation = Aggregation::new(Bytes(1448));
        let mut ack = |ms: u64, bytes: u64, round: bool| {
            aggregation.on_ack(Instant(ms * 1_000_000), Bytes(bytes), 1e6, round, Bytes(1_000_000));
            aggregation.get()
        };
        // 10 ms at 1 MB/s explain 10,000 bytes of the 30,000.
        ack(10, 20_000, true);
        assert_eq!(ack(20, 10_000, false), Bytes(20_000));
        let mut kept = 0;
        for round in 0..12 {
            // From here on 1,000 bytes per millisecond: nothing beyond the bandwidth.
            if ack(60 + round, 1_000, true) == Bytes(20_000) {
                kept += 1;
            }
        }
        assert!((5..10).contains(&kept), "{kept}");
    }

    #[test]
    fn the_excess_is_never_more_than_the_window() {
        let mut aggregation = Aggregation::new(Bytes(1448));
        aggregation.on_ack(Instant(1), Bytes(90_000), 1.0, true, Bytes(14_480));
        assert_eq!(aggregation.get(), Bytes(14_480));
    }
}
