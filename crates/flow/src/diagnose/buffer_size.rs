//! # buffer-size
//!
//! How much the buffer in front of the slowest link holds: what stood in it when segments were lost.
//!
//! ## How it is measured
//!
//! Timestamps of the other host show when each segment arrived, and what it waited on the way (`data_queue_ms`). What
//! arrived during the wait of a segment stood before it in the queue. With the segment itself this is the queue, in bytes
//! of IP packets, at any rate of the link.
//!
//! A buffer that is full drops what comes (tail drop). So the queue beside losses is the buffer's size: that of the
//! segment before or after a loss, whichever waited longer, one per 20 ms in which segments were lost. Losses count that
//! duplicate ACKs or SACK reported.
//! The size is the median of at least three such moments. Nine of ten must have four fifths of it or more, and the queue
//! may exceed it by a quarter in 1 % of the time at most. The interval has the 5th and the 95th percentile of the moments,
//! widened by a tick and a millisecond. Above it has four packets more: the fastest segment may have waited for others of its
//! burst, which makes all waits too short. And a round trip is stored per 20 ms, so that a loss met up to 20 ms more of queue
//! than the segment beside it. That none of `n` losses came near the end of these 20 ms has a chance of 5 % at
//! `20 ms (1 - 0.05^(1/n))`, which the interval has above as well.
//!
//! - `limit` is `bytes` where the bytes agree with each other and the waits do not. It is `time` where it is the other way
//!   round, and `bytes or time` where both do, since the rate was steady. Packets of one size look like bytes.
//! - Where one moment divides the losses into two parts that agree with themselves, and differ by a quarter, the buffer had
//!   two sizes in time. The value is the later one, and `buffer_bytes_before` the earlier one. Losses while a queue above the
//!   smaller size drains count for neither.
//! - Where losses of a second and more agree with themselves, and the buffer held more later without a loss, it grew. The
//!   value is a lower bound then, beside `buffer_bytes_before`.
//! - `not reached`: nothing was lost, or losses came at any queue (random loss, or queue management that drops early). Then
//!   only a lower bound is known, the queue that was exceeded in 1 % of the time, less the packet that is on the link.
//!
//! Minimum: 3 s in which a queue certainly stood (8 ms, three ticks and two packets of wait). It is withheld where
//! timestamps show nothing, or where the capture is beside neither host.
//!
//! ## Evidence
//!
//! `limit`, `losses` (moments of 20 ms with a loss), `buffer_bytes`, `buffer_bytes_low`, `buffer_bytes_high`, `buffer_ms`,
//! `buffer_ms_low`, `buffer_ms_high`, `buffer_packets` (of full size). Where it had two sizes: `buffer_bytes_before`, the
//! last moment that shows this one (`before_until_s`), and the first that shows the other one (`changed_s`), both into the
//! transfer. Of a lower bound: `buffer_bytes_low` and `buffer_ms_low`.
//!
//! ## What cures it
//!
//! A buffer of much more than one bandwidth-delay product only adds delay. Smart queue management (CAKE, FQ-CoDel) keeps
//! its queue short, as does a sender with BBR or a receive window that follows the delay (DRWA).
//!
//! ## Traps
//!
//! - Other flows in the same queue: bytes are those of this flow, the time is that of the whole queue.
//! - A policer drops without a queue, so no size is found. One behind a queue has losses at any queue.
//! - Where a buffer never emptied, what always stood in it is missing in the size.
//!
//! ## Sources
//!
//! RFC 7323 (timestamps). RFC 7567 section 2 (tail drop).

use super::queues::{Queue, Queues};
use super::reading::{Values, bytes, clock, counted, ms, quantile, seconds_into};
use super::{Check, Rule, page::page};
use crate::series::evidence::Evidence;
use crate::series::rows::{Finding, Severity};
use units::{Duration, Instant};

