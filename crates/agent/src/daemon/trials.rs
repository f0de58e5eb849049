//! Trials of the cures of this host: does a cure cost goodput? One trial for each flow under
//! ACK-window rewriting, and one for each cure that cannot be lifted flow by flow.
//!
//! signal: bytes that arrived, counted only while a trial is due and data flows · model: [`Trial`] ·
//! action: a cure is lifted for a moment, put back or withdrawn, with a line in the log that says
//! what to do about it. Trials of one cure take turns: flows that share a path are not lifted
//! together, and as much time passes between trials of two flows as between two of one flow.
//!
//! Lifted windows permit the RTT of the span before plus a little ([`PathState`]), at the
//! rate of each moment. A full link then gets that delay and no more. A flow that its window limits
//! gains with every round trip, since its rate widens the window again. The gate permits as much
//! more delay; beside ACK-window rewriting, whose windows bound the queue, it is open.
//!
//! This host's downloads are lifted together, and judged by their sum. The program on sockets has no
//! table of flows that go without it, and a trial of one flow would say less here. Downloads of one
//! host share a queue: a lifted flow fills it for all, and takes its gain from the others. A single
//! flow that loses while others fill the link is not seen.

mod path_state;
mod subject;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use units::Instant;

use self::path_state::{PathState, path};
use self::subject::Key;
use super::cures::Cures;
use crate::cures::flow::is_under_way;
use crate::cures::receive::Ends;
use crate::cures::trial::{Action, Config, Stage, Trial, risen};
use crate::cures::{Cure, Extent, Lifted, Result, address, now_ns};
use crate::kernel::layouts::acks::{Direction, Flow};
use crate::status::TrialStatus;

/// Between two looks during a trial: several in each of its spans.
const LOOK: Duration = Duration::from_millis(250);
/// Between two looks for flows that are new.
const DISCOVER: Duration = Duration::from_secs(2);
/// A flow that has carried fewer bytes so far has no trial.
const WORTH: u64 = 1 << 18;
/// Flows that trials cover at the same time.
const MAX_FLOWS: usize = 256;
/// Goodput is not measured over less than this.
const FALLEN_NS: u64 = 1_000_000_000;
/// Looks take at most one part in so many of the time.
const SHARE: u32 = 50;

/// What is tried.
struct Seen {
    key: Key,
    /// Its bytes, and those of all that share its path.
    own: u64,
    all: u64,
    /// Whether the cure limits it.
    limits: bool,
    path: Option<PathState>,
}

/// What windows of this host's downloads do while a trial runs.
#[derive(Default)]
struct Windows {
    /// They limit flows that carry at least half of the downloads.
    limit: bool,
    /// Of more than a tenth they are still open from the time without the cure.
    open: bool,
    path: Option<PathState>,
}

struct One {
    trial: Trial,
    /// As of the last look: its own bytes, and when that was.
    bytes: u64,
    at: Instant,
    /// There was progress since the look before.
    moves: bool,
    /// The path with the cure, before the span without it.
    before: Option<PathState>,
}

pub struct Trials {
    config: Option<Config>,
    each: BTreeMap<Key, One>,
    /// Of each cure, when another of its trials may begin.
    next: BTreeMap<&'static str, Instant>,
    /// Bytes of each connection of this host, and of all since the begin.
    received: (HashMap<Ends, u64>, u64),
    /// What had passed when it was last asked whether anything flows.
    passed: [u64; 3],
    looked: Instant,
    discovered: Instant,
    took: Duration,
}

impl One {
    /// Takes the path's state: before the lift as a mean, and afterwards to compare with that.
    fn follow(&mut self, now: Option<PathState>) {
        if !self.trial.measures_without() {
            self.before = match (self.before, now) {
                (Some(before), Some(now)) => Some(before.towards(now)),
                (before, now) => now.or(before),
            };
        }
        // Where nothing is known of the RTT it may have risen.
        let delayed = self
            .before
            .zip(now)
            .is_none_or(|(b, now)| risen(b.rtt_us, b.permitted_us(), now.rtt_us));
        self.trial.delay(delayed);
    }

