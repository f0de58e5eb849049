//! AFC: adaptive flow control. The receiver reports how fast its application reads, and the sender adds
//! that rate to the window.
//!
//! signal: the rate at which the application drains the buffer · model: classic flow control is an
//! integral controller (rate = window / RTT, and the window integrates the error), so it never follows
//! a fluctuating reader; a term with the reading rate AR itself makes the error decay · action, in
//! four components:
//! 1. The receiver advertises its free buffer and, in an option of one byte, AR. The sender's flow
//!    window is `advertised + AR · RTT` ([`Sender::window`]).
//! 2. Losses by an overflowing buffer are no congestion signal: [`Sender::hides_loss`].
//! 3. The receiver reports a drastic change of AR at once, without data to acknowledge: `wants_ack`.
//! 4. The sender paces the burst that a reopened window allows: [`Sender::pacing_rate`].
//!
//! Source: Sanadhya, Sivakumar: "Adaptive Flow Control for TCP on Mobile Phones", INFOCOM 2011 (slides;
//! the option's "one byte for the type of option and one for the value" is in Wireless Networks
//! 7/2014).
//!
//! Choices of this project, where no available source has details:
//! - AR is averaged over slots of 100 ms with weight 1/32, so over about three seconds. The sender
//!   knows a rate one RTT late, so following pulses as short as an RTT does harm. On the path of
//!   `tests/rwnd.rs` (15 Mbit/s, 530 ms, 256 KiB, no congestion control) a reader of 0-6-6 Mbit/s, by
//!   slots of 600 ms and of 3 s, gets 94-99 % of its 4 Mbit/s with weights of 1/64 and 1/32, 88-91 %
//!   with 1/8, and 73-81 % with 1/2.
//! - Slots with an empty buffer are left out: they do not describe the application. Otherwise one late
//!   sender would get a low AR and stay slow.
//! - "drastically": the rate of the last slot differs from that of the slot before the last ACK by more
//!   than half of the larger; at most once per slot. That ACK carries the rate of the last slot, not the
//!   average. While a reader leaves data unread for a whole slot, each ACK carries zero.
//! - Until 32 slots are measured, AR is their plain mean.
//! - `steer`, the even pace, is not the slides': see [`sender`].
//! - The byte is a floating-point code ([`option`]). On the wire the option is an experimental one with
//!   an identifier (RFC 6994), because the paper's bare 2-byte option has no number assigned.
//! - When and how fast to pace: see [`sender`].
//!
//! The receiver has to accept data beyond the right edge that it advertised as far as its buffer
//! reaches, and to drop the rest: with AFC a sender passes that edge on purpose.

use units::{Bytes, Duration, Instant, Rate};

use super::{Cause, Sample, Setup, State, WindowControl};

pub mod backed;
pub mod option;
pub mod sender;

pub use sender::{Sender, SenderAck, SenderConfig};

/// Name in the table.
pub const NAME: &str = "afc";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "adaptive flow control: free buffer and the application's reading rate, in an option";
/// Where it is specified.
pub const SOURCE: &str = "AFC (INFOCOM 2011) slides, \"Adaptive Flow Control\"";

config! {
    /// Parameters of both halves.
    pub struct Config {
        /// Payload that fits the buffer: 256 KiB in the slides' example.
        buffer: Bytes = Bytes(262_144), Bytes(4_096), Bytes(1 << 30);
        /// Length of one measurement of the reading rate.
        slot: Duration = Duration::from_millis(100), Duration::from_millis(1), Duration::from_secs(10);
        /// Weight of a new slot in the average: 1/32, about three seconds.
        gain: f64 = 0.03125, 0.001, 1.0;
        /// Report a change by this share at once.
        change: f64 = 0.5, 0.05, 10.0;
        /// Whether to report changes at once (component 3).
        proactive: bool = true;
        /// Whether the sender adds the reading rate to the window (component 1).
        rate_term: bool = true;
        /// Whether the sender hides overflow losses from congestion control (component 2).
        hide_losses: bool = true;
        /// Whether the sender paces the burst of a reopened window (component 4).
        pace: bool = true;
        /// Gain of the even pace, this project's own: 1 steers the buffer to half full in one RTT; 0 is off, as published.
        steer: f64 = 0.0, 0.0, 4.0;
    }
}

