//! Estimates the difference of two clocks from the delays of packets in both directions.
//!
//! signal: the smallest apparent delay (time of one clock minus time of the other) of each short window, in both
//! directions · model: an apparent delay is the true delay plus the difference of the clocks, in the other direction
//! minus it. Between steps this difference is a straight line. True delays never fall below a constant. So the line lies
//! below all points of one direction, and above the mirrored points of the other; an edge of the lower convex hull lies
//! on it (V. Paxson, "On calibrating measurements of packet transit times", SIGMETRICS 1998; S. Moon, P. Skelly,
//! D. Towsley, "Estimation and removal of clock skew from network delay measurements", INFOCOM 1999) · action: [`fit`]
//! returns offset and slope for each time without a step.
//!
//! Slope: the candidates are every edge of both hulls, and 0. The best one is that with the smallest sum, over the
//! windows of both directions, of the logarithm of the distance to the line. With logarithms the many windows near the
//! line decide. So a direction with a standing queue has little influence as long as the other one is without queue.
//! Moon's linear program minimises the sum itself, which a growing queue distorts.
//!
//! Offset: the smallest delays of both directions are assumed to be equal. Packets cannot show their difference, so the
//! uncertainty is half of the smallest round trip.
//!
//! Steps: a step raises the delays of one direction and lowers those of the other by the same amount. A queue or another
//! route changes their sum. So two parts with a step between them have the same smallest round trip, and with that they
//! must fit clearly better than one line.

/// A point of an envelope: time (s) and apparent delay (s).
pub(crate) type Point = (f64, f64);

/// The difference of two clocks between two steps: `offset + slope · t`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Line {
    /// Start of its validity, s; minus infinity for the first line.
    pub from: f64,
    /// Difference at t = 0, s.
    pub offset: f64,
    /// Drift, s per s.
    pub slope: f64,
}

impl Line {
    /// The difference at time `t`, s.
    #[inline]
    pub fn at(&self, t: f64) -> f64 {
        self.offset + self.slope * t
    }
}

/// Lines in order of time; at least one.
pub(crate) type Lines = Vec<Line>;

/// The difference at time `t`, by the line valid then, s.
#[inline]
pub(crate) fn at(lines: &[Line], t: f64) -> f64 {
    let i = lines.partition_point(|l| l.from <= t).max(1) - 1;
    lines.get(i).map_or(0.0, |l| l.at(t))
}

/// A crystal is off by up to 100 ppm, NTP slews by 500 ppm at most (RFC 5905, "frequency tolerance").
const MAX_SLOPE: f64 = 600e-6;
/// Jitter of a good path, s: distances below it are equally good.
const JITTER: f64 = 20e-6;
/// A drift that adds up to less than this over a capture is jitter as well, and changes no figure, s.
const MIN_DRIFT: f64 = 50e-6;
/// Number of windows per direction in the search for steps.
const STEP_WINDOWS: usize = 160;
/// Maximum number of steps; no working clock has more.
const MAX_STEPS: usize = 8;
/// Minimum gain per window (natural logarithm) for a drift to be accepted; noise gives less.
const MIN_DRIFT_GAIN: f64 = 0.05;
/// Minimum gain per window for a step to be accepted.
const MIN_STEP_GAIN: f64 = 0.4;
/// Within this time of a step it is uncertain on which side of it a packet was, s.
pub(crate) const NEAR_STEP: f64 = 0.1;
/// Minimum number of windows on each side of a step; fewer are an outlier.
const MIN_WINDOWS: usize = 3;

/// Lower convex hull (Andrew's monotone chain); `points` in order of time.
fn hull(points: &[Point]) -> Vec<Point> {
    let mut out: Vec<Point> = Vec::new();
    for &p in points {
        while let [.., a, b] = out[..] {
            if (b.0 - a.0) * (p.1 - a.1) - (b.1 - a.1) * (p.0 - a.0) > 0.0 {
                break;
            }
            out.pop();
        }
        out.push(p);
    }
    out
}