    /// Counts its bytes; whether it carries less than a quarter of its goodput in the last trial.
    fn look(&mut self, now: Instant, own: u64) -> bool {
        let (before, at) =
            (std::mem::replace(&mut self.bytes, own), std::mem::replace(&mut self.at, now));
        let (more, over) = (own.saturating_sub(before), now.since(at).0);
        self.moves = more > 0;
        let rate = u128::from(more) * 1_000_000_000 / u128::from(over.max(1));
        over >= FALLEN_NS && self.trial.last().is_some_and(|last| rate * 4 < u128::from(last.with))
    }
}

/// Bytes of one flow in the directions that are held, and whether any is.
fn held(flow: &Flow, cures: &Cures) -> (u64, bool) {
    let ups = !cures.controller.gated(&cures.attached);
    let (down, up) = (&flow.down, &flow.up);
    let down_held = down.target > 0 && down.rewritten > 0 && flow.local == 0;
    let up_held = ups && up.target > 0 && up.rewritten > 0;
    let bytes = if down_held { down.passed } else { 0 } + if up_held { up.passed } else { 0 };
    (bytes, down_held || up_held)
}

/// Whether a rewritten window is full, so that it limits the flow: as in `status`, and only while
/// data arrives.
fn full(flow: &Flow, now: Instant) -> bool {
    let rtt_us = u64::from(flow.outer.rtt_us) + u64::from(flow.inner.rtt_us);
    let fills = |way: &Direction| {
        let in_flight = u128::from(way.law.rate) * u128::from(rtt_us) / 1_000_000;
        let comes = is_under_way(now.0.saturating_sub(way.begun_ns) / 1_000_000, rtt_us);
        way.target > 0 && way.rewritten > 0 && comes && in_flight * 5 >= u128::from(way.target) * 4
    };
    fills(&flow.up) || flow.local == 0 && fills(&flow.down)
}

/// Whether a window is still open from the time without the cure: a quarter more than wanted.
fn open(flow: &Flow) -> bool {
    let far = |way: &Direction| {
        way.rewritten > 0 && way.advertised > way.target.saturating_add(way.target / 4)
    };
    far(&flow.up) || flow.local == 0 && far(&flow.down)
}

impl Trials {
    /// Without a configuration there are none.
    pub fn new(config: Option<Config>) -> Trials {
        Trials {
            config,
            each: BTreeMap::new(),
            next: BTreeMap::new(),
            received: (HashMap::new(), 0),
            passed: [0; 3],
            looked: Instant::ZERO,
            discovered: Instant::ZERO,
            took: Duration::ZERO,
        }
    }

    /// Other constants: what is lifted comes back, and all starts again.
    pub fn set(&mut self, config: Option<Config>, cures: &mut Cures) {
        if self.config != config {
            self.end(cures);
            *self = Trials::new(config);
        }
    }

    /// Nothing is lifted any more.
    pub fn end(&mut self, cures: &mut Cures) {
        for (key, one) in std::mem::take(&mut self.each) {
            if one.trial.lifted() {
                // A cure that has gone meanwhile needs nothing.
                let _ = lift(&key, Extent::None, None, cures);
            }
        }
    }

    /// Until when nothing need be done.
    pub fn wait(&self) -> Option<Duration> {
        let trying = self.each.values().any(|one| one.trial.stage() == Stage::Trying);
        let looks = self.each.values().filter_map(|one| one.trial.next_look());
        let next = looks.filter(|look| *look > self.looked).min();
        let due = next.map_or(Duration::MAX, |at| Duration::from_nanos(at.since(self.looked).0));
        trying.then(|| LOOK.max(self.pause()).min(due))
    }

    /// Of many flows a look takes its time, whether one is tried or only due.
    fn pause(&self) -> Duration {
        self.took.saturating_mul(SHARE)
    }

