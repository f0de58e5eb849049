//! What a test saw, evaluated.
//!
//! signal: probes, counted bytes, steps of the test with their times · model: `delay`, `losses`, `figures` · action:
//! figures of each loaded phase per direction, and a grade: of the loaded direction in `down` and `up`, of the round trip
//! in `both`, which needs no clock of the other end.

use algo::Rng;
use flow::diagnose::grade::usability;
use serde::{Serialize, Serializer};

use crate::delay::{Clocks, Queue, Times, When};
use crate::figures::{Figures, Quantile, Verdict};
use crate::losses::{Fate, fates};
use crate::wire::data::Direction;
use crate::wire::message::StreamInfo;

/// A loaded phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Data to the client.
    Down,
    /// Data to the server.
    Up,
    /// Data both ways at once.
    Both,
}

impl Phase {
    /// All, in the order in which they are measured.
    pub const ALL: [Phase; 3] = [Phase::Down, Phase::Up, Phase::Both];

    /// Name on screen and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Down => "down",
            Phase::Up => "up",
            Phase::Both => "both",
        }
    }

    /// Which ways its data go.
    pub const fn directions(self) -> &'static [Direction] {
        match self {
            Phase::Down => &[Direction::Down],
            Phase::Up => &[Direction::Up],
            Phase::Both => &[Direction::Down, Direction::Up],
        }
    }
}

/// A probe that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, client's clock.
    pub t1: i64,
    /// It left this host too late to say anything.
    pub late: bool,
    /// Its times, and how many probes the server had had.
    pub answer: Option<(Times, u32)>,
}

/// A part of the test, client's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it was.
    pub kind: Kind,
    /// When it began.
    pub from: i64,
    /// When it was over.
    pub until: i64,
}

/// What a part of the test was.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Nothing was transferred.
    Idle(When),
    /// A load.
    Load(Load),
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Which.
    pub phase: Phase,
    /// From when on it counts; `None`: it never came so far.
    pub measured: Option<i64>,
    /// Goodput was steady then.
    pub steady: bool,
    /// The streams, shortly before they were ended.
    pub streams: Vec<Stream>,
}

/// A stream, as its sending end saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stream {
    /// `up` or `down`.
    pub direction: &'static str,
    /// The sender's congestion control.
    pub congestion_control: String,
    /// Why it is another than was asked for.
    pub congestion_control_why: Option<String>,
    /// Smallest RTT, ms.
    pub rtt_min_ms: f64,
    /// Smoothed RTT at the end, ms.
    pub rtt_ms: f64,
    /// Congestion window at the end, segments.
    pub cwnd: u32,
    /// Segments that were sent again.
    pub retransmissions: u32,
    /// Share of the busy time that the receiver's window limited.
    pub share_rwnd: Option<f64>,
    /// Share of the busy time that the send buffer limited.
    pub share_sndbuf: Option<f64>,
}

impl Stream {
    /// From what the kernel says.
    pub fn new(direction: Direction, info: StreamInfo, why: Option<String>) -> Stream {
        let share = |part: u64| (info.busy_us > 0).then(|| part as f64 / info.busy_us as f64);
        Stream {
            direction: direction.name(),
            congestion_control_why: why,
            rtt_min_ms: f64::from(info.min_rtt_us) / 1e3,
            rtt_ms: f64::from(info.rtt_us) / 1e3,
            cwnd: info.cwnd,
            retransmissions: info.retrans,
            share_rwnd: share(info.rwnd_us),
            share_sndbuf: share(info.sndbuf_us),
            congestion_control: info.cc,
        }
    }
}

/// All that a test saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Every probe.
    pub records: Vec<Record>,
    /// Every step.
    pub steps: Vec<Step>,
    /// Bytes that the client had received, by its clock.
    pub down: Vec<(i64, u64)>,
    /// Bytes that the server had received, by its own clock.
    pub up: Vec<(i64, u64)>,
    /// Probes a second.
    pub per_s: f64,
    /// The client's clock and CLOCK_REALTIME at one moment, ns.
    pub unix: (i64, i64),
    /// Why it ended before its time.
    pub ended: Option<String>,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Whether every phase came to its end.
    pub complete: bool,
    /// Why not.
    pub ended: Option<String>,
    /// Smallest round trip, ms.
    pub rtt_min_ms: Option<f64>,
    /// Rate of the server's clock against the client's, ppm.
    pub clock_skew_ppm: Option<f64>,
    /// The path changed during the test, so that directions cannot be separated.
    pub path_changed: bool,
    /// The loaded phases.
    pub phases: Vec<PhaseOutcome>,
}

