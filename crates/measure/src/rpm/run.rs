//! Leads a test: the configuration, the unloaded path, and each phase with its load and its probes until the rule ends it.
//!
//! tokio runs in this thread and nowhere else.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use algo::Rng;
use hyper::body::Bytes;
use rustls::pki_types::ServerName;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::configuration::Configuration;
use super::connection::{Server, Trouble, small};
use super::figure::{Kind, MINUTE_MS};
use super::load::Loaded;
use super::rule::{AVERAGED, Rule, Stage};
use super::seen::{Seen, foreign, own};
use super::{HTTPS, Look, Options, Outcome, PhaseOutcome, Variant};
use crate::channel::locked;
use crate::client::{Failure, connect};
use crate::load::{LOOK, random_block};
use crate::seen::Phase;
use crate::settling::limit_of_data;
use crate::tls;
use crate::wire::data::Direction;
use crate::wire::keys::random;

/// INP and INC: connections at the beginning, and more of them at each interval.
const ADDED: usize = 1;
/// MNP, of each direction.
const MAX_CONNECTIONS: usize = 16;
/// MPS: probes a second. Half of them have a connection of their own.
const MAX_PAIRS_PER_S: f64 = 50.0;
/// PTC: what probes may take of the path.
const PROBES_SHARE: f64 = 0.05;
/// Bytes of a pair, by the draft's estimate: 5000 with a connection of its own, 1000 on a loaded one.
const PAIR_BYTES: f64 = 6000.0;
/// Probes with a connection of their own under way at a time. Servers limit the connections of a client; ours has 256.
const MAX_OPEN: usize = 150;
/// Probes of the unloaded path. The least of their handshakes is its RTT.
const UNLOADED: usize = 5;
/// Without a byte of a load for so long, the path or the server is gone: the dead-man timer of our own protocol.
const DEAD: Duration = Duration::from_secs(3);
/// Between two phases: connections end, and the queue runs empty.
const REST: Duration = Duration::from_secs(2);

/// Measures the responsiveness of the path to a server.
pub fn measure(options: &Options, show: &mut dyn FnMut(&Look)) -> Result<Outcome, Failure> {
    let here = |e: std::io::Error| Failure::NoServer(format!("{}: {e}", options.url.text));
    let seed = u64::from_le_bytes(random().map_err(here)?);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(here)?;
    runtime.block_on(Test::new(options, seed, show)?.lead())
}

struct Test<'a> {
    options: &'a Options,
    show: &'a mut dyn FnMut(&Look),
    server: Server,
    block: Bytes,
    rng: Rng,
    bytes: u64,
}