/// Offset of the highest line of this slope below all points.
fn floor(points: &[Point], slope: f64) -> f64 {
    points.iter().map(|(t, v)| v - slope * t).fold(f64::INFINITY, f64::min)
}

/// Distance of the points from a line below them, as a sum of logarithms.
fn distance(points: &[Point], slope: f64, floor: f64) -> f64 {
    points.iter().map(|(t, v)| ((v - slope * t - floor).max(0.0) / JITTER).ln_1p()).sum()
}

/// A slope with the lines of that slope below the points of both directions.
#[derive(Clone, Copy, Debug)]
struct Envelope {
    slope: f64,
    /// Offsets of the lines below the points of the forward and of the backward direction.
    forward: f64,
    backward: f64,
    cost: f64,
}

fn envelope(forward: &[Point], backward: &[Point], slope: f64) -> Envelope {
    let (f, b) = (floor(forward, slope), floor(backward, -slope));
    let cost = distance(forward, slope, f) + distance(backward, -slope, b);
    Envelope { slope, forward: f, backward: b, cost }
}

/// Whether a drift fits better than none: in both directions together, and in the quieter one alone. A drift of a clock
/// shows in both. If only the direction with a queue fits better, a few of its packets that met no queue decide, and
/// with them the jitter of the path.
fn drifts(forward: &[Point], backward: &[Point], level: Envelope, found: Envelope) -> bool {
    let enough = |gain: f64, windows: usize| gain > MIN_DRIFT_GAIN * windows as f64 + 1.0;
    if !enough(level.cost - found.cost, forward.len() + backward.len()) {
        return false;
    }
    let alone = |points: &[Point], sign: f64, floor: fn(&Envelope) -> f64| {
        let of = |e: &Envelope| distance(points, sign * e.slope, floor(e));
        let (was, is) = (of(&level), of(&found));
        (!points.is_empty()).then_some((is / points.len() as f64, was - is, points.len()))
    };
    let directions = [alone(forward, 1.0, |e| e.forward), alone(backward, -1.0, |e| e.backward)];
    let quieter = directions.into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0));
    quieter.is_some_and(|(_, gain, windows)| enough(gain, windows))
}

fn best(forward: &[Point], backward: &[Point]) -> Envelope {
    let level = envelope(forward, backward, 0.0);
    let slope = |edge: &[Point]| (edge[1].1 - edge[0].1) / (edge[1].0 - edge[0].0);
    let ahead = hull(forward).windows(2).map(slope).collect::<Vec<f64>>();
    let back = hull(backward).windows(2).map(|e| -slope(e)).collect::<Vec<f64>>();
    let ends = |p: &[Point]| Some((p.first()?.0, p.last()?.0));
    let span = [ends(forward), ends(backward)]
        .into_iter()
        .flatten()
        .fold(0.0, |max: f64, e| max.max(e.1 - e.0));
    let found = ahead
        .into_iter()
        .chain(back)
        .filter(|s| s.abs() <= MAX_SLOPE && s.abs() * span >= MIN_DRIFT)
        .map(|s| envelope(forward, backward, s))
        .min_by(|a, b| a.cost.total_cmp(&b.cost));
    match found {
        Some(found) if drifts(forward, backward, level, found) => found,
        _ => level,
    }
}

impl Envelope {
    /// Smallest round trip, s; infinite with one direction alone.
    fn round(&self) -> f64 {
        self.forward + self.backward
    }

    /// The offset with which both directions have the same smallest delay. With one direction alone that delay is 0.
    fn offset(&self) -> f64 {
        match (self.forward.is_finite(), self.backward.is_finite()) {
            (true, true) => (self.forward - self.backward) / 2.0,
            (true, false) => self.forward,
            (false, true) => -self.backward,
            (false, false) => 0.0,
        }
    }
}

