//! What a stretch between two points did to the packets that went over it.
//!
//! signal: records with the time at which each point saw them · model: per stretch, direction and bin of time the
//! smallest, mean and largest apparent delay, and an even sample of them for quantiles (the clocks are only known at the
//! end, and change nothing but a constant within a bin); a packet that entered and never came out was lost, unless one
//! of the captures was not running then · action: [`Books`]
//!
//! A packet that was seen before a point and behind it was not lost there: the capture missed it, which is told of
//! the point.

use std::collections::BTreeMap;

use super::clock::Windows;
use super::matching::{Late, Passed, Record, Sight, Sink};
use super::path_order::Way;
use super::rows::{Loss, LossKind};

/// Delays kept of a bin. With fewer than ten bins a second, two significant digits of a p99.
const SAMPLES: usize = 32;
/// Delays are kept in units of 100 ns, which a signed number of 32 bits holds up to three minutes of.
const UNIT: i64 = 100;
/// Losses that are listed one by one; beyond, they are counted.
const MOST_LISTED: usize = 100_000;
/// A capture that stopped less than this after a packet set out may just not have seen it arrive, ns.
const PATIENCE: i64 = 1_000_000_000;
const CE: u8 = 3;

/// Apparent delays of one bin, ns and units of 100 ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bin {
    pub packets: u64,
    pub bytes: u64,
    /// Of how many the delay was measured.
    pub count: u64,
    pub sum: i64,
    pub min: i64,
    pub max: i64,
    pub lost: u64,
    pub lost_bytes: u64,
    stride: u32,
    kept: u8,
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
            kept: 0,
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
            if usize::from(self.kept) == SAMPLES {
                for i in 0..SAMPLES / 2 {
                    self.samples[i] = self.samples[2 * i];
                }
                self.kept = SAMPLES as u8 / 2;
                self.stride = self.stride.saturating_mul(2);
            }
            if self.count.is_multiple_of(u64::from(self.stride)) {
                let value = (delay / UNIT).clamp(i64::from(i32::MIN), i64::from(i32::MAX));
                self.samples[usize::from(self.kept)] = value as i32;
                self.kept += 1;
            }
        }
        self.count += 1;
    }

    /// An even sample of the delays, ms, each standing for so many packets.
    pub fn sample(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let weight = self.count as f64 / f64::from(self.kept.max(1));
        let kept = &self.samples[..usize::from(self.kept).min(SAMPLES)];
        kept.iter().map(move |v| (f64::from(*v) * UNIT as f64 / 1e6, weight))
    }
}

/// One stretch in one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub bins: BTreeMap<i64, Bin>,
    pub packets: u64,
    pub bytes: u64,
    pub lost: u64,
    pub lost_bytes: u64,
    /// Not seen to arrive, while one of the captures had not begun or was over.
    pub undecided: u64,
    pub late: u64,
    pub latest: i64,
    pub marked: u64,
    pub rewritten: u64,
    /// Smallest delay of each window of time, of all flows.
    pub windows: Windows,
    longest: i64,
}

/// What a point missed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missed {
    /// Of packets that other points saw before and behind it, or only behind.
    pub drops: u64,
    pub dropped_bytes: u64,
    pub duplicates: u64,
}

/// All figures of a line.
pub(crate) struct Books {
    pub ways: Vec<Way>,
    /// Stretches by the position at which they begin, then the whole path; forward and backward.
    pub tallies: Vec<[Tally; 2]>,
    pub missed: Vec<Missed>,
    pub losses: Vec<Loss>,
    pub unlisted: u64,
    /// First and last packet of each point by the reference clock, ns.
    pub spans: Vec<(i64, i64)>,
    pub origin: i64,
    pub bin: i64,
    /// The only connection whose figures count.
    pub wanted: Option<u32>,
    /// Packets of flows of which nothing tells the direction.
    pub undirected: u64,
}

impl Books {
    pub fn new(
        ways: Vec<Way>,
        spans: Vec<(i64, i64)>,
        origin: i64,
        bin: i64,
        wanted: Option<u32>,
    ) -> Books {
        let points = spans.len();
        Books {
            ways,
            tallies: (0..points).map(|_| [Tally::default(), Tally::default()]).collect(),
            missed: vec![Missed::default(); points],
            losses: Vec::new(),
            unlisted: 0,
            spans,
            origin,
            bin: bin.max(1),
            wanted,
            undirected: 0,
        }
    }

    fn points(&self) -> usize {
        self.spans.len()
    }

    /// Which way a record went: as its flow does, or from the point that saw it first.
    fn forward(&mut self, record: &Record, sights: &[Sight]) -> Option<bool> {
        let way = *self.ways.get(record.flow as usize)?;
        if way.forward.is_some() {
            return way.forward;
        }
        let mut seen = (0..sights.len()).filter(|p| record.mask >> p & 1 == 1);
        let (first, last) = (seen.next()?, seen.next_back()?);
        let forward = sights[first].time <= sights[last].time;
        self.ways[record.flow as usize].forward = Some(forward);
        if let Some(back) = way.reverse.and_then(|back| self.ways.get_mut(back as usize)) {
            back.forward = back.forward.or(Some(!forward));
        }
        Some(forward)
    }

    fn bin_at(&self, time: i64) -> i64 {
        time.saturating_sub(self.origin).div_euclid(self.bin)
    }

