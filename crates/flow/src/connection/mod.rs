//! One TCP connection: handshake, teardown, two streams, and where the capture was taken.
//!
//! Every segment of the 4-tuple between one SYN and the next belongs to it. A segment is data for the stream of its
//! direction and an acknowledgement for the other.
//!
//! Where the capture was taken follows from the handshake, which has two halves: SYN → SYN/ACK (capture → b →
//! capture) and SYN/ACK → ACK (capture → a → capture). A half near zero means that the capture was taken beside that
//! host. Without a handshake the same comparison uses seq/ACK and timestamp round trips. If they are missing too, it
//! uses TTLs that no router has decremented.
//!
//! Sources: RFC 9293 sections 3.5 and 3.6, RFC 7323 section 2; definitions in `docs/measures.md`.

pub(crate) mod complete;
pub(crate) mod datagram;
pub(crate) mod exchange;
mod padding;
mod paths;
mod place;
pub(crate) mod session;
pub(crate) mod summary;
pub(crate) mod table;
mod turns;

use capture::{Addr, TcpSegment, flags};
use units::{Duration, Instant};

use crate::connection::padding::Padding;
use crate::identity::dedup::Recent;
use crate::series::output::{Series, SeriesSelection};
use crate::series::rows::{End, EventKind, Vantage};
use crate::tcp::hosts::Hosts;
use crate::tcp::state::{Context, Scale, Smoothed};
use crate::tcp::stream::{Stream, TIMESTAMPS};
use units::{Delays, Histogram};

/// A half below this share of the whole RTT belongs to a host beside the capture.
const MAX_NEAR_SHARE: f64 = 0.12;
/// Samples of both halves needed to infer the vantage without a handshake.
const MIN_SAMPLES: u32 = 4;
/// Samples of one half alone after which TTLs are compared instead.
const MIN_SAMPLES_ONE_SIDED: u32 = 8;

/// Bytes of the host that opened a connection which the capture may lack before the first answer that it has: the window of a
/// SYN/ACK is not scaled (RFC 7323 section 2.2).
const MAX_UNSEEN: i64 = 0xffff;

/// Times and counts of SYN and SYN/ACK.
#[derive(Clone, Copy, Debug, Default)]
struct Handshake {
    syn: Option<Instant>,
    syns: u32,
    syn_ack: Option<Instant>,
    syn_acks: u32,
    done: bool,
}

/// What a segment did to the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentOutcome {
    /// It belongs to the connection.
    Normal,
    /// It is a duplicate made by the capture and was not counted.
    Duplicate,
    /// It closed the connection: the second FIN or a RST.
    Closed,
}

/// One connection. The fields that every segment needs stand first; their order is that in memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Conn {
    pub addrs: [(Addr, u16); 2],
    pub packets: u64,
    pub bytes: u64,
    pub end: Instant,
    pub id: u32,
    pub hosts: [u32; 2],
    pub selected: SeriesSelection,
    pub vantage: Vantage,
    pub mptcp: bool,
    pub rst: bool,
    pub closed: bool,
    ttl: [u8; 2],
    padding: [Padding; 2],
    pub streams: [Stream; 2],
    recent: [Recent; 2],
    handshake: Handshake,
    pub start: Instant,
    pub interface: u32,
    pub duplicates: u64,
    pub initial_rtt: Option<Duration>,
    /// Handshake halves towards a and towards b.
    pub halves: [Option<Duration>; 2],
}

/// What a connection needs from the table when a segment arrives.
pub(crate) struct TableContext<'a> {
    pub series: &'a mut Series,
    pub bin: Duration,
    /// What a round trip with timestamps stands for at first.
    pub trips_every: Duration,
    /// Counts the bytes of the link.
    pub hosts: &'a Hosts,
}

impl Conn {
    pub fn new(id: u32, s: &TcpSegment, hosts: [u32; 2], selected: SeriesSelection) -> Conn {
        Conn {
            id,
            addrs: [(s.ip.src, s.src_port), (s.ip.dst, s.dst_port)],
            start: s.ip.time,
            end: s.ip.time,
            interface: s.ip.interface,
            packets: 0,
            bytes: 0,
            duplicates: 0,
            mptcp: false,
            rst: false,
            closed: false,
            vantage: Vantage::Unknown,
            initial_rtt: None,
            halves: [None, None],
            streams: [Stream::default(), Stream::default()],
            hosts,
            selected,
            handshake: Handshake::default(),
            recent: [Recent::default(), Recent::default()],
            ttl: [0; 2],
            padding: [Padding::default(), Padding::default()],
        }
    }

