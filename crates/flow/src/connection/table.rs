//! The analyser: takes decoded packets in order of time and returns rows.
//!
//! A table maps each 4-tuple to its connection. A SYN with a new initial sequence number begins a new connection on an
//! old 4-tuple. Fifteen seconds after the last packet of a closed connection its rows and findings are made and its
//! state is freed. So memory follows the number of open connections, not the length of the capture.

use std::collections::VecDeque;

use capture::{Addr, Datagram, Decoded, Limit, TcpSegment, flags, protocol};
use hashbrown::{HashMap, HashTable};
use units::{Bytes, Duration, Instant};

use crate::connection::datagram::{Around, DatagramFlow, IDLE_TIMEOUT};
use crate::connection::paths::Paths;
use crate::connection::place::place_exchanges;
use crate::connection::summary::{RuleInputs, connection_row, flow_row};
use crate::connection::{Conn, SegmentOutcome, TableContext};
use crate::diagnose;
use crate::identity::key::{Hasher, Key};
use crate::series::directions::Directions;
use crate::series::evidence::{CaptureFacts, Evidence, Rival};
use crate::series::output::{Select, Series, SeriesSelection};
use crate::series::rows::{Connection, Event, Finding, Flow, Sample, Segment};
use crate::series::stamps::WIDTH;
use crate::tcp::hosts::Hosts;

/// A closed connection waits this long for late packets, such as a FIN retransmitted after a few back-offs.
const CLOSE_TIMEOUT: Duration = Duration(15_000_000_000);
/// An unanswered SYN ends after the longest series of SYN retries of Linux (127 s).
const SYN_TIMEOUT: Duration = Duration(130_000_000_000);
/// Interval, in capture time, of the search for ended datagram flows and unanswered SYNs.
const SWEEP_INTERVAL: Duration = Duration(30_000_000_000);
/// Number of largest flows that findings may name as a rival.
const MAX_RIVALS: usize = 16;

/// Which series the analysis stores beside the rows, and which time it covers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of a bin; 100 ms by default.
    pub bin: Duration,
    /// Connections whose bins are stored.
    pub samples: Select,
    /// Connections whose events are stored.
    pub events: Select,
    /// Connections whose segments are stored.
    pub segments: Select,
    /// Connections of which the delay of each direction is kept.
    pub directions: Select,
    /// Round trips with timestamps are kept one per so long at first, 20 ms by default. A fit of the link needs more of them.
    pub trips_every: Duration,
    /// Maximum number of segment rows per flow; beyond, neighbours are joined.
    pub max_segments: usize,
    /// End of the warm-up. Distributions, shares of time and goodput leave out what was before; counters and series
    /// include it.
    pub measured_from: Instant,
    /// Packets later than this are ignored.
    pub until: Instant,
    /// How large a packed file may be unpacked; none: without limit.
    pub unpacked: Option<Limit>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            bin: Duration::from_millis(100),
            samples: Select::None,
            events: Select::None,
            segments: Select::None,
            directions: Select::None,
            trips_every: WIDTH,
            max_segments: 200_000,
            measured_from: Instant::ZERO,
            until: Instant(u64::MAX),
            unpacked: None,
        }
    }
}

/// Stands for "no slot".
const NO_SLOT: u32 = u32::MAX;

/// Number of packets by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packets {
    /// Packets of any kind.
    pub all: u64,
    /// Sum of their lengths on the wire, bytes.
    pub wire_bytes: u64,
    /// TCP segments in IPv4 and IPv6.
    pub tcp: u64,
    /// UDP datagrams in IPv4 and IPv6.
    pub udp: u64,
    /// ICMP and ICMPv6 messages.
    pub icmp: u64,
    /// Packets of other IP protocols.
    pub other: u64,
    /// Frames without an IP header.
    pub not_ip: u64,
    /// Packets with invalid headers, or cut off before the end of the TCP header.
    pub broken: u64,
    /// IP fragments beyond the one that completed a packet.
    pub fragments: u64,
}

