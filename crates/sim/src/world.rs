//! The simulated network: nodes, ports, connections, and the loop that moves them through time.
//!
//! signal: events in the order of time · model: frames follow routes of ports; endpoints, applications, probes and
//! devices react · action: [`Results`].
//!
//! Nothing here reads a clock or rolls dice of its own; the same scenario gives the same frames on every machine.

use algo::{Rng, aqm, cc, gate, rwnd};
use scenario::{App as AppKind, Changed, ProbeKind, QueuePer, Scenario, WindowUpdate};
use units::{Duration, Histogram, Instant};

use crate::apps::{App, Command, Commands, Voice};
use crate::events::{Events, Target};
use crate::frame::{Frame, Frames, Kind, flags};
use crate::port::{Device, Loss, Outcome, Passage, Port, Queue};
use crate::record::{AppRow, EventRow, ProbeRow, Results};
use crate::rewrite::Rewriter;
use crate::routes::Routes;
use crate::tcp::{Endpoint, Hold, Labels, News, Phase, Receiver, Sender, receive, send};
use crate::wire::Wiring;

/// First port of a flow's data sender; iperf3's.
const SERVER_PORT: u16 = 5_201;
/// First port of those who open: Linux's `ip_local_port_range`.
const CLIENT_PORT: u16 = 32_768;

/// A connection.
pub(crate) struct Connection {
    pub flow: usize,
    pub nodes: [usize; 2],
    /// Side that sends the flow's data.
    pub data_side: u8,
    pub ends: [Box<Endpoint>; 2],
    pub wiring: Wiring,
    pub start: Instant,
    pub last: Instant,
    pub initial_rtt: Option<Duration>,
    pub packets: u64,
    pub bytes: u64,
    pub closed: bool,
    /// By side.
    pub books: [Book; 2],
    opened_told: bool,
}

/// What is counted of one direction beside its endpoints.
#[derive(Default)]
pub(crate) struct Book {
    pub lost: u64,
    pub wire_bytes: u64,
    pub delivered: u64,
    pub measured: u64,
    pub first_data: Option<Instant>,
    pub last_delivery: Instant,
    pub queued: Histogram,
    pub in_flight: Histogram,
    pub second: u64,
    pub second_bytes: u64,
    pub peak: u64,
    pub window_full: u64,
    pub limits: [u64; 8],
    /// Smallest queueing delay of each of the last ten tenths of a second.
    pub recent: Vec<u64>,
    pub last: send::Counters,
}

struct ProbeState {
    route: u32,
    back: u32,
    sent: u64,
    next: usize,
    /// Rows of probes on the way, by number.
    rows: Vec<usize>,
}

struct VoiceCall {
    flow: usize,
    routes: [u32; 2],
    every: Duration,
    bytes: u32,
    class: u8,
    calls: [Voice; 2],
}

/// Who sees frames pass: capture files.
pub trait Tap {
    /// Whether it looks at all: else nothing is prepared for it.
    const LOOKS: bool = true;
    /// A frame passes a node: it is sent or received there.
    fn frame(&mut self, node: usize, now: Instant, frame: &Frame, wiring: &Wiring);
}

/// Nobody looks.
pub struct NoTap;

impl Tap for NoTap {
    const LOOKS: bool = false;
    #[inline]
    fn frame(&mut self, _node: usize, _now: Instant, _frame: &Frame, _wiring: &Wiring) {}
}

/// The state of a run.
pub struct World<'s, T: Tap> {
    pub(crate) scenario: &'s Scenario,
    tap: T,
    now: Instant,
    end: Instant,
    events: Events,
    frames: Frames,
    pub(crate) ports: Vec<Port>,
    routes: Routes,
    pub(crate) connections: Vec<Connection>,
    apps: Vec<Option<App>>,
    voices: Vec<VoiceCall>,
    probes: Vec<ProbeState>,
    /// By node; empty where no node rewrites windows at any time.
    rewriters: Vec<Option<Rewriter>>,
    /// For each port with a probing gate: routes there and back.
    gate_routes: Vec<Option<(u32, u32)>>,
    pub(crate) results: Results,
    pub(crate) measured_from: Instant,
    bin_started: Instant,
    keep_events: bool,
    // scratch
    outcomes: Vec<Outcome>,
    out: Vec<Frame>,
    commands: Commands,
    unblocked: Vec<(u32, u8)>,
}