impl<'a> Test<'a> {
    fn new(
        options: &'a Options,
        seed: u64,
        show: &'a mut dyn FnMut(&Look),
    ) -> Result<Test<'a>, Failure> {
        let server = server_at(options, &options.url.host, options.url.port, &options.url.host)?;
        let block = Bytes::from_owner(random_block(seed));
        Ok(Test { options, show, server, block, rng: Rng::new(seed, "probes"), bytes: 0 })
    }

    async fn lead(mut self) -> Result<Outcome, Failure> {
        let failed = |why: Trouble| failure(&self.options.url.text, why);
        let url = self.options.url.uri.clone();
        let text = {
            let mut connection = self.server.open(&()).await.map_err(failed)?;
            small(&mut connection.requests, &url).await.map_err(failed)?
        };
        let configuration =
            Configuration::of(&text).map_err(|e| Failure::Refused(e.to_string()))?;
        let authority = &configuration.authority;
        let (name, port) = (authority.host(), authority.port_u16().unwrap_or(HTTPS));
        let at = configuration.endpoint.as_deref().unwrap_or(name);
        self.server = server_at(self.options, at, port, name)?;
        let (rtt_ms, unloaded_rpm) = self.unloaded(&configuration).await.map_err(failed)?;
        let mut outcome = Outcome {
            url: self.options.url.text.clone(),
            unloaded_rtt_ms: rtt_ms,
            unloaded_rpm,
            complete: true,
            ended: None,
            phases: Vec::new(),
        };
        for variant in &self.options.variants {
            for phase in &self.options.phases {
                if !outcome.phases.is_empty() {
                    sleep(REST).await;
                }
                let (found, ended) = self.phase(&configuration, *phase, variant).await;
                outcome.phases.push(found);
                if ended.is_some() {
                    (outcome.complete, outcome.ended) = (false, ended);
                    return Ok(outcome);
                }
            }
        }
        Ok(outcome)
    }

    /// RTT and responsiveness of the path without a load: the second has no probe on a loaded connection.
    async fn unloaded(
        &mut self,
        to: &Configuration,
    ) -> Result<(Option<f64>, Option<f64>), Trouble> {
        let seen = Seen::new();
        for _ in 0..UNLOADED {
            foreign(&self.server, to, &seen).await?;
        }
        let trips = locked(&seen.trips);
        let foreign_ms = trips.figure(0.0, f64::MAX).foreign_ms();
        Ok((trips.least_ms(Kind::Tcp), foreign_ms.map(|ms| MINUTE_MS / ms)))
    }

    /// One phase, and why the test cannot go on after it.
    async fn phase(
        &mut self,
        to: &Configuration,
        phase: Phase,
        variant: &Variant,
    ) -> (PhaseOutcome, Option<String>) {
        let directions = phase.directions();
        let (seen, mut tasks) = (Seen::new(), JoinSet::new());
        let mut rule = Rule::new(directions.len(), variant.stage_intervals);
        let mut counts = vec![(0.0, vec![0; directions.len()])];
        let window_s = AVERAGED as f64 * variant.interval.as_secs_f64();
        let mut launched = Launched { next: Instant::now(), foreign: true };
        let mut alive = (0, Instant::now());
        let mut ended = None;
        let figure = loop {
            for direction in directions {
                for _ in 0..ADDED {
                    self.add(to, *direction, &seen, &mut tasks);
                }
            }
            let until = seen.begun + variant.interval * counts.len() as u32;
            while Instant::now() < until && ended.is_none() {
                let rate_bps = self.look(phase, variant, &seen, &rule);
                let next = (Instant::now() + LOOK).min(until);
                self.probe_until(next, rate_bps, to, &seen, &mut launched, &mut tasks).await;
                ended = locked(&seen.ended).clone();
                let bytes = seen.bytes(None);
                if bytes > alive.0 {
                    alive = (bytes, Instant::now());
                } else if ended.is_none() && alive.1.elapsed() > DEAD {
                    let silent = DEAD.as_secs();
                    ended = Some(format!("nothing came through for {silent} s ({})", phase.name()));
                }
                ended = ended.or_else(|| limit_of_data(self.bytes + bytes, self.options.max_bytes));
            }
            let now_s = seen.now_s();
            let figure = locked(&seen.trips).figure(now_s - window_s, now_s);
            if ended.is_some() {
                break figure;
            }
            counts.push((now_s, directions.iter().map(|one| seen.bytes(Some(*one))).collect()));
            let last: Vec<f64> = (0..directions.len()).map(|at| rate_bps(&counts, 1, at)).collect();
            if rule.interval(&last, figure.rpm()) == Stage::Over {
                break figure;
            }
        };
        tasks.abort_all();
        self.bytes += seen.bytes(None);
        let goodput = |which: Direction| {
            let at = directions.iter().position(|direction| *direction == which)?;
            (counts.len() > 1).then(|| rate_bps(&counts, AVERAGED, at))
        };
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let found = PhaseOutcome {
            phase: phase.name(),
            variant: variant.name,
            interval_s: variant.interval.as_secs_f64(),
            rpm: figure.rpm(),
            rpm_of_mean: figure.rpm_of_mean(),
            confidence: rule.confidence(),
            figure,
            goodput_down_bps: goodput(Direction::Down),
            goodput_up_bps: goodput(Direction::Up),
            goodput_confidence: rule.goodput_confidence(),
            failed: seen.failed.load(Relaxed),
            connections: locked(&seen.loads).len(),
            seconds: seen.now_s(),
            from_unix_s: real - window_s.min(seen.now_s()),
            until_unix_s: real,
        };
        (found, ended)
    }

    /// One more connection with a load, as soon as it is open, where there may be one.
    fn add(
        &self,
        to: &Configuration,
        direction: Direction,
        seen: &Arc<Seen>,
        tasks: &mut JoinSet<()>,
    ) {
        let opened = &seen.opened[direction as usize];
        if opened.fetch_add(1, Relaxed) >= MAX_CONNECTIONS {
            return;
        }
        let url = if direction == Direction::Down { &to.large } else { &to.upload }.clone();
        let (server, block, seen) = (self.server.clone(), self.block.clone(), Arc::clone(seen));
        tasks.spawn(async move {
            let run = async {
                let connection = server.open(&()).await?;
                let (load, run) = Loaded::begin(connection, direction, url, block);
                locked(&seen.loads).push(load);
                run.await
            };
            if let Err(why) = run.await {
                seen.end("a load", &why);
            }
        });
    }

    /// Looks after the loads, and shows what is known; the rate of all loads together so far, bit/s.
    fn look(&mut self, phase: Phase, variant: &Variant, seen: &Seen, rule: &Rule) -> f64 {
        locked(&seen.loads).iter().for_each(Loaded::look);
        let (now_s, interval_s) = (seen.now_s(), variant.interval.as_secs_f64());
        let rate = |which| seen.bytes(Some(which)) as f64 * 8.0 / now_s;
        let (down_bps, up_bps) = (rate(Direction::Down), rate(Direction::Up));
        let has = |which| phase.directions().contains(&which);
        let from_s = now_s - AVERAGED as f64 * interval_s;
        (self.show)(&Look {
            step: phase.name(),
            variant: variant.name,
            rpm: locked(&seen.trips).figure(from_s, now_s).rpm(),
            down_bps: has(Direction::Down).then_some(down_bps),
            up_bps: has(Direction::Up).then_some(up_bps),
            left_s: (rule.intervals_left() as f64 * interval_s - now_s % interval_s).max(0.0),
        });
        down_bps + up_bps
    }

    /// Sends probes, of both kinds in turn, until then.
    async fn probe_until(
        &mut self,
        until: Instant,
        rate_bps: f64,
        to: &Configuration,
        seen: &Arc<Seen>,
        launched: &mut Launched,
        tasks: &mut JoinSet<()>,
    ) {
        let pairs_per_s = (PROBES_SHARE * rate_bps / (8.0 * PAIR_BYTES)).min(MAX_PAIRS_PER_S);
        // At a rate of nothing there is none.
        let gap = Duration::try_from_secs_f64(0.5 / pairs_per_s).unwrap_or(Duration::MAX);
        loop {
            let next = launched.next.checked_add(gap).unwrap_or(until).max(Instant::now());
            if next >= until {
                break;
            }
            sleep_until(next.into()).await;
            launched.next = next;
            launched.foreign = !launched.foreign;
            let (seen, to) = (Arc::clone(seen), to.clone());
            if !launched.foreign {
                if let Some(requests) = seen.any_load(&mut self.rng) {
                    tasks.spawn(own(requests, to, seen));
                }
            } else if seen.open.load(Relaxed) < MAX_OPEN {
                seen.open.fetch_add(1, Relaxed);
                let server = self.server.clone();
                tasks.spawn(async move {
                    if let Err(why) = foreign(&server, &to, &seen).await {
                        seen.end("a probe", &why);
                    }
                    seen.open.fetch_sub(1, Relaxed);
                });
            }
        }
        sleep_until(until.into()).await;
        while tasks.try_join_next().is_some() {}
    }
}