/// The rows and series of one analysis.
#[derive(Debug, Default)]
pub struct Analysis {
    /// One row per connection, by id.
    pub connections: Vec<Connection>,
    /// Two per connection, by id.
    pub flows: Vec<Flow>,
    /// Findings by severity, then flow.
    pub findings: Vec<Finding>,
    /// Bins of the connections selected.
    pub samples: Vec<Sample>,
    /// Events of the connections selected.
    pub events: Vec<Event>,
    /// Segments of the connections selected.
    pub segments: Vec<Segment>,
    /// The delay of each direction, of the flows of the connections selected that have one.
    pub directions: Vec<(u32, Directions)>,
    /// Flows whose segments were joined to stay below the maximum.
    pub joined: Vec<u32>,
    /// Number of packets by kind.
    pub packets: Packets,
    /// Facts about the capture as a whole.
    pub facts: CaptureFacts,
}

/// Analyses decoded packets; see the top of this file.
pub struct Analyzer {
    options: Options,
    series: Series,
    /// Slots by the hash of their 4-tuple: four bytes each, so that the table of 20,000 stays in the cache.
    index: HashTable<u32>,
    conns: Vec<Option<Box<Conn>>>,
    free: Vec<u32>,
    /// Slot of the previous packet.
    last: u32,
    closing: VecDeque<(Instant, u32, u32)>,
    datagrams: HashMap<Key, DatagramFlow, Hasher>,
    hosts: Hosts,
    paths: Paths,
    rivals: Vec<Rival>,
    next_id: u32,
    next_sweep: Instant,
    clock: Instant,
    /// End of the capture, if it lasted beyond the last packet.
    ended: Instant,
    /// End of the warm-up; `None` once it is past.
    warm_up_until: Option<Instant>,
    out: Analysis,
}

impl Analyzer {
    /// An analyser without packets.
    pub fn new(options: Options) -> Analyzer {
        let series = Series::new(options.max_segments);
        let warm_up_until = Some(options.measured_from).filter(|from| *from > Instant::ZERO);
        Analyzer {
            options,
            series,
            index: HashTable::new(),
            conns: Vec::new(),
            free: Vec::new(),
            last: NO_SLOT,
            closing: VecDeque::new(),
            datagrams: HashMap::default(),
            hosts: Hosts::default(),
            paths: Paths::default(),
            rivals: Vec::new(),
            next_id: 0,
            next_sweep: Instant::ZERO,
            clock: Instant::ZERO,
            ended: Instant::ZERO,
            warm_up_until,
            out: Analysis::default(),
        }
    }