impl<'s, T: Tap> World<'s, T> {
    /// A network at rest.
    pub fn new(scenario: &'s Scenario, tap: T, keep_events: bool) -> World<'s, T> {
        let end = Instant(scenario.duration.0);
        let measured_from = Instant(scenario.warmup.0);
        let mut ports: Vec<Port> = scenario
            .links
            .iter()
            .map(|link| {
                let aqm = link.queue.queue(&aqm::Setup::default());
                let queue = match link.queue_per {
                    QueuePer::Link => Queue::Shared(aqm),
                    QueuePer::User => Queue::PerUser { fresh: Box::new(aqm), users: Vec::new(), turn: 0 },
                };
                let [port, weather] = ["port", "link"]
                    .map(|element| Rng::new(scenario.seed, &format!("{element}.{}", link.name)));
                Port::new(link.to, queue, link.build(), port, weather)
            })
            .collect();
        for node in &scenario.nodes {
            if let Some(device) = &node.device {
                let port = &mut ports[device.link];
                let qdisc = Queue::Shared(device.qdisc.queue(&aqm::Setup::default()));
                port.set_device(
                    qdisc,
                    Device::new(device.gate.gate(&gate::Setup::default()), &device.firmware),
                );
            }
        }
        ports.iter_mut().for_each(|p| p.measured_from = measured_from);
        let routes = Routes::new(scenario.nodes.len(), scenario.links.iter().map(|l| (l.from, l.to)));
        let rewrites = scenario.nodes.iter().any(|n| n.window.is_some())
            || scenario.changes.iter().flat_map(|c| &c.what).any(|w| matches!(w, Changed::NodeWindow(..)));
        let rewriters = scenario
            .nodes
            .iter()
            .filter(|_| rewrites)
            .map(|n| n.window.as_ref().map(|w| Rewriter::new(w.clone(), 1_448)))
            .collect();
        let gates = ports.len();
        World {
            scenario,
            tap,
            now: Instant::ZERO,
            end,
            events: Events::default(),
            frames: Frames::default(),
            ports,
            routes,
            connections: Vec::new(),
            apps: Vec::new(),
            voices: Vec::new(),
            probes: Vec::new(),
            rewriters,
            gate_routes: vec![None; gates],
            results: Results::default(),
            measured_from,
            bin_started: Instant::ZERO,
            keep_events,
            outcomes: Vec::new(),
            out: Vec::new(),
            commands: Commands::new(),
            unblocked: Vec::new(),
        }
    }

    /// Runs to the end; `progress` hears the share that is done, at least a hundred times, and may stop it.
    pub fn run(mut self, progress: &mut dyn FnMut(f64) -> bool) -> Option<(Results, T)> {
        self.set_up();
        let step = (self.end.0 / 100).max(1);
        let mut next = step;
        while let Some((now, target)) = self.events.pop(self.end) {
            self.now = now;
            self.handle(target);
            // A million events are a fraction of a second: a long run with many flows is heard of, too.
            if now.0 >= next || self.events.fired.is_multiple_of(1 << 20) {
                next = now.0 + step;
                if !progress(now.0 as f64 / self.end.0 as f64) {
                    return None;
                }
            }
        }
        self.now = self.end;
        self.finish();
        Some((self.results, self.tap))
    }

    fn set_up(&mut self) {
        let scenario = self.scenario;
        for (i, flow) in scenario.flows.iter().enumerate() {
            let app = App::new(&flow.app);
            if let AppKind::Voip { every, bytes, jitter_buffer } = &flow.app {
                let there = self.routes.between(flow.from, flow.to);
                let back = self.routes.between(flow.to, flow.from);
                self.voices.push(VoiceCall {
                    flow: i,
                    routes: [there, back],
                    every: *every,
                    bytes: bytes.0 as u32,
                    class: flow.sender.class,
                    calls: [Voice::new(*every, *jitter_buffer), Voice::new(*every, *jitter_buffer)],
                });
            }
            self.apps.push(app);
            self.events.push(Instant(flow.start.0), Target::App(i as u32));
        }
        for (i, probe) in scenario.probes.iter().enumerate() {
            let route = self.routes.between(probe.from, probe.to);
            let back = self.routes.between(probe.to, probe.from);
            self.probes.push(ProbeState { route, back, sent: 0, next: 0, rows: Vec::new() });
            self.events.push(Instant(probe.start.0), Target::Probe(i as u32));
        }
        for (i, change) in scenario.changes.iter().enumerate() {
            self.events.push(Instant(change.at.0), Target::Change(i as u32));
        }
        for (i, node) in scenario.nodes.iter().enumerate() {
            let Some(device) = &node.device else { continue };
            self.route_gate(i, device.link);
        }
        self.events.push(Instant(scenario.bin.0), Target::Bin);
    }

    /// A probing gate pings the far end of the first transfer that leaves or reaches its node.
    fn route_gate(&mut self, node: usize, port: usize) {
        if self.ports[port].device.as_ref().is_none_or(|d| d.gate_probe_every().is_none()) {
            return;
        }
        let far = self.scenario.flows.iter().find_map(|f| match (f.from == node, f.to == node) {
            (true, _) => Some(f.to),
            (_, true) => Some(f.from),
            _ => None,
        });
        let far = far.unwrap_or(self.ports[port].to);
        let there = self.routes.between(node, far);
        let back = self.routes.between(far, node);
        if self.gate_routes[port].is_none() {
            self.events.push(self.now, Target::GateProbe(port as u32));
        }
        self.gate_routes[port] = Some((there, back));
    }

    fn handle(&mut self, target: Target) {
        match target {
            Target::PortFree(port) => self.run_port(port, |port, now, outcomes| port.run(now, outcomes)),
            Target::PortArrival(port) => self.arrivals(port),
            Target::PortGate(port) => self.run_port(port, |port, now, outcomes| port.on_gate(now, outcomes)),
            Target::Endpoint(id) => self.on_endpoint_timer(id),
            Target::App(flow) => self.on_app_timer(flow as usize),
            Target::Probe(probe) => self.on_probe_timer(probe as usize),
            Target::Bin => self.on_bin(),
            Target::Change(i) => self.on_change(i as usize),
            Target::GateProbe(port) => self.on_gate_probe(port),
        }
    }

    // ------------------------------------------------------------------------------------------ frames

    /// A host sends a frame.
    fn send(&mut self, node: usize, frame: &Frame) {
        self.results.conservation.sent += 1;
        self.show(node, frame);
        let port = self.routes.port(frame.route, 0);
        if frame.kind == Kind::Tcp && self.ports[port as usize].device.is_some() {
            let c = &mut self.connections[frame.owner as usize];
            c.ends[usize::from(frame.side)].sender.local += u64::from(frame.bytes);
        }
        let handle = self.frames.insert(frame);
        if let Some(Some(rewriter)) = self.rewriters.get_mut(node)
            && frame.kind == Kind::Tcp
            && frame.payload() > 0
        {
            rewriter.on_sent(self.now, frame);
        }
        self.enqueue(port, handle);
    }

    #[inline]
    fn show(&mut self, node: usize, frame: &Frame) {
        if T::LOOKS {
            let wiring = self.wiring(frame);
            self.tap.frame(node, self.now, frame, &wiring);
        }
    }

    fn wiring(&self, frame: &Frame) -> Wiring {
        match frame.kind {
            Kind::Tcp => self.connections[frame.owner as usize].wiring,
            _ => Wiring { nodes: self.routes.ends(frame.route, frame.side), ..Wiring::default() },
        }
    }

    #[inline]
    fn enqueue(&mut self, port: u32, handle: u32) {
        let packet = self.frames.get(handle).packet(handle);
        match self.ports[port as usize].pass(self.now, &packet) {
            Some(Passage::Started(at)) => self.start(port, at, handle),
            Some(Passage::Lost) => self.gone(port, handle, Loss::Link),
            Some(Passage::Waits) => self.arm_port(port),
            None => self.run_port(port, |port, now, outcomes| port.enqueue(now, packet, outcomes)),
        }
    }

    /// A frame is on its way over a port's link.
    #[inline]
    fn start(&mut self, port: u32, at: Instant, handle: u32) {
        if let Some(at) = self.ports[port as usize].push_pipe(at, handle) {
            self.events.push(at, Target::PortArrival(port));
        }
    }

    #[inline]
    fn arm_port(&mut self, index: u32) {
        let port = &mut self.ports[index as usize];
        if let Some(at) = port.arm(self.now) {
            self.events.push(at, Target::PortFree(index));
        }
        if port.device.is_some()
            && let Some(at) = port.arm_gate(self.now)
        {
            self.events.push(at, Target::PortGate(index));
        }
    }

    /// Runs a step of a port and carries out what follows from it.
    #[inline]
    fn run_port(&mut self, index: u32, step: impl FnOnce(&mut Port, Instant, &mut Vec<Outcome>)) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        let now = self.now;
        let port = &mut self.ports[index as usize];
        step(port, now, &mut outcomes);
        for outcome in outcomes.drain(..) {
            match outcome {
                Outcome::Started(packet, at) => {
                    let frame = self.frames.get_mut(packet.handle);
                    frame.queued += now.since(packet.enqueued).0;
                    frame.ecn = packet.ecn;
                    self.start(index, at, packet.handle);
                }
                Outcome::LeftQueue(packet) => {
                    let frame = *self.frames.get(packet.handle);
                    self.left_host_queue(&frame);
                }
                Outcome::Gone(packet, loss) => self.gone(index, packet.handle, loss),
            }
        }
        self.outcomes = outcomes;
        self.arm_port(index);
        while let Some((connection, side)) = self.unblocked.pop() {
            self.push_endpoint(connection, side);
        }
    }

