//! A flow from beginning to end in a bounded number of bins, whatever its length.
//!
//! Each closed bin of 100 ms is added to one of up to [`Profile::MAX_BINS`] equal bins. When they are used up,
//! neighbours are merged in pairs and the width doubles. Rules read the profile to say *since when*.
//!
//! Memory is bounded by the number of bins added as well as by [`Profile::MAX_BINS`]: a connection with three
//! packets in an hour has 32 bins, not 512, since tens of thousands of those are open at a time. A flow that was
//! busy in a quarter of its time or more has a resolution of 1/256 of it or better.

use units::{Bytes, Duration, Instant};

use crate::series::rows::Limit;

/// Figures of one bin of a profile. All fields merge by sum, minimum or maximum.
#[derive(Clone, Copy, Debug)]
pub struct ProfileBin {
    /// Bytes acknowledged for the first time.
    pub delivered: Bytes,
    /// Σ over the 100 ms bins of delivered², for burstiness.
    pub delivered_squared: f64,
    /// Number of bins pushed into this one. Silent ones may not have been: [`Profile::ticks`] counts those as
    /// well.
    pub bins: u32,
    /// Smallest path RTT, ms; infinite without a sample.
    pub rtt_ms_min: f32,
    /// Largest path RTT, ms; 0 without a sample.
    pub rtt_ms_max: f32,
    /// Sum of RTT samples, ms.
    pub rtt_ms_sum: f64,
    /// Number of RTT samples.
    pub rtt_count: u32,
    /// Maximum bytes in flight.
    pub in_flight_max: Bytes,
    /// Largest advertised window; 0 where none was seen.
    pub rwnd_max: Bytes,
    /// Time with less than one send unit of window left.
    pub window_full: Duration,
    /// Time with a window of 0.
    pub zero_window: Duration,
    /// Number of retransmitted segments.
    pub retransmissions: u32,
    /// Number of segments that were late, but not retransmitted.
    pub out_of_order: u32,
    /// Bytes of the whole capture in this time, all connections, the direction of this flow's data only.
    pub link_bytes: Bytes,
    /// Time under each limit, ns, in the order of [`Limit::ALL`].
    pub limit_ns: [u64; Limit::COUNT],
}

impl ProfileBin {
    /// Nothing happened: the neutral element of [`ProfileBin::merge`].
    pub const EMPTY: ProfileBin = ProfileBin {
        delivered: Bytes::ZERO,
        delivered_squared: 0.0,
        bins: 0,
        rtt_ms_min: f32::INFINITY,
        rtt_ms_max: 0.0,
        rtt_ms_sum: 0.0,
        rtt_count: 0,
        in_flight_max: Bytes::ZERO,
        rwnd_max: Bytes::ZERO,
        window_full: Duration::ZERO,
        zero_window: Duration::ZERO,
        retransmissions: 0,
        out_of_order: 0,
        link_bytes: Bytes::ZERO,
        limit_ns: [0; Limit::COUNT],
    };

    /// Merges `other` into this bin.
    pub fn merge(&mut self, other: &ProfileBin) {
        self.delivered += other.delivered;
        self.delivered_squared += other.delivered_squared;
        self.bins = self.bins.saturating_add(other.bins);
        self.rtt_ms_min = self.rtt_ms_min.min(other.rtt_ms_min);
        self.rtt_ms_max = self.rtt_ms_max.max(other.rtt_ms_max);
        self.rtt_ms_sum += other.rtt_ms_sum;
        self.rtt_count = self.rtt_count.saturating_add(other.rtt_count);
        self.in_flight_max = self.in_flight_max.max(other.in_flight_max);
        self.rwnd_max = self.rwnd_max.max(other.rwnd_max);
        self.window_full += other.window_full;
        self.zero_window += other.zero_window;
        self.retransmissions = self.retransmissions.saturating_add(other.retransmissions);
        self.out_of_order = self.out_of_order.saturating_add(other.out_of_order);
        self.link_bytes += other.link_bytes;
        for (mine, theirs) in self.limit_ns.iter_mut().zip(other.limit_ns) {
            *mine = mine.saturating_add(theirs);
        }
    }

