//! Delay of each direction of a path, by the clock of the other host.
//!
//! signal: round trips whose answer carries the other host's clock (`stamps`) · model: that clock is a line over the
//! capture's, with steps between lines (`clock`). It splits a round trip of `out → other host → back` in two. Of each
//! part the smallest one is the path's, and what exceeds it is waiting · action: what data and ACKs waited, trip by trip,
//! and the flow's bytes over the time of its receiver.
//!
//! At the sender data goes out and ACKs come back; at the receiver it is the other way round. Only the *excess* of each
//! part is known: the smallest round trip cannot be split, for the difference of two clocks and of two ways look alike.
//! Where a direction had a queue all the time, its shortest one counts as none.
//!
//! Errors: a tick of the other clock, and what its drift adds in ten seconds, below which no drift is removed: 1 ms by
//! quartz of 100 ppm. There is no result where the parts contradict each other. A TSval of which parts of a round trip are
//! longer than the whole is no clock of a host (a middlebox, a resolution that is none of those known).

use units::{Delays, Duration, Instant, Quantiles};

use crate::clock::{self, Lines, Point};
use crate::series::losses::Losses;
use crate::series::stamps::{Stamps, Trip};
use crate::series::tick::tick;

/// Fewer trips show no distribution: a second of them.
const MIN_TRIPS: usize = 50;
/// Below this span a drift of 500 ppm (NTP's bound) is less than 5 ms, and jitter looks like more.
const MIN_DRIFT_SPAN: Duration = Duration::from_secs(10);
/// Points of a direction from which the line of a clock is found: the search takes the square of them.
const MAX_POINTS: usize = 128;
/// Smallest step of a clock that is looked for, s: NTP steps from 128 ms on, and no scheduler holds a host up for as long.
const MIN_STEP: f64 = 0.1;
/// A way is quiet within this of its smallest delay: schedulers of hosts hold packets up for a millisecond or two.
const NEAR_BASE: Duration = Duration::from_millis(3);
/// A way that is quiet for less than this part of the time need not be so while the other one is.
const QUIET_PART: usize = 4;
/// Trips that confirm a smallest delay: a fifth of a second of them.
const CONFIRMED: usize = 10;
/// Time over which goodput by the receiver's clock is compared, as in `limits`.
const GOODPUT_TIME: Duration = Duration::from_millis(100);
/// Between a loss and a trip that shows its queue: two or three trips.
const NEAR_LOSS: Duration = Duration::from_millis(50);
/// Fewer of them have no variation: a second.
const MIN_GOODPUT_TIMES: usize = 10;

/// What one segment and its ACK waited.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Waits {
    /// When the segment was sent, by the capture's clock.
    pub sent: Instant,
    /// When it reached the receiver.
    pub arrived: Instant,
    /// When its ACK left the receiver. At a receiver it is the ACK that released the segment, and left before.
    pub answered: Instant,
    /// When that ACK reached the sender.
    pub acked: Instant,
    /// What the segment waited beyond the smallest delay of its direction.
    pub data: Duration,
    /// What the ACK waited.
    pub acks: Duration,
    /// Bytes that the receiver had at `arrived`.
    pub delivered: u64,
}

impl Waits {
    /// When the packet that ended the round trip passed the capture.
    pub fn seen(&self) -> Instant {
        self.arrived.max(self.acked)
    }
}

/// A moment in which segments were lost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loss {
    /// A segment beside them.
    pub beside: Waits,
    /// How many were lost.
    pub segments: u64,
}

/// Both directions of one flow.
#[derive(Clone, Debug)]
pub struct Directions {
    /// Resolution of the other host's clock.
    pub tick: Duration,
    /// Time for which one of `waits` stands.
    pub width: Duration,
    /// In the order of time.
    pub waits: Vec<Waits>,
    /// One per 20 ms in which segments were lost.
    pub losses: Vec<Loss>,
}

