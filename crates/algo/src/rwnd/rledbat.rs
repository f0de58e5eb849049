//! rLEDBAT: the receiver slows a download down to keep the queue short, as LEDBAT++ would at the sender.
//!
//! signal: RTT samples of the receiver, holes in the received data · model: queueing delay = the
//! smallest of the last ten samples minus the smallest of the last ten minutes · action: below the
//! target the window grows by GAIN segments per RTT. Above, it shrinks once per RTT in proportion to
//! the excess, at most to half; a loss halves it. Periodically it falls to two segments for two RTTs,
//! to measure the base RTT again.
//!
//! Sources: RFC 9840 (rLEDBAT; the receiver's window and "do not move the right edge to the left",
//! section 4.1; RTT measurement, 4.2; losses seen by the receiver, 4.3),
//! draft-irtf-iccrg-ledbat-plus-plus (gain, decrease, slow start, slowdown), RFC 6817 (base history,
//! halving). Public Linux receivers use the same target, gain and floor.
//!
//! Deviations: a hole counts as a loss if it stays open for half a base RTT or more (a reordered
//! segment fills it sooner), because samples have no sequence numbers of retransmitted segments. The
//! window grows only if half of it was used in the round before, in place of RFC 6817's rule on the
//! flight size, which a receiver does not know. Without timestamps the RTT comes from [`WindowRtt`];
//! RFC 9840 requires timestamps.

use units::{Bytes, Duration, Instant};

use super::{Cause, Sample, Setup, State, WindowControl, WindowRtt};

/// Name in the table.
pub const NAME: &str = "rledbat";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "LEDBAT++ at the receiver: background downloads that yield at 60 ms of queue";
/// Where it is specified.
pub const SOURCE: &str = "RFC 9840; draft-irtf-iccrg-ledbat-plus-plus";

config! {
    /// Parameters of LEDBAT++, with the bounds of RFC 9840.
    pub struct Config {
        /// Target of the queueing delay: 60 ms in LEDBAT++.
        target: Duration = Duration::from_millis(60), Duration::from_millis(1), Duration::from_secs(1);
        /// The slowest growth is one segment per this many RTTs: 16 in LEDBAT++.
        slowest_gain: u64 = 16, 1, 256;
        /// Smallest window in segments: 2 (RFC 6817 MIN_CWND).
        min_window: u64 = 2, 1, 1_000;
        /// Payload that fits the buffer, and so the largest window: half of Linux 6.18's 32 MiB.
        max: Bytes = Bytes(16_777_216), Bytes(65_536), Bytes(1 << 30);
        /// LEDBAT++'s periodic slowdowns, which measure the empty path again.
        slowdown: bool = true;
    }
}

/// The base RTT is the smallest of this many minima of one minute each (RFC 6817 section 2.4.2).
const BASE_MINUTES: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// The current RTT is the smallest of this many samples: delayed ACKs and bursts do not count.
const CURRENT_SAMPLES: usize = 10;
/// Length of a slowdown in RTTs (LEDBAT++).
const SLOWDOWN_RTTS: u64 = 2;
/// Time between two slowdowns, in lengths of a slowdown: they take a tenth of the time (LEDBAT++).
const SLOWDOWN_PAUSE: u64 = 9;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Slow start: at the beginning, or after a slowdown up to the old window.
    Start,
    /// Congestion avoidance: growth below the target, decrease above.
    Avoid,
    /// A slowdown to the smallest window, since this time.
    Slow(Instant),
}

/// rLEDBAT for one connection; windows are bytes.
#[derive(Clone, Debug)]
pub struct RLedbat {
    mss: f64,
    floor: f64,
    max: f64,
    target: f64,
    slowest_gain: u64,
    slowdown: bool,
    /// The window of LEDBAT++, bytes.
    window: f64,
    /// The advertised window: `window`, or more while the right edge would move to the left.
    advertised: Bytes,
    phase: Phase,
    /// Window before the last slowdown; infinite before the first one.
    threshold: f64,
    slowdown_begun: Instant,
    next_slowdown: Option<Instant>,
    base: [Duration; BASE_MINUTES],
    minute: Option<Instant>,
    recent: [Duration; CURRENT_SAMPLES],
    samples: usize,
    window_rtt: Option<WindowRtt>,
    round: Instant,
    round_from: Bytes,
    window_used: bool,
    hole: Option<(Instant, Bytes)>,
    last_cut: Option<Instant>,
    received: Bytes,
}

