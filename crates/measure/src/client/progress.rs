//! What is shown while a test runs.

use std::time::Duration;

use crate::delay::Times;
use crate::seen::Record;

/// Counts of the last second: ten ticks.
const COUNTED: usize = 10;

/// What is shown while it runs.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What is done now.
    pub step: &'static str,
    /// Seconds until the end, at most.
    pub left_s: f64,
    /// Goodput of the last second, bit/s, in loaded directions.
    pub down_bps: Option<f64>,
    /// The other direction.
    pub up_bps: Option<f64>,
    /// Added delay of the latest answer, ms; as far as clocks are known.
    pub down_ms: Option<f64>,
    /// The other direction.
    pub up_ms: Option<f64>,
}

impl Progress {
    /// From what is known now; `down` and `up` are counted bytes with their times.
    pub fn of(
        step: &'static str,
        left: Duration,
        records: &[Record],
        down: &[(i64, u64)],
        up: &[(i64, u64)],
    ) -> Progress {
        let answered = records.iter().filter_map(|record| record.answer);
        // The clocks' rates differ by less in the time of a test than is shown.
        let above_least = |way: fn(&Times) -> i64| {
            let values = answered.clone().map(move |(times, _)| way(&times));
            let (last, least) = (values.clone().next_back()?, values.min()?);
            Some((last - least) as f64 / 1e6)
        };
        let rate = |counts: &[(i64, u64)]| {
            let (now, before) = (counts.last()?, counts.iter().rev().nth(COUNTED)?);
            let seconds = (now.0 - before.0) as f64 / 1e9;
            (seconds > 0.0).then(|| (now.1 - before.1) as f64 * 8.0 / seconds)
        };
        Progress {
            step,
            left_s: left.as_secs_f64(),
            down_bps: rate(down).filter(|_| matches!(step, "down" | "both")),
            up_bps: rate(up).filter(|_| matches!(step, "up" | "both")),
            down_ms: above_least(|times| times.t4 - times.t3),
            up_ms: above_least(|times| times.t2 - times.t1),
        }
    }
}
