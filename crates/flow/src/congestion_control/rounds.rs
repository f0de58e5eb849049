//! The bytes in flight of each round trip, and what ended it.
//!
//! A round trip ends when the first byte sent in it is known to the sender as acknowledged (as in BBR's own rounds).
//! A loss or a mark ends it at once: what was in flight before belongs to the window before the cut. From there to the
//! acknowledgement of all that was in flight the sender recovers, and its bytes in flight are no window.

use units::Instant;

use super::MIN_ROUND;
use crate::identity::sequence::Pos;

/// Rounds kept, 24 bytes each: 20 s of the shortest rounds, 80 s at 40 ms. The first ones decide, later ones are not kept.
const MAX_ROUNDS: usize = 2_048;

/// What happened in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    /// The congestion control set the bytes in flight, as far as is known.
    #[default]
    Free,
    /// The application or the receive window set them for a part of it.
    Limited,
    /// The sender recovered from a loss or answered a mark.
    Recovery,
}

/// What ended a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum EndedBy {
    /// An acknowledgement.
    #[default]
    Ack,
    /// A fast retransmission.
    Loss,
    /// An ACK with ECE.
    Mark,
    /// The retransmission timer: the window begins again.
    Timeout,
}

/// One round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    /// Its beginning, in microseconds from the first data on.
    pub begin_us: u64,
    /// Its length in microseconds.
    pub span_us: u32,
    /// Smallest RTT in it, in microseconds; 0 without a sample.
    pub rtt_us: u32,
    /// Most bytes in flight.
    pub flight: u32,
    pub kind: Kind,
    pub ended_by: EndedBy,
}

/// Collects the rounds of one stream.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// End of what was sent when the open round began.
    until: Pos,
    began: Instant,
    first: Instant,
    last: Instant,
    open: Round,
    packets: u32,
    limited: u32,
    started: bool,
    /// Data was sent as ECN-capable (RFC 3168).
    pub ecn_capable: bool,
    /// Until this is acknowledged the sender recovers.
    recovery: Option<Pos>,
    closed: Vec<Round>,
}

impl Rounds {
    /// The sender sent data at `now`, with `in_flight` bytes then in flight and `una` acknowledged. `limited`: the
    /// application or the window keeps it from sending more.
    #[inline]
    pub fn sent(&mut self, now: Instant, una: Pos, max: Pos, in_flight: u64, limited: bool) {
        self.packets += 1;
        self.limited += u32::from(limited);
        self.last = now;
        if una >= self.until && now.since(self.began) >= MIN_ROUND || !self.started {
            self.turn(now, una, max);
        }
        self.open.flight = self.open.flight.max(in_flight as u32);
    }

    /// A sample of the path's RTT.
    #[inline]
    pub fn rtt(&mut self, ns: u64) {
        let us = (ns / 1_000) as u32;
        if self.open.rtt_us == 0 || us < self.open.rtt_us {
            self.open.rtt_us = us;
        }
    }

    #[inline(never)]
    fn turn(&mut self, now: Instant, una: Pos, max: Pos) {
        if !self.started {
            (self.started, self.first) = (true, now);
        } else {
            self.close(now, EndedBy::Ack);
            if self.recovery.is_some_and(|end| una >= end) {
                self.recovery = None;
            }
        }
        self.begin(now, max);
    }

    fn begin(&mut self, now: Instant, max: Pos) {
        self.until = max;
        self.began = now;
        self.packets = 0;
        self.limited = 0;
        self.open =
            Round { begin_us: now.since(self.first).as_nanos() / 1_000, ..Round::default() };
    }

    fn close(&mut self, now: Instant, ended_by: EndedBy) {
        if self.closed.len() >= MAX_ROUNDS {
            return;
        }
        self.open.span_us = (now.since(self.began).as_nanos() / 1_000).min(u32::MAX.into()) as u32;
        self.open.ended_by = ended_by;
        self.open.kind = if self.recovery.is_some() {
            Kind::Recovery
        } else if self.limited * 8 >= self.packets.max(1) {
            Kind::Limited
        } else {
            Kind::Free
        };
        self.closed.push(self.open);
    }

    /// The sender learned at `now` of a loss or a mark, with `max` as the highest byte sent.
    #[cold]
    #[inline(never)]
    pub fn congested(&mut self, now: Instant, max: Pos, by: EndedBy) {
        if !self.started || (self.recovery.is_some() && by != EndedBy::Timeout) {
            return;
        }
        self.close(now, by);
        self.recovery = Some(max);
        self.begin(now, max);
    }

    /// The finished rounds.
    pub fn closed(&self) -> &[Round] {
        &self.closed
    }
}

impl Round {
    /// Its beginning in seconds.
    pub fn begin_s(&self) -> f64 {
        self.begin_us as f64 / 1e6
    }
}
