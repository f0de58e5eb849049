//! Two clocks from the delays of packets that went both ways.
//!
//! signal: the smallest apparent delay (time at one clock minus time at the other) of each short window, in both
//! directions · model: an apparent delay is a true one plus (the other way: minus) the difference of the clocks, which
//! is a straight line between steps; true delays never fall below a constant. So the line lies below all points of
//! one direction and above those of the other, mirrored (V. Paxson, "On calibrating measurements of packet transit
//! times", SIGMETRICS 1998; S. Moon, P. Skelly, D. Towsley, "Estimation and removal of clock skew from network delay
//! measurements", INFOCOM 1999: the lower convex hull holds the line) · action: [`fit`] gives offset and slope of each
//! stretch of time without a step.
//!
//! Slope: every edge of both hulls is a candidate, and so is 0. The one under which most windows of both directions lie
//! closest to their envelope wins: a sum of logarithms, so that a direction that stands in a queue all the time has no
//! say while the other one is quiet. Moon's linear program minimises the plain sum, which a queue that grows
//! pulls along. Offset: the smallest delays of both directions are taken to be equal; nothing in the packets
//! can show the difference, so half of the smallest round trip is the uncertainty.
//!
//! A step shifts one direction up and the other down by the same amount; a queue or another route changes their sum. So
//! two parts with a step between them share one smallest round trip, and that must explain them better than one line.

/// A point of an envelope: when (s), and the apparent delay (s).
pub(crate) type Point = (f64, f64);

/// The difference of two clocks over some time: `offset + slope · t`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Line {
    /// From this time on, s; minus infinity for the first.
    pub from: f64,
    /// At t = 0, s.
    pub offset: f64,
    /// s per s.
    pub slope: f64,
}

impl Line {
    /// The difference at `t`.
    #[inline]
    pub fn at(&self, t: f64) -> f64 {
        self.offset + self.slope * t
    }
}

/// Lines in order of time; at least one.
pub(crate) type Lines = Vec<Line>;

/// The line that holds at `t`.
#[inline]
pub(crate) fn at(lines: &[Line], t: f64) -> f64 {
    let i = lines.partition_point(|l| l.from <= t).max(1) - 1;
    lines.get(i).map_or(0.0, |l| l.at(t))
}

/// A crystal is off by up to 100 ppm, NTP slews by 500 ppm at most (RFC 5905, "frequency tolerance").
const STEEPEST: f64 = 600e-6;
/// Below the jitter of a good path nothing is to be gained by lying closer, s.
const CLOSE: f64 = 20e-6;
/// A drift that makes less than this of a whole capture is jitter as well, and changes no figure, s.
const LEAST_DRIFT: f64 = 50e-6;
/// Windows that a search for steps looks at, in each direction.
const STEP_WINDOWS: usize = 160;
/// More steps than a clock that deserves the name makes.
const MOST_STEPS: usize = 8;
/// A drift is only believed when it draws a window closer by this factor on average (natural logarithm): below,
/// noise would do as well.
const WORTH: f64 = 0.05;
/// … and a step when it does so by this much.
const STEP_WORTH: f64 = 0.4;
/// So near to a step it is not certain on which side of it a packet was, s.
pub(crate) const NEAR_STEP: f64 = 0.1;
/// Windows on each side of a step: fewer are an outlier.
const FEWEST: usize = 3;

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

/// Height of the highest line of this slope below all points.
fn floor(points: &[Point], slope: f64) -> f64 {
    points.iter().map(|(t, v)| v - slope * t).fold(f64::INFINITY, f64::min)
}

/// How far the points lie above a line, as a sum of logarithms.
fn distance(points: &[Point], slope: f64, floor: f64) -> f64 {
    points.iter().map(|(t, v)| ((v - slope * t - floor).max(0.0) / CLOSE).ln_1p()).sum()
}

/// A slope with its two envelopes.
#[derive(Clone, Copy, Debug)]
struct Envelope {
    slope: f64,
    /// Floors of the direction that goes with the clock, and of the other.
    forward: f64,
    backward: f64,
    cost: f64,
}

fn envelope(forward: &[Point], backward: &[Point], slope: f64) -> Envelope {
    let (f, b) = (floor(forward, slope), floor(backward, -slope));
    let cost = distance(forward, slope, f) + distance(backward, -slope, b);
    Envelope { slope, forward: f, backward: b, cost }
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
        .fold(0.0, |most: f64, e| most.max(e.1 - e.0));
    let found = ahead
        .into_iter()
        .chain(back)
        .filter(|s| s.abs() <= STEEPEST && s.abs() * span >= LEAST_DRIFT)
        .map(|s| envelope(forward, backward, s))
        .min_by(|a, b| a.cost.total_cmp(&b.cost));
    let enough = WORTH * (forward.len() + backward.len()) as f64 + 1.0;
    match found {
        Some(found) if found.cost + enough < level.cost => found,
        _ => level,
    }
}

