//! Delays, losses and changes of packets in each path segment.
//!
//! For each path segment, direction and bin the smallest, mean and largest apparent delay are stored, with an even sample
//! of the delays for quantiles. The clocks are known only at the end, but their correction is constant within a bin. A
//! packet that entered and never left was lost, unless one of the captures was not running at that time.
//!
//! A packet seen before a point and behind it was not lost there: the capture of that point missed it.

use std::collections::BTreeMap;

use super::matching::{LastArrival, Overtaken, Record, Sighting, Sink};
use super::path_order::FlowFacts;
use super::rows::{Loss, LossKind};
use crate::clock::Windows;

/// Number of delays sampled per bin: enough for two significant digits of a p99 over some seconds.
const SAMPLES: usize = 32;
/// Delays are stored in units of 100 ns, of which 32 signed bits hold up to three minutes.
const UNIT: i64 = 100;
/// Maximum number of losses listed one by one; beyond, they are only counted.
const MAX_LISTED: usize = 100_000;
/// A packet that entered less than this before the end of a capture may have arrived after it, ns.
const ARRIVAL_TIMEOUT: i64 = 1_000_000_000;
const CE: u8 = 3;

/// Figures of one bin; delays in ns, samples in units of 100 ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bin {
    pub packets: u64,
    pub bytes: u64,
    /// Number of delays measured.
    pub count: u64,
    pub sum: i64,
    pub min: i64,
    pub max: i64,
    pub lost: u64,
    pub lost_bytes: u64,
    stride: u32,
    stored: u8,
    samples: [i32; SAMPLES],
}

impl Default for Bin {
    fn default() -> Bin {
        Bin {
            packets: 0,
            bytes: 0,
            count: 0,
            sum: 0,
            min: i64::MAX,
            max: i64::MIN,
            lost: 0,
            lost_bytes: 0,
            stride: 1,
            stored: 0,
            samples: [0; SAMPLES],
        }
    }
}

impl Bin {
    fn delay(&mut self, delay: i64) {
        self.min = self.min.min(delay);
        self.max = self.max.max(delay);
        self.sum = self.sum.saturating_add(delay);
        if self.count.is_multiple_of(u64::from(self.stride)) {
            if usize::from(self.stored) == SAMPLES {
                for i in 0..SAMPLES / 2 {
                    self.samples[i] = self.samples[2 * i];
                }
                self.stored = SAMPLES as u8 / 2;
                self.stride = self.stride.saturating_mul(2);
            }
            if self.count.is_multiple_of(u64::from(self.stride)) {
                let value = (delay / UNIT).clamp(i64::from(i32::MIN), i64::from(i32::MAX));
                self.samples[usize::from(self.stored)] = value as i32;
                self.stored += 1;
            }
        }
        self.count += 1;
    }

    /// An even sample of the delays (ms), each with the number of packets it stands for.
    pub fn sample(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let weight = self.count as f64 / f64::from(self.stored.max(1));
        let stored = &self.samples[..usize::from(self.stored).min(SAMPLES)];
        stored.iter().map(move |v| (f64::from(*v) * UNIT as f64 / 1e6, weight))
    }
}

/// Figures of one path segment in one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentStats {
    pub bins: BTreeMap<i64, Bin>,
    pub packets: u64,
    pub bytes: u64,
    pub lost: u64,
    pub lost_bytes: u64,
    /// Packets not seen to arrive because one of the captures had not begun or had ended.
    pub undecided: u64,
    pub late: u64,
    pub latest: i64,
    pub marked: u64,
    pub rewritten: u64,
    /// Smallest delay of all flows in each time window.
    pub windows: Windows,
    longest: i64,
}

/// Packets missing or duplicated in the capture of a point.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missed {
    /// Packets that points before and behind it saw, or only points behind it.
    pub drops: u64,
    pub dropped_bytes: u64,
    pub duplicates: u64,
}

/// Figures of all path segments and points.
pub(crate) struct PathStats {
    pub flows: Vec<FlowFacts>,
    /// Path segments by their lower position, then the whole path; each forward and backward.
    pub by_segment: Vec<[SegmentStats; 2]>,
    pub missed: Vec<Missed>,
    pub losses: Vec<Loss>,
    pub unlisted: u64,
    /// Times of first and last packet of each point by the reference clock, ns.
    pub spans: Vec<(i64, i64)>,
    pub origin: i64,
    pub bin: i64,
    /// The only connection that counts; `None` for all.
    pub only: Option<u32>,
    /// Number of packets whose direction is unknown.
    pub undirected: u64,
}

