//! A TCP endpoint: both halves, the handshake, and the frames between them.
//!
//! It takes frames, timers, and what the application writes, and gives frames and bytes for the
//! application. It has RFC 9293's states as far as a measurement meets them: SYN, SYN/ACK, data
//! both ways, FIN.

mod pacing;
mod processor;
mod prr;
pub mod receive;
mod rto;
mod scoreboard;
pub mod send;

use algo::Ecn;
use units::{Duration, Instant};

use crate::frame::{Frame, Kind, flags};
pub use receive::Receiver;
pub use send::{SEND_LIMITS, SendLimit, Sender};

/// IP and TCP headers without options.
pub const HEADERS: u32 = 40;
/// The timestamps option, padded (RFC 7323 appendix A).
const TIMESTAMPS: u32 = 12;
/// A SYN's options: MSS, SACK permitted, timestamps, window scale, padded.
const SYN_OPTIONS: u32 = 20;
/// AFC's option: kind 253, length, two bytes of identifier, one of value, padded to whole words.
const RATE_OPTION: u32 = 8;
/// First wait for a SYN's answer (RFC 6298 section 2.1).
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the handshake stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No SYN has been sent or received.
    Idle,
    /// SYN (or SYN/ACK) sent.
    Opening,
    /// The handshake is complete.
    Open,
    /// Both directions are closed.
    Closed,
}

/// The labels by which the network routes an endpoint's frames.
#[derive(Clone, Copy, Debug)]
pub struct Labels {
    /// Number of the connection.
    pub connection: u32,
    /// Side: 0 opened it.
    pub side: u8,
    /// Route of its frames.
    pub route: u32,
    /// The user that the traffic belongs to.
    pub host: u16,
    /// Priority band of data.
    pub data_class: u8,
    /// Priority band of pure ACKs.
    pub ack_class: u8,
}

/// What a frame meant to the application.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppEvents {
    /// The connection is open now.
    pub opened: bool,
    /// New bytes in order.
    pub received: u64,
    /// The peer has closed and everything before was read.
    pub ended: bool,
    /// Everything that was written, and the FIN, is acknowledged.
    pub done: bool,
}

/// One end of a connection.
pub struct Endpoint {
    /// Labels that its frames carry for routing and queueing.
    pub labels: Labels,
    /// Where the handshake stands.
    pub phase: Phase,
    pub sender: Sender,
    pub receiver: Receiver,
    timestamps: bool,
    ecn: bool,
    syn_at: Option<Instant>,
    syn_sent: Instant,
    syn_tries: u32,
    ended: bool,
    done: bool,
    /// The event that will wake this endpoint.
    pub armed: Option<Instant>,
    /// Payload bytes of the peer received in order since last taken.
    pub delivered_bin: u64,
    /// Queueing delays of the peer's data since last taken: smallest and sum, with their number,
    /// ns.
    pub queued_bin: (u64, u64, u64),
}

/// The clock behind TSval: 1 ms, as Linux with HZ=1000; never 0, which means "no echo".
#[inline]
pub fn ticks(now: Instant) -> u32 {
    (now.0 / 1_000_000) as u32 + 1
}

/// The earlier of two deadlines.
#[inline]
fn sooner(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) => one,
        (None, other) => other,
    }
}

impl Endpoint {
    /// An endpoint that waits to be opened, or to be called.
    pub fn new(
        labels: Labels,
        sender: Sender,
        receiver: Receiver,
        timestamps: bool,
        ecn: bool,
    ) -> Endpoint {
        Endpoint {
            labels,
            phase: Phase::Idle,
            sender,
            receiver,
            timestamps,
            ecn,
            syn_at: None,
            syn_sent: Instant::ZERO,
            syn_tries: 0,
            ended: false,
            done: false,
            armed: None,
            delivered_bin: 0,
            queued_bin: (u64::MAX, 0, 0),
        }
    }

    fn blank(&self, now: Instant) -> Frame {
        Frame {
            kind: Kind::Tcp,
            side: self.labels.side,
            host: self.labels.host,
            owner: self.labels.connection,
            route: self.labels.route,
            bytes: HEADERS + if self.timestamps { TIMESTAMPS } else { 0 },
            class: self.labels.ack_class,
            ts_val: if self.timestamps { ticks(now) } else { 0 },
            sent: now,
            ..Frame::default()
        }
    }

    /// Opens the connection: sends the SYN.
    pub fn open(&mut self, now: Instant, out: &mut Vec<Frame>) {
        self.phase = Phase::Opening;
        self.send_syn(now, out);
    }

    fn send_syn(&mut self, now: Instant, out: &mut Vec<Frame>) {
        let mut f = self.blank(now);
        f.flags = flags::SYN;
        f.bytes = HEADERS + SYN_OPTIONS;
        self.receiver.write(now, &mut f, false);
        if self.labels.side == 0 {
            f.flags &= !flags::ACK;
            f.ts_ecr = 0;
        }
        self.syn_sent = now;
        self.syn_at = Some(now + SYN_TIMEOUT * (1 << self.syn_tries.min(6)));
        self.syn_tries += 1;
        out.push(f);
    }

    fn established(&mut self, now: Instant, f: &Frame) {
        self.phase = Phase::Open;
        self.syn_at = None;
        let rtt = if self.syn_tries == 1 {
            Some(now.since(self.syn_sent))
        } else {
            // Karn's rule, unless a timestamp says which SYN is answered (RFC 7323 section 4.1;
            // Linux tcp_ack_update_rtt): on a path slower than the SYN's timer the first data would
            // time out, too.
            (self.timestamps && f.ts_ecr != 0)
                .then(|| Duration::from_millis(u64::from(ticks(now).wrapping_sub(f.ts_ecr)).max(1)))
        };
        self.receiver.learn_handshake(rtt);
        // The SYN-ACK is an RTT sample, as in Linux, where the agent's program is on the socket before the SYN is sent.
        if self.labels.side == 0 {
            self.receiver.on_ack(now, f, ticks(now));
        }
        self.sender.open(now, f.window, rtt);
        self.receiver.open(now);
    }

