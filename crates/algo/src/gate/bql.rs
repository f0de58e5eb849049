//! Byte queue limits: the limit is what the device completes between two of its completion runs.
//!
//! signal: bytes that passed, bytes that the device completed · model: the device starved (the queue
//! was over the limit and all of it was completed), or there is slack (the smallest excess over the
//! need within a second) · action: the limit grows by the missing bytes and falls by the slack.
//!
//! Source: Linux `lib/dynamic_queue_limits.c` (Herbert, 2011). Deviations: counters are 64 bits wide
//! and do not wrap; time is in nanoseconds, not jiffies; a completion of more than is queued, which
//! is a kernel bug there, counts as a completion of all.

use units::{Bytes, Duration, Instant};

use super::{Event, Gate, Limit, Setup, State};

/// Name in the table.
pub const NAME: &str = "bql";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "byte queue limits: what the device completes at a time";
/// Where it is specified.
pub const SOURCE: &str = "Linux lib/dynamic_queue_limits.c";

config! {
    /// The files in `/sys/class/net/*/queues/tx-*/byte_queue_limits`.
    pub struct Config {
        /// Smallest limit (`limit_min`, 0 in the kernel).
        limit_min: Bytes = Bytes(0), Bytes(0), Bytes(1_879_048_192);
        /// Largest limit (`limit_max`; the kernel's is DQL_MAX_LIMIT, half of 32 bits minus one object).
        limit_max: Bytes = Bytes(1_879_048_192), Bytes(0), Bytes(1_879_048_192);
        /// Interval over which the smallest slack counts (`hold_time`, HZ ticks in the kernel).
        hold_time: Duration = Duration::from_millis(1_000), Duration::from_millis(1), Duration::from_secs(60);
    }
}

/// The byte queue limits of one device queue; names are the kernel's.
#[derive(Clone, Debug)]
pub struct Bql {
    min_limit: u64,
    max_limit: u64,
    slack_hold_time: Duration,
    limit: u64,
    num_queued: u64,
    num_completed: u64,
    last_obj_cnt: u64,
    prev_ovlimit: u64,
    prev_num_queued: u64,
    prev_last_obj_cnt: u64,
    lowest_slack: u64,
    slack_start_time: Instant,
}

impl Bql {
    /// For an idle device: limit 0, which lets one packet pass.
    pub fn new(config: Config, _setup: &Setup) -> Bql {
        let min_limit = config.limit_min.0;
        Bql {
            min_limit,
            max_limit: config.limit_max.0.max(min_limit),
            slack_hold_time: config.hold_time,
            limit: min_limit,
            num_queued: 0,
            num_completed: 0,
            last_obj_cnt: 0,
            prev_ovlimit: 0,
            prev_num_queued: 0,
            prev_last_obj_cnt: 0,
            lowest_slack: u64::MAX,
            slack_start_time: Instant::ZERO,
        }
    }

    fn queued(&self) -> u64 {
        self.num_queued.saturating_sub(self.num_completed)
    }

    /// Updates the limit: the kernel's `dql_completed`.
    fn complete(&mut self, now: Instant, count: u64) {
        let count = count.min(self.queued());
        let completed = self.num_completed + count;
        let mut limit = self.limit;
        let mut ovlimit = self.queued().saturating_sub(limit);
        let inprogress = self.num_queued - completed;
        let prev_inprogress = self.prev_num_queued.saturating_sub(self.num_completed);
        let all_prev_completed = completed >= self.prev_num_queued;

        if (ovlimit > 0 && inprogress == 0) || (self.prev_ovlimit > 0 && all_prev_completed) {
            // Starved: add what was both queued and completed since, and what was over the limit.
            let burst = completed.saturating_sub(self.prev_num_queued);
            limit = limit.saturating_add(burst).saturating_add(self.prev_ovlimit);
            self.slack_start_time = now;
            self.lowest_slack = u64::MAX;
        } else if inprogress > 0 && prev_inprogress > 0 && !all_prev_completed {
            // Busy the whole time: twice the completed bytes are enough, and only that part of the
            // last packet was needed that crossed the limit.
            let slack =
                limit.saturating_add(self.prev_ovlimit).saturating_sub(count.saturating_mul(2));
            let of_last = if self.prev_ovlimit > 0 {
                self.prev_last_obj_cnt.saturating_sub(self.prev_ovlimit)
            } else {
                0
            };
            self.lowest_slack = self.lowest_slack.min(slack.max(of_last));
            if now.since(self.slack_start_time) > self.slack_hold_time {
                limit = limit.saturating_sub(self.lowest_slack);
                self.slack_start_time = now;
                self.lowest_slack = u64::MAX;
            }
        }

        let limit = limit.clamp(self.min_limit, self.max_limit);
        if limit != self.limit {
            self.limit = limit;
            ovlimit = 0;
        }
        self.prev_ovlimit = ovlimit;
        self.prev_last_obj_cnt = self.last_obj_cnt;
        self.num_completed = completed;
        self.prev_num_queued = self.num_queued;
    }
}

