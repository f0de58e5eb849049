//! The path that the captures lie on: which flows are the same, in which order the points stand, how their clocks differ.
//!
//! signal: surveys of all captures · model: a sampled packet that is found at two points says which flow of the one is
//! which of the other (NAT), and how far the clocks are apart, give or take its delay. Of two packets that went opposite
//! ways at nearly the same time the difference of the apparent delays is the round trip between the points, positive
//! towards the one that lies further on: clocks fall out. Hops (TTL) say the same where they differ · action: [`Line`]

use std::collections::BTreeMap;

use capture::Addr;

use super::clock;
use super::packet::Tuple;
use super::survey::{Sample, Survey};
use super::{LocateError, MOST_POINTS};

/// A clock that jumps by less does not upset the order of reading, s.
const LARGE_STEP: f64 = 1.0;
/// A round trip between points below this is less than captures of one machine can tell apart, s.
const NO_DISTANCE: f64 = 20e-6;

/// How the order of the points was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderBy {
    /// As given: nothing tells otherwise, or the packets agree.
    Given,
    /// The given order is not that of the path; hops say so.
    Hops,
    /// The given order is not that of the path; delays say so.
    Delays,
}

/// What is needed of a flow for each of its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub connection: u32,
    /// Points (by position) at which it was seen.
    pub mask: u16,
    /// Whether it goes from the first point to the last; `None` until something tells.
    pub forward: Option<bool>,
    /// The other direction.
    pub reverse: Option<u32>,
    /// Its IP identifications are the same at all points.
    pub ids: bool,
    /// Payload of a full segment on the wire.
    pub segment: u32,
}

/// A flow in one direction, the same at all points.
#[derive(Clone, Debug)]
pub(crate) struct LineFlow {
    pub way: Way,
    /// By position: address and port pair, TTL, MSS of the SYN.
    pub seen: [Option<At>; MOST_POINTS],
    pub opens: bool,
    pub packets: u64,
    pub bytes: u64,
}

/// A flow at one point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub tuple: Tuple,
    pub ttl: u8,
    pub mss: Option<u16>,
}

/// From one clock to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Era {
    /// When it begins by the reference clock, s since its zero; minus infinity for the first.
    pub from: f64,
    /// Holds from this packet of the file on …
    pub ordinal: u64,
    /// … at the latest; from then until `ordinal` whichever keeps time going.
    pub earliest: u64,
    /// This clock minus the reference at t = 0 of the reference, ns.
    pub offset: i64,
    /// ns per ns.
    pub slope: f64,
}

impl Era {
    /// By how much the clock stepped when this era followed another, ms.
    pub fn step_ms(&self, before: &Era) -> f64 {
        self.offset.saturating_sub(before.offset) as f64 / 1e6
            + (self.slope - before.slope) * self.from * 1e3
    }
}

/// See the module text. Indices by position, unless they say `given`.
#[derive(Debug)]
pub(crate) struct Line {
    /// Position → index of the capture as given.
    pub order: Vec<usize>,
    pub by: OrderBy,
    pub flows: Vec<LineFlow>,
    /// Given index → flow of the survey → flow of the line.
    pub flow_of: Vec<Vec<u32>>,
    /// Given index → its clock against the reference, era by era.
    pub clocks: Vec<Vec<Era>>,
    /// Zero of the reference clock, that of the first capture given, ns.
    pub origin: i64,
    pub warnings: Vec<String>,
}

/// A packet seen at two points.
#[derive(Clone, Copy)]
struct Both {
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

/// Flows that are one: the same addresses, or the same packets under other addresses.
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
            // Renamed by NAT: neither name is known at the other point.
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

/// What two captures have in common, in the order of the first.
fn both(a: &Survey, b: &Survey, flow_of: [&[u32]; 2]) -> Vec<Both> {
    let mut found: Vec<Both> = in_common(a, b)
        .filter_map(|(x, y)| {
            let (f, g) = (flow_of[0].get(x.flow as usize)?, flow_of[1].get(y.flow as usize)?);
            (f == g).then_some(Both { flow: *f, a: x, b: y })
        })
        .collect();
    found.sort_by_key(|p| p.a.ordinal);
    found
}

/// Where one point lies as seen from another.
struct Step {
    /// Round trip between them (s), positive where the other one is further on in the direction of the line.
    distance: f64,
    /// The same in hops, where TTLs differ.
    hops: i32,
}

/// The line being laid: what is known of each flow and connection.
struct Laying<'a> {
    surveys: &'a [Survey],
    flow_of: &'a [Vec<u32>],
    reverse: Vec<Option<u32>>,
    /// Goes along the line.
    along: Vec<Option<bool>>,
    /// TTL by given index.
    ttl: Vec<[Option<u8>; MOST_POINTS]>,
}

