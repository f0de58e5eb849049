//! When a load fills the path, and from when on it is measured.
//!
//! signal: goodput per interval · model: another stream brings nothing once the bottleneck is full; goodput is steady
//! when its moving averages differ little · action: add a stream, or leave it at these; measure from now on.
//!
//! The second rule is that of draft-ietf-ippm-responsiveness-09, section 4.3: the standard deviation of the last MAD
//! moving averages is below 5 % of the latest one. Its interval is 5 s, or 1 s in earlier versions; here it is an argument,
//! since a test of 40 s has no room for it.

/// Streams at most: more fill nothing that sixteen do not.
pub const MAX_STREAMS: usize = 16;
/// A stream that brings less than this share more brings nothing.
const GAIN: f64 = 0.05;
/// So many intervals in a row without gain: one may be chance.
const WITHOUT_GAIN: u32 = 2;
/// MAD of the draft: intervals of a moving average, and averages that are compared.
pub const AVERAGED: usize = 4;
/// SDT of the draft.
const STEADY: f64 = 0.05;

/// Mean of the last MAD values, or of as many as there are.
pub fn moving_average(values: &[f64]) -> f64 {
    let latest = &values[values.len().saturating_sub(AVERAGED)..];
    latest.iter().sum::<f64>() / latest.len() as f64
}

/// Whether the standard deviation of the last MAD averages is below SDT of the latest one.
pub fn is_steady(averages: &[f64]) -> bool {
    let Some(at) = averages.len().checked_sub(AVERAGED) else { return false };
    let last = &averages[at..];
    let mean = last.iter().sum::<f64>() / AVERAGED as f64;
    let variance = last.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / AVERAGED as f64;
    let latest = last[AVERAGED - 1];
    latest > 0.0 && variance.sqrt() < STEADY * latest
}

/// What to do after an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// One more stream.
    Add,
    /// Wait until goodput is steady.
    Wait,
    /// Measure.
    Measure,
}

/// The load of one direction.
#[derive(Clone, Debug)]
pub struct Saturation {
    streams: usize,
    growing: bool,
    best: f64,
    without_gain: u32,
    goodputs: Vec<f64>,
    averages: Vec<f64>,
}

impl Saturation {
    /// A load that begins with `streams`, and may add some where `growing`.
    pub fn new(streams: usize, growing: bool) -> Saturation {
        Saturation {
            streams,
            growing: growing && streams < MAX_STREAMS,
            best: 0.0,
            without_gain: 0,
            goodputs: Vec::new(),
            averages: Vec::new(),
        }
    }

    /// Takes the goodput of an interval, bit/s.
    pub fn interval(&mut self, goodput: f64) -> Advice {
        self.goodputs.push(goodput);
        self.averages.push(moving_average(&self.goodputs));
        if self.growing {
            let gained = goodput > self.best * (1.0 + GAIN);
            self.best = self.best.max(goodput);
            self.without_gain = if gained { 0 } else { self.without_gain + 1 };
            if self.without_gain < WITHOUT_GAIN && self.streams < MAX_STREAMS {
                self.streams += 1;
                return Advice::Add;
            }
            self.growing = false;
        }
        if is_steady(&self.averages) { Advice::Measure } else { Advice::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals until it measures, and the streams then, on a path where `goodput(streams, interval)` comes through.
    fn led(growing: bool, goodput: impl Fn(usize, usize) -> f64) -> (usize, usize) {
        let mut load = Saturation::new(1, growing);
        let mut streams = 1;
        for interval in 0..100 {
            match load.interval(goodput(streams, interval)) {
                Advice::Add => streams += 1,
                Advice::Wait => {}
                Advice::Measure => return (interval + 1, streams),
            }
        }
        (100, streams)
    }

    #[test]
    fn a_path_that_one_stream_fills_gets_three() {
        assert_eq!(led(true, |_, _| 1e7), (4, 3));
    }

    #[test]
    fn streams_are_added_while_each_brings_more() {
        let (intervals, streams) = led(true, |streams, _| 1e6 * (streams as f64).min(8.0));
        assert_eq!(streams, 10, "eight fill it, and two bring nothing");
        assert!(intervals < 20);
    }

    #[test]
    fn sixteen_are_the_most() {
        let (_, streams) = led(true, |streams, _| 1e6 * streams as f64);
        assert_eq!(streams, MAX_STREAMS);
    }

    #[test]
    fn a_goodput_that_swings_is_not_measured_and_none_neither() {
        let swings = |_, n| if (n + 2) % 8 < 4 { 1e6 } else { 9e6 };
        assert_eq!(led(false, swings).0, 100);
        assert_eq!(led(true, |_, _| 0.0).0, 100);
    }

    #[test]
    fn a_slow_start_is_over_before_it_measures() {
        let (intervals, streams) =
            led(false, |_, n| 1e7 * (1.0 - 0.5_f64.powi(i32::try_from(n).unwrap())));
        assert_eq!(streams, 1);
        assert!((6..12).contains(&intervals), "{intervals}");
    }
}
