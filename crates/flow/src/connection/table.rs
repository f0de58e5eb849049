//! The analyser: packets in, rows out; in between the connections that are open.
//!
//! signal: decoded packets in order of time · model: a table from 4-tuple to connection; a SYN with a new initial
//! sequence number begins a new connection on an old 4-tuple · action: a closed connection becomes two rows and
//! its findings fifteen seconds after its last word, and its state is freed; memory follows what is open.

use std::collections::VecDeque;

use capture::{Addr, Datagram, Decoded, TcpSegment, flags};
use hashbrown::{HashMap, HashTable};
use units::{Bytes, Duration, Instant};

use crate::connection::datagram::{DatagramFlow, SILENCE};
use crate::connection::summary::{Kept, connection_row, flow_row};
use crate::connection::{Conn, Outside, Taken};
use crate::diagnose;
use crate::packet::key::{Hasher, Key};
use crate::series::evidence::{CaptureFacts, Evidence, Rival};
use crate::series::output::{Select, Series, Wanted};
use crate::series::rows::{Connection, Event, Finding, Flow, Sample, Segment};
use crate::tcp::hosts::Hosts;

/// How long a closed connection waits for stragglers: a resent FIN after a few back-offs.
const LINGER: Duration = Duration(15_000_000_000);
/// A SYN that nobody answered is given up after the longest SYN retry series of Linux (127 s).
const UNANSWERED: Duration = Duration(130_000_000_000);
/// How often silent datagram flows and unanswered SYNs are looked for, in capture time.
const SWEEP: Duration = Duration(30_000_000_000);
/// The largest flows are remembered, for findings that name a rival.
const RIVALS: usize = 16;

/// What the analysis shall keep beside the rows.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of a bin; 100 ms by default.
    pub bin: Duration,
    /// Connections whose bins are kept.
    pub samples: Select,
    /// Connections whose events are kept.
    pub events: Select,
    /// Connections whose segments are kept.
    pub segments: Select,
    /// Most segment rows per flow; neighbours are joined beyond.
    pub max_segments: usize,
    /// Distributions, shares of time and goodput of flows leave out what was before: a warm-up. Counters and series
    /// tell of everything.
    pub measured_from: Instant,
    /// Packets later than this are not read.
    pub until: Instant,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            bin: Duration::from_millis(100),
            samples: Select::None,
            events: Select::None,
            segments: Select::None,
            max_segments: 200_000,
            measured_from: Instant::ZERO,
            until: Instant(u64::MAX),
        }
    }
}

/// No connection.
const NOWHERE: u32 = u32::MAX;

/// Packets by what they were.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packets {
    /// All.
    pub all: u64,
    /// Bytes on the wire.
    pub wire_bytes: u64,
    /// TCP segments.
    pub tcp: u64,
    /// UDP datagrams.
    pub udp: u64,
    /// ICMP and ICMPv6.
    pub icmp: u64,
    /// Other IP protocols.
    pub other: u64,
    /// Without an IP header.
    pub not_ip: u64,
    /// Broken or cut off before the end of the TCP header.
    pub broken: u64,
    /// IP fragments beyond the one that completed a packet.
    pub fragments: u64,
}

/// The result.
#[derive(Debug, Default)]
pub struct Analysis {
    /// One row per connection, by id.
    pub connections: Vec<Connection>,
    /// Two per connection, by id.
    pub flows: Vec<Flow>,
    /// By severity, then flow.
    pub findings: Vec<Finding>,
    /// Bins, where asked.
    pub samples: Vec<Sample>,
    /// Moments, where asked.
    pub events: Vec<Event>,
    /// Segments, where asked.
    pub segments: Vec<Segment>,
    /// Flows whose segments were joined to stay under the cap.
    pub joined: Vec<u32>,
    /// Packets by kind.
    pub packets: Packets,
    /// What the capture as a whole showed.
    pub facts: CaptureFacts,
}