    /// Mean path RTT, ms; `None` without a sample.
    pub fn rtt_ms(&self) -> Option<f64> {
        (self.rtt_count > 0).then(|| self.rtt_ms_sum / f64::from(self.rtt_count))
    }

    /// Smallest path RTT, ms; `None` without a sample.
    pub fn rtt_min(&self) -> Option<f64> {
        (self.rtt_count > 0).then(|| f64::from(self.rtt_ms_min))
    }

    /// Largest path RTT, ms; `None` without a sample.
    pub fn rtt_max(&self) -> Option<f64> {
        (self.rtt_count > 0).then(|| f64::from(self.rtt_ms_max))
    }

    /// Time under `limit` in this bin.
    pub fn under(&self, limit: Limit) -> Duration {
        Duration(self.limit_ns[limit as usize])
    }
}

/// A flow in equal bins; see the top of this file.
#[derive(Clone, Debug)]
pub struct Profile {
    start: Instant,
    /// Width of the bins that are pushed.
    tick: Duration,
    /// Width of a bin now: `tick` times a power of two.
    width: Duration,
    bins: Vec<ProfileBin>,
    pushes: u64,
    /// Number of the last tick pushed, plus one.
    ticks: u64,
}

impl Profile {
    /// Never more bins than this: 512 · 152 bytes = 78 KB for the longest flow, and enough for a chart.
    pub const MAX_BINS: usize = 512;
    /// Never fewer bins than this before widening: 32 still show a beginning, a middle and an end.
    const MIN_BINS: u64 = 32;
    /// Bins allowed per bin pushed: silence may take three quarters of a profile before it is coarsened.
    const BINS_PER_PUSH: u64 = 4;

    /// An empty profile of a flow that began at `start`, to be filled with bins of `width` (not zero);
    /// allocates nothing.
    pub fn new(start: Instant, width: Duration) -> Profile {
        let tick = width.max(Duration(1));
        Profile { start, tick, width: tick, bins: Vec::new(), pushes: 0, ticks: 0 }
    }

    /// Adds a bin of the tick that contains `at`; times before the start count as the start.
    pub fn push(&mut self, at: Instant, bin: &ProfileBin) {
        self.pushes += 1;
        let tick = at.since(self.start).0 / self.tick.0;
        // a bin may stand for several ticks in one
        self.ticks = self.ticks.max(tick.saturating_add(u64::from(bin.bins.max(1))));
        let max_bins = (self.pushes.saturating_mul(Self::BINS_PER_PUSH))
            .clamp(Self::MIN_BINS, Self::MAX_BINS as u64);
        let mut slot = at.since(self.start).0 / self.width.0;
        if slot >= max_bins {
            let mut doublings = 1;
            while slot >> doublings >= max_bins {
                doublings += 1;
            }
            self.widen(doublings);
            slot >>= doublings;
        }
        // slot < room ≤ MAX_BINS
        let slot = slot as usize;
        if slot >= self.bins.len() {
            self.bins.resize(slot + 1, ProfileBin::EMPTY);
        }
        self.bins[slot].merge(bin);
    }

    /// Makes every bin 2^`doublings` times as wide.
    fn widen(&mut self, doublings: u32) {
        self.width = self.width * (1u64 << doublings);
        let mut len = 0;
        for i in 0..self.bins.len() {
            let bin = self.bins[i];
            let to = i >> doublings;
            if i & ((1 << doublings) - 1) == 0 {
                self.bins[to] = bin;
            } else {
                self.bins[to].merge(&bin);
            }
            len = to + 1;
        }
        self.bins.truncate(len);
    }

    /// Beginning of bin 0.
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// Width of every bin; the last may be cut short by the end of the flow.
    pub const fn width(&self) -> Duration {
        self.width
    }

    /// The bins, from the start without a gap to the last one pushed.
    pub fn bins(&self) -> &[ProfileBin] {
        &self.bins
    }

    /// Beginning of bin `i`.
    pub fn time_of(&self, i: usize) -> Instant {
        self.start + self.width * i as u64
    }

    /// End of bin `i`: for the last bin the end of the last tick pushed.
    pub fn end_of(&self, i: usize) -> Instant {
        let end = self.time_of(i + 1);
        if i + 1 < self.bins.len() { end } else { end.min(self.start + self.tick * self.ticks) }
    }