impl Gate for Bql {
    fn on_event(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Passed { bytes, .. } => {
                self.last_obj_cnt = bytes.0;
                self.num_queued = self.num_queued.saturating_add(bytes.0);
            }
            Event::Completed { bytes } => self.complete(now, bytes.0),
            Event::Report { .. } | Event::Probe { .. } => {}
        }
    }
    fn limit(&self, _now: Instant) -> Limit {
        Limit::Bytes(Bytes(self.limit))
    }
    fn open(&self, _now: Instant) -> bool {
        // dql_avail: limit + completed − queued ≥ 0
        self.queued() <= self.limit
    }
    fn next_wakeup(&self, _now: Instant) -> Option<Instant> {
        None
    }
    fn state(&self, _now: Instant) -> State {
        State { occupancy: Some(Bytes(self.queued())), rate: None, limit: Some(Bytes(self.limit)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bql() -> Bql {
        Bql::new(Config::default(), &Setup::default())
    }

    /// Lets packets of 1,500 bytes pass while the gate is open.
    fn fill(gate: &mut Bql, now: Instant) -> u64 {
        let mut packets = 0;
        while gate.open(now) {
            gate.on_event(now, &Event::Passed { bytes: Bytes(1_500), flow: 0, bare: false });
            packets += 1;
        }
        packets
    }

    #[test]
    fn one_packet_passes_a_limit_of_zero() {
        let mut gate = bql();
        assert_eq!(fill(&mut gate, Instant::ZERO), 1);
    }

    #[test]
    fn a_starved_device_gets_more_each_time() {
        // dql_completed's first branch: over the limit of 0 by 1,500 and all done: 1,500 more, which then lets two
        // packets pass (3,000 > 1,500), all done: 3,000 of one burst more.
        let mut gate = bql();
        let mut now = Instant::ZERO;
        let mut limits = std::vec::Vec::new();
        for _ in 0..3 {
            let packets = fill(&mut gate, now);
            now = now + Duration::from_millis(1);
            gate.on_event(now, &Event::Completed { bytes: Bytes(1_500 * packets) });
            limits.push(gate.limit);
        }
        assert_eq!(limits, [1_500, 4_500, 10_500]);
    }

    #[test]
    fn slack_goes_after_a_second_of_small_completions() {
        // dql_completed's second branch: never starved, and no more than one packet done at a time.
        let mut gate =
            Bql::new(Config { limit_max: Bytes(60_000), ..Config::default() }, &Setup::default());
        gate.limit = 60_000;
        let mut now = Instant::ZERO;
        fill(&mut gate, now);
        for _ in 0..1_100 {
            now = now + Duration::from_millis(1);
            gate.on_event(now, &Event::Completed { bytes: Bytes(1_500) });
            fill(&mut gate, now);
        }
        // Two completions' worth remain, and what one packet over the limit adds.
        assert!(gate.limit <= 4_500, "{}", gate.limit);
        assert!(gate.limit >= 1_500, "{}", gate.limit);
    }
}