/// The receiver's half of AFC for one connection.
#[derive(Clone, Debug)]
pub struct Afc {
    config: Config,
    /// AR in bit/s, and of how many slots it is the average.
    rate: f64,
    slots: f64,
    /// The rate in the last slot, and in the last slot before the last ACK.
    latest: f64,
    reported: f64,
    received: Bytes,
    copied: Bytes,
    slot: Option<Slot>,
    wants_ack: bool,
}

/// The current measurement of the reading rate.
#[derive(Clone, Copy, Debug)]
struct Slot {
    begun: Instant,
    copied: Bytes,
    /// There was data to read.
    busy: bool,
}

impl Afc {
    /// The state of a new connection.
    pub fn new(config: Config, _setup: &Setup) -> Afc {
        Afc {
            config,
            rate: 0.0,
            slots: 0.0,
            latest: 0.0,
            reported: 0.0,
            received: Bytes::ZERO,
            copied: Bytes::ZERO,
            slot: None,
            wants_ack: false,
        }
    }

    /// The configuration of the sender's half of the same connection.
    pub fn sender_config(&self, mss: Bytes) -> SenderConfig {
        let Config { rate_term, hide_losses, pace, steer, .. } = self.config;
        SenderConfig { rate_term, hide_losses, pace, steer, mss }
    }

    /// The average reading rate.
    pub fn drain_rate(&self) -> Rate {
        Rate(self.rate as u64)
    }

    /// Ends the slot if it is over, and starts the next one while there is data to read.
    fn end_slot(&mut self, now: Instant) {
        let Some(slot) = self.slot else { return };
        let length = now.since(slot.begun);
        if length < self.config.slot {
            return;
        }
        if slot.busy {
            // A late timer makes the slot longer; its true length counts.
            let drained = (self.copied - slot.copied).0 as f64 * 8e9 / length.0.max(1) as f64;
            // A plain mean of the first slots, so that the first one does not dominate.
            self.slots += 1.0;
            self.rate += self.config.gain.max(1.0 / self.slots) * (drained - self.rate);
            self.latest = drained;
            self.wants_ack |= self.config.proactive && self.changed();
        }
        let busy = self.received > self.copied;
        self.slot = busy.then_some(Slot { begun: now, copied: self.copied, busy });
    }

    /// The reader has left data unread for a whole slot, and since.
    fn stands(&self) -> bool {
        let still = self.slot.is_some_and(|slot| slot.copied == self.copied);
        self.latest == 0.0 && self.slots > 0.0 && still && self.received > self.copied
    }

    /// Component 3. A change that the option cannot express is none.
    fn changed(&self) -> bool {
        let (latest, old) = (self.latest, self.reported);
        let differs = (latest - old).max(old - latest) > self.config.change * latest.max(old);
        differs && option::encode(Rate(latest as u64)) != option::encode(Rate(old as u64))
    }
}

