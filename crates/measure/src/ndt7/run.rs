//! Leads a test of ndt7: a download and an upload, one after the other.

use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use algo::Rng;
use flow::diagnose::grade::usability;

use super::message::{Measurement, TcpInfo};
use super::stream::{End, Opened, open};
use super::url::Url;
use crate::channel::locked;
use crate::client::{Failure, Options, Progress, Recorder, Recording};
use crate::clock::Clock;
use crate::figures::{Figures, Verdict};
use crate::load::random_block;
use crate::outcome::{Delay, Grade, Outcome, PhaseOutcome, goodput};
use crate::seen::{Phase, Stream, Transport};
use crate::settling::{Settling, TICK};
use crate::socket::{info, sent};
use crate::tls::Trust;
use crate::wire::data::Direction;
use crate::wire::keys::random;

/// Length of a test from its handshake on: the specification's, or half of it; and how long goodput may settle in it.
const WHOLE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3));
const QUICK: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(1500));
/// A server's ten seconds may begin earlier, and it measures less often at its end.
const EARLY: Duration = Duration::from_secs(1);
/// Between two tests, in which the queue runs empty.
const REST: Duration = Duration::from_secs(2);
const GRADE_WHY: &str = "TCP's RTT is smoothed and of one stream, which is no probe";
const PLACE_WHY: &str = "a server of ndt7 has no probes of ours";

/// What one phase saw.
struct Part {
    direction: Direction,
    /// When measuring began and ended, on the client's clock.
    measured: Option<(i64, i64)>,
    steady: bool,
    /// Bytes that have arrived.
    counts: Vec<(i64, u64)>,
    /// RTT of the sender's kernel, ms.
    rtt_ms: Vec<(i64, f64)>,
    stream: Option<Stream>,
}

/// Whether every phase came to its end and has an RTT: there is never a grade.
pub fn is_whole(outcome: &Outcome) -> bool {
    outcome.complete && outcome.phases.iter().all(|phase| phase.delay_rtt.is_some())
}

/// Measures the path to a server of ndt7.
pub fn measure(
    options: &Options,
    url: &Url,
    trust: Trust,
    clock: Clock,
    mut recorder: Option<Recorder>,
    show: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Failure> {
    let here = |e: std::io::Error| Failure::NoServer(format!("{}: {e}", options.host));
    let seed = u64::from_le_bytes(random().map_err(here)?);
    let block = random_block(seed);
    show(&Progress { step: "connecting", ..Progress::default() });
    let mut test = Test {
        options,
        clock,
        show,
        unix: clock.with_unix(),
        rtt_min_ms: f64::INFINITY,
        bytes: 0,
        ended: None,
    };
    let (mut recording, mut found) = (None, Vec::new());
    for (number, phase) in options.phases.iter().enumerate() {
        if number > 0 {
            thread::sleep(REST);
        }
        for direction in phase.directions() {
            let opened = match open(url, trust, *direction, &block) {
                Ok(opened) => opened,
                Err(failure) if number == 0 => return Err(failure),
                Err(failure) => {
                    test.ended = Some(failure.to_string());
                    break;
                }
            };
            if let (true, Ok(server)) = (number == 0, opened.kernel.peer_addr()) {
                recording = recorder.take().map(|recorder| recorder.begin(server.ip()));
            }
            found.push(test.part(&opened, *direction));
        }
        if test.ended.is_some() {
            break;
        }
    }
    let capture = recording.map(Recording::end);
    let mut rng = Rng::new(seed, "bootstrap");
    Ok(Outcome {
        complete: test.ended.is_none(),
        ended: test.ended.clone(),
        rtt_min_ms: test.rtt_min_ms.is_finite().then_some(test.rtt_min_ms),
        clock_skew_ppm: None,
        path_changed: false,
        hops: Vec::new(),
        idle: None,
        phases: found.iter().filter_map(|part| test.outcome(part, &mut rng)).collect(),
        capture,
        samples: None,
    })
}

struct Test<'a> {
    options: &'a Options,
    clock: Clock,
    show: &'a mut dyn FnMut(&Progress),
    /// The same moment on the client's clock and in Unix time, ns.
    unix: (i64, i64),
    /// Of all connections.
    rtt_min_ms: f64,
    bytes: u64,
    ended: Option<String>,
}

