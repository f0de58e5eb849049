//! cake-autorate's law: the shaper's rate follows the delay of probes, without any telemetry.
//!
//! signal: one-way delay of a probe every 50 ms, bytes sent · model: a baseline of the delay, the
//! delay above it in a window of six probes, the achieved rate over 200 ms · action: (1) cut the rate
//! if half of the window is above the threshold, (2) raise it if the link is loaded and delay is low,
//! (3) otherwise drift towards the base rate.
//!
//! The gate does the shaping itself, packet by packet in virtual time, as CAKE would at that rate;
//! [`Limit::Rate`] has the rate.
//!
//! Source: cake-autorate 3.5, its bash source. Deviations: one reflector (late reflectors are not
//! replaced), probed at the rate of six pingers together; the pingers do not sleep when idle; no
//! stall detection.

use units::{Bytes, Duration, Instant, Rate};

use super::{Event, Gate, Limit, Setup, State};

/// Name in the table.
pub const NAME: &str = "autorate";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "cake-autorate: a shaper that follows the delay of probes";
/// Where it is specified.
pub const SOURCE: &str = "cake-autorate 3.5";

config! {
    /// Keys of its configuration file; the rates must be set by hand for each line.
    pub struct Config {
        /// Smallest rate of the shaper (min_ul_shaper_rate_kbps).
        min: Rate = Rate(5_000_000), Rate(1_000), Rate(1_000_000_000_000);
        /// Rate that it drifts to without load (base_ul_shaper_rate_kbps).
        base: Rate = Rate(20_000_000), Rate(1_000), Rate(1_000_000_000_000);
        /// Largest rate of the shaper (max_ul_shaper_rate_kbps).
        max: Rate = Rate(35_000_000), Rate(1_000), Rate(1_000_000_000_000);
        /// Time between two probes: six pingers every 300 ms (no_pingers, reflector_ping_interval_s).
        probe: Duration = Duration::from_millis(50), Duration::from_millis(1), Duration::from_secs(10);
        /// A probe is late if its delay is this far above the baseline (ul_owd_delta_delay_thr_ms).
        threshold: Duration = Duration::from_millis(30), Duration::from_millis(1), Duration::from_secs(10);
        /// At this average the cut is the largest (ul_avg_owd_delta_max_adjust_down_thr_ms).
        cut_most_at: Duration = Duration::from_millis(60), Duration::from_millis(1), Duration::from_secs(10);
        /// Up to this average the rise is the largest (ul_avg_owd_delta_max_adjust_up_thr_ms).
        raise_most_at: Duration = Duration::from_millis(10), Duration::from_millis(0), Duration::from_secs(10);
    }
}

/// Probes of the window (bufferbloat_detection_window).
const WINDOW: usize = 6;
/// Late probes in the window that mean bufferbloat (bufferbloat_detection_thr).
const LATE: usize = 3;
/// Neither a cut nor a rise for this long after a cut (bufferbloat_refractory_period_ms).
const AFTER_CUT: Duration = Duration::from_millis(300);
/// Time between two steps of the drift (decay_refractory_period_ms).
const DRIFT_EVERY: Duration = Duration::from_millis(1_000);
/// Interval over which the achieved rate is measured (monitor_achieved_rates_interval_ms).
const MEASURE: Duration = Duration::from_millis(200);
/// The link is loaded above this share of the rate (high_load_thr).
const LOADED: f64 = 0.75;
/// Gain of the baseline if the delay is above it (alpha_baseline_increase): a queue must not become
/// the baseline.
const UP: f64 = 0.001;
/// Gain of the baseline if the delay is below it (alpha_baseline_decrease).
const DOWN: f64 = 0.9;

/// Rule 1's factor: 0.99 at the threshold, 0.75 from `max_at` on (shaper_rate_min_,
/// _max_adjust_down_bufferbloat). All in milliseconds, with C in both thresholds.
pub fn cut(average: f64, threshold: f64, max_at: f64) -> f64 {
    0.99 - 0.24 * share(average - threshold, max_at - threshold)
}

/// Rule 2's factor: 1 at the threshold, 1.04 up to `max_at` (shaper_rate_min_,
/// _max_adjust_up_load_high).
pub fn raise(average: f64, threshold: f64, max_at: f64) -> f64 {
    1.0 + 0.04 * share(threshold - average, threshold - max_at)
}

/// Rule 3: one per cent towards the base rate and not beyond (shaper_rate_adjust_down_load_low,
/// _up_load_low).
pub fn drift(rate: f64, base: f64) -> f64 {
    if rate > base { (rate * 0.99).max(base) } else { (rate * 1.01).min(base) }
}