impl Directions {
    /// Splits the trips of a flow whose data is sent by the host beside the capture (`at_sender`) or reaches it, and finds
    /// the trips beside its losses. `least`: the smallest round trip of a full segment, by the handshake or other connections.
    /// `None`: too few, no clock that is known, or parts that contradict each other.
    pub(crate) fn split(
        stamps: &Stamps,
        losses: &Losses,
        at_sender: bool,
        least: Option<Duration>,
    ) -> Option<Directions> {
        let (trips, width) = stamps.trips();
        if trips.len() < MIN_TRIPS {
            return None;
        }
        let tick = tick(trips)?;
        let origin = trips.first()?.out;
        let parts = parts(trips, origin, tick);
        let smallest = |part: fn(&Part) -> i64| parts.iter().map(part).min();
        if smallest(|p| p.out_ns)? + smallest(|p| p.back_ns)? < -2 * tick.0 as i64 {
            return None;
        }
        let (out_ns, back_ns) = bases(&parts, tick, least)?;
        let excess = |ns: i64, least: i64| Duration((ns - least).max(0) as u64);
        let waits = parts.iter().map(|part| {
            let (out, back) = (excess(part.out_ns, out_ns), excess(part.back_ns, back_ns));
            let Trip { out: left, back: came, delivered, .. } = part.trip;
            // Of the smallest round trip each way has one half, within which the other host's clock must lie.
            let half = (out_ns + back_ns).max(0) as u64 / 2;
            let there = (left + out + Duration(half)).min(came);
            match at_sender {
                true => Waits {
                    sent: left,
                    arrived: there,
                    answered: there,
                    acked: came,
                    data: out,
                    acks: back,
                    delivered,
                },
                false => Waits {
                    sent: there,
                    arrived: came,
                    answered: left,
                    acked: there,
                    data: back,
                    acks: out,
                    delivered,
                },
            }
        });
        let waits: Vec<Waits> = waits.collect();
        let losses = beside(losses, &waits, width, at_sender);
        Some(Directions { tick, width, waits, losses })
    }

    /// Quantiles over time of what data waited, ms.
    pub fn data_ms(&self) -> Option<Quantiles> {
        self.quantiles(|w| (w.sent, w.data))
    }

    /// Quantiles over time of what ACKs waited, ms.
    pub fn acks_ms(&self) -> Option<Quantiles> {
        self.quantiles(|w| (w.answered, w.acks))
    }

    fn quantiles(&self, of: impl Fn(&Waits) -> (Instant, Duration)) -> Option<Quantiles> {
        let mut delays = Delays::default();
        for waits in &self.waits {
            let (sent, wait) = of(waits);
            // A trip stands for its time, and for a pause behind it only as long as it waited.
            delays.record(sent, wait.0, wait.max(self.width), false);
        }
        delays.quantiles(1e-6)
    }

    /// Coefficient of variation (standard deviation over mean) of the bytes that reached the receiver in each 100 ms of its
    /// clock, from `from` to `to`. `None` below a second, and where the trips are too far apart.
    pub fn variation(&self, from: Instant, to: Instant) -> Option<f64> {
        if self.width * 2 > GOODPUT_TIME {
            return None;
        }
        let inside = self.waits.iter().filter(|w| w.arrived >= from && w.arrived <= to);
        let (mut per_time, mut last): (Vec<f64>, Option<(Instant, f64)>) = (Vec::new(), None);
        let mut due = (0, Instant::ZERO, 0.0);
        for waits in inside {
            let now = (waits.arrived, waits.delivered as f64);
            let Some(before) = last else {
                (last, due) = (Some(now), (1, now.0 + GOODPUT_TIME, now.1));
                continue;
            };
            // What arrives together is a step of the curve.
            if now.0 <= before.0 {
                last = Some((before.0, before.1.max(now.1)));
                continue;
            }
            // The bytes at each due time lie on the line between the trips beside it.
            while due.1 <= now.0 {
                let share =
                    due.1.since(before.0).as_secs_f64() / now.0.since(before.0).as_secs_f64();
                let bytes = before.1 + share * (now.1 - before.1);
                per_time.push(bytes - due.2);
                due = (due.0 + 1, due.1 + GOODPUT_TIME, bytes);
            }
            last = Some(now);
        }
        let mean = per_time.iter().sum::<f64>() / per_time.len() as f64;
        if per_time.len() < MIN_GOODPUT_TIMES || mean <= 0.0 {
            return None;
        }
        let squares = per_time.iter().map(|bytes| (bytes - mean).powi(2)).sum::<f64>();
        Some((squares / per_time.len() as f64).sqrt() / mean)
    }
}

