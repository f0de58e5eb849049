//! The watch over the cure on sockets: what its program counts, against what its sockets received.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use netlink::diag::Socket;

use super::judge::{self, Counted, ENOUGH, Reason, Traffic, text};
use super::{Key, Verdict, Work};
use crate::cures::Result;
use crate::cures::receive::Receive;
use crate::kernel::layouts::ReceiveCounters;

/// A decision comes at the end of a round trip: time for some of them, and at least so long.
const ROUNDS: u32 = 8;
const DECIDES_WITHIN: Duration = Duration::from_secs(2);
/// As long a round trip is assumed where the kernel has not measured it.
const UNKNOWN_RTT: Duration = Duration::from_secs(2);

/// Compares what the program on sockets counts with what its sockets received.
pub(super) struct Downloads {
    pub(super) generation: u64,
    /// Counters when the cure was attached, and at the last look.
    attached: ReceiveCounters,
    pub(super) last: ReceiveCounters,
    /// Connections that were there when it was attached.
    there: HashSet<Key>,
    /// Counters and bytes at the begin of the present window; none until the next quiet look.
    window: Option<(ReceiveCounters, HashMap<Key, u64>)>,
    /// Whole walks when a connection was seen first in this window.
    walks: HashMap<Key, u64>,
    /// Bytes of a connection at the first look after the next whole walk. A connection that began
    /// after that walk is not in it: another program may have replaced its callback flags.
    joined: HashMap<Key, u64>,
    /// Since when connections carry enough for a decision.
    carries: HashMap<Key, Instant>,
    /// ACKs since the last verdict on clamps, and those at which the clamp was not the cure's.
    clamps: (u64, u64),
    /// Whether another program sets the clamps.
    overwritten: bool,
    /// Data arrives that the cure has not counted.
    pub(super) suspicion: bool,
    reason: Option<(Reason, String)>,
}

impl Downloads {
    pub(super) fn new(receive: &Receive, sockets: &[(Key, Socket)]) -> Result<Downloads> {
        let counters = receive.counters()?;
        let bytes = received(sockets);
        Ok(Downloads {
            generation: receive.generation(),
            attached: counters,
            last: counters,
            there: sockets.iter().map(|(key, _)| *key).collect(),
            // The cure has just walked over them.
            joined: if receive.whole_walks() > Some(0) { bytes.clone() } else { HashMap::new() },
            window: Some((counters, bytes)),
            walks: HashMap::new(),
            carries: HashMap::new(),
            clamps: (0, 0),
            overwritten: false,
            suspicion: false,
            reason: None,
        })
    }

    /// Whether the sockets have to be read for the next verdict.
    pub(super) fn reads(&self, counters: &ReceiveCounters) -> bool {
        counters.samples == self.last.samples || counters.decisions == self.attached.decisions
    }

