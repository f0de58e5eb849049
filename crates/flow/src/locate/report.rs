//! Makes the rows: applies the last correction of the clocks, and computes queueing delays and their shares.

use std::collections::BTreeMap;

use capture::protocol;
use units::Quantiles;

use super::Options;
use super::name_of;
use super::path_order::{OrderBy, PathLayout};
use super::rows::{ClockRow, ConnectionRow, DelayRow, Located, PointRow, SegmentRow};
use super::segment::{PathStats, SegmentStats};
use super::survey::Survey;
use crate::clock::{self, Lines};
use crate::series::rows::Protocol;

/// Steps of a clock below this are jitter, s.
const SMALLEST_STEP: f64 = 0.001;
/// Drift below this is zero: the resolution of the fit over a short capture, ppm.
const NO_DRIFT: f64 = 1.0;
/// Differences of two captures on one machine below this mean nothing, ms.
const JITTER_MS: f64 = 0.05;
/// If a larger share of its packets is missing, something in the path segment makes other packets of them.
const MAX_MISSING_SHARE: f64 = 0.5;

/// Row and bins of a path segment in one direction, with corrected delays.
struct Delays {
    row: SegmentRow,
    bins: Vec<DelayRow>,
}

pub(crate) fn report(
    layout: &PathLayout,
    surveys: &[Survey],
    path_stats: PathStats,
    elsewhere: Vec<u64>,
    options: Options,
) -> Located {
    let points = layout.order.len();
    let begin = path_stats.spans.iter().map(|s| s.0).min().unwrap_or(layout.origin);
    let end = path_stats.spans.iter().map(|s| s.1).max().unwrap_or(begin).max(begin);
    let shift = begin.saturating_sub(layout.origin) as f64 / 1e9;
    let level = vec![clock::Line { from: f64::NEG_INFINITY, offset: 0.0, slope: 0.0 }];
    let lines: Vec<Lines> = (0..points - 1)
        .map(|s| {
            let [forward, backward] = &path_stats.by_segment[s];
            if options.one_clock {
                return level.clone();
            }
            clock::fit(&forward.windows.points(), &backward.windows.points(), SMALLEST_STEP)
        })
        .collect();
    let mut all: Vec<&[clock::Line]> = lines.iter().map(Vec::as_slice).collect();
    let mut segments = Vec::new();
    let mut delays = Vec::new();
    let mut clocks = Vec::new();
    for (s, by_segment) in path_stats.by_segment.iter().enumerate() {
        let path = s + 1 == points;
        if path && points == 2 {
            break;
        }
        let over = if path { std::mem::take(&mut all) } else { vec![lines[s].as_slice()] };
        let mut min = [None, None];
        for (back, stats) in by_segment.iter().enumerate() {
            let forward = back == 0;
            let (low, high) = if path { (0, points - 1) } else { (s, s + 1) };
            let (from, to) = if forward { (low, high) } else { (high, low) };
            let row = SegmentRow { from, to, forward, path, ..SegmentRow::default() };
            let made = corrected(stats, row, &over, path_stats.bin, shift);
            min[back] = made.row.delay_ms.map(|q| q.min);
            let index = segments.len();
            delays.extend(made.bins.into_iter().map(|bin| DelayRow { segment: index, ..bin }));
            segments.push(made.row);
        }
        if !path {
            clocks.push(clock_row(layout, s, &lines[s], by_segment, shift));
        }
    }
    share(&mut segments);
    let mut warnings: Vec<String> = surveys.iter().flat_map(|s| s.warnings.clone()).collect();
    warnings.extend(layout.warnings.clone());
    let rows: Vec<PointRow> = (0..points)
        .map(|p| point_row(layout, surveys, &path_stats, &elsewhere, p, begin))
        .collect();
    for row in segments.iter().filter(|r| !r.path) {
        let missing = row.lost as f64 / (row.lost + row.packets).max(1) as f64;
        if missing > MAX_MISSING_SHARE && row.lost > 10 {
            warnings.push(format!(
                "most packets of {} are not found in {}: something between them replaces them by other packets (a proxy, a \
                 tunnel), or the captures are not from one path",
                name_of(&rows[row.from].path),
                name_of(&rows[row.to].path),
            ));
        }
    }
    if path_stats.undirected > 0 {
        warnings.push(format!("the direction of {} packets is unknown", path_stats.undirected));
    }
    let mut losses = path_stats.losses.clone();
    losses.sort_by_key(|l| (l.time, l.place, l.from));
    Located {
        order_by: layout.by,
        points: rows,
        clocks,
        segments,
        delays,
        losses,
        unlisted_losses: path_stats.unlisted,
        connections: connections(layout),
        start_s: begin as f64 / 1e9,
        duration_s: end.saturating_sub(begin) as f64 / 1e9,
        origin: begin,
        warnings,
    }
}

/// The amount to subtract from an apparent delay of this direction at `t`, ms.
fn correction(over: &[&[clock::Line]], forward: bool, t: f64) -> f64 {
    let ahead: f64 = over.iter().map(|lines| clock::at(lines, t)).sum();
    if forward { ahead * 1e3 } else { -ahead * 1e3 }
}

