//! Pauses without a packet, and what the first packet after each takes.
//!
//! signal: the counters of the device towards the server, answers to probes · model: the pause begins with the last packet of
//! the device, of whatever program · action: one probe after the pause and two after its answer, as `idle_gaps` wants them.

use std::fs;
use std::net::UdpSocket;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use algo::Rng;
use flow::diagnose::pauses::{Step, median};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::control::{Control, locked};
use super::prober::{LOOK, take_answer};
use super::{Failure, Options};
use crate::clock::Clock;
use crate::idle_gaps::{Sample, Sweep};
use crate::metered::device_towards;
use crate::seen::Record;
use crate::socket::stamped;
use crate::wire::keys::random;
use crate::wire::message::ToServer;
use crate::wire::probe::Probe;

/// Between two looks at the counters: a tenth of the shortest pause.
const POLL: Duration = Duration::from_millis(20);
/// A probe that is not answered by then is lost: the longest promotion of a 3G radio, twice.
const ANSWER: Duration = Duration::from_secs(5);
/// Between the answer to a probe and the next one, as the pings of MobiPerf.
const NEXT: Duration = Duration::from_millis(30);
/// Probes after the first, whose median is what a packet takes without a pause.
const FOLLOWING: usize = 2;
/// Longest silence that the server is asked for: it keeps a silent client for a minute.
const MAX_SILENCE: Duration = Duration::from_secs(50);
/// A pause that other programs broke is begun again until this many times its length, and some, have passed.
const RETRY_LIMIT: (u32, Duration) = (3, Duration::from_secs(2));
/// A session ends so long before its limit.
const SPARE: Duration = Duration::from_secs(15);

/// What a sweep of pauses found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Silences {
    /// Whether all steps are known within half a second.
    pub complete: bool,
    /// Why it ended early.
    pub ended: Option<String>,
    /// Round trip without a pause: the median, ms.
    pub rtt_ms: Option<f64>,
    /// Pauses that other programs' packets never allowed.
    pub discarded: usize,
    /// From which pause on the next packet takes longer.
    #[serde(serialize_with = "steps_as_json")]
    pub steps: Vec<Step>,
    /// All pauses.
    pub samples: Vec<Sample>,
}

fn steps_as_json<S: Serializer>(steps: &[Step], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(steps.iter().map(|step| {
        json!({
            "from_s": step.from_s,
            "until_s": step.until_s,
            "extra_ms": step.extra_ms,
            "low_ms": step.low_ms,
            "high_ms": step.high_ms,
            "samples": step.samples,
            "cycle": step.cycle,
        })
    }))
}

/// A session, and the socket of its probes.
struct Asking {
    control: Control,
    socket: UdpSocket,
    records: Mutex<Vec<Record>>,
    ends: Instant,
    clock: Clock,
}

/// Packets of a device so far, both ways.
fn packets(device: Option<&str>) -> Option<u64> {
    let text = fs::read_to_string("/proc/net/dev").ok()?;
    let (_, counts) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| Some(name.trim()) == device)?;
    let mut fields = counts.split_whitespace().map(str::parse::<u64>);
    // Received: bytes, packets and six more; then sent: bytes, packets.
    Some(fields.nth(1)?.ok()? + fields.nth(7)?.ok()?)
}

impl Asking {
    fn begin(options: &Options, clock: Clock) -> Result<Asking, Failure> {
        let here = |e: std::io::Error| Failure::NoServer(format!("no probe can be sent: {e}"));
        let control = Control::begin(options, || eprintln!("another client measures; waiting"))?;
        let mut local = control.local;
        local.set_port(0);
        let socket = stamped(local, LOOK).map_err(here)?;
        socket.connect(control.server).map_err(here)?;
        let length = Duration::from_secs(u64::from(control.limits.seconds));
        Ok(Asking {
            control,
            socket,
            records: Mutex::default(),
            ends: Instant::now() + length.saturating_sub(SPARE),
            clock,
        })
    }

