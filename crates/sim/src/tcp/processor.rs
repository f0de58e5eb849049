//! The processor of an application that reads: a group of processes, its quota, and its turns.
//!
//! signal: when there is data to read, and how much work it makes · model: the reader and some busy
//! processes share one processor in equal parts, in slices; in each period the group runs for its
//! quota and then waits for the next (Linux: CFS and EEVDF of `kernel/sched/fair.c` with `cpu.max`
//! of cgroup v2) · action: when the reader has done its work.
//!
//! Differences from the kernel: processes that are not of the group take no time; the quota begins
//! again at fixed times, where Linux restarts its timer after the group has slept; a reader that
//! wakes waits for the end of the running slice, where EEVDF may interrupt it.

use units::{Duration, Instant};

/// The default period of `cpu.max` (Documentation/admin-guide/cgroup-v2.rst).
const PERIOD_NS: u64 = 100_000_000;
/// A tick of a kernel with HZ = 250, the default of `kernel/Kconfig.hz`. EEVDF's slice is at most
/// 3 ms (`sysctl_sched_base_slice` on eight processors), and its end is noticed at a tick.
const SLICE_NS: u64 = 4_000_000;
/// What a program asks for in one read: curl's buffer, `CURL_MAX_WRITE_SIZE`.
pub(super) const CHUNK: u64 = 16_384;
/// The call itself: it happens within a slice, so it takes some time of one.
const CALL_NS: u64 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Reader,
    Background,
}

/// The processor, as far as it has been followed.
pub(super) struct Processor {
    work_per_kb_ns: u64,
    quota_ns: u64,
    background: u64,
    started: Instant,
    /// Since `started`.
    at_ns: u64,
    /// What the group has run in this period.
    used_ns: u64,
    turn: Turn,
    /// Of the running slice.
    left_ns: u64,
    /// By how much the reader has run more than its part, × the processes in the background: it
    /// runs again when they have caught up. What it had slept is not made up for.
    ahead_ns: i64,
}

impl Processor {
    /// A group that has had nothing yet, at the beginning of a period.
    pub(super) fn new(
        work_per_kb: Duration,
        cpu: f64,
        background: u64,
        started: Instant,
    ) -> Processor {
        let quota_ns = ((cpu * PERIOD_NS as f64).round() as u64).clamp(1, PERIOD_NS);
        Processor {
            work_per_kb_ns: work_per_kb.0,
            quota_ns,
            background,
            started,
            at_ns: 0,
            used_ns: 0,
            turn: Turn::Background,
            left_ns: 0,
            ahead_ns: 0,
        }
    }

    /// The reader slept until `now`; when it makes its call.
    pub(super) fn wakes(&mut self, now: Instant) -> Instant {
        let until = now.since(self.started).0;
        self.run(until, 0);
        self.finish(CALL_NS)
    }

    /// The reader has just read so many bytes; when it has done the work on them and makes the next
    /// call.
    pub(super) fn works(&mut self, bytes: u64) -> Instant {
        self.finish(bytes * self.work_per_kb_ns / 1_000 + CALL_NS)
    }

    fn finish(&mut self, need_ns: u64) -> Instant {
        self.run(u64::MAX, need_ns);
        self.started + Duration(self.at_ns)
    }