fn near_step(over: &[&[clock::Line]], from: f64, to: f64) -> bool {
    let near = 2.0 * clock::NEAR_STEP;
    over.iter().any(|lines| lines.iter().any(|l| l.from > from - near && l.from < to + near))
}

fn corrected(
    stats: &SegmentStats,
    mut row: SegmentRow,
    over: &[&[clock::Line]],
    bin: i64,
    shift: f64,
) -> Delays {
    let forward = row.forward;
    row.packets = stats.packets;
    row.bytes = stats.bytes;
    row.lost = stats.lost;
    row.lost_bytes = stats.lost_bytes;
    row.undecided = stats.undecided;
    row.reordered = stats.late;
    row.reordered_ms_max = (stats.late > 0).then_some(stats.latest as f64 / 1e6);
    row.ecn_marked = stats.marked;
    row.windows_rewritten = stats.rewritten;
    let min = stats
        .windows
        .points()
        .into_iter()
        .filter(|(t, _)| !near_step(over, *t, *t))
        .map(|(t, v)| v * 1e3 - correction(over, forward, t))
        .fold(f64::INFINITY, f64::min);
    let width = bin as f64 / 1e9;
    let (mut all, mut bins): (Vec<(f64, f64)>, Vec<DelayRow>) = (Vec::new(), Vec::new());
    let (mut low, mut high, mut sum, mut count) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0u64);
    for (index, b) in &stats.bins {
        let t = *index as f64 * width;
        let known = b.count > 0 && !near_step(over, t, t + width);
        let take = correction(over, forward, t + width / 2.0);
        let mean = b.sum as f64 / 1e6 / b.count.max(1) as f64 - take;
        let of = (b.min as f64 / 1e6 - take, mean, b.max as f64 / 1e6 - take);
        if known {
            all.extend(b.sample().map(|(v, weight)| (v - take, weight)));
            (low, high) = (low.min(of.0), high.max(of.2));
            sum += mean * b.count as f64;
            count += b.count;
        }
        bins.push(DelayRow {
            segment: 0,
            t_s: t - shift,
            packets: b.packets,
            bytes: b.bytes,
            delay_ms: known.then_some(of),
            queue_ms: known.then(|| ((of.0 - min).max(0.0), (of.1 - min).max(0.0))),
            lost: b.lost,
        });
    }
    if count > 0 {
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let min = min.min(low);
        row.delay_ms = Some(quantiles(&all, count, low, high, 0.0));
        row.queue_ms = Some(quantiles(&all, count, low, high, min));
        row.queue_ms_mean = Some((sum / count as f64 - min).max(0.0));
    }
    Delays { row, bins }
}

/// Quantiles of weighted samples in ascending order, minus `floor`.
fn quantiles(all: &[(f64, f64)], count: u64, low: f64, high: f64, floor: f64) -> Quantiles {
    let total: f64 = all.iter().map(|s| s.1).sum();
    let at = |q: f64| {
        let mut left = q * total;
        let found = all.iter().find(|s| {
            left -= s.1;
            left <= 1e-9
        });
        found.map_or(high, |s| s.0).clamp(low, high) - floor
    };
    Quantiles {
        count,
        min: low - floor,
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        max: high - floor,
    }
}

/// Sets the share of each path segment in the mean queueing delay of its direction.
fn share(segments: &mut [SegmentRow]) {
    for forward in [true, false] {
        let whole: f64 = segments
            .iter()
            .filter(|r| r.forward == forward && !r.path)
            .filter_map(|r| r.queue_ms_mean)
            .sum();
        for row in segments.iter_mut().filter(|r| r.forward == forward && !r.path) {
            row.share = row.queue_ms_mean.filter(|_| whole > 0.0).map(|mean| mean / whole);
        }
    }
}