/// The waits of the segment that was sent before or after each loss, or at the receiver arrived so: of the one that waited
/// longer. The burst that filled a queue has ended for one of the two.
fn beside(losses: &Losses, waits: &[Waits], width: Duration, at_sender: bool) -> Vec<Loss> {
    let key = |w: &Waits| if at_sender { w.sent } else { w.arrived };
    let mut sorted = waits.to_vec();
    sorted.sort_by_key(|w| (key(w), w.data));
    let far = |w: &Waits, at: Instant| key(w).0.abs_diff(at.0);
    let near = NEAR_LOSS.max(width * 2).0;
    let longer = |&(at, segments): &(Instant, u64)| {
        // At the sender the burst that was cut has the time of the loss; at the receiver it is that of the segment behind.
        let i = sorted.partition_point(|w| key(w) < at || at_sender && key(w) == at);
        let around = sorted.get(i.saturating_sub(1)..(i + 1).min(sorted.len()))?;
        let near = around.iter().filter(|w| far(w, at) <= near);
        near.copied().max_by_key(|w| w.data).map(|beside| Loss { beside, segments })
    };
    let mut found: Vec<Loss> = losses.moments().iter().filter_map(longer).collect();
    found.dedup_by(|later, before| {
        let same = later.beside == before.beside;
        before.segments += if same { later.segments } else { 0 };
        same
    });
    found
}

/// A trip in two parts. Each lacks the difference of the clocks, which both have in common, with opposite signs.
#[derive(Clone, Copy, Debug)]
struct Part {
    trip: Trip,
    out_ns: i64,
    back_ns: i64,
}

fn parts(trips: &[Trip], origin: Instant, tick: Duration) -> Vec<Part> {
    let after = |at: Instant| at.0 as i64 - origin.0 as i64;
    let there = |trip: &Trip| trip.ticks.saturating_mul(tick.0 as i64);
    let seconds = |ns: i64| ns as f64 / 1e9;
    let lines: Lines = match trips {
        [first, .., last] if last.out.since(first.out) >= MIN_DRIFT_SPAN => {
            let out = points(trips.iter().map(|t| {
                let out = after(t.out);
                (seconds(out), seconds(there(t).saturating_sub(out)))
            }));
            let back = points(trips.iter().map(|t| {
                let back = after(t.back);
                (seconds(back), seconds(back.saturating_sub(there(t))))
            }));
            clock::fit(&out, &back, MIN_STEP.max(5.0 * tick.as_secs_f64()))
        }
        _ => Vec::new(),
    };
    let near_step = |trip: &Trip| {
        let (from, to) = (seconds(after(trip.out)), seconds(after(trip.back)));
        let near = clock::NEAR_STEP;
        lines.iter().any(|line| line.from >= from - near && line.from <= to + near)
    };
    let part = |trip: &Trip| {
        let middle = seconds(after(trip.out)).midpoint(seconds(after(trip.back)));
        let there = there(trip).saturating_sub((clock::at(&lines, middle) * 1e9) as i64);
        Part {
            trip: *trip,
            out_ns: there.saturating_sub(after(trip.out)),
            back_ns: after(trip.back).saturating_sub(there),
        }
    };
    trips.iter().filter(|trip| !near_step(trip)).map(part).collect()
}

/// The delay of either way without a queue.
///
/// The way that is quiet for longer has its smallest delay, and the other one its smallest of these times, if they are
/// enough. So the two add up to the smallest round trip. A packet that was faster than any while the other way waited (a
/// host or a network card that stood still, and then caught up) is no measure of the path.
///
/// Where the two exceed `least`, the way that is less quiet had a queue all the time: so does that of the data on a slow link
/// from the first packets of an initial window on.
fn bases(parts: &[Part], tick: Duration, least: Option<Duration>) -> Option<(i64, i64)> {
    let near_ns = NEAR_BASE.max(tick * 2).0 as i64;
    type Way = fn(&Part) -> i64;
    let (out, back): (Way, Way) = (|p| p.out_ns, |p| p.back_ns);
    // The smallest delay that others confirm, and the trips near it.
    let quiet = |way: Way| {
        let mut sorted: Vec<i64> = parts.iter().map(way).collect();
        sorted.sort_unstable();
        let many = sorted.windows(CONFIRMED).find(|few| few[CONFIRMED - 1] <= few[0] + near_ns);
        let base = many.map_or(sorted.first().copied(), |few| few.first().copied())?;
        let near: Vec<&Part> =
            parts.iter().filter(|p| (base..=base + near_ns).contains(&way(p))).collect();
        Some((base, near))
    };
    let (there, here) = (quiet(out)?, quiet(back)?);
    let smallest = |way: Way, of: &[&Part]| of.iter().copied().map(way).min();
    let known = least.map_or(i64::MAX, |least| least.0 as i64);
    match there.1.len().max(here.1.len()) {
        longer if longer < parts.len() / QUIET_PART => {
            let all: Vec<&Part> = parts.iter().collect();
            Some((smallest(out, &all)?, smallest(back, &all)?))
        }
        longer if longer == there.1.len() => {
            Some((there.0, smallest(back, &there.1)?.min(known.saturating_sub(there.0))))
        }
        _ => Some((smallest(out, &here.1)?.min(known.saturating_sub(here.0)), here.0)),
    }
}

