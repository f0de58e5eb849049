//! A rate that changes at given times.
//!
//! signal: the packet's length · model: a list of (time, rate); each rate is valid until the time of the
//! next one, and times count from the first · action: the packet leaves when its bits are served, across
//! as many changes as that takes. A packet that finds the rate at zero waits in its queue; a packet in
//! service pauses.
//!
//! The list repeats (`repeat`). Its last step lasts as long as the step before it, or as `period` sets; a
//! list of one is a constant rate. Without repetition the last rate stays forever: if it is zero, the
//! packet in service leaves at the end of time.
//!
//! An empty list, or one of zeros, never sends; its [`Slot::WaitUntil`] is an hour later.

use alloc::vec::Vec;

use units::{Bytes, Duration, Instant, Rate};

use super::service::{FAR, Service};
use super::{Grants, Head, Medium, Setup, Slot, State};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "rates";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "rates over time from a file, looped";
/// Where it is specified.
pub const SOURCE: &str = "closed form: the integral of the rate over time";

config! {
    /// How the list repeats. The scenario has the name of the file.
    pub struct Config {
        /// Repeats the list after the last step; otherwise its rate stays.
        repeat: bool = true;
        /// Time after which the list repeats; not set: the last step lasts as long as the one before it.
        period: Option<Duration> = None, Some(Duration::from_millis(1)), Some(Duration::from_secs(31_536_000));
    }
}

/// A link whose rate follows a file.
#[derive(Clone, Debug)]
pub struct Rates {
    /// (beginning within the lap in nanoseconds, bit/s), ascending; the first begins at 0.
    steps: Vec<(u64, u64)>,
    /// `u64::MAX`: there is no second lap.
    period: u64,
    /// Nanobits served in one lap.
    lap_work: u128,
    /// When the current lap began.
    lap: u64,
    current: usize,
    service: Service,
}

impl Rates {
    /// The link at the beginning of its list.
    pub fn new(config: Config, setup: &Setup) -> Rates {
        let mut given = setup.rates.clone();
        given.sort_by_key(|(at, _)| *at);
        let origin = given.first().map_or(0, |(at, _)| at.0);
        let mut steps: Vec<(u64, u64)> = Vec::with_capacity(given.len());
        for (at, rate) in given {
            let at = at.0 - origin;
            // Of two rates for one time the later line counts.
            if steps.last().is_some_and(|(last, _)| *last == at) {
                steps.pop();
            }
            steps.push((at, rate.0));
        }
        let period = match (config.repeat, config.period, steps.as_slice()) {
            (false, _, _) | (true, None, [] | [_]) => u64::MAX,
            (true, Some(period), _) => period.0.max(1),
            (true, None, [.., before, last]) => last.0.saturating_add(last.0 - before.0),
        };
        steps.retain(|(at, _)| *at < period);
        if steps.iter().all(|(_, rate)| *rate == 0) {
            steps.clear();
        }
        let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([period]);
        let lap_work = steps
            .iter()
            .zip(ends)
            .map(|((at, rate), end)| u128::from(*rate) * u128::from(end - at))
            .sum();
        Rates { steps, period, lap_work, lap: 0, current: 0, service: Service::default() }
    }

    /// The step that is valid at `offset` within a lap.
    fn step_at(&self, offset: u64) -> usize {
        self.steps.partition_point(|(at, _)| *at <= offset).saturating_sub(1)
    }

    /// Moves to the step that is valid at `now`.
    fn seek(&mut self, now: u64) {
        let since = now.saturating_sub(self.lap);
        if since >= self.period {
            self.lap += since / self.period * self.period;
            self.current = 0;
        }
        if now >= self.end() {
            self.current = self.step_at(now.saturating_sub(self.lap));
        }
    }

    /// When the current step ends.
    fn end(&self) -> u64 {
        let end = self.steps.get(self.current + 1).map_or(self.period, |(at, _)| *at);
        self.lap.saturating_add(end)
    }

    fn advance(&mut self) {
        self.current += 1;
        if self.current == self.steps.len() {
            self.current = 0;
            self.lap = self.lap.saturating_add(self.period);
        }
    }
}

impl Medium for Rates {
    #[inline]
    fn offer(&mut self, now: Instant, head: &Head, _rng: &mut Rng) -> Slot {
        if self.steps.is_empty() {
            return Slot::WaitUntil(now + FAR);
        }
        self.seek(now.0);
        if self.steps[self.current].1 == 0 {
            for _ in 0..self.steps.len() {
                let end = self.end();
                if end == u64::MAX {
                    return Slot::WaitUntil(now + FAR);
                }
                self.advance();
                if self.steps[self.current].1 > 0 {
                    return Slot::WaitUntil(Instant(end));
                }
            }
        }
        let mut work = self.service.start(head.bytes);
        let mut at = now.0;
        loop {
            let end = self.end();
            match self.service.run(work, self.steps[self.current].1, end.saturating_sub(at)) {
                Ok(needed) => return Slot::Leaves(Instant(at.saturating_add(needed))),
                Err(_) if end == u64::MAX => return Slot::Leaves(Instant(u64::MAX)),
                Err(left) => work = left,
            }
            at = end;
            self.advance();
            // Many whole laps are one division: a packet costs at most the steps of one lap.
            if self.current == 0 && u128::from(work) > self.lap_work {
                let laps = (u128::from(work) - 1) / self.lap_work;
                work -= (laps * self.lap_work) as u64;
                let skipped = self.period.saturating_mul(u64::try_from(laps).unwrap_or(u64::MAX));
                self.lap = self.lap.saturating_add(skipped);
                at = self.lap;
            }
        }
    }