    /// TSQ: a frame has left the host's own queue, so its flow may send on.
    fn left_host_queue(&mut self, frame: &Frame) {
        if frame.kind != Kind::Tcp || frame.hop != 0 {
            return;
        }
        let sender = &mut self.connections[frame.owner as usize].ends[usize::from(frame.side)].sender;
        sender.local = sender.local.saturating_sub(u64::from(frame.bytes));
        if sender.hold == Hold::Local {
            self.unblocked.push((frame.owner, frame.side));
        }
    }

    fn gone(&mut self, port: u32, handle: u32, loss: Loss) {
        let frame = self.frames.remove(handle);
        match loss {
            Loss::Link => self.results.conservation.lost += 1,
            Loss::Overflow | Loss::Aqm => {
                self.results.conservation.dropped += 1;
                if self.ports[port as usize].device.is_some() {
                    self.left_host_queue(&frame);
                }
            }
        }
        if matches!(frame.kind, Kind::Ping | Kind::Pong | Kind::Isochronous) {
            let row = self.probes[frame.owner as usize].rows[frame.seq as usize];
            self.results.probes[row].lost = true;
        }
        if frame.kind != Kind::Tcp {
            return;
        }
        let data = frame.payload() > 0;
        if data {
            self.connections[frame.owner as usize].books[usize::from(frame.side)].lost += 1;
        }
        if self.keep_events && data {
            let kind = match loss {
                Loss::Overflow => "drop_overflow",
                Loss::Aqm => "drop_aqm",
                Loss::Link => "drop_link",
            };
            self.results.events.push(EventRow {
                flow: frame.owner * 2 + u32::from(frame.side),
                t: self.now,
                kind,
                value: f64::from(frame.payload()),
                seq: frame.seq,
            });
        }
    }