/// See the module text.
pub struct Analyzer {
    options: Options,
    series: Series,
    /// Slots by the hash of their 4-tuple: four bytes each, so that the table of 20,000 stays in the cache.
    index: HashTable<u32>,
    conns: Vec<Option<Box<Conn>>>,
    free: Vec<u32>,
    /// Slot of the packet before.
    last: u32,
    closing: VecDeque<(Instant, u32, u32)>,
    datagrams: HashMap<Key, DatagramFlow, Hasher>,
    hosts: Hosts,
    rivals: Vec<Rival>,
    next_id: u32,
    next_sweep: Instant,
    clock: Instant,
    /// End of the warm-up, until it is past.
    warm_at: Option<Instant>,
    out: Analysis,
}

impl Analyzer {
    /// Nothing seen yet.
    pub fn new(options: Options) -> Analyzer {
        let series = Series::new(options.max_segments);
        let warm_at = Some(options.measured_from).filter(|from| *from > Instant::ZERO);
        Analyzer {
            options,
            series,
            index: HashTable::new(),
            conns: Vec::new(),
            free: Vec::new(),
            last: NOWHERE,
            closing: VecDeque::new(),
            datagrams: HashMap::default(),
            hosts: Hosts::default(),
            rivals: Vec::new(),
            next_id: 0,
            next_sweep: Instant::ZERO,
            clock: Instant::ZERO,
            warm_at,
            out: Analysis::default(),
        }
    }

    /// Takes one packet in. `time` and `wire_len` are those of the frame.
    #[inline]
    pub fn push(&mut self, time: Instant, wire_len: u32, packet: &Decoded) {
        if time > self.options.until {
            return;
        }
        self.out.packets.all += 1;
        self.out.packets.wire_bytes += u64::from(wire_len);
        if self.out.packets.all == 1 {
            self.out.facts.start = time;
            self.next_sweep = time + SWEEP;
        }
        if time < self.clock {
            self.out.facts.backward_steps += 1;
        } else {
            self.clock = time;
            if self.warm_at.is_some_and(|from| time >= from) {
                self.begin_measuring();
            }
        }
        match packet {
            Decoded::Tcp(segment) => {
                self.out.packets.tcp += 1;
                self.tcp(segment);
            }
            Decoded::Datagram(datagram) => self.datagram(datagram),
            Decoded::Fragment => self.out.packets.fragments += 1,
            Decoded::NotIp => self.out.packets.not_ip += 1,
            Decoded::Broken => self.out.packets.broken += 1,
        }
        if self.clock >= self.next_sweep
            || self.closing.front().is_some_and(|c| c.0 + LINGER <= self.clock)
        {
            self.tidy();
        }
    }

    fn tcp(&mut self, s: &TcpSegment) {
        // Packets come in trains: the connection of the packet before is the best guess.
        let (mut slot, mut d) = match self.direction_in(self.last, s) {
            Some(d) => (self.last, d),
            None => self.find(s),
        };
        if s.has(flags::SYN)
            && self.conns[slot as usize].as_ref().is_some_and(|c| c.is_new_instance(s, d))
        {
            self.flush(slot);
            (slot, d) = self.find(s);
        }
        self.last = slot;
        let Some(conn) = self.conns[slot as usize].as_deref_mut() else {
            return;
        };
        let [a, b] = conn.hosts;
        let (from, to) = if d == 0 { (a, b) } else { (b, a) };
        self.hosts.moved(from, to, u64::from(s.ip.total_len));
        if conn.packets == 0 {
            conn.set_path_min(self.hosts.path_min(conn.addrs[0].0, conn.addrs[1].0));
        }
        let mut outside =
            Outside { series: &mut self.series, bin: self.options.bin, hosts: &self.hosts };
        match conn.take(s, d, &mut outside) {
            Taken::Duplicate => self.out.facts.duplicates += 1,
            Taken::Closed => self.closing.push_back((s.ip.time, slot, conn.id)),
            Taken::Normal => {}
        }
        let data = conn.streams[d].counts.data_packets;
        if s.payload > 0 && data.is_multiple_of(64) {
            let rival = Rival {
                flow: conn.id * 2 + d as u32,
                bytes: Bytes(conn.streams[d].counts.payload_bytes),
                start: conn.start,
                end: s.ip.time,
            };
            self.rank(rival);
        }
    }