impl RLedbat {
    /// The state of a new connection.
    pub fn new(config: Config, setup: &Setup) -> RLedbat {
        let mss = setup.mss.0.max(1) as f64;
        let max = config.max.0.max(1) as f64;
        let floor = (config.min_window as f64 * mss).min(max);
        RLedbat {
            mss,
            floor,
            max,
            target: config.target.0.max(1) as f64,
            slowest_gain: config.slowest_gain.max(1),
            slowdown: config.slowdown,
            window: floor,
            advertised: Bytes(floor as u64),
            phase: Phase::Start,
            threshold: f64::INFINITY,
            slowdown_begun: Instant::ZERO,
            next_slowdown: None,
            base: [Duration::MAX; BASE_MINUTES],
            minute: None,
            recent: [Duration::MAX; CURRENT_SAMPLES],
            samples: 0,
            window_rtt: (!setup.timestamps).then(WindowRtt::default),
            round: Instant::ZERO,
            round_from: Bytes::ZERO,
            window_used: true,
            hole: None,
            last_cut: None,
            received: Bytes::ZERO,
        }
    }

    fn base(&self) -> Duration {
        self.base.iter().copied().min().unwrap_or(Duration::MAX)
    }

    fn current(&self) -> Duration {
        self.recent.iter().copied().min().unwrap_or(Duration::MAX)
    }

    /// LEDBAT++: GAIN = 1 / min(16, ⌈2·TARGET / base⌉). On a short path the window grows no faster
    /// than Reno's.
    fn gain(&self) -> f64 {
        let steps = libm::ceil(2.0 * self.target / self.base().0.max(1) as f64) as u64;
        1.0 / steps.clamp(1, self.slowest_gain) as f64
    }

    fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        match self.minute {
            None => self.minute = Some(now),
            Some(minute) if now.since(minute) >= MINUTE => {
                self.base.rotate_right(1);
                self.base[0] = Duration::MAX;
                self.minute = Some(now);
            }
            Some(_) => {}
        }
        self.base[0] = self.base[0].min(rtt);
        self.recent[self.samples % CURRENT_SAMPLES] = rtt;
        self.samples = self.samples.wrapping_add(1);
    }

    /// RFC 6817: a loss halves, once per RTT.
    fn on_loss(&mut self, now: Instant) {
        if self.last_cut.is_some_and(|cut| now.since(cut) < self.current()) {
            return;
        }
        self.last_cut = Some(now);
        if matches!(self.phase, Phase::Slow(_)) {
            // At the floor already; the window to return to is from before the hole.
            return;
        }
        self.window /= 2.0;
        self.threshold = self.window;
        if self.phase == Phase::Start {
            self.leave_start(now);
        }
    }

    fn leave_start(&mut self, now: Instant) {
        self.phase = Phase::Avoid;
        let rtt = self.current();
        // The initial slowdown follows two RTTs after slow start, a later one after nine times the
        // length of the last.
        let wait = if self.next_slowdown.is_none() {
            rtt * SLOWDOWN_RTTS
        } else {
            now.since(self.slowdown_begun) * SLOWDOWN_PAUSE
        };
        self.next_slowdown = Some(now + wait);
    }

    /// Called once per RTT: the decrease, and the begin of slowdowns.
    fn on_round(&mut self, now: Instant) {
        let used = (self.received - self.round_from).0 as f64;
        self.window_used = used * 2.0 >= self.window;
        self.round = now;
        self.round_from = self.received;
        if self.phase != Phase::Avoid {
            return;
        }
        let delay = self.current().saturating_sub(self.base()).0 as f64;
        if delay > self.target {
            // W += max(GAIN − W·(delay/TARGET − 1), −W/2), in bytes.
            let change = self.gain() * self.mss - self.window * (delay / self.target - 1.0);
            self.window += change.max(-self.window / 2.0);
        }
        if self.slowdown && self.next_slowdown.is_some_and(|at| now >= at) {
            self.threshold = self.window;
            self.slowdown_begun = now;
            self.phase = Phase::Slow(now);
        }
    }

    /// Called with every arrival of data: phases and growth.
    fn on_data(&mut self, now: Instant, bytes: f64) {
        if self.base() == Duration::MAX {
            return;
        }
        if now.since(self.round) >= self.current() {
            self.on_round(now);
        }
        let delay = self.current().saturating_sub(self.base()).0 as f64;
        match self.phase {
            Phase::Slow(begun) => {
                self.window = self.floor;
                if now.since(begun) >= self.current() * SLOWDOWN_RTTS {
                    self.phase = Phase::Start;
                }
            }
            Phase::Start => {
                // LEDBAT++: the first slow start ends at three quarters of the target, before the
                // queue is long.
                let first = self.next_slowdown.is_none();
                if first && delay > 0.75 * self.target || self.window >= self.threshold {
                    self.leave_start(now);
                } else if self.window_used {
                    self.window += self.gain() * bytes;
                }
            }
            Phase::Avoid => {
                if delay < self.target && self.window_used {
                    self.window += self.gain() * self.mss * bytes / self.window.max(1.0);
                }
            }
        }
    }

    /// A hole that stays open for half a base RTT was a loss.
    fn watch_holes(&mut self, now: Instant, sample: &Sample) {
        let open = sample.out_of_order > Bytes::ZERO;
        match self.hole {
            Some((since, at)) if sample.received > at => {
                if now.since(since) >= self.base() / 2 {
                    self.on_loss(now);
                }
                self.hole = open.then_some((now, sample.received));
            }
            None if open => self.hole = Some((now, sample.received)),
            _ => {}
        }
    }
}

