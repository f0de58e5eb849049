//! Retransmission on the link itself, with delivery in order: loss shows as delay.
//!
//! signal: when the packet was offered to the medium, when it left · model: each attempt fails with the
//! same probability. A failed attempt is repeated `delay` later, uses the medium again, and delays all
//! packets behind it until it has arrived (an acknowledged radio bearer: HARQ below RLC) · action: the
//! packet arrives later, and the medium is free later. After `attempts` it is lost, and the packets
//! behind it arrive when that is known.
//!
//! Other packets are sent while a failed one waits for its repetition (several HARQ processes): the medium
//! loses the airtime of the repetition, not the wait. On media that wait for an opportunity (traces) the
//! wait counts as airtime, at most one `delay` of it: a repetition costs about one opportunity.
//!
//! Sources: 3GPP TS 36.321 section 5.4.2 (HARQ), TS 36.322 section 5.1.3 (RLC AM). Deviations: attempts
//! fail independently (in reality, combining makes later attempts more likely to succeed). The airtime of
//! a repetition follows right after the first attempt, not at its real time.

use units::{Duration, Instant};

use super::{Head, LayerControl, Setup, Transit};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "arq";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "link-layer retransmission with delivery in order: loss shows as delay and uses airtime";
/// Where it is specified.
pub const SOURCE: &str = "3GPP TS 36.321 section 5.4.2 (HARQ), TS 36.322 section 5.1.3 (RLC AM)";

config! {
    /// Failures of attempts, and the cost of a repetition.
    pub struct Config {
        /// Probability that an attempt fails; link adaptation aims at 10 % on the first (3GPP TS 36.213 section 7.2.3).
        loss: f64 = 0.1, 0.0, 1.0;
        /// From a failed attempt to the next: eight subframes of 1 ms on LTE with frequency division.
        delay: Duration = Duration::from_millis(8), Duration::ZERO, Duration::from_secs(10);
        /// Attempts before the packet is lost; one of the values of maxHARQ-Tx (3GPP TS 36.331).
        attempts: u64 = 5, 1, 1_000;
    }
}

/// The retransmissions of one link layer.
#[derive(Clone, Debug)]
pub struct Arq {
    config: Config,
    /// When the head was offered first, and last.
    first_offer: Option<Instant>,
    last_offer: Instant,
    last_arrival: Instant,
}

impl Arq {
    /// The state of an unused bearer.
    pub fn new(config: Config, _setup: &Setup) -> Arq {
        Arq { config, first_offer: None, last_offer: Instant::ZERO, last_arrival: Instant::ZERO }
    }

    fn failures(&self, rng: &mut Rng) -> u64 {
        let mut failed = 0;
        while failed < self.config.attempts && rng.chance(self.config.loss) {
            failed += 1;
        }
        failed
    }
}

impl LayerControl for Arq {
    fn not_before(&mut self, now: Instant, _head: &Head) -> Option<Instant> {
        self.first_offer.get_or_insert(now);
        self.last_offer = now;
        None
    }

    fn on_transit(&mut self, transit: &mut Transit, _head: &Head, rng: &mut Rng) {
        let first = self.first_offer.take().unwrap_or(transit.leaves);
        if transit.lost {
            return;
        }
        let failed = self.failures(rng);
        let given_up = failed == self.config.attempts;
        // The medium has timed the first attempt.
        let repeated = failed - u64::from(given_up);
        if repeated > 0 {
            let waited = self.last_offer.since(first).min(self.config.delay);
            let airtime = transit.leaves.since(self.last_offer) + waited;
            transit.leaves = transit.leaves + airtime * repeated;
            transit.arrives = transit.arrives + (airtime + self.config.delay) * repeated;
        }
        transit.arrives = transit.arrives.max(self.last_arrival);
        // After a lost packet, the ones behind it arrive when it would have arrived.
        self.last_arrival = transit.arrives;
        transit.lost = given_up;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;
    use units::Bytes;

    /// Packets of 1 ms back to back, 20 ms away; the transit of each.
    fn send(config: Config, count: usize) -> Vec<Transit> {
        let mut layer = Arq::new(config, &Setup::default());
        let mut rng = Rng::new(9, "test");
        let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
        let mut now = Instant::ZERO;
        (0..count)
            .map(|_| {
                assert_eq!(layer.not_before(now, &head), None);
                let leaves = now + Duration::from_millis(1);
                let arrives = leaves + Duration::from_millis(20);
                let mut transit = Transit { leaves, arrives, lost: false, reordered: false };
                layer.on_transit(&mut transit, &head, &mut rng);
                now = transit.leaves;
                transit
            })
            .collect()
    }

    #[test]
    fn a_repeated_packet_arrives_a_retransmission_delay_and_an_airtime_later() {
        let transits = send(Config { loss: 0.3, ..Config::default() }, 1_000);
        let mut free = Instant::ZERO;
        let mut held_back_until = Instant::ZERO;
        for t in &transits {
            let repeats = t.leaves.since(free).0 / 1_000_000 - 1;
            let undisturbed = free + Duration::from_millis(21);
            let expected = (undisturbed + Duration::from_millis(9) * repeats).max(held_back_until);
            assert_eq!(t.arrives, expected);
            held_back_until = t.arrives;
            free = t.leaves;
        }
    }

    #[test]
    fn packets_arrive_in_the_order_in_which_they_left() {
        let transits = send(Config { loss: 0.5, ..Config::default() }, 10_000);
        assert!(transits.is_sorted_by_key(|t| t.arrives));
        assert!(transits.is_sorted_by_key(|t| t.leaves));
    }

    // Attempts of a packet that is not given up: the sum of p^n for n = 0 … attempts − 1.
    #[test]
    fn repetitions_use_airtime() {
        let transits = send(Config { loss: 0.5, attempts: 4, ..Config::default() }, 20_000);
        let per_packet = transits.last().map_or(0.0, |t| t.leaves.0 as f64) / 20_000.0 / 1e6;
        assert!((per_packet - 1.875).abs() < 0.02, "{per_packet}");
    }

    #[test]
    fn after_the_last_attempt_the_packet_is_lost() {
        let config = Config { loss: 0.3, attempts: 2, ..Config::default() };
        let lost = send(config, 20_000).iter().filter(|t| t.lost).count();
        // 0.3² with four standard deviations
        assert!((1_638..=1_962).contains(&lost), "{lost}");
        assert!(send(Config { loss: 1.0, ..Config::default() }, 10).iter().all(|t| t.lost));
        assert!(send(Config { loss: 0.0, ..Config::default() }, 10).iter().all(|t| !t.lost));
    }

    #[test]
    fn the_wait_for_an_opportunity_counts_as_airtime_up_to_one_delay() {
        let config = Config { loss: 1.0, attempts: 2, ..Config::default() };
        for (wait, airtime) in [(3, 3), (500, 8)] {
            let mut layer = Arq::new(config.clone(), &Setup::default());
            let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
            layer.not_before(Instant::ZERO, &head);
            let leaves = Instant::ZERO + Duration::from_millis(wait);
            layer.not_before(leaves, &head);
            let mut transit = Transit { leaves, arrives: leaves, lost: false, reordered: false };
            layer.on_transit(&mut transit, &head, &mut Rng::new(1, "test"));
            assert_eq!(transit.leaves, leaves + Duration::from_millis(airtime));
        }
    }
}
