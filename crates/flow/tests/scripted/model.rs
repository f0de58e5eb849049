//! A TCP sender and receiver with fixed delays, and a capture of them whose truth is known.
//!
//! signal: a [`Script`] (hosts, path, and the fate of chosen transmissions) · model: events in order of time; the
//! sender keeps a window of segments, retransmits after three duplicate ACKs or SACK (RFC 5681, RFC 6675; a retransmission that
//! was lost itself is seen by later SACKs as in RFC 8985), after the retransmission timer (RFC 6298, least 200 ms
//! as on Linux) and, with SACK, sends a tail-loss probe (RFC 8985 section 7); the receiver acknowledges every first
//! or second segment and everything out of order at once · action: the segments as the capture point sees them, and
//! [`Truth`].
//!
//! Deviations: the congestion window is constant; segments leave `gap` apart; no ACK is lost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use capture::{Addr, Decoded, Ip, TcpOptions, TcpSegment, flags};
use flow::{Analysis, Analyzer, Options};
use units::{Duration, Instant};

/// Where the capture is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    Sender,
    Middle,
    Receiver,
}

/// What becomes of one transmission; `before`: before it passes the capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Lost {
        before: bool,
    },
    /// Overtaken by at most `by` segments.
    Late {
        before: bool,
        by: u64,
    },
    /// Duplicated: two copies arrive.
    Twice {
        before: bool,
    },
}

impl Fate {
    /// At the sender everything happens behind the capture, at the receiver before it.
    fn at(self, point: Point) -> Fate {
        let fix = |before| match point {
            Point::Sender => false,
            Point::Middle => before,
            Point::Receiver => true,
        };
        match self {
            Fate::Lost { before } => Fate::Lost { before: fix(before) },
            Fate::Late { before, by } => Fate::Late { before: fix(before), by },
            Fate::Twice { before } => Fate::Twice { before: fix(before) },
        }
    }
}

#[derive(Clone, Debug)]
pub struct Script {
    pub v6: bool,
    pub timestamps: bool,
    pub sack: bool,
    pub scale: Option<u8>,
    /// Initial sequence numbers of data sender and receiver.
    pub isn: [u32; 2],
    /// Payload of a full segment.
    pub mss: u32,
    pub segments: usize,
    /// Congestion window in segments.
    pub cwnd: usize,
    /// Between two segments of the sender, ns.
    pub gap: u64,
    /// One-way delays of data and ACKs, ns.
    pub delay: [u64; 2],
    pub point: Point,
    /// An ACK for every first or second segment.
    pub ack_every: u32,
    /// Receive buffer in segments.
    pub buffer: u64,
    /// The application stops reading at this segment, for so long (ns).
    pub stall: Option<(usize, u64)>,
    /// Probes carry a byte (BSD) or none (Linux).
    pub probe_byte: bool,
    /// The data goes from the server to the client.
    pub download: bool,
    /// By segment and transmission (0: the first).
    pub fates: BTreeMap<(usize, u32), Fate>,
}

impl Script {
    /// A plain upload of 60 segments, captured at the sender; tests change what they are about.
    pub fn plain() -> Script {
        Script {
            v6: false,
            timestamps: true,
            sack: true,
            scale: Some(7),
            isn: [1_000, 2_000],
            mss: 1_448,
            segments: 60,
            cwnd: 10,
            gap: MS,
            delay: [20 * MS, 20 * MS],
            point: Point::Sender,
            ack_every: 1,
            buffer: 64,
            stall: None,
            probe_byte: false,
            download: false,
            fates: BTreeMap::new(),
        }
    }

    /// The same with one segment lost early.
    pub fn one_lost() -> Script {
        let fates = BTreeMap::from([((20, 0), Fate::Lost { before: false })]);
        Script { fates, ..Script::plain() }
    }
}

/// The analysis of segments in this order.
pub fn analyse(segments: &[TcpSegment]) -> Analysis {
    analyse_with(Options::default(), segments)
}