    /// To be called at least twice a second; lines for the log.
    pub fn tick(&mut self, cures: &mut Cures) -> Vec<String> {
        let now = Instant(now_ns());
        if self.config.is_none() || cures.lifted {
            return Vec::new();
        }
        let pause = Duration::from_nanos(now.since(self.looked).0);
        if pause < self.wait().unwrap_or_else(|| self.pause())
            || !self.flows(cures) && self.wait().is_none()
        {
            return Vec::new();
        }
        let begun = std::time::Instant::now();
        self.looked = now;
        let outcome = self.look(now, cures);
        self.took = begun.elapsed();
        match outcome {
            Ok(said) => said,
            Err(e) => vec![format!("trials: {e}")],
        }
    }

    /// Whether anything moved since it was last asked.
    fn flows(&mut self, cures: &Cures) -> bool {
        let acks = cures.attached.acks.as_ref().and_then(|acks| acks.counters().ok());
        let received = cures.attached.receive.as_ref().and_then(|receive| receive.counters().ok());
        let passed = [
            acks.map_or(0, |c| c.down_bytes + c.up_bytes),
            received.map_or(0, |c| c.samples),
            moved(cures).unwrap_or(0),
        ];
        std::mem::replace(&mut self.passed, passed) != passed
    }

    fn look(&mut self, now: Instant, cures: &mut Cures) -> Result<Vec<String>> {
        let Some(config) = self.config else { return Ok(Vec::new()) };
        let discover = Duration::from_nanos(now.since(self.discovered).0) >= DISCOVER;
        if discover {
            self.discovered = now;
        }
        let due = |trials: &Trials, cure: &str| {
            trials.each.iter().any(|(key, one)| key.cure() == cure && one.trial.due(now))
        };
        let mut seen: Vec<Seen> = Vec::new();
        let mut opened = Vec::new();
        if cures.attached.receive.is_some() && (discover || due(self, "receive")) {
            self.receive(cures)?;
            let Windows { limit: limits, open, path } = self.windows(cures)?;
            let own = self.received.1;
            seen.push(Seen { key: Key::Receive, own, all: own, limits, path });
            opened.extend(open.then_some(Key::Receive));
        }
        if cures.controller.gated(&cures.attached)
            && let Some(bytes) = moved(cures)
        {
            let (key, limits) = (Key::Gate, false);
            seen.push(Seen { key, own: bytes, all: bytes, limits, path: None });
        } else if let Some(one) = self.each.remove(&Key::Gate)
            && one.trial.lifted()
        {
            cures.controller.lift_gate(Extent::None, &mut cures.attached)?;
        }
        let walks = discover || due(self, "acks");
        if walks {
            let (passing, open) = self.passing(now, cures)?;
            seen.extend(passing);
            opened.extend(open);
        }
        let mut said = Vec::new();
        for Seen { key, own, all, limits, path } in seen {
            let one = self.each.entry(key).or_insert_with(|| One {
                trial: Trial::new(config, now),
                bytes: own,
                at: now,
                moves: false,
                before: None,
            });
            // On a path that became longer the windows are too small, and the next trial may be half
            // an hour away.
            if one.look(now, own) && limits {
                one.trial.suspect(now);
            }
            let begins = one.trial.stage() == Stage::Resting;
            let waits = !one.moves || self.next.get(key.cure()).is_some_and(|next| now < *next);
            if begins && (waits || self.tries(&key)) {
                continue;
            }
            let alone = self.each.values().filter(|one| one.moves).count() <= 1;
            let Some(one) = self.each.get_mut(&key) else { continue };
            one.trial.settle(!opened.contains(&key));
            one.trial.hold(limits);
            one.follow(path);
            let judging = one.trial.judging();
            let action = one.trial.on_shared_progress(now, own, all);
            if judging && one.trial.stage() == Stage::Resting {
                said.push(kept(&key, &one.trial));
            }
            if begins && one.trial.stage() == Stage::Trying {
                self.next.insert(key.cure(), Instant(now.0.saturating_add(config.every.0)));
            }
            said.extend(act(&key, action, one, alone, now, cures)?);
        }
        Ok(said)
    }

    /// Whether another of its cure is being tried.
    fn tries(&self, key: &Key) -> bool {
        let others =
            self.each.iter().filter(|(other, _)| *other != key && other.cure() == key.cure());
        others.into_iter().any(|(_, one)| one.trial.stage() == Stage::Trying)
    }

