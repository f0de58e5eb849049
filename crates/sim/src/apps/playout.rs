//! When a receiver of voice plays a packet: so long after it was sent, or never.
//!
//! signal: network delay of each packet that arrived · model: Ramjee, Kurose, Towsley and
//! Schulzrinne (INFOCOM 1994), algorithm 4: estimates d of the delay and v of its mean deviation
//! follow by an eighth a packet; at a jump of the delay d jumps with it, until the delay is steady
//! again · action: the next packet is played d + 4 v after it was sent, at least `least` after d.
//!
//! Of that paper's algorithms this is the one that follows the delay of a queue, which grows by
//! hundreds of milliseconds within a second; an average over ten seconds would lose what it delays.
//!
//! Deviations:
//! - The estimates take effect with the next packet, in the paper with the next burst of talk:
//!   today's receivers lengthen and shorten speech (WebRTC's NetEq). Here that costs nothing.
//! - The least wait is ours. Without it a network without jitter would leave a margin of nothing.
//! - Weights and thresholds are those of public implementations; the paper's text was not at hand.
//!
//! A fixed buffer waits a given time after the smallest delay that it saw, and never moves.

use scenario::JitterBuffer;
use units::Duration;

/// Weight of a new packet in both estimates (algorithm 4).
const WEIGHT: f64 = 0.125;
/// Deviations that playout waits after the mean (all of the paper's algorithms).
const DEVIATIONS: f64 = 4.0;
/// A spike begins where the delay jumps by two deviations and this (800 samples at 8 kHz).
const JUMP_MS: f64 = 100.0;
/// A spike ends where the smoothed slope falls to this (63 samples at 8 kHz).
const FLAT_MS: f64 = 63.0 / 8.0;

/// Estimates after a packet, in milliseconds.
#[derive(Clone, Debug)]
struct Estimate {
    delay: f64,
    deviation: f64,
    last: f64,
    before_last: f64,
    /// Smoothed slope of the delay during a spike.
    spike: Option<f64>,
}

impl Estimate {
    fn of_first(delay: f64) -> Estimate {
        Estimate { delay, deviation: 0.0, last: delay, before_last: delay, spike: None }
    }

    fn update(&mut self, delay: f64) {
        let change = delay - self.last;
        let mut settled = false;
        match self.spike {
            None if change.abs() > 2.0 * self.deviation + JUMP_MS => self.spike = Some(0.0),
            None => {}
            Some(slope) => {
                let slope =
                    slope / 2.0 + ((2.0 * delay - self.last - self.before_last) / 8.0).abs();
                settled = slope <= FLAT_MS;
                self.spike = (!settled).then_some(slope);
            }
        }
        (self.before_last, self.last) = (self.last, delay);
        // The packet that ends a spike changes no estimate.
        if settled {
            return;
        }
        self.delay += if self.spike.is_some() { change } else { WEIGHT * (delay - self.delay) };
        self.deviation += WEIGHT * ((delay - self.delay).abs() - self.deviation);
    }
}

/// The playout of one receiver.
#[derive(Clone, Debug)]
pub struct Playout {
    buffer: JitterBuffer,
    estimate: Option<Estimate>,
    /// Smallest delay so far.
    smallest: Option<Duration>,
}

impl Playout {
    pub fn new(buffer: JitterBuffer) -> Playout {
        Playout { buffer, estimate: None, smallest: None }
    }

    /// A packet arrived after `delay`: how long after it was sent its turn is. It is lost to the
    /// listener if it took longer.
    pub fn on_arrived(&mut self, delay: Duration) -> Duration {
        let smallest = self.smallest.map_or(delay, |s| s.min(delay));
        self.smallest = Some(smallest);
        match self.buffer {
            JitterBuffer::Fixed(wait) => smallest + wait,
            JitterBuffer::Adaptive { least } => {
                let delay_ms = delay.as_millis_f64();
                let estimate = self.estimate.get_or_insert_with(|| Estimate::of_first(delay_ms));
                let wait = (DEVIATIONS * estimate.deviation).max(least.as_millis_f64());
                let due = (estimate.delay + wait).max(0.0);
                estimate.update(delay_ms);
                Duration((due * 1e6).round() as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(20);

    /// Which packets are in time, and the mean playout delay (ms).
    fn played(buffer: JitterBuffer, delays_ms: impl Iterator<Item = u64>) -> (Vec<bool>, f64) {
        let mut playout = Playout::new(buffer);
        let mut total = 0.0;
        let in_time: Vec<bool> = delays_ms
            .map(|ms| {
                let due = playout.on_arrived(Duration::from_millis(ms));
                total += due.as_millis_f64();
                Duration::from_millis(ms) <= due
            })
            .collect();
        let mean = total / in_time.len() as f64;
        (in_time, mean)
    }

    fn adaptive(delays_ms: impl Iterator<Item = u64>) -> (Vec<bool>, f64) {
        played(JitterBuffer::Adaptive { least: LEAST }, delays_ms)
    }

    fn lost(in_time: &[bool]) -> usize {
        in_time.iter().filter(|ok| !**ok).count()
    }

    #[test]
    fn a_steady_delay_is_played_after_the_least_wait_and_loses_nothing() {
        let (in_time, mean) = adaptive(std::iter::repeat_n(150, 500));
        assert_eq!((lost(&in_time), mean), (0, 170.0));
    }

    #[test]
    fn a_step_loses_only_what_arrives_before_the_playout_has_followed() {
        for (step, most) in [(15, 0), (60, 3), (100, 3), (300, 1), (3_000, 1)] {
            let (in_time, _) = adaptive((0..500).map(|i| if i < 250 { 50 } else { 50 + step }));
            assert!(in_time[..250].iter().all(|ok| *ok));
            assert!(lost(&in_time) <= most, "{step}: {}", lost(&in_time));
            assert!(lost(&in_time[250 + most..]) == 0, "{step}: lost later than the step");
        }
    }

    #[test]
    fn a_queue_that_grows_loses_nothing_and_after_it_the_playout_returns() {
        // 0.2 s of queue more each second for five seconds, then it is gone.
        let (in_time, _) = adaptive((0..500).map(|i| if i < 250 { 50 + 4 * i } else { 50 }));
        assert_eq!(lost(&in_time), 0);
        let (_, mean) =
            adaptive((0..2_000).map(|i| if (100..150).contains(&i) { 2_000 } else { 50 }));
        assert!(mean < 130.0, "{mean}");
    }

    #[test]
    fn random_jitter_below_the_wait_costs_nothing() {
        // A multiplicative generator: 0 to 19 ms on top of 50.
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % 20
        };
        let delays: Vec<u64> = (0..5_000).map(|_| 50 + draw()).collect();
        let (in_time, mean) = adaptive(delays.into_iter());
        assert!(lost(&in_time) <= 5, "{}", lost(&in_time));
        assert!((75.0..85.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_fixed_buffer_never_moves() {
        let fixed = JitterBuffer::Fixed(Duration::from_millis(60));
        let (in_time, mean) = played(fixed, (0..100).map(|i| if i < 50 { 50 } else { 150 }));
        assert_eq!((lost(&in_time), mean), (50, 110.0));
    }
}