/// Moments that agree with each other: two may do so by chance.
const MIN_LOSSES: usize = 3;
/// A full buffer has space for less than a burst of packets; a fifth of a small buffer.
const NEAR_FULL: f64 = 0.8;
/// Part of the moments that may have less, and of the time that may have more.
const LESS: f64 = 0.1;
const MORE: f64 = 0.99;
/// A queue that exceeds the size by more shows that it was none; two sizes differ by more.
const BEYOND: f64 = 1.25;
/// What hosts hold packets up for.
const HOST: Duration = Duration::from_millis(1);
/// Losses of one burst may have another cause, and the queue behind them goes on to grow.
const MIN_SPAN: Duration = Duration::from_secs(1);
/// Packets of an initial window that reach the link together; the later ones give the smallest delay.
const BURST: f64 = 4.0;
/// Chance that every loss met more queue than is said: as the part of the moments above the interval.
const UNSEEN: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    name: "buffer-size",
    about: "size of the buffer at the slowest link",
    source: "RFC 7323; RFC 7567",
    page: page!("buffer_size.rs"),
    check: Check::Flow(check),
};

/// How a queue is counted.
type Of = fn(&Queue) -> f64;
const BYTES: Of = |q| q.bytes;
const MS: Of = |q| q.ms;

/// Whether the queue at these losses was one that nothing exceeded, so that the buffer was full.
fn is_full(lost: &[Queue], all: impl Iterator<Item = Queue>, of: Of) -> bool {
    let at_losses: Vec<f64> = lost.iter().map(of).collect();
    let all: Vec<f64> = all.map(|q| of(&q)).collect();
    let values = (quantile(&at_losses, 0.5), quantile(&at_losses, LESS), quantile(&all, MORE));
    let (Some(size), Some(less), Some(most)) = values else { return false };
    lost.len() >= MIN_LOSSES && less >= NEAR_FULL * size && most <= BEYOND * size
}

/// Median and 90 % interval of the queue at losses.
#[derive(Clone, Copy, Debug)]
struct Size {
    low: f64,
    middle: f64,
    high: f64,
}

fn median(queues: &[Queue], of: Of) -> Option<f64> {
    quantile(&queues.iter().map(of).collect::<Vec<f64>>(), 0.5)
}

/// Where losses are divided best in two: each part with the smallest sum of distances from its median.
fn divided(lost: &[Queue], of: Of) -> Option<usize> {
    let spread = |part: &[Queue]| {
        let middle = median(part, of).unwrap_or(0.0);
        part.iter().map(|q| (of(q) - middle).abs()).sum::<f64>()
    };
    let both = |at: &usize| spread(&lost[..*at]) + spread(&lost[*at..]);
    (MIN_LOSSES..(lost.len() + 1).saturating_sub(MIN_LOSSES))
        .map(|at| (at, both(&at)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(at, _)| at)
}

/// The losses at a full buffer.
struct Full<'a> {
    lost: &'a [Queue],
    /// Those of an earlier size, and when the first came that was not.
    before: Option<(&'a [Queue], Instant)>,
}

impl Queues {
    fn full(&self, of: Of) -> Option<Full<'_>> {
        if is_full(&self.lost, self.all.iter().copied(), of) {
            return Some(Full { lost: &self.lost, before: None });
        }
        let (first, rest) = self.lost.split_at(divided(&self.lost, of)?);
        // What was queued before a smaller size goes on being above it, until it has left. Losses meanwhile show neither size.
        let behind = rest.first()?;
        let drains = Duration((first.last()?.ms.max(behind.ms) * 1e6) as u64);
        let nearly = NEAR_FULL * median(first, of)?;
        let is_before = |q: &Queue| of(q) >= nearly || q.at + drains < behind.at;
        let (first, between) = first.split_at(first.iter().rposition(is_before)? + 1);
        let changed = between.first().unwrap_or(behind);
        let queued = behind.at + drains;
        let second = rest.get(rest.partition_point(|q| q.at <= queued)..)?;
        let full = |part: &[Queue]| {
            let span = part.first().zip(part.last()).map(|(a, b)| a.at..=b.at);
            let inside = |q: &&Queue| span.as_ref().is_some_and(|span| span.contains(&q.at));
            is_full(part, self.all.iter().filter(inside).copied(), of)
        };
        let (before, after) = (median(first, of)?, median(second, of)?);
        let apart = before.max(after) >= BEYOND * before.min(after);
        let found = Full { lost: second, before: Some((first, changed.at)) };
        (apart && full(first) && full(second)).then_some(found)
    }

    /// When the buffer first held more than at its losses, none of which came after that.
    fn grew(&self) -> Option<Instant> {
        let (first, last) = (self.lost.first()?.at, self.lost.last()?.at);
        let so_far = self.all.iter().filter(|q| q.at <= last).copied();
        if last.since(first) < MIN_SPAN || !is_full(&self.lost, so_far, BYTES) {
            return None;
        }
        let size = median(&self.lost, BYTES)?;
        self.all.iter().find(|q| q.at > last && q.bytes >= BEYOND * size).map(|q| q.at)
    }

    fn size(&self, lost: &[Queue], of: Of) -> Option<Size> {
        let values: Vec<f64> = lost.iter().map(of).collect();
        let (middle, packets) = (quantile(&values, 0.5)?, median(lost, BYTES)? / self.packet_bytes);
        let unknown_ms = (self.tick + HOST).as_millis_f64();
        let per_ms = middle / median(lost, MS)?.max(unknown_ms);
        let error = per_ms * unknown_ms;
        let unseen = 1.0 - UNSEEN.powf(1.0 / lost.len() as f64);
        let between = per_ms * self.width.as_millis_f64() * unseen;
        let low = (quantile(&values, 0.05)? - error).max(0.0);
        let high = quantile(&values, 0.95)? + error + BURST * middle / packets + between;
        Some(Size { low, middle, high })
    }
}