    /// Slot of the connection of `s`, which is opened if need be, and the direction of `s` in it.
    fn find(&mut self, s: &TcpSegment) -> (u32, usize) {
        let hash = Key::new(6, (s.ip.src, s.src_port), (s.ip.dst, s.dst_port)).mix();
        let mut direction = None;
        let known = self.index.find(hash, |slot| {
            direction = self.direction_in(*slot, s);
            direction.is_some()
        });
        match (known, direction) {
            (Some(slot), Some(d)) => (*slot, d),
            _ => {
                let slot = self.open(hash, s);
                (slot, self.direction_in(slot, s).unwrap_or(0))
            }
        }
    }

    /// If the connection of `s` is in `slot` (a 4-tuple stands in one slot only): 0 where the segment goes from a
    /// to b, 1 where it goes from b to a.
    #[inline]
    fn direction_in(&self, slot: u32, s: &TcpSegment) -> Option<usize> {
        let [a, b] = &self.conns.get(slot as usize)?.as_ref()?.addrs;
        // All four at once: a branch for each would cost more than the comparison.
        let same = |x: &(Addr, u16), y: &(Addr, u16)| {
            (x.0 == s.ip.src) & (x.1 == s.src_port) & (y.0 == s.ip.dst) & (y.1 == s.dst_port)
        };
        if same(a, b) {
            Some(0)
        } else if same(b, a) {
            Some(1)
        } else {
            None
        }
    }

    fn wanted(&self, id: u32) -> Wanted {
        Wanted {
            samples: self.options.samples.wants(id),
            events: self.options.events.wants(id),
            segments: self.options.segments.wants(id),
        }
    }

