//! Leads a test through its phases: idle, each load with the drain of its queue behind it, idle.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use algo::Rng;

use super::connector::{BESIDE_PROBES, Connector};
use super::control::{Control, locked, server_name};
use super::loads::Loads;
use super::prober::Prober;
use super::progress::Progress;
use super::quic_prober::QuicProber;
use super::recorder::{Recorder, Recording};
use super::{Failure, Options};
use crate::clock::Clock;
use crate::delay::When;
use crate::figures::{Figures, MIN_PROBES};
use crate::outcome::Outcome;
use crate::quic::Dialer;
use crate::saturation::{Advice, Saturation};
use crate::seen::{Kind, Load, Part, Record, Seen, Step, Transport};
use crate::wire::data::Direction;
use crate::wire::keys::random;
use crate::wire::message::ToServer;

/// Between two looks at everything.
const TICK: Duration = Duration::from_millis(100);
/// The client sends a sign of life each fifth tick.
const ALIVE: u32 = 5;
/// A queue below this is gone, as in the specification.
const DRAINED_MS: f64 = 5.0;
/// The latest answers that have to be drained: one may have met a gap.
const DRAINED: usize = 5;
/// Of the time of a session, what is neither a load nor idle: connections of loads that begin, last answers.
const SPARE: Duration = Duration::from_secs(5);
/// Answers that are on their way at the end are waited for this long; then their probes are lost.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// How long the parts of a test take.
struct Timing {
    before: Duration,
    after: Duration,
    /// Between two looks at goodput.
    interval: Duration,
    /// Measuring begins after it, steady or not.
    settling: Duration,
    loaded: Duration,
    /// A load that is measured goes on by up to this where it has no grade: the path's rate changed meanwhile, or a busy host sent probes late,
    /// which say nothing.
    longer: Duration,
    /// Of all loads of a test together.
    longer_in_all: Duration,
    drain: Duration,
    per_s: f64,
    first_streams: usize,
    growing: bool,
    /// How often each router is asked while a load is measured.
    hops_per_s: f64,
    /// QUIC probes a second then.
    quic_per_s: f64,
}

/// Idle, a router is asked so often. Linux then has most of its six answers left for the load.
const IDLE_HOPS_PER_S: f64 = 1.0;
/// QUIC probes a second without a load: some, of which the least round trip is known. None are sent while a load grows, so that there
/// are two a second or fewer over the whole test, of 1200 bytes each.
const IDLE_QUIC_PER_S: f64 = 2.0;

/// Goodput of a loaded path varies by its congestion control's cycles within half a second; five seconds before and five
/// while it is measured give a grade on most paths.
const THOROUGH: Timing = Timing {
    before: Duration::from_secs(3),
    after: Duration::from_secs(2),
    interval: Duration::from_millis(500),
    settling: Duration::from_secs(5),
    loaded: Duration::from_secs(12),
    // Twice the four seconds that the probes of a grade take: a load whose delay rose until the end is measured once more.
    longer: Duration::from_secs(8),
    longer_in_all: Duration::from_secs(24),
    drain: Duration::from_secs(5),
    per_s: 50.0,
    first_streams: 1,
    growing: true,
    hops_per_s: 2.0,
    // A load is measured for four seconds at least: twelve, of which a comparison needs eight.
    quic_per_s: 3.0,
};
/// Twice the probes, so that two seconds have the 200 that a grade needs; eight streams, since there is no
/// time to add some, and fewer do not fill a deep buffer in two seconds.
const QUICK: Timing = Timing {
    before: Duration::from_secs(1),
    after: Duration::from_secs(1),
    interval: Duration::from_millis(200),
    settling: Duration::from_millis(1200),
    loaded: Duration::from_millis(3400),
    // For late probes; a path that varies needs the thorough test.
    longer: Duration::from_millis(400),
    longer_in_all: Duration::from_millis(1200),
    drain: Duration::from_secs(2),
    per_s: 100.0,
    first_streams: 8,
    growing: false,
    // Two seconds have to give three answers.
    hops_per_s: 3.0,
    // Two seconds have ten.
    quic_per_s: 5.0,
};