    /// Takes in a frame, and writes what it answers with to `out`.
    pub fn on_frame(&mut self, now: Instant, f: &Frame, out: &mut Vec<Frame>) -> AppEvents {
        let mut events = AppEvents::default();
        if f.flags & flags::SYN != 0 {
            self.receiver.ts_recent = f.ts_val;
            match self.phase {
                Phase::Idle => {
                    self.phase = Phase::Opening;
                    self.send_syn(now, out);
                }
                Phase::Opening if self.labels.side == 0 && f.flags & flags::ACK != 0 => {
                    self.established(now, f);
                    events.opened = true;
                    self.receiver.ack_now();
                }
                Phase::Opening if self.labels.side == 1 => self.send_syn(now, out),
                // The ACK of the handshake was lost: RFC 9293 section 3.10.7.4 answers with an ACK.
                _ => self.receiver.ack_now(),
            }
            self.push(now, out);
            return events;
        }
        if self.phase == Phase::Opening && self.labels.side == 1 {
            self.established(now, f);
            events.opened = true;
        }
        if self.phase == Phase::Idle || self.phase == Phase::Opening {
            return events;
        }
        self.receiver.take_timestamp(f);
        if f.len > 0 || f.flags & flags::FIN != 0 {
            let new = self.receiver.on_data(now, f, ticks(now));
            let fin_taken = self.receiver.fin.is_some_and(|end| self.receiver.nxt == end);
            events.received = new - u64::from(new > 0 && fin_taken);
            self.delivered_bin += events.received;
            let q = &mut self.queued_bin;
            *q = (q.0.min(f.queued), q.1 + f.queued, q.2 + 1);
        } else if f.seq + 1 == self.receiver.nxt && f.seq != self.receiver.nxt && f.len == 0 {
            // A window probe: one byte below what is expected.
            self.receiver.ack_now();
        } else if self.receiver.measured.is_some() {
            self.receiver.on_ack(now, f, ticks(now));
        }
        self.sender.on_ack(now, f);
        self.notice_ends(&mut events);
        self.push(now, out);
        events
    }

    fn notice_ends(&mut self, events: &mut AppEvents) {
        if !self.ended && self.receiver.fin.is_some_and(|end| self.receiver.copied >= end) {
            self.ended = true;
            events.ended = true;
        }
        if !self.done && self.sender.is_done() {
            self.done = true;
            events.done = true;
        }
        if self.ended && self.done {
            self.phase = Phase::Closed;
        }
    }

    /// Sends data that may go, then an ACK that is due.
    pub fn push(&mut self, now: Instant, out: &mut Vec<Frame>) {
        if self.phase == Phase::Open {
            let blank = self.blank(now);
            let (receiver, labels, ecn) = (&mut self.receiver, self.labels, self.ecn);
            self.sender.send(now, &mut |e| out.push(data(now, &blank, e, receiver, labels, ecn)));
        }
        if self.receiver.ack_due() && self.phase != Phase::Idle {
            let f = self.pure_ack(now);
            out.push(f);
        }
    }

    fn pure_ack(&mut self, now: Instant) -> Frame {
        let mut f = self.blank(now);
        f.seq = self.sender.nxt;
        self.receiver.write(now, &mut f, true);
        if f.sacks > 0 {
            f.bytes += 4 + 8 * u32::from(f.sacks);
        }
        if f.rate_option.is_some() {
            f.bytes += RATE_OPTION;
        }
        f
    }

    /// The next time at which [`Endpoint::on_timer`] has something to do.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        match self.phase {
            Phase::Idle => None,
            Phase::Opening => self.syn_at,
            Phase::Open => sooner(self.sender.next_wakeup(), self.receiver.next_wakeup()),
            Phase::Closed => None,
        }
    }

    /// A deadline may have passed.
    pub fn on_timer(&mut self, now: Instant, out: &mut Vec<Frame>) -> AppEvents {
        let mut events = AppEvents::default();
        match self.phase {
            Phase::Opening => {
                if self.syn_at.is_some_and(|at| at <= now) {
                    self.send_syn(now, out);
                }
                return events;
            }
            Phase::Open => {}
            Phase::Idle | Phase::Closed => return events,
        }
        self.receiver.on_timer(now);
        let blank = self.blank(now);
        let (receiver, labels, ecn) = (&mut self.receiver, self.labels, self.ecn);
        self.sender.on_timer(now, &mut |e| out.push(data(now, &blank, e, receiver, labels, ecn)));
        self.notice_ends(&mut events);
        self.push(now, out);
        events
    }
}

/// A frame with data, which carries the receiving half's ACK as well.
fn data(
    now: Instant,
    blank: &Frame,
    e: Emit,
    receiver: &mut Receiver,
    labels: Labels,
    ecn: bool,
) -> Frame {
    let mut f = *blank;
    f.seq = e.seq;
    f.len = e.len;
    f.bytes += e.len - u32::from(e.fin);
    f.class = labels.data_class;
    if e.fin {
        f.flags |= flags::FIN;
    }
    if e.cwr {
        f.flags |= flags::CWR;
    }
    if ecn && !e.again && e.len > 0 {
        f.ecn = Ecn::Capable0;
    }
    receiver.write(now, &mut f, false);
    f
}

use send::Emit;