    /// Whether `s`, a SYN of direction `d`, begins another connection on the same 4-tuple.
    pub fn is_new_instance(&self, s: &TcpSegment, d: usize) -> bool {
        let mine = &self.streams[d];
        let other = &self.streams[1 - d];
        if mine.syn_seen {
            return mine.isn != s.seq;
        }
        if s.has(flags::ACK) {
            // The answer to a SYN that was seen, or a SYN/ACK recorded before its SYN.
            let answers = other.syn_seen && other.isn.wrapping_add(1) == s.ack;
            return !answers && (other.syn_seen || self.closed || self.packets > 3);
        }
        // A bare SYN from the other side while only SYNs were seen is a simultaneous open.
        let only_syns = self.packets <= u64::from(self.handshake.syns);
        if other.syn_seen && only_syns {
            return false;
        }
        // Data was seen before. A first SYN on this side is only late if it announces the bytes already seen.
        !(mine.started
            && mine.seq.position(s.seq.wrapping_add(1), mine.max) <= mine.max
            && self.packets < 8)
            && self.packets > 0
    }

    /// Whether `s` belongs to an earlier connection on the same ports: between a SYN and its answer, a segment that acknowledges
    /// what is not the SYN's, or the RST that it is answered with (RFC 9293 section 3.10.7.3). It counts as a packet and no more.
    #[cold]
    #[inline(never)]
    fn is_left_over(&self, s: &TcpSegment, d: usize) -> bool {
        let [opener, other] = &self.streams;
        if !opener.syn_seen || other.started || s.has(flags::SYN) {
            return false;
        }
        if d == 1 {
            let acked = opener.seq.position(s.ack, opener.max);
            return s.has(flags::ACK) && !(0..=opener.max + MAX_UNSEEN).contains(&acked);
        }
        let at = opener.seq.position(s.seq, opener.max);
        s.has(flags::RST) && !s.has(flags::ACK) && !(0..=opener.max + MAX_UNSEEN).contains(&at)
    }

    /// Processes a segment of direction `d`.
    pub fn take(&mut self, s: &TcpSegment, d: usize, out: &mut TableContext<'_>) -> SegmentOutcome {
        if self.recent[d].is_duplicate(s) {
            self.duplicates += 1;
            return SegmentOutcome::Duplicate;
        }
        if self.padding.iter().any(Padding::is_open) {
            self.judge_padding(s, d, out);
        }
        let short;
        let s = if s.maybe_padding {
            short = self.padding[d].without(s);
            &short
        } else {
            s
        };
        let now = s.ip.time;
        self.start = self.start.min(now);
        self.end = self.end.max(now);
        self.packets += 1;
        self.bytes += u64::from(s.ip.total_len);
        self.ttl[d] = s.ip.ttl;
        self.mptcp |= s.options.mptcp;
        let counts = &mut self.streams[d].counts;
        counts.packets += 1;
        counts.wire_bytes += u64::from(s.ip.total_len);
        if !self.handshake.done && self.is_left_over(s, d) {
            return SegmentOutcome::Normal;
        }
        self.streams[1 - d].acks_seen = true;

        if s.has(flags::SYN) {
            self.syn(s, d, out);
        } else if !self.handshake.done && s.has(flags::ACK) {
            self.finish_handshake(s, d);
        }
        if s.has(flags::RST) {
            self.event(out, 1 - d, now, EventKind::Rst, 0.0);
            self.rst = true;
            if let Some(m) = &mut self.streams[d].measured {
                m.silences.reset_by_sender = true;
            }
            if let Some(m) = &mut self.streams[1 - d].measured {
                m.silences.reset_by_receiver = true;
            }
            let first = !self.closed;
            self.closed = true;
            return if first { SegmentOutcome::Closed } else { SegmentOutcome::Normal };
        }
        if s.has(flags::ACK) {
            let mut cx = self.context(1 - d, now, out);
            self.streams[1 - d].on_ack(s, &mut cx);
        }
        if (s.payload > 0 || self.streams[d].measured.is_some()) && !self.data(s, d, out) {
            self.duplicates += 1;
            self.packets -= 1;
            self.bytes -= u64::from(s.ip.total_len);
            self.streams[d].counts.packets -= 1;
            self.streams[d].counts.wire_bytes -= u64::from(s.ip.total_len);
            return SegmentOutcome::Duplicate;
        }
        if s.has(flags::FIN) {
            self.fin(s, d, out);
        }
        if self.vantage == Vantage::Unknown && !s.has(flags::SYN) {
            self.infer_vantage();
        }
        let finished = !self.closed && self.streams.iter().all(|s| s.fin.is_some());
        self.closed |= finished;
        if finished { SegmentOutcome::Closed } else { SegmentOutcome::Normal }
    }