    fn open(&mut self, hash: u64, s: &TcpSegment) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        let wanted = self.wanted(id);
        // A SYN/ACK comes from b, though it may be the first packet that the capture holds.
        let mut first = *s;
        if s.has(flags::SYN | flags::ACK) {
            std::mem::swap(&mut first.ip.src, &mut first.ip.dst);
            std::mem::swap(&mut first.src_port, &mut first.dst_port);
        }
        let hosts = [self.hosts.open(first.ip.src), self.hosts.open(first.ip.dst)];
        let conn = Box::new(Conn::new(id, &first, hosts, wanted));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.conns[slot as usize] = Some(conn);
                slot
            }
            None => {
                self.conns.push(Some(conn));
                (self.conns.len() - 1) as u32
            }
        };
        let conns = &self.conns;
        let rehash = |slot: &u32| match &conns[*slot as usize] {
            Some(c) => Key::new(6, c.addrs[0], c.addrs[1]).mix(),
            None => 0,
        };
        self.index.insert_unique(hash, slot, rehash);
        slot
    }

    fn datagram(&mut self, d: &Datagram) {
        match d.protocol {
            17 => self.out.packets.udp += 1,
            1 | 58 => self.out.packets.icmp += 1,
            _ => self.out.packets.other += 1,
        }
        let src = (d.ip.src, d.src_port);
        let key = Key::new(d.protocol, src, (d.ip.dst, d.dst_port));
        if !self.datagrams.contains_key(&key) {
            let id = self.next_id;
            self.next_id += 1;
            let hosts = [self.hosts.open(d.ip.src), self.hosts.open(d.ip.dst)];
            self.datagrams.insert(key, DatagramFlow::new(id, d, hosts));
        }
        let Some(flow) = self.datagrams.get_mut(&key) else { return };
        let direction = usize::from(flow.addrs[0] != src);
        flow.take(d, direction);
        let [a, b] = flow.hosts;
        let (from, to) = if direction == 0 { (a, b) } else { (b, a) };
        self.hosts.moved(from, to, u64::from(d.ip.total_len));
    }

    /// The warm-up is over: open connections forget the figures that it gave.
    #[cold]
    #[inline(never)]
    fn begin_measuring(&mut self) {
        self.warm_at = None;
        let from = self.options.measured_from;
        for slot in 0..self.conns.len() {
            if let Some(mut c) = self.conns[slot].take() {
                // The smallest round trip is the path's own, whenever it was seen.
                let path = self.learn(&c, c.addrs[0].0, c.addrs[1].0);
                c.set_path_min(path);
                c.measure_from(from);
                self.conns[slot] = Some(c);
            }
        }
    }

    fn rank(&mut self, rival: Rival) {
        if let Some(known) = self.rivals.iter_mut().find(|r| r.flow == rival.flow) {
            *known = rival;
        } else if self.rivals.len() < RIVALS {
            self.rivals.push(rival);
        } else if let Some(least) = self.rivals.iter_mut().min_by_key(|r| r.bytes)
            && least.bytes < rival.bytes
        {
            *least = rival;
        }
    }

    #[cold]
    fn tidy(&mut self) {
        while let Some(&(at, slot, id)) = self.closing.front() {
            if at + LINGER > self.clock {
                break;
            }
            self.closing.pop_front();
            let due = self.conns[slot as usize].as_ref().filter(|c| c.id == id).map(|c| c.end);
            match due {
                Some(end) if end + LINGER > self.clock => self.closing.push_back((end, slot, id)),
                Some(_) => self.flush(slot),
                None => {}
            }
        }
        if self.clock < self.next_sweep {
            return;
        }
        self.next_sweep = self.clock + SWEEP;
        let stale: Vec<u32> = (0..self.conns.len() as u32)
            .filter(|slot| {
                self.conns[*slot as usize].as_ref().is_some_and(|c| {
                    !c.closed
                        && c.end + UNANSWERED <= self.clock
                        && c.streams.iter().all(|s| s.measured.is_none() && s.max == 0)
                        && c.streams.iter().any(|s| s.counts.packets == 0)
                })
            })
            .collect();
        for slot in stale {
            self.flush(slot);
        }
        let clock = self.clock;
        let mut ended: Vec<(Key, DatagramFlow)> = Vec::new();
        for (key, flow) in &self.datagrams {
            if flow.end + SILENCE <= clock {
                ended.push((*key, flow.clone()));
            }
        }
        ended.sort_by_key(|(_, f)| f.id);
        for (key, flow) in ended {
            self.datagrams.remove(&key);
            self.flush_datagram(&flow);
        }
    }

    fn flush_datagram(&mut self, flow: &DatagramFlow) {
        let (connection, flows) = flow.rows();
        self.out.connections.push(connection);
        self.out.flows.extend(flows);
        for (addr, row) in flow.addrs.iter().zip(flow.hosts) {
            self.hosts.close(addr.0, row);
        }
    }

    /// Makes the rows of a connection and frees it.
    fn flush(&mut self, slot: u32) {
        let Some(mut c) = self.conns[slot as usize].take() else { return };
        self.free.push(slot);
        let hash = Key::new(6, c.addrs[0], c.addrs[1]).mix();
        if let Ok(entry) = self.index.find_entry(hash, |at| *at == slot) {
            entry.remove();
        }
        let (a, b) = (c.addrs[0].0, c.addrs[1].0);
        let path = self.learn(&c, a, b);
        if let Some(from) = self.warm_at {
            c.measure_from(from);
        }
        let connection = connection_row(&c);
        c.set_path_min(path);
        let mut outside =
            Outside { series: &mut self.series, bin: self.options.bin, hosts: &self.hosts };
        let (end, initial) = (c.end, c.initial_rtt);
        let rows = [0, 1].map(|stream| {
            let mut cx = c.context(stream, end, &mut outside);
            flow_row(&mut c.streams[stream], &mut cx, initial)
        });
        self.diagnose(&connection, &rows, path);
        self.tally(&c);
        self.out.connections.push(connection);
        self.out.flows.extend(rows.into_iter().map(|(flow, _)| flow));
        self.hosts.close(a, c.hosts[0]);
        self.hosts.close(b, c.hosts[1]);
    }

    fn learn(&mut self, c: &Conn, a: Addr, b: Addr) -> Option<u64> {
        let measured = c.streams.iter().filter_map(|s| s.measured.as_ref()?.rtt.min());
        if let Some(least) = measured.chain(c.initial_rtt.map(Duration::as_nanos)).min() {
            self.hosts.learn_path(a, b, least);
        }
        self.hosts.path_min(a, b)
    }

    fn diagnose(
        &mut self,
        connection: &Connection,
        rows: &[(Flow, Option<Kept>); 2],
        path: Option<u64>,
    ) {
        for (i, (flow, kept)) in rows.iter().enumerate() {
            let Some(kept) = kept else { continue };
            if flow.data_packets == 0 {
                continue;
            }
            let mut rivals: Vec<Rival> =
                self.rivals.iter().filter(|r| r.flow / 2 != connection.id).copied().collect();
            rivals.sort_by_key(|r| std::cmp::Reverse(r.bytes));
            let evidence = Evidence {
                connection,
                flow,
                reverse: &rows[1 - i].0,
                profile: &kept.profile,
                wakeups: &kept.wakeups,
                bursts: &kept.bursts,
                rivals: &rivals,
                path_rtt_ms_min: path.map(|ns| ns as f64 / 1e6),
            };
            self.out.findings.extend(diagnose::flow_findings(&evidence));
        }
    }

    fn tally(&mut self, c: &Conn) {
        let facts = &mut self.out.facts;
        facts.connections += 1;
        facts.without_syn += u64::from(!c.streams.iter().any(|s| s.syn_seen));
        let [x, y] = &c.streams;
        facts.one_sided +=
            u64::from(c.packets > 1 && (x.counts.packets == 0 || y.counts.packets == 0));
        facts.giants += u64::from(x.counts.giants + y.counts.giants > 0);
        facts.gap_bytes += Bytes(x.counts.gap_bytes + y.counts.gap_bytes);
    }

    /// Ends the capture and hands out everything.
    pub fn finish(mut self, reported_drops: Option<u64>) -> Analysis {
        let mut open: Vec<(u32, u32)> = self
            .conns
            .iter()
            .enumerate()
            .filter_map(|(i, c)| Some((c.as_ref()?.id, i as u32)))
            .collect();
        open.sort_unstable();
        for (_, slot) in open {
            self.flush(slot);
        }
        let mut datagrams: Vec<DatagramFlow> = self.datagrams.drain().map(|(_, f)| f).collect();
        datagrams.sort_by_key(|f| f.id);
        for flow in &datagrams {
            self.flush_datagram(flow);
        }
        let Analyzer { mut out, series, clock, .. } = self;
        // Rows are large: each is moved once.
        out.connections.sort_by_cached_key(|c| c.id);
        out.flows.sort_by_cached_key(|f| f.id);
        out.facts.packets = out.packets.all;
        out.facts.broken = out.packets.broken;
        out.facts.reported_drops = reported_drops;
        out.facts.end = clock.max(out.facts.start);
        out.findings.extend(diagnose::capture_findings(&out.facts));
        out.findings.sort_by(|x, y| y.severity.cmp(&x.severity).then(x.flow.cmp(&y.flow)));
        let (mut samples, mut events, segments, joined) = series.into_segments();
        samples.sort_by_key(|s| (s.flow, s.time));
        events.sort_by_key(|e| (e.flow, e.time));
        out.samples = samples;
        out.events = events;
        out.segments = segments;
        out.joined = joined;
        out
    }
}
