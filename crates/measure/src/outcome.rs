//! What a test saw, evaluated.
//!
//! signal: probes, counted bytes, steps of the test with their times · model: `delay`, `losses`, `figures` · action:
//! figures of each loaded phase per direction, and a grade: of the loaded direction in `down` and `up`, of the round trip
//! in `both`, which needs no clock of the other end.

use std::ops::Range;

use algo::Rng;
use flow::diagnose::grade::usability;
use serde::{Serialize, Serializer};

use crate::delay::{Clocks, Queue, Times, When};
use crate::figures::{Figures, Quantile, Verdict};
use crate::hops::{Hop, Place, hops, place};
use crate::losses::{Fate, fates};
use crate::samples::Samples;
use crate::seen::{Kind, Load, Phase, Recorded, Seen, Stream, Transport};
use crate::treatment::{RoundTrip, Treatment, treatment};
use crate::wire::data::Direction;

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
    /// Routers on the way that answer, nearest first.
    pub hops: Vec<Hop>,
    /// The loaded phases.
    pub phases: Vec<PhaseOutcome>,
    /// Instead of phases, of a path without a load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// Of the packets that were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Recorded>,
    /// What the figures were made of; `None` without an idle probe. Not part of the result, which stays small.
    #[serde(skip)]
    pub samples: Option<Samples>,
}

