//! Finds the layout of the path: common flows, the order of the points, and the differences of their clocks.
//!
//! signal: surveys of all captures · model: a sampled packet found at two points shows which flows are the same (also
//! behind NAT), and the difference of the clocks to within its delay. Take two packets in opposite directions at nearly
//! the same time: the difference of their apparent delays is the round trip between the points, whatever the clocks
//! show. Its sign gives the order of the points. TTLs give the same order where they differ · action: [`PathLayout`]

use std::collections::BTreeMap;

use capture::Addr;

use super::packet::Tuple;
use super::survey::{Sample, Survey};
use super::{LocateError, MAX_POINTS};
use crate::clock;

/// Smaller steps of a clock do not disturb the order of reading, s.
const LARGE_STEP: f64 = 1.0;
/// A shorter round trip between two points cannot be distinguished from the jitter of captures on one machine, s.
const NO_DISTANCE: f64 = 20e-6;

/// How the order of the points was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderBy {
    /// As given; the packets agree, or show nothing else.
    Given,
    /// Not as given: TTLs show another order.
    Hops,
    /// Not as given: delays show another order.
    Delays,
}

/// Facts about a flow that matching needs for each of its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowFacts {
    pub connection: u32,
    /// Points at which it was seen: bit i stands for position i.
    pub mask: u16,
    /// Whether it goes from the first point to the last; `None` while unknown.
    pub forward: Option<bool>,
    /// The flow in the other direction.
    pub reverse: Option<u32>,
    /// Whether its IP identifications are the same at all points.
    pub ids: bool,
    /// Payload of a full segment on the wire.
    pub full_segment: u32,
}

/// A flow in one direction with its appearance at all points.
#[derive(Clone, Debug)]
pub(crate) struct PathFlow {
    pub facts: FlowFacts,
    /// By position: address and port pair, TTL, MSS of the SYN.
    pub seen: [Option<At>; MAX_POINTS],
    pub opens: bool,
    pub packets: u64,
    pub bytes: u64,
}

/// Appearance of a flow at one point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub tuple: Tuple,
    pub ttl: u8,
    pub mss: Option<u16>,
}

/// Difference between a clock and the reference clock between two steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockEra {
    /// Its beginning, s since the origin of the reference clock; minus infinity for the first.
    pub from: f64,
    /// It applies at the latest from this packet of the file on.
    pub ordinal: u64,
    /// It applies at the earliest from this packet on. Between both, the era that gives the smaller time step is used.
    pub earliest: u64,
    /// This clock minus the reference clock at the origin, ns.
    pub offset: i64,
    /// Drift, ns per ns.
    pub slope: f64,
}

impl ClockEra {
    /// Size of the step between `before` and this era, ms.
    pub fn step_ms(&self, before: &ClockEra) -> f64 {
        self.offset.saturating_sub(before.offset) as f64 / 1e6
            + (self.slope - before.slope) * self.from * 1e3
    }
}

/// Layout of the path. Indices are positions on the path unless they say `given`.
#[derive(Debug)]
pub(crate) struct PathLayout {
    /// Position → index of the capture as given.
    pub order: Vec<usize>,
    pub by: OrderBy,
    pub flows: Vec<PathFlow>,
    /// Given index → flow of the survey → flow of the path.
    pub flow_of: Vec<Vec<u32>>,
    /// Given index → difference of its clock from the reference clock, era by era.
    pub clocks: Vec<Vec<ClockEra>>,
    /// Origin of the reference clock (that of the first capture given), ns since the epoch.
    pub origin: i64,
    pub warnings: Vec<String>,
}

/// A sampled packet found at two points.
#[derive(Clone, Copy)]
struct CommonPacket {
    flow: u32,
    a: Sample,
    b: Sample,
}

/// Parents of a union-find over all flows of all surveys.
struct Sets(Vec<u32>);

