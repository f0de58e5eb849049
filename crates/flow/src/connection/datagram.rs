//! UDP, ICMP and other IP protocols: counted per flow, so that their share of the link is seen.
//!
//! A flow is a pair of addresses and ports (for ICMP echo the identifier). It ends after five minutes without
//! packets. Pings have round trips as well (`echo.rs`).

use capture::{Addr, Datagram, protocol};
use units::{Bytes, Duration, Instant};

use crate::connection::echo::Pings;
use crate::series::rows::{Connection, End, Flow, Protocol, RttMethod, Vantage};

/// A flow ends after this long without packets: NATs keep UDP mappings that long (RFC 4787 section 4.3).
pub(crate) const IDLE_TIMEOUT: Duration = Duration(300_000_000_000);

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
    /// Pings, by the direction of their requests.
    pings: Option<Box<[Pings; 2]>>,
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
    pub fn new(id: u32, d: &Datagram, hosts: [u32; 2]) -> DatagramFlow {
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
            pings: None,
        }
    }

    /// Counts a datagram. The whole capture has `bytes` with it.
    pub fn take(&mut self, d: &Datagram, direction: usize, bytes: u64) {
        if let Some(echo) = d.echo {
            let pings = self.pings.get_or_insert_default();
            if echo.reply {
                let before = bytes.saturating_sub(u64::from(d.ip.wire_len));
                pings[1 - direction].reply(echo, d.ip.time, before);
            } else {
                pings[direction].request(echo, d.ip.time, bytes);
            }
        }
        self.end = self.end.max(d.ip.time);
        self.packets[direction] += 1;
        self.bytes[direction] += u64::from(d.ip.total_len);
        self.payload[direction] += u64::from(d.payload);
        self.ce[direction] += u64::from(d.ip.ecn == 3);
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
            if let Some(pings) = &self.pings {
                let figures = pings[d].figures(seen_until.max(self.end));
                f.rtt_ms = figures.rtt_ms;
                f.loaded_rtt_ms = figures.loaded_rtt_ms;
                f.loss_rate = figures.lost;
                if f.rtt_ms.is_some() {
                    f.rtt_method = RttMethod::Echo;
                }
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
            vantage: Vantage::Unknown,
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