    /// Processes payload and probes. False for a duplicate made by the capture.
    fn data(&mut self, s: &TcpSegment, d: usize, out: &mut TableContext<'_>) -> bool {
        let now = s.ip.time;
        let probe = s.payload == 0
            && !s.has(flags::SYN)
            && !s.has(flags::FIN)
            && self.streams[d].seq.position(s.seq, self.streams[d].max) == self.streams[d].max - 1;
        if s.payload == 0 && !probe {
            let stream = &mut self.streams[d];
            if stream.away()
                && let Some(m) = &mut stream.measured
            {
                m.order.passed(s.ip.id.unwrap_or(0), 1);
            }
            return true;
        }
        let mut cx = self.context(d, now, out);
        let genuine = self.streams[d].on_data(s, &mut cx);
        // Only where neither timestamps nor a capture at the sender can give an RTT.
        if s.options.timestamps.is_none()
            && self.streams[d].vantage == Vantage::Receiver
            && let Some(mut m) = self.streams[d].measured.take()
        {
            self.streams[d].on_window_probe(&mut m, now);
            self.streams[d].measured = Some(m);
        }
        genuine
    }

    /// What the methods of `stream` need from the connection and the table.
    #[inline]
    pub fn context<'s>(
        &self,
        stream: usize,
        now: Instant,
        out: &'s mut TableContext<'_>,
    ) -> Context<'s> {
        Context {
            now,
            flow: self.id * 2 + stream as u32,
            selected: self.selected,
            series: out.series,
            bin: out.bin,
            trips_every: out.trips_every,
            hosts: out.hosts,
            link: (self.hosts[stream], self.hosts[1 - stream]),
        }
    }

    /// Lowers the minimum RTT (ns) of the path, which both streams share.
    pub fn set_path_min(&mut self, ns: Option<u64>) {
        for stream in &mut self.streams {
            stream.path_min = match (stream.path_min, ns) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
    }

    /// Resets the distributions of both streams at the end of the warm-up.
    pub fn measure_from(&mut self, from: Instant) {
        for stream in &mut self.streams {
            let before = stream.delivered_bytes();
            if let Some(m) = &mut stream.measured {
                m.measure_from(from, before);
            }
        }
    }

    fn set_vantage(&mut self, from_a: Vantage) {
        self.vantage = from_a;
        for i in 0..2 {
            self.streams[i].vantage = self.vantage_of(i);
            self.streams[i].near_half = self.halves[i];
        }
    }

    /// The vantage seen from the sender of `stream`.
    fn vantage_of(&self, stream: usize) -> Vantage {
        match (self.vantage, stream) {
            (Vantage::Sender, 1) => Vantage::Receiver,
            (Vantage::Receiver, 1) => Vantage::Sender,
            (v, _) => v,
        }
    }

    fn event(
        &self,
        out: &mut TableContext<'_>,
        stream: usize,
        now: Instant,
        kind: EventKind,
        value: f64,
    ) {
        let seq = self.streams[stream].max;
        out.series.event(self.selected, self.id * 2 + stream as u32, now, kind, value, seq);
    }

    #[cold]
    #[inline(never)]
    fn syn(&mut self, s: &TcpSegment, d: usize, out: &mut TableContext<'_>) {
        let now = s.ip.time;
        let ack = s.has(flags::ACK);
        self.event(out, d, now, EventKind::Syn, if ack { 1.0 } else { 0.0 });
        let stream = &mut self.streams[d];
        if !stream.syn_seen {
            stream.syn_seen = true;
            stream.isn = s.seq;
            if !stream.started {
                stream.start_at(s.seq.wrapping_add(1));
            }
            stream.mss_option = s.options.mss;
            stream.scale_option = s.options.window_scale;
            stream.sack_permitted = s.options.sack_permitted;
            stream.timestamps = s.options.timestamps.is_some();
            self.agree();
        }
        let h = &mut self.handshake;
        if ack {
            h.syn_acks += 1;
            if h.syn_ack.is_none() {
                h.syn_ack = Some(now);
                // Karn's rule: after a second SYN it is unknown which one was answered.
                if h.syns == 1 && d == 1 {
                    self.halves[1] = h.syn.map(|t| now.since(t));
                }
            }
        } else {
            h.syns += 1;
            h.syn.get_or_insert(now);
        }
    }

    #[inline(never)]
    fn finish_handshake(&mut self, s: &TcpSegment, d: usize) {
        let h = &mut self.handshake;
        let Some(syn_ack) = h.syn_ack else {
            return;
        };
        if d != 0 || s.ack != self.streams[1].isn.wrapping_add(1) && s.payload == 0 {
            return;
        }
        h.done = true;
        if h.syn_acks == 1 {
            self.halves[0] = Some(s.ip.time.since(syn_ack));
        }
        // Without a step of the clock of the capture in between, nothing was measured.
        if let (Some(a), Some(b)) = (self.halves[0], self.halves[1])
            && a + b > Duration::ZERO
        {
            self.initial_rtt = Some(a + b);
            self.set_path_min(Some((a + b).as_nanos()));
            self.set_vantage(vantage_by_halves(a.as_nanos(), b.as_nanos()));
        }
    }

    /// Derives what the two SYNs negotiated. Window scale and timestamps need both (RFC 7323 section 2.2).
    fn agree(&mut self) {
        let seen = [self.streams[0].syn_seen, self.streams[1].syn_seen];
        let offered = [self.streams[0].scale_option, self.streams[1].scale_option];
        let mss = [self.streams[0].mss_option, self.streams[1].mss_option];
        let stamps = self.streams[0].timestamps && self.streams[1].timestamps;
        let sack = self.streams[0].sack_permitted && self.streams[1].sack_permitted;
        for s in 0..2 {
            let peer = 1 - s;
            self.streams[s].no_sack = seen[0] && seen[1] && !sack;
            self.streams[s].scale = Scale {
                known: match (seen[s], seen[peer]) {
                    (true, true) => {
                        Some(if offered[s].is_some() { offered[peer].unwrap_or(0) } else { 0 })
                    }
                    (false, true) => Some(offered[peer].unwrap_or(0)),
                    (true, false) if offered[s].is_none() => Some(0),
                    _ => None,
                },
                inferred: 0,
                exact: 0,
            };
            let agreed = match (mss[s], mss[peer]) {
                (Some(a), Some(b)) => u32::from(a.min(b)),
                (a, b) => a.or(b).map_or(0, u32::from),
            };
            let both_stamp =
                if seen[s] && seen[peer] { stamps } else { self.streams[s].timestamps };
            self.streams[s].mss_stamped = both_stamp || agreed == 0;
            self.streams[s].mss_agreed = if agreed > 0 {
                agreed.saturating_sub(if both_stamp { TIMESTAMPS } else { 0 }).max(1)
            } else {
                0
            };
        }
    }

    #[cold]
    #[inline(never)]
    fn fin(&mut self, s: &TcpSegment, d: usize, out: &mut TableContext<'_>) {
        let stream = &mut self.streams[d];
        if !stream.started {
            stream.start_at(s.seq);
        }
        let at = stream.seq.position(s.seq, stream.max) + i64::from(s.payload);
        if stream.fin.is_none() {
            stream.fin = Some(at);
            if let Some(m) = &mut self.streams[1 - d].measured {
                m.silences.closed_by_receiver = Some(s.ip.time);
            }
            self.event(out, d, s.ip.time, EventKind::Fin, 0.0);
        }
    }

    /// Finds the vantage without a handshake: the half of the round trip that is near zero.
    #[inline(never)]
    fn infer_vantage(&mut self) {
        for stream in 0..2 {
            let s = &self.streams[stream];
            let here = if s.near_count >= MIN_SAMPLES && s.far_count >= MIN_SAMPLES {
                vantage_by_halves(s.near_min, s.far_min)
            } else if s.far_count >= MIN_SAMPLES_ONE_SIDED
                && s.near_count == 0
                && s.far_count.is_power_of_two()
            {
                match place::by_ttl(self.ttl) {
                    Some(v) if stream == 0 => v,
                    Some(Vantage::Sender) => Vantage::Receiver,
                    Some(Vantage::Receiver) => Vantage::Sender,
                    _ => continue,
                }
            } else {
                continue;
            };
            let from_a = match (here, stream) {
                (Vantage::Sender, 1) => Vantage::Receiver,
                (Vantage::Receiver, 1) => Vantage::Sender,
                (v, _) => v,
            };
            self.set_vantage(from_a);
            for t in 0..2 {
                if self.vantage_of(t) != Vantage::Sender
                    && let Some(m) = &mut self.streams[t].measured
                {
                    // Measured with the wrong vantage.
                    m.rtt = Delays::default();
                    m.stamps.clear();
                    m.loaded_rtt = Delays::default();
                    m.in_flight = Histogram::default();
                    m.in_flight_plain_max = 0;
                    m.smoothed = Smoothed::default();
                }
            }
            return;
        }
    }

    /// How the connection ended.
    pub fn end_kind(&self) -> End {
        if self.rst {
            End::Rst
        } else if self.closed || self.streams.iter().any(|s| s.fin.is_some() && s.fin_acked) {
            End::Fin
        } else {
            End::Open
        }
    }
}

/// Vantage as seen from the host that the half `near` belongs to.
fn vantage_by_halves(near: u64, far: u64) -> Vantage {
    let whole = (near + far) as f64;
    if whole <= 0.0 {
        return Vantage::Unknown;
    }
    match near as f64 / whole {
        share if share < MAX_NEAR_SHARE => Vantage::Sender,
        share if share > 1.0 - MAX_NEAR_SHARE => Vantage::Receiver,
        _ => Vantage::Middle,
    }
}