/// The result of a loaded phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseOutcome {
    /// `down`, `up`, `both`.
    pub phase: &'static str,
    /// The grade.
    pub grade: Grade,
    /// What applications would make of it.
    pub usability: String,
    /// Goodput was steady when measuring began.
    pub steady: bool,
    /// When measuring began, seconds of Unix time.
    pub from_unix_s: f64,
    /// When it ended.
    pub until_unix_s: f64,
    /// Bit/s to the client, in phases that load this direction.
    pub goodput_down_bps: Option<f64>,
    /// Bit/s to the server, likewise.
    pub goodput_up_bps: Option<f64>,
    /// Added delay towards the client.
    pub delay_down: Option<Delay>,
    /// Added delay towards the server.
    pub delay_up: Option<Delay>,
    /// Added delay of the round trip.
    pub delay_rtt: Option<Delay>,
    /// The streams.
    pub streams: Vec<Stream>,
}

/// A grade, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grade {
    /// Which delay was graded: `down`, `up` or `rtt`.
    pub of: &'static str,
    /// One, two between which it lies, or none.
    pub grades: Vec<&'static str>,
    /// Why there is none.
    pub why: Option<String>,
}

impl Grade {
    fn new(of: &'static str, verdict: &Verdict) -> Grade {
        let grades = match verdict {
            Verdict::One(grade) => vec![*grade],
            Verdict::Two(better, worse) => vec![*better, *worse],
            Verdict::None(_) => Vec::new(),
        };
        Grade { of, grades, why: verdict.why().map(str::to_owned) }
    }

    /// As it is printed.
    pub fn words(&self) -> String {
        if self.grades.is_empty() { "none".to_owned() } else { self.grades.join(" or ") }
    }
}

/// Added delay, ms. A quantile that falls on lost probes is `"lost"`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Delay {
    /// Probes that count, lost ones among them.
    pub probes: usize,
    /// Share of lost ones.
    pub loss: f64,
    #[serde(serialize_with = "interval")]
    /// Median with interval.
    pub p50_ms: Quantile,
    #[serde(serialize_with = "number")]
    /// Upper quartile.
    pub p75_ms: f64,
    #[serde(serialize_with = "number")]
    /// Ninth decile.
    pub p90_ms: f64,
    #[serde(serialize_with = "interval")]
    /// What is graded.
    pub p95_ms: Quantile,
    #[serde(serialize_with = "interval")]
    /// The highest.
    pub p99_ms: Quantile,
    /// Mean difference of successive delays.
    pub jitter_ms: Option<f64>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Ms(f64),
    Lost(&'static str),
}

impl Number {
    fn of(ms: f64) -> Number {
        // A thousandth of a millisecond is more than a clock is worth.
        if ms.is_finite() { Number::Ms((ms * 1e3).round() / 1e3) } else { Number::Lost("lost") }
    }
}

fn number<S: Serializer>(ms: &f64, to: S) -> Result<S::Ok, S::Error> {
    Number::of(*ms).serialize(to)
}

fn interval<S: Serializer>(q: &Quantile, to: S) -> Result<S::Ok, S::Error> {
    [q.ms, q.low_ms, q.high_ms].map(Number::of).serialize(to)
}

impl From<&Figures> for Delay {
    fn from(f: &Figures) -> Delay {
        Delay {
            probes: f.probes,
            loss: f.loss(),
            p50_ms: f.p50,
            p75_ms: f.p75_ms,
            p90_ms: f.p90_ms,
            p95_ms: f.p95,
            p99_ms: f.p99,
            jitter_ms: f.jitter_ms,
        }
    }
}

/// Bytes at a time, between the counts around it.
fn at(counts: &[(i64, u64)], time: i64) -> Option<f64> {
    let next = counts.partition_point(|(t, _)| *t < time);
    let (a, b) = (counts.get(next.checked_sub(1)?)?, counts.get(next)?);
    let share = (time - a.0) as f64 / (b.0 - a.0).max(1) as f64;
    Some(a.1 as f64 + share * (b.1.saturating_sub(a.1)) as f64)
}

/// Bit/s between two times; the counts need not reach to the end.
fn goodput(counts: &[(i64, u64)], from: i64, until: i64) -> Option<f64> {
    let until = until.min(counts.last()?.0);
    let seconds = (until - from) as f64 / 1e9;
    (seconds > 0.0).then(|| Some((at(counts, until)? - at(counts, from)?) * 8.0 / seconds))?
}

/// Answered probes, each with when it was sent.
fn answered(seen: &Seen) -> Vec<(Times, When)> {
    seen.records
        .iter()
        .filter(|record| !record.late)
        .filter_map(|record| {
            let (times, _) = record.answer?;
            let step = seen.steps.iter().find(|s| s.from <= times.t1 && times.t1 < s.until);
            let when = match step.map(|step| &step.kind) {
                Some(Kind::Idle(when)) => *when,
                _ => When::Loaded,
            };
            Some((times, when))
        })
        .collect()
}