/// Measures the path to a server.
pub fn measure(
    options: &Options,
    clock: Clock,
    recorder: Option<Recorder>,
    show: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Failure> {
    let here = |e: std::io::Error| Failure::NoServer(format!("no probe can be sent: {e}"));
    let seed = u64::from_le_bytes(random().map_err(here)?);
    show(&Progress { step: "connecting", ..Progress::default() });
    let control = Control::begin(options, || eprintln!("another client measures; waiting"))?;
    let recording = recorder.map(|recorder| recorder.begin(control.server.ip()));
    let timing = if options.quick { &QUICK } else { &THOROUGH };
    let per_s = timing.per_s.min(f64::from(control.limits.pps)).max(1.0);
    // What the server's limit on the time leaves.
    let parts = parts(options).len() as u32;
    let planned = timing.before + (timing.loaded + timing.drain) * parts + timing.after;
    let session = Duration::from_secs(control.limits.seconds.into());
    let longer_in_all = timing.longer_in_all.min(session.saturating_sub(planned + SPARE));
    let prober = Prober::begin(&control, per_s, clock, Rng::new(seed, "gaps")).map_err(here)?;
    let quic = QuicProber::begin(&control, clock, Rng::new(seed, "QUIC")).map_err(here)?;
    let connector = Connector::begin(control.server, BESIDE_PROBES, clock, seed);
    let unix = clock.with_unix();
    let mut run = Run {
        options,
        // At the server's limit it would break off; here it ends in order.
        max_bytes: options.max_bytes.min(control.limits.bytes),
        timing,
        clock,
        show,
        control,
        prober,
        quic,
        loads: Loads::new(seed),
        seen: Seen { per_s, unix, ..Seen::default() },
        rng: Rng::new(seed, "bootstrap"),
        ticks: 0,
        step: "idle",
        phases_left: parts as usize,
        step_ends: Instant::now(),
        longer_left: longer_in_all,
    };
    run.lead();
    let Run { prober, quic, seen, mut rng, control, loads, .. } = run;
    if seen.ended.is_none() {
        wait_for_answers(&prober, &control);
    }
    let handshakes = connector.end();
    let quic_probes = quic.end();
    let hops = prober.hop_probes();
    let records = prober.end();
    let capture = recording.map(Recording::end);
    if records.iter().all(|record| record.answer.is_none()) {
        let why = seen.ended.unwrap_or_else(|| "no probe was answered".to_owned());
        return Err(Failure::NoServer(format!(
            "{}: {why}; the server's port has to be open for UDP as well",
            options.host
        )));
    }
    let of_server = std::mem::take(&mut *locked(&control.from_server.infos));
    let opened = loads.opened();
    let seen = Seen { records, hops, handshakes, quic_probes, of_server, opened, capture, ..seen };
    Ok(Outcome::of(seen, &mut rng))
}

fn wait_for_answers(prober: &Prober, control: &Control) {
    prober.pause();
    let begun = Instant::now();
    while begun.elapsed() < LAST_ANSWERS && control.from_server.over().is_none() {
        let records = prober.records();
        // A lost probe in the last second would be waited for in vain: only those of the last round trips are.
        let recent = records.iter().rev().take(10);
        if recent.clone().all(|record| record.answer.is_some()) {
            return;
        }
        control.say(&ToServer::Alive);
        thread::sleep(TICK);
    }
}

struct Run<'a> {
    options: &'a Options,
    max_bytes: u64,
    timing: &'static Timing,
    clock: Clock,
    show: &'a mut dyn FnMut(&Progress),
    control: Control,
    prober: Prober,
    quic: QuicProber,
    loads: Loads,
    seen: Seen,
    rng: Rng,
    ticks: u32,
    step: &'static str,
    phases_left: usize,
    step_ends: Instant,
    longer_left: Duration,
}