/// The latest probe.
struct Launched {
    next: Instant,
    foreign: bool,
}

/// Goodput of a direction in the last intervals, of counts at their ends, bit/s.
fn rate_bps(counts: &[(f64, Vec<u64>)], intervals: usize, direction: usize) -> f64 {
    let (until_s, now) = &counts[counts.len() - 1];
    let (from_s, before) = &counts[counts.len().saturating_sub(1 + intervals)];
    // TCP counts what is acknowledged of each connection, and never takes it back.
    now[direction].saturating_sub(before[direction]) as f64 * 8.0 / (until_s - from_s)
}

/// A server at the first address of a host that answers.
fn server_at(options: &Options, host: &str, port: u16, name: &str) -> Result<Server, Failure> {
    let own = connect(host, port)?;
    let address = own.peer_addr().map_err(|e| Failure::NoServer(format!("{host}: {e}")))?;
    let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned())
        .map_err(|_| Failure::NoServer(format!("{name}: no name of a host")))?;
    let config =
        tls::http_client(options.trust).map_err(|e| Failure::Untrusted(format!("{host}: {e}")))?;
    Ok(Server::new(address, name, config))
}

fn failure(url: &str, why: Trouble) -> Failure {
    match &why {
        // rustls gives its errors to the socket's.
        Trouble::Socket(e) if e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
            Failure::Untrusted(format!("{url}: {why}"))
        }
        Trouble::Busy(_)
        | Trouble::Status(..)
        | Trouble::NoHttp2
        | Trouble::TooLong
        | Trouble::Early => Failure::Refused(why.to_string()),
        _ => Failure::NoServer(format!("{url}: {why}")),
    }
}