/// `part` of `whole`, clamped to 0 … 1; a jump from 0 to 1 if `whole` is not positive.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (part / whole).clamp(0.0, 1.0)
    } else if part > 0.0 {
        1.0
    } else {
        0.0
    }
}

/// cake-autorate's shaper for one device.
#[derive(Clone, Debug)]
pub struct Autorate {
    config: Config,
    /// Size of the longest packet, bits.
    packet: f64,
    /// The shaper's rate, bit/s.
    rate: f64,
    /// Baseline of the delay, ms; `None` before the first probe.
    baseline: Option<f64>,
    window: [f64; WINDOW],
    late: [bool; WINDOW],
    at: usize,
    moved: Bytes,
    span: Duration,
    achieved: f64,
    /// A measurement of the achieved rate that rule 2 has not used.
    fresh: bool,
    last_cut: Option<Instant>,
    last_drift: Instant,
    /// When the shaper lets the next packet pass.
    next: Instant,
}

impl Autorate {
    /// A shaper at the base rate.
    pub fn new(config: Config, setup: &Setup) -> Autorate {
        let rate = clamped(&config, config.base.0 as f64);
        Autorate {
            packet: setup.mtu.0 as f64 * 8.0,
            rate,
            baseline: None,
            window: [0.0; WINDOW],
            late: [false; WINDOW],
            at: 0,
            moved: Bytes::ZERO,
            span: Duration::ZERO,
            achieved: 0.0,
            fresh: false,
            last_cut: None,
            last_drift: Instant::ZERO,
            next: Instant::ZERO,
            config,
        }
    }

    fn bps(&self) -> Rate {
        Rate((self.rate as u64).max(1))
    }

    fn measure(&mut self, moved: Bytes, span: Duration) {
        self.moved += moved;
        self.span += span;
        if self.span >= MEASURE {
            self.achieved = self.moved.0 as f64 * 8.0 / self.span.as_secs_f64();
            self.moved = Bytes::ZERO;
            self.span = Duration::ZERO;
            self.fresh = true;
        }
    }

    fn on_probe(&mut self, now: Instant, delay: f64) {
        // Every threshold contains C, the serialization delay of one packet at this rate.
        let packet = self.packet / self.rate * 1e3;
        let threshold = self.config.threshold.as_millis_f64() + packet;
        let baseline = self.baseline.unwrap_or(delay);
        let gain = if delay >= baseline { UP } else { DOWN };
        let baseline = baseline + gain * (delay - baseline);
        self.baseline = Some(baseline);

        self.window[self.at] = delay - baseline;
        self.late[self.at] = self.window[self.at] > threshold;
        self.at = (self.at + 1) % WINDOW;
        let average = self.window.iter().sum::<f64>() / WINDOW as f64;
        let bloat = self.late.iter().filter(|late| **late).count() >= LATE;

        let refractory = self.last_cut.is_some_and(|at| now.since(at) <= AFTER_CUT);
        let loaded = self.achieved > LOADED * self.rate;
        let rate = if bloat {
            if refractory {
                return;
            }
            self.last_cut = Some(now);
            self.last_drift = now;
            self.rate * cut(average, threshold, self.config.cut_most_at.as_millis_f64() + packet)
        } else if loaded {
            if refractory || !self.fresh {
                return;
            }
            self.last_drift = now;
            self.rate
                * raise(average, threshold, self.config.raise_most_at.as_millis_f64() + packet)
        } else {
            if now.since(self.last_drift) <= DRIFT_EVERY {
                return;
            }
            self.last_drift = now;
            drift(self.rate, self.config.base.0 as f64)
        };
        self.fresh = false;
        self.rate = clamped(&self.config, rate);
    }
}

/// `rate` between the smallest and the largest rate; the configuration may have them swapped.
fn clamped(config: &Config, rate: f64) -> f64 {
    rate.min(config.max.0 as f64).max(config.min.0 as f64).max(1.0)
}

