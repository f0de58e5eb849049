//! The parts that CUBIC, BIC, H-TCP, HighSpeed, Westwood+, Vegas, TCP-LP and LEDBAT share: slow start
//! with byte counting (RFC 5681, RFC 3465), collapse on timeout, undo of a decrease.
//!
//! Window and threshold are segments as f64, so that growth below one segment, and below one byte,
//! adds up exactly. The result is in whole bytes.

use units::{Bytes, Instant};

use super::{Setup, State, Timeout};

/// Segments that one ACK may add in slow start: RFC 9406 section 4.3 has 8 for senders that do not
/// pace. RFC 3465's 2 is older than offloads, which acknowledge dozens of segments at once; Linux has
/// no limit.
pub const LIMIT: u64 = 8;

/// A congestion window in segments, with its slow-start threshold.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    mss: f64,
    segments: f64,
    threshold: f64,
    before: (f64, f64),
}

impl Window {
    /// The initial window, with an infinite threshold.
    pub fn new(setup: &Setup) -> Window {
        // At least 1: divisors below.
        let mss = setup.mss.0.max(1) as f64;
        let segments = setup.initial_window.max(1) as f64;
        Window { mss, segments, threshold: f64::INFINITY, before: (segments, f64::INFINITY) }
    }

    /// Converts `bytes` to segments.
    #[inline]
    pub fn count(&self, bytes: Bytes) -> f64 {
        bytes.0 as f64 / self.mss
    }

    /// The window in segments.
    #[inline]
    pub fn segments(&self) -> f64 {
        self.segments
    }

    /// The window, to the nearest byte, never below one segment.
    #[inline]
    pub fn bytes(&self) -> Bytes {
        Bytes((self.segments.max(1.0) * self.mss + 0.5) as u64)
    }

    /// Whether the window is below the threshold.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.segments < self.threshold
    }

    /// Neither a decrease nor an exit yet: the slow start that HyStart++ applies to.
    #[inline]
    pub fn is_first_slow_start(&self) -> bool {
        self.threshold == f64::INFINITY
    }

    /// FlightSize of RFC 5681 section 3.1 in segments: data that Limited Transmit sent beyond the
    /// window does not count.
    #[inline]
    pub fn flight(&self, in_flight: Bytes) -> f64 {
        self.count(in_flight).min(self.segments)
    }

    /// Slow start with `acked` segments, at most `limit` at once. Returns the segments beyond the
    /// threshold, which belong to congestion avoidance.
    #[inline]
    pub fn slow_start(&mut self, acked: f64, limit: f64) -> f64 {
        let to_threshold = self.threshold - self.segments;
        if to_threshold <= 0.0 {
            return acked;
        }
        let step = acked.min(limit);
        if step < to_threshold {
            self.segments += step;
            return 0.0;
        }
        self.segments = self.threshold;
        acked - to_threshold
    }

    /// Congestion avoidance: `per_window` segments for each window acknowledged, but never faster than slow start.
    #[inline]
    pub fn grow(&mut self, acked: f64, per_window: f64) {
        self.segments += acked * (per_window / self.segments).clamp(0.0, 1.0);
    }

    /// Sets the window outside of losses, by delay or by a curve.
    #[inline]
    pub fn set(&mut self, segments: f64) {
        self.segments = segments.max(1.0);
    }

    /// Ends slow start at this window. Also lowers a threshold above the window, so that slow start
    /// does not undo a delay-based decrease.
    #[inline]
    pub fn leave_slow_start(&mut self) {
        self.threshold = self.threshold.min(self.segments);
    }

    /// Sets the threshold: slow start up to `segments`.
    pub fn aim(&mut self, segments: f64) {
        self.threshold = segments.max(2.0);
    }

    /// Window and threshold after a congestion signal: never below two segments (RFC 5681 equation 4).
    pub fn decrease(&mut self, left: f64) {
        self.before = (self.segments, self.threshold);
        self.threshold = left.max(2.0);
        self.segments = self.threshold;
    }

    /// RFC 5681 section 3.1: one segment; the threshold falls at the first expiry only.
    pub fn collapse(&mut self, left: f64, timeout: &Timeout) {
        if timeout.count <= 1 {
            self.decrease(left);
        }
        self.segments = 1.0;
    }

    /// Undoes the last decrease, which was spurious.
    pub fn undo(&mut self) {
        self.segments = self.segments.max(self.before.0);
        self.threshold = self.before.1;
    }

    /// The state for charts; `avoidance` is the name of the state after slow start.
    pub fn state(&self, avoidance: &'static str) -> State {
        State {
            window: self.bytes(),
            threshold: (!self.is_first_slow_start())
                .then_some(Bytes((self.threshold * self.mss + 0.5) as u64)),
            pacing_rate: None,
            phase: if self.in_slow_start() { "slow_start" } else { avoidance },
        }
    }
}

/// Seconds between two ACKs.
#[inline]
pub fn seconds(now: Instant, earlier: Instant) -> f64 {
    now.since(earlier).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_ack_leaves_over_at_the_threshold_belongs_to_congestion_avoidance() {
        let mut window = Window::new(&Setup::default());
        window.decrease(10.0);
        window.collapse(6.0, &Timeout { in_flight: Bytes::ZERO, count: 1 });
        assert_eq!(window.slow_start(4.0, 8.0), 0.0);
        assert_eq!(window.slow_start(4.0, 8.0), 3.0);
        assert_eq!(window.segments(), 6.0);
    }

    #[test]
    fn growth_below_one_byte_adds_up() {
        let mut window = Window::new(&Setup { mss: Bytes(1000), initial_window: 1_000_000 });
        for _ in 0..1_000_000 {
            window.grow(1.0, 1.0);
        }
        // The window grows a little meanwhile, so a segment less 1/2 · 1/10⁶.
        assert!((window.segments() - 1_000_001.0).abs() < 1e-3, "{}", window.segments());
    }

    #[test]
    fn no_window_is_below_one_segment_nor_below_two_after_a_loss() {
        let mut window = Window::new(&Setup::default());
        window.set(0.25);
        assert_eq!(window.segments(), 1.0);
        window.decrease(0.5);
        assert_eq!(window.segments(), 2.0);
    }

    #[test]
    fn repeated_timeouts_keep_the_first_threshold() {
        let mut window = Window::new(&Setup::default());
        window.collapse(5.0, &Timeout { in_flight: Bytes::ZERO, count: 1 });
        window.collapse(2.0, &Timeout { in_flight: Bytes::ZERO, count: 2 });
        assert_eq!((window.segments(), window.threshold), (1.0, 5.0));
        window.undo();
        assert_eq!((window.segments(), window.threshold), (10.0, f64::INFINITY));
    }
}