    fn on_backlog(&mut self, _now: Instant, _backlog: Bytes) {}

    fn take_grants(&mut self, _now: Instant) -> Grants {
        Grants { granted: self.service.take_sent(), padding: Bytes::ZERO, waiting: None }
    }

    fn state(&self, now: Instant) -> State {
        let rate = self.steps.get(self.step_at(now.0 % self.period)).map_or(0, |(_, rate)| *rate);
        State { rate: Some(Rate(rate)), state: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    const MS: u64 = 1_000_000;

    fn link(config: Config, steps: &[(u64, u64)]) -> Rates {
        let rates = steps.iter().map(|(ms, rate)| (Instant(ms * MS), Rate(*rate))).collect();
        Rates::new(config, &Setup { opportunities: vec![], rates })
    }

    fn send(link: &mut Rates, now: u64, bytes: u64) -> Slot {
        let head = Head { bytes: Bytes(bytes), backlog: Bytes(bytes) };
        link.offer(Instant(now), &head, &mut Rng::new(1, "test"))
    }

    #[test]
    fn a_packet_in_service_is_served_at_each_rate_for_its_time() {
        // 12,000 bits: 8,000 in the first millisecond, none in the second, the rest at 2 Mbit/s
        let mut link = link(Config::default(), &[(0, 8_000_000), (1, 0), (2, 2_000_000), (10, 0)]);
        assert_eq!(send(&mut link, 0, 1_500), Slot::Leaves(Instant(4 * MS)));
        assert_eq!(link.state(Instant(3 * MS)).rate, Some(Rate(2_000_000)));
    }

    #[test]
    fn a_packet_that_finds_the_rate_at_zero_waits_for_the_next_step() {
        let mut link = link(Config::default(), &[(0, 0), (5, 0), (9, 12_000_000), (12, 0)]);
        assert_eq!(send(&mut link, MS, 1_500), Slot::WaitUntil(Instant(9 * MS)));
        assert_eq!(send(&mut link, 9 * MS, 1_500), Slot::Leaves(Instant(10 * MS)));
        // the last step lasts as long as the one before it, 3 ms: the next lap begins at 15 ms
        assert_eq!(send(&mut link, 13 * MS, 1_500), Slot::WaitUntil(Instant(24 * MS)));
    }

    #[test]
    fn the_list_repeats_after_its_period() {
        let config = Config { period: Some(Duration::from_millis(4)), ..Config::default() };
        let mut link = link(config, &[(0, 12_000_000), (2, 6_000_000)]);
        assert_eq!(send(&mut link, 0, 6_000), Slot::Leaves(Instant(5 * MS)));
        assert_eq!(link.state(Instant(4_001 * MS)).rate, Some(Rate(12_000_000)));
        assert_eq!(send(&mut link, 4_002 * MS, 1_500), Slot::Leaves(Instant(4_004 * MS)));
    }

    #[test]
    fn without_repetition_the_last_rate_stays() {
        let config = Config { repeat: false, ..Config::default() };
        let mut link = link(config, &[(0, 1_000_000), (1, 12_000_000)]);
        assert_eq!(send(&mut link, 3_600_000 * MS, 1_500), Slot::Leaves(Instant(3_600_001 * MS)));
    }

    #[test]
    fn times_count_from_the_first_line() {
        let mut link = link(Config::default(), &[(100, 12_000_000), (101, 6_000_000)]);
        // 12,000 bits in the first millisecond, 6,000 in the second
        assert_eq!(send(&mut link, 0, 2_250), Slot::Leaves(Instant(2 * MS)));
    }

    #[test]
    fn a_packet_of_many_laps_leaves_when_the_integral_of_the_rate_reaches_its_length() {
        // a lap of 3 ms serves 2,000 + 0 + 1,000 bits; 80,000 bits end after 26 laps and a millisecond
        let mut link = link(Config::default(), &[(0, 2_000_000), (1, 0), (2, 1_000_000)]);
        assert_eq!(send(&mut link, 0, 10_000), Slot::Leaves(Instant((26 * 3 + 1) * MS)));
        assert_eq!(send(&mut link, 79 * MS, 125), Slot::WaitUntil(Instant(80 * MS)));
        assert_eq!(send(&mut link, 80 * MS, 125), Slot::Leaves(Instant(81 * MS)));
    }

    #[test]
    fn a_saturating_sender_gets_the_integral_of_the_rate() {
        let mut link =
            link(Config::default(), &[(0, 7_000_001), (13, 3_333_333), (29, 11_000_003)]);
        let (mut now, mut bits) = (0, 0);
        while let Slot::Leaves(at) = send(&mut link, now, 1_411) {
            if at.0 > 45_000 * MS {
                break;
            }
            now = at.0;
            bits += 1_411 * 8;
        }
        let lap = 7_000_001 * 13 + 3_333_333 * 16 + 11_000_003 * 16;
        assert!((bits as f64 / (lap as f64) - 1.0).abs() < 1e-3, "{bits} {lap}");
    }

    #[test]
    fn an_empty_list_or_one_of_zeros_never_sends() {
        for steps in [&[][..], &[(0, 0)], &[(0, 0), (5, 0)]] {
            let mut link = link(Config::default(), steps);
            assert_eq!(send(&mut link, 7, 1_500), Slot::WaitUntil(Instant(7) + FAR));
        }
    }
}