    /// Frames reach the far end of a link.
    fn arrivals(&mut self, index: u32) {
        loop {
            let port = &mut self.ports[index as usize];
            let Some(&(at, handle)) = port.pipe.front() else { return };
            if at > self.now {
                self.events.push(at, Target::PortArrival(index));
                return;
            }
            port.pipe.pop_front();
            let node = port.to;
            let bytes = u64::from(self.frames.get(handle).bytes);
            port.counters.arrived += 1;
            port.counters.bytes += bytes;
            if self.now >= self.measured_from {
                port.counters.measured_bytes += bytes;
            }
            // The next one is armed before this one is handled, because handling may add to this very link.
            let next = port.pipe.front().map(|&(t, next)| {
                // Read now, it is in the cache when it arrives.
                std::hint::black_box(self.frames.get(next).bytes);
                t
            });
            if let Some(next) = next
                && next > self.now
            {
                self.events.push(next, Target::PortArrival(index));
                self.arrive(node, handle);
                return;
            }
            self.arrive(node, handle);
        }
    }

    fn arrive(&mut self, node: usize, handle: u32) {
        self.frames.get_mut(handle).hop += 1;
        if T::LOOKS {
            let frame = *self.frames.get(handle);
            self.show(node, &frame);
        }
        let frame = self.frames.get_mut(handle);
        let (route, hop) = (frame.route, frame.hop);
        if let Some(Some(rewriter)) = self.rewriters.get_mut(node)
            && frame.kind == Kind::Tcp
            && frame.flags & flags::SYN == 0
        {
            rewriter.on_frame(self.now, frame);
        }
        if let Some(port) = self.routes.next_port(route, hop) {
            self.enqueue(port, handle);
            return;
        }
        let frame = self.frames.remove(handle);
        self.results.conservation.delivered += 1;
        self.deliver(node, &frame);
    }

    fn deliver(&mut self, node: usize, frame: &Frame) {
        match frame.kind {
            Kind::Tcp => self.deliver_tcp(frame),
            Kind::Ping => {
                let back = self.probes[frame.owner as usize].back;
                let pong = Frame { kind: Kind::Pong, side: 1, hop: 0, route: back, queued: 0, ..*frame };
                self.send(node, &pong);
            }
            Kind::Pong => {
                let row = self.probes[frame.owner as usize].rows[frame.seq as usize];
                let row = &mut self.results.probes[row];
                row.rtt = Some(self.now.since(frame.sent));
            }
            Kind::Isochronous => {
                let row = self.probes[frame.owner as usize].rows[frame.seq as usize];
                let row = &mut self.results.probes[row];
                row.owd = Some(self.now.since(frame.sent));
            }
            Kind::Voice => {
                let call = &mut self.voices[frame.owner as usize];
                call.calls[usize::from(frame.side)].on_arrived(self.now.since(frame.sent));
            }
            Kind::GatePing => {
                let Some((_, back)) = self.gate_routes[frame.owner as usize] else { return };
                let pong = Frame { kind: Kind::GatePong, side: 1, hop: 0, route: back, queued: 0, ..*frame };
                self.send(node, &pong);
            }
            Kind::GatePong => {
                let rtt = self.now.since(frame.sent);
                self.run_port(frame.owner, |port, now, outcomes| port.on_probe(now, rtt, outcomes));
            }
        }
    }