fn check(e: &Evidence<'_>) -> Option<Finding> {
    let v6 = e.connection.a_addr.to_ip().is_ipv6();
    let queues = Queues::of(e.flow, e.directions?, v6)?;
    let (by_bytes, by_time) = (queues.full(BYTES), queues.full(MS));
    // Two sizes are the answer only where one explains nothing.
    let is_one = |full: &Option<Full<'_>>| full.as_ref().is_some_and(|f| f.before.is_none());
    let (full, limit) = match (is_one(&by_bytes), is_one(&by_time)) {
        (true, true) => (by_bytes, "bytes or time"),
        (true, false) => (by_bytes, "bytes"),
        (false, true) => (by_time, "time"),
        (false, false) => (by_bytes, "bytes"),
    };
    let Some(Full { lost, before }) = full else { return at_least(e, &queues) };
    let size = queues.size(lost, BYTES)?;
    let time = queues.size(lost, MS)?;
    let packets = size.middle / queues.packet_bytes;
    let (from, to) = (queues.lost.first()?.at, queues.lost.last()?.at);
    let mut v = Values::default();
    v.text("limit", limit)
        .number("losses", queues.lost.len() as f64)
        .number("buffer_bytes", size.middle)
        .number("buffer_bytes_low", size.low)
        .number("buffer_bytes_high", size.high)
        .number("buffer_ms", time.middle)
        .number("buffer_ms_low", time.low)
        .number("buffer_ms_high", time.high)
        .number("buffer_packets", packets);
    let mut text = match limit {
        "time" => format!(
            "The buffer at the slowest link holds {} of queue ({} to {}) at any rate",
            ms(time.middle),
            ms(time.low),
            ms(time.high)
        ),
        _ => format!(
            "The buffer at the slowest link holds {} ({} to {}; {packets:.0} packets, {} of queue)",
            bytes(size.middle),
            bytes(size.low),
            bytes(size.high),
            ms(time.middle)
        ),
    };
    text += &format!(
        ": it was full {} when segments were lost.",
        counted(lost.len() as u64, "time", "times")
    );
    if let Some((before, changed)) = before {
        text += &before_it(e, before, changed, &mut v)?;
    }
    Some(found(e, (from, to), v, text))
}

