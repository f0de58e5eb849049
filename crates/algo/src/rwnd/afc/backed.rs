//! AFC's rate term for a sender without AFC: the receiver advertises the whole window and has the
//! memory for it.
//!
//! signal: bytes received, read and advertised, at each ACK · model: the reading rate AR as in
//! [`super::Afc`]; a window of `free + AR · RTT` is the free part of a buffer that is larger by
//! `AR · RTT` · action: the size of the buffer.
//!
//! Every advertised byte fits the memory, even if the reader stops. Source and deviations: see
//! [`super`], but
//! - RTT is the smallest one. With the current RTT a queue would reinforce itself: a fast reader's
//!   window is `B + AR · RTT`, so RTT becomes `RTT + B / AR` with every round.
//! - No timer: a slot ends with the first ACK after its time, and its true length counts. A slot with a
//!   silence of two RTTs while the window was open is left out: the sender had no data.
//! - Integers only (bytes per second, microseconds, nanoseconds; divisions round down): the agent's
//!   eBPF program computes the same.

use units::{Bytes, Duration, Instant};

/// Length of one measurement of the reading rate: the default of [`super::Config`].
pub const SLOT: Duration = Duration::from_millis(100);
/// Slots in the average: the reciprocal of [`super::Config`]'s weight.
pub const SLOTS: u64 = 32;
/// Upper bound of a rate, 4 GB/s as in DRWA: products then fit 64 bits.
const MAX_RATE: u64 = 1 << 32;
/// Largest window (RFC 7323 section 2.3).
const MAX_BYTES: u64 = 1 << 30;
/// Longer RTTs are measurement errors.
const MAX_RTT_US: u64 = 30_000_000;

/// State of the receiver when it sends an ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckSample {
    /// Total received in order.
    pub received: Bytes,
    /// Total read by the application.
    pub copied: Bytes,
    /// Total up to which the sender may send.
    pub right_edge: Bytes,
    /// Current RTT; zero if it is not known yet.
    pub rtt: Duration,
}

/// The law of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backed {
    rate: u64,
    slots: u64,
    /// The current slot, if `measuring`: there is none while the buffer is empty.
    begun_ns: u64,
    begun_copied: u64,
    measuring: bool,
    /// The sender was silent during the slot.
    silent: bool,
    /// Time of the last ACK; the totals below are those at that time.
    acked_ns: u64,
    received: u64,
    copied: u64,
    right_edge: u64,
}

impl Backed {
    /// An ACK is about to be sent.
    pub fn on_ack(&mut self, now: Instant, sample: &AckSample) {
        let now = now.0;
        let quiet_us = now.saturating_sub(self.acked_ns) / 1_000;
        let rtt_us = (sample.rtt.0 / 1_000).min(MAX_RTT_US);
        if self.right_edge > self.received && rtt_us > 0 && quiet_us > 2 * rtt_us {
            self.silent = true;
        }
        self.received = self.received.max(sample.received.0);
        let read = self.copied.max(sample.copied.0.min(self.received));
        let reading = self.received > self.copied || read > self.copied;
        self.copied = read;
        self.end_slot(now);
        if !self.measuring && reading {
            self.measuring = true;
            self.silent = false;
            self.begun_ns = now;
            self.begun_copied = self.copied;
        }
        self.acked_ns = now;
        self.right_edge = sample.right_edge.0;
    }

    /// Ends the slot if it is over, and averages its rate.
    fn end_slot(&mut self, now: u64) {
        let length = now.saturating_sub(self.begun_ns);
        if !self.measuring || length < SLOT.0 {
            return;
        }
        self.measuring = false;
        if self.silent {
            return;
        }
        let bytes = (self.copied - self.begun_copied).min(MAX_BYTES);
        let drained = (bytes * 1_000_000 / (length / 1_000).max(1)).min(MAX_RATE);
        // A plain mean of the first slots.
        self.slots = (self.slots + 1).min(SLOTS);
        self.rate = (self.rate * (self.slots - 1) + drained) / self.slots;
    }