impl Envelope {
    /// Cost and offset on a path whose smallest round trip is `round`. If that of this part is longer, one direction had
    /// a queue all the time: the one whose windows lie farther from the line.
    fn cost_and_offset(&self, forward: &[Point], backward: &[Point], round: f64) -> (f64, f64) {
        let slack = self.round() - round;
        let middle = self.offset();
        if !slack.is_finite() || slack <= 0.0 {
            return (self.cost, middle);
        }
        let half = round / 2.0;
        [middle - slack / 2.0, middle, middle + slack / 2.0]
            .into_iter()
            .map(|o| {
                (
                    distance(forward, self.slope, o + half)
                        + distance(backward, -self.slope, half - o),
                    o,
                )
            })
            .min_by(|x, y| x.0.total_cmp(&y.0))
            .unwrap_or((self.cost, middle))
    }
}

/// Merges neighbouring points until at most [`STEP_WINDOWS`] are left; each is the smallest of its group.
fn thin_out(points: &[Point]) -> Vec<Point> {
    let chunk = points.len().div_ceil(STEP_WINDOWS).max(1);
    points
        .chunks(chunk)
        .filter_map(|c| c.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)))
        .collect()
}

/// The points before and after a step. Packets on their way at that moment belong to neither.
fn split_at(points: &[Point], t: f64) -> (&[Point], &[Point]) {
    let left = points.partition_point(|p| p.0 < t - NEAR_STEP);
    let right = points.partition_point(|p| p.0 < t + NEAR_STEP);
    (&points[..left], &points[right..])
}

/// The difference of the clocks from the points of both directions, in order of time. `smallest` is the minimum size of
/// a step, s.
pub(crate) fn fit(forward: &[Point], backward: &[Point], smallest: f64) -> Lines {
    let (few_f, few_b) = (thin_out(forward), thin_out(backward));
    let mut steps = Vec::new();
    if !forward.is_empty() && !backward.is_empty() {
        find_steps(&few_f, &few_b, smallest, &mut steps);
    }
    steps.sort_by(|a, b| a.at.total_cmp(&b.at));
    let steps: Vec<f64> = (0..steps.len())
        .map(|i| {
            let left = i.checked_sub(1).map_or(f64::NEG_INFINITY, |i| steps[i].at);
            let right = steps.get(i + 1).map_or(f64::INFINITY, |s| s.at);
            refine(
                split_at(split_at(forward, right).0, left).1,
                split_at(split_at(backward, right).0, left).1,
                &steps[i],
            )
        })
        .collect();
    let mut parts = Vec::new();
    let (mut f, mut b) = (forward, backward);
    let mut from = f64::NEG_INFINITY;
    for step in steps.iter().copied().chain([f64::INFINITY]) {
        let ((f_now, f_rest), (b_now, b_rest)) = (split_at(f, step), split_at(b, step));
        parts.push((from, f_now, b_now, best(f_now, b_now)));
        (f, b, from) = (f_rest, b_rest, step);
    }
    // The path is the same on both sides of a step, so the smallest round trip of all parts applies to each.
    let round = parts.iter().map(|p| p.3.round()).fold(f64::INFINITY, f64::min);
    parts
        .iter()
        .map(|(from, f, b, e)| Line {
            from: *from,
            offset: e.cost_and_offset(f, b, round).1,
            slope: e.slope,
        })
        .collect()
}

/// A step, located to within the distance of the points compared.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: f64,
    /// Earliest and latest possible time, s.
    within: (f64, f64),
    /// Slopes before and after it.
    slopes: (f64, f64),
}

/// The cost of two parts with a step between them at `t`, and the size of the step, s.
fn cost_with_step(
    f: (&[Point], &[Point]),
    b: (&[Point], &[Point]),
    left: Envelope,
    right: Envelope,
    t: f64,
) -> (f64, f64) {
    let round = left.round().min(right.round());
    let (was, is) = (left.cost_and_offset(f.0, b.0, round), right.cost_and_offset(f.1, b.1, round));
    (was.0 + is.0, is.1 + right.slope * t - was.1 - left.slope * t)
}