impl Run<'_> {
    fn lead(&mut self) {
        let Timing { before, after, .. } = *self.timing;
        if !self.idle(When::Before, before) {
            return;
        }
        if self.prober.records().iter().all(|record| record.answer.is_none()) {
            self.seen.ended = Some("no probe was answered".to_owned());
            return;
        }
        for part in parts(self.options) {
            self.phases_left -= 1;
            if part.transport == Transport::Quic && !self.quic(part.cc.clone()) {
                return;
            }
            self.loads.begin(part.clone());
            if !self.load(part) || !self.drain() {
                return;
            }
            if self.loads.bytes() >= self.max_bytes {
                break;
            }
        }
        self.phases_left = 0;
        let full = self.loads.bytes() >= self.max_bytes;
        if self.idle(When::After, after) && full {
            self.seen.ended =
                Some("the limit of data (--max-data) of client or server was reached".to_owned());
        }
    }

    /// Has the server take connections by QUIC with a congestion control; false: it does not.
    fn quic(&mut self, cc: Option<String>) -> bool {
        let Control { server, local, .. } = self.control;
        if !self.loads.has_dialer() {
            let name = server_name(&self.options.host, server.ip()).to_str().into_owned();
            match Dialer::begin(local, server, name, self.options.pin) {
                Ok(dialer) => self.loads.dial_by(dialer),
                Err(e) => {
                    self.seen.ended = Some(format!("this host has no QUIC: {e}"));
                    return false;
                }
            }
        }
        *locked(&self.control.from_server.quic) = None;
        self.control.say(&ToServer::Quic { cc });
        // A server that is gone ends it.
        loop {
            if let Some(answer) = locked(&self.control.from_server.quic).take() {
                self.seen.ended = answer.map(|why| format!("the server has no QUIC: {why}"));
                return self.seen.ended.is_none();
            }
            if !self.tick() {
                return false;
            }
        }
    }

    /// Waits one tick; false: it is over.
    fn tick(&mut self) -> bool {
        thread::sleep(TICK);
        self.ticks += 1;
        if self.ticks.is_multiple_of(ALIVE) {
            self.control.say(&ToServer::Alive);
        }
        self.seen.down.push((self.clock.now(), self.loads.received()));
        self.seen.of_client.push((self.clock.now(), self.loads.infos()));
        self.progress();
        self.seen.ended = self.control.from_server.over();
        self.seen.ended.is_none()
    }

    fn idle(&mut self, when: When, length: Duration) -> bool {
        (self.step, self.step_ends) = ("idle", Instant::now() + length);
        let (from, begun) = (self.clock.now(), Instant::now());
        let mut fine = true;
        self.prober.pace_hops(IDLE_HOPS_PER_S);
        self.quic.pace(IDLE_QUIC_PER_S, None);
        while fine && begun.elapsed() < length {
            fine = self.tick();
        }
        self.pause_beside();
        self.seen.steps.push(Step { kind: Kind::Idle(when), from, until: self.clock.now() });
        fine
    }

    /// Waits until the queue is gone.
    fn drain(&mut self) -> bool {
        (self.step, self.step_ends) = ("drain", Instant::now() + self.timing.drain);
        let (from, begun) = (self.clock.now(), Instant::now());
        while begun.elapsed() < self.timing.drain {
            if !self.tick() {
                return false;
            }
            let records = self.prober.records();
            let rtts = round_trips(&records);
            let least = rtts.iter().map(|(_, rtt)| *rtt).reduce(f64::min).unwrap_or(0.0);
            let since: Vec<f64> =
                rtts.iter().filter(|(t1, _)| *t1 >= from).map(|(_, rtt)| rtt - least).collect();
            let latest = &since[since.len().saturating_sub(DRAINED)..];
            if latest.len() == DRAINED && latest.iter().all(|ms| *ms < DRAINED_MS) {
                break;
            }
        }
        true
    }

    /// One loaded phase; false: it is over for all.
    fn load(&mut self, part: Part) -> bool {
        let phase = part.phase;
        let timing = self.timing;
        (self.step, self.step_ends) = (phase.name(), Instant::now() + timing.loaded);
        let (from, begun) = (self.clock.now(), Instant::now());
        let first = self.options.streams.unwrap_or(timing.first_streams);
        let growing = self.options.streams.is_none() && timing.growing;
        let mut sides: Vec<Side> = phase
            .directions()
            .iter()
            .map(|direction| Side {
                direction: *direction,
                saturation: Saturation::new(first, growing),
                steady: false,
                last: self.count(*direction),
            })
            .collect();
        for side in &sides {
            for _ in 0..first {
                self.loads.add(&self.control, side.direction);
            }
        }
        let mut load = Load { part, measured: None, steady: false, streams: Vec::new() };
        let (mut looked, mut fine) = (Instant::now(), true);
        let most = timing.loaded + timing.longer.min(self.longer_left);
        while fine && self.loads.bytes() < self.max_bytes {
            let so_far = begun.elapsed();
            if so_far >= timing.loaded {
                if so_far >= most || !load.measured.is_some_and(|at| self.lacks_a_grade(from, at)) {
                    break;
                }
                self.step_ends = begun + most;
            }
            fine = self.tick();
            if let Some(why) = self.loads.failed() {
                self.seen.ended = Some(format!("no connection by QUIC: {why}"));
                fine = false;
            }
            if looked.elapsed() < timing.interval {
                continue;
            }
            looked = Instant::now();
            let reported =
                locked(&self.control.from_server.infos).last().cloned().unwrap_or_default();
            load.streams = self.loads.streams(&reported.streams);
            if let Some(measured) = load.measured {
                match self.figures(from, measured) {
                    Some(figures) if figures.is_certain() => break,
                    // The buffer was still filling: again, if there is time for enough probes.
                    Some(figures) if figures.still_fills() && figures.probes >= MIN_PROBES => {
                        // An eighth more, since a busy host sends some late, and those do not count.
                        let needed = MIN_PROBES as f64 / self.seen.per_s * 1.125;
                        if begun.elapsed() + Duration::from_secs_f64(needed) < most {
                            load.measured = Some(self.clock.now());
                        }
                    }
                    _ => {}
                }
                continue;
            }
            for side in &mut sides {
                let now = self.count(side.direction);
                let seconds = (now.0 - side.last.0) as f64 / 1e9;
                if seconds <= 0.0 {
                    // No report since the last look.
                    continue;
                }
                let goodput = (now.1 - side.last.1) as f64 * 8.0 / seconds;
                side.last = now;
                match side.saturation.interval(goodput) {
                    Advice::Add => self.loads.add(&self.control, side.direction),
                    Advice::Wait => {}
                    Advice::Measure => side.steady = true,
                }
            }
            load.steady = sides.iter().all(|side| side.steady);
            // Goodput is steady long before a given number of streams has filled a deep buffer; streams that are added fill it.
            if (load.steady && growing) || begun.elapsed() >= timing.settling {
                load.measured = Some(self.clock.now());
                self.prober.pace_hops(timing.hops_per_s);
                let uploads = phase.directions().contains(&Direction::Up);
                self.quic.pace(timing.quic_per_s, uploads.then(|| self.upload_bps()).flatten());
            }
        }
        self.longer_left -= begun.elapsed().saturating_sub(timing.loaded).min(self.longer_left);
        self.pause_beside();
        self.seen.steps.push(Step { kind: Kind::Load(load), from, until: self.clock.now() });
        self.loads.stop();
        self.control.say(&ToServer::Stop);
        fine
    }

    /// Sends nothing but the probes.
    fn pause_beside(&self) {
        self.prober.pace_hops(0.0);
        self.quic.pace(0.0, None);
    }

    /// Rate of an upload in the latest second.
    fn upload_bps(&self) -> Option<f64> {
        let infos = locked(&self.control.from_server.infos);
        // Ten reports a second. A server may say anything.
        let (first, last) = (infos.get(infos.len().saturating_sub(11))?, infos.last()?);
        let seconds = last.t_ns.saturating_sub(first.t_ns) as f64 / 1e9;
        let bytes = last.up_bytes.saturating_sub(first.up_bytes);
        (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
    }

    /// Bytes that were received in a direction, and when, on the receiver's clock.
    fn count(&self, direction: Direction) -> (i64, u64) {
        match direction {
            Direction::Down => (self.clock.now(), self.loads.received()),
            Direction::Up => locked(&self.control.from_server.infos)
                .last()
                .map_or((0, 0), |info| (info.t_ns, info.up_bytes)),
        }
    }

    /// Figures of the round trip so far of a load that began then, for which no clock has to be fitted.
    fn figures(&mut self, begun: i64, measured: i64) -> Option<Figures> {
        let records = self.prober.records();
        let rtts = round_trips(&records);
        let least = rtts.iter().map(|(_, rtt)| *rtt).reduce(f64::min)?;
        let within = |times: Range<i64>| -> Vec<f64> {
            rtts.iter().filter(|(t1, _)| times.contains(t1)).map(|(_, rtt)| rtt - least).collect()
        };
        let (before, delays) = (within(begun..measured), within(measured..i64::MAX));
        Some(Figures::of(&delays, self.seen.per_s, &mut self.rng)?.after(&delays, &before))
    }

    /// Whether what was measured since then gives no grade.
    fn lacks_a_grade(&mut self, begun: i64, since: i64) -> bool {
        let records = self.prober.records();
        let latest = records.iter().rev().take_while(|record| record.t1 >= since);
        if latest.filter(|record| !record.late).count() < MIN_PROBES {
            return true;
        }
        self.figures(begun, since).is_none_or(|figures| figures.verdict().why().is_some())
    }

    fn progress(&mut self) {
        let Timing { loaded, drain, after, .. } = *self.timing;
        let later = (loaded + drain) * self.phases_left as u32 + after;
        let left = self.step_ends.saturating_duration_since(Instant::now()) + later;
        let infos = locked(&self.control.from_server.infos);
        let up: Vec<(i64, u64)> =
            infos[infos.len().saturating_sub(12)..].iter().map(|i| (i.t_ns, i.up_bytes)).collect();
        drop(infos);
        let records = self.prober.records();
        (self.show)(&Progress::of(self.step, left, &records, &self.seen.down, &up));
    }
}

/// The loads, in order: of each phase one for each transport and congestion control.
pub(crate) fn parts(options: &Options) -> Vec<Part> {
    let transports = match options.transports.as_slice() {
        [] => &[Transport::Tcp],
        named => named,
    };
    let controls = match options.cc.as_slice() {
        [] => vec![None],
        names => names.iter().cloned().map(Some).collect(),
    };
    let mut parts = Vec::new();
    for &phase in &options.phases {
        for &transport in transports {
            parts.extend(controls.iter().cloned().map(|cc| Part { phase, transport, cc }));
        }
    }
    parts
}

struct Side {
    direction: Direction,
    saturation: Saturation,
    steady: bool,
    last: (i64, u64),
}

/// Of answered probes: when they were sent, and their round trips, ms.
fn round_trips(records: &[Record]) -> Vec<(i64, f64)> {
    records
        .iter()
        .filter_map(|record| record.answer)
        .map(|(times, _)| (times.t1, times.rtt_ns() as f64 / 1e6))
        .collect()
}