/// The result of a loaded phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseOutcome {
    /// `down`, `up`, `both`.
    pub phase: &'static str,
    /// What carried the load.
    pub transport: Transport,
    /// The congestion control that was asked for.
    pub congestion_control: Option<String>,
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
    /// TCP handshakes beside the probes.
    pub handshakes: Option<Treatment>,
    /// QUIC probes beside them; `None`: the server answers none.
    pub quic_probes: Option<Treatment>,
    /// Where the queue of a phase of one direction stands.
    pub place: Option<Place>,
    /// Why that is not known.
    pub place_why: Option<String>,
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
    pub(crate) fn new(of: &'static str, verdict: &Verdict) -> Grade {
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

/// A path without a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Idle {
    /// Probes a second.
    pub probes_per_s: f64,
    /// How long they were sent.
    pub seconds: f64,
    /// The round trip without the server's own time; what was lost counts as infinite.
    pub rtt: Delay,
    /// Delay above the smallest one, towards the client; `None`: the server says no times.
    pub delay_down: Option<Delay>,
    /// Towards the server.
    pub delay_up: Option<Delay>,
    /// Median of the server's own time, ms.
    pub server_ms: Option<f64>,
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
pub(crate) fn goodput(counts: &[(i64, u64)], from: i64, until: i64) -> Option<f64> {
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
pub(crate) fn delays(
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
        let hops = hops(&seen.hops);
        let counts = seen.records.iter().map(|r| r.answer.map(|(_, had)| had)).collect::<Vec<_>>();
        let fates = fates(&counts);
        let phases = clocks.map_or_else(Vec::new, |clocks| {
            let up: Vec<(i64, u64)> = seen
                .of_server
                .iter()
                .map(|info| (clocks.on_client(info.t_ns), info.up_bytes))
                .collect();
            seen.steps
                .iter()
                .filter_map(|step| {
                    let Kind::Load(load) = &step.kind else { return None };
                    let evaluated = Evaluated {
                        seen: &seen,
                        clocks,
                        up: &up,
                        fates: &fates,
                        answered: &answered,
                        path_changed,
                        hops: &hops,
                    };
                    evaluated.phase(load, (step.from, step.until), rng)
                })
                .collect()
        });
        let samples = clocks.map(|clocks| Samples::of(&seen, clocks, &fates));
        Outcome {
            samples,
            capture: seen.capture,
            complete: seen.ended.is_none(),
            ended: seen.ended,
            rtt_min_ms: clocks.map(|clocks| clocks.rtt_ms()),
            clock_skew_ppm: clocks.map(|clocks| clocks.skew * 1e6),
            path_changed,
            hops,
            phases,
            idle: None,
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
    answered: &'a [(Times, When)],
    path_changed: bool,
    hops: &'a [Hop],
}

impl Evaluated<'_> {
    /// Of a load that began then and lasted until then.
    fn phase(
        &self,
        load: &Load,
        (begun, until): (i64, i64),
        rng: &mut Rng,
    ) -> Option<PhaseOutcome> {
        let from = load.measured?;
        // Where the test broke off, time without probes says nothing.
        let last = self.seen.records.last().map_or(from, |record| record.t1 + 1);
        let until = if self.seen.ended.is_some() { until.min(last) } else { until };
        let mut figures = |lost: &dyn Fn(Fate) -> bool, part: fn(Queue) -> f64| {
            let delay = |times: &Times| part(self.clocks.queue(times));
            let within = |from, until| delays(self.seen, (from, until), lost, self.fates, delay);
            let (before, measured) = (within(begun, from), within(from, until));
            Some(Figures::of(&measured, self.seen.per_s, rng)?.after(&measured, &before))
        };
        let up = figures(&|fate| fate == Fate::LostUp, |queue| queue.up_ms);
        let down = figures(&|fate| fate == Fate::LostDown, |queue| queue.down_ms);
        let rtt = figures(&|_| true, |queue| queue.rtt_ms);
        let (of, graded) = match load.part.phase {
            Phase::Down => ("down", &down),
            Phase::Up => ("up", &up),
            Phase::Both => ("rtt", &rtt),
        };
        let verdict = match graded {
            _ if self.path_changed && load.part.phase != Phase::Both => {
                Verdict::None("the path changed during the test".to_owned())
            }
            None => Verdict::None("no probe was sent".to_owned()),
            Some(figures) => figures.verdict(),
        };
        let unix = |t: i64| (self.seen.unix.1 + (t - self.seen.unix.0)) as f64 / 1e9;
        let loads = |direction| load.part.phase.directions().contains(&direction);
        let total = self.clocks.rtt_ms() + rtt.as_ref()?.p95.ms;
        // In `both` the link of either queue would be later.
        let place = (load.part.phase != Phase::Both).then(|| {
            let added_ms = rtt.as_ref().map_or(0.0, |figures| figures.p50.ms);
            let up = load.part.phase == Phase::Up;
            place(&self.seen.hops, self.hops, (from, until), added_ms, up, rng)
        });
        Some(PhaseOutcome {
            phase: load.part.phase.name(),
            transport: load.part.transport,
            congestion_control: load.part.cc.clone(),
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
            handshakes: self.treatment(&self.seen.handshakes, from..until),
            quic_probes: self.treatment(&self.seen.quic_probes, from..until),
            place: place.clone().and_then(Result::ok),
            place_why: place.and_then(Result::err).map(|why| why.to_string()),
            streams: load.streams.clone(),
        })
    }

    /// Round trips beside the probes within some time.
    fn treatment(&self, all: &[RoundTrip], within: Range<i64>) -> Option<Treatment> {
        let probes: Vec<(i64, f64)> = self
            .answered
            .iter()
            .map(|(times, _)| (times.t1, self.clocks.queue(times).rtt_ms))
            .collect();
        treatment(all, within, &probes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::{Opened, Part, Record, Step};
    use crate::wire::message::{Info, StreamInfo};

    const S: i64 = 1_000_000_000;

    fn part() -> Part {
        Part { phase: Phase::Up, transport: Transport::Tcp, cc: None }
    }

    /// Idle for 3 s, an upload of 10 Mbit/s for 10 s whose queue is 250 ms long, measured for 6 s, idle for 2 s. Every
    /// fortieth probe is lost on the way up. The server's clock is ahead and fast.
    fn seen(ahead: i64, ppm: f64, change_ms: i64) -> Seen {
        let mut rng = Rng::new(7, "path");
        let server = |t: i64| t + ahead + (t as f64 * ppm * 1e-6) as i64;
        let mut had = 0;
        let records = (0..750_i64)
            .map(|n| {
                let t1 = 50 * S + n * 20_000_000;
                let loaded = (150..650).contains(&n);
                let queue = if loaded { 240.0 + 10.0 * rng.uniform() } else { 0.0 };
                let changed = if n > 400 { change_ms * 1_000_000 } else { 0 };
                let arrived = t1 + ((8.0 + queue + 0.2 * rng.uniform()) * 1e6) as i64 + changed;
                let t4 = arrived + ((12.0 + 0.2 * rng.uniform()) * 1e6) as i64;
                let lost = loaded && n % 40 == 0;
                had += u32::from(!lost);
                let times = Times { t1, t2: server(arrived), t3: server(arrived), t4 };
                Record { t1, late: false, answer: (!lost).then_some((times, had)) }
            })
            .collect();
        let load = Load { part: part(), measured: Some(57 * S), steady: true, streams: vec![] };
        let step = |kind, from, until| Step { kind, from: from * S, until: until * S };
        Seen {
            records,
            hops: Vec::new(),
            handshakes: (0..150)
                .map(|n| {
                    let queue_ms = if (30..130).contains(&n) { 245.0 } else { 0.0 };
                    RoundTrip { t1: 50 * S + n * S / 10, rtt_ms: Some(21.0 + queue_ms) }
                })
                .collect(),
            quic_probes: (0..30)
                .map(|n| RoundTrip { t1: 50 * S + n * S / 2, rtt_ms: None })
                .collect(),
            steps: vec![
                step(Kind::Idle(When::Before), 50, 53),
                step(Kind::Load(load), 53, 63),
                step(Kind::Idle(When::After), 63, 65),
            ],
            down: vec![(50 * S, 0), (65 * S, 0)],
            of_server: (0..150)
                .map(|n| {
                    let up_bytes = (n.clamp(30, 130) as u64 - 30) * 125_000;
                    Info {
                        t_ns: server(50 * S + n * S / 10),
                        up_bytes,
                        streams: vec![StreamInfo {
                            id: 4,
                            acked: up_bytes,
                            ..StreamInfo::default()
                        }],
                    }
                })
                .collect(),
            of_client: vec![(
                54 * S,
                vec![StreamInfo { id: 4, mss: 1448, ..StreamInfo::default() }],
            )],
            opened: vec![Opened {
                id: 4,
                part: part(),
                direction: Direction::Up,
                client: "10.0.0.1:4000".parse().unwrap(),
                server: "10.0.0.2:26110".parse().unwrap(),
            }],
            per_s: 50.0,
            unix: (50 * S, 1_700_000_000 * S),
            capture: None,
            ended: None,
        }
    }

    fn outcome(seen: Seen) -> Outcome {
        Outcome::of(seen, &mut Rng::new(1, "bootstrap"))
    }

    #[test]
    fn an_upload_has_its_delay_loss_goodput_and_grade_whatever_the_clocks() {
        for (ahead, ppm) in [(0, 0.0), (10 * S, 100.0), (-3 * S, -150.0)] {
            let found = outcome(seen(ahead, ppm, 0));
            assert!(found.is_graded() && !found.path_changed);
            assert!((found.clock_skew_ppm.unwrap() - ppm).abs() < 5.0);
            assert!((found.rtt_min_ms.unwrap() - 20.0).abs() < 0.3);
            let [phase] = found.phases.as_slice() else { panic!("one phase") };
            assert_eq!((phase.grade.of, phase.grade.words().as_str()), ("up", "D"));
            let (up, down) = (phase.delay_up.as_ref().unwrap(), phase.delay_down.as_ref().unwrap());
            assert!((up.p95_ms.ms - 250.0).abs() < 1.0 && down.p95_ms.ms < 1.0);
            assert!((up.loss - 0.025).abs() < 0.005 && down.loss == 0.0);
            assert!((phase.goodput_up_bps.unwrap() / 10e6 - 1.0).abs() < 0.01);
            assert_eq!(phase.goodput_down_bps, None);
            let handshakes = phase.handshakes.unwrap();
            // Of those, sixty began within the six seconds that were measured.
            assert_eq!((handshakes.sent, handshakes.added_p50_ms), (60, Some(245.0)));
            assert!(!handshakes.differs && handshakes.later_ms.unwrap().abs() < 5.0);
            let quic = phase.quic_probes.unwrap();
            assert_eq!((quic.sent, quic.lost, quic.blocked, quic.differs), (12, 12, true, true));
            assert!((phase.from_unix_s - 1_700_000_007.0).abs() < 1e-3);
        }
    }

    #[test]
    fn samples_are_what_the_figures_were_made_of() {
        let found = outcome(seen(10 * S, 100.0, 0));
        let samples = found.samples.as_ref().unwrap();
        assert!(!serde_json::to_string(&found).unwrap().contains("samples"));
        assert!((samples.start_unix_s - 1.7e9).abs() < 1e-3);
        let [before, load, after] = samples.steps.as_slice() else { panic!("three steps") };
        assert_eq!([before.name, load.name, after.name], ["idle", "up", "idle"]);
        assert_eq!((load.from_s, load.measured_s, load.until_s), (3.0, Some(7.0), 13.0));
        let measured: Vec<_> =
            samples.probes.iter().filter(|p| (7.0..13.0).contains(&p.t_s)).collect();
        let delay = found.phases[0].delay_up.as_ref().unwrap();
        let mut delays: Vec<f64> =
            measured.iter().map(|p| p.added_up_ms.unwrap_or(f64::INFINITY)).collect();
        delays.sort_by(f64::total_cmp);
        assert_eq!(delays.len(), delay.probes);
        let p95 = delays[(0.95 * delays.len() as f64).ceil() as usize - 1];
        assert!((p95 - delay.p95_ms.ms).abs() < 1e-3);
        let lost = measured.iter().filter(|p| p.lost == Some("up")).count();
        assert_eq!(lost, (delay.loss * delay.probes as f64).round() as usize);
        let count = |t_s: f64| {
            let after = samples.received_by_server.iter().find(|c| c.t_s >= t_s).unwrap();
            after.bytes as f64
        };
        assert!(((count(12.0) - count(8.0)) * 8.0 / 4.0 / 10e6 - 1.0).abs() < 0.03);
        let [stream] = samples.streams.as_slice() else { panic!("one stream") };
        assert_eq!((stream.phase, stream.direction), ("up", "up"));
        assert_eq!((stream.at_client.len(), stream.at_server.len()), (1, 150));
        assert_eq!((stream.at_client[0].t_s, stream.at_client[0].mss_bytes), (4.0, Some(1448)));
        assert_eq!(stream.at_server[0].mss_bytes, None, "a server that does not say it");
    }

    #[test]
    fn a_changed_path_has_no_grade_per_direction() {
        let found = outcome(seen(10 * S, 100.0, 9));
        assert!(found.path_changed && !found.is_graded());
        assert_eq!(found.phases[0].grade.why.as_deref(), Some("the path changed during the test"));
    }

    #[test]
    fn what_an_end_cuts_off_is_no_loss() {
        let mut cut = seen(0, 0.0, 0);
        cut.ended = Some("the server closed the connection".to_owned());
        for record in &mut cut.records[500..] {
            record.answer = None;
        }
        let found = outcome(cut);
        assert!(!found.complete && !found.is_graded());
        let rtt = found.phases[0].delay_rtt.as_ref().unwrap();
        assert_eq!((rtt.probes, (rtt.loss * rtt.probes as f64).round()), (150, 4.0));
    }

    #[test]
    fn a_quantile_that_falls_on_lost_probes_is_a_word_in_json() {
        let mut lossy = seen(0, 0.0, 0);
        for record in lossy.records[300..600].iter_mut().step_by(10) {
            record.answer = None;
        }
        let json = serde_json::to_value(outcome(lossy)).unwrap();
        assert_eq!(json["phases"][0]["delay_rtt"]["p95_ms"][0], "lost");
        assert!(json["phases"][0]["delay_rtt"]["p50_ms"][0].is_f64());
    }
}