    /// Judges the counters, and the sockets if they were read: before the counters.
    pub(super) fn look(
        &mut self,
        receive: &Receive,
        counters: ReceiveCounters,
        read: Option<&[(Key, Socket)]>,
        now: Instant,
    ) {
        let counts = counters.samples > self.last.samples;
        self.clamps.0 += counters.samples.saturating_sub(self.last.samples);
        self.clamps.1 += counters.reapplied.saturating_sub(self.last.reapplied);
        if self.clamps.0 >= judge::CLAMPS {
            self.overwritten = judge::overwritten(self.clamps);
            self.clamps = (0, 0);
        }
        self.last = counters;
        if counts {
            self.window = None;
        }
        if let Some(sockets) = read {
            if !counts && self.window.is_none() {
                self.window = Some((counters, received(sockets)));
                self.walks.clear();
                self.joined.clear();
            }
            self.join(sockets, receive.whole_walks().unwrap_or(0));
        }
        let sockets = read.unwrap_or_default();
        let begun = self.window.as_ref();
        let counted = Counted {
            connections: begun.map_or(1, |(begun, _)| counters.sockets - begun.sockets),
            acks: match begun {
                Some((begun, _)) => counters.samples - begun.samples,
                None => counters.samples - self.attached.samples,
            },
            decisions: counters.decisions - self.attached.decisions,
            applied: counters.applied - self.attached.applied,
            refused: counters.refused - self.attached.refused,
            overwritten: self.overwritten,
        };
        // Of connections that are in a map, or of those that are not.
        let sum = |before: &HashMap<Key, u64>, inside: bool| -> u64 {
            sockets
                .iter()
                .filter(|(key, _)| before.contains_key(key) == inside)
                .map(|(key, socket)| {
                    bytes_in(socket).saturating_sub(before.get(key).copied().unwrap_or(0))
                })
                .sum()
        };
        let traffic = Traffic {
            new: begun.map_or(0, |(_, bytes)| sum(bytes, false)),
            joined: sum(&self.joined, true),
            overdue: read.is_some() && self.overdue(receive, sockets, now),
        };
        let reason = judge::judge(&counted, &traffic, receive.whole_walks().is_some());
        // The problem stays until the cure counts, even if the transfer ends.
        let stays = |(reason, _): &(Reason, String)| match reason {
            Reason::Unseen | Reason::NoAcks => !counts,
            Reason::Undecided => counted.decisions == 0,
            Reason::Refused => counted.applied == 0,
            Reason::Overwritten => self.overwritten,
        };
        if !self.reason.as_ref().is_some_and(stays) {
            self.reason = reason.map(|reason| (reason, text(reason, &counted, &traffic)));
        }
        self.suspicion = self.reason.is_none() && !counts && traffic.new.max(traffic.joined) > 0;
    }

    /// Whether connections that no walk has reached in this window would be evidence after one.
    pub(super) fn suspects(&self, sockets: &[(Key, Socket)]) -> bool {
        self.window.is_some()
            && self.reason.is_none()
            && sockets.iter().any(|(key, _)| !self.joined.contains_key(key))
    }

    /// Notes connections that a walk has reached since they were seen first.
    pub(super) fn join(&mut self, sockets: &[(Key, Socket)], walks: u64) {
        let there: HashSet<Key> = sockets.iter().map(|(key, _)| *key).collect();
        self.walks.retain(|key, _| there.contains(key));
        self.joined.retain(|key, _| there.contains(key));
        for (key, socket) in sockets {
            if walks > *self.walks.entry(*key).or_insert(walks) {
                self.joined.entry(*key).or_insert(bytes_in(socket));
            }
        }
    }

    /// Whether a connection has carried enough beyond `start` for longer than a decision takes.
    fn overdue(&mut self, receive: &Receive, sockets: &[(Key, Socket)], now: Instant) -> bool {
        let enough = receive.now().start.0 + ENOUGH;
        let walks = receive.whole_walks().is_some();
        let mut overdue = false;
        let mut carries = HashMap::new();
        for (key, socket) in sockets {
            // One that was there before may not call the program at all.
            let ours = match walks {
                true => self.joined.contains_key(key),
                false => !self.there.contains(key),
            };
            if bytes_in(socket) < enough || !ours {
                continue;
            }
            let since = self.carries.get(key).copied().unwrap_or(now);
            carries.insert(*key, since);
            let rtt_us = socket.info.as_ref().map_or(0, |info| info.rcv_rtt_us.max(info.rtt_us));
            let rtt = match rtt_us {
                0 => UNKNOWN_RTT,
                us => Duration::from_micros(us.into()),
            };
            overdue |= now.duration_since(since) > DECIDES_WITHIN.max(rtt * ROUNDS);
        }
        self.carries = carries;
        overdue
    }

    /// Whether its window begins with the next look.
    pub(super) fn waits(&self) -> bool {
        self.window.is_none()
    }

    pub(super) fn verdict(&self) -> Verdict {
        match &self.reason {
            Some((_, text)) => (Work::Idle, Some(text.clone())),
            None if self.last.samples > self.attached.samples => (Work::Counts, None),
            None => (Work::Quiet, None),
        }
    }
}

fn bytes_in(socket: &Socket) -> u64 {
    socket.info.as_ref().and_then(|info| info.bytes_received).unwrap_or(0)
}

fn received(sockets: &[(Key, Socket)]) -> HashMap<Key, u64> {
    sockets.iter().map(|(key, socket)| (*key, bytes_in(socket))).collect()
}