/// Change of the delays of one direction at `t`: difference of the medians of one second on each side, s.
fn shift_at(points: &[Point], t: f64) -> f64 {
    const BESIDE: f64 = 1.0;
    let (left, right) = split_at(points, t);
    let from =
        left.partition_point(|p| p.0 < t - BESIDE).min(left.len().saturating_sub(MIN_WINDOWS));
    let to = right.partition_point(|p| p.0 <= t + BESIDE).max(MIN_WINDOWS.min(right.len()));
    let median = |part: &[Point]| {
        let mut values: Vec<f64> = part.iter().map(|p| p.1).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    median(&right[..to]) - median(&left[from..])
}

/// Median minus minimum of the delays of one direction, on the side of `t` where it is larger, s.
fn spread_of(points: &[Point], t: f64) -> f64 {
    let (left, right) = split_at(points, t);
    let spread = |part: &[Point]| {
        let mut values: Vec<f64> = part.iter().map(|p| p.1).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).zip(values.first()).map_or(0.0, |(middle, min)| middle - min)
    };
    spread(left).max(spread(right))
}

/// Whether the direction with less variation shows the step. A step of a clock changes both directions; a queue that
/// fills or drains changes only one.
fn quieter_direction_moved(forward: &[Point], backward: &[Point], t: f64, step: f64) -> bool {
    let by = if spread_of(forward, t) <= spread_of(backward, t) {
        shift_at(forward, t)
    } else {
        -shift_at(backward, t)
    };
    by * step.signum() >= step.abs() / 2.0
}

/// Finds the step with the largest gain, then further ones on both sides of it.
fn find_steps(forward: &[Point], backward: &[Point], smallest: f64, found: &mut Vec<Step>) {
    if found.len() >= MAX_STEPS {
        return;
    }
    let whole = best(forward, backward).cost;
    let mut times: Vec<f64> = forward.iter().chain(backward).map(|p| p.0).collect();
    times.sort_by(f64::total_cmp);
    let every = times.len().div_ceil(STEP_WINDOWS).max(1);
    let mut chosen: Option<(f64, Step)> = None;
    for (i, &t) in times.iter().enumerate().step_by(every) {
        let (f, b) = (split_at(forward, t), split_at(backward, t));
        if [f.0, f.1, b.0, b.1].iter().any(|part| part.len() < MIN_WINDOWS) {
            continue;
        }
        let (left, right) = (best(f.0, b.0), best(f.1, b.1));
        let (cost, step) = cost_with_step(f, b, left, right, t);
        let gain = whole - cost;
        let min_gain = MIN_STEP_GAIN * (forward.len() + backward.len()) as f64;
        let better = gain > min_gain && chosen.is_none_or(|(max, _)| gain > max);
        if better && step.abs() >= smallest && quieter_direction_moved(forward, backward, t, step) {
            // `every` points were skipped, and both directions are mixed: hence twice that on each side.
            let reach = 2 * every + 2;
            let low = times[i.saturating_sub(reach)];
            let high = times.get(i + reach).copied().unwrap_or(f64::INFINITY);
            chosen = Some((
                gain,
                Step { at: t, within: (low, high), slopes: (left.slope, right.slope) },
            ));
        }
    }
    let Some((_, step)) = chosen else { return };
    found.push(step);
    let ((f1, f2), (b1, b2)) = (split_at(forward, step.at), split_at(backward, step.at));
    find_steps(f1, b1, smallest, found);
    find_steps(f2, b2, smallest, found);
}

/// The time of a step by all points, not only those of the search.
fn refine(forward: &[Point], backward: &[Point], step: &Step) -> f64 {
    /// Enough for all points between two of those in the search, for captures of hours.
    const MAX_POINTS: usize = 1_000;
    let inside = |p: &&Point| p.0 >= step.within.0 && p.0 <= step.within.1;
    let times = forward.iter().chain(backward).filter(inside).map(|p| p.0).take(MAX_POINTS);
    times
        .filter_map(|t| {
            let (f, b) = (split_at(forward, t), split_at(backward, t));
            if [f.0, f.1, b.0, b.1].iter().any(|part| part.is_empty()) {
                return None;
            }
            let left = envelope(f.0, b.0, step.slopes.0);
            let right = envelope(f.1, b.1, step.slopes.1);
            Some((cost_with_step(f, b, left, right, t).0, t))
        })
        .min_by(|x, y| x.0.total_cmp(&y.0).then(x.1.total_cmp(&y.1)))
        .map_or(step.at, |x| x.1)
}