/// The same with other options.
pub fn analyse_with(options: Options, segments: &[TcpSegment]) -> Analysis {
    let mut analyzer = Analyzer::new(options);
    for s in segments {
        analyzer.push(s.ip.time, s.ip.wire_len, &Decoded::Tcp(*s));
    }
    analyzer.finish(None)
}

/// What the capture must be found to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    pub bytes: u64,
    pub data_packets: u64,
    /// Retransmitted segments that the capture can recognise, by cause.
    pub fast: u64,
    pub timeout: u64,
    pub tail_probe: u64,
    /// Of these, those whose bytes the receiver had already.
    pub spurious: u64,
    /// Overtaken before the capture, or behind it.
    pub late_before: u64,
    pub late_behind: u64,
    /// Overtaken, and retransmitted spuriously: counted in the two above as well.
    pub late_retransmitted: u64,
    /// Segments that reached the receiver twice.
    pub again: u64,
    /// Timers that ran out.
    pub timers: u64,
    /// Copies that the network made before the capture.
    pub copies: u64,
    pub dup_acks: u64,
    /// As the sender knew them, at each data segment.
    pub in_flight_max: u64,
    pub in_flight_plain_max: u64,
    /// Time with less than a segment of window left, at the sender, data outstanding or window zero.
    pub window_full: Duration,
    /// Zero-window spans as they pass the capture.
    pub zero_windows: u64,
    pub zero_window: Duration,
    /// Probes that pass within them, and those that cross the window update.
    pub probes: u64,
    pub stray_probes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    New,
    Fast,
    Timeout,
    TailProbe,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The sender may send again (pacing).
    Send,
    /// A timer of the sender, unless it was set again.
    Timer(u64),
    /// Long enough after SACK for something to be lost rather than late (RFC 8985 section 6.2).
    Reorder(u64),
    /// The receiver's delayed ACK.
    Delayed(u64),
    /// The application reads again.
    Read,
    /// Segment arrives at the receiver, with its timestamp.
    Data {
        index: usize,
        tsval: u32,
    },
    Probe,
    /// ACK number `k` of the list arrives at the sender.
    Ack(usize),
}

#[derive(Clone, Debug)]
struct AckSent {
    next: usize,
    edge: u64,
    zero: bool,
    tsval: u32,
    sacked: Vec<usize>,
}

pub struct Model<'a> {
    s: &'a Script,
    now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    seen: Vec<(u64, u64, TcpSegment)>,
    truth: Truth,
    // sender
    una: usize,
    nxt: usize,
    sacked: Vec<bool>,
    sent: Vec<u32>,
    last_order: Vec<u64>,
    last_time: Vec<u64>,
    transmissions: u64,
    to_retransmit: Vec<usize>,
    dup_acks: u32,
    recovery: Option<(usize, Cause)>,
    edge: u64,
    srtt: u64,
    rttvar: u64,
    backoff: u32,
    timer: u64,
    reorder: u64,
    probe_next: bool,
    probed: bool,
    next_send: u64,
    waiting: bool,
    echo: [u32; 2],
    ids: [u16; 2],
    full_since: Option<u64>,
    /// The retransmission timer fired, and nothing new has been acknowledged since.
    unanswered: bool,
    zero_known: bool,
    // receiver
    arrived: Vec<bool>,
    next: usize,
    unread_from: Option<usize>,
    recent: Vec<usize>,
    pending: u32,
    delayed: u64,
    acks: Vec<AckSent>,
    // capture
    /// First transmissions: time at the capture.
    first_passed: Vec<Option<u64>>,
    overtaken_behind: Vec<bool>,
    passed: Vec<bool>,
    passed_max: Option<usize>,
    zero_since: Option<u64>,
    zero_spans: Vec<(u64, u64)>,
    probes: Vec<u64>,
}

