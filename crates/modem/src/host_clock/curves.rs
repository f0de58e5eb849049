//! The two curves that are compared: what the host had sent, and what had entered the modem's buffer.

use super::{MS, SECOND};
use crate::timeline::{Moved, Occupancy};

/// Samples are 1 ms apart; times of records vary by 2 ms. More is a missing record.
const MAX_STEP_NS: i64 = 5 * MS;
/// Curves are compared over so long: a rate is nearly constant, and packets are distinct.
const WINDOW_NS: i64 = SECOND;
/// Shorter runs without a gap are left out: a line through them follows the curve itself.
const MIN_WINDOW_NS: i64 = 300 * MS;
/// Most by which the times of blocks are shifted: from grant to block are four TTIs (3GPP TS 36.213 section 8), and back.
const MAX_SHIFT_MS: i64 = 8;
/// Bins of the coarse search: ten packets at 12 Mbit/s.
pub(super) const BIN_NS: i64 = 10 * MS;
/// Span of the coarse search: clocks that differ by 100 ppm are 3 ms apart then, less than a bin.
const COARSE_BINS: usize = 3_000;

/// First and last + 1 sample of a run.
pub(super) type Window = (usize, usize);

pub(super) struct Curves {
    pub(super) entered: Entered,
    pub(super) sent: Sent,
}

impl Curves {
    /// Blocks leave the buffer some TTIs before they are sent, and modems differ in which time they log: of all shifts,
    /// the one at which least seems to enter and leave again.
    pub(super) fn of(sent: &[Moved], samples: &[Occupancy], left: &[Moved]) -> Curves {
        let shifted = |ms: i64| Entered::of(samples, left, ms * MS);
        let rough = |ms: i64| shifted(ms).rough();
        let shift_ms = (-MAX_SHIFT_MS..=MAX_SHIFT_MS)
            .map(|ms| (rough(ms), ms.abs(), ms))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
            .map_or(0, |(_, _, ms)| ms);
        Curves { entered: shifted(shift_ms), sent: Sent::of(sent) }
    }

    pub(super) fn begin_ns(&self, window: Window) -> i64 {
        self.entered.at_ns[window.0]
    }

    /// The span of the coarse search in which the buffer is used most: first and last + 1 window.
    pub(super) fn busiest(&self) -> (usize, usize) {
        let windows = &self.entered.windows;
        let grown =
            |window: &Window| self.entered.bytes[window.1 - 1] - self.entered.bytes[window.0];
        let (mut end, mut sum, mut best) = (0, 0.0, (f64::MIN, 0, 0));
        for (first, window) in windows.iter().enumerate() {
            let until_ns = self.begin_ns(*window) + COARSE_BINS as i64 * BIN_NS;
            while end < windows.len() && self.begin_ns(windows[end]) < until_ns {
                sum += grown(&windows[end]);
                end += 1;
            }
            if sum > best.0 {
                best = (sum, first, end);
            }
            sum -= grown(window);
        }
        (best.1, best.2)
    }

    /// What the host's packets explain of the shape of the windows' curves; a window that they do not explain at all,
    /// for instance because records of blocks are missing, counts as 0.
    pub(super) fn explained(&self, windows: &[Window], host_ns: impl Fn(i64) -> i64) -> f64 {
        let (mut all, mut rest) = (0.0, 0.0);
        for window in windows {
            let begin_ns = self.begin_ns(*window);
            let mut place = self.sent.at_ns.partition_point(|at| *at <= host_ns(begin_ns));
            let sent_before = self.sent.until(host_ns(begin_ns), &mut place);
            let (mut shape, mut residual) = (Energy::default(), Energy::default());
            for sample in window.0..window.1 {
                let at_ns = self.entered.at_ns[sample];
                let entered = self.entered.bytes[sample] - self.entered.bytes[window.0];
                let sent = self.sent.until(host_ns(at_ns), &mut place) - sent_before;
                let time = (at_ns - begin_ns) as f64 / MS as f64;
                shape.add(time, entered);
                residual.add(time, entered - sent);
            }
            all += shape.value();
            rest += residual.value().min(shape.value());
        }
        if all > 0.0 { 1.0 - rest / all } else { 0.0 }
    }
}

/// What had entered the buffer at each sample.
pub(super) struct Entered {
    pub(super) at_ns: Vec<i64>,
    pub(super) bytes: Vec<f64>,
    /// Runs without a gap, at most [`WINDOW_NS`] long.
    pub(super) windows: Vec<Window>,
}