impl PathStats {
    pub fn new(
        flows: Vec<FlowFacts>,
        spans: Vec<(i64, i64)>,
        origin: i64,
        bin: i64,
        only: Option<u32>,
    ) -> PathStats {
        let points = spans.len();
        PathStats {
            flows,
            by_segment: (0..points)
                .map(|_| [SegmentStats::default(), SegmentStats::default()])
                .collect(),
            missed: vec![Missed::default(); points],
            losses: Vec::new(),
            unlisted: 0,
            spans,
            origin,
            bin: bin.max(1),
            only,
            undirected: 0,
        }
    }

    fn points(&self) -> usize {
        self.spans.len()
    }

    /// Direction of a record: that of its flow, or from the point that saw it first.
    fn forward(&mut self, record: &Record, sightings: &[Sighting]) -> Option<bool> {
        let facts = *self.flows.get(record.flow as usize)?;
        if facts.forward.is_some() {
            return facts.forward;
        }
        let mut seen = (0..sightings.len()).filter(|p| record.mask >> p & 1 == 1);
        let (first, last) = (seen.next()?, seen.next_back()?);
        let forward = sightings[first].time <= sightings[last].time;
        self.flows[record.flow as usize].forward = Some(forward);
        if let Some(back) = facts.reverse.and_then(|back| self.flows.get_mut(back as usize)) {
            back.forward = back.forward.or(Some(!forward));
        }
        Some(forward)
    }

    fn bin_at(&self, time: i64) -> i64 {
        time.saturating_sub(self.origin).div_euclid(self.bin)
    }

    /// Counts a packet seen at both ends of a path segment.
    fn passed(
        &mut self,
        segment: usize,
        forward: bool,
        counts: bool,
        up: Sighting,
        down: Sighting,
        size: (u64, u64),
    ) {
        let bin = self.bin_at(up.time);
        let since = up.time.saturating_sub(self.origin);
        let delay = down.time.saturating_sub(up.time);
        let Some(stats) = self.by_segment.get_mut(segment).map(|t| &mut t[usize::from(!forward)])
        else {
            return;
        };
        stats.windows.add(since, delay);
        stats.longest = stats.longest.max(delay);
        if !counts {
            return;
        }
        stats.packets += size.0;
        stats.bytes = stats.bytes.saturating_add(size.1);
        stats.marked += u64::from(down.ecn == CE && up.ecn != CE) * size.0;
        stats.rewritten += u64::from(down.window != up.window) * size.0;
        let bin = stats.bins.entry(bin).or_default();
        bin.packets += size.0;
        bin.bytes = bin.bytes.saturating_add(size.1);
        bin.delay(delay);
    }

    /// Whether a packet that entered a path segment at `time` would have been captured at its end.
    fn would_be_seen(
        &self,
        segment: usize,
        forward: bool,
        at: usize,
        time: i64,
        passed: &[LastArrival],
    ) -> bool {
        let Some((begin, end)) = self.spans.get(at) else { return false };
        let longest = self.by_segment.get(segment).map_or(0, |t| t[usize::from(!forward)].longest);
        let overtaken = passed.get(segment).is_some_and(|p| p.any && p.time > time);
        let timeout = longest.saturating_mul(2).max(ARRIVAL_TIMEOUT);
        time >= *begin && (overtaken || time.saturating_add(timeout) < *end)
    }

    fn lose(
        &mut self,
        segment: usize,
        forward: bool,
        time: i64,
        record: &Record,
        size: (u64, u64),
    ) {
        let bin = self.bin_at(time);
        let connection = self.flows.get(record.flow as usize).map_or(0, |w| w.connection);
        if let Some(stats) = self.by_segment.get_mut(segment).map(|t| &mut t[usize::from(!forward)])
        {
            stats.lost += size.0;
            stats.lost_bytes = stats.lost_bytes.saturating_add(size.1);
            let bin = stats.bins.entry(bin).or_default();
            bin.lost += size.0;
            bin.lost_bytes = bin.lost_bytes.saturating_add(size.1);
        }
        self.list(Loss {
            time,
            place: segment,
            forward,
            connection,
            kind: LossKind::Segment,
            packets: size.0,
            bytes: size.1,
            from: record.from,
        });
    }

