//! Leads a test against a server of iperf3: one of its tests for each phase.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use algo::Rng;
use flow::diagnose::grade::usability;

use super::PORT;
use super::beside::{Beside, merge};
use super::control::Control;
use super::message::{Parameters, Results};
use crate::client::{
    Connector, Failure, Options, Progress, Recorder, Recording, connect, parts, printable,
};
use crate::clock::Clock;
use crate::figures::{Figures, Verdict};
use crate::load::{self, Count, LOOK};
use crate::outcome::{Delay, Grade, Outcome, PhaseOutcome, goodput};
use crate::seen::{self, Load, Phase, Stream, Transport};
use crate::settling::{Settling, TICK};
use crate::socket::{info, prepare};
use crate::treatment::RoundTrip;
use crate::wire::data::Direction;
use crate::wire::keys::random;

/// Streams of a direction, of which the server wants the number beforehand. Fewer do not fill a deep buffer in a few seconds.
const STREAMS: usize = 8;
/// How long goodput may settle: as with a server of our own.
const SETTLING: Duration = Duration::from_secs(5);
/// What is measured: more than 200 handshakes, with which a grade begins, where each takes 0.3 s.
const MEASURED: Duration = Duration::from_secs(12);
/// Handshakes under way at a time. Each begins half a second after the end of the last one of its thread: 32 a second, and 20
/// where each takes 0.3 s.
const HANDSHAKES: u32 = 16;
/// Between two tests: longer than a handshake that is under way, which the server would take for a client.
const REST: Duration = Duration::from_secs(3);
/// Of a phase, for its connections and its end.
const SPARE: Duration = Duration::from_secs(3);
/// A server that begins to listen again may refuse for a moment.
const AGAIN: Duration = Duration::from_millis(500);
const ATTEMPTS: usize = 6;
const PLACE_WHY: &str = "a server of iperf3 has no probes of ours";

/// One stream.
struct Open {
    direction: Direction,
    socket: Arc<TcpStream>,
    count: Arc<Count>,
    why: Option<String>,
}

impl Open {
    /// Bytes that have arrived at the other end.
    fn bytes(&self) -> u64 {
        match self.direction {
            Direction::Down => self.count.bytes.load(Relaxed),
            Direction::Up => info(&self.socket).acked,
        }
    }
}

/// What one phase saw.
struct Part {
    phase: Phase,
    cc: Option<String>,
    /// When measuring began and ended, on the client's clock.
    measured: Option<(i64, i64)>,
    steady: bool,
    handshakes: Vec<RoundTrip>,
    down: Vec<(i64, u64)>,
    up: Vec<(i64, u64)>,
    streams: Vec<Stream>,
}

impl Part {
    /// As a step beside probes.
    fn load(&self) -> Load {
        Load {
            part: seen::Part { phase: self.phase, transport: Transport::Tcp, cc: self.cc.clone() },
            measured: self.measured.map(|(from, _)| from),
            steady: self.steady,
            streams: Vec::new(),
        }
    }
}

/// Measures the path to a server of iperf3.
pub fn measure(
    options: &Options,
    clock: Clock,
    mut recorder: Option<Recorder>,
    show: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Failure> {
    let here = |e: std::io::Error| Failure::NoServer(format!("{}: {e}", options.host));
    let seed = u64::from_le_bytes(random().map_err(here)?);
    show(&Progress { step: "connecting", ..Progress::default() });
    let mut test = Test {
        options,
        clock,
        show,
        block: load::random_block(seed),
        seed,
        unix: clock.with_unix(),
        rtt_min_ms: f64::INFINITY,
        bytes: 0,
        ended: None,
        beside: None,
    };
    if let Some(port) = options.probe {
        (test.show)(&Progress { step: "idle", ..Progress::default() });
        let loaded = (SETTLING + MEASURED + REST + SPARE) * parts(options).len() as u32;
        test.beside = Some(Beside::begin(options, port, loaded, clock, seed)?);
    }
    let mut recording = None;
    let mut found = Vec::new();
    for (number, seen::Part { phase, cc, .. }) in parts(options).into_iter().enumerate() {
        let control = match test.begin(phase, cc.as_deref(), number) {
            Ok(control) => control,
            Err(failure) if number == 0 => return Err(failure),
            Err(failure) => {
                test.ended = Some(failure.to_string());
                break;
            }
        };
        if number == 0 {
            recording = recorder.take().map(|recorder| recorder.begin(control.server.ip()));
        }
        found.push(test.part(control, phase, cc));
        if let (Some(beside), Some(part)) = (&mut test.beside, found.last()) {
            beside.loaded(part.load(), part.measured.map_or(0, |(_, until)| until));
        }
        if test.ended.is_some() {
            break;
        }
    }
    let mut rng = Rng::new(seed, "bootstrap");
    let probed = test.beside.take().map(|beside| {
        let handshakes = found.iter().flat_map(|part| part.handshakes.clone()).collect();
        beside.end(REST, handshakes, test.unix, test.ended.clone(), &mut rng)
    });
    let capture = recording.map(Recording::end);
    let mut outcome = Outcome {
        complete: test.ended.is_none(),
        ended: test.ended.clone(),
        rtt_min_ms: test.rtt_min_ms.is_finite().then_some(test.rtt_min_ms),
        clock_skew_ppm: None,
        path_changed: false,
        hops: Vec::new(),
        phases: found.iter().filter_map(|part| test.outcome(part, &mut rng)).collect(),
        idle: None,
        capture,
        samples: None,
    };
    if let Some(probed) = probed {
        merge(&mut outcome, probed);
    }
    Ok(outcome)
}

struct Test<'a> {
    options: &'a Options,
    clock: Clock,
    show: &'a mut dyn FnMut(&Progress),
    block: Arc<[u8]>,
    seed: u64,
    /// The same moment on the client's clock and in Unix time, ns.
    unix: (i64, i64),
    /// Of all connections.
    rtt_min_ms: f64,
    bytes: u64,
    ended: Option<String>,
    /// Probes to a server of irtt.
    beside: Option<Beside>,
}