    fn deliver_tcp(&mut self, frame: &Frame) {
        let now = self.now;
        let c = &mut self.connections[frame.owner as usize];
        c.last = now;
        c.packets += 1;
        c.bytes += u64::from(frame.bytes);
        let side = frame.side ^ 1;
        let mut out = std::mem::take(&mut self.out);
        let news = c.ends[usize::from(side)].on_frame(now, frame, &mut out);
        if frame.payload() > 0 {
            self.results.data_packets += 1;
            let measured = now >= self.measured_from;
            let book = &mut c.books[usize::from(frame.side)];
            if measured {
                book.queued.record(frame.queued);
                book.measured += news.received;
            }
            if news.received > 0 {
                book.delivered += news.received;
                book.last_delivery = now;
            }
        }
        if news.opened && c.initial_rtt.is_none() {
            c.initial_rtt = Some(now.since(c.start));
        }
        self.flush(frame.owner, side, &mut out);
        self.out = out;
        self.tell_app(frame.owner, side, &news);
    }

    // ------------------------------------------------------------------------------------------ endpoints

    /// Sends what an endpoint wrote, and arms its next deadline.
    fn flush(&mut self, connection: u32, side: u8, out: &mut Vec<Frame>) {
        let now = self.now;
        let node = self.connections[connection as usize].nodes[usize::from(side)];
        for frame in out.iter() {
            let c = &mut self.connections[connection as usize];
            let book = &mut c.books[usize::from(side)];
            if frame.payload() > 0 && book.first_data.is_none() {
                book.first_data = Some(now);
            }
            book.wire_bytes += u64::from(frame.bytes);
            self.send(node, frame);
        }
        out.clear();
        self.arm_endpoint(connection, side);
    }

    #[inline]
    fn arm_endpoint(&mut self, connection: u32, side: u8) {
        let end = &mut self.connections[connection as usize].ends[usize::from(side)];
        let Some(at) = end.next_wakeup() else { return };
        if end.armed.is_some_and(|armed| armed <= at && armed > self.now) {
            return;
        }
        end.armed = Some(at);
        self.events.push(at.max(self.now), Target::Endpoint(connection * 2 + u32::from(side)));
    }

    fn on_endpoint_timer(&mut self, id: u32) {
        let (connection, side) = (id / 2, (id % 2) as u8);
        let end = &mut self.connections[connection as usize].ends[usize::from(side)];
        // An entry that was overtaken by an earlier one.
        if end.armed != Some(self.now) {
            return;
        }
        end.armed = None;
        if end.next_wakeup().is_none_or(|at| at > self.now) {
            self.arm_endpoint(connection, side);
            return;
        }
        let mut out = std::mem::take(&mut self.out);
        let news = end.on_timer(self.now, &mut out);
        self.flush(connection, side, &mut out);
        self.out = out;
        self.tell_app(connection, side, &news);
    }

    fn push_endpoint(&mut self, connection: u32, side: u8) {
        let mut out = std::mem::take(&mut self.out);
        self.connections[connection as usize].ends[usize::from(side)].push(self.now, &mut out);
        self.flush(connection, side, &mut out);
        self.out = out;
    }

    // ------------------------------------------------------------------------------------------ applications

    fn tell_app(&mut self, connection: u32, side: u8, news: &News) {
        if news.received == 0 && !news.opened && !news.ended && !news.done {
            return;
        }
        let c = &mut self.connections[connection as usize];
        let flow = c.flow;
        let is_data_side = side == c.data_side;
        if news.ended && c.ends[usize::from(side)].phase == Phase::Open {
            // The peer closed: close, too, once everything is written.
            c.ends[usize::from(side)].sender.closing = true;
            self.push_endpoint(connection, side);
        }
        let c = &mut self.connections[connection as usize];
        if c.ends.iter().all(|e| e.phase == Phase::Closed) {
            c.closed = true;
        }
        let Some(app) = &mut self.apps[flow] else { return };
        let mut commands = std::mem::take(&mut self.commands);
        if news.opened && is_data_side != app.asks() && !c.opened_told {
            c.opened_told = true;
            app.on_opened(self.now, connection, &mut commands);
        }
        if news.received > 0 {
            app.on_received(self.now, connection, is_data_side, news.received, &mut commands);
        }
        self.obey(flow, &mut commands);
        self.commands = commands;
    }

