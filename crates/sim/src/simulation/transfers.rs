//! Applications and their connections.
//!
//! An application learns of timers, received bytes and opened connections. It answers with
//! commands, which are executed here: open, write, close, wake, report a figure.

use algo::{Rng, cc, rwnd};
use scenario::{App as AppKind, WindowUpdate};
use units::Instant;

use super::{Connection, Direction, Simulation, Tap};
use crate::apps::{Command, Commands};
use crate::events::Target;
use crate::frame::{Frame, Kind};
use crate::record::AppRow;
use crate::rewrite::agent_law;
use crate::tcp::{AppEvents, Endpoint, Labels, Phase, Receiver, Sender, receive, send};
use crate::wire::WireParameters;

/// First port of a flow's data sender; iperf3's.
const SERVER_PORT: u16 = 5_201;
/// First port of the connecting side: Linux's `ip_local_port_range`.
const CLIENT_PORT: u16 = 32_768;

impl<T: Tap> Simulation<'_, T> {
    pub(super) fn notify_app(&mut self, connection: u32, side: u8, app_events: &AppEvents) {
        if app_events.received == 0 && !app_events.opened && !app_events.ended && !app_events.done {
            return;
        }
        let c = &mut self.connections[connection as usize];
        let flow = c.flow;
        let is_data_side = side == c.data_side;
        if app_events.ended && c.ends[usize::from(side)].phase == Phase::Open {
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
        if app_events.opened && is_data_side != app.fetches() && !c.opened_notified {
            c.opened_notified = true;
            app.on_opened(self.now, connection, &mut commands);
        }
        if app_events.received > 0 {
            app.on_received(self.now, connection, is_data_side, app_events.received, &mut commands);
        }
        self.execute(flow, &mut commands);
        self.commands = commands;
    }

    pub(super) fn on_app_timer(&mut self, flow: usize) {
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
        self.execute(flow, &mut commands);
        self.commands = commands;
    }

    /// The application ends: what is in the network still arrives.
    pub(super) fn stop_flow(&mut self, flow: usize) {
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

    pub(super) fn on_voice_timer(&mut self, flow: usize) {
        let Some(index) = self.voices.iter().position(|v| v.flow == flow) else { return };
        for side in 0..2_u8 {
            let spec = &self.scenario.flows[flow];
            let host = self.scenario.user(spec.from, spec.to) as u16;
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

    pub(super) fn execute(&mut self, flow: usize, commands: &mut Commands) {
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
                Command::Report { kind, value } => {
                    if self.now >= self.measured_from {
                        self.results.apps.push(AppRow { flow, t: self.now, kind, value });
                    }
                }
            }
        }
    }

    pub(super) fn connect(&mut self, flow: usize) -> u32 {
        let spec = &self.scenario.flows[flow];
        let id = self.connections.len() as u32;
        let (a, b) = if spec.sender_opens { (spec.from, spec.to) } else { (spec.to, spec.from) };
        let data_side = u8::from(!spec.sender_opens);
        let host = self.scenario.user(spec.from, spec.to) as u16;
        let nodes = [a, b];
        let routes = [self.routes.between(a, b), self.routes.between(b, a)];
        let mut numbers = Rng::new(self.scenario.seed, &format!("isn.{id}"));
        let mut scale = [0; 2];
        // Only a device's qdisc is a queue of the host's own.
        let own_queue =
            routes.map(|route| self.ports[self.routes.port(route, 0) as usize].device.is_some());
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
            let congestion = s
                .congestion
                .congestion(&cc::Setup { mss: s.mss, initial_window: s.initial_window });
            let rng = Rng::new(self.scenario.seed, &format!("flow.{}.{id}.{side}", spec.name));
            let settings = send::Settings {
                mss,
                buffer: s.buffer.0,
                waits_for_space: s.waits_for_space,
                tsq: s.tsq.filter(|_| own_queue[usize::from(side)]).map(|b| b.0),
                pacing: s.pacing,
                sack: s.sack,
                timestamps: s.timestamps,
                ecn: s.ecn,
                restart_after_idle: s.slow_start_after_idle,
            };
            let mut sender = Sender::new(congestion, rng, settings);
            let setup = rwnd::Setup { mss: s.mss, timestamps: s.timestamps };
            // The side that sends the data receives requests only: today's default window is enough
            // for them.
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
            let read =
                if side == data_side { scenario::Read::AtOnce } else { spec.receiver.read.clone() };
            let mut receiver = Receiver::new(
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
            let own = usize::from(side);
            receiver.places = Some((self.places[nodes[own]].clone(), nodes[1 - own] as u64));
            receiver.measured =
                (side == data_side && runs_agent(self.scenario, nodes[own])).then(Box::default);
            Box::new(Endpoint::new(labels, sender, receiver, s.timestamps, s.ecn))
        };
        let ends = [make(0), make(1)];
        let server_port = SERVER_PORT + (flow % 1_000) as u16;
        let client_port = CLIENT_PORT + (id % 28_000) as u16;
        let mss =
            (spec.sender.mss.0 + if spec.sender.timestamps { 12 } else { 0 }).min(65_535) as u16;
        let wire = WireParameters {
            nodes: [a as u16, b as u16],
            ports: [client_port, server_port],
            isn: [numbers.next_u64() as u32, numbers.next_u64() as u32],
            scale,
            mss: [mss; 2],
            options: (spec.sender.sack, spec.sender.timestamps),
            ecn: spec.sender.ecn,
            expiring: None,
        };
        self.connections.push(Connection {
            flow,
            nodes,
            data_side,
            ends,
            wire,
            start: self.now,
            last: self.now,
            initial_rtt: None,
            packets: 0,
            bytes: 0,
            closed: false,
            directions: [Direction::default(), Direction::default()],
            written: None,
            opened_notified: false,
        });
        id
    }
}

/// The window scale that a receiver advertises: enough for the largest window that its law may set.
/// Linux `tcp_select_initial_window` computes it from `tcp_rmem`'s maximum, and comes to 7 with 6
/// MB; a buffer that is fixed clamps it, so that its steps are finer. A receiver that counts in
/// segments gets the finest steps.
fn window_scale(law: &rwnd::Rwnd, update: WindowUpdate) -> u8 {
    use rwnd::WindowControl;
    let fixed = matches!(law, rwnd::Rwnd::Fixed(_));
    let min = if fixed || update == WindowUpdate::Segment { 0 } else { 6 << 20 };
    let max = law.buffer().0.max(law.window().0).max(min);
    let mut scale = 0;
    while scale < 14 && max >> scale > 65_535 {
        scale += 1;
    }
    scale
}

/// Whether a host runs the agent: then it measures its uploads, too.
fn runs_agent(scenario: &scenario::Scenario, node: usize) -> bool {
    scenario.flows.iter().any(|flow| flow.to == node && agent_law(&flow.receiver.window).is_some())
}