impl Sets {
    fn root(&mut self, mut i: u32) -> u32 {
        while self.0[i as usize] != i {
            self.0[i as usize] = self.0[self.0[i as usize] as usize];
            i = self.0[i as usize];
        }
        i
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

fn in_common<'a>(a: &'a Survey, b: &'a Survey) -> impl Iterator<Item = (Sample, Sample)> + 'a {
    let (few, many, swapped) =
        if a.samples.len() <= b.samples.len() { (a, b, false) } else { (b, a, true) };
    few.samples.iter().filter_map(move |(key, x)| {
        let y = many.samples.get(key).filter(|y| !x.twice && !y.twice)?;
        Some(if swapped { (*y, *x) } else { (*x, *y) })
    })
}

/// Finds flows that are the same: equal addresses, or equal packets with other addresses (NAT).
fn same_flows(surveys: &[Survey]) -> (Vec<Vec<u32>>, u32) {
    let mut base = Vec::new();
    let mut total = 0u32;
    for survey in surveys {
        base.push(total);
        total += survey.flows.len() as u32;
    }
    let mut sets = Sets((0..total).collect());
    for (i, a) in surveys.iter().enumerate() {
        for (j, b) in surveys.iter().enumerate().skip(i + 1) {
            for (x, seen) in a.flows.iter().enumerate() {
                if let Some(y) = b.index.get(&seen.tuple) {
                    sets.join(base[i] + x as u32, base[j] + y);
                }
            }
            // Renamed by NAT: neither tuple exists at the other point.
            let mut votes: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for (x, y) in in_common(a, b) {
                let (Some(s), Some(t)) =
                    (a.flows.get(x.flow as usize), b.flows.get(y.flow as usize))
                else {
                    continue;
                };
                let renamed = s.tuple.protocol == t.tuple.protocol
                    && !b.index.contains_key(&s.tuple)
                    && !a.index.contains_key(&t.tuple);
                if renamed {
                    *votes.entry((x.flow, y.flow)).or_default() += 1;
                }
            }
            let mut votes: Vec<((u32, u32), u32)> = votes.into_iter().collect();
            votes.sort_by_key(|(pair, count)| (u32::MAX - count, *pair));
            let (mut taken_a, mut taken_b) =
                (vec![false; a.flows.len()], vec![false; b.flows.len()]);
            for ((x, y), _) in votes {
                if !taken_a[x as usize] && !taken_b[y as usize] {
                    taken_a[x as usize] = true;
                    taken_b[y as usize] = true;
                    sets.join(base[i] + x, base[j] + y);
                }
            }
        }
    }
    let mut number: BTreeMap<u32, u32> = BTreeMap::new();
    let flow_of = surveys
        .iter()
        .zip(&base)
        .map(|(survey, base)| {
            (0..survey.flows.len() as u32)
                .map(|x| {
                    let next = number.len() as u32;
                    *number.entry(sets.root(base + x)).or_insert(next)
                })
                .collect()
        })
        .collect();
    (flow_of, number.len() as u32)
}

/// Packets that two captures have in common, in the order of the first.
fn both(a: &Survey, b: &Survey, flow_of: [&[u32]; 2]) -> Vec<CommonPacket> {
    let mut found: Vec<CommonPacket> = in_common(a, b)
        .filter_map(|(x, y)| {
            let (f, g) = (flow_of[0].get(x.flow as usize)?, flow_of[1].get(y.flow as usize)?);
            (f == g).then_some(CommonPacket { flow: *f, a: x, b: y })
        })
        .collect();
    found.sort_by_key(|p| p.a.ordinal);
    found
}

/// Position of one point relative to another.
struct Step {
    /// Round trip between them (s), positive if the second lies behind the first in the direction of the path.
    distance: f64,
    /// The same in hops, where TTLs differ.
    hops: i32,
}

/// What is known so far of each flow while the layout is made.
struct LayoutBuilder<'a> {
    surveys: &'a [Survey],
    flow_of: &'a [Vec<u32>],
    reverse: Vec<Option<u32>>,
    /// Whether it goes in the direction of the path.
    along: Vec<Option<bool>>,
    /// TTL at each point, by given index.
    ttl: Vec<[Option<u8>; MAX_POINTS]>,
}

impl LayoutBuilder<'_> {
    /// Sets the direction of flow `f`, and the opposite one for its reverse flow.
    fn set(&mut self, f: u32, along: bool) {
        if let Some(slot @ None) = self.along.get_mut(f as usize) {
            *slot = Some(along);
            if let Some(back) = self.reverse.get(f as usize).copied().flatten() {
                self.set(back, !along);
            }
        }
    }