impl Laying<'_> {
    /// Flow `f` goes along the line or against it, and so the other direction does not.
    fn set(&mut self, f: u32, along: bool) {
        if let Some(slot @ None) = self.along.get_mut(f as usize) {
            *slot = Some(along);
            if let Some(back) = self.reverse.get(f as usize).copied().flatten() {
                self.set(back, !along);
            }
        }
    }

    /// Places point `j` beside `i`.
    fn step(&mut self, i: usize, j: usize, common: &[Both], main: u32) -> Step {
        // Neighbours in time that went opposite ways, by the flow with the lower number.
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
        // Of each connection: whether its lower flow goes from i to j.
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
        // The direction of the line is that of the main flow; of a flow known from elsewhere, if it is not here.
        let known = |laying: &Self| {
            towards.iter().find_map(|(low, there, _)| Some((laying.along[*low as usize]?, *there)))
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

/// Lays the captures on a line.
pub(crate) fn lay(surveys: &[Survey]) -> Result<Line, LocateError> {
    let n = surveys.len();
    let (flow_of, count) = same_flows(surveys);
    let mut laying = Laying {
        surveys,
        flow_of: &flow_of,
        reverse: vec![None; count as usize],
        along: vec![None; count as usize],
        ttl: vec![[None; MOST_POINTS]; count as usize],
    };
    for (i, survey) in surveys.iter().enumerate() {
        for (x, seen) in survey.flows.iter().enumerate() {
            let flow = flow_of[i][x];
            laying.ttl[flow as usize][i] = Some(seen.ttl);
            let back = survey.index.get(&seen.tuple.back()).map(|y| flow_of[i][*y as usize]);
            if let Some(back) = back.filter(|back| *back != flow) {
                laying.reverse[flow as usize] = laying.reverse[flow as usize].or(Some(back));
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
        .map_or(0, |f| laying.reverse[f as usize].map_or(f, |back| back.min(f)));

    // From the first capture on, always to the one that has most in common with those already placed.
    let mut placed: Vec<(usize, f64, i32)> = vec![(0, 0.0, 0)];
    let mut clocks: Vec<Vec<Era>> = vec![Vec::new(); n];
    let origin = surveys[0].first.min(surveys[0].last);
    let mut pairs: BTreeMap<(usize, usize), Vec<Both>> = BTreeMap::new();
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
        let step = laying.step(i, j, &common, main);
        let from = placed.iter().find(|p| p.0 == i).map_or((0.0, 0), |p| (p.1, p.2));
        placed.push((j, from.0 + step.distance, from.1 + step.hops));
        let towards = (step.distance, step.hops) > (0.0, 0)
            || ((step.distance, step.hops) == (0.0, 0) && j > i);
        clocks[j] = eras(&laying, towards, &common, &clocks[i], origin);
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
    let mut line = Line {
        flows: Vec::new(),
        flow_of: Vec::new(),
        order,
        by,
        clocks,
        origin,
        warnings: Vec::new(),
    };
    line.flows = flows(&laying, &line.order, reversed, &same_ids);
    line.flow_of = flow_of;
    Ok(line)
}

fn position(order: &[usize], given: usize) -> usize {
    order.iter().position(|g| *g == given).unwrap_or(0)
}

/// Points in the order of the path: by hops, since TTLs only fall; within a hop by distance; equal ones as given.
fn sorted(placed: &[(usize, f64, i32)]) -> (Vec<usize>, OrderBy) {
    let mut points = placed.to_vec();
    points.sort_by_key(|p| p.0);
    points.sort_by(|a, b| a.2.cmp(&b.2).then(a.1.total_cmp(&b.1)));
    let by = if points.iter().any(|p| p.2 != 0) { OrderBy::Hops } else { OrderBy::Delays };
    (points.into_iter().map(|p| p.0).collect(), by)
}

/// The clock of a point against the reference, from that of its `parent` and what both have in common. `towards`: it
/// lies behind the parent, in the direction of the line.
fn eras(
    laying: &Laying<'_>,
    towards: bool,
    common: &[Both],
    parent: &[Era],
    origin: i64,
) -> Vec<Era> {
    let parent_of = |s: &Sample| to_reference(parent, s.ordinal, s.time, origin, None);
    let base = common.first().map_or(0, |p| p.b.time.saturating_sub(parent_of(&p.a)));
    // In the order in which this point saw them, and with a time that follows it: a step happens between two packets of
    // its file, while packets that wait in a queue straddle it.
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
    let blind = fits.iter().all(|f| laying.along[f.flow as usize].is_none());
    for f in &mut fits {
        latest = f.t.max(latest + 1e-6);
        f.t = latest;
        let ahead = match laying.along[f.flow as usize] {
            Some(along) => along == towards,
            None if blind => true,
            None => continue,
        };
        let (window, apart) =
            if ahead { (&mut windows[0], f.apart) } else { (&mut windows[1], -f.apart) };
        window.add((f.t * 1e9) as i64, (apart * 1e9) as i64);
    }
    let lines = clock::fit(&windows[0].points(), &windows[1].points(), LARGE_STEP);
    let mut eras: Vec<Era> = Vec::new();
    for line in &lines {
        let (earliest, ordinal) = match eras.last() {
            Some(before) => boundary(&fits, before, line, base),
            None => (0, 0),
        };
        let offset = base.saturating_add((line.offset * 1e9) as i64);
        eras.push(Era { from: line.from, ordinal, earliest, offset, slope: line.slope });
    }
    eras
}

/// A sampled packet with its apparent delay, s.
struct Fit {
    ordinal: u64,
    flow: u32,
    t: f64,
    apart: f64,
}

/// Between which packets of the file a clock stepped: where what comes before lies closest to the one line, and what
/// comes behind to the other. Delays beyond the step itself have no say.
fn boundary(fits: &[Fit], before: &Era, line: &clock::Line, base: i64) -> (u64, u64) {
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

/// Time of the reference clock when this clock showed `time` at packet `ordinal`. In the uncertain stretch before a
/// step `near`, the time of the packet before, decides.
pub(crate) fn to_reference(
    eras: &[Era],
    ordinal: u64,
    time: i64,
    origin: i64,
    near: Option<i64>,
) -> i64 {
    let by = |era: &Era| {
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

/// What was learned of each flow, by position.
fn flows(
    laying: &Laying<'_>,
    order: &[usize],
    reversed: bool,
    same_ids: &[(u32, u32)],
) -> Vec<LineFlow> {
    let count = laying.along.len();
    let mut flows: Vec<LineFlow> = (0..count)
        .map(|f| LineFlow {
            way: Way {
                connection: 0,
                mask: 0,
                forward: laying.along[f].map(|along| along != reversed),
                reverse: laying.reverse[f],
                ids: same_ids[f].0 > 0 && same_ids[f].1 == 0,
                segment: 0,
            },
            seen: [None; MOST_POINTS],
            opens: false,
            packets: 0,
            bytes: 0,
        })
        .collect();
    for (position, given) in order.iter().enumerate() {
        for (x, seen) in laying.surveys[*given].flows.iter().enumerate() {
            let flow = &mut flows[laying.flow_of[*given][x] as usize];
            flow.way.mask |= 1 << position;
            flow.seen[position] = Some(At { tuple: seen.tuple, ttl: seen.ttl, mss: seen.mss });
            flow.opens |= seen.opens;
            flow.packets = flow.packets.max(seen.packets);
            flow.bytes = flow.bytes.max(seen.bytes);
            // An offload makes segments longer, never shorter: the point that shows the shortest is right.
            if seen.largest > 0 && (flow.way.segment == 0 || seen.largest < flow.way.segment) {
                flow.way.segment = seen.largest;
            }
        }
    }
    let mut connections = 0;
    let mut number = vec![None; count];
    for f in 0..count {
        let known = flows[f].way.reverse.and_then(|back| number[back as usize]);
        let connection = known.unwrap_or_else(|| {
            connections += 1;
            connections - 1
        });
        number[f] = Some(connection);
        flows[f].way.connection = connection;
        // Where an offload hides the size of segments, the SYNs tell it; options take 12 bytes of it (RFC 7323).
        let back = flows[f].way.reverse.map_or(f, |back| back as usize);
        let mss = [f, back]
            .iter()
            .flat_map(|i| flows[*i].seen.iter().flatten().filter_map(|at| at.mss))
            .min();
        if let Some(mss) = mss.map(u32::from) {
            flows[f].way.segment = flows[f].way.segment.clamp(mss.saturating_sub(12), mss);
        }
        flows[f].way.segment = flows[f].way.segment.max(1);
    }
    by_address(&mut flows);
    flows
}

/// A flow of which nothing tells the direction goes like another one from the same host, or to it.
fn by_address(flows: &mut [LineFlow]) {
    let mut side: BTreeMap<Addr, bool> = BTreeMap::new();
    for flow in flows.iter() {
        if let Some(forward) = flow.way.forward {
            for at in flow.seen.iter().flatten() {
                side.insert(at.tuple.src, forward);
                side.insert(at.tuple.dst, !forward);
            }
        }
    }
    for flow in flows.iter_mut().filter(|f| f.way.forward.is_none()) {
        flow.way.forward = flow.seen.iter().flatten().find_map(|at| {
            side.get(&at.tuple.src).copied().or_else(|| side.get(&at.tuple.dst).map(|s| !s))
        });
    }
}