    /// Number of ticks (the bins that are pushed, 100 ms) inside bin `i`, silent ones included.
    pub fn ticks(&self, i: usize) -> u64 {
        self.end_of(i).since(self.time_of(i)).0 / self.tick.0
    }

    /// Width of the ticks.
    pub const fn tick(&self) -> Duration {
        self.tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Duration = Duration::from_millis(100);

    fn bytes(n: u64) -> ProfileBin {
        ProfileBin { delivered: Bytes(n), bins: 1, ..ProfileBin::EMPTY }
    }

    #[test]
    fn a_short_flow_keeps_its_bins_as_they_are() {
        let mut p = Profile::new(Instant(7), TICK);
        for i in 0..100 {
            p.push(Instant(7) + TICK * i, &bytes(i));
        }
        assert_eq!((p.bins().len(), p.width()), (100, TICK));
        assert_eq!(p.bins()[42].delivered, Bytes(42));
        assert_eq!(p.time_of(42), Instant(7) + Duration::from_millis(4200));
    }

    #[test]
    fn the_513th_bin_doubles_the_width() {
        let mut p = Profile::new(Instant(0), TICK);
        for i in 0..513 {
            p.push(Instant(0) + TICK * i, &bytes(1));
        }
        assert_eq!((p.bins().len(), p.width()), (257, Duration::from_millis(200)));
        assert_eq!((p.ticks(0), p.ticks(256)), (2, 1));
        assert!(p.bins()[..256].iter().all(|b| b.delivered == Bytes(2)));
    }

    #[test]
    fn a_connection_that_hardly_spoke_holds_few_bins() {
        let mut p = Profile::new(Instant(0), TICK);
        for s in [0, 1000, 3600] {
            p.push(Instant(0) + Duration::from_secs(s), &bytes(1));
        }
        assert!(p.bins().len() <= 32, "{}", p.bins().len());
    }

    #[test]
    fn a_clock_that_jumps_by_centuries_costs_one_step() {
        let mut p = Profile::new(Instant(1), TICK);
        p.push(Instant(1), &bytes(3));
        p.push(Instant(u64::MAX), &bytes(4));
        p.push(Instant(0), &bytes(5));
        assert_eq!(p.bins()[0].delivered, Bytes(8));
        assert_eq!(p.bins().last().map(|b| b.delivered), Some(Bytes(4)));
        assert!(p.end_of(p.bins().len() - 1) > p.time_of(p.bins().len() - 1));
    }

    #[test]
    fn rtt_extremes_survive_merging_and_an_empty_bin_has_none() {
        let rtt = |ms: f32| ProfileBin {
            rtt_ms_min: ms,
            rtt_ms_max: ms,
            rtt_ms_sum: f64::from(ms),
            rtt_count: 1,
            ..ProfileBin::EMPTY
        };
        let mut b = ProfileBin::EMPTY;
        assert_eq!((b.rtt_ms(), b.rtt_min(), b.rtt_max()), (None, None, None));
        b.merge(&rtt(40.0));
        b.merge(&ProfileBin::EMPTY);
        b.merge(&rtt(60.0));
        assert_eq!((b.rtt_ms(), b.rtt_min(), b.rtt_max()), (Some(50.0), Some(40.0), Some(60.0)));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_everything_lies_in_the_bin_of_its_time(
            pushes in prop::collection::vec((0..5_000u64, 1..1_000u64), 1..700),
        ) {
            let mut p = Profile::new(Instant(50), TICK);
            for &(tick, n) in &pushes {
                p.push(Instant(50) + TICK * tick, &bytes(n));
            }
            prop_assert!(p.bins().len() <= Profile::MAX_BINS);
            let width = p.width().0 / TICK.0;
            prop_assert!(width.is_power_of_two());
            let mut truth = vec![0; p.bins().len()];
            for (tick, n) in pushes {
                truth[(tick / width) as usize] += n;
            }
            let got: Vec<u64> = p.bins().iter().map(|b| b.delivered.0).collect();
            prop_assert_eq!(got, truth);
        }
    }
}
