//! UDP, ICMP and other IP protocols: counted per flow, so that their share of the link is seen.
//!
//! A flow is a pair of addresses and ports (for ICMP echo the identifier). It ends after five minutes without
//! packets. Requests and their answers have times as well (`exchange.rs`).

use capture::{Addr, Datagram, Message, MessageKind, protocol};
use units::{Bytes, Duration, Instant};

use crate::connection::exchange::Exchanges;
use crate::connection::place::by_ttl;
use crate::connection::turns::{Turns, asker};
use crate::series::evidence::PausedProbe;
use crate::series::output::{Series, SeriesSelection};
use crate::series::rows::{Connection, End, EventKind, Flow, Protocol, RttMethod};

/// A flow ends after this long without packets: NATs keep UDP mappings that long (RFC 4787 section 4.3).
pub(crate) const IDLE_TIMEOUT: Duration = Duration(300_000_000_000);

/// What else the capture shows when a datagram passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around {
    /// Bytes of the whole capture, with this datagram.
    pub bytes: u64,
    /// Time since the last packet from or to the sender of this one.
    pub pause: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct DatagramFlow {
    pub id: u32,
    pub addrs: [(Addr, u16); 2],
    pub hosts: [u32; 2],
    pub end: Instant,
    protocol: Protocol,
    start: Instant,
    interface: u32,
    packets: [u64; 2],
    bytes: [u64; 2],
    payload: [u64; 2],
    ce: [u64; 2],
    /// TTL of the last packet of each side.
    ttl: [u8; 2],
    selected: SeriesSelection,
    /// By the direction of the requests.
    exchanges: [Option<Box<Exchanges>>; 2],
    /// How the numbers of requests and answers were read.
    method: RttMethod,
    /// The side that may ask in a flow without numbers, and its turns; `None` where these are none.
    turns: Option<(usize, Box<Turns>)>,
}

/// Maps an IP protocol number to the protocol of a row.
pub(crate) fn protocol_of(number: u8) -> Protocol {
    match number {
        protocol::UDP => Protocol::Udp,
        protocol::ICMP | protocol::ICMPV6 => Protocol::Icmp,
        other => Protocol::Other(other),
    }
}

impl DatagramFlow {
    pub fn new(id: u32, d: &Datagram, hosts: [u32; 2], selected: SeriesSelection) -> DatagramFlow {
        DatagramFlow {
            id,
            addrs: [(d.ip.src, d.src_port), (d.ip.dst, d.dst_port)],
            hosts,
            end: d.ip.time,
            protocol: protocol_of(d.protocol),
            start: d.ip.time,
            interface: d.ip.interface,
            packets: [0; 2],
            bytes: [0; 2],
            payload: [0; 2],
            ce: [0; 2],
            ttl: [0; 2],
            selected,
            exchanges: [None, None],
            method: RttMethod::None,
            turns: (d.protocol == protocol::UDP)
                .then(|| asker([d.src_port, d.dst_port]))
                .flatten()
                .map(|asker| (asker, Box::default())),
        }
    }

    /// Counts a datagram. Returns the probe that it answers, if that came after a pause.
    pub fn take(
        &mut self,
        d: &Datagram,
        direction: usize,
        around: Around,
        series: &mut Series,
    ) -> Option<PausedProbe> {
        let mut probe = None;
        if let Some(message) = d.message {
            self.turns = None;
            probe = self.exchange(message, d, direction, around, series);
        } else if let Some((asker, turns)) = &mut self.turns
            && !turns.take(direction == *asker, d.ip.time, around.bytes)
        {
            self.turns = None;
        }
        self.ttl[direction] = d.ip.ttl;
        self.end = self.end.max(d.ip.time);
        self.packets[direction] += 1;
        self.bytes[direction] += u64::from(d.ip.total_len);
        self.payload[direction] += u64::from(d.payload);
        self.ce[direction] += u64::from(d.ip.ecn == 3);
        probe
    }

    fn exchange(
        &mut self,
        message: Message,
        d: &Datagram,
        direction: usize,
        around: Around,
        series: &mut Series,
    ) -> Option<PausedProbe> {
        let now = d.ip.time;
        if !message.answer {
            self.method = match message.kind {
                MessageKind::Echo => RttMethod::Echo,
                MessageKind::Dns | MessageKind::Probe => RttMethod::Answer,
            };
            let exchanges = self.exchanges[direction].get_or_insert_default();
            // What a name server takes to answer can depend on the pause.
            let pause = around.pause.filter(|_| message.kind != MessageKind::Dns);
            exchanges.request(message.number, now, around.bytes, pause);
            return None;
        }
        let before = around.bytes.saturating_sub(u64::from(d.ip.wire_len));
        let asker = 1 - direction;
        let exchange = self.exchanges[asker].as_mut()?.answer(message.number, now, before)?;
        let (flow, took_ms) = (self.id * 2 + asker as u32, exchange.took.as_millis_f64());
        let number = i64::from(message.number);
        series.event(self.selected, flow, now, EventKind::Answer, took_ms, number);
        let pause = exchange.pause?;
        Some(PausedProbe { time: exchange.sent, pause, rtt: exchange.took })
    }

    /// The rows; the capture goes on until `seen_until`.
    pub fn rows(&self, seen_until: Instant) -> (Connection, [Flow; 2]) {
        let span = self.end.since(self.start);
        let flow = |d: usize| {
            let mut f = Flow::blank(self.id * 2 + d as u32);
            f.packets = self.packets[d];
            f.data_packets = self.packets[d];
            f.wire_bytes = Bytes(self.bytes[d]);
            f.payload_bytes = Bytes(self.payload[d]);
            f.bytes = f.payload_bytes;
            f.active = span;
            f.goodput = f.bytes.over(span);
            f.ecn_ce = self.ce[d];
            let numbered = self.exchanges[d].as_ref().map(|e| e.figures(seen_until.max(self.end)));
            let in_turns = self.turns.as_ref().filter(|(asker, _)| *asker == d);
            let figures = numbered.or_else(|| in_turns.and_then(|(_, turns)| turns.figures()));
            if let Some(figures) = figures {
                f.rtt_ms = figures.time_ms;
                f.loaded_rtt_ms = figures.loaded_ms;
                f.loss_rate = figures.lost;
                f.rtt_method = match (f.rtt_ms, self.method) {
                    (None, _) => RttMethod::None,
                    (Some(_), RttMethod::None) => RttMethod::Answer,
                    (Some(_), method) => method,
                };
            }
            f
        };
        let connection = Connection {
            id: self.id,
            protocol: self.protocol,
            a_addr: self.addrs[0].0,
            a_port: self.addrs[0].1,
            b_addr: self.addrs[1].0,
            b_port: self.addrs[1].1,
            start: self.start,
            end: self.end,
            initial_rtt: None,
            syn_seen: false,
            end_kind: End::Open,
            vantage: by_ttl(self.ttl).unwrap_or_default(),
            mptcp: false,
            interface: self.interface,
            packets: self.packets.iter().sum(),
            bytes: Bytes(self.bytes.iter().sum()),
            duplicates: 0,
            capture_gaps: Bytes::ZERO,
        };
        (connection, [flow(0), flow(1)])
    }
}