impl Test<'_> {
    /// Lets the load run, and looks at it.
    fn part(&mut self, opened: &Opened, direction: Direction) -> Part {
        let mut part = Part {
            direction,
            measured: None,
            steady: false,
            counts: Vec::new(),
            rtt_ms: Vec::new(),
            stream: None,
        };
        let (length, settling) = if self.options.quick { QUICK } else { WHOLE };
        let mut settled = Settling::new(1, opened.begun, settling);
        let before = info(&opened.kernel).acked;
        let begun = self.clock.now() - opened.begun.elapsed().as_nanos() as i64;
        while opened.begun.elapsed() < length && self.ended.is_none() {
            thread::sleep(TICK);
            let (now, kernel) = (self.clock.now(), info(&opened.kernel));
            let bytes = match direction {
                Direction::Down => opened.seen.received.load(std::sync::atomic::Ordering::Relaxed),
                Direction::Up => kernel.acked.saturating_sub(before),
            };
            let ended = locked(&opened.seen.ended).clone();
            let elapsed = opened.begun.elapsed();
            if let Some(end) = ended {
                let why = match end {
                    _ if elapsed + EARLY >= length && part.measured.is_some() => None,
                    End::Closed if part.measured.is_some() => None,
                    End::Closed => Some("the server ended the test at once".to_owned()),
                    End::Broken(why) => Some(why),
                };
                self.ended = why;
                break;
            }
            part.counts.push((now, bytes));
            if direction == Direction::Up && kernel.rtt_us > 0 {
                part.rtt_ms.push((now, f64::from(kernel.rtt_us) / 1e3));
            }
            let left = length.saturating_sub(elapsed);
            let (down, up): (&[_], &[_]) = match direction {
                Direction::Down => (&part.counts, &[]),
                Direction::Up => (&[], &part.counts),
            };
            (self.show)(&Progress::of(direction.name(), left, &[], down, up));
            self.ended = settled.ended(bytes, self.bytes, self.options.max_bytes);
            if let Some((_, end)) = &mut part.measured {
                *end = now;
            } else if let Some(steady) = settled.measures(bytes) {
                (part.steady, part.measured) = (steady, Some((now, now)));
            }
        }
        let own_min_us = info(&opened.kernel).min_rtt_us;
        if 0 < own_min_us && own_min_us < u32::MAX {
            self.rtt_min_ms = self.rtt_min_ms.min(f64::from(own_min_us) / 1e3);
        }
        self.bytes += part.counts.last().map_or(0, |(_, bytes)| *bytes);
        let said: Vec<(Instant, Measurement)> = locked(&opened.seen.said).clone();
        part.stream = match direction {
            Direction::Up => Some(sender(&opened.kernel)),
            Direction::Down => {
                let mut of_server = said.iter().filter_map(|(at, said)| Some((*at, said.tcp?)));
                for (at, tcp) in of_server.clone() {
                    // What waited in the queue was true earlier.
                    let arrived = at.saturating_duration_since(opened.begun).as_nanos() as i64;
                    let elapsed = tcp.elapsed_time.map_or(arrived, |us| (us * 1e3) as i64);
                    if let Some(us) = tcp.rtt {
                        part.rtt_ms.push((begun + elapsed.min(arrived), us / 1e3));
                    }
                    let least = tcp.min_rtt.map_or(f64::INFINITY, |us| us / 1e3);
                    self.rtt_min_ms = self.rtt_min_ms.min(least);
                }
                of_server.next_back().map(|(_, tcp)| of_server_stream(&tcp))
            }
        };
        // What still waits at either end is thrown away.
        let _ = opened.kernel.shutdown(Shutdown::Both);
        part
    }

    /// The result of a phase; `None`: it was never measured.
    fn outcome(&self, part: &Part, rng: &mut Rng) -> Option<PhaseOutcome> {
        let (from, until) = part.measured?;
        let within = part.rtt_ms.iter().filter(|(at, _)| from <= *at && *at <= until);
        let delays: Vec<f64> = within.map(|(_, ms)| (ms - self.rtt_min_ms).max(0.0)).collect();
        let seconds = (until - from).max(1) as f64 / 1e9;
        let figures = Figures::of(&delays, delays.len() as f64 / seconds, rng);
        let unix = |t: i64| (self.unix.1 + (t - self.unix.0)) as f64 / 1e9;
        let bps = |which| goodput(&part.counts, from, until).filter(|_| part.direction == which);
        let usability = figures
            .as_ref()
            .map_or_else(String::new, |f| usability(self.rtt_min_ms + f.p95.ms).words());
        let phase = match part.direction {
            Direction::Down => Phase::Down,
            Direction::Up => Phase::Up,
        };
        Some(PhaseOutcome {
            phase: phase.name(),
            transport: Transport::Tcp,
            congestion_control: None,
            grade: Grade::new("rtt", &Verdict::None(GRADE_WHY.to_owned())),
            usability,
            steady: part.steady,
            from_unix_s: unix(from),
            until_unix_s: unix(until),
            goodput_down_bps: bps(Direction::Down),
            goodput_up_bps: bps(Direction::Up),
            delay_down: None,
            delay_up: None,
            delay_rtt: figures.as_ref().map(Delay::from),
            handshakes: None,
            quic_probes: None,
            place: None,
            place_why: Some(PLACE_WHY.to_owned()),
            streams: part.stream.iter().cloned().collect(),
        })
    }
}

/// What this end's kernel says of the stream that it sent.
fn sender(kernel: &TcpStream) -> Stream {
    let share = sent(kernel).filter(|(all, _)| *all > 0);
    Stream {
        retransmitted_share: share.map(|(all, again)| again as f64 / all as f64),
        ..Stream::new(Direction::Up, info(kernel), None)
    }
}

/// What the server says of the stream that it sent.
fn of_server_stream(tcp: &TcpInfo) -> Stream {
    let share = |part: Option<f64>, whole: Option<f64>| {
        Some(part? / whole.filter(|whole| *whole > 0.0)?).map(|share| share.min(1.0))
    };
    Stream {
        direction: Direction::Down.name(),
        // It does not name it.
        congestion_control: String::new(),
        congestion_control_why: None,
        rtt_min_ms: tcp.min_rtt.map(|us| us / 1e3),
        rtt_ms: tcp.rtt.map(|us| us / 1e3),
        cwnd: None,
        retransmissions: None,
        lost_packets: None,
        congestion_events: None,
        retransmitted_share: share(tcp.bytes_retrans, tcp.bytes_sent),
        share_rwnd: share(tcp.r_wnd_limited, tcp.busy_time),
        share_sndbuf: share(tcp.snd_buf_limited, tcp.busy_time),
    }
}
