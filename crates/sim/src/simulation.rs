//! The simulated network: nodes, ports, connections, and the loop that moves them through time.
//!
//! Events are handled in the order of time. Frames follow routes of ports; endpoints, applications,
//! probes and devices react to them.
//!
//! Nothing here reads a clock or has random numbers of its own; the same scenario gives the same
//! frames on every machine.

mod changes;
mod frames;
mod probes;
mod transfers;

use std::cell::RefCell;
use std::rc::Rc;

use algo::rwnd::path::Places;
use scenario::{App as AppKind, Changed, Scenario};
use units::{Delays, Duration, Histogram, Instant, Limit};

use crate::apps::{App, Command, Commands, Voice};
use crate::events::{Events, Target};
use crate::frame::{Frame, Frames};
use crate::record::{AppRow, Results};
use crate::rewrite::Node;
use crate::routes::Routes;
use crate::tcp::{Endpoint, send};
use crate::wire::WireParameters;
use algo::port::{Outcome, Port};

/// A TCP connection with both of its endpoints.
pub(crate) struct Connection {
    pub flow: usize,
    pub nodes: [usize; 2],
    /// Side that sends the flow's data.
    pub data_side: u8,
    pub ends: [Box<Endpoint>; 2],
    pub wire: WireParameters,
    pub start: Instant,
    pub last: Instant,
    pub initial_rtt: Option<Duration>,
    pub packets: u64,
    pub bytes: u64,
    pub closed: bool,
    /// End of its last bin.
    pub written: Option<Instant>,
    /// Counters of the data that each side sends.
    pub directions: [Direction; 2],
    opened_notified: bool,
}

/// Counters of one direction of a connection that its endpoints do not have.
#[derive(Default)]
pub(crate) struct Direction {
    pub lost: u64,
    pub wire_bytes: u64,
    pub delivered: u64,
    pub measured: u64,
    pub first_data: Option<Instant>,
    pub last_delivery: Instant,
    pub queued: Delays,
    pub in_flight: Histogram,
    pub second_bytes: u64,
    pub peak: u64,
    pub window_full: u64,
    pub limits: [u64; Limit::COUNT],
    /// Smallest queueing delay of each of the last ten tenths of a second.
    pub recent: Vec<u64>,
    pub last: send::Counters,
}

struct ProbeState {
    route: u32,
    back: u32,
    host: u16,
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

/// Receives every frame that a node sends or receives, for capture files.
pub trait Tap {
    /// Whether frames are captured: else nothing is prepared for it.
    const ENABLED: bool = true;
    /// A frame passes a node: it is sent or received there.
    fn frame(&mut self, node: usize, now: Instant, frame: &Frame, wire: &WireParameters);
}

/// No captures are made.
pub struct NoCapture;

impl Tap for NoCapture {
    const ENABLED: bool = false;
    #[inline]
    fn frame(&mut self, _node: usize, _now: Instant, _frame: &Frame, _wiring: &WireParameters) {}
}

/// The state of a run.
pub struct Simulation<'s, T: Tap> {
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
    rewriters: Vec<Option<Node>>,
    /// By node, in the same way: the port by which its packets go out.
    uplinks: Vec<Option<u32>>,
    /// By node: what its receivers know of the paths to their senders.
    places: Vec<Rc<RefCell<Places>>>,
    /// For each port with a probing gate: routes there and back.
    gate_routes: Vec<Option<(u32, u32)>>,
    pub(crate) results: Results,
    pub(crate) measured_from: Instant,
    bin_started: Instant,
    record_events: bool,
    /// IPv4 identification by node, where captures are made.
    identifications: Vec<u16>,
    // scratch
    outcomes: Vec<Outcome>,
    out: Vec<Frame>,
    commands: Commands,
    unblocked: Vec<(u32, u8)>,
}

/// The port by which a node's packets go out: that of its device, or the way to the first node that
/// is called `server…`. The lab finds a node's uplink the same way.
fn uplink(scenario: &Scenario, routes: &mut Routes, node: usize) -> Option<u32> {
    if let Some(device) = &scenario.nodes[node].device {
        return Some(device.link as u32);
    }
    let far = |(_, n): &(usize, &scenario::Node)| n.name.starts_with("server");
    let (far, _) = scenario.nodes.iter().enumerate().filter(|(n, _)| *n != node).find(far)?;
    let route = routes.between(node, far);
    routes.next_port(route, 0)
}