    fn on_app_timer(&mut self, flow: usize) {
        let spec = &self.scenario.flows[flow];
        let stopped = spec.stop.is_some_and(|stop| self.now >= Instant(stop.0));
        if stopped {
            self.stop_flow(flow);
            return;
        }
        if let AppKind::Voip { .. } = spec.app {
            self.on_voice_timer(flow);
            return;
        }
        let Some(app) = &mut self.apps[flow] else { return };
        let mut commands = std::mem::take(&mut self.commands);
        if self.now == Instant(spec.start.0) {
            app.on_start(self.now, &mut commands);
            if let Some(stop) = spec.stop {
                self.events.push(Instant(stop.0), Target::App(flow as u32));
            }
        } else {
            app.on_timer(self.now, &mut commands);
        }
        self.obey(flow, &mut commands);
        self.commands = commands;
    }

    /// The application ends: what is in the network still arrives.
    fn stop_flow(&mut self, flow: usize) {
        self.apps[flow] = None;
        for i in 0..self.connections.len() {
            let c = &mut self.connections[i];
            if c.flow != flow || c.closed {
                continue;
            }
            for side in 0..2_u8 {
                let sender = &mut self.connections[i].ends[usize::from(side)].sender;
                sender.end = sender.end.min(sender.nxt);
                sender.endless = false;
                if !sender.closing {
                    sender.closing = true;
                    self.push_endpoint(i as u32, side);
                }
            }
        }
    }

    fn on_voice_timer(&mut self, flow: usize) {
        let Some(index) = self.voices.iter().position(|v| v.flow == flow) else { return };
        for side in 0..2_u8 {
            let spec = &self.scenario.flows[flow];
            let host = self.host(spec.from, spec.to);
            let call = &mut self.voices[index];
            if let Some(score) = call.calls[usize::from(side)].on_sent(self.now)
                && side == 0
            {
                let row = AppRow { flow, t: self.now, kind: "mos_10s", value: score };
                self.results.apps.push(row);
            }
            let node = if side == 0 { spec.from } else { spec.to };
            let frame = Frame {
                kind: Kind::Voice,
                side,
                host,
                owner: index as u32,
                route: call.routes[usize::from(side)],
                bytes: call.bytes,
                class: call.class,
                sent: self.now,
                ..Frame::default()
            };
            self.send(node, &frame);
        }
        let every = self.voices[index].every;
        self.events.push(self.now + every, Target::App(flow as u32));
    }

    fn obey(&mut self, flow: usize, commands: &mut Commands) {
        for command in commands.drain(..) {
            match command {
                Command::Open { tag } => {
                    let connection = self.connect(flow);
                    if let Some(app) = &mut self.apps[flow] {
                        app.on_opening(tag, connection);
                    }
                    let mut out = std::mem::take(&mut self.out);
                    self.connections[connection as usize].ends[0].open(self.now, &mut out);
                    self.flush(connection, 0, &mut out);
                    self.out = out;
                }
                Command::Write { connection, up, bytes } => {
                    let c = &mut self.connections[connection as usize];
                    let side = if up { 1 - c.data_side } else { c.data_side };
                    c.ends[usize::from(side)].sender.end += bytes;
                    self.push_endpoint(connection, side);
                }
                Command::Endless { connection } => {
                    let c = &mut self.connections[connection as usize];
                    let side = c.data_side;
                    let sender = &mut c.ends[usize::from(side)].sender;
                    sender.endless = true;
                    // More than any run can send, and far from the end of the numbers.
                    sender.end = 1 << 60;
                    self.push_endpoint(connection, side);
                }
                Command::Close { connection } => {
                    for side in 0..2 {
                        let c = &mut self.connections[connection as usize];
                        c.ends[usize::from(side)].sender.closing = true;
                        self.push_endpoint(connection, side);
                    }
                }
                Command::Wake(at) => self.events.push(at.max(self.now), Target::App(flow as u32)),
                Command::Tell { kind, value } => {
                    if self.now >= self.measured_from {
                        self.results.apps.push(AppRow { flow, t: self.now, kind, value });
                    }
                }
            }
        }
    }

    /// The user whose traffic goes between two nodes: the one of the two that has a device or fewer links.
    fn host(&self, from: usize, to: usize) -> u16 {
        let degree = |n: usize| self.scenario.links.iter().filter(|l| l.from == n).count();
        let user = if degree(to) < degree(from) { to } else { from.min(to) };
        user as u16
    }