/// The smallest delay of each time window. The windows widen when there are too many of them.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    /// Width of a window, ns.
    width: i64,
    minima: std::collections::BTreeMap<i64, (i64, i64)>,
}

/// Maximum number of windows: an hour in windows of a second.
const MAX_WINDOWS: usize = 4096;

impl Default for Windows {
    fn default() -> Windows {
        // Short enough for dozens of windows in a capture of a few seconds.
        Windows { width: 50_000_000, minima: std::collections::BTreeMap::new() }
    }
}

impl Windows {
    /// Adds an apparent delay at `time`, both in ns.
    #[inline]
    pub fn add(&mut self, time: i64, delay: i64) {
        let window = self.minima.entry(time.div_euclid(self.width)).or_insert((time, delay));
        if delay < window.1 {
            *window = (time, delay);
        }
        if self.minima.len() > MAX_WINDOWS {
            self.widen();
        }
    }

    #[cold]
    fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
        let old = std::mem::take(&mut self.minima);
        for (time, delay) in old.into_values() {
            let window = self.minima.entry(time.div_euclid(self.width)).or_insert((time, delay));
            if delay < window.1 {
                *window = (time, delay);
            }
        }
    }

    /// The points of all windows in order of time, in seconds.
    pub fn points(&self) -> Vec<Point> {
        self.minima.values().map(|(t, v)| (*t as f64 / 1e9, *v as f64 / 1e9)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of 10 ms each way; forward a queue of `queue(t)`; the far clock is ahead by `ahead(t)`.
    fn path(queue: impl Fn(f64) -> f64, ahead: impl Fn(f64) -> f64) -> (Vec<Point>, Vec<Point>) {
        let jitter = |i: usize| ((i * 7919) % 97) as f64 * 1e-6;
        let times = (0..600).map(|i| (i, i as f64 / 10.0));
        let forward =
            times.clone().map(|(i, t)| (t, 0.010 + queue(t) + ahead(t) + jitter(i))).collect();
        let backward = times.map(|(i, t)| (t, 0.010 - ahead(t) + jitter(i + 31))).collect();
        (forward, backward)
    }

    fn near(lines: &[Line], ahead: impl Fn(f64) -> f64, tolerance: f64) {
        for i in 0..60 {
            let t = f64::from(i) + 0.05;
            assert!((at(lines, t) - ahead(t)).abs() < tolerance, "at {t}: {lines:?}");
        }
    }

    #[test]
    fn offset_and_drift_come_out_of_a_quiet_path() {
        let ahead = |t: f64| 3.7 + 40e-6 * t;
        let (f, b) = path(|_| 0.0, ahead);
        let lines = fit(&f, &b, 0.001);
        assert_eq!(lines.len(), 1);
        near(&lines, ahead, 2e-4);
    }

    #[test]
    fn a_queue_that_never_drains_takes_nothing_from_the_drift() {
        let ahead = |t: f64| -250.0 - 70e-6 * t;
        let (f, b) = path(|t| if t < 0.5 { 0.0 } else { 0.4 + 0.0004 * t }, ahead);
        near(&fit(&f, &b, 0.001), ahead, 3e-4);
    }

    #[test]
    fn one_clock_has_no_drift_though_a_queue_grows() {
        let (f, b) = path(|t| 0.0003 * t, |_| 0.0);
        near(&fit(&f, &b, 0.001), |_| 0.0, 2e-4);
    }

    #[test]
    fn jitter_of_the_few_packets_that_met_no_queue_is_no_drift() {
        // 7 s; a queue from 1 s to 6 s. The packets before it were 65 µs slower than those after it. Of the other direction
        // one packet was 60 µs faster than all others.
        let times = (0..140).map(|i| (i, f64::from(i) / 20.0));
        let jitter = |i: i32| f64::from((i * 7919) % 7) * 1e-6;
        let queue = |t: f64| match t {
            t if t < 1.0 => 65e-6,
            t if t < 6.0 => 0.020,
            _ => 0.0,
        };
        let forward: Vec<Point> =
            times.clone().map(|(i, t)| (t, 0.010 + queue(t) + jitter(i))).collect();
        let backward: Vec<Point> = times
            .map(|(i, t)| (t, 0.010 + if i == 70 { 0.0 } else { 60e-6 } + jitter(i + 31)))
            .collect();
        for lines in [fit(&forward, &backward, 0.001), fit(&backward, &forward, 0.001)] {
            assert_eq!((lines.len(), lines[0].slope), (1, 0.0));
        }
    }

    #[test]
    fn a_step_is_found_and_a_change_of_route_is_none() {
        let ahead = |t: f64| if t < 33.0 { 0.5 } else { 0.508 };
        let (f, b) = path(|t| if t > 10.0 { 0.05 } else { 0.0 }, |_| 0.5);
        assert_eq!(fit(&f, &b, 0.001).len(), 1);
        let (f, b) = path(|t| if (t as i64) % 2 == 0 { 0.05 } else { 0.0 }, ahead);
        let lines = fit(&f, &b, 0.001);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!((lines[1].from - 33.0).abs() < 0.5);
        // Within a window of the step it is not certain on which side of it a packet was.
        for t in [0.0, 20.0, 32.0, 34.0, 59.0] {
            assert!((at(&lines, t) - ahead(t)).abs() < 3e-4, "at {t}: {lines:?}");
        }
    }

    #[test]
    fn a_step_behind_a_standing_queue_is_found_by_the_other_direction() {
        for by in [-7.0, -0.05, 0.25, 900.0] {
            let ahead = |t: f64| 5.0 + 30e-6 * t + if t < 30.0 { 0.0 } else { by };
            let (f, b) = path(|t| if t < 4.0 { 0.0 } else { 0.08 * t }, ahead);
            let lines = fit(&f, &b, 0.001);
            assert_eq!(lines.len(), 2, "{by}: {lines:?}");
            assert!((lines[1].from - 30.0).abs() < 0.5, "{by}: {lines:?}");
            near(&lines, ahead, 1e-3);
        }
    }

    #[test]
    fn a_buffer_that_is_suddenly_full_is_no_step() {
        // Delays of the full buffer are more even than those of the quiet direction.
        let (f, b) = path(|t| if (20.0..26.0).contains(&t) { 0.020 } else { 0.002 }, |_| 0.0);
        let b: Vec<Point> =
            b.iter().enumerate().map(|(i, p)| (p.0, p.1 + ((i * 31) % 17) as f64 * 3e-5)).collect();
        let lines = fit(&f, &b, 0.001);
        assert_eq!(lines.len(), 1, "{lines:?}");
        // Not the last 2 ms of the queue that never went.
        near(&lines, |_| 0.0, 2e-3);
    }

    #[test]
    fn one_direction_alone_gives_delays_above_its_smallest() {
        let (f, _) = path(|_| 0.0, |t| 1.0 + 30e-6 * t);
        let lines = fit(&f, &[], 0.001);
        assert!((at(&lines, 30.0) - 1.0109).abs() < 3e-4);
        assert!(fit(&[], &[], 0.001).len() == 1);
    }

    #[test]
    fn windows_widen_and_keep_the_smallest() {
        let mut windows = Windows::default();
        for i in 0..100_000_i64 {
            windows.add(i * 100_000_000, if i % 1000 == 7 { -5 } else { i });
        }
        let points = windows.points();
        assert!(points.len() <= MAX_WINDOWS);
        assert_eq!(points.iter().filter(|p| p.1 < 0.0).count(), 100);
    }
}
