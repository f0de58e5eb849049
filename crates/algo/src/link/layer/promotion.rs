//! Radio sleep: the first packet after a pause waits until the radio is active.
//!
//! signal: when the link was last busy · model: after `idle` without a packet the network's radio resource
//! control has released the connection; a new one takes `delay` (idle → connected promotion). Optionally
//! the phone dozes before (discontinuous reception, or 3G's shared channel), with a shorter delay ·
//! action: the head may not leave before the end of that delay.
//!
//! Sources: Jiang et al., IMC 2012, figure 5 (it affects pings more than 7 s apart, not bulk transfers);
//! 3GPP TS 36.331 section 5.3.3. The delay depends on the network (3G's is longer than LTE's); the default
//! is a round value, to be set by the scenario.
//!
//! Deviation: a layer sees one direction. Use it in the phone's uplink: the phone's packets activate the
//! radio, and the replies find it active.

use units::{Duration, Instant};

use super::{Head, LayerControl, Setup, Transit};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "promotion";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "after a pause the radio has to be woken first (RRC idle to connected)";
/// Where it is specified.
pub const SOURCE: &str = "Jiang et al. IMC 2012, figure 5; 3GPP TS 36.331 section 5.3.3";

config! {
    /// Times of falling asleep and waking.
    pub struct Config {
        /// Pause after which the connection is released: ping times jump beyond 7 s (IMC 2012, figure 5).
        idle: Duration = Duration::from_secs(7), Duration::ZERO, Duration::from_secs(3_600);
        /// Time to set up the connection again.
        delay: Duration = Duration::from_millis(500), Duration::ZERO, Duration::from_secs(60);
        /// Pause after which the phone dozes; not set: it does not doze.
        doze_after: Option<Duration> = None, Some(Duration::ZERO), Some(Duration::from_secs(3_600));
        /// Time to wake from dozing: a short cycle of discontinuous reception, 20 ms (TS 36.331, DRX-Config).
        doze_delay: Duration = Duration::from_millis(20), Duration::ZERO, Duration::from_secs(60);
        /// Whether the connection exists when the run begins.
        connected: bool = false;
    }
}

/// The radio's sleep state on one link.
#[derive(Clone, Debug)]
pub struct Promotion {
    config: Config,
    /// Last time at which the link was busy; `None`: never.
    busy: Option<Instant>,
    /// A promotion is under way until this time.
    awake_at: Option<Instant>,
}

impl Promotion {
    /// A phone before its first packet.
    pub fn new(config: Config, _setup: &Setup) -> Promotion {
        let busy = config.connected.then_some(Instant::ZERO);
        Promotion { config, busy, awake_at: None }
    }

    fn wake_time(&self, now: Instant) -> Duration {
        let Some(busy) = self.busy else { return self.config.delay };
        let pause = now.since(busy);
        if pause > self.config.idle {
            self.config.delay
        } else if self.config.doze_after.is_some_and(|after| pause > after) {
            self.config.doze_delay
        } else {
            Duration::ZERO
        }
    }
}

impl LayerControl for Promotion {
    fn not_before(&mut self, now: Instant, _head: &Head) -> Option<Instant> {
        if let Some(at) = self.awake_at {
            if now < at {
                return Some(at);
            }
            // A promotion ends even if its packet was dropped; the pause then counts from its end.
            self.awake_at = None;
            self.busy = Some(at);
        }
        let wait = self.wake_time(now);
        if wait == Duration::ZERO {
            return None;
        }
        self.awake_at = Some(now + wait);
        self.awake_at
    }

    fn on_transit(&mut self, transit: &mut Transit, _head: &Head, _rng: &mut Rng) {
        self.busy = Some(transit.leaves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    fn at(seconds: f64) -> Instant {
        Instant((seconds * 1e9) as u64)
    }

    /// Sends a packet at `now`; how long it had to wait.
    fn wait(layer: &mut Promotion, now: Instant) -> Duration {
        let head = Head { bytes: Bytes(84), backlog: Bytes(84) };
        let mut begin = now;
        while let Some(later) = layer.not_before(begin, &head) {
            assert!(later > begin);
            begin = later;
        }
        let leaves = begin + Duration::from_millis(1);
        let mut transit = Transit { leaves, arrives: leaves, lost: false, reordered: false };
        layer.on_transit(&mut transit, &head, &mut Rng::new(1, "test"));
        assert_eq!(transit.leaves, leaves);
        begin.since(now)
    }

    // IMC 2012, figure 5: ping times jump where the interval exceeds 7 s
    #[test]
    fn pings_up_to_7_s_apart_find_the_radio_awake_and_rarer_ones_wait_for_a_promotion() {
        for interval in 1..=15_u32 {
            let mut layer =
                Promotion::new(Config { connected: true, ..Config::default() }, &Setup::default());
            let mut now = 0.0;
            for _ in 0..5 {
                now += f64::from(interval);
                let expected = if interval > 7 { 500 } else { 0 };
                assert_eq!(
                    wait(&mut layer, at(now)),
                    Duration::from_millis(expected),
                    "{interval} s"
                );
            }
        }
    }

    #[test]
    fn a_bulk_transfer_waits_once_at_its_beginning() {
        let mut layer = Promotion::new(Config::default(), &Setup::default());
        assert_eq!(wait(&mut layer, at(1.0)), Duration::from_millis(500));
        for n in 0..1_000 {
            assert_eq!(wait(&mut layer, at(1.501 + 0.01 * f64::from(n))), Duration::ZERO);
        }
    }

    #[test]
    fn a_doze_costs_less_than_a_promotion() {
        let doze_after = Some(Duration::from_millis(100));
        let config = Config { doze_after, connected: true, ..Config::default() };
        let mut layer = Promotion::new(config, &Setup::default());
        assert_eq!(wait(&mut layer, at(0.05)), Duration::ZERO);
        assert_eq!(wait(&mut layer, at(1.0)), Duration::from_millis(20));
        assert_eq!(wait(&mut layer, at(9.0)), Duration::from_millis(500));
    }

    #[test]
    fn a_promotion_whose_packet_vanished_still_ends_and_its_connection_times_out() {
        let mut layer = Promotion::new(Config::default(), &Setup::default());
        let head = Head { bytes: Bytes(84), backlog: Bytes(84) };
        assert_eq!(layer.not_before(at(1.0), &head), Some(at(1.5)));
        assert_eq!(layer.clone().not_before(at(1.2), &head), Some(at(1.5)));
        assert_eq!(layer.clone().not_before(at(8.5), &head), None);
        assert_eq!(layer.not_before(at(8.6), &head), Some(at(9.1)));
    }
}