    /// Determines the position of point `j` relative to point `i`.
    fn step(&mut self, i: usize, j: usize, common: &[CommonPacket], main: u32) -> Step {
        // Consecutive packets in opposite directions, by the flow with the lower number.
        let mut trips: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        let mut last: BTreeMap<u32, (u32, i64)> = BTreeMap::new();
        for p in common {
            let Some(back) = self.reverse.get(p.flow as usize).copied().flatten() else { continue };
            let low = p.flow.min(back);
            let apart = p.b.time.saturating_sub(p.a.time);
            if let Some((flow, before)) = last.insert(low, (p.flow, apart))
                && flow != p.flow
            {
                let trip = if flow == low {
                    before.saturating_sub(apart)
                } else {
                    apart.saturating_sub(before)
                };
                trips.entry(low).or_default().push(trip as f64 / 1e9);
            }
        }
        // For each connection: whether its flow with the lower number goes from i to j.
        let mut towards: Vec<(u32, bool, usize)> = Vec::new();
        let mut sizes: Vec<f64> = Vec::new();
        for (low, mut of) in trips {
            of.sort_by(f64::total_cmp);
            let median = of[of.len() / 2];
            if median.abs() >= NO_DISTANCE {
                towards.push((low, median > 0.0, of.len()));
                sizes.extend(of.iter().filter(|t| (**t > 0.0) == (median > 0.0)).map(|t| t.abs()));
            }
        }
        let mut hops = 0;
        for p in common {
            let of = self.ttl[p.flow as usize];
            if let (Some(a), Some(b)) = (of[i], of[j])
                && a != b
            {
                hops = (i32::from(a) - i32::from(b)).abs();
                let low = self.reverse[p.flow as usize].map_or(p.flow, |back| back.min(p.flow));
                if !towards.iter().any(|t| t.0 == low) {
                    towards.push((low, (a > b) == (p.flow == low), 0));
                }
            }
        }
        towards.sort_by_key(|t| (std::cmp::Reverse(t.2), t.0));
        sizes.sort_by(f64::total_cmp);
        let size = sizes.get(sizes.len() / 10).copied().unwrap_or(0.0);
        // The direction of the path is that of the main flow, or of a flow whose direction is already known.
        let known = |builder: &Self| {
            towards.iter().find_map(|(low, there, _)| Some((builder.along[*low as usize]?, *there)))
        };
        if known(self).is_none()
            && let Some(low) = towards.iter().find(|t| t.0 == main).or(towards.first()).map(|t| t.0)
        {
            let there = towards.iter().find(|t| t.0 == low).is_none_or(|t| t.1);
            self.set(low, there);
        }
        let sign = match known(self) {
            Some((along, there)) if along != there => -1.0,
            _ => 1.0,
        };
        for (low, there, _) in &towards {
            self.set(*low, *there == (sign > 0.0));
        }
        Step { distance: sign * size, hops: if sign > 0.0 { hops } else { -hops } }
    }
}