/// The earlier one of two sizes.
fn before_it(e: &Evidence<'_>, lost: &[Queue], changed: Instant, v: &mut Values) -> Option<String> {
    let (before, until) = (median(lost, BYTES)?, lost.last()?.at);
    v.number("buffer_bytes_before", before)
        .number("before_until_s", seconds_into(e, until))
        .number("changed_s", seconds_into(e, changed));
    Some(format!(" Before {} it held {}.", clock(e, changed), bytes(before)))
}

/// What it holds at the very least, where no loss shows its end.
fn at_least(e: &Evidence<'_>, queues: &Queues) -> Option<Finding> {
    let most = |of: Of| quantile(&queues.all.iter().map(of).collect::<Vec<f64>>(), MORE);
    let (size, wait_ms) = (most(BYTES)?, most(MS)?);
    let unknown_ms = (queues.tick + HOST).as_millis_f64();
    let known = 1.0 - (unknown_ms / wait_ms.max(unknown_ms));
    // One packet of the queue is on the link, and in no buffer.
    let (low, low_ms) = ((size - queues.packet_bytes).max(0.0) * known, wait_ms * known);
    let mut v = Values::default();
    v.text("limit", "not reached")
        .number("losses", queues.lost.len() as f64)
        .number("buffer_bytes_low", low)
        .number("buffer_ms_low", low_ms);
    let at_losses: Vec<f64> = queues.lost.iter().map(BYTES).collect();
    let range = quantile(&at_losses, 0.05).zip(quantile(&at_losses, 0.95));
    let why = match (queues.grew(), range) {
        (Some(grew), _) => {
            let before = before_it(e, &queues.lost, grew, &mut v)?;
            format!("nothing was lost since it grew.{before}")
        }
        (None, Some((least, largest))) => format!(
            "segments were lost with {} to {} in it, so that it was not full each time.",
            bytes(least),
            bytes(largest)
        ),
        (None, None) => "nothing that was lost shows its end.".to_owned(),
    };
    let text = format!(
        "The buffer at the slowest link holds at least {} ({} of queue): {why}",
        bytes(low),
        ms(low_ms)
    );
    let (from, to) = (queues.all.first()?.at, queues.all.last()?.at);
    Some(found(e, (from, to), v, text))
}