    /// Adds up what this host's connections received. One that ended keeps what it had.
    fn receive(&mut self, cures: &mut Cures) -> Result<()> {
        let Some(receive) = &mut cures.attached.receive else { return Ok(()) };
        let (before, sum) = (std::mem::take(&mut self.received.0), &mut self.received.1);
        for (ends, bytes) in receive.received()? {
            let had = before.get(&ends).copied().unwrap_or(bytes);
            *sum += bytes.saturating_sub(had);
            self.received.0.insert(ends, bytes);
        }
        Ok(())
    }

    /// Looks at the windows of this host's downloads while a trial runs.
    fn windows(&self, cures: &mut Cures) -> Result<Windows> {
        let trying =
            self.each.get(&Key::Receive).is_some_and(|one| one.trial.stage() == Stage::Trying);
        let Some(receive) = cures.attached.receive.as_mut().filter(|_| trying) else {
            return Ok(Windows::default());
        };
        let (mut all, mut held, mut open) = (0_u64, 0_u64, 0_u64);
        let flows = receive.flows()?;
        let under_way = flows.iter().filter(|flow| flow.under_way());
        for flow in under_way.clone() {
            all = all.saturating_add(flow.rate);
            held = held.saturating_add(if flow.full() { flow.rate } else { 0 });
            let far = flow.advertised > flow.wanted.saturating_add(flow.wanted / 4);
            open = open.saturating_add(if far { flow.rate } else { 0 });
        }
        let path = PathState::mean(under_way);
        Ok(Windows { limit: held > 0 && held >= all / 2, open: open > all / 10, path })
    }

    /// Forwarded flows with rewritten windows, with their bytes and those of all; and the flows whose
    /// windows are above target.
    fn passing(&mut self, now: Instant, cures: &mut Cures) -> Result<(Vec<Seen>, Vec<Key>)> {
        let Some(acks) = &mut cures.attached.acks else {
            self.each.retain(|key, _| key.cure() != "acks");
            return Ok((Vec::new(), Vec::new()));
        };
        let count = acks.counters()?;
        let ups = if cures.controller.gated(&cures.attached) { 0 } else { count.up_bytes };
        let all = count.down_bytes + ups;
        let flows: BTreeMap<Key, Flow> = cures
            .attached
            .acks
            .as_mut()
            .map(|acks| acks.flows())
            .unwrap_or_default()
            .iter()
            .map(|(key, flow)| (Key::of(key), *flow))
            .collect();
        let gone: Vec<Key> = self
            .each
            .keys()
            .filter(|key| key.cure() == "acks")
            .filter(|key| flows.get(key).is_none_or(|flow| !held(flow, cures).1))
            .copied()
            .collect();
        for key in gone {
            if self.each.remove(&key).is_some_and(|one| one.trial.lifted()) {
                lift(&key, Extent::None, None, cures)?;
            }
        }
        let free = MAX_FLOWS.saturating_sub(self.each.len());
        let fresh = |key: &Key| !self.each.contains_key(key);
        let known = flows.iter().filter(|(key, _)| !fresh(key));
        let new = flows
            .iter()
            .filter(|(key, flow)| fresh(key) && held(flow, cures).0 >= WORTH)
            .take(free);
        let seen = known
            .chain(new)
            .map(|(key, flow)| Seen {
                key: *key,
                own: held(flow, cures).0,
                all,
                limits: full(flow, now),
                path: path(flow),
            })
            .collect();
        Ok((seen, flows.iter().filter(|(_, flow)| open(flow)).map(|(key, _)| *key).collect()))
    }

    /// The state of every trial, for the status.
    pub fn report(&self) -> Vec<TrialStatus> {
        let shown = self.each.iter().map(|(key, one)| {
            let flow = key.flow();
            let last = one.trial.last();
            TrialStatus {
                cure: key.cure(),
                remote: flow.map(|flow| address(flow.outside)),
                remote_port: flow.map(|flow| u16::from_be(flow.outside_port)),
                local_port: flow.map(|flow| u16::from_be(flow.inside_port)),
                state: one.trial.stage(),
                with_bps: last.map(|last| last.with.saturating_mul(8)),
                without_bps: last.map(|last| last.without.saturating_mul(8)),
            }
        });
        shown.collect()
    }
}

