//! Outages of a link: handovers, tunnels, a cell out of reach.
//!
//! signal: the time · model: outages of the same length, periodic (each moved by up to `jitter`) or at
//! listed times · action: the head waits until the outage is over; a packet in transmission when one begins
//! is finished after it. No packet is lost: waiting packets are forwarded afterwards.
//!
//! Random numbers are drawn when packets pass: outages without a packet share one draw, and those before
//! the first packet lie in the middle of their range.
//!
//! Source: 3GPP TS 36.300 section 10.1.2 (forwarding between base stations at a handover). No standard
//! interval or length is published; the defaults are visible in a run of a minute or two.

use alloc::vec::Vec;

use units::{Duration, Instant};

use super::{Head, LayerControl, Setup, Transit};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "outage";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "periodic or listed outages and handovers; packets wait, none is lost";
/// Where it is specified.
pub const SOURCE: &str = "3GPP TS 36.300 section 10.1.2 (handover with forwarding)";

config! {
    /// Times and length of the outages.
    pub struct Config {
        /// From the beginning of one outage to that of the next.
        every: Duration = Duration::from_secs(30), Duration::from_millis(1), Duration::from_secs(86_400);
        /// Length of each; at most nine tenths of `every`, so that some packets pass.
        length: Duration = Duration::from_secs(1), Duration::ZERO, Duration::from_secs(3_600);
        /// When the first begins; not set: after one `every`.
        first: Option<Duration> = None, Some(Duration::ZERO), Some(Duration::from_secs(86_400));
        /// Largest random shift of each, earlier or later; bounded so that outages stay apart.
        jitter: Duration = Duration::ZERO, Duration::ZERO, Duration::from_secs(86_400);
        /// Seconds at which outages begin, instead of periodic ones.
        at: Vec<f64> = Vec::new();
    }
}

/// The outages of one link.
#[derive(Clone, Debug)]
pub struct Outage {
    every: u64,
    length: u64,
    first: u64,
    jitter: u64,
    /// Listed outages as (beginning, end), merged; empty: periodic.
    listed: Vec<(u64, u64)>,
    /// The current or next outage, by number and by time.
    number: u64,
    window: (u64, u64),
    /// Position of the next outage in its range, 0 … 1, and whether that has been used.
    position: f64,
    used: bool,
    /// When the packet in service was offered.
    offered: Instant,
}

impl Outage {
    /// The schedule at the beginning of the run.
    pub fn new(config: Config, _setup: &Setup) -> Outage {
        let is_listed = !config.at.is_empty();
        let every = config.every.0.max(1);
        let length = if is_listed { config.length.0 } else { config.length.0.min(every / 10 * 9) };
        let mut starts: Vec<u64> = config.at.iter().map(|seconds| (seconds * 1e9) as u64).collect();
        starts.sort_unstable();
        let mut listed: Vec<(u64, u64)> = Vec::with_capacity(starts.len());
        for start in starts {
            match listed.last_mut() {
                Some((_, end)) if *end >= start => *end = start.saturating_add(length),
                _ => listed.push((start, start.saturating_add(length))),
            }
        }
        let mut outage = Outage {
            every,
            length,
            first: config.first.map_or(every, |first| first.0),
            jitter: config.jitter.0.min(every.saturating_sub(length) / 2),
            listed,
            number: 0,
            window: (u64::MAX, u64::MAX),
            position: 0.5,
            used: false,
            offered: Instant::ZERO,
        };
        if length > 0 {
            outage.window = outage.place(0);
        }
        outage
    }

    fn place(&mut self, number: u64) -> (u64, u64) {
        if !self.listed.is_empty() {
            let index = usize::try_from(number).unwrap_or(usize::MAX);
            return self.listed.get(index).copied().unwrap_or((u64::MAX, u64::MAX));
        }
        self.used = self.jitter > 0;
        let middle = self.first.saturating_add(number.saturating_mul(self.every));
        // Beyond the largest time there is none; the shift must not bring it back.
        if middle == u64::MAX {
            return (u64::MAX, u64::MAX);
        }
        let moved = (2.0 * self.jitter as f64 * self.position) as u64;
        let start = middle.saturating_add(moved).saturating_sub(self.jitter);
        (start, start.saturating_add(self.length))
    }

    /// Moves to the outage at `now`, or to the next one.
    fn seek(&mut self, now: u64) {
        if now < self.window.1 || self.window.0 == u64::MAX {
            return;
        }
        if self.listed.is_empty() {
            // Skip all outages whose latest possible end has passed.
            let latest = self.first.saturating_add(self.length).saturating_add(self.jitter);
            self.number = self.number.max(now.saturating_sub(latest) / self.every);
        }
        while now >= self.window.1 && self.window.0 != u64::MAX {
            self.number += 1;
            self.window = self.place(self.number);
        }
    }
}

impl LayerControl for Outage {
    fn not_before(&mut self, now: Instant, _head: &Head) -> Option<Instant> {
        self.offered = now;
        self.seek(now.0);
        (self.window.0 <= now.0 && now.0 < self.window.1).then_some(Instant(self.window.1))
    }