const START: u64 = 1_700_000_000_000_000_000;
pub const MS: u64 = 1_000_000;
/// Clock offsets of the two hosts' timestamps; the first one wraps soon.
const CLOCK: [u32; 2] = [u32::MAX - 900, 77_000];

pub fn run(s: &Script) -> (Vec<TcpSegment>, Truth) {
    let n = s.segments;
    let mut m = Model {
        s,
        now: START,
        order: 0,
        queue: BinaryHeap::new(),
        seen: Vec::new(),
        truth: Truth::default(),
        una: 0,
        nxt: 0,
        sacked: vec![false; n],
        sent: vec![0; n],
        last_order: vec![0; n],
        last_time: vec![0; n],
        transmissions: 0,
        to_retransmit: Vec::new(),
        dup_acks: 0,
        recovery: None,
        edge: 0,
        srtt: 0,
        rttvar: 0,
        backoff: 0,
        timer: 0,
        reorder: 0,
        probe_next: false,
        probed: false,
        next_send: 0,
        waiting: false,
        echo: [0; 2],
        ids: [65_500, 7],
        full_since: None,
        unanswered: false,
        zero_known: false,
        arrived: vec![false; n],
        next: 0,
        unread_from: None,
        recent: Vec::new(),
        pending: 0,
        delayed: 0,
        acks: Vec::new(),
        first_passed: vec![None; n],
        overtaken_behind: vec![false; n],
        passed: vec![false; n],
        passed_max: None,
        zero_since: None,
        zero_spans: Vec::new(),
        probes: Vec::new(),
    };
    m.handshake();
    m.work();
    m.teardown();
    m.count_late();
    for time in &m.probes {
        let within = m.zero_spans.iter().any(|(from, to)| from <= time && time < to);
        m.truth.probes += u64::from(within);
        m.truth.stray_probes += u64::from(!within);
    }
    m.seen.sort_by_key(|(time, order, _)| (*time, *order));
    (m.seen.into_iter().map(|(_, _, s)| s).collect(), m.truth)
}