    /// Waits until the device has been silent for `gap`; false: other packets never allowed it.
    fn silence(&self, gap: Duration, device: Option<&str>) -> bool {
        let quiet_ms = (MAX_SILENCE + ANSWER).as_millis() as u32;
        self.control.say(&ToServer::Quiet { ms: quiet_ms });
        let begun = Instant::now();
        let (mut last, mut since) = (packets(device), begun);
        loop {
            let left = gap.saturating_sub(since.elapsed());
            if left.is_zero() {
                return true;
            }
            if begun.elapsed() + left > MAX_SILENCE.min(gap * RETRY_LIMIT.0 + RETRY_LIMIT.1) {
                return false;
            }
            thread::sleep(left.min(POLL));
            let now = packets(device);
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
    }

    /// Round trip of one probe, ms; `None`: it was not answered.
    fn ask(&self) -> Option<f64> {
        let Control { session, key, .. } = &self.control;
        let (number, t1) = {
            let mut records = locked(&self.records);
            let t1 = self.clock.now();
            records.push(Record { t1, late: false, answer: None });
            (records.len() - 1, t1)
        };
        let probe = Probe {
            answer: false,
            session: *session,
            number: number as u32,
            t1,
            t2: 0,
            t3: 0,
            had: 0,
        };
        // What the kernel does not take is lost.
        let _ = self.socket.send(&probe.write(key));
        let begun = Instant::now();
        while begun.elapsed() < ANSWER {
            let from_server = &self.control.from_server;
            take_answer(&self.socket, *session, key, self.clock, &self.records, from_server);
            if let Some((times, _)) = locked(&self.records)[number].answer {
                return Some(times.rtt_ns() as f64 / 1e6);
            }
        }
        None
    }
}

/// Sweeps pauses on the path to a server. `show` gets the pause that comes, and the seconds left at least.
pub fn silences(
    options: &Options,
    gaps_s: Vec<f64>,
    clock: Clock,
    show: &mut dyn FnMut(f64, f64),
) -> Result<Silences, Failure> {
    let seed = random().map_err(|e| Failure::NoServer(e.to_string()))?;
    let mut rng = Rng::new(u64::from_le_bytes(seed), "gaps");
    let mut sweep = Sweep::new(gaps_s, &mut rng);
    let device = device_towards(&options.host);
    let (mut asking, mut discarded, mut ended) = (Asking::begin(options, clock)?, 0, None);
    let mut rtts = Vec::new();
    // The first packet of a session may resolve addresses.
    asking.ask();
    while let Some(gap_s) = sweep.next_pause() {
        show(gap_s, gap_s + sweep.left_s());
        let gap = Duration::from_secs_f64(gap_s);
        if Instant::now() + gap + ANSWER * 3 > asking.ends {
            drop(asking);
            asking = match Asking::begin(options, clock) {
                Ok(next) => next,
                Err(failure) => {
                    ended = Some(failure.to_string());
                    break;
                }
            };
        }
        if !asking.silence(gap, device.as_deref()) {
            discarded += 1;
            continue;
        }
        let first = asking.ask();
        let mut following = Vec::new();
        for _ in 0..FOLLOWING {
            thread::sleep(NEXT);
            following.extend(asking.ask());
        }
        if following.is_empty() {
            ended = Some("the server does not answer any more".to_owned());
            break;
        }
        rtts.extend(&following);
        sweep.take(Sample { gap_s, extra_ms: first.map(|ms| ms - median(&following)) });
    }
    if rtts.is_empty() {
        let why = ended.unwrap_or_else(|| "no pause was left undisturbed".to_owned());
        return Err(Failure::NoServer(format!("{}: {why}", options.host)));
    }
    Ok(Silences {
        complete: ended.is_none() && discarded == 0,
        ended,
        rtt_ms: Some(median(&rtts)),
        discarded,
        steps: sweep.steps(),
        samples: sweep.samples().to_vec(),
    })
}