    fn connect(&mut self, flow: usize) -> u32 {
        let spec = &self.scenario.flows[flow];
        let id = self.connections.len() as u32;
        let (a, b) = if spec.sender_opens { (spec.from, spec.to) } else { (spec.to, spec.from) };
        let data_side = u8::from(!spec.sender_opens);
        let host = self.host(spec.from, spec.to);
        let nodes = [a, b];
        let routes = [self.routes.between(a, b), self.routes.between(b, a)];
        let mut numbers = Rng::new(self.scenario.seed, &format!("isn.{id}"));
        let mut scale = [0; 2];
        // Only a device's qdisc is a queue of the host's own.
        let own_queue = routes.map(|route| self.ports[self.routes.port(route, 0) as usize].device.is_some());
        let mut make = |side: u8| {
            let labels = Labels {
                connection: id,
                side,
                route: routes[usize::from(side)],
                host,
                data_class: spec.sender.class,
                ack_class: spec.receiver.ack_class,
            };
            let s = &spec.sender;
            let mss = s.mss.0;
            let congestion =
                s.congestion.congestion(&cc::Setup { mss: s.mss, initial_window: s.initial_window });
            let rng = Rng::new(self.scenario.seed, &format!("flow.{}.{id}.{side}", spec.name));
            let settings = send::Settings {
                mss,
                buffer: s.buffer.0,
                tsq: s.tsq.filter(|_| own_queue[usize::from(side)]).map(|b| b.0),
                pacing: s.pacing,
                sack: s.sack,
                timestamps: s.timestamps,
                ecn: s.ecn,
                restart_after_idle: s.slow_start_after_idle,
            };
            let mut sender = Sender::new(congestion, rng, settings);
            let setup = rwnd::Setup { mss: s.mss, timestamps: s.timestamps };
            // The side that sends the data receives requests only: today's default window is enough for them.
            let law = if side == data_side {
                rwnd::TABLE[0].default(&setup)
            } else {
                spec.receiver.window.window(&setup)
            };
            let window_update =
                if side == data_side { WindowUpdate::Linux } else { spec.receiver.window_update };
            scale[usize::from(side)] = window_scale(&law, window_update);
            if side == data_side
                && let rwnd::Rwnd::Afc(afc) = spec.receiver.window.window(&setup)
            {
                sender.afc = Some(rwnd::afc::Sender::new(afc.sender_config(s.mss)));
            }
            let read = if side == data_side { scenario::Read::AtOnce } else { spec.receiver.read.clone() };
            let receiver = Receiver::new(
                law,
                receive::Settings {
                    mss,
                    ack_bytes: spec.receiver.ack_every * mss,
                    ack_delay: spec.receiver.ack_delay,
                    read,
                    window_update,
                    sack: s.sack,
                    scale: scale[usize::from(side)],
                },
            );
            Box::new(Endpoint::new(labels, sender, receiver, s.timestamps, s.ecn))
        };
        let ends = [make(0), make(1)];
        let server_port = SERVER_PORT + (flow % 1_000) as u16;
        let client_port = CLIENT_PORT + (id % 28_000) as u16;
        let mss = (spec.sender.mss.0 + if spec.sender.timestamps { 12 } else { 0 }).min(65_535) as u16;
        let wiring = Wiring {
            nodes: [a as u16, b as u16],
            ports: [client_port, server_port],
            isn: [numbers.next_u64() as u32, numbers.next_u64() as u32],
            scale,
            mss: [mss; 2],
            options: (spec.sender.sack, spec.sender.timestamps),
            ecn: spec.sender.ecn,
        };
        self.connections.push(Connection {
            flow,
            nodes,
            data_side,
            ends,
            wiring,
            start: self.now,
            last: self.now,
            initial_rtt: None,
            packets: 0,
            bytes: 0,
            closed: false,
            books: [Book::default(), Book::default()],
            opened_told: false,
        });
        id
    }

    // ------------------------------------------------------------------------------------------ probes

    fn on_probe_timer(&mut self, index: usize) {
        let spec = &self.scenario.probes[index];
        let host = self.host(spec.from, spec.to);
        let state = &mut self.probes[index];
        let row = ProbeRow { probe: index, t: self.now, rtt: None, owd: None, lost: false };
        state.rows.push(self.results.probes.len());
        self.results.probes.push(row);
        let frame = Frame {
            kind: match spec.kind {
                ProbeKind::Ping => Kind::Ping,
                ProbeKind::Isochronous => Kind::Isochronous,
            },
            host,
            owner: index as u32,
            route: state.route,
            bytes: spec.bytes.0 as u32,
            class: spec.class,
            seq: state.sent,
            sent: self.now,
            ..Frame::default()
        };
        state.sent += 1;
        let every = spec.every[state.next % spec.every.len()];
        state.next += 1;
        self.events.push(self.now + every, Target::Probe(index as u32));
        self.send(spec.from, &frame);
    }

