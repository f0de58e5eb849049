//! mahimahi's packet-delivery traces.
//!
//! signal: the trace's times and the packet's length · model: each line is an opportunity to deliver 1,500
//! bytes at that millisecond. An opportunity carries several small packets or a part of one; without a
//! waiting packet it is lost. The trace repeats with its last value as period · action: the packet leaves
//! with the opportunity that carries its last byte.
//!
//! A packet waits in its queue until the first opportunity that it can use, as in mm-link, so a queue
//! discipline sees the whole wait. A packet in service is finished across all gaps.
//!
//! Sources: mahimahi, mm-link; Winstein et al., "Stochastic Forecasts Achieve High Throughput and Low
//! Delay over Cellular Networks", NSDI 2013. Deviations: opportunities fall on the exact millisecond
//! (mm-link polls a clock in whole milliseconds and is up to 1 ms late). Packets count with their IP
//! length (mm-link adds the 4 bytes of its TUN device's header). A trace without an opportunity, or with
//! a period of zero, never sends; its [`Slot::WaitUntil`] is an hour later.

use alloc::vec::Vec;

use units::{Bytes, Instant, Rate};

use super::service::FAR;
use super::{Grants, Head, Medium, Setup, Slot, State};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "trace";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "delivery opportunities from a mahimahi trace, looped";
/// Where it is specified.
pub const SOURCE: &str = "mahimahi mm-link; Winstein et al. NSDI 2013";

config! {
    /// No parameters. The scenario has the name of the trace.
    pub struct Config {}
}

/// Bytes of one opportunity (mahimahi's README: "one 1500-byte packet").
pub const OPPORTUNITY: u64 = 1_500;

/// Half the window over which [`Trace::state`] averages: one second in total, the usual resolution of
/// published figures.
const HALF_WINDOW: u64 = 500_000_000;

/// A link that follows a mahimahi trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Times of the opportunities within the lap, ns, ascending.
    due: Vec<u64>,
    period: u64,
    /// When the current lap began.
    lap: u64,
    /// Index of the next opportunity in the lap.
    next: usize,
    /// Bytes that the last used opportunity has left, and its time.
    left: u64,
    left_at: u64,
    sent: u64,
}

impl Trace {
    /// The link at the beginning of its trace.
    pub fn new(_config: Config, setup: &Setup) -> Trace {
        let mut due: Vec<u64> =
            setup.opportunities.iter().map(|ms| ms.saturating_mul(1_000_000)).collect();
        due.sort_unstable();
        let period = due.last().copied().unwrap_or(0);
        if period == 0 {
            due.clear();
        }
        Trace { due, period, lap: 0, next: 0, left: 0, left_at: 0, sent: 0 }
    }

    /// Skips the opportunities before `now`.
    fn skip_to(&mut self, now: u64) {
        // The last opportunity of a lap falls on the first instant of the next one: a lap ends after it.
        let since = now.saturating_sub(self.lap);
        if since > self.period {
            self.lap += (since - 1) / self.period * self.period;
            self.next = 0;
        }
        let since = now.saturating_sub(self.lap);
        // Steps of doubling length, then halving ones: the cost is logarithmic in the skipped length.
        let (mut low, mut step) = (self.next, 1);
        while low + step < self.due.len() && self.due[low + step] < since {
            low += step;
            step *= 2;
        }
        let high = (low + step).min(self.due.len());
        self.next = low + self.due[low..high].partition_point(|&due| due < since);
        if self.next == self.due.len() {
            self.wrap();
        }
    }

    fn wrap(&mut self) {
        self.next = 0;
        self.lap = self.lap.saturating_add(self.period);
    }

    /// Uses `count` opportunities; returns when the last of them is due.
    fn take(&mut self, count: u64) -> u64 {
        let size = self.due.len() as u64;
        let last = (self.next as u64).saturating_add(count.saturating_sub(1));
        self.lap = self.lap.saturating_add((last / size).saturating_mul(self.period));
        self.next = (last % size) as usize;
        let at = self.lap.saturating_add(self.due[self.next]);
        self.next += 1;
        if self.next == self.due.len() {
            self.wrap();
        }
        at
    }

    /// Opportunities due before `at`, from the beginning of the run.
    fn count_before(&self, at: u64) -> u64 {
        let lap = at / self.period;
        let within = self.due.partition_point(|&due| due < at % self.period);
        lap.saturating_mul(self.due.len() as u64).saturating_add(within as u64)
    }
}

impl Medium for Trace {
    #[inline]
    fn offer(&mut self, now: Instant, head: &Head, _rng: &mut Rng) -> Slot {
        if self.due.is_empty() {
            return Slot::WaitUntil(now + FAR);
        }
        // The rest of an opportunity is for packets that were waiting at its time, not for later ones.
        let left = if self.left_at == now.0 { self.left } else { 0 };
        let bytes = head.bytes.0;
        if bytes <= left {
            self.left = left - bytes;
            self.sent = self.sent.saturating_add(bytes);
            return Slot::Leaves(now);
        }
        self.skip_to(now.0);
        let first = self.lap.saturating_add(self.due[self.next]);
        if left == 0 && first > now.0 {
            return Slot::WaitUntil(Instant(first));
        }
        let count = (bytes - left).div_ceil(OPPORTUNITY);
        let at = self.take(count);
        self.left = left.saturating_add(count.saturating_mul(OPPORTUNITY)) - bytes;
        self.left_at = at;
        self.sent = self.sent.saturating_add(bytes);
        Slot::Leaves(Instant(at))
    }

    fn on_backlog(&mut self, _now: Instant, _backlog: Bytes) {}