impl<'s, T: Tap> Simulation<'s, T> {
    /// A network at rest.
    pub fn new(scenario: &'s Scenario, tap: T, record_events: bool) -> Simulation<'s, T> {
        let end = Instant(scenario.duration.0);
        let measured_from = Instant(scenario.warmup.0);
        let ports: Vec<Port> = (0..scenario.links.len()).map(|link| scenario.port(link)).collect();
        let mut routes =
            Routes::new(scenario.nodes.len(), scenario.links.iter().map(|l| (l.from, l.to)));
        let rewrites = scenario.nodes.iter().any(|n| n.window.is_some())
            || scenario
                .changes
                .iter()
                .flat_map(|c| &c.what)
                .any(|w| matches!(w, Changed::NodeWindow(..)));
        let rewriters = (0..scenario.nodes.len())
            .filter(|_| rewrites)
            .map(|node| {
                let law = scenario.nodes[node].window.as_ref()?;
                Some(Node::new(law.clone(), 1_448, node))
            })
            .collect();
        let uplinks = (0..scenario.nodes.len())
            .filter(|_| rewrites)
            .map(|node| uplink(scenario, &mut routes, node))
            .collect();
        let gates = ports.len();
        Simulation {
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
            uplinks,
            places: scenario.nodes.iter().map(|_| Rc::default()).collect(),
            gate_routes: vec![None; gates],
            results: Results::default(),
            measured_from,
            bin_started: Instant::ZERO,
            record_events,
            identifications: vec![0; scenario.nodes.len()],
            outcomes: Vec::new(),
            out: Vec::new(),
            commands: Commands::new(),
            unblocked: Vec::new(),
        }
    }

    /// Runs to the end; `progress` gets the share that is done, at least a hundred times, and may
    /// stop it.
    pub fn run(mut self, progress: &mut dyn FnMut(f64) -> bool) -> Option<(Results, T)> {
        self.set_up();
        let step = (self.end.0 / 100).max(1);
        let mut next = step;
        while let Some((now, target)) = self.events.pop(self.end) {
            self.now = now;
            self.handle(target);
            // A million events are a fraction of a second: a long run with many flows reports
            // progress, too.
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
            let host = scenario.user(probe.from, probe.to) as u16;
            self.probes.push(ProbeState { route, back, host, sent: 0, next: 0, rows: Vec::new() });
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

    /// A probing gate pings a far end.
    fn route_gate(&mut self, node: usize, port: usize) {
        if self.ports[port].device.as_ref().is_none_or(|d| d.gate_probe_every().is_none()) {
            return;
        }
        let far = self.scenario.gate_far(node, port);
        let there = self.routes.between(node, far);
        let back = self.routes.between(far, node);
        if self.gate_routes[port].is_none() {
            self.events.push(self.now, Target::GateProbe(port as u32));
        }
        self.gate_routes[port] = Some((there, back));
    }

    fn handle(&mut self, target: Target) {
        match target {
            Target::PortFree(port) | Target::PortGate(port) => {
                self.run_port(port, |port, now, outcomes| port.run(now, outcomes));
            }
            Target::PortArrival(port) => self.arrivals(port),
            Target::Endpoint(id) => self.on_endpoint_timer(id),
            Target::App(flow) => self.on_app_timer(flow as usize),
            Target::Probe(probe) => self.on_probe_timer(probe as usize),
            Target::Bin => self.on_bin(),
            Target::Change(i) => self.on_change(i as usize),
            Target::GateProbe(port) => self.on_gate_probe(port),
        }
    }

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
                commands.retain(|c| matches!(c, Command::Report { .. }));
                self.execute(flow, &mut commands);
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
        self.write_totals();
        let conservation = &mut self.results.conservation;
        conservation.queued = self.ports.iter().map(|p| p.waiting_packets() as u64).sum();
        conservation.in_flight = self.ports.iter().map(|p| p.pipe.len() as u64).sum();
        debug_assert_eq!(
            conservation.queued + conservation.in_flight,
            self.frames.alive() as u64,
            "every frame alive is in a queue or on a link"
        );
        self.results.engine_events = self.events.fired;
        self.results.duration = self.scenario.duration;
    }
}