/// Finds the layout of the path from the surveys of all captures.
pub(crate) fn lay_out(surveys: &[Survey]) -> Result<PathLayout, LocateError> {
    let n = surveys.len();
    let (flow_of, count) = same_flows(surveys);
    let mut builder = LayoutBuilder {
        surveys,
        flow_of: &flow_of,
        reverse: vec![None; count as usize],
        along: vec![None; count as usize],
        ttl: vec![[None; MAX_POINTS]; count as usize],
    };
    for (i, survey) in surveys.iter().enumerate() {
        for (x, seen) in survey.flows.iter().enumerate() {
            let flow = flow_of[i][x];
            builder.ttl[flow as usize][i] = Some(seen.ttl);
            let back = survey.index.get(&seen.tuple.back()).map(|y| flow_of[i][*y as usize]);
            if let Some(back) = back.filter(|back| *back != flow) {
                builder.reverse[flow as usize] = builder.reverse[flow as usize].or(Some(back));
            }
        }
    }
    let mut packets = vec![0u64; count as usize];
    for (i, survey) in surveys.iter().enumerate() {
        for (x, seen) in survey.flows.iter().enumerate() {
            packets[flow_of[i][x] as usize] += seen.packets;
        }
    }
    let main = (0..count)
        .max_by_key(|f| (packets[*f as usize], u32::MAX - f))
        .map_or(0, |f| builder.reverse[f as usize].map_or(f, |back| back.min(f)));

    // Beginning with the first capture, add the one with the most packets in common with those already placed.
    let mut placed: Vec<(usize, f64, i32)> = vec![(0, 0.0, 0)];
    let mut clocks: Vec<Vec<ClockEra>> = vec![Vec::new(); n];
    let origin = surveys[0].first.min(surveys[0].last);
    let mut pairs: BTreeMap<(usize, usize), Vec<CommonPacket>> = BTreeMap::new();
    let mut same_ids: Vec<(u32, u32)> = vec![(0, 0); count as usize];
    while placed.len() < n {
        for i in placed.iter().map(|p| p.0) {
            for j in (0..n).filter(|j| !placed.iter().any(|p| p.0 == *j)) {
                pairs
                    .entry((i, j))
                    .or_insert_with(|| both(&surveys[i], &surveys[j], [&flow_of[i], &flow_of[j]]));
            }
        }
        let next = pairs
            .iter()
            .filter(|((_, j), _)| !placed.iter().any(|p| p.0 == *j))
            .max_by_key(|((i, j), common)| (common.len(), n - i, n - j))
            .map(|(key, _)| *key);
        let Some((i, j)) = next else { break };
        let common = pairs.remove(&(i, j)).unwrap_or_default();
        if common.is_empty() {
            return Err(LocateError::NothingInCommon {
                a: surveys[i].path.display().to_string(),
                b: surveys[j].path.display().to_string(),
            });
        }
        let step = builder.step(i, j, &common, main);
        let from = placed.iter().find(|p| p.0 == i).map_or((0.0, 0), |p| (p.1, p.2));
        placed.push((j, from.0 + step.distance, from.1 + step.hops));
        let towards = (step.distance, step.hops) > (0.0, 0)
            || ((step.distance, step.hops) == (0.0, 0) && j > i);
        clocks[j] = eras(&builder, towards, &common, &clocks[i], origin);
        for p in &common {
            let ids = &mut same_ids[p.flow as usize];
            if p.a.id != 0 && p.a.payload == p.b.payload {
                if p.a.id == p.b.id { ids.0 += 1 } else { ids.1 += 1 }
            }
        }
    }
    let (order, by) = sorted(&placed);
    let reversed = position(&order, 0) > position(&order, n - 1);
    let order: Vec<usize> = if reversed { order.into_iter().rev().collect() } else { order };
    let given = order.iter().copied().eq(0..n);
    let by = if given { OrderBy::Given } else { by };
    let mut layout = PathLayout {
        flows: Vec::new(),
        flow_of: Vec::new(),
        order,
        by,
        clocks,
        origin,
        warnings: Vec::new(),
    };
    layout.flows = flows(&builder, &layout.order, reversed, &same_ids);
    layout.flow_of = flow_of;
    Ok(layout)
}

fn position(order: &[usize], given: usize) -> usize {
    order.iter().position(|g| *g == given).unwrap_or(0)
}

/// Points in the order of the path: by hops, since TTLs only fall; within a hop by distance; else as given.
fn sorted(placed: &[(usize, f64, i32)]) -> (Vec<usize>, OrderBy) {
    let mut points = placed.to_vec();
    points.sort_by_key(|p| p.0);
    points.sort_by(|a, b| a.2.cmp(&b.2).then(a.1.total_cmp(&b.1)));
    let by = if points.iter().any(|p| p.2 != 0) { OrderBy::Hops } else { OrderBy::Delays };
    (points.into_iter().map(|p| p.0).collect(), by)
}