impl Model<'_> {
    fn after(&mut self, wait: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((self.now + wait, self.order, event)));
    }

    /// How long a packet of host `d` (0: data sender) takes to the capture.
    fn to_capture(&self, d: usize) -> u64 {
        let whole = self.s.delay[d];
        match (self.s.point, d) {
            (Point::Sender, 0) | (Point::Receiver, 1) => 0,
            (Point::Middle, _) => whole / 2,
            _ => whole,
        }
    }

    fn clock(&self, d: usize) -> u32 {
        ((self.now / MS) as u32).wrapping_add(CLOCK[d])
    }

    fn header(&mut self, d: usize, bits: u16, payload: u32) -> TcpSegment {
        let s = self.s;
        // 0 stands for none.
        self.ids[d] = self.ids[d].checked_add(1).unwrap_or(1);
        let addr = |d: usize| {
            let mut v6 = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            v6[15] = d as u8 + 1;
            if s.v6 { Addr::v6(v6) } else { Addr::v4([192, 0, 2, d as u8 + 1]) }
        };
        let mut options = TcpOptions::default();
        if s.timestamps {
            options.timestamps = Some((self.clock(d), self.echo[d]));
        }
        if bits & flags::SYN != 0 {
            options.mss = Some(s.mss as u16 + if s.timestamps { 12 } else { 0 });
            options.window_scale = s.scale;
            options.sack_permitted = s.sack;
        }
        let total_len = payload + if s.v6 { 60 } else { 40 };
        TcpSegment {
            ip: Ip {
                time: Instant(self.now + self.to_capture(d)),
                src: addr(d),
                dst: addr(1 - d),
                id: (!s.v6).then_some(self.ids[d]),
                ttl: 60,
                ecn: 0,
                total_len,
                wire_len: total_len + 14,
                interface: 0,
            },
            src_port: 5000 + d as u16,
            dst_port: 5001 - d as u16,
            seq: 0,
            ack: 0,
            flags: bits,
            window: 0xffff,
            payload,
            maybe_padding: false,
            options,
        }
    }

    fn capture(&mut self, segment: TcpSegment) {
        self.order += 1;
        self.seen.push((segment.ip.time.0, self.order, segment));
    }

    fn seq(&self, index: usize) -> u32 {
        self.s.isn[0].wrapping_add(1).wrapping_add((index as u32).wrapping_mul(self.s.mss))
    }

    /// The window field for `bytes`, and the bytes it then says.
    fn window(&self, bytes: u64) -> (u16, u64) {
        let shift = self.s.scale.unwrap_or(0);
        let field = (bytes >> shift).min(0xffff);
        // Less than a segment is nothing (RFC 9293 section 3.8.6.2.2).
        if field << shift < u64::from(self.s.mss) { (0, 0) } else { (field as u16, field << shift) }
    }

    fn handshake(&mut self) {
        let client = usize::from(self.s.download);
        let server = 1 - client;
        for (d, bits) in
            [(client, flags::SYN), (server, flags::SYN | flags::ACK), (client, flags::ACK)]
        {
            let mut p = self.header(d, bits, 0);
            p.seq = self.s.isn[d].wrapping_add(u32::from(bits == flags::ACK));
            if bits & flags::ACK != 0 {
                p.ack = self.s.isn[1 - d].wrapping_add(1);
            }
            let (field, bytes) = self.window(self.s.buffer * u64::from(self.s.mss));
            if bits == flags::ACK && d == 1 {
                p.window = field;
            }
            if d == 1 && bits != flags::ACK {
                // The window of a SYN is not scaled (RFC 7323 section 2.2).
                let whole = self.s.buffer * u64::from(self.s.mss);
                p.window = whole.min(0xffff) as u16;
                self.edge = u64::from(p.window);
            } else if d == 1 {
                // Linux takes the window of the ACK that completes the handshake, not that of the SYN.
                self.edge = bytes;
            }
            self.echo[1 - d] = self.clock(d);
            self.capture(p);
            // The client sends its data right behind its ACK.
            if bits != flags::ACK || self.s.download {
                self.now += self.s.delay[d];
            }
        }
        let rtt = self.s.delay[0] + self.s.delay[1];
        self.srtt = rtt;
        self.rttvar = rtt / 2;
        self.after(0, Event::Send);
        self.waiting = true;
    }

    fn work(&mut self) {
        while let Some(Reverse((time, _, event))) = self.queue.pop() {
            self.now = time;
            match event {
                Event::Send => {
                    self.waiting = false;
                    self.send();
                }
                Event::Timer(k) if k == self.timer => self.on_timer(),
                Event::Delayed(k) if k == self.delayed && self.pending > 0 => self.ack(None),
                Event::Read => {
                    self.unread_from = None;
                    self.ack(None);
                }
                Event::Data { index, tsval } => self.receive(index, tsval),
                Event::Probe => self.ack(None),
                Event::Ack(k) => self.on_ack(k),
                Event::Reorder(k) if k == self.reorder => {
                    self.detect(false, 1);
                    self.send();
                }
                Event::Timer(_) | Event::Delayed(_) | Event::Reorder(_) => {}
            }
            assert!(
                self.transmissions < 100_000 && self.now < START + 10_000_000 * MS,
                "the model is stuck"
            );
        }
        assert_eq!(self.una, self.s.segments, "the model stopped early");
        self.note_full();
    }

    fn teardown(&mut self) {
        self.now += MS;
        let end = self.seq(self.s.segments);
        for (d, bits, seq, ack) in [
            (0, flags::FIN | flags::ACK, end, self.s.isn[1].wrapping_add(1)),
            (1, flags::FIN | flags::ACK, self.s.isn[1].wrapping_add(1), end.wrapping_add(1)),
            (0, flags::ACK, end.wrapping_add(1), self.s.isn[1].wrapping_add(2)),
        ] {
            let mut p = self.header(d, bits, 0);
            (p.seq, p.ack) = (seq, ack);
            if d == 1 {
                p.window = self.window(self.s.buffer * u64::from(self.s.mss)).0;
            }
            self.echo[1 - d] = self.clock(d);
            self.capture(p);
            self.now += self.s.delay[d];
        }
        self.truth.bytes = self.s.segments as u64 * u64::from(self.s.mss);
    }

    fn count_late(&mut self) {
        for i in 0..self.s.segments {
            let before = self.first_passed[i].is_some_and(|t| {
                self.first_passed[i + 1..].iter().flatten().any(|later| *later < t)
            });
            let retransmitted = self.sent[i] > 1;
            self.truth.late_before += u64::from(before);
            self.truth.late_behind += u64::from(self.overtaken_behind[i]);
            self.truth.late_retransmitted +=
                u64::from((before || self.overtaken_behind[i]) && retransmitted);
        }
    }

    // ---- sender ----

    fn sacked_count(&self) -> usize {
        self.sacked[self.una..self.nxt].iter().filter(|x| **x).count()
    }

    fn send(&mut self) {
        if self.now < self.next_send {
            if !self.waiting {
                self.waiting = true;
                self.after(self.next_send - self.now, Event::Send);
            }
            return;
        }
        if let Some(index) = (!self.to_retransmit.is_empty()).then(|| self.to_retransmit.remove(0))
        {
            let cause = self.recovery.map_or(Cause::Fast, |r| r.1);
            if index >= self.una && !self.sacked[index] {
                self.transmit(index, cause);
            }
        } else if self.may_send_new() {
            let index = self.nxt;
            self.nxt += 1;
            self.transmit(index, Cause::New);
        } else {
            return;
        }
        self.next_send = self.now + self.s.gap;
        self.waiting = true;
        self.after(self.s.gap, Event::Send);
    }

    fn may_send_new(&self) -> bool {
        let held = self.recovery.is_some_and(|(_, cause)| cause == Cause::Timeout || !self.s.sack);
        let mss = u64::from(self.s.mss);
        !held
            && !self.zero_known
            && self.nxt < self.s.segments
            && self.nxt - self.una - self.sacked_count() < self.s.cwnd
            && (self.nxt as u64 + 1) * mss <= self.edge
    }

    fn transmit(&mut self, index: usize, cause: Cause) {
        let s = self.s;
        let nth = self.sent[index];
        self.sent[index] += 1;
        self.transmissions += 1;
        self.last_order[index] = self.transmissions;
        self.last_time[index] = self.now;
        let mut p = self.header(0, flags::ACK, s.mss);
        p.seq = self.seq(index);
        p.ack = s.isn[1].wrapping_add(1);
        let tsval = p.options.timestamps.map_or(0, |t| t.0);
        let fate = s.fates.get(&(index, nth)).map(|f| f.at(s.point));
        let lost_before = matches!(fate, Some(Fate::Lost { before: true }));
        let late = |f: Option<Fate>| match f {
            Some(Fate::Late { by, .. }) => s.gap * by + s.gap / 2,
            _ => 0,
        };
        let mut arrival = s.delay[0] + late(fate);
        if !lost_before {
            if let Some(Fate::Late { before: true, .. }) = fate {
                p.ip.time = p.ip.time + Duration(late(fate));
            }
            if nth == 0 {
                self.first_passed[index] = Some(p.ip.time.0);
            }
            self.pass(index, cause, p);
            if let Some(Fate::Twice { before: true }) = fate {
                p.ip.time = p.ip.time + Duration(MS / 10);
                self.capture(p);
                self.truth.copies += 1;
            }
        }
        if let Some(Fate::Lost { .. }) = fate {
            arrival = u64::MAX;
        }
        if arrival != u64::MAX {
            self.after(arrival, Event::Data { index, tsval });
            if let Some(Fate::Twice { .. }) = fate {
                self.after(arrival + MS / 10, Event::Data { index, tsval });
            }
        }
        let plain = (self.nxt - self.una) as u64 * u64::from(s.mss);
        let in_flight = plain - self.sacked_count() as u64 * u64::from(s.mss);
        self.truth.in_flight_max = self.truth.in_flight_max.max(in_flight);
        self.truth.in_flight_plain_max = self.truth.in_flight_plain_max.max(plain);
        self.note_full();
        if cause == Cause::New && self.nxt - self.una == 1
            || cause == Cause::Fast && index == self.una
        {
            self.arm();
        } else if cause == Cause::New && s.sack && !self.probed && self.recovery.is_none() {
            // A probe is due after the last segment sent (RFC 8985 section 7.2).
            self.arm();
        }
    }

    /// The capture sees a data segment of the sender.
    fn pass(&mut self, index: usize, cause: Cause, p: TcpSegment) {
        self.capture(p);
        self.truth.data_packets += 1;
        // Late ones count when all is known; a retransmission shows where the segment or a later one was seen before.
        let known = self.passed[index] || self.passed_max.is_some_and(|m| m > index);
        if cause != Cause::New && known {
            match cause {
                Cause::Fast => self.truth.fast += 1,
                Cause::Timeout => self.truth.timeout += 1,
                Cause::TailProbe | Cause::New => self.truth.tail_probe += 1,
            }
            // Received already, or a copy of it is still under way and arrives first.
            if self.arrived[index] || self.under_way(index) {
                self.truth.spurious += 1;
            }
        }
        self.passed[index] = true;
        self.passed_max = self.passed_max.max(Some(index));
    }

    fn under_way(&self, index: usize) -> bool {
        self.queue
            .iter()
            .any(|Reverse((_, _, e))| matches!(e, Event::Data { index: i, .. } if *i == index))
    }

    fn rto(&self) -> u64 {
        (self.srtt + (4 * self.rttvar).max(200 * MS)) << self.backoff
    }

    fn arm(&mut self) {
        self.timer += 1;
        let flight = self.nxt - self.una;
        if flight == 0 {
            return;
        }
        // No probe in recovery, nor where SACK says that something is missing (RFC 8985 section 7.2).
        self.probe_next =
            self.s.sack && self.recovery.is_none() && !self.probed && self.sacked_count() == 0;
        let after = if self.probe_next {
            let slack = if flight == 1 { 200 * MS } else { 2 * MS };
            (2 * self.srtt + slack).min(self.rto())
        } else {
            self.rto()
        };
        self.after(after, Event::Timer(self.timer));
    }

    fn on_timer(&mut self) {
        if self.nxt == self.una {
            self.zero_window_probe();
            return;
        }
        self.truth.timers += 1;
        if std::mem::take(&mut self.probe_next) {
            self.probed = true;
            if self.may_send_new() {
                self.send();
            } else {
                // The last segment that the receiver has not reported.
                let last = (self.una..self.nxt).rev().find(|i| !self.sacked[*i]);
                if let Some(last) = last {
                    self.transmit(last, Cause::TailProbe);
                }
            }
            self.arm();
            return;
        }
        self.unanswered = true;
        self.note_full();
        self.recovery = Some((self.nxt, Cause::Timeout));
        self.to_retransmit.clear();
        self.dup_acks = 0;
        self.transmit(self.una, Cause::Timeout);
        self.next_send = self.now + self.s.gap;
        self.backoff += 1;
        self.arm();
    }

    fn zero_window_probe(&mut self) {
        if !self.zero_known || self.nxt == self.s.segments {
            return;
        }
        let byte = self.s.probe_byte;
        let mut p = self.header(0, flags::ACK, u32::from(byte));
        p.seq = self.seq(self.nxt).wrapping_sub(u32::from(!byte));
        p.ack = self.s.isn[1].wrapping_add(1);
        self.capture(p);
        self.probes.push(p.ip.time.0);
        self.after(self.s.delay[0], Event::Probe);
        self.backoff += 1;
        self.timer += 1;
        self.after(self.rto(), Event::Timer(self.timer));
    }

    fn on_ack(&mut self, k: usize) {
        let ack = self.acks[k].clone();
        self.echo[0] = ack.tsval;
        self.edge = self.edge.max(ack.edge);
        self.zero_known = ack.zero;
        let mut news = false;
        for i in &ack.sacked {
            if *i >= self.una && !self.sacked[*i] {
                self.sacked[*i] = true;
                news = true;
            }
        }
        let advanced = ack.next > self.una;
        if advanced {
            let newest = ack.next - 1;
            if self.sent[newest] == 1 {
                self.sample(self.now - self.last_time[newest]);
            }
            self.una = ack.next;
            (self.dup_acks, self.backoff, self.probed) = (0, 0, false);
            if self.recovery.is_some_and(|(until, _)| self.una >= until) {
                self.recovery = None;
            }
        } else if self.nxt > self.una {
            self.dup_acks += 1;
        }
        self.unanswered &= !(advanced || news);
        self.detect(advanced, if self.probed { 1 } else { 3 });
        if news {
            self.reorder += 1;
            self.after(self.srtt / 4, Event::Reorder(self.reorder));
        }
        // SACK of what was sent after the first missing segment does not put the timer off, as in Linux.
        let head = self.last_order.get(self.una).copied().unwrap_or(u64::MAX);
        let older = ack.sacked.iter().any(|i| self.last_order[*i] < head);
        if advanced || news && (older || self.sent[self.una] == 1) {
            self.arm();
        }
        if self.zero_known
            && self.nxt == self.una
            && self.nxt < self.s.segments
            && self.backoff == 0
        {
            self.timer += 1;
            self.after(self.rto(), Event::Timer(self.timer));
        }
        self.send();
        self.note_full();
    }

    fn sample(&mut self, rtt: u64) {
        self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4;
        self.srtt = (7 * self.srtt + rtt) / 8;
    }

    /// Which segments are lost, by SACK or by duplicate ACKs.
    fn detect(&mut self, advanced: bool, enough: usize) {
        if self.una >= self.nxt {
            return;
        }
        if let Some((until, Cause::Timeout)) = self.recovery {
            if advanced && self.una < until && !self.sacked[self.una] {
                self.to_retransmit = vec![self.una];
            }
            return;
        }
        if self.s.sack {
            for i in self.una..self.nxt {
                let later = (self.una..self.nxt)
                    .filter(|j| self.sacked[*j] && self.last_order[*j] > self.last_order[i]);
                if !self.sacked[i] && later.count() >= enough && !self.to_retransmit.contains(&i) {
                    self.to_retransmit.push(i);
                    self.recovery.get_or_insert((self.nxt, Cause::Fast));
                }
            }
        } else if self.dup_acks == 3 && self.recovery.is_none()
            || advanced && self.recovery.is_some()
        {
            self.recovery.get_or_insert((self.nxt, Cause::Fast));
            self.to_retransmit = vec![self.una];
        }
    }

    /// Keeps account of the time with less than a segment of window left. Without an answer it is not known whether
    /// the window limits the sender.
    fn note_full(&mut self) {
        let left = self.edge.saturating_sub(self.nxt as u64 * u64::from(self.s.mss));
        let full = self.zero_known
            || !self.unanswered && left < u64::from(self.s.mss) && self.nxt > self.una;
        match (full, self.full_since) {
            (true, None) => self.full_since = Some(self.now),
            (false, Some(since)) => {
                self.truth.window_full += Duration(self.now - since);
                self.full_since = None;
            }
            _ => {}
        }
    }

    // ---- receiver ----

    fn receive(&mut self, index: usize, tsval: u32) {
        if index <= self.next {
            self.echo[1] = tsval;
        }
        let again = self.arrived[index];
        self.truth.again += u64::from(again);
        let behind = matches!(
            self.s.fates.get(&(index, 0)).map(|f| f.at(self.s.point)),
            Some(Fate::Late { before: false, .. })
        );
        if !again && behind && self.arrived[index + 1..].contains(&true) {
            self.overtaken_behind[index] = true;
        }
        let hole_before = self.next;
        if !again {
            self.arrived[index] = true;
            self.recent.retain(|i| *i != index);
            self.recent.insert(0, index);
            while self.next < self.s.segments && self.arrived[self.next] {
                self.next += 1;
                if let Some((at, wait)) = self.s.stall
                    && at == self.next
                {
                    self.unread_from = Some(self.next);
                    self.after(wait, Event::Read);
                }
            }
        }
        let filled = self.next > hole_before + 1 || (self.next > index + 1);
        let out_of_order = index > hole_before || filled || again;
        self.pending += 1;
        if out_of_order || self.pending >= self.s.ack_every || self.window_field() == 0 {
            self.ack(again.then_some(index));
        } else {
            self.delayed += 1;
            self.after(40 * MS, Event::Delayed(self.delayed));
        }
    }

    fn window_field(&self) -> u16 {
        self.granted().0
    }

    fn granted(&self) -> (u16, u64) {
        let unread = self.unread_from.map_or(0, |from| self.next - from) as u64;
        self.window(self.s.buffer.saturating_sub(unread) * u64::from(self.s.mss))
    }

    fn ack(&mut self, twice: Option<usize>) {
        (self.pending, self.delayed) = (0, self.delayed + 1);
        let s = self.s;
        let mut p = self.header(1, flags::ACK, 0);
        p.seq = s.isn[1].wrapping_add(1);
        p.ack = self.seq(self.next);
        let (field, bytes) = self.granted();
        p.window = field;
        let mut sacked = Vec::new();
        if s.sack {
            let room = if s.timestamps { 3 } else { 4 };
            let mut blocks: Vec<(usize, usize)> = twice.map(|i| (i, i + 1)).into_iter().collect();
            for i in self.recent.clone() {
                if i < self.next
                    || blocks.iter().skip(usize::from(twice.is_some())).any(|b| b.0 <= i && i < b.1)
                {
                    continue;
                }
                let from =
                    (self.next..=i).rev().take_while(|j| self.arrived[*j]).last().unwrap_or(i);
                let to = (i..s.segments).take_while(|j| self.arrived[*j]).last().unwrap_or(i) + 1;
                if blocks.len() < room {
                    blocks.push((from, to));
                    sacked.extend(from..to);
                }
            }
            p.options.sack_count = blocks.len() as u8;
            for (slot, (from, to)) in p.options.sacks.iter_mut().zip(blocks) {
                *slot = (self.seq(from), self.seq(to));
            }
        }
        let last = self.acks.last();
        let edge = last.map_or(0, |a| a.edge).max(self.next as u64 * u64::from(s.mss) + bytes);
        // A duplicate ACK repeats the window field as well (RFC 5681 section 2); that of a SYN is not scaled.
        let repeats = match last {
            Some(last) => last.next == self.next,
            None => self.next == 0 && (s.download || s.sack || u64::from(field) == bytes),
        };
        if repeats && twice.is_none() {
            self.truth.dup_acks += 1;
        }
        let time = p.ip.time.0;
        match (field, self.zero_since) {
            (0, None) => {
                self.zero_since = Some(time);
                self.truth.zero_windows += 1;
            }
            (1.., Some(since)) => {
                self.truth.zero_window += Duration(time - since);
                self.zero_spans.push((since, time));
                self.zero_since = None;
            }
            _ => {}
        }
        let tsval = p.options.timestamps.map_or(0, |t| t.0);
        self.capture(p);
        let k = self.acks.len();
        self.acks.push(AckSent { next: self.next, edge, zero: field == 0, tsval, sacked });
        self.after(s.delay[1], Event::Ack(k));
    }
}
