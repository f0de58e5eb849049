//! Round trips whose answer carries the other host's clock (RFC 7323): TSval of the ACK at the sender, of the data at the
//! receiver.
//!
//! signal: RTT samples, with the TSval of the packet that ended each · model: one sample in 20 ms shows a queue, which
//! changes by less in that time. A sender that answers a burst of ACKs sends many segments at once, which arrive one by
//! one: time is that of the capture or that of the other host, whichever goes on · action: at most [`MAX_TRIPS`] of them,
//! evenly over the flow, for `directions`.
//!
//! An ACK that the receiver may have delayed gives way to the next one of the same 20 ms, for its TSval is that of the
//! ACK, not that of the arrival. Of the others the first one counts: the fastest would not stand for its time.

use units::{Duration, Instant};

/// Time for which one round trip stands at first: a queue of a bloated link grows by a few milliseconds in it.
pub(crate) const WIDTH: Duration = Duration::from_millis(20);
/// Round trips stored for one flow, 160 KB: 41 to 82 s at 20 ms each. Beyond, the time for which one stands doubles. Where one
/// stands for less from the beginning on, the same time is stored, in more of them.
const MAX_TRIPS: usize = 4096;

/// One round trip: out from the capture, and back to it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Trip {
    /// Time at which its first packet passed the capture.
    pub out: Instant,
    /// Time at which the answer passed.
    pub back: Instant,
    /// TSval of the answer, ticks since that of the first trip.
    pub ticks: i64,
    /// Bytes of the flow that had arrived at its receiver by then.
    pub delivered: u64,
    /// The receiver may have delayed its ACK.
    pub delayed: bool,
}

/// Collects the round trips of one flow.
#[derive(Clone, Debug)]
pub(crate) struct Stamps {
    trips: Vec<Trip>,
    /// At first, and now.
    finest: Duration,
    width: Duration,
    /// TSval of the newest trip, and its ticks; that trip may be gone.
    last: Option<(u32, i64)>,
    /// Where the next time begins for which a trip may stand: by the capture's clock, and by the other host's.
    next: (Instant, i64),
}

impl Stamps {
    /// Each trip stands for at least so long.
    pub fn new(width: Duration) -> Stamps {
        Stamps {
            trips: Vec::new(),
            finest: width,
            width,
            last: None,
            next: (Instant::ZERO, i64::MIN),
        }
    }

    /// Forgets all trips.
    #[cold]
    pub fn clear(&mut self) {
        *self = Stamps::new(self.finest);
    }

    /// Ticks of a TSval since that of the first trip. Half of its range in a step is a clock that went back, or a
    /// middlebox: both are found later.
    #[inline]
    fn ticks(&self, stamp: u32) -> i64 {
        self.last.map_or(0, |(last, ticks)| {
            ticks.saturating_add(i64::from(stamp.wrapping_sub(last) as i32))
        })
    }

    /// Whether a trip that began at `out`, with the `stamp` of its answer, can be of use. Most are not.
    #[inline]
    pub fn wants(&self, out: Instant, stamp: u32) -> bool {
        out >= self.next.0
            || self.ticks(stamp) >= self.next.1
            || self.trips.last().is_some_and(|trip| trip.delayed)
    }

    /// Adds a trip with the `stamp` of its answer; `trip.ticks` is set here.
    #[inline(never)]
    pub fn add(&mut self, trip: Trip, stamp: u32) {
        let trip = Trip { ticks: self.ticks(stamp), ..trip };
        let begins = self.begins_time(&trip);
        // Where a trip stands for less than usual, a delayed ACK still gives way to others of the usual time.
        let near = |last: &Trip| self.width < WIDTH && trip.out.since(last.out) < WIDTH;
        match self.trips.last_mut() {
            Some(last)
                if last.delayed
                    && !trip.delayed
                    && trip.out >= last.out
                    && (!begins || near(last)) =>
            {
                *last = trip;
            }
            Some(last) if !begins || trip.delayed && near(last) => return,
            _ => self.trips.push(trip),
        }
        self.last = Some((stamp, trip.ticks));
        let ratio = (WIDTH.0 / self.finest.0.max(1)).max(1) as usize;
        if self.trips.len() > MAX_TRIPS * ratio {
            self.thin_out();
        }
    }