    fn take_grants(&mut self, _now: Instant) -> Grants {
        Grants {
            granted: Bytes(core::mem::take(&mut self.sent)),
            padding: Bytes::ZERO,
            waiting: None,
        }
    }

    fn state(&self, now: Instant) -> State {
        if self.due.is_empty() {
            return State { rate: Some(Rate(0)), state: None };
        }
        let from = now.0.saturating_sub(HALF_WINDOW);
        let until = from.saturating_add(2 * HALF_WINDOW);
        let count = self.count_before(until).saturating_sub(self.count_before(from));
        State { rate: Some(Rate(count.saturating_mul(OPPORTUNITY * 8))), state: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    const MS: u64 = 1_000_000;

    fn link(opportunities: &[u64]) -> Trace {
        Trace::new(Config {}, &Setup { opportunities: opportunities.to_vec(), rates: vec![] })
    }

    /// Asks until the packet is sent.
    fn send(link: &mut Trace, mut now: u64, bytes: u64) -> u64 {
        let mut rng = Rng::new(1, "test");
        loop {
            let head = Head { bytes: Bytes(bytes), backlog: Bytes(bytes) };
            match link.offer(Instant(now), &head, &mut rng) {
                Slot::Leaves(at) => return at.0,
                Slot::WaitUntil(at) => {
                    assert!(at.0 > now);
                    now = at.0;
                }
            }
        }
    }

    fn departures(link: &mut Trace, bytes: u64, count: usize) -> Vec<u64> {
        let mut now = 0;
        (0..count)
            .map(|_| {
                now = send(link, now, bytes);
                now
            })
            .collect()
    }

    // mahimahi's README: a file that contains just "1" is 12 Mbit/s
    #[test]
    fn a_trace_of_12_mbit_s_sends_a_full_packet_every_millisecond() {
        let mut link = link(&[1]);
        assert_eq!(departures(&mut link, 1_500, 4), [MS, 2 * MS, 3 * MS, 4 * MS]);
        assert_eq!(link.state(Instant(1_000 * MS)).rate, Some(Rate(12_000_000)));
    }

    // mm-link repeats the file with its last value as period; a 0 then falls on the same instant as the last line
    #[test]
    fn a_trace_repeats_with_its_last_value_as_period() {
        let mut link = link(&[0, 3, 3, 10]);
        let times: Vec<u64> = departures(&mut link, 1_500, 9).iter().map(|t| t / MS).collect();
        assert_eq!(times, [0, 3, 3, 10, 10, 13, 13, 20, 20]);
    }

    #[test]
    fn small_packets_share_an_opportunity_and_one_of_them_may_end_in_the_next() {
        let mut link = link(&[5]);
        let times: Vec<u64> = departures(&mut link, 400, 8).iter().map(|t| t / MS).collect();
        // 3 × 400 in the first, the fourth ends in the second, 3,000 bytes carry seven packets in all
        assert_eq!(times, [5, 5, 5, 10, 10, 10, 10, 15]);
    }

    #[test]
    fn a_large_packet_takes_several_opportunities_and_leaves_with_the_last() {
        let mut link = link(&[1, 4, 9]);
        assert_eq!(send(&mut link, 0, 4_000), 9 * MS);
        // 500 bytes of the third opportunity are left for who waits then
        assert_eq!(send(&mut link, 9 * MS, 500), 9 * MS);
        assert_eq!(send(&mut link, 9 * MS, 1), 10 * MS);
    }

    #[test]
    fn opportunities_without_a_waiting_packet_are_lost() {
        let mut link = link(&[1]);
        assert_eq!(send(&mut link, 0, 100), MS);
        // the other 1,400 bytes of that opportunity are gone a nanosecond later, so are those of the next 99
        assert_eq!(send(&mut link, MS + 1, 100), 2 * MS);
        assert_eq!(send(&mut link, 100 * MS, 1_500), 100 * MS);
        assert_eq!(send(&mut link, 100 * MS, 1_500), 101 * MS);
    }

    #[test]
    fn after_an_idle_time_of_many_laps_the_phase_is_right() {
        let times: Vec<u64> = (1..=1_000).map(|k| k * 7 + k % 3).collect();
        let period = times[999];
        for idle in [1, 6, 7, 8, 3_000, period - 1, period, period + 1, 5 * period + 123] {
            let mut link = link(&times);
            send(&mut link, 0, 1_500);
            let expected = (0..7)
                .flat_map(|lap| times.iter().map(move |t| lap * period + t))
                .find(|t| *t >= idle && *t > times[0]);
            assert_eq!(Some(send(&mut link, idle * MS, 1_500) / MS), expected, "{idle}");
        }
    }

    #[test]
    fn a_saturating_sender_gets_every_opportunity_and_no_byte_more() {
        let mut link = link(&[2, 3, 3, 7, 11]);
        let mut now = 0;
        let mut bytes = 0;
        for size in [1_500, 52, 900, 1_400].iter().cycle() {
            now = send(&mut link, now, *size);
            if now > 1_100 * MS {
                break;
            }
            bytes += size;
        }
        assert!(bytes <= 500 * 1_500 && bytes > 499 * 1_500, "{bytes}");
        assert_eq!(link.take_grants(Instant(now)).granted.0 / 1_500, 500);
    }

    #[test]
    fn an_empty_trace_never_sends() {
        for trace in [&[][..], &[0], &[0, 0]] {
            let mut link = link(trace);
            let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
            let slot = link.offer(Instant(7), &head, &mut Rng::new(1, "test"));
            assert_eq!(slot, Slot::WaitUntil(Instant(7) + FAR));
        }
    }
}