fn clock_row(
    layout: &PathLayout,
    s: usize,
    lines: &Lines,
    by_segment: &[SegmentStats; 2],
    shift: f64,
) -> ClockRow {
    let (near, far) = (&layout.clocks[layout.order[s]], &layout.clocks[layout.order[s + 1]]);
    let first = |eras: &[super::path_order::ClockEra]| {
        eras.first().map_or((0, 0.0), |e| (e.offset, e.slope))
    };
    let ((near_at, near_slope), (far_at, far_slope)) = (first(near), first(far));
    let rest = lines.first().copied().unwrap_or(clock::Line { from: 0.0, offset: 0.0, slope: 0.0 });
    let slope = far_slope - near_slope + rest.slope;
    let offset = far_at.saturating_sub(near_at) as f64 / 1e6 + (rest.offset + slope * shift) * 1e3;
    let smallest = |stats: &SegmentStats, sign: f64| {
        let of = |(t, v): (f64, f64)| v - sign * clock::at(lines, t);
        let points = stats.windows.points();
        let min = points
            .into_iter()
            .filter(|p| !near_step(&[lines.as_slice()], p.0, p.0))
            .map(of)
            .fold(f64::INFINITY, f64::min);
        min.is_finite().then_some(min)
    };
    let round = smallest(&by_segment[0], 1.0)
        .zip(smallest(&by_segment[1], -1.0))
        .map(|(a, b)| (a + b).max(0.0));
    let mut steps: Vec<(f64, f64)> = lines
        .windows(2)
        .map(|pair| {
            (pair[1].from - shift, (pair[1].at(pair[1].from) - pair[0].at(pair[1].from)) * 1e3)
        })
        .collect();
    for (eras, sign) in [(far, 1.0), (near, -1.0)] {
        for pair in eras.windows(2) {
            steps.push((pair[1].from - shift, sign * pair[1].step_ms(&pair[0])));
        }
    }
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let uncertainty_ms = round.map(|r| r * 500.0);
    let drift_ppm = slope * 1e6;
    ClockRow {
        offset_ms: offset,
        uncertainty_ms,
        drift_ppm,
        one_clock: steps.is_empty()
            && drift_ppm.abs() <= NO_DRIFT
            && uncertainty_ms.is_some_and(|u| offset.abs() <= u + JITTER_MS),
        steps,
        hops: hops(layout, s),
        renamed: renamed(layout, s),
        mss: layout.flows.iter().find_map(|f| {
            let (a, b) = (f.seen[s]?.mss?, f.seen[s + 1]?.mss?);
            (a != b).then_some(if f.facts.forward == Some(false) { (b, a) } else { (a, b) })
        }),
    }
}

/// Number of routers between two points, by the TTLs of most packets.
fn hops(layout: &PathLayout, s: usize) -> Option<u8> {
    let mut counts = [0u64; 256];
    for f in &layout.flows {
        if let (Some(a), Some(b)) = (f.seen[s], f.seen[s + 1]) {
            counts[usize::from(a.ttl.abs_diff(b.ttl))] += f.packets;
        }
    }
    let max = (0..256).max_by_key(|i| (counts[*i], 256 - i))?;
    (counts[max] > 0).then_some(max as u8)
}

fn renamed(layout: &PathLayout, s: usize) -> u64 {
    let mut ids: Vec<u32> = layout
        .flows
        .iter()
        .filter(|f| matches!((f.seen[s], f.seen[s + 1]), (Some(a), Some(b)) if a.tuple != b.tuple))
        .map(|f| f.facts.connection)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids.len() as u64
}

fn point_row(
    layout: &PathLayout,
    surveys: &[Survey],
    path_stats: &PathStats,
    elsewhere: &[u64],
    position: usize,
    begin: i64,
) -> PointRow {
    let given = layout.order[position];
    let survey = &surveys[given];
    let (first, last) = path_stats.spans[position];
    let missed = path_stats.missed[position];
    PointRow {
        path: survey.path.clone(),
        given,
        start_s: first.saturating_sub(begin) as f64 / 1e9,
        duration_s: last.saturating_sub(first).max(0) as f64 / 1e9,
        packets: survey.packets,
        bytes: survey.bytes,
        elsewhere: elsewhere.get(position).copied().unwrap_or(0),
        drops: missed.drops,
        dropped_bytes: missed.dropped_bytes,
        duplicates: missed.duplicates,
        reported_drops: survey.reported_drops,
    }
}

/// Both directions of each connection that at least two points saw, the largest first.
fn connections(layout: &PathLayout) -> Vec<ConnectionRow> {
    let mut rows: Vec<ConnectionRow> = Vec::new();
    let mut place: BTreeMap<u32, usize> = BTreeMap::new();
    for f in layout.flows.iter().filter(|f| f.facts.mask.count_ones() > 1) {
        let forward = f.facts.forward.unwrap_or(true);
        let Some(at) = f.seen.iter().flatten().next().map(|at| at.tuple) else { continue };
        let at = if forward { at } else { at.back() };
        let row = *place.entry(f.facts.connection).or_insert_with(|| {
            rows.push(ConnectionRow {
                id: f.facts.connection,
                protocol: match at.protocol {
                    protocol::TCP => Protocol::Tcp,
                    protocol::UDP => Protocol::Udp,
                    protocol::ICMP | protocol::ICMPV6 => Protocol::Icmp,
                    other => Protocol::Other(other),
                },
                a_addr: at.src,
                a_port: at.src_port,
                b_addr: at.dst,
                b_port: at.dst_port,
                points: (0..layout.order.len()).filter(|p| f.facts.mask >> p & 1 == 1).collect(),
                packets: 0,
                bytes: 0,
                opened_by_a: None,
            });
            rows.len() - 1
        });
        rows[row].packets += f.packets;
        rows[row].bytes = rows[row].bytes.saturating_add(f.bytes);
        if f.opens {
            rows[row].opened_by_a = Some(forward);
        }
    }
    rows.sort_by_key(|r| (std::cmp::Reverse(r.bytes), r.id));
    rows
}

impl OrderBy {
    /// Name in tables and in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            OrderBy::Given => "given",
            OrderBy::Hops => "hops",
            OrderBy::Delays => "delays",
        }
    }
}
