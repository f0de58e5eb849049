//! Whether ACKs are held on their way, for how long, and how often.
//!
//! signal: when each ACK left the receiver and when it reached the sender (`flow::series::directions`) · model: a radio that sends upwards now and then, or
//! Wi-Fi that aggregates, releases at once what came meanwhile: ACKs of one batch arrive together, and the first of them waited longest. A queue on
//! the way back releases them one after another · action: [`Holds`], by the batches
//!
//! Source: draft-ietf-ccwg-bbr (BBR.UpdateACKAggregation), whose estimate `extra_acked` sees the same batches by their
//! bytes. Deviation: lengths and periods of the holds, which a replay needs.

use flow::series::directions::{Directions, Waits};
use units::{Duration, Instant};

/// An ACK that waited for less was not held: schedulers of hosts.
const MIN_WAIT: Duration = Duration::from_millis(10);
/// ACKs of one batch arrive within this, and within so many ticks of the receiver's clock.
const BATCH: Duration = Duration::from_millis(5);
const BATCH_TICKS: u64 = 2;
/// Shorter holds are those of the link layer and of delayed ACKs.
const MIN_HOLD: Duration = Duration::from_millis(20);
/// Fewer batches have no period.
const MIN_BATCHES: usize = 4;
/// Holds begin with the first batches that are within so many periods of each other.
const REGULAR: u64 = 2;
/// Holds come only with a long queue where this part of the ACKs is of data that waited less than half as long as that of all but few held ACKs.
const FEW: f64 = 0.05;
const SHORTER: u64 = 2;
const FREE: f64 = 0.1;
/// The first ACK of a batch came shortly after the hold began, or long after it: of the longest waits the upper quartile.
const OF_LENGTHS: f64 = 0.75;

/// How ACKs are held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holds {
    /// How long a hold is.
    pub length: Duration,
    /// From the end of one to the end of the next.
    pub every: Duration,
    /// When the first one ended, from the first arrival on.
    pub from: Duration,
    /// Whether ACKs were held only while data waited long: a radio that is short of turns. A short queue may have no holds then.
    pub in_long_queue: bool,
}

/// The holds on the way back, if there are any.
pub(crate) fn holds(directions: &Directions) -> Option<Holds> {
    let within = BATCH.max(directions.tick * BATCH_TICKS);
    let mut held: Vec<&Waits> = directions.waits.iter().filter(|w| w.acks >= MIN_WAIT).collect();
    held.sort_by_key(|w| w.acked);
    let mut batches = Vec::new();
    let mut rest = held.as_slice();
    while let Some(first) = rest.first() {
        let count = rest.partition_point(|w| w.acked.since(first.acked) <= within);
        let (batch, later) = rest.split_at(count);
        batches.push((first.acked, batch.iter().map(|w| w.acks).max()?));
        rest = later;
    }
    batches.retain(|batch| batch.1 >= MIN_HOLD);
    if batches.len() < MIN_BATCHES {
        return None;
    }
    let lengths = batches.iter().map(|batch| batch.1);
    let gaps = batches.windows(2).map(|two| two[1].0.since(two[0].0));
    let (length, every) = (quantile(lengths, OF_LENGTHS)?, quantile(gaps, 0.5)?);
    let arrived = directions.waits.iter().map(|w| w.arrived).min()?;
    // Each hold ends before the next one begins.
    let every = every.max(length);
    // A single batch before is a host that stood still.
    let regular = |few: &&[(Instant, Duration)]| {
        few.windows(2).all(|two| two[1].0.since(two[0].0) <= every * REGULAR)
    };
    let first = batches.windows(MIN_BATCHES).find(regular).and_then(|few| few.first());
    let from = first.or(batches.first())?.0.since(arrived);
    Some(Holds { length, every, from, in_long_queue: in_long_queue(directions)? })
}

/// Whether the queue of data was short for a good part of the transfer, and no ACK was held then.
fn in_long_queue(directions: &Directions) -> Option<bool> {
    let held = directions.waits.iter().filter(|w| w.acks >= MIN_WAIT).map(|w| w.data);
    let least = quantile(held, FEW)?;
    let short = directions.waits.iter().filter(|w| w.data * SHORTER < least).count();
    Some(short as f64 >= FREE * directions.waits.len() as f64)
}

/// Of some durations.
fn quantile(values: impl Iterator<Item = Duration>, part: f64) -> Option<Duration> {
    let mut values: Vec<Duration> = values.collect();
    values.sort_unstable();
    let last = values.len().checked_sub(1)?;
    values.get((part * last as f64) as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ACK every 4 ms, and what each waited.
    fn directions(wait_ms: impl Fn(u64) -> u64) -> Directions {
        let waits = (0..2500).map(|number| {
            let left = Instant(number * 4_000_000);
            let acks = Duration::from_millis(wait_ms(number * 4));
            Waits {
                sent: left,
                arrived: left,
                answered: left,
                acked: left + acks,
                data: Duration::ZERO,
                acks,
                delivered: number * 2896,
            }
        });
        Directions {
            tick: Duration::from_millis(1),
            width: Duration::from_millis(4),
            waits: waits.collect(),
            losses: Vec::new(),
        }
    }

    #[test]
    fn holds_have_their_length_and_period() {
        let held = |at_ms: u64| 120_u64.saturating_sub(at_ms % 300);
        let Some(found) = holds(&directions(held)) else { panic!("no holds") };
        assert!(found.length.as_millis_f64() > 110.0, "{found:?}");
        assert!(found.length.as_millis_f64() <= 120.0, "{found:?}");
        assert!((found.every.as_millis_f64() - 300.0).abs() < 5.0, "{found:?}");
        assert!(found.from <= found.every, "{found:?}");
        let Some(later) = holds(&directions(|at_ms| if at_ms < 4000 { 0 } else { held(at_ms) }))
        else {
            panic!("no holds");
        };
        assert!((later.from.as_millis_f64() - 4020.0).abs() < 5.0, "{later:?}");
    }

    #[test]
    fn holds_of_a_long_queue_alone_are_known_by_it() {
        let held = |at_ms: u64| 120_u64.saturating_sub(at_ms % 300);
        let at =
            |early: bool| move |at_ms: u64| if early && at_ms < 4000 { 0 } else { held(at_ms) };
        let mut found = directions(at(true));
        for w in &mut found.waits {
            w.data = Duration::from_millis(if w.sent.0 < 4_000_000_000 { 40 } else { 900 });
        }
        assert!(holds(&found).is_some_and(|holds| holds.in_long_queue));
        let mut always = directions(at(false));
        always.waits.iter_mut().for_each(|w| w.data = Duration::from_millis(900));
        assert!(holds(&always).is_some_and(|holds| !holds.in_long_queue));
    }

    #[test]
    fn acks_that_come_one_after_another_are_not_held() {
        assert_eq!(holds(&directions(|_| 0)), None);
        assert_eq!(holds(&directions(|at_ms| at_ms % 16)), None, "of a host");
    }
}