    fn list(&mut self, loss: Loss) {
        if self.losses.len() < MAX_LISTED {
            self.losses.push(loss);
        } else {
            self.unlisted += 1;
        }
    }
}

impl Sink for PathStats {
    fn done(&mut self, record: &Record, sightings: &[Sighting], passed: &[LastArrival]) {
        let Some(facts) = self.flows.get(record.flow as usize).copied() else { return };
        let counts = self.only.is_none_or(|c| c == facts.connection);
        let Some(forward) = self.forward(record, sightings) else {
            self.undirected += u64::from(counts);
            return;
        };
        let data = (record.to - record.from) as u64;
        let packets = data.div_ceil(u64::from(facts.full_segment)).max(1);
        let bytes = data + u64::from(record.payload) + packets * u64::from(record.header);
        let size = (packets, bytes);
        let points = self.points();
        let place = |i: usize| if forward { i } else { points - 1 - i };
        let seen = |p: usize| record.mask >> p & 1 == 1;
        let expected = |p: usize| facts.mask >> p & 1 == 1;
        let Some(furthest) = (0..points).rev().map(place).find(|p| seen(*p)) else { return };
        let mut before: Option<usize> = None;
        let mut beyond = false;
        for p in (0..points).map(place).filter(|p| expected(*p)) {
            if beyond {
                // Lost between the last point that saw it and the next one.
                let Some(up) = before else { return };
                let (segment, time) = (up.min(p), sightings[up].time);
                if !counts {
                } else if self.would_be_seen(segment, forward, p, time, passed) {
                    self.lose(segment, forward, time, record, size);
                } else if let Some(t) = self.by_segment.get_mut(segment) {
                    t[usize::from(!forward)].undecided += size.0;
                }
                return;
            }
            if seen(p) {
                if let Some(up) = before.filter(|up| seen(*up) && up.abs_diff(p) == 1) {
                    self.passed(up.min(p), forward, counts, sightings[up], sightings[p], size);
                }
                before = Some(p);
            } else if counts {
                let when = before.unwrap_or(furthest);
                let time = sightings[when].time;
                let running = self.spans.get(p).is_some_and(|(begin, end)| {
                    // It was upstream earlier, by at most twice the longest delay so far.
                    let slack = if before.is_none() {
                        let segment = p.min(furthest);
                        self.by_segment[segment][usize::from(!forward)]
                            .longest
                            .saturating_mul(2)
                            .max(ARRIVAL_TIMEOUT)
                    } else {
                        0
                    };
                    time.saturating_sub(slack) >= *begin && time <= *end
                });
                if running {
                    let missed = &mut self.missed[p];
                    missed.drops += size.0;
                    missed.dropped_bytes = missed.dropped_bytes.saturating_add(size.1);
                    self.list(Loss {
                        time,
                        place: p,
                        forward,
                        connection: facts.connection,
                        kind: LossKind::Capture,
                        packets: size.0,
                        bytes: size.1,
                        from: record.from,
                    });
                }
            }
            beyond = p == furthest;
        }
        let ends = (place(0), place(points - 1));
        if points > 2 && seen(ends.0) && seen(ends.1) {
            self.passed(points - 1, forward, counts, sightings[ends.0], sightings[ends.1], size);
        }
    }

    fn late(&mut self, late: Overtaken) {
        let Some(facts) = self.flows.get(late.flow as usize).copied() else { return };
        if self.only.is_some_and(|c| c != facts.connection) {
            return;
        }
        if let (Some(forward), Some(stats)) = (facts.forward, self.by_segment.get_mut(late.segment))
        {
            let stats = &mut stats[usize::from(!forward)];
            stats.late += 1;
            stats.latest = stats.latest.max(late.by);
        }
    }

    fn duplicate(&mut self, position: usize) {
        if let Some(missed) = self.missed.get_mut(position) {
            missed.duplicates += 1;
        }
    }
}