    /// Processes one packet. `time` and `wire_len` are those of the frame.
    #[inline]
    pub fn push(&mut self, time: Instant, wire_len: u32, packet: &Decoded) {
        if time > self.options.until {
            return;
        }
        self.out.packets.all += 1;
        self.out.packets.wire_bytes += u64::from(wire_len);
        if self.out.packets.all == 1 {
            self.out.facts.start = time;
            self.next_sweep = time + SWEEP_INTERVAL;
        }
        if time < self.clock {
            self.out.facts.backward_steps += 1;
        } else {
            self.clock = time;
            if self.warm_up_until.is_some_and(|from| time >= from) {
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
            || self.closing.front().is_some_and(|c| c.0 + CLOSE_TIMEOUT <= self.clock)
        {
            self.tidy();
        }
    }

    fn tcp(&mut self, s: &TcpSegment) {
        // Packets come in bursts: the connection of the previous packet is the best guess.
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
        self.hosts.count_bytes(from, to, u64::from(s.ip.total_len), s.ip.time);
        if conn.packets == 0 {
            conn.set_path_min(self.hosts.path_min(conn.addrs[0].0, conn.addrs[1].0));
        }
        let mut context = TableContext {
            series: &mut self.series,
            bin: self.options.bin,
            trips_every: self.options.trips_every,
            hosts: &self.hosts,
        };
        match conn.take(s, d, &mut context) {
            SegmentOutcome::Duplicate => self.out.facts.duplicates += 1,
            SegmentOutcome::Closed => self.closing.push_back((s.ip.time, slot, conn.id)),
            SegmentOutcome::Normal => {}
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

    /// Slot of the connection of `s`, opened if it is new, and the direction of `s` in it.
    fn find(&mut self, s: &TcpSegment) -> (u32, usize) {
        let hash = Key::new(protocol::TCP, (s.ip.src, s.src_port), (s.ip.dst, s.dst_port)).mix();
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

    /// Direction of `s` (0 from a to b, 1 from b to a) if its connection is in `slot`. A 4-tuple is in one slot only.
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

    fn selected(&self, id: u32) -> SeriesSelection {
        SeriesSelection {
            samples: self.options.samples.includes(id),
            events: self.options.events.includes(id),
            segments: self.options.segments.includes(id),
        }
    }

    fn open(&mut self, hash: u64, s: &TcpSegment) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        let selected = self.selected(id);
        // A SYN/ACK comes from b, even as the first packet of the capture.
        let mut first = *s;
        if s.has(flags::SYN | flags::ACK) {
            std::mem::swap(&mut first.ip.src, &mut first.ip.dst);
            std::mem::swap(&mut first.src_port, &mut first.dst_port);
        }
        let hosts = [self.hosts.open(first.ip.src), self.hosts.open(first.ip.dst)];
        let conn = Box::new(Conn::new(id, &first, hosts, selected));
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
            Some(c) => Key::new(protocol::TCP, c.addrs[0], c.addrs[1]).mix(),
            None => 0,
        };
        self.index.insert_unique(hash, slot, rehash);
        slot
    }

    fn datagram(&mut self, d: &Datagram) {
        match d.protocol {
            protocol::UDP => self.out.packets.udp += 1,
            protocol::ICMP | protocol::ICMPV6 => self.out.packets.icmp += 1,
            _ => self.out.packets.other += 1,
        }
        let src = (d.ip.src, d.src_port);
        let key = Key::new(d.protocol, src, (d.ip.dst, d.dst_port));
        if !self.datagrams.contains_key(&key) {
            let id = self.next_id;
            self.next_id += 1;
            let hosts = [self.hosts.open(d.ip.src), self.hosts.open(d.ip.dst)];
            self.datagrams.insert(key, DatagramFlow::new(id, d, hosts, self.selected(id)));
        }
        let Some(flow) = self.datagrams.get_mut(&key) else { return };
        // Where a host talks to itself only the message shows the direction.
        let direction = match d.message {
            Some(message) if flow.addrs[0] == flow.addrs[1] => usize::from(message.answer),
            _ => usize::from(flow.addrs[0] != src),
        };
        let [a, b] = flow.hosts;
        let (from, to) = if direction == 0 { (a, b) } else { (b, a) };
        let pause = self.hosts.pause(from, d.ip.time);
        let around = Around { bytes: self.out.packets.wire_bytes, pause };
        if let Some(probe) = flow.take(d, direction, around, &mut self.series) {
            let asked = flow.id * 2 + 1 - direction as u32;
            self.paths.take(d.ip.dst, d.ip.src, asked, probe);
        }
        self.hosts.count_bytes(from, to, u64::from(d.ip.total_len), d.ip.time);
    }

    /// Ends the warm-up: open connections reset their figures.
    #[cold]
    #[inline(never)]
    fn begin_measuring(&mut self) {
        self.warm_up_until = None;
        let from = self.options.measured_from;
        for slot in 0..self.conns.len() {
            if let Some(mut c) = self.conns[slot].take() {
                // The minimum RTT is a fact about the path, so the warm-up counts.
                let path = self.record_path_min(&c, c.addrs[0].0, c.addrs[1].0);
                c.set_path_min(path);
                c.measure_from(from);
                self.conns[slot] = Some(c);
            }
        }
    }

    fn rank(&mut self, rival: Rival) {
        if let Some(known) = self.rivals.iter_mut().find(|r| r.flow == rival.flow) {
            *known = rival;
        } else if self.rivals.len() < MAX_RIVALS {
            self.rivals.push(rival);
        } else if let Some(smallest) = self.rivals.iter_mut().min_by_key(|r| r.bytes)
            && smallest.bytes < rival.bytes
        {
            *smallest = rival;
        }
    }

    #[cold]
    fn tidy(&mut self) {
        while let Some(&(at, slot, id)) = self.closing.front() {
            if at + CLOSE_TIMEOUT > self.clock {
                break;
            }
            self.closing.pop_front();
            let due = self.conns[slot as usize].as_ref().filter(|c| c.id == id).map(|c| c.end);
            match due {
                Some(end) if end + CLOSE_TIMEOUT > self.clock => {
                    self.closing.push_back((end, slot, id))
                }
                Some(_) => self.flush(slot),
                None => {}
            }
        }
        if self.clock < self.next_sweep {
            return;
        }
        self.next_sweep = self.clock + SWEEP_INTERVAL;
        let stale: Vec<u32> = (0..self.conns.len() as u32)
            .filter(|slot| {
                self.conns[*slot as usize].as_ref().is_some_and(|c| {
                    !c.closed
                        && c.end + SYN_TIMEOUT <= self.clock
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
            if flow.end + IDLE_TIMEOUT <= clock {
                ended.push((*key, flow.clone()));
            }
        }
        ended.sort_by_key(|(_, f)| f.id);
        for (key, flow) in ended {
            self.datagrams.remove(&key);
            self.flush_datagram(&flow, self.clock);
        }
    }

    fn flush_datagram(&mut self, flow: &DatagramFlow, seen_until: Instant) {
        let (connection, flows) = flow.rows(seen_until);
        self.out.connections.push(connection);
        self.out.flows.extend(flows);
        for (addr, row) in flow.addrs.iter().zip(flow.hosts) {
            self.hosts.close(addr.0, row);
        }
    }

    /// Makes the rows and findings of a connection and frees its slot.
    fn flush(&mut self, slot: u32) {
        self.flush_at(slot, Instant::ZERO);
    }

    /// The same; the capture shows that nothing more came until `seen_until`.
    fn flush_at(&mut self, slot: u32, seen_until: Instant) {
        let Some(mut c) = self.conns[slot as usize].take() else { return };
        self.free.push(slot);
        let hash = Key::new(protocol::TCP, c.addrs[0], c.addrs[1]).mix();
        if let Ok(entry) = self.index.find_entry(hash, |at| *at == slot) {
            entry.remove();
        }
        let (a, b) = (c.addrs[0].0, c.addrs[1].0);
        let path = self.record_path_min(&c, a, b);
        if let Some(from) = self.warm_up_until {
            c.measure_from(from);
        }
        let connection = connection_row(&c);
        c.set_path_min(path);
        let mut context = TableContext {
            series: &mut self.series,
            bin: self.options.bin,
            trips_every: self.options.trips_every,
            hosts: &self.hosts,
        };
        let (end, initial) = (c.end, c.initial_rtt);
        let rows = [0, 1].map(|stream| {
            let mut cx = c.context(stream, end, &mut context);
            let until = if c.closed { end } else { seen_until };
            flow_row(&mut c.streams[stream], &mut cx, initial, until)
        });
        self.diagnose(&connection, &rows, path);
        self.count_facts(&c);
        self.out.facts.incomplete +=
            u64::from(rows.iter().any(|(flow, _)| flow.capture_lacks.is_some()));
        self.out.connections.push(connection);
        self.out.flows.extend(rows.into_iter().map(|(flow, _)| flow));
        self.hosts.close(a, c.hosts[0]);
        self.hosts.close(b, c.hosts[1]);
    }

    /// Stores the minimum RTT of `c` for its pair of hosts; returns that of the pair, ns.
    fn record_path_min(&mut self, c: &Conn, a: Addr, b: Addr) -> Option<u64> {
        let measured = c.streams.iter().filter_map(|s| s.measured.as_ref()?.rtt.min());
        if let Some(smallest) = measured.chain(c.initial_rtt.map(Duration::as_nanos)).min() {
            self.hosts.update_path_min(a, b, smallest);
        }
        self.hosts.path_min(a, b)
    }

    fn diagnose(
        &mut self,
        connection: &Connection,
        rows: &[(Flow, Option<RuleInputs>); 2],
        path: Option<u64>,
    ) {
        for (i, (flow, inputs)) in rows.iter().enumerate() {
            let Some(inputs) = inputs else { continue };
            if flow.data_packets == 0 {
                continue;
            }
            let mut rivals: Vec<Rival> =
                self.rivals.iter().filter(|r| r.flow / 2 != connection.id).copied().collect();
            rivals.sort_by_key(|r| std::cmp::Reverse(r.bytes));
            let evidence = Evidence {
                capture_start: self.out.facts.start,
                connection,
                flow,
                reverse: &rows[1 - i].0,
                profile: &inputs.profile,
                directions: inputs.directions.as_ref(),
                wakeups: &inputs.wakeups,
                bursts: &inputs.bursts,
                silences: &inputs.silences,
                refused: inputs.refused,
                rivals: &rivals,
                path_rtt_ms_min: path.map(|ns| ns as f64 / 1e6),
            };
            self.out.findings.extend(diagnose::flow_findings(&evidence));
            if self.options.directions.includes(connection.id) {
                let kept = inputs.directions.iter().cloned();
                self.out.directions.extend(kept.map(|directions| (flow.id, directions)));
            }
        }
    }

    fn count_facts(&mut self, c: &Conn) {
        let facts = &mut self.out.facts;
        facts.connections += 1;
        facts.without_syn += u64::from(!c.streams.iter().any(|s| s.syn_seen));
        let [x, y] = &c.streams;
        facts.one_sided +=
            u64::from(c.packets > 1 && (x.counts.packets == 0 || y.counts.packets == 0));
        facts.offloaded += u64::from(x.counts.offloaded + y.counts.offloaded > 0);
        facts.gap_bytes += Bytes(x.counts.gap_bytes + y.counts.gap_bytes);
    }

    /// The capture went on to `at`, beyond its last packet.
    pub fn capture_lasted_to(&mut self, at: Instant) {
        self.ended = at.min(self.options.until);
    }

    /// Ends the capture and returns all rows and series.
    pub fn finish(mut self, reported_drops: Option<u64>) -> Analysis {
        let mut open: Vec<(u32, u32)> = self
            .conns
            .iter()
            .enumerate()
            .filter_map(|(i, c)| Some((c.as_ref()?.id, i as u32)))
            .collect();
        open.sort_unstable();
        let end = self.clock.max(self.ended);
        for (_, slot) in open {
            self.flush_at(slot, end);
        }
        let mut datagrams: Vec<DatagramFlow> = self.datagrams.drain().map(|(_, f)| f).collect();
        datagrams.sort_by_key(|f| f.id);
        for flow in &datagrams {
            self.flush_datagram(flow, end);
        }
        let Analyzer { mut out, series, clock, hosts, paths, .. } = self;
        // Rows are large: this sort moves each only once.
        out.connections.sort_by_cached_key(|c| c.id);
        out.flows.sort_by_cached_key(|f| f.id);
        raise_bounds(&mut out, &hosts);
        place_exchanges(&mut out.connections, &mut out.flows);
        for pauses in paths.sorted() {
            // Beside the host that answers no time is one of the path.
            if out.flows.get(pauses.flow as usize).is_some_and(|f| f.rtt_ms.is_some()) {
                out.findings.extend(diagnose::probe_findings(&pauses));
            }
        }
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

/// An upper bound of the RTT stays one if it is raised to an RTT that was measured: here the minimum of the same two hosts,
/// of whichever connection and direction. It is known at the end of the capture only.
fn raise_bounds(out: &mut Analysis, hosts: &Hosts) {
    for flow in &mut out.flows {
        let Some(bound) = flow.rtt_bound_ms else { continue };
        let connection = flow.id / 2;
        if let Ok(at) = out.connections.binary_search_by_key(&connection, |c| c.id)
            && let Some(ns) = hosts.path_min(out.connections[at].a_addr, out.connections[at].b_addr)
        {
            flow.rtt_bound_ms = Some(bound.map(|ms| ms.max(ns as f64 / 1e6)));
        }
    }
}