fn found(e: &Evidence<'_>, (from, to): (Instant, Instant), mut v: Values, text: String) -> Finding {
    Finding {
        rule: RULE.name,
        severity: Severity::Info,
        flow: Some(e.flow.id),
        from,
        to,
        values: v.take(),
        text,
        cure: "A fact about the path: what a buffer holds beyond one bandwidth-delay product only adds delay. Smart queue \
               management (CAKE, FQ-CoDel) keeps the queue far below its size.",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, at};
    use super::*;
    use crate::series::directions::{Directions, Loss, Waits};

    /// A transfer of 12 s at a rate (Mbit/s of IP packets by second) whose queue has these bytes, lost at these seconds.
    fn case(
        mbit: &dyn Fn(f64) -> f64,
        queue_bytes: &dyn Fn(f64) -> f64,
        lost: &dyn Fn(f64) -> bool,
    ) -> Case {
        let mut case = Case::transfer(12, |_, _| {});
        let arrived_at = |bytes: f64| {
            // The moment at which so many bytes have left the queue.
            let (mut sum, mut i) = (0.0, 0);
            loop {
                let step = mbit(f64::from(i) / 1e3) * 125.0;
                if sum + step > bytes {
                    return (f64::from(i) + (bytes - sum) / step) / 1e3;
                }
                (sum, i) = (sum + step, i + 1);
            }
        };
        let (mut waits, mut losses, mut left) = (Vec::new(), Vec::new(), 0.0);
        for i in 0..600 {
            let second = f64::from(i) / 50.0;
            if i > 0 {
                left += mbit(second - 0.02) * 125.0 * 20.0;
            }
            // The packet that arrives now found this queue, itself included.
            let queue = (queue_bytes(second) - 1500.0).clamp(0.0, left);
            let data = Duration(((second - arrived_at(left - queue)).max(0.0) * 1e9) as u64);
            let arrived = at(second);
            let w = Waits {
                sent: Instant(arrived.0 - data.0 - 20_000_000),
                arrived,
                answered: arrived,
                acked: arrived + Duration::from_millis(20),
                data,
                acks: Duration::ZERO,
                delivered: (left * 1448.0 / 1500.0) as u64,
            };
            waits.push(w);
            if lost(second) {
                losses.push(Loss { beside: w, segments: 1 });
            }
        }
        let (tick, width) = (Duration::from_millis(1), Duration::from_millis(20));
        case.directions = Some(Directions { tick, width, waits, losses });
        case
    }

    /// Rises from half of `most` to it in 2 s, again and again.
    fn sawtooth(second: f64, most: f64) -> f64 {
        most * (0.5 + (second % 2.0) / 4.0)
    }

    fn at_the_top(second: f64) -> bool {
        second % 2.0 > 1.9
    }

    #[test]
    fn losses_at_the_top_of_the_queue_show_the_size_of_the_buffer() {
        let f = check(&case(&|_| 8.0, &|s| sawtooth(s, 2e5), &at_the_top).evidence());
        let f = f.expect("a size");
        assert!((f.number("buffer_bytes") / 2e5 - 1.0).abs() < 0.03, "{}", f.text);
        assert!(f.number("buffer_bytes_low") < 2e5 && f.number("buffer_bytes_high") > 2e5);
        assert!((f.number("buffer_ms") / 200.0 - 1.0).abs() < 0.03, "{}", f.text);
        assert_eq!((f.word("limit"), f.severity), ("bytes or time", Severity::Info));
    }

    #[test]
    fn a_rate_that_changes_shows_whether_bytes_or_time_is_the_limit() {
        let mbit = |s: f64| if s < 6.0 { 10.0 } else { 5.0 };
        let f = check(&case(&mbit, &|s| sawtooth(s, 2e5), &at_the_top).evidence()).expect("a size");
        assert_eq!(f.word("limit"), "bytes", "{}", f.text);
        assert!((f.number("buffer_bytes") / 2e5 - 1.0).abs() < 0.03, "{}", f.text);
        let in_time = |s: f64| sawtooth(s, mbit(s) * 125.0 * 200.0);
        let f = check(&case(&mbit, &in_time, &at_the_top).evidence()).expect("a size");
        assert_eq!(f.word("limit"), "time", "{}", f.text);
        assert!((f.number("buffer_ms") / 200.0 - 1.0).abs() < 0.03, "{}", f.text);
    }

    #[test]
    fn a_buffer_that_shrinks_has_two_sizes() {
        let most = |s: f64| if s < 6.0 { 3e5 } else { 1e5 };
        let f = check(&case(&|_| 8.0, &|s| sawtooth(s, most(s)), &at_the_top).evidence());
        let f = f.expect("two sizes");
        assert!((f.number("buffer_bytes") / 1e5 - 1.0).abs() < 0.05, "{}", f.text);
        assert!((f.number("buffer_bytes_before") / 3e5 - 1.0).abs() < 0.03, "{}", f.text);
        assert!((f.number("changed_s") - 7.92).abs() < 0.05, "{}", f.text);
        let until = f.number("before_until_s");
        assert!(until < f.number("changed_s") && until > 4.0, "{until}");
    }

    #[test]
    fn a_loss_while_the_queue_of_the_larger_size_drains_shows_neither_size() {
        // It rises to 300 kB, drains to 100 kB in the fifth of a second before 6.1 s, and is full there.
        let queue = |s: f64| match s {
            s if s < 5.9 => sawtooth(s + 0.1, 3e5),
            s if s < 6.1 => 3e5 - (s - 5.9) * 1e6,
            s => sawtooth(s - 4.2, 1e5),
        };
        let near_the_top = |s: f64| at_the_top(if s < 5.9 { s + 0.1 } else { s - 4.2 });
        let lost = |s: f64| near_the_top(s) || (5.93..5.99).contains(&s);
        let f = check(&case(&|_| 8.0, &queue, &lost).evidence()).expect("two sizes");
        assert!((f.number("buffer_bytes") / 1e5 - 1.0).abs() < 0.05, "{}", f.text);
        assert!((f.number("buffer_bytes_before") / 3e5 - 1.0).abs() < 0.03, "{}", f.text);
        assert!((f.number("changed_s") - 5.98).abs() < 0.02, "{}", f.text);
        // The control: a second before, when nothing drained.
        let lost = |s: f64| near_the_top(s) || (4.6..4.62).contains(&s) || (4.8..4.82).contains(&s);
        let f = check(&case(&|_| 8.0, &queue, &lost).evidence()).expect("a bound");
        assert_eq!(f.word("limit"), "not reached", "{}", f.text);
    }

    #[test]
    fn a_buffer_that_grows_and_is_not_full_again_has_a_size_and_a_lower_bound() {
        let most = |s: f64| if s < 6.0 { 1e5 } else { 3e5 };
        let early = |s: f64| s < 6.0 && at_the_top(s);
        let f = check(&case(&|_| 8.0, &|s| sawtooth(s, most(s)), &early).evidence());
        let f = f.expect("a bound and a size");
        assert!((f.number("buffer_bytes_before") / 1e5 - 1.0).abs() < 0.05, "{}", f.text);
        assert!((2.9e5..3e5).contains(&f.number("buffer_bytes_low")), "{}", f.text);
        assert_eq!((f.word("limit"), f.number("changed_s") > 5.9), ("not reached", true));
        // The control: losses of a single moment.
        let once = |s: f64| (1.9..2.0).contains(&s);
        let f = check(&case(&|_| 8.0, &|s| sawtooth(s, most(s)), &once).evidence());
        assert!(f.is_some_and(|f| f.number("buffer_bytes_before").is_nan()));
    }

    #[test]
    fn without_losses_or_with_random_ones_only_a_lower_bound_is_known() {
        let none = check(&case(&|_| 8.0, &|s| sawtooth(s, 2e5), &|_| false).evidence());
        let random = |s: f64| (s * 50.0) as u64 % 17 == 3;
        let any = check(&case(&|_| 8.0, &|s| sawtooth(s, 2e5), &random).evidence());
        for (found, losses) in [(none, 0.0), (any, 35.0)] {
            let f = found.expect("a lower bound");
            assert_eq!((f.word("limit"), f.number("losses")), ("not reached", losses));
            let low = f.number("buffer_bytes_low");
            assert!((1.9e5..2e5).contains(&low), "{}", f.text);
            assert!(f.number("buffer_bytes").is_nan(), "{}", f.text);
        }
    }

    #[test]
    fn a_queue_above_that_of_the_losses_shows_that_the_buffer_was_not_full() {
        // Early drops in the middle of the rise.
        let early = |s: f64| (0.9..1.0).contains(&(s % 2.0));
        let f = check(&case(&|_| 8.0, &|s| sawtooth(s, 2e5), &early).evidence()).expect("a bound");
        assert_eq!(f.word("limit"), "not reached", "{}", f.text);
    }

    #[test]
    fn without_a_queue_or_without_timestamps_it_is_withheld() {
        assert!(check(&case(&|_| 8.0, &|_| 3_000.0, &at_the_top).evidence()).is_none());
        let brief = |s: f64| if s > 9.2 { 2e5 } else { 0.0 };
        assert!(check(&case(&|_| 8.0, &brief, &at_the_top).evidence()).is_none(), "2.8 s");
        let mut blind = case(&|_| 8.0, &|s| sawtooth(s, 2e5), &at_the_top);
        blind.directions = None;
        assert!(check(&blind.evidence()).is_none());
    }
}