    /// Follows the processor until a time, or until the reader has run for `need`; with 0 the reader
    /// sleeps.
    fn run(&mut self, until_ns: u64, mut need_ns: u64) {
        let sleeps = need_ns == 0;
        while self.at_ns < until_ns && (sleeps || need_ns > 0) {
            let period_left = PERIOD_NS - self.at_ns % PERIOD_NS;
            let mut step = period_left.min(until_ns - self.at_ns);
            let room = self.quota_ns - self.used_ns;
            if room > 0 && !(sleeps && self.background == 0) {
                if self.left_ns == 0 || (sleeps && self.turn == Turn::Reader) {
                    let reader = !sleeps && (self.background == 0 || self.ahead_ns <= 0);
                    self.turn = if reader { Turn::Reader } else { Turn::Background };
                    self.left_ns = SLICE_NS;
                }
                step = step.min(room).min(self.left_ns);
                if self.turn == Turn::Reader {
                    step = step.min(need_ns);
                    need_ns -= step;
                    self.ahead_ns += (step * self.background) as i64;
                } else {
                    self.ahead_ns -= step as i64;
                    if sleeps {
                        self.ahead_ns = self.ahead_ns.max(0);
                    }
                }
                self.used_ns += step;
                self.left_ns -= step;
            }
            self.at_ns += step;
            if self.at_ns.is_multiple_of(PERIOD_NS) {
                self.used_ns = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn processor(work_us: u64, cpu: f64, background: u64) -> Processor {
        Processor::new(Duration::from_micros(work_us), cpu, background, Instant::ZERO)
    }

    /// Bytes that a reader with enough data has worked on in so many seconds.
    fn read_in(seconds: u64, work_us: u64, cpu: f64, background: u64) -> u64 {
        let mut one = processor(work_us, cpu, background);
        let mut at = one.wakes(Instant::ZERO);
        let mut bytes = 0;
        while at.since(Instant::ZERO).0 < seconds * SECOND {
            bytes += CHUNK;
            at = one.works(CHUNK);
        }
        bytes
    }

    #[test]
    fn the_average_rate_is_the_share_over_the_work_and_the_processes() {
        for work_us in [20, 200, 1_000] {
            for cpu in [0.01, 0.05, 0.2, 0.5, 1.0] {
                for background in [0, 1, 3, 7] {
                    let expected = cpu * 1e9 / work_us as f64 / (1 + background) as f64 * 60.0;
                    let got = read_in(60, work_us, cpu, background) as f64;
                    // The last round is under way: a period's quota and a chunk at most.
                    let last = expected * 0.01 + 2.0 * CHUNK as f64;
                    assert!(
                        (got - expected).abs() <= last,
                        "{work_us} us/KB, {cpu}, {background}: {got} B, not {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn alone_and_without_a_quota_work_takes_its_time() {
        let mut one = processor(100, 1.0, 0);
        one.wakes(Instant(7 * SECOND));
        assert_eq!(one.works(1_000_000), Instant(7 * SECOND + 100_000_000 + 2 * CALL_NS));
    }

    #[test]
    fn a_quota_ends_the_run_until_the_next_period() {
        // 10 ms of 100: 25 ms of work take two whole periods and 5 ms.
        let mut one = processor(1_000, 0.1, 0);
        one.wakes(Instant::ZERO);
        assert_eq!(one.works(25_000), Instant(205_000_000 + 2 * CALL_NS));
    }

    #[test]
    fn slices_are_taken_by_turns() {
        // Two busy processes. After its first slice the reader waits for two, and then has another.
        let mut one = processor(1_000, 1.0, 2);
        let first = one.wakes(Instant::ZERO);
        assert_eq!(first, Instant(CALL_NS));
        // 3.999 ms of work end within the first slice; of another 1.001 ms the last comes after two.
        assert_eq!(one.works(3_999), Instant(3_999_000 + 2 * CALL_NS));
        assert_eq!(one.works(1_001), Instant(8_000_000 + 5_000_000 + 3 * CALL_NS));
    }

    #[test]
    fn a_reader_that_wakes_waits_for_the_running_slice_and_has_saved_nothing() {
        let mut one = processor(1_000, 1.0, 3);
        // The fourth second ends a slice; 1 ms later another has 3 ms left.
        let woken = Instant(4 * SECOND + 1_000_000);
        assert_eq!(one.wakes(woken), Instant(4 * SECOND + 4_000_000 + CALL_NS));
        // It slept for four seconds, and still has one slice of each four.
        let begun = 4 * SECOND + 4_000_000;
        let done = one.works(400_000).since(Instant(begun)).0;
        assert!((1_580_000_000..=1_604_000_000).contains(&done), "{done} ns");
    }

    #[test]
    fn the_background_uses_the_quota_while_the_reader_sleeps() {
        let woken = Instant(50_000_000);
        assert_eq!(processor(20, 0.2, 1).wakes(woken), Instant(100_000_000 + CALL_NS));
        assert_eq!(processor(20, 0.2, 0).wakes(woken), woken + Duration(CALL_NS));
    }
}