impl WindowControl for Afc {
    fn on_sample(&mut self, now: Instant, sample: &Sample) -> Option<Bytes> {
        // A slot that ends now does not include this event.
        self.end_slot(now);
        self.received = self.received.max(sample.received);
        self.copied = self.copied.max(sample.copied.min(self.received));
        if self.received > self.copied || sample.cause == Cause::Copied {
            let from = self.copied;
            let slot = self.slot.get_or_insert(Slot { begun: now, copied: from, busy: true });
            slot.busy = true;
        }
        None
    }
    fn window(&self) -> Bytes {
        self.config.buffer
    }
    fn buffer(&self) -> Bytes {
        self.config.buffer
    }
    fn rate_option(&self) -> Option<u8> {
        // A change is reported as it is; in the average it would be lost.
        let latest = self.config.proactive && (self.wants_ack || self.stands());
        Some(option::encode(if latest { Rate(self.latest as u64) } else { self.drain_rate() }))
    }
    fn wants_ack(&self) -> bool {
        self.wants_ack
    }
    fn on_ack_sent(&mut self, _now: Instant) {
        self.reported = self.latest;
        self.wants_ack = false;
    }
    fn next_wakeup(&self) -> Option<Instant> {
        self.slot.map(|slot| slot.begun + self.config.slot)
    }
    fn state(&self) -> State {
        State { window: self.config.buffer, ..State::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrivals at `arrive` and reads at `read` bit/s, in steps of 10 ms.
    fn run(
        law: &mut Afc,
        from_ms: u64,
        ms: u64,
        arrive: u64,
        read: u64,
        at: &mut (u64, u64),
    ) -> u32 {
        let mut acks = 0;
        for i in 1..=ms / 10 {
            let now = Instant((from_ms + i * 10) * 1_000_000);
            at.0 += arrive / 800;
            let sample = Sample { received: Bytes(at.0), copied: Bytes(at.1), ..Sample::default() };
            law.on_sample(now, &sample);
            let copied = at.0.min(at.1 + read / 800);
            if copied > at.1 {
                at.1 = copied;
                let sample = Sample { cause: Cause::Copied, copied: Bytes(copied), ..sample };
                law.on_sample(now, &sample);
            }
            if law.wants_ack() {
                acks += 1;
                law.on_ack_sent(now);
            }
        }
        acks
    }

    #[test]
    fn the_option_has_the_average_reading_rate() {
        let mut law = Afc::new(Config::default(), &Setup::default());
        let mut at = (0, 0);
        run(&mut law, 0, 20_000, 8_000_000, 4_000_000, &mut at);
        let rate = law.drain_rate().0;
        assert!(rate.abs_diff(4_000_000) < 40_000, "{rate}");
        let reported = option::decode(law.rate_option().unwrap_or(0)).0;
        assert!(reported.abs_diff(4_000_000) < 125_000, "{reported}");
    }

    #[test]
    fn an_application_that_stops_or_starts_again_is_reported_without_data_to_acknowledge() {
        let mut law = Afc::new(Config::default(), &Setup::default());
        let mut at = (0, 0);
        run(&mut law, 0, 5_000, 8_000_000, 4_000_000, &mut at);
        assert_eq!(run(&mut law, 5_000, 1_000, 8_000_000, 4_000_000, &mut at), 0);
        let before = law.drain_rate();
        assert_eq!(run(&mut law, 6_000, 1_000, 0, 0, &mut at), 1);
        assert_eq!(law.rate_option(), Some(0), "the rate as it is now, not the average");
        assert!(law.drain_rate() < before);
        assert_eq!(run(&mut law, 7_000, 500, 0, 4_000_000, &mut at), 1);
        let quiet = Config { proactive: false, ..Config::default() };
        let mut law = Afc::new(quiet, &Setup::default());
        assert_eq!(run(&mut law, 0, 3_000, 8_000_000, 4_000_000, &mut (0, 0)), 0);
    }

    #[test]
    fn an_empty_buffer_is_not_measured_and_needs_no_timer() {
        let mut law = Afc::new(Config::default(), &Setup::default());
        let mut at = (0, 0);
        run(&mut law, 0, 2_000, 4_000_000, 4_000_000, &mut at);
        let before = law.drain_rate();
        assert!(law.next_wakeup().is_some());
        let idle = Sample {
            cause: Cause::Timer,
            received: Bytes(at.0),
            copied: Bytes(at.1),
            ..Sample::default()
        };
        law.on_sample(Instant(3_000_000_000), &idle);
        law.on_sample(Instant(5_000_000_000), &idle);
        assert_eq!(law.next_wakeup(), None);
        assert!(law.drain_rate().0 >= before.0 / 2);
    }
}