    fn on_transit(&mut self, transit: &mut Transit, _head: &Head, rng: &mut Rng) {
        if self.used {
            self.position = rng.uniform();
            self.used = false;
        }
        if self.window.0 <= self.offered.0 || self.window.0 >= transit.leaves.0 {
            return;
        }
        let mut held = self.window.1 - self.window.0;
        if self.listed.is_empty() {
            // Further outages during its service, at their mean distance: such long packets are rare.
            let rest = transit.leaves.0 - self.window.0;
            let gap = (self.every - self.length).max(1);
            held = held.saturating_add((rest - 1) / gap * self.length);
        } else {
            let index = usize::try_from(self.number).unwrap_or(usize::MAX).saturating_add(1);
            for (start, end) in self.listed.iter().skip(index) {
                if *start >= transit.leaves.0.saturating_add(held) {
                    break;
                }
                held = held.saturating_add(end - start);
            }
        }
        transit.leaves = transit.leaves + Duration(held);
        transit.arrives = transit.arrives + Duration(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use units::Bytes;

    #[test]
    fn at_the_end_of_time_there_is_no_further_outage() {
        // The shift is larger than an outage, so a saturated time would end before `now` for ever.
        let config = Config {
            every: Duration::from_secs(10),
            length: Duration::from_millis(1),
            jitter: Duration::from_secs(4),
            ..Config::default()
        };
        let mut layer = Outage::new(config, &Setup::default());
        let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
        assert_eq!(layer.not_before(Instant(u64::MAX), &head), None);
        assert_eq!(layer.not_before(Instant(u64::MAX), &head), None);
    }

    /// Offers packets of 10 ms back to back for so many seconds: when each began and left.
    fn run(config: Config, seconds: u64, seed: u64) -> Vec<(u64, u64)> {
        let mut layer = Outage::new(config, &Setup::default());
        let mut rng = Rng::new(seed, "test");
        let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
        let mut now = Instant::ZERO;
        let mut sent = Vec::new();
        while now < Instant::ZERO + Duration::from_secs(seconds) {
            while let Some(later) = layer.not_before(now, &head) {
                assert!(later > now);
                now = later;
            }
            let leaves = now + Duration::from_millis(10);
            let mut transit = Transit { leaves, arrives: leaves, lost: false, reordered: false };
            layer.on_transit(&mut transit, &head, &mut rng);
            assert!(!transit.lost && transit.arrives == transit.leaves);
            sent.push((now.0 / 1_000_000, transit.leaves.0 / 1_000_000));
            now = transit.leaves;
        }
        sent
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn nothing_leaves_during_a_periodic_outage_and_nothing_is_lost() {
        let sent = run(Config { every: ms(1_000), length: ms(200), ..Config::default() }, 10, 1);
        for (_, left) in &sent {
            let phase = left % 1_000;
            assert!(*left <= 1_000 || phase == 0 || phase > 200, "{left}");
        }
        // 1,000 ms before the first outage, then 800 of each 1,000, at 10 ms a packet
        assert_eq!(sent.len(), (1_000 + 9 * 800) / 10);
    }

    #[test]
    fn a_packet_in_service_is_finished_after_the_outage() {
        let config = Config { at: vec![0.025], length: ms(300), ..Config::default() };
        assert_eq!(run(config, 1, 1)[..4], [(0, 10), (10, 20), (20, 330), (330, 340)]);
    }

    #[test]
    fn listed_outages_that_overlap_are_one() {
        let config = Config { at: vec![0.7, 0.1, 0.2], length: ms(300), ..Config::default() };
        let sent = run(config, 2, 1);
        let gaps: Vec<_> =
            sent.windows(2).map(|w| (w[0].1, w[1].0)).filter(|(a, b)| a != b).collect();
        assert_eq!(gaps, [(100, 500), (700, 1_000)]);
    }

    #[test]
    fn a_packet_that_takes_longer_than_the_interval_meets_several_outages() {
        let config =
            Config { every: ms(6), length: ms(2), first: Some(ms(6)), ..Config::default() };
        // 10 ms: 6 before the first outage, 4 between it and the second, at whose edge it ends
        assert_eq!(run(config, 1, 1)[0], (0, 12));
        let config = Config { at: vec![0.006, 0.012, 0.015], length: ms(2), ..Config::default() };
        assert_eq!(run(config, 1, 1)[..2], [(0, 12), (14, 26)]);
    }

    #[test]
    fn jitter_moves_each_outage_within_its_range_and_differently_with_another_seed() {
        let config =
            Config { every: ms(1_000), length: ms(200), jitter: ms(300), ..Config::default() };
        let starts = |seed| -> Vec<u64> {
            let sent = run(config.clone(), 20, seed);
            sent.iter().filter(|(from, to)| to - from > 100).map(|(from, _)| *from).collect()
        };
        let (one, other) = (starts(1), starts(2));
        assert!(one.len() >= 15 && one != other);
        for start in &one {
            let from_middle = (*start as i64 + 500) % 1_000 - 500;
            assert!(from_middle.abs() <= 310, "{start}");
        }
    }

    #[test]
    fn after_an_idle_day_the_phase_is_right() {
        let mut layer = Outage::new(Config::default(), &Setup::default());
        let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
        let day = Duration::from_secs(86_400);
        assert_eq!(layer.not_before(Instant(day.0 - 1), &head), None);
        assert_eq!(
            layer.not_before(Instant(day.0), &head),
            Some(Instant(day.0) + Duration::from_secs(1))
        );
        assert_eq!(layer.not_before(Instant(day.0) + Duration::from_secs(1), &head), None);
    }
}
