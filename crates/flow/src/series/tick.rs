//! Resolution of the other host's timestamps.
//!
//! signal: round trips with the TSval of their answer · model: a clock that counts in 1 µs, 1, 4 or 10 ms (Linux since 6.7
//! with `tcp_usec_ts`; Linux, BSD and macOS; older kernels at 250 and at 100 Hz), read at some time within the round trip ·
//! action: the resolution that explains the median of many spans, or none.

use units::Duration;

use crate::series::stamps::Trip;

/// What clocks of TCP count in.
const TICKS: [Duration; 4] = [
    Duration::from_micros(1),
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(10),
];
/// The flow is compared in so many parts, each by its fastest round trip, at a distance of a quarter of them: a step of a
/// clock is in a third of these spans at most.
const PARTS: usize = 16;
/// Most that a span may differ. A queue that grows for as long as the span differs by half of that; a clock of 300 Hz, which
/// some kernels had, differs from one of 250 Hz by a fifth.
const TOLERANCE: f64 = 0.15;

/// Time of a tick, or `None` where none of the known ones fits.
pub(crate) fn tick(trips: &[Trip]) -> Option<Duration> {
    let size = trips.len().div_ceil(PARTS).max(1);
    let fastest: Vec<&Trip> = trips
        .chunks(size)
        .filter_map(|part| part.iter().min_by_key(|trip| trip.back.since(trip.out)))
        .collect();
    let middle = |trip: &Trip| trip.out.0 as f64 + trip.back.since(trip.out).0 as f64 / 2.0;
    let mut found: Vec<f64> = fastest
        .iter()
        .zip(fastest.iter().skip(PARTS / 4))
        .map(|(a, b)| (middle(b) - middle(a)) / (b.ticks - a.ticks) as f64)
        .filter(|ns| ns.is_finite() && *ns > 0.0)
        .collect();
    found.sort_by(f64::total_cmp);
    let ns = *found.get(found.len() / 2)?;
    TICKS.into_iter().find(|tick| (ns / tick.0 as f64 - 1.0).abs() <= TOLERANCE)
}

#[cfg(test)]
mod tests {
    use units::Instant;

    use super::*;

    /// 3 s of trips of 50 ms, answered by a clock of `tick`, which steps by `step_ns` after half of them.
    fn trips(tick_ns: i64, step_ns: i64) -> Vec<Trip> {
        let at = |i: u64| {
            let out = Instant(1_000_000_000_000 + i * 20_000_000);
            let clock_ns = i as i64 * 20_000_000 + if i >= 75 { step_ns } else { 0 };
            let back = out + Duration::from_millis(50);
            Trip { out, back, ticks: clock_ns / tick_ns, delivered: 0, delayed: false }
        };
        (0..150).map(at).collect()
    }

    #[test]
    fn each_resolution_is_found_whatever_a_step_of_the_clock() {
        for tick in TICKS {
            for step_s in [0, -30, 3_600] {
                let found = super::tick(&trips(tick.0 as i64, step_s * 1_000_000_000));
                assert_eq!(found, Some(tick), "{tick:?} {step_s}");
            }
        }
    }

    #[test]
    fn a_clock_of_300_hz_and_one_that_stands_still_are_none_of_these() {
        assert_eq!(tick(&trips(3_333_333, 0)), None);
        assert_eq!(tick(&trips(i64::MAX, 0)), None);
        assert_eq!(tick(&[]), None);
    }
}