impl Gate for Autorate {
    fn on_event(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Passed { bytes, .. } => self.next = self.next.max(now) + bytes / self.bps(),
            Event::Probe { delay, moved, span } => {
                self.measure(moved, span);
                self.on_probe(now, delay.as_millis_f64());
            }
            Event::Completed { .. } | Event::Report { .. } => {}
        }
    }
    fn limit(&self, _now: Instant) -> Limit {
        Limit::Rate(self.bps())
    }
    fn open(&self, now: Instant) -> bool {
        now >= self.next
    }
    fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        (!self.open(now)).then_some(self.next)
    }
    fn probe_every(&self) -> Option<Duration> {
        Some(self.config.probe)
    }
    fn state(&self, _now: Instant) -> State {
        State { occupancy: None, rate: Some(self.bps()), limit: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(gate: &mut Autorate, now: &mut Instant, delay_ms: u64, load: f64) {
        let span = Duration::from_millis(50);
        *now = *now + span;
        let moved = Bytes((gate.rate * load / 8.0 * span.as_secs_f64()) as u64);
        gate.on_event(*now, &Event::Probe { delay: Duration::from_millis(delay_ms), moved, span });
    }

    #[test]
    fn the_factors_are_those_of_the_source() {
        // f = clamp((avg D − thr) / (60 − thr)); rate *= 0.99 − 0.24 f
        assert_eq!(cut(30.0, 30.0, 60.0), 0.99);
        assert!((cut(45.0, 30.0, 60.0) - 0.87).abs() < 1e-12);
        assert_eq!(cut(600.0, 30.0, 60.0), 0.75);
        // g = clamp((thr − avg D) / (thr − 10)); rate *= 1 + 0.04 g
        assert_eq!(raise(30.0, 30.0, 10.0), 1.0);
        assert!((raise(20.0, 30.0, 10.0) - 1.02).abs() < 1e-12);
        assert_eq!(raise(0.0, 30.0, 10.0), 1.04);
        assert_eq!(drift(100.0, 90.0), 99.0);
        assert_eq!(drift(100.0, 99.5), 99.5);
        assert_eq!(drift(100.0, 200.0), 101.0);
    }

    #[test]
    fn three_late_probes_of_six_cut_once_in_300_ms() {
        let mut gate = Autorate::new(Config::default(), &Setup::default());
        let mut now = Instant::ZERO;
        for _ in 0..10 {
            probe(&mut gate, &mut now, 20, 0.0);
        }
        assert_eq!(gate.rate, 20e6);
        // 200 ms above the baseline: the third makes it bloat, the average then 100 ms, the cut the largest.
        probe(&mut gate, &mut now, 220, 1.0);
        probe(&mut gate, &mut now, 220, 1.0);
        assert_eq!(gate.rate, 20e6);
        probe(&mut gate, &mut now, 220, 1.0);
        assert_eq!(gate.rate, 15e6);
        for _ in 0..6 {
            probe(&mut gate, &mut now, 220, 1.0);
        }
        assert_eq!(gate.rate, 15e6);
        probe(&mut gate, &mut now, 220, 1.0);
        assert_eq!(gate.rate, 11.25e6);
    }

    #[test]
    fn doubling_takes_eighteen_measurements_of_200_ms() {
        // ln 2 / ln 1.04 = 17.7: at least 3.6 s.
        let config = Config { max: Rate(1_000_000_000), ..Config::default() };
        let mut gate = Autorate::new(config, &Setup::default());
        let mut now = Instant::ZERO;
        let mut probes = 0;
        while gate.rate < 40e6 {
            probe(&mut gate, &mut now, 20, 1.0);
            probes += 1;
        }
        assert_eq!(probes, 18 * 4);
    }

    #[test]
    fn without_load_it_drifts_to_the_base_rate_by_a_percent_a_second() {
        let mut gate = Autorate::new(Config::default(), &Setup::default());
        gate.rate = 10e6;
        let mut now = Instant::ZERO;
        for _ in 0..22 {
            probe(&mut gate, &mut now, 20, 0.1);
        }
        assert!((gate.rate - 10.1e6).abs() < 1.0, "{}", gate.rate);
        for _ in 0..3_000 {
            probe(&mut gate, &mut now, 20, 0.1);
        }
        assert_eq!(gate.rate, 20e6);
    }

    #[test]
    fn packets_pass_at_the_rate() {
        let mut gate = Autorate::new(Config::default(), &Setup::default());
        let mut now = Instant(1);
        for _ in 0..100 {
            assert!(gate.open(now));
            gate.on_event(now, &Event::Passed { bytes: Bytes(1_500), flow: 0, bare: false });
            assert!(!gate.open(now));
            now = gate.next_wakeup(now).expect("a closed shaper says when it opens");
        }
        // 100 packets of 12,000 bits at 20 Mbit/s
        assert_eq!(now.since(Instant(1)), Duration::from_millis(60));
    }
}