/// The smallest delay of each of at most [`MAX_POINTS`] groups of neighbours.
fn points(all: impl Iterator<Item = Point>) -> Vec<Point> {
    let all: Vec<Point> = all.collect();
    let size = all.len().div_ceil(MAX_POINTS).max(1);
    let smallest = |group: &[Point]| group.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    all.chunks(size).filter_map(smallest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::stamps::WIDTH;

    /// A path of 40 ms, and what both directions added at some second.
    struct Path<'a> {
        data_ms: &'a dyn Fn(f64) -> f64,
        acks_ms: &'a dyn Fn(f64) -> f64,
        /// The other host's clock at a second, in seconds.
        clock: &'a dyn Fn(f64) -> f64,
        tick_ms: f64,
    }

    fn split(stamps: &Stamps, at_sender: bool) -> Option<Directions> {
        Directions::split(stamps, &Losses::default(), at_sender, None)
    }

    const SECONDS: u64 = 20;
    const START: f64 = 1_000_000.0;

    fn even(at: f64) -> f64 {
        at
    }

    fn none(_: f64) -> f64 {
        0.0
    }

    /// A triangle of 0 to 300 ms every 4 s.
    fn sawtooth(at: f64) -> f64 {
        (at % 4.0) * 75.0
    }

    /// ACKs leave together every 600 ms.
    fn held(at: f64) -> f64 {
        600.0 - at * 1e3 % 600.0
    }

    impl Path<'_> {
        fn stamps(&self) -> Stamps {
            let mut stamps = Stamps::new(WIDTH);
            for i in 0..SECONDS * 200 {
                let sent = START + i as f64 / 200.0;
                let there = sent + (20.0 + (self.data_ms)(sent)) / 1e3;
                let back = there + (20.0 + (self.acks_ms)(there)) / 1e3;
                let ticks = ((self.clock)(there) * 1e3 / self.tick_ms) as u64;
                let ns = |s: f64| Instant((s * 1e9) as u64);
                // 500,000 bytes a second, as they arrive.
                let delivered = ((there - START) * 5e5) as u64;
                let (out, back) = (ns(sent), ns(back));
                let trip = Trip { out, back, ticks: 0, delivered, delayed: false };
                if stamps.wants(trip.out, ticks as u32) {
                    stamps.add(trip, ticks as u32);
                }
            }
            stamps
        }

        /// Largest errors of both directions beyond a tick, ms.
        fn errors_ms(&self) -> (f64, f64) {
            let found = split(&self.stamps(), true).expect("both directions");
            assert_eq!(found.tick.as_millis_f64(), self.tick_ms);
            let error = |wait: Duration, truth: f64| (wait.as_millis_f64() - truth).abs();
            let mut worst = (0.0_f64, 0.0_f64);
            for w in &found.waits {
                let sent = w.sent.as_secs_f64();
                let (data, there) = ((self.data_ms)(sent), sent + 0.020);
                let acks = (self.acks_ms)(there + data / 1e3);
                worst = (worst.0.max(error(w.data, data)), worst.1.max(error(w.acks, acks)));
            }
            (worst.0 - self.tick_ms, worst.1 - self.tick_ms)
        }
    }

    const PLAIN: Path<'_> = Path { data_ms: &none, acks_ms: &none, clock: &even, tick_ms: 1.0 };

    #[test]
    fn a_queue_of_either_direction_is_found_in_that_direction_to_a_tick() {
        for tick_ms in [0.001, 1.0, 4.0, 10.0] {
            for (data_ms, acks_ms) in [
                (&sawtooth as &dyn Fn(f64) -> f64, &none as &dyn Fn(f64) -> f64),
                (&none, &sawtooth),
                (&sawtooth, &held),
            ] {
                let (data, acks) = Path { data_ms, acks_ms, tick_ms, ..PLAIN }.errors_ms();
                assert!(data < 1.0 && acks < 3.0, "{tick_ms}: {data} {acks}");
            }
        }
    }

    #[test]
    fn a_drift_of_500_ppm_is_removed() {
        let drift = |at: f64| at + (at - START) * 500e-6;
        let (data, acks) = Path { data_ms: &sawtooth, clock: &drift, ..PLAIN }.errors_ms();
        assert!(data < 1.0 && acks < 1.0, "{data} {acks}");
    }

    #[test]
    fn a_clock_that_steps_is_split_there() {
        for step in [-0.5, 0.2, 3_000.0] {
            let stepped = |at: f64| if at < START + 9.0 { at } else { at + step };
            let (data, acks) = Path { data_ms: &sawtooth, clock: &stepped, ..PLAIN }.errors_ms();
            assert!(data < 1.0 && acks < 1.0, "{step}: {data} {acks}");
        }
    }

    #[test]
    fn a_queue_from_the_first_trip_on_is_found_by_the_handshake() {
        let standing = |at: f64| 60.0 + sawtooth(at);
        let stamps = Path { data_ms: &standing, ..PLAIN }.stamps();
        let most = |least_ms: Option<u64>| {
            let least = least_ms.map(Duration::from_millis);
            let found = Directions::split(&stamps, &Losses::default(), true, least);
            found.and_then(|f| f.data_ms()).map_or(0.0, |q| q.max)
        };
        assert!((most(None) - 300.0).abs() < 3.0, "the control: {}", most(None));
        assert!((most(Some(40)) - 360.0).abs() < 3.0, "{}", most(Some(40)));
        assert!((most(Some(500)) - 300.0).abs() < 3.0, "a slower handshake shows nothing");
    }

    #[test]
    fn at_the_receiver_the_way_out_is_that_of_the_acks() {
        let stamps = Path { data_ms: &sawtooth, ..PLAIN }.stamps();
        let found = split(&stamps, false).expect("both directions");
        assert!(found.acks_ms().is_some_and(|q| q.max > 290.0));
        assert!(found.data_ms().is_some_and(|q| q.max < 2.0));
    }

    #[test]
    fn held_acks_vary_the_goodput_by_their_arrival_and_not_by_the_receivers_clock() {
        let found = split(&Path { acks_ms: &held, ..PLAIN }.stamps(), true);
        let (from, to) = (Instant::ZERO, Instant(u64::MAX));
        let even = found.and_then(|f| f.variation(from, to)).expect("a goodput");
        assert!(even < 0.05, "{even}");
        // The control: the data itself is held.
        let found = split(&Path { data_ms: &held, ..PLAIN }.stamps(), true);
        let stopped = found.map(|mut f| {
            f.waits.iter_mut().for_each(|w| w.delivered = w.sent.since(Instant::ZERO).0 / 2_000);
            f.variation(from, to)
        });
        assert!(stopped.flatten().is_some_and(|v| v > 1.0), "{stopped:?}");
    }

    #[test]
    fn no_clock_few_trips_or_parts_longer_than_the_whole_have_no_directions() {
        let none_of = |path: Path<'_>| split(&path.stamps(), true).is_none();
        assert!(none_of(Path { clock: &|_| 0.0, ..PLAIN }), "no timestamps");
        assert!(none_of(Path { tick_ms: 3.333, ..PLAIN }), "300 Hz");
        assert!(split(&Stamps::new(WIDTH), true).is_none());
        // Runs too fast by a tenth: near a resolution, and no clock of a host.
        let fast = |at: f64| START + (at - START) * 1.1;
        assert!(none_of(Path { clock: &fast, ..PLAIN }));
        assert!(!none_of(PLAIN), "the control");
    }
}
