//! # bottleneck-rate
//!
//! The rate of the slowest link of the path, as far as this flow got it: what arrived while a queue stood in front of it.
//!
//! ## How it is measured
//!
//! Timestamps of the other host split each round trip, so that the arrival of each segment at its receiver and its wait on
//! the way are known (`data_queue_ms`). The link was busy between two arrivals where the later segment reached the queue
//! before the earlier one had left it. It must have done so by 8 ms, three ticks of the timestamps and the time of two
//! packets at least. Runs of such arrivals of 100 ms and more (20 ticks) count: bytes of IP packets over time.
//!
//! `bottleneck_bps` is the mean over all of that time, outages of a link with a queue included. Its 90 % interval is from ten
//! parts of that time (batch means, Student's t). It is never narrower than 0.5 % and a tick per run: ends of runs are known
//! to a tick. `bottleneck_bps_min` and `bottleneck_bps_max` are those of half seconds within runs. The text says that the
//! rate varied where they differ by more than a quarter.
//!
//! Minimum: 3 s in which a queue stood and 200 packets in them. With less the finding is withheld, for the link may be
//! faster than anything seen. A transfer that the program or a window limits shows its own rate, and random loss keeps the
//! queue empty. It is withheld too where timestamps show nothing, or where the capture is beside neither host.
//!
//! ## Evidence
//!
//! `bottleneck_bps`, `bottleneck_bps_low`, `bottleneck_bps_high` (90 % interval of the mean), `bottleneck_bps_min`,
//! `bottleneck_bps_max` (of half seconds), `queued_s` (time in which a queue stood).
//!
//! ## What cures it
//!
//! It is a fact about the path. A shaper with smart queue management (CAKE) keeps the queue where it can be managed. It
//! must be set a little below the rate: below the smallest one where the rate varies.
//!
//! ## Traps
//!
//! - Other flows in the same queue take their part, so the link itself may be faster.
//! - Segments that arrived twice took time of the link, and do not count: where many were sent again for nothing the value
//!   is a few per cent too low.
//! - A receiver that stands still, or a slow interface of it, looks like a slow link.
//! - Headers of IP and TCP of full segments are counted. Those below IP are not, which some shapers count.
//!
//! ## Sources
//!
//! RFC 7323 (timestamps). Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016: delivery rate
//! equals the bottleneck's rate only while a queue stands.

use super::reading::{Values, rate, seconds};
use super::{Check, Rule, page::page};
use crate::series::arrivals::{
    MIN_QUEUED_PACKETS, MIN_QUEUED_S, MIN_WAIT, Step, certain_wait, packet, runs,
};
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Severity};
use units::Instant;

/// Time of one value of the smallest and largest rate.
const WINDOW_S: f64 = 0.5;
/// Largest rate over smallest from which the rate varied: beyond what ticks of 10 ms at both ends of a window add up to.
const VARIED: f64 = 1.25;
/// Parts of the time for the interval, and the 95 % quantile of Student's t for one degree of freedom less.
const PARTS: usize = 10;
const STUDENT: f64 = 1.833;
/// What a mean can be wrong by at least: drift of a clock (500 ppm, NTP's bound), ACKs that were delayed, mixed sizes of
/// packets.
const MIN_ERROR: f64 = 0.005;

pub(super) const RULE: Rule = Rule {
    name: "bottleneck-rate",
    about: "rate of the slowest link, while a queue stood",
    source: "RFC 7323; BBR (ACM Queue 2016)",
    page: page!("bottleneck_rate.rs"),
    check: Check::Flow(check),
};

/// The rate of the link while a queue stood, in bit/s of IP packets.
#[derive(Clone, Copy, Debug)]
struct Link {
    bps: f64,
    low: f64,
    high: f64,
    min: f64,
    max: f64,
    queued_s: f64,
    from: Instant,
    to: Instant,
}

/// Half of the 90 % interval of a mean over `steps` of `total_s`, as a share of `mean`.
fn spread(steps: impl Iterator<Item = Step>, total_s: f64, mean: f64) -> f64 {
    let mut parts = [(0.0, 0.0); PARTS];
    let mut at_s = 0.0;
    for step in steps {
        let middle = (at_s + step.seconds / 2.0) / total_s * PARTS as f64;
        let part = &mut parts[(middle as usize).min(PARTS - 1)];
        *part = (part.0 + step.bytes, part.1 + step.seconds);
        at_s += step.seconds;
    }
    // A part that one long step skips has no rate of its own.
    let rates: Vec<f64> = parts.iter().filter(|p| p.1 > 0.0).map(|p| p.0 / p.1).collect();
    let n = rates.len() as f64;
    if n < 2.0 {
        return 1.0;
    }
    let squares: f64 = rates.iter().map(|r| (r - mean).powi(2)).sum();
    STUDENT * (squares / (n - 1.0) / n).sqrt() / mean
}