/// Delays of a direction within some time, in the order of time; infinite for what was lost there.
fn delays(
    seen: &Seen,
    (from, until): (i64, i64),
    lost: impl Fn(Fate) -> bool,
    fates: &[Fate],
    delay: impl Fn(&Times) -> f64,
) -> Vec<f64> {
    seen.records
        .iter()
        .zip(fates)
        .filter(|(record, _)| !record.late && from <= record.t1 && record.t1 < until)
        .filter_map(|(record, fate)| match record.answer {
            Some((times, _)) => Some(delay(&times)),
            None => lost(*fate).then_some(f64::INFINITY),
        })
        .collect()
}

impl Outcome {
    /// Of what a test saw.
    pub fn of(mut seen: Seen, rng: &mut Rng) -> Outcome {
        if seen.ended.is_some() {
            // What the end cut off is not the path's loss.
            let last = seen.records.iter().rposition(|record| record.answer.is_some());
            seen.records.truncate(last.map_or(0, |last| last + 1));
        }
        let answered = answered(&seen);
        let clocks = Clocks::fit(&answered);
        let change = clocks.and_then(|clocks| clocks.path_change(&answered));
        let path_changed = change.is_some_and(|change| change.is_large());
        let phases = clocks.map_or_else(Vec::new, |clocks| {
            let up: Vec<(i64, u64)> =
                seen.up.iter().map(|(t, bytes)| (clocks.on_client(*t), *bytes)).collect();
            let counts =
                seen.records.iter().map(|r| r.answer.map(|(_, had)| had)).collect::<Vec<_>>();
            let fates = fates(&counts);
            seen.steps
                .iter()
                .filter_map(|step| {
                    let Kind::Load(load) = &step.kind else { return None };
                    let evaluated =
                        Evaluated { seen: &seen, clocks, up: &up, fates: &fates, path_changed };
                    evaluated.phase(load, step.until, rng)
                })
                .collect()
        });
        Outcome {
            complete: seen.ended.is_none(),
            ended: seen.ended,
            rtt_min_ms: clocks.map(|clocks| clocks.rtt_ms()),
            clock_skew_ppm: clocks.map(|clocks| clocks.skew * 1e6),
            path_changed,
            phases,
        }
    }

    /// Whether every phase that was wanted has a grade.
    pub fn is_graded(&self) -> bool {
        self.complete && self.phases.iter().all(|phase| !phase.grade.grades.is_empty())
    }
}

struct Evaluated<'a> {
    seen: &'a Seen,
    clocks: Clocks,
    up: &'a [(i64, u64)],
    fates: &'a [Fate],
    path_changed: bool,
}

impl Evaluated<'_> {
    fn phase(&self, load: &Load, until: i64, rng: &mut Rng) -> Option<PhaseOutcome> {
        let from = load.measured?;
        // Where the test broke off, time without probes says nothing.
        let last = self.seen.records.last().map_or(from, |record| record.t1 + 1);
        let until = if self.seen.ended.is_some() { until.min(last) } else { until };
        let mut figures = |lost: &dyn Fn(Fate) -> bool, part: fn(Queue) -> f64| {
            let delay = |times: &Times| part(self.clocks.queue(times));
            let delays = delays(self.seen, (from, until), lost, self.fates, delay);
            Figures::of(&delays, self.seen.per_s, rng)
        };
        let up = figures(&|fate| fate == Fate::LostUp, |queue| queue.up_ms);
        let down = figures(&|fate| fate == Fate::LostDown, |queue| queue.down_ms);
        let rtt = figures(&|_| true, |queue| queue.rtt_ms);
        let (of, graded) = match load.phase {
            Phase::Down => ("down", &down),
            Phase::Up => ("up", &up),
            Phase::Both => ("rtt", &rtt),
        };
        let verdict = match graded {
            _ if self.path_changed && load.phase != Phase::Both => {
                Verdict::None("the path changed during the test".to_owned())
            }
            None => Verdict::None("no probe was sent".to_owned()),
            Some(figures) => figures.verdict(),
        };
        let unix = |t: i64| (self.seen.unix.1 + (t - self.seen.unix.0)) as f64 / 1e9;
        let loads = |direction| load.phase.directions().contains(&direction);
        let total = self.clocks.rtt_ms() + rtt.as_ref()?.p95.ms;
        Some(PhaseOutcome {
            phase: load.phase.name(),
            grade: Grade::new(of, &verdict),
            usability: usability(total).words(),
            steady: load.steady,
            from_unix_s: unix(from),
            until_unix_s: unix(until),
            goodput_down_bps: goodput(&self.seen.down, from, until)
                .filter(|_| loads(Direction::Down)),
            goodput_up_bps: goodput(self.up, from, until).filter(|_| loads(Direction::Up)),
            delay_down: down.as_ref().map(Delay::from),
            delay_up: up.as_ref().map(Delay::from),
            delay_rtt: rtt.as_ref().map(Delay::from),
            streams: load.streams.clone(),
        })
    }
}