impl Envelope {
    /// Smallest round trip; infinite with one direction alone.
    fn round(&self) -> f64 {
        self.forward + self.backward
    }

    /// The offset under which both directions have the same smallest delay; with one alone that delay counts as 0.
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
    /// Cost and offset on a path whose smallest round trip is `round`. Where this part's own is longer, one of both
    /// directions stood in a queue all the time: the one that its windows do not lie close to.
    fn settled(&self, forward: &[Point], backward: &[Point], round: f64) -> (f64, f64) {
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

/// Neighbours joined until few enough are left; each keeps its smallest.
fn thinned(points: &[Point]) -> Vec<Point> {
    let chunk = points.len().div_ceil(STEP_WINDOWS).max(1);
    points
        .chunks(chunk)
        .filter_map(|c| c.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)))
        .collect()
}

/// Those before a step and those behind it. A packet that is on its way at that moment belongs to neither.
fn before(points: &[Point], t: f64) -> (&[Point], &[Point]) {
    let left = points.partition_point(|p| p.0 < t - NEAR_STEP);
    let right = points.partition_point(|p| p.0 < t + NEAR_STEP);
    (&points[..left], &points[right..])
}

/// The difference of the clocks from both envelopes, which are in order of time. `smallest`: steps below this many
/// seconds are not looked for.
pub(crate) fn fit(forward: &[Point], backward: &[Point], smallest: f64) -> Lines {
    let (few_f, few_b) = (thinned(forward), thinned(backward));
    let mut steps = Vec::new();
    if !forward.is_empty() && !backward.is_empty() {
        find_steps(&few_f, &few_b, smallest, &mut steps);
    }
    steps.sort_by(|a, b| a.at.total_cmp(&b.at));
    let steps: Vec<f64> = (0..steps.len())
        .map(|i| {
            let left = i.checked_sub(1).map_or(f64::NEG_INFINITY, |i| steps[i].at);
            let right = steps.get(i + 1).map_or(f64::INFINITY, |s| s.at);
            refined(
                before(before(forward, right).0, left).1,
                before(before(backward, right).0, left).1,
                &steps[i],
            )
        })
        .collect();
    let mut parts = Vec::new();
    let (mut f, mut b) = (forward, backward);
    let mut from = f64::NEG_INFINITY;
    for step in steps.iter().copied().chain([f64::INFINITY]) {
        let ((f_now, f_rest), (b_now, b_rest)) = (before(f, step), before(b, step));
        parts.push((from, f_now, b_now, best(f_now, b_now)));
        (f, b, from) = (f_rest, b_rest, step);
    }
    // The path is the same on both sides of a step: the smallest round trip of all parts holds for each.
    let round = parts.iter().map(|p| p.3.round()).fold(f64::INFINITY, f64::min);
    parts
        .iter()
        .map(|(from, f, b, e)| Line {
            from: *from,
            offset: e.settled(f, b, round).1,
            slope: e.slope,
        })
        .collect()
}

/// A step, to the distance of the points that were looked at.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: f64,
    /// Not before, not behind.
    within: (f64, f64),
    /// Slopes on both sides.
    slopes: (f64, f64),
}

/// The cost of two parts with a step between them, and the step.
fn parted(
    f: (&[Point], &[Point]),
    b: (&[Point], &[Point]),
    left: Envelope,
    right: Envelope,
    t: f64,
) -> (f64, f64) {
    let round = left.round().min(right.round());
    let (was, is) = (left.settled(f.0, b.0, round), right.settled(f.1, b.1, round));
    (was.0 + is.0, is.1 + right.slope * t - was.1 - left.slope * t)
}