    /// The reading rate AR, bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Size of the buffer in payload bytes, for a kernel buffer of `own` bytes and a smallest RTT of
    /// `rtt_min`.
    pub fn buffer(&self, own: Bytes, rtt_min: Duration) -> Bytes {
        let rtt_us = (rtt_min.0 / 1_000).min(MAX_RTT_US);
        Bytes((own.0.min(MAX_BYTES) + self.rate * rtt_us / 1_000_000).min(MAX_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Afc, Config};
    use super::*;
    use crate::rwnd::{Cause, Sample, Setup, WindowControl};

    const RTT: Duration = Duration::from_millis(100);

    /// ACKs every 10 ms: what comes and what is read, bytes each; from the millisecond `from` for so many.
    fn run(law: &mut Backed, from: u64, ms: u64, comes: u64, read: u64, at: &mut (u64, u64)) {
        for i in 1..=ms / 10 {
            at.0 += comes;
            at.1 = at.0.min(at.1 + read);
            let sample = AckSample {
                received: Bytes(at.0),
                copied: Bytes(at.1),
                right_edge: Bytes(at.0 + 65_536),
                rtt: RTT,
            };
            law.on_ack(Instant((from + 10 * i) * 1_000_000), &sample);
        }
    }

    #[test]
    fn the_buffer_is_larger_by_what_is_read_in_a_round_trip() {
        let mut law = Backed::default();
        let own = Bytes(65_536);
        assert_eq!(law.buffer(own, RTT), own, "nothing is known, nothing is added");
        run(&mut law, 0, 10_000, 10_000, 5_000, &mut (0, 0));
        assert!(law.rate().abs_diff(500_000) < 100, "{}", law.rate());
        assert_eq!(law.buffer(own, RTT).0 / 100, (65_536 + 50_000) / 100);
    }

    #[test]
    fn the_rate_is_that_of_afc_in_floats() {
        let mut law = Backed::default();
        let mut afc = Afc::new(Config::default(), &Setup::default());
        let (mut received, mut copied) = (0, 0);
        for i in 1..4_000_u64 {
            let now = Instant(i * 10_000_000);
            // A reader of 0, 6 and 6 by turns; the buffer is never empty.
            let read = if i / 60 % 3 == 0 { 0 } else { 6_000 };
            received += 5_000;
            copied = received.min(copied + read);
            let (received, copied) = (Bytes(received), Bytes(copied));
            let edge = Bytes(received.0 + 1_000);
            afc.on_sample(
                now,
                &Sample { cause: Cause::Copied, received, copied, ..Sample::default() },
            );
            law.on_ack(now, &AckSample { received, copied, right_edge: edge, rtt: RTT });
        }
        let floats = afc.drain_rate().0 / 8;
        assert!(law.rate().abs_diff(floats) < floats / 20, "{} {floats}", law.rate());
    }

    #[test]
    fn a_reader_that_stops_takes_the_term_away_and_a_silent_sender_does_not() {
        let mut law = Backed::default();
        let mut at = (0, 0);
        run(&mut law, 0, 10_000, 10_000, 5_000, &mut at);
        let before = law.rate();
        // The sender has nothing to send for a minute.
        run(&mut law, 70_000, 100, 10_000, 5_000, &mut at);
        assert!(law.rate() > before * 95 / 100, "{}", law.rate());
        run(&mut law, 70_100, 20_000, 100, 0, &mut at);
        assert!(law.rate() < before / 50, "{}", law.rate());
    }

    #[test]
    fn no_input_overflows() {
        let mut law = Backed::default();
        for now in [0, u64::MAX / 2, 5, u64::MAX] {
            let most = Bytes(u64::MAX);
            law.on_ack(
                Instant(now),
                &AckSample {
                    received: most,
                    copied: most,
                    right_edge: Bytes(3),
                    rtt: Duration(u64::MAX),
                },
            );
            assert!(law.buffer(most, Duration(u64::MAX)).0 <= MAX_BYTES);
        }
    }
}