    /// Whether `trip` is the first of its time, by one clock or the other: what leaves in one burst arrives one by one.
    fn begins_time(&mut self, trip: &Trip) -> bool {
        if trip.out < self.next.0 && trip.ticks < self.next.1 {
            return false;
        }
        // The other clock's rate so far; how long its ticks are shows at the end only.
        let (first_out, first_ticks) =
            self.trips.first().map_or((trip.out, trip.ticks), |first| (first.out, first.ticks));
        let elapsed = trip.out.since(first_out);
        let ticks = (trip.ticks - first_ticks).max(0);
        let width = i128::from(self.width.0) * i128::from(ticks) / i128::from(elapsed.0.max(1));
        let by_ticks = if elapsed < self.width * 10 { i64::MAX } else { (width as i64).max(1) };
        self.next = (
            Instant((trip.out.0 / self.width.0 + 1).saturating_mul(self.width.0)),
            trip.ticks.saturating_add(by_ticks),
        );
        true
    }

    #[cold]
    fn thin_out(&mut self) {
        self.width = self.width * 2;
        self.next = (Instant::ZERO, i64::MIN);
        for trip in std::mem::take(&mut self.trips) {
            if self.begins_time(&trip) {
                self.trips.push(trip);
            }
        }
    }

    /// The trips in the order of time, and the time for which each stands.
    pub fn trips(&self) -> (&[Trip], Duration) {
        (&self.trips, self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(out_ms: u64, delayed: bool) -> Trip {
        let out = Instant(out_ms * 1_000_000);
        Trip { out, back: out + Duration::from_millis(50), ticks: 0, delivered: 0, delayed }
    }

    #[test]
    fn one_trip_stands_for_20_ms_and_a_delayed_ack_gives_way() {
        let mut stamps = Stamps::new(WIDTH);
        for (out, delayed) in [(0, true), (3, false), (5, false), (20, false), (21, false)] {
            if stamps.wants(Instant(out * 1_000_000), 7) {
                stamps.add(trip(out, delayed), 7);
            }
        }
        let (trips, width) = stamps.trips();
        let out: Vec<u64> = trips.iter().map(|t| t.out.0 / 1_000_000).collect();
        assert_eq!((out, width), (vec![3, 20], WIDTH));
    }

    #[test]
    fn a_day_of_trips_stays_bounded_and_even() {
        let mut stamps = Stamps::new(WIDTH);
        for i in 0..86_400_u64 {
            stamps.add(trip(i * 1_000, false), (i * 1_000) as u32);
        }
        let (trips, width) = stamps.trips();
        assert!(trips.len() <= MAX_TRIPS && trips.len() > MAX_TRIPS / 4, "{}", trips.len());
        let gaps: Vec<u64> = trips.windows(2).map(|t| t[1].out.since(t[0].out).0).collect();
        assert!(gaps.iter().all(|gap| *gap < 2 * width.0));
        assert!(trips.iter().all(|t| t.ticks as u64 == t.out.0 / 1_000_000));
    }

    #[test]
    fn of_segments_sent_at_once_one_stands_for_20_ms_of_the_receivers_clock() {
        let mut stamps = Stamps::new(WIDTH);
        let mut wanted = 0;
        for i in 0..3_000_u64 {
            // 500 segments a second leave together, and arrive 2 ms apart.
            let (out, stamp) = (i / 500 * 1_000, (i * 2) as u32);
            if stamps.wants(Instant(out * 1_000_000), stamp) {
                stamps.add(trip(out, false), stamp);
                wanted += 1;
            }
        }
        assert!((200..=600).contains(&stamps.trips().0.len()), "{}", stamps.trips().0.len());
        assert_eq!(wanted, stamps.trips().0.len());
    }

    #[test]
    fn ticks_go_on_where_tsval_wraps() {
        let mut stamps = Stamps::new(WIDTH);
        stamps.add(trip(0, false), u32::MAX - 5);
        stamps.add(trip(40, false), 34);
        assert_eq!(stamps.trips().0[1].ticks, 40);
    }
}