    fn on_gate_probe(&mut self, port: u32) {
        let Some((there, _)) = self.gate_routes[port as usize] else { return };
        let Some(every) = self.ports[port as usize].device.as_ref().and_then(|d| d.gate_probe_every()) else {
            self.gate_routes[port as usize] = None;
            return;
        };
        let node = self.scenario.links[port as usize].from;
        let frame = Frame {
            kind: Kind::GatePing,
            host: node as u16,
            owner: port,
            route: there,
            // fping's packet.
            bytes: 84,
            sent: self.now,
            ..Frame::default()
        };
        self.events.push(self.now + every, Target::GateProbe(port));
        self.send(node, &frame);
    }

    // ------------------------------------------------------------------------------------------ changes

    fn on_change(&mut self, index: usize) {
        let scenario = self.scenario;
        for what in &scenario.changes[index].what {
            match what {
                Changed::Link(i, link) => {
                    self.ports[*i].link = link.build();
                    self.run_port(*i as u32, |port, now, outcomes| port.on_link_changed(now, outcomes));
                }
                Changed::Gate(node, gate) => {
                    let Some(device) = &scenario.nodes[*node].device else { continue };
                    let gate = gate.gate(&gate::Setup::default());
                    self.run_port(device.link as u32, |port, now, outcomes| {
                        port.set_gate(now, gate, outcomes)
                    });
                    self.route_gate(*node, device.link);
                }
                Changed::NodeWindow(node, law) => match (&mut self.rewriters[*node], law) {
                    (Some(rewriter), Some(law)) => rewriter.switch(law.clone()),
                    (slot, law) => *slot = law.clone().map(|law| Rewriter::new(law, 1_448)),
                },
                Changed::Congestion(flow, algorithm) => {
                    let s = &scenario.flows[*flow].sender;
                    let setup = cc::Setup { mss: s.mss, initial_window: s.initial_window };
                    for i in 0..self.connections.len() {
                        let c = &mut self.connections[i];
                        if c.flow == *flow && !c.closed {
                            let side = c.data_side;
                            let end = &mut c.ends[usize::from(side)];
                            end.sender.switch(self.now, algorithm.congestion(&setup));
                            self.push_endpoint(i as u32, side);
                        }
                    }
                }
                Changed::Window(flow, algorithm) => {
                    let s = &scenario.flows[*flow].sender;
                    let setup = rwnd::Setup { mss: s.mss, timestamps: s.timestamps };
                    for c in self.connections.iter_mut().filter(|c| c.flow == *flow && !c.closed) {
                        let side = 1 - usize::from(c.data_side);
                        c.ends[side].receiver.switch(algorithm.window(&setup));
                    }
                }
            }
        }
    }

    // ------------------------------------------------------------------------------------------ series and end

    fn on_bin(&mut self) {
        self.write_bin(self.bin_started, self.now);
        self.bin_started = self.now;
        let next = self.now + self.scenario.bin;
        if next <= self.end {
            self.events.push(next, Target::Bin);
        }
    }

    fn finish(&mut self) {
        if self.bin_started < self.now {
            self.write_bin(self.bin_started, self.now);
        }
        for flow in 0..self.apps.len() {
            if let Some(app) = &mut self.apps[flow] {
                let mut commands = std::mem::take(&mut self.commands);
                app.on_end(self.now, &mut commands);
                commands.retain(|c| matches!(c, Command::Tell { .. }));
                self.obey(flow, &mut commands);
                self.commands = commands;
            }
        }
        for call in &self.voices {
            for (side, kind) in [(0, "mos"), (1, "mos_back")] {
                if let Some(value) = call.calls[side].total() {
                    self.results.apps.push(AppRow { flow: call.flow, t: self.now, kind, value });
                }
            }
        }
        // Probes that are still on the way at the end are neither lost nor answered.
        self.close_books();
        let conservation = &mut self.results.conservation;
        conservation.queued = self.ports.iter().map(|p| p.held() as u64).sum();
        conservation.flying = self.ports.iter().map(|p| p.pipe.len() as u64).sum();
        debug_assert_eq!(
            conservation.queued + conservation.flying,
            self.frames.alive() as u64,
            "every frame alive is in a queue or on a link"
        );
        self.results.engine_events = self.events.fired;
        self.results.duration = self.scenario.duration;
    }
}

/// The scale that a receiver offers: enough for what its law may come to want; Linux computes it from `tcp_rmem`'s
/// maximum and comes to 7 with 6 MB. Who counts in segments gets the finest steps.
fn window_scale(law: &rwnd::Rwnd, update: WindowUpdate) -> u8 {
    use rwnd::WindowControl;
    let least = if update == WindowUpdate::Segment { 0 } else { 6 << 20 };
    let most = law.buffer().0.max(law.window().0).max(least);
    let mut scale = 0;
    while scale < 14 && most >> scale > 65_535 {
        scale += 1;
    }
    scale
}