/// Rates of the windows within each run, bytes per second.
fn windows(runs: &[Vec<Step>], least_s: f64) -> Vec<f64> {
    let mut found = Vec::new();
    for run in runs {
        let (mut bytes, mut seconds) = (0.0, 0.0);
        for step in run {
            (bytes, seconds) = (bytes + step.bytes, seconds + step.seconds);
            if seconds >= least_s {
                found.push(bytes / seconds);
                (bytes, seconds) = (0.0, 0.0);
            }
        }
    }
    found
}

fn link(e: &Evidence<'_>) -> Option<Link> {
    let directions = e.directions?;
    let (payload, packet) = packet(e.flow, e.connection.a_addr.to_ip().is_ipv6());
    let runs = runs(directions, certain_wait(e.flow, directions, MIN_WAIT)?);
    let steps = || runs.iter().flatten().copied();
    let (bytes, queued_s) = steps().fold((0.0, 0.0), |(b, s), x| (b + x.bytes, s + x.seconds));
    if queued_s < MIN_QUEUED_S || bytes < MIN_QUEUED_PACKETS * payload {
        return None;
    }
    let mean = bytes / queued_s;
    let ticks = directions.tick.as_secs_f64() * runs.len() as f64 / queued_s;
    let half = spread(steps(), queued_s, mean).max(MIN_ERROR + ticks);
    let bps = |bytes_per_s: f64| bytes_per_s * packet / payload * 8.0;
    // Single packets count in a short window of a slow link: a tenth at most.
    let windows = windows(&runs, WINDOW_S.max(10.0 * payload / mean));
    let min = windows.iter().copied().fold(mean, f64::min);
    let max = windows.iter().copied().fold(mean, f64::max);
    Some(Link {
        bps: bps(mean),
        low: bps(mean * (1.0 - half).max(0.0)),
        high: bps(mean * (1.0 + half)),
        min: bps(min),
        max: bps(max),
        queued_s,
        from: steps().next()?.from,
        to: steps().last()?.to,
    })
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let link = link(e)?;
    let mut v = Values::default();
    v.number("bottleneck_bps", link.bps)
        .number("bottleneck_bps_low", link.low)
        .number("bottleneck_bps_high", link.high)
        .number("bottleneck_bps_min", link.min)
        .number("bottleneck_bps_max", link.max)
        .number("queued_s", link.queued_s);
    let varied = match link.max >= VARIED * link.min {
        true => format!(" It varied between {} and {}.", rate(link.min), rate(link.max)),
        false => String::new(),
    };
    Some(Finding {
        rule: RULE.name,
        severity: Severity::Info,
        flow: Some(e.flow.id),
        from: link.from,
        to: link.to,
        values: v.take(),
        text: format!(
            "The slowest link delivered {} to this flow while a queue stood, for {} (90 % interval: {} to {}).{varied}",
            rate(link.bps),
            seconds(link.queued_s),
            rate(link.low),
            rate(link.high),
        ),
        cure: "A fact about the path: a shaper with smart queue management (CAKE) works if it is set a little below this \
               rate, or below the smallest one where it varies.",
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;
    use crate::series::directions::{Directions, Waits};
    use units::Duration;

    /// A transfer of 12 s: by second, the rate at which data arrives, in Mbit/s of IP packets, and what it waited, in ms.
    fn case(mbit: &dyn Fn(f64) -> f64, wait_ms: &dyn Fn(f64) -> f64, tick_ms: u64) -> Case {
        let mut case = Case::transfer(12, |_, _| {});
        let mut delivered = 0.0;
        let waits = (0..600).map(|i| {
            let second = f64::from(i) / 50.0;
            delivered += mbit(second) * 1e6 / 8.0 / 50.0 * 1448.0 / 1500.0;
            let data = Duration((wait_ms(second) * 1e6) as u64);
            let arrived = at(second);
            let sent = Instant(arrived.0 - data.0 - 20_000_000);
            let acked = arrived + Duration::from_millis(20);
            let acks = Duration::ZERO;
            Waits {
                sent,
                arrived,
                answered: arrived,
                acked,
                data,
                acks,
                delivered: delivered as u64,
            }
        });
        case.directions = Some(Directions {
            tick: Duration::from_millis(tick_ms),
            width: Duration::from_millis(20),
            waits: waits.collect(),
            losses: Vec::new(),
        });
        case
    }

    #[test]
    fn the_rate_of_a_steady_link_has_a_narrow_interval() {
        let f = check(&case(&|_| 4.0, &|_| 200.0, 1).evidence()).expect("a rate");
        assert_eq!(f.severity, Severity::Info);
        assert!((f.number("bottleneck_bps") / 4e6 - 1.0).abs() < 0.001, "{}", f.text);
        let (low, high) = (f.number("bottleneck_bps_low"), f.number("bottleneck_bps_high"));
        assert!(low < 4e6 && high > 4e6 && high < 1.02 * low, "{}", f.text);
        assert!(!f.text.contains("varied"), "{}", f.text);
        let mut v6 = case(&|_| 4.0, &|_| 200.0, 1);
        v6.connection.a_addr = capture::Addr(1 << 100);
        let more = check(&v6.evidence()).expect("a rate").number("bottleneck_bps");
        assert!((more / 4e6 - 1520.0 / 1500.0).abs() < 0.001, "{more}");
    }

    #[test]
    fn arrivals_in_one_tick_are_not_left_out() {
        // Two trips in every tick of 20 ms, the second with a fifth of the bytes more.
        let mut case = case(&|_| 4.0, &|_| 200.0, 1);
        let waits = &mut case.directions.as_mut().expect("both directions").waits;
        let twice = waits.iter().flat_map(|w| [*w, Waits { delivered: w.delivered + 1_930, ..*w }]);
        *waits = twice.collect();
        let f = check(&case.evidence()).expect("a rate");
        assert!((f.number("bottleneck_bps") / 4e6 - 1.0).abs() < 0.001, "{}", f.text);
    }

    #[test]
    fn a_rate_that_changes_is_said_to_vary_and_its_mean_is_wide() {
        let f = check(&case(&|s| if s < 6.0 { 10.0 } else { 4.0 }, &|_| 300.0, 1).evidence());
        let f = f.expect("a rate");
        assert!((f.number("bottleneck_bps_min") / 4e6 - 1.0).abs() < 0.01, "{}", f.text);
        assert!((f.number("bottleneck_bps_max") / 10e6 - 1.0).abs() < 0.01, "{}", f.text);
        assert!(f.number("bottleneck_bps_high") > 1.2 * f.number("bottleneck_bps_low"));
        assert!(f.text.contains("It varied between 4.00 Mbit/s and 10.0 Mbit/s."), "{}", f.text);
    }

    #[test]
    fn only_the_time_in_which_a_queue_stood_counts() {
        // The program sends 1 Mbit/s for 8 s, and then as much as it can.
        let late = |from: f64| {
            let mbit = move |s: f64| if s < from { 1.0 } else { 4.0 };
            let wait = move |s: f64| if s < from { 0.0 } else { 200.0 };
            check(&case(&mbit, &wait, 1).evidence())
        };
        // What arrived at 8 s had reached the queue before.
        let f = late(8.0).expect("a rate");
        assert!((f.number("bottleneck_bps") / 4e6 - 1.0).abs() < 0.01, "{}", f.text);
        assert_eq!((f.from, f.to), (at(7.98), at(11.98)));
        assert!(late(9.5).is_none(), "2.5 s");
    }

    #[test]
    fn without_a_queue_without_timestamps_or_below_three_ticks_it_is_withheld() {
        let with = |wait_ms: f64, tick_ms| {
            check(&case(&|_| 4.0, &move |_| wait_ms, tick_ms).evidence()).is_some()
        };
        // 20 ms from one arrival to the next, and 8 ms or three ticks.
        assert_eq!([with(0.0, 1), with(27.0, 1), with(29.0, 1)], [false, false, true]);
        assert_eq!([with(49.0, 10), with(51.0, 10)], [false, true]);
        let mut blind = case(&|_| 4.0, &|_| 200.0, 1);
        blind.directions = None;
        assert!(check(&blind.evidence()).is_none());
    }

    #[test]
    fn packets_that_wait_for_others_and_leave_together_are_no_queue_of_a_link() {
        // A link that lets go every 200 ms of what came meanwhile.
        let mut case = case(&|_| 1.0, &|s| 200.0 - s * 1e3 % 200.0, 1);
        for w in &mut case.directions.as_mut().expect("both directions").waits {
            w.arrived = w.arrived + w.data;
        }
        assert!(check(&case.evidence()).is_none());
    }
}