impl Entered {
    /// `shift_ns`: how much later than logged blocks left.
    fn of(samples: &[Occupancy], left: &[Moved], shift_ns: i64) -> Entered {
        let at_ns: Vec<i64> = samples.iter().map(|sample| sample.at_ns).collect();
        let (mut next, mut total) = (0, 0);
        let mut bytes = Vec::with_capacity(samples.len());
        for sample in samples {
            while let Some(moved) =
                left.get(next).filter(|moved| moved.at_ns + shift_ns <= sample.at_ns)
            {
                total += moved.bytes;
                next += 1;
            }
            bytes.push((sample.bytes + total) as f64);
        }
        let mut windows = Vec::new();
        let mut first = 0;
        for end in 1..=at_ns.len() {
            let is_gap = at_ns.get(end).is_none_or(|at| at - at_ns[end - 1] > MAX_STEP_NS);
            if is_gap || at_ns[end] - at_ns[first] > WINDOW_NS {
                let is_used = bytes[end - 1] > bytes[first];
                if at_ns[end - 1] - at_ns[first] >= MIN_WINDOW_NS && is_used {
                    windows.push((first, end));
                }
                first = end;
            }
        }
        Entered { at_ns, bytes, windows }
    }

    /// All bytes that entered or seem to have left, from sample to sample.
    fn rough(&self) -> f64 {
        let of = |window: &Window| -> f64 {
            let bytes = &self.bytes[window.0..window.1];
            bytes.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum()
        };
        self.windows.iter().map(of).sum()
    }

    /// Bytes that entered in each bin from `begin_ns` on, less their mean; 0 where a record is missing.
    pub(super) fn rates(&self, begin_ns: i64, bins: usize) -> Vec<f64> {
        let mut rates = vec![None; bins];
        for pair in 1..self.at_ns.len() {
            let (before, at) = (self.at_ns[pair - 1], self.at_ns[pair]);
            let bin = (at - begin_ns).div_euclid(BIN_NS);
            if at - before > MAX_STEP_NS || bin < 0 {
                continue;
            }
            let Some(rate) = rates.get_mut(bin as usize) else { break };
            *rate = Some(rate.unwrap_or(0.0) + self.bytes[pair] - self.bytes[pair - 1]);
        }
        let known: Vec<f64> = rates.iter().flatten().copied().collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        rates.into_iter().map(|rate| rate.map_or(0.0, |rate| rate - mean)).collect()
    }
}

/// Cumulative bytes of the host.
pub(super) struct Sent {
    pub(super) at_ns: Vec<i64>,
    /// Bytes with the packet at the same place.
    bytes: Vec<f64>,
}

impl Sent {
    fn of(sent: &[Moved]) -> Sent {
        let total = |sum: &mut u64, moved: &Moved| {
            *sum += moved.bytes;
            Some(*sum as f64)
        };
        let bytes = sent.iter().scan(0, total).collect();
        Sent { at_ns: sent.iter().map(|moved| moved.at_ns).collect(), bytes }
    }

    /// Bytes in each bin from `begin_ns` on, and so many bins more behind the last packet.
    pub(super) fn rates(&self, begin_ns: i64, more: usize) -> Vec<f64> {
        let bin = |at_ns: i64| ((at_ns - begin_ns) / BIN_NS) as usize;
        let last = self.at_ns.last().map_or(0, |at| bin(*at));
        let mut rates = vec![0.0; last + more + 1];
        let mut before = 0.0;
        for (at, bytes) in self.at_ns.iter().zip(&self.bytes) {
            rates[bin(*at)] += bytes - before;
            before = *bytes;
        }
        rates
    }

    /// Bytes until a time; `place` is that of the packet behind it, and only goes forward.
    fn until(&self, at_ns: i64, place: &mut usize) -> f64 {
        while self.at_ns.get(*place).is_some_and(|at| *at <= at_ns) {
            *place += 1;
        }
        place.checked_sub(1).map_or(0.0, |last| self.bytes[last])
    }
}

/// Sum of the squares of values less their line over time.
#[derive(Default)]
struct Energy {
    count: f64,
    t: f64,
    tt: f64,
    v: f64,
    tv: f64,
    vv: f64,
}

impl Energy {
    fn add(&mut self, t: f64, v: f64) {
        self.count += 1.0;
        self.t += t;
        self.tt += t * t;
        self.v += v;
        self.tv += t * v;
        self.vv += v * v;
    }

    fn value(&self) -> f64 {
        let n = self.count.max(1.0);
        let (tt, tv, vv) = (
            self.tt - self.t * self.t / n,
            self.tv - self.t * self.v / n,
            self.vv - self.v * self.v / n,
        );
        if tt > 0.0 { (vv - tv * tv / tt).max(0.0) } else { vv.max(0.0) }
    }
}