/// Difference of a clock from the reference clock, from that of the `parent` point and the packets in common. `towards`:
/// the point lies behind the parent in the direction of the path.
fn eras(
    builder: &LayoutBuilder<'_>,
    towards: bool,
    common: &[CommonPacket],
    parent: &[ClockEra],
    origin: i64,
) -> Vec<ClockEra> {
    let parent_of = |s: &Sample| to_reference(parent, s.ordinal, s.time, origin, None);
    let base = common.first().map_or(0, |p| p.b.time.saturating_sub(parent_of(&p.a)));
    // In the order of this file and with times that follow it: a step lies between two packets of the file, while
    // packets in a queue at that moment were sent before it and arrive after it.
    let mut fits: Vec<Fit> = common
        .iter()
        .map(|p| {
            let t = parent_of(&p.a).saturating_sub(origin) as f64 / 1e9;
            let apart = p.b.time.saturating_sub(parent_of(&p.a)).saturating_sub(base) as f64 / 1e9;
            Fit { ordinal: p.b.ordinal, flow: p.flow, t, apart }
        })
        .collect();
    fits.sort_by_key(|f| f.ordinal);
    let mut latest = f64::NEG_INFINITY;
    let mut windows = [clock::Windows::default(), clock::Windows::default()];
    let blind = fits.iter().all(|f| builder.along[f.flow as usize].is_none());
    for f in &mut fits {
        latest = f.t.max(latest + 1e-6);
        f.t = latest;
        let ahead = match builder.along[f.flow as usize] {
            Some(along) => along == towards,
            None if blind => true,
            None => continue,
        };
        let (window, apart) =
            if ahead { (&mut windows[0], f.apart) } else { (&mut windows[1], -f.apart) };
        window.add((f.t * 1e9) as i64, (apart * 1e9) as i64);
    }
    let lines = clock::fit(&windows[0].points(), &windows[1].points(), LARGE_STEP);
    let mut eras: Vec<ClockEra> = Vec::new();
    for line in &lines {
        let (earliest, ordinal) = match eras.last() {
            Some(before) => boundary(&fits, before, line, base),
            None => (0, 0),
        };
        let offset = base.saturating_add((line.offset * 1e9) as i64);
        eras.push(ClockEra { from: line.from, ordinal, earliest, offset, slope: line.slope });
    }
    eras
}

/// A sampled packet with its time and apparent delay, s.
struct Fit {
    ordinal: u64,
    flow: u32,
    t: f64,
    apart: f64,
}

/// The packets of the file between which a clock stepped: those before lie closest to one line, those after to the other.
/// Distances count up to the size of the step.
fn boundary(fits: &[Fit], before: &ClockEra, line: &clock::Line, base: i64) -> (u64, u64) {
    let start = before.offset.saturating_sub(base) as f64 / 1e9;
    let old = |f: &Fit| start + before.slope * f.t;
    let step = fits.iter().map(|f| (line.at(f.t) - old(f)).abs()).fold(0.0, f64::max);
    let miss = |f: &Fit, at: f64| (f.apart - at).abs().min(step);
    let mut cost = 0.0;
    let mut best = (0.0, 0);
    for (i, f) in fits.iter().enumerate() {
        cost += miss(f, old(f)) - miss(f, line.at(f.t));
        if cost < best.0 && f.ordinal >= before.ordinal {
            best = (cost, i + 1);
        }
    }
    let earliest = best.1.checked_sub(1).and_then(|i| fits.get(i)).map_or(0, |f| f.ordinal + 1);
    (earliest, fits.get(best.1).map_or(earliest, |f| f.ordinal))
}

