//! Leads a measurement of a path without a load, against a server of irtt.

use std::thread;
use std::time::{Duration, Instant};

use algo::Rng;

use super::probes::Probes;
use super::session::Session;
use crate::client::{Failure, Options, Progress, Recorder, Recording};
use crate::clock::Clock;
use crate::delay::When;
use crate::outcome::{Idle, Outcome};
use crate::seen::{Kind, Seen, Step};
use crate::settling::{TICK, limit_of_data};
use crate::wire::keys::random;

/// 1000 probes: ten of them are above p99.
const MEASURED: Duration = Duration::from_secs(20);
/// 250 probes: p95 is that of twelve.
const QUICK: Duration = Duration::from_secs(5);
/// For the last answers: a round trip that is longer counts as lost.
const LAST: Duration = Duration::from_secs(1);
/// IP and UDP before a probe, with IPv6.
const HEADERS: usize = 48;

/// Measures the path to a server of irtt.
pub fn measure(
    options: &Options,
    clock: Clock,
    recorder: Option<Recorder>,
    show: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Failure> {
    let here = |e: std::io::Error| Failure::NoServer(format!("{}: {e}", options.host));
    let seed = u64::from_le_bytes(random().map_err(here)?);
    show(&Progress { step: "connecting", ..Progress::default() });
    let wanted = if options.quick { QUICK } else { MEASURED };
    let session = Session::open(&options.host, None, &options.token, wanted)?;
    let recording = recorder.map(|recorder| recorder.begin(session.server.ip()));
    let agreed = session.agreed;
    // In both directions.
    let each = 2 * (agreed.length + HEADERS) as u64;
    let begun = clock.with_unix();
    let probes = Probes::begin(session, clock, Rng::new(seed, "probes"));
    let until = Instant::now() + agreed.duration;
    let mut ended = None;
    while Instant::now() < until && ended.is_none() {
        thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
        let left = until.saturating_duration_since(Instant::now());
        show(&Progress::of("idle", left, &[], &[], &[]));
        let bytes = probes.sent() as u64 * each;
        ended = probes.over().or_else(|| limit_of_data(bytes, options.max_bytes));
    }
    probes.pause();
    thread::sleep(LAST);
    let records = probes.end();
    let capture = recording.map(Recording::end);
    if records.iter().all(|record| record.answer.is_none()) {
        let why = ended.unwrap_or_else(|| "no probe was answered".to_owned());
        return Err(Failure::NoServer(format!("{}: {why}", options.host)));
    }
    let last = records.last().map_or(begun.0, |record| record.t1 + 1);
    let middle = begun.0 + (last - begun.0) / 2;
    // In halves, so that a path that changed is noticed.
    let step = |when, from, until| Step { kind: Kind::Idle(when), from, until };
    let mut seen = Seen {
        records,
        steps: vec![step(When::Before, begun.0, middle), step(When::After, middle, last)],
        per_s: agreed.per_s(),
        unix: begun,
        capture,
        ended,
        ..Seen::default()
    };
    if seen.ended.is_some() {
        // What the end cut off is not the path's loss.
        let last = seen.records.iter().rposition(|record| record.answer.is_some());
        seen.records.truncate(last.map_or(0, |last| last + 1));
    }
    let mut rng = Rng::new(seed, "bootstrap");
    let idle = Idle::of(&seen, &agreed, &mut rng);
    let outcome = Outcome::of(seen, &mut rng);
    Ok(Outcome { idle, ..outcome })
}