/// By how much the delays of one direction moved at `t`: the medians of a second on both sides of it.
fn moved(points: &[Point], t: f64) -> f64 {
    const BESIDE: f64 = 1.0;
    let (left, right) = before(points, t);
    let from = left.partition_point(|p| p.0 < t - BESIDE).min(left.len().saturating_sub(FEWEST));
    let to = right.partition_point(|p| p.0 <= t + BESIDE).max(FEWEST.min(right.len()));
    let median = |part: &[Point]| {
        let mut values: Vec<f64> = part.iter().map(|p| p.1).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    median(&right[..to]) - median(&left[from..])
}

/// How far the delays of one direction lie above its smallest, on the worse side of `t`.
fn unrest(points: &[Point], t: f64) -> f64 {
    let (left, right) = before(points, t);
    let spread = |part: &[Point]| {
        let mut values: Vec<f64> = part.iter().map(|p| p.1).collect();
        values.sort_by(f64::total_cmp);
        values
            .get(values.len() / 2)
            .zip(values.first())
            .map_or(0.0, |(middle, least)| middle - least)
    };
    spread(left).max(spread(right))
}

/// A clock's step moves both directions, against each other. A queue that fills or drains moves one, so the quieter of
/// both has to have moved.
fn quiet_one_moved(forward: &[Point], backward: &[Point], t: f64, step: f64) -> bool {
    let by = if unrest(forward, t) <= unrest(backward, t) {
        moved(forward, t)
    } else {
        -moved(backward, t)
    };
    by * step.signum() >= step.abs() / 2.0
}

/// Looks for the one step that explains most, then on both sides of it.
fn find_steps(forward: &[Point], backward: &[Point], smallest: f64, found: &mut Vec<Step>) {
    if found.len() >= MOST_STEPS {
        return;
    }
    let whole = best(forward, backward).cost;
    let mut times: Vec<f64> = forward.iter().chain(backward).map(|p| p.0).collect();
    times.sort_by(f64::total_cmp);
    let every = times.len().div_ceil(STEP_WINDOWS).max(1);
    let mut chosen: Option<(f64, Step)> = None;
    for (i, &t) in times.iter().enumerate().step_by(every) {
        let (f, b) = (before(forward, t), before(backward, t));
        if [f.0, f.1, b.0, b.1].iter().any(|part| part.len() < FEWEST) {
            continue;
        }
        let (left, right) = (best(f.0, b.0), best(f.1, b.1));
        let (cost, step) = parted(f, b, left, right, t);
        let gain = whole - cost;
        let worth = STEP_WORTH * (forward.len() + backward.len()) as f64;
        let better = gain > worth && chosen.is_none_or(|(most, _)| gain > most);
        if better && step.abs() >= smallest && quiet_one_moved(forward, backward, t, step) {
            // Of both directions, and of the steps left out.
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
    let ((f1, f2), (b1, b2)) = (before(forward, step.at), before(backward, step.at));
    find_steps(f1, b1, smallest, found);
    find_steps(f2, b2, smallest, found);
}

/// Where exactly a step was, by all points.
fn refined(forward: &[Point], backward: &[Point], step: &Step) -> f64 {
    /// Enough for every point between two of those that the search looked at, of a capture of hours.
    const MOST: usize = 1_000;
    let inside = |p: &&Point| p.0 >= step.within.0 && p.0 <= step.within.1;
    let times = forward.iter().chain(backward).filter(inside).map(|p| p.0).take(MOST);
    times
        .filter_map(|t| {
            let (f, b) = (before(forward, t), before(backward, t));
            if [f.0, f.1, b.0, b.1].iter().any(|part| part.is_empty()) {
                return None;
            }
            let left = envelope(f.0, b.0, step.slopes.0);
            let right = envelope(f.1, b.1, step.slopes.1);
            Some((parted(f, b, left, right, t).0, t))
        })
        .min_by(|x, y| x.0.total_cmp(&y.0).then(x.1.total_cmp(&y.1)))
        .map_or(step.at, |x| x.1)
}

/// The smallest value of each window of time; windows grow when there are too many of them.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    /// ns.
    width: i64,
    least: std::collections::BTreeMap<i64, (i64, i64)>,
}

/// Windows kept: an hour in windows of a second.
const MOST_WINDOWS: usize = 4096;

impl Default for Windows {
    fn default() -> Windows {
        // Short enough that a capture of a few seconds has dozens.
        Windows { width: 50_000_000, least: std::collections::BTreeMap::new() }
    }
}

impl Windows {
    /// An apparent delay at `time`, both in ns.
    #[inline]
    pub fn add(&mut self, time: i64, delay: i64) {
        let window = self.least.entry(time.div_euclid(self.width)).or_insert((time, delay));
        if delay < window.1 {
            *window = (time, delay);
        }
        if self.least.len() > MOST_WINDOWS {
            self.widen();
        }
    }

    #[cold]
    fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
        let old = std::mem::take(&mut self.least);
        for (time, delay) in old.into_values() {
            let window = self.least.entry(time.div_euclid(self.width)).or_insert((time, delay));
            if delay < window.1 {
                *window = (time, delay);
            }
        }
    }

    /// In seconds, in order of time.
    pub fn points(&self) -> Vec<Point> {
        self.least.values().map(|(t, v)| (*t as f64 / 1e9, *v as f64 / 1e9)).collect()
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
        assert!(points.len() <= MOST_WINDOWS);
        assert_eq!(points.iter().filter(|p| p.1 < 0.0).count(), 100);
    }
}