impl WindowControl for RLedbat {
    fn on_sample(&mut self, now: Instant, sample: &Sample) -> Option<Bytes> {
        if sample.cause != Cause::Arrived {
            return None;
        }
        let bytes = sample.received - self.received;
        self.received = self.received.max(sample.received);
        let rtt = match &mut self.window_rtt {
            Some(window) => window.on_data(now, sample.received, sample.right_edge),
            None => sample.rtt,
        };
        if let Some(rtt) = rtt {
            self.on_rtt(now, rtt);
        }
        self.watch_holes(now, sample);
        self.on_data(now, bytes.0 as f64);
        self.window = self.window.clamp(self.floor, self.max);
        let before = self.advertised;
        // RFC 9840 section 4.1: the window shrinks only by the data that arrives.
        let promised = sample.right_edge - sample.received;
        self.advertised = Bytes(self.window as u64).max(promised).min(Bytes(self.max as u64));
        (self.advertised != before).then_some(self.advertised)
    }
    fn window(&self) -> Bytes {
        self.advertised
    }
    fn buffer(&self) -> Bytes {
        Bytes(self.max as u64)
    }
    fn state(&self) -> State {
        let known = |rtt: Duration| (rtt != Duration::MAX).then_some(rtt);
        State {
            window: self.advertised,
            cwnd_estimate: Some(Bytes(self.window as u64)),
            rtt: known(self.current()),
            rtt_min: known(self.base()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: Bytes = Bytes(1448);

    /// One segment after another, `gap` apart, each with this RTT.
    fn arrive(law: &mut RLedbat, at: &mut (Instant, Bytes), n: u64, gap: Duration, rtt: Duration) {
        for _ in 0..n {
            at.0 = at.0 + gap;
            at.1 += MSS;
            law.on_sample(at.0, &Sample { received: at.1, rtt: Some(rtt), ..Sample::default() });
        }
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn in_avoidance(window: f64) -> (RLedbat, (Instant, Bytes)) {
        let config = Config { slowdown: false, ..Config::default() };
        let mut law = RLedbat::new(config, &Setup::default());
        let mut at = (Instant::ZERO, Bytes::ZERO);
        arrive(&mut law, &mut at, 10, ms(1), ms(120));
        law.leave_start(at.0);
        law.window = window;
        (law, at)
    }

    #[test]
    fn below_the_target_the_window_grows_by_gain_segments_per_rtt() {
        // Base 120 ms = 2 · TARGET: GAIN is 1.
        let (mut law, mut at) = in_avoidance(144_800.0);
        arrive(&mut law, &mut at, 100, Duration(1_200_000), ms(120));
        assert!((law.window - 144_800.0 - 1448.0).abs() < 30.0, "{}", law.window);
    }

    #[test]
    fn the_gain_falls_with_a_short_base_rtt_to_a_sixteenth() {
        for (base, gain) in [(120, 1.0), (60, 0.5), (50, 1.0 / 3.0), (1, 1.0 / 16.0)] {
            let mut law = RLedbat::new(Config::default(), &Setup::default());
            law.on_rtt(Instant::ZERO, ms(base));
            assert_eq!(law.gain(), gain);
        }
    }

    #[test]
    fn above_the_target_it_shrinks_once_per_rtt_in_proportion_and_at_most_to_half() {
        // 75 ms of queue: 1448 − W · (75/60 − 1).
        let (mut law, mut at) = in_avoidance(144_800.0);
        arrive(&mut law, &mut at, 10, Duration::ZERO, ms(195));
        law.window = 144_800.0;
        law.round = at.0;
        arrive(&mut law, &mut at, 1, ms(195), ms(195));
        assert!((law.window - (144_800.0 * 0.75 + 1448.0)).abs() < 1.0, "{}", law.window);
        let before = law.window;
        arrive(&mut law, &mut at, 10, ms(1), ms(195));
        assert_eq!(law.window, before);
        arrive(&mut law, &mut at, 10, Duration::ZERO, ms(900));
        law.window = 144_800.0;
        law.round = at.0;
        arrive(&mut law, &mut at, 1, ms(900), ms(900));
        assert_eq!(law.window, 72_400.0);
    }

    #[test]
    fn a_hole_that_stays_open_halves_once_and_a_reordered_segment_does_not() {
        let (mut law, mut at) = in_avoidance(144_800.0);
        let hole = |law: &mut RLedbat, at: &mut (Instant, Bytes), open: Duration| {
            let sample = Sample {
                received: at.1,
                out_of_order: MSS,
                rtt: Some(ms(120)),
                ..Sample::default()
            };
            law.on_sample(at.0, &sample);
            arrive(law, at, 1, open, ms(120));
        };
        let before = law.window;
        hole(&mut law, &mut at, ms(2));
        assert!(law.window >= before);
        hole(&mut law, &mut at, ms(130));
        assert!((law.window * 2.0 - before).abs() < 3_000.0, "{}", law.window);
    }

    #[test]
    fn the_right_edge_stays_when_the_window_shrinks() {
        let (mut law, at) = in_avoidance(144_800.0);
        law.window = 20_000.0;
        let edge = at.1 + Bytes(100_000);
        let step = |received| Sample { received, right_edge: edge, ..Sample::default() };
        law.on_sample(at.0, &step(at.1));
        assert_eq!(law.window(), Bytes(100_000));
        law.on_sample(at.0, &step(at.1 + Bytes(60_000)));
        assert_eq!(law.window(), Bytes(40_000));
    }

    #[test]
    fn a_slowdown_follows_slow_start_and_takes_a_tenth_of_the_time() {
        let mut law = RLedbat::new(Config::default(), &Setup::default());
        let mut at = (Instant::ZERO, Bytes::ZERO);
        let (mut slow, mut total, mut slowdowns) = (0_u64, 0_u64, 0);
        let mut before = false;
        for _ in 0..60_000 {
            // What is allowed arrives evenly, 100 ms RTT; beyond 100,000 bytes it queues.
            let rtt = ms(100).max(Duration(law.window as u64 * 1_000));
            let gap = Duration(rtt.0 * 1448 / (law.window as u64).max(1448));
            arrive(&mut law, &mut at, 1, gap, rtt);
            let now = matches!(law.phase, Phase::Slow(_)) || law.phase == Phase::Start;
            total += gap.0;
            slow += if now { gap.0 } else { 0 };
            slowdowns += u32::from(now && !before);
            before = now;
        }
        assert!(slowdowns >= 8, "{slowdowns}");
        assert!(slow * 100 < total * 16, "{slow} of {total}");
        assert!(law.state().rtt_min == Some(ms(100)));
    }
}