/// Bytes that left the uplink's device, by the reports.
fn moved(cures: &Cures) -> Option<u64> {
    let attached = &cures.attached;
    attached
        .gate
        .as_ref()
        .map(|gate| gate.moved())
        .or_else(|| attached.shaper.as_ref().map(|shaper| shaper.moved()))
}

/// Lifts a cure so far, or lets it act again; `path`: as before the trial.
fn lift(key: &Key, how: Extent, path: Option<PathState>, cures: &mut Cures) -> Result<()> {
    match (key, key.flow()) {
        (Key::Receive, _) => {
            let Some(receive) = cures.attached.receive.as_mut() else { return Ok(()) };
            match (how, path) {
                (Extent::Rtt(us), Some(path)) => receive.permit(us, path.rtt_min_us),
                _ => receive.lift(Lifted::both(how != Extent::None)),
            }
        }
        (Key::Gate, _) => cures.controller.lift_gate(how, &mut cures.attached),
        (_, Some(flow)) => {
            // Beside ACK-window rewriting the gate acts on uploads too, while only the driver
            // reports: a trial that left it would not see what it costs.
            if !cures.controller.gated(&cures.attached) {
                let open = if how == Extent::None { Extent::None } else { Extent::Whole };
                cures.controller.lift_gate(open, &mut cures.attached)?;
            }
            cures.attached.acks.as_mut().map_or(Ok(()), |cure| cure.exempt(&flow, how))
        }
        _ => Ok(()),
    }
}

fn figures(trial: &Trial) -> Option<String> {
    let mbps = |bytes: u64| bytes as f64 * 8.0 / 1e6;
    trial.last().map(|last| {
        format!("{:.2} Mbit/s with, {:.2} without", mbps(last.with), mbps(last.without))
    })
}

/// The line of the log when a cure stays after its trial.
fn kept(key: &Key, trial: &Trial) -> String {
    match figures(trial).filter(|_| trial.concluded()) {
        Some(found) => format!("trial: {} cost nothing: {found}", key.words()),
        None => format!("trial: {} are back; too little arrived for a verdict", key.words()),
    }
}

fn act(
    key: &Key,
    action: Action,
    one: &One,
    alone: bool,
    now: Instant,
    cures: &mut Cures,
) -> Result<Option<String>> {
    let what = key.words();
    let found = figures(&one.trial).unwrap_or_default();
    Ok(Some(match action {
        Action::Keep => return Ok(None),
        Action::Lift => {
            let how = match (key, one.before) {
                // The gate needs no path: it has a target of its own.
                (Key::Gate, _) => Extent::Rtt(0),
                (_, Some(path)) => Extent::Rtt(path.permitted_us()),
                (_, None) => Extent::Whole,
            };
            lift(key, how, one.before, cures)?;
            format!("trial: {what} are lifted for a few seconds, to see whether they cost goodput")
        }
        Action::Restore => {
            lift(key, Extent::None, None, cures)?;
            match one.trial.stage() {
                Stage::Resting => kept(key, &one.trial),
                _ => format!("trial: {what} are back, to see whether goodput falls again"),
            }
        }
        Action::Withdraw(_) => {
            lift(key, Extent::Whole, None, cures)?;
            // A path that became longer looks like a queue. The stored RTTmin is dropped now that the
            // cure has emptied the queue; not beside other flows, whose queues would count as path.
            if key.flow().is_some()
                && alone
                && let Some(acks) = &mut cures.attached.acks
            {
                acks.forget()?;
            }
            let again = one.trial.again().map_or(0, |at| at.since(now).0 / 1_000_000_000);
            format!(
                "trial: {what} are withdrawn, since they cost goodput: {found}; tried again in {again} s (a larger {} costs less)",
                key.milder()
            )
        }
        Action::Retry => {
            lift(key, Extent::None, None, cures)?;
            format!("trial: {what} get another chance")
        }
    }))
}