    /// A packet that passed a stretch.
    fn passed(
        &mut self,
        stretch: usize,
        forward: bool,
        counts: bool,
        up: Sight,
        down: Sight,
        size: (u64, u64),
    ) {
        let bin = self.bin_at(up.time);
        let since = up.time.saturating_sub(self.origin);
        let delay = down.time.saturating_sub(up.time);
        let Some(tally) = self.tallies.get_mut(stretch).map(|t| &mut t[usize::from(!forward)])
        else {
            return;
        };
        tally.windows.add(since, delay);
        tally.longest = tally.longest.max(delay);
        if !counts {
            return;
        }
        tally.packets += size.0;
        tally.bytes = tally.bytes.saturating_add(size.1);
        tally.marked += u64::from(down.ecn == CE && up.ecn != CE) * size.0;
        tally.rewritten += u64::from(down.window != up.window) * size.0;
        let bin = tally.bins.entry(bin).or_default();
        bin.packets += size.0;
        bin.bytes = bin.bytes.saturating_add(size.1);
        bin.delay(delay);
    }

    /// Whether a packet that entered a stretch at `time` would have been seen at its end.
    fn would_be_seen(
        &self,
        stretch: usize,
        forward: bool,
        at: usize,
        time: i64,
        passed: &[Passed],
    ) -> bool {
        let Some((begin, end)) = self.spans.get(at) else { return false };
        let longest = self.tallies.get(stretch).map_or(0, |t| t[usize::from(!forward)].longest);
        let overtaken = passed.get(stretch).is_some_and(|p| p.any && p.time > time);
        let patience = longest.saturating_mul(2).max(PATIENCE);
        time >= *begin && (overtaken || time.saturating_add(patience) < *end)
    }

    fn lose(
        &mut self,
        stretch: usize,
        forward: bool,
        time: i64,
        record: &Record,
        size: (u64, u64),
    ) {
        let bin = self.bin_at(time);
        let connection = self.ways.get(record.flow as usize).map_or(0, |w| w.connection);
        if let Some(tally) = self.tallies.get_mut(stretch).map(|t| &mut t[usize::from(!forward)]) {
            tally.lost += size.0;
            tally.lost_bytes = tally.lost_bytes.saturating_add(size.1);
            let bin = tally.bins.entry(bin).or_default();
            bin.lost += size.0;
            bin.lost_bytes = bin.lost_bytes.saturating_add(size.1);
        }
        self.list(Loss {
            time,
            place: stretch,
            forward,
            connection,
            kind: LossKind::Stretch,
            packets: size.0,
            bytes: size.1,
            from: record.from,
        });
    }

    fn list(&mut self, loss: Loss) {
        if self.losses.len() < MOST_LISTED {
            self.losses.push(loss);
        } else {
            self.unlisted += 1;
        }
    }
}

impl Sink for Books {
    fn done(&mut self, record: &Record, sights: &[Sight], passed: &[Passed]) {
        let Some(way) = self.ways.get(record.flow as usize).copied() else { return };
        let counts = self.wanted.is_none_or(|c| c == way.connection);
        let Some(forward) = self.forward(record, sights) else {
            self.undirected += u64::from(counts);
            return;
        };
        let data = (record.to - record.from) as u64;
        let packets = data.div_ceil(u64::from(way.segment)).max(1);
        let bytes = data + u64::from(record.payload) + packets * u64::from(record.header);
        let size = (packets, bytes);
        let points = self.points();
        let place = |i: usize| if forward { i } else { points - 1 - i };
        let seen = |p: usize| record.mask >> p & 1 == 1;
        let expected = |p: usize| way.mask >> p & 1 == 1;
        let Some(furthest) = (0..points).rev().map(place).find(|p| seen(*p)) else { return };
        let mut before: Option<usize> = None;
        let mut beyond = false;
        for p in (0..points).map(place).filter(|p| expected(*p)) {
            if beyond {
                // Lost between the last point that saw it and the next one.
                let Some(up) = before else { return };
                let (stretch, time) = (up.min(p), sights[up].time);
                if !counts {
                } else if self.would_be_seen(stretch, forward, p, time, passed) {
                    self.lose(stretch, forward, time, record, size);
                } else if let Some(t) = self.tallies.get_mut(stretch) {
                    t[usize::from(!forward)].undecided += size.0;
                }
                return;
            }
            if seen(p) {
                if let Some(up) = before.filter(|up| seen(*up) && up.abs_diff(p) == 1) {
                    self.passed(up.min(p), forward, counts, sights[up], sights[p], size);
                }
                before = Some(p);
            } else if counts {
                let when = before.unwrap_or(furthest);
                let time = sights[when].time;
                let running = self.spans.get(p).is_some_and(|(begin, end)| {
                    // Upstream it was earlier than where it was seen, by no more than the longest delay so far.
                    let slack = if before.is_none() {
                        let stretch = p.min(furthest);
                        self.tallies[stretch][usize::from(!forward)]
                            .longest
                            .saturating_mul(2)
                            .max(PATIENCE)
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
                        connection: way.connection,
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
            self.passed(points - 1, forward, counts, sights[ends.0], sights[ends.1], size);
        }
    }

    fn late(&mut self, late: Late) {
        let Some(way) = self.ways.get(late.flow as usize).copied() else { return };
        if self.wanted.is_some_and(|c| c != way.connection) {
            return;
        }
        if let (Some(forward), Some(tally)) = (way.forward, self.tallies.get_mut(late.stretch)) {
            let tally = &mut tally[usize::from(!forward)];
            tally.late += 1;
            tally.latest = tally.latest.max(late.by);
        }
    }

    fn duplicate(&mut self, position: usize) {
        if let Some(missed) = self.missed.get_mut(position) {
            missed.duplicates += 1;
        }
    }
}