/// Time of the reference clock when this clock showed `time` at packet `ordinal`. Where the era is uncertain, the one
/// with the result nearer to `near`, the time of the previous packet, is used.
pub(crate) fn to_reference(
    eras: &[ClockEra],
    ordinal: u64,
    time: i64,
    origin: i64,
    near: Option<i64>,
) -> i64 {
    let by = |era: &ClockEra| {
        let there = time.saturating_sub(origin).saturating_sub(era.offset);
        origin
            .saturating_add((there as f64 * (-era.slope / (1.0 + era.slope))) as i64)
            .saturating_add(there)
    };
    let k = eras.partition_point(|e| e.ordinal <= ordinal).max(1) - 1;
    let Some(current) = eras.get(k) else { return time };
    if let (Some(next), Some(near)) = (eras.get(k + 1), near)
        && ordinal >= next.earliest
    {
        let (x, y) = (by(current), by(next));
        return if x.saturating_sub(near).saturating_abs() <= y.saturating_sub(near).saturating_abs()
        {
            x
        } else {
            y
        };
    }
    by(current)
}

/// The facts about each flow, by position.
fn flows(
    builder: &LayoutBuilder<'_>,
    order: &[usize],
    reversed: bool,
    same_ids: &[(u32, u32)],
) -> Vec<PathFlow> {
    let count = builder.along.len();
    let mut flows: Vec<PathFlow> = (0..count)
        .map(|f| PathFlow {
            facts: FlowFacts {
                connection: 0,
                mask: 0,
                forward: builder.along[f].map(|along| along != reversed),
                reverse: builder.reverse[f],
                ids: same_ids[f].0 > 0 && same_ids[f].1 == 0,
                full_segment: 0,
            },
            seen: [None; MAX_POINTS],
            opens: false,
            packets: 0,
            bytes: 0,
        })
        .collect();
    for (position, given) in order.iter().enumerate() {
        for (x, seen) in builder.surveys[*given].flows.iter().enumerate() {
            let flow = &mut flows[builder.flow_of[*given][x] as usize];
            flow.facts.mask |= 1 << position;
            flow.seen[position] = Some(At { tuple: seen.tuple, ttl: seen.ttl, mss: seen.mss });
            flow.opens |= seen.opens;
            flow.packets = flow.packets.max(seen.packets);
            flow.bytes = flow.bytes.max(seen.bytes);
            // GSO and GRO only make segments longer: the point with the shortest is right.
            if seen.largest > 0
                && (flow.facts.full_segment == 0 || seen.largest < flow.facts.full_segment)
            {
                flow.facts.full_segment = seen.largest;
            }
        }
    }
    let mut connections = 0;
    let mut number = vec![None; count];
    for f in 0..count {
        let known = flows[f].facts.reverse.and_then(|back| number[back as usize]);
        let connection = known.unwrap_or_else(|| {
            connections += 1;
            connections - 1
        });
        number[f] = Some(connection);
        flows[f].facts.connection = connection;
        // Where GSO hides the size of segments, the MSS in the SYNs shows it; timestamps take 12 bytes (RFC 7323).
        let back = flows[f].facts.reverse.map_or(f, |back| back as usize);
        let mss = [f, back]
            .iter()
            .flat_map(|i| flows[*i].seen.iter().flatten().filter_map(|at| at.mss))
            .min();
        if let Some(mss) = mss.map(u32::from) {
            flows[f].facts.full_segment =
                flows[f].facts.full_segment.clamp(mss.saturating_sub(12), mss);
        }
        flows[f].facts.full_segment = flows[f].facts.full_segment.max(1);
    }
    by_address(&mut flows);
    flows
}

/// Gives flows of unknown direction that of another flow from, or to, the same host.
fn by_address(flows: &mut [PathFlow]) {
    let mut side: BTreeMap<Addr, bool> = BTreeMap::new();
    for flow in flows.iter() {
        if let Some(forward) = flow.facts.forward {
            for at in flow.seen.iter().flatten() {
                side.insert(at.tuple.src, forward);
                side.insert(at.tuple.dst, !forward);
            }
        }
    }
    for flow in flows.iter_mut().filter(|f| f.facts.forward.is_none()) {
        flow.facts.forward = flow.seen.iter().flatten().find_map(|at| {
            side.get(&at.tuple.src).copied().or_else(|| side.get(&at.tuple.dst).map(|s| !s))
        });
    }
}