impl Test<'_> {
    fn streams(&self) -> usize {
        self.options.streams.unwrap_or(STREAMS)
    }

    /// Has the server begin a test; the first one at once or not at all.
    fn begin(&mut self, phase: Phase, cc: Option<&str>, number: usize) -> Result<Control, Failure> {
        let wanted = Parameters {
            streams: self.streams(),
            down: phase == Phase::Down,
            both: phase == Phase::Both,
            // The client ends it before.
            seconds: (SETTLING + MEASURED + REST).as_secs(),
            cc,
        };
        let mut attempts = if number == 0 { 1 } else { ATTEMPTS };
        if number > 0 {
            thread::sleep(REST);
        }
        loop {
            attempts -= 1;
            let found = connect(&self.options.host, PORT).and_then(|socket| {
                let rtt_us = info(&socket).min_rtt_us;
                Ok((Control::begin(socket, &wanted)?, rtt_us))
            });
            match found {
                Ok((control, rtt_us)) => {
                    self.rtt_min_ms = self.rtt_min_ms.min(f64::from(rtt_us) / 1e3);
                    return Ok(control);
                }
                Err(failure) if attempts == 0 => return Err(failure),
                Err(_) => thread::sleep(AGAIN),
            }
        }
    }

    /// Opens the streams, those of uploads first: so the server knows which is which.
    fn open(
        &self,
        control: &Control,
        phase: Phase,
        cc: Option<&str>,
    ) -> std::io::Result<Vec<Open>> {
        let mut open = Vec::new();
        for direction in [Direction::Up, Direction::Down] {
            let wanted = phase.directions().contains(&direction);
            for _ in 0..if wanted { self.streams() } else { 0 } {
                let socket = control.stream()?;
                let why = prepare(&socket, cc, LOOK)?;
                let count = Arc::default();
                open.push(Open { direction, socket: socket.into(), count, why });
            }
        }
        Ok(open)
    }

    fn part(&mut self, mut control: Control, phase: Phase, cc: Option<String>) -> Part {
        let mut part = Part {
            phase,
            cc,
            measured: None,
            steady: false,
            handshakes: Vec::new(),
            down: Vec::new(),
            up: Vec::new(),
            streams: Vec::new(),
        };
        let opened = self.open(&control, phase, part.cc.as_deref());
        let open = match opened.map_err(|e| format!("a stream: {e}")).and_then(|open| {
            control.running().map_err(|failure| failure.to_string())?;
            Ok(open)
        }) {
            Ok(open) => open,
            Err(why) => {
                self.ended = Some(why);
                return part;
            }
        };
        let (stop_up, stop_down) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for one in &open {
            let (socket, count) = (Arc::clone(&one.socket), Arc::clone(&one.count));
            let (block, direction) = (Arc::clone(&self.block), one.direction);
            let stop = Arc::clone(if direction == Direction::Up { &stop_up } else { &stop_down });
            thread::spawn(move || match direction {
                Direction::Down => load::receive(&socket, &count, &stop),
                Direction::Up => load::send(&socket, &block, &count, &stop),
            });
        }
        let connector = Connector::begin(control.server, HANDSHAKES, self.clock, self.seed);
        let begun = Instant::now();
        self.watch(&mut control, &open, begun, &mut part);
        part.handshakes = connector.end();
        part.streams = open
            .iter()
            .filter(|one| one.direction == Direction::Up)
            .map(|one| Stream::new(one.direction, info(&one.socket), one.why.clone()))
            .collect();
        let bytes: Vec<u64> = open.iter().map(Open::bytes).collect();
        self.bytes += bytes.iter().sum::<u64>();
        stop_up.store(true, Relaxed);
        if self.ended.is_none() {
            // What is on its way to this host is still read meanwhile.
            let cc = open.first().map_or_else(String::new, |one| info(&one.socket).cc);
            let own = Results::of(&bytes, begun.elapsed().as_secs_f64(), &cc);
            let of_server = control.end(&own);
            part.streams.extend(of_server.iter().flat_map(|results| downloads(results, &open)));
        }
        stop_down.store(true, Relaxed);
        part
    }

    /// Lets the load run, and looks at it.
    fn watch(&mut self, control: &mut Control, open: &[Open], begun: Instant, part: &mut Part) {
        let mut settling = Settling::new(self.streams(), begun, SETTLING);
        let mut until = begun + SETTLING + MEASURED;
        while Instant::now() < until {
            thread::sleep(TICK);
            let of = |which| -> u64 {
                open.iter().filter(|one| one.direction == which).map(Open::bytes).sum()
            };
            let (down, up, now) = (of(Direction::Down), of(Direction::Up), self.clock.now());
            part.down.push((now, down));
            part.up.push((now, up));
            let left = until.saturating_duration_since(Instant::now());
            (self.show)(&Progress::of(part.phase.name(), left, &[], &part.down, &part.up));
            let bytes = down + up;
            let ended = settling.ended(bytes, self.bytes, self.options.max_bytes);
            self.ended = control.over().or_else(|| self.beside.as_ref()?.over()).or(ended);
            if let Some((_, end)) = &mut part.measured {
                *end = now;
            }
            if self.ended.is_some() {
                return;
            }
            if part.measured.is_none()
                && let Some(steady) = settling.measures(bytes)
            {
                (part.steady, part.measured) = (steady, Some((now, now)));
                until = Instant::now() + MEASURED;
            }
        }
    }

    /// The result of a phase; `None`: it was never measured.
    fn outcome(&self, part: &Part, rng: &mut Rng) -> Option<PhaseOutcome> {
        let (from, until) = part.measured?;
        let least =
            part.handshakes.iter().filter_map(|one| one.rtt_ms).fold(self.rtt_min_ms, f64::min);
        let delays: Vec<f64> = part
            .handshakes
            .iter()
            .filter(|one| from <= one.t1 && one.t1 < until)
            .map(|one| one.rtt_ms.map_or(f64::INFINITY, |ms| ms - least))
            .collect();
        let seconds = (until - from).max(1) as f64 / 1e9;
        let figures = Figures::of(&delays, delays.len() as f64 / seconds, rng);
        let verdict = figures
            .as_ref()
            .map_or_else(|| Verdict::None("no handshake began".to_owned()), Figures::verdict);
        let total_ms = least + figures.as_ref()?.p95.ms;
        let unix = |t: i64| (self.unix.1 + (t - self.unix.0)) as f64 / 1e9;
        let loads = |direction| part.phase.directions().contains(&direction);
        Some(PhaseOutcome {
            phase: part.phase.name(),
            congestion_control: part.cc.clone(),
            transport: Transport::Tcp,
            grade: Grade::new("rtt", &verdict),
            usability: usability(total_ms).words(),
            steady: part.steady,
            from_unix_s: unix(from),
            until_unix_s: unix(until),
            goodput_down_bps: goodput(&part.down, from, until).filter(|_| loads(Direction::Down)),
            goodput_up_bps: goodput(&part.up, from, until).filter(|_| loads(Direction::Up)),
            delay_down: None,
            delay_up: None,
            delay_rtt: figures.as_ref().map(Delay::from),
            handshakes: None,
            quic_probes: None,
            place: None,
            place_why: Some(PLACE_WHY.to_owned()),
            streams: part.streams.clone(),
        })
    }
}

/// What the server says of the streams that it sent.
fn downloads<'a>(results: &'a Results, open: &'a [Open]) -> impl Iterator<Item = Stream> + 'a {
    let cc = results.congestion_used.as_deref().map(printable).unwrap_or_default();
    let sent = results.streams.iter().zip(open);
    sent.filter(|(_, one)| one.direction == Direction::Down).map(move |(stream, _)| Stream {
        direction: Direction::Down.name(),
        congestion_control: cc.clone(),
        congestion_control_why: None,
        rtt_min_ms: None,
        rtt_ms: None,
        cwnd: None,
        retransmissions: stream.retransmissions(),
        lost_packets: None,
        congestion_events: None,
        retransmitted_share: None,
        share_rwnd: None,
        share_sndbuf: None,
    })
}
