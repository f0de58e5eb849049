//! Frames on their way: out of a host, through ports, over links, into an endpoint.
//!
//! A frame follows the ports of its route. What a port does with it is an outcome: it starts over
//! the link, waits, or is dropped with a cause.

use units::Instant;

use super::{Simulation, Tap};
use crate::events::Target;
use crate::frame::{Frame, Kind, flow_hash};
use crate::record::EventRow;
use crate::tcp::SendLimit;
use crate::wire::{EXCEEDED_BYTES, Expiring, WireParameters};
use algo::gate::Gate;
use algo::port::{Loss, Outcome, Passage, Port};

impl<T: Tap> Simulation<'_, T> {
    /// A host sends a frame.
    pub(super) fn send(&mut self, node: usize, frame: &Frame) {
        self.results.conservation.sent += 1;
        let numbered;
        let frame = if T::ENABLED {
            let count = &mut self.identifications[node];
            *count = count.wrapping_add(1);
            numbered = Frame { identification: *count, ..*frame };
            &numbered
        } else {
            frame
        };
        self.capture(node, frame);
        let port = self.routes.port(frame.route, 0);
        if frame.kind == Kind::Tcp && self.ports[port as usize].device.is_some() {
            let c = &mut self.connections[frame.owner as usize];
            c.ends[usize::from(frame.side)].sender.local += u64::from(frame.bytes);
        }
        let handle = self.frames.insert(frame);
        if let Some(Some(rewriter)) = self.rewriters.get_mut(node)
            && frame.kind == Kind::Tcp
        {
            let wire = self.connections[frame.owner as usize].wire;
            rewriter.on_sent(self.now, self.frames.get_mut(handle), &wire);
        }
        self.enqueue(port, handle);
    }

    #[inline]
    pub(super) fn capture(&mut self, node: usize, frame: &Frame) {
        if T::ENABLED {
            let wire = self.wire(frame);
            self.tap.frame(node, self.now, frame, &wire);
        }
    }

    pub(super) fn wire(&self, frame: &Frame) -> WireParameters {
        match frame.kind {
            Kind::Tcp => self.connections[frame.owner as usize].wire,
            _ => WireParameters {
                nodes: self.routes.ends(frame.route, frame.side),
                expiring: self.expiring(frame),
                ..WireParameters::default()
            },
        }
    }

    /// What the packet of a ping with a TTL shows of it.
    fn expiring(&self, frame: &Frame) -> Option<Expiring> {
        if !matches!(frame.kind, Kind::Ping | Kind::Expired) {
            return None;
        }
        let probe = self.scenario.probes.get(frame.owner as usize)?;
        let nodes = [probe.from as u16, probe.to as u16];
        Some(Expiring {
            ttl: probe.ttl?.saturating_sub(frame.hop),
            nodes,
            bytes: probe.bytes.0 as u16,
        })
    }

    #[inline]
    pub(super) fn enqueue(&mut self, port: u32, handle: u32) {
        let packet = self.frames.get(handle).packet(handle);
        match self.ports[port as usize].pass(self.now, &packet) {
            Some(Passage::Started(at)) => self.start(port, at, handle),
            Some(Passage::Lost) => self.drop_frame(port, handle, Loss::Link),
            Some(Passage::Waits) => self.arm_port(port),
            None => self.run_port(port, |port, now, outcomes| port.enqueue(now, packet, outcomes)),
        }
    }

    /// A frame is on its way over a port's link.
    #[inline]
    pub(super) fn start(&mut self, port: u32, at: Instant, handle: u32) {
        if let Some(at) = self.ports[port as usize].push_pipe(at, handle) {
            self.arm_arrival(port, at);
        }
    }

    #[inline]
    fn arm_arrival(&mut self, port: u32, at: Instant) {
        self.ports[port as usize].arrival = at;
        self.events.push(at, Target::PortArrival(port));
    }

    #[inline]
    pub(super) fn arm_port(&mut self, index: u32) {
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
    pub(super) fn run_port(
        &mut self,
        index: u32,
        step: impl FnOnce(&mut Port, Instant, &mut Vec<Outcome>),
    ) {
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
                Outcome::Gone(packet, loss) => self.drop_frame(index, packet.handle, loss),
                Outcome::Reported(_) => {}
            }
        }
        self.outcomes = outcomes;
        self.arm_port(index);
        while let Some((connection, side)) = self.unblocked.pop() {
            self.push_endpoint(connection, side);
        }
    }

    /// TSQ: a frame has left the host's own queue, so its flow may send on.
    pub(super) fn left_host_queue(&mut self, frame: &Frame) {
        if frame.kind != Kind::Tcp || frame.hop != 0 {
            return;
        }
        let sender =
            &mut self.connections[frame.owner as usize].ends[usize::from(frame.side)].sender;
        sender.local = sender.local.saturating_sub(u64::from(frame.bytes));
        if sender.limited_by == SendLimit::Local {
            self.unblocked.push((frame.owner, frame.side));
        }
    }

    pub(super) fn drop_frame(&mut self, port: u32, handle: u32, loss: Loss) {
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
        if matches!(frame.kind, Kind::Ping | Kind::Pong | Kind::Expired | Kind::Isochronous) {
            let row = self.probes[frame.owner as usize].rows[frame.seq as usize];
            self.results.probes[row].lost = true;
        }
        if frame.kind != Kind::Tcp {
            return;
        }
        let data = frame.payload() > 0;
        if data {
            self.connections[frame.owner as usize].directions[usize::from(frame.side)].lost += 1;
        }
        if self.record_events && data {
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
    pub(super) fn arrivals(&mut self, index: u32) {
        // An event whose packet was overtaken: the packets have an earlier one, or the one after it.
        if self.ports[index as usize].arrival != self.now {
            return;
        }
        loop {
            let port = &mut self.ports[index as usize];
            let Some(&(at, handle)) = port.pipe.front() else { return };
            if at > self.now {
                self.arm_arrival(index, at);
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
            // The next one is armed before this one is handled, because handling may add to this
            // very link.
            let next = port.pipe.front().map(|&(t, next)| {
                // Read now, it is in the cache when it arrives.
                std::hint::black_box(self.frames.get(next).bytes);
                t
            });
            if let Some(next) = next
                && next > self.now
            {
                self.arm_arrival(index, next);
                self.arrive(node, handle);
                return;
            }
            self.arrive(node, handle);
        }
    }

    pub(super) fn arrive(&mut self, node: usize, handle: u32) {
        self.frames.get_mut(handle).hop += 1;
        if T::ENABLED {
            let frame = *self.frames.get(handle);
            self.capture(node, &frame);
        }
        let frame = self.frames.get_mut(handle);
        let (route, hop) = (frame.route, frame.hop);
        if let Some(Some(rewriter)) = self.rewriters.get_mut(node)
            && frame.kind == Kind::Tcp
        {
            let wire = self.connections[frame.owner as usize].wire;
            let next = self.routes.next_port(route, hop);
            let out = next.is_some() && next == self.uplinks[node];
            rewriter.on_frame(self.now, frame, &wire, out);
        }
        let expires = frame.kind == Kind::Ping
            && self.scenario.probes[frame.owner as usize].ttl.is_some_and(|ttl| ttl <= hop);
        if let Some(port) = self.routes.next_port(route, hop) {
            if expires {
                self.expire(node, handle);
            } else {
                self.enqueue(port, handle);
            }
            return;
        }
        let frame = self.frames.remove(handle);
        self.results.conservation.delivered += 1;
        self.deliver(node, &frame);
    }

    /// A router has taken the last of a ping's TTL, and says so (RFC 792; RFC 1812 section 4.3.3.4).
    fn expire(&mut self, node: usize, handle: u32) {
        let frame = self.frames.remove(handle);
        self.results.conservation.delivered += 1;
        // There is a way: on to the node that the ping was for, and back as its answer would go.
        let back = self.routes.between(node, self.scenario.probes[frame.owner as usize].from);
        let answer = Frame {
            kind: Kind::Expired,
            side: 0,
            hop: 0,
            route: back,
            bytes: EXCEEDED_BYTES,
            queued: 0,
            // The router's packet has a number of its own, and quotes that of the ping.
            ack: u64::from(frame.identification),
            ..frame
        };
        self.send(node, &answer);
    }

    pub(super) fn deliver(&mut self, node: usize, frame: &Frame) {
        match frame.kind {
            Kind::Tcp => self.deliver_tcp(frame),
            Kind::Ping => {
                let back = self.probes[frame.owner as usize].back;
                let pong =
                    Frame { kind: Kind::Pong, side: 1, hop: 0, route: back, queued: 0, ..*frame };
                self.send(node, &pong);
            }
            Kind::Pong | Kind::Expired => {
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
                let pong = Frame {
                    kind: Kind::GatePong,
                    side: 1,
                    hop: 0,
                    route: back,
                    queued: 0,
                    ..*frame
                };
                self.send(node, &pong);
            }
            Kind::GatePong => {
                let rtt = self.now.since(frame.sent);
                self.run_port(frame.owner, |port, now, outcomes| port.on_probe(now, rtt, outcomes));
            }
        }
    }

    pub(super) fn deliver_tcp(&mut self, frame: &Frame) {
        let now = self.now;
        let c = &mut self.connections[frame.owner as usize];
        c.last = now;
        c.packets += 1;
        c.bytes += u64::from(frame.bytes);
        let side = frame.side ^ 1;
        self.ask_device(frame.owner, side, true);
        let c = &mut self.connections[frame.owner as usize];
        let mut out = std::mem::take(&mut self.out);
        let app_events = c.ends[usize::from(side)].on_frame(now, frame, &mut out);
        if frame.payload() > 0 {
            self.results.data_packets += 1;
            let measured = now >= self.measured_from;
            let direction = &mut c.directions[usize::from(frame.side)];
            if measured {
                // Over the time of delivery: the port's own queueing delays count packets, and a full link delivers
                // them at its rate, so that both have one median. A pause behind a packet is no queue.
                let in_flight = now.since(frame.sent);
                direction.queued.record(now, frame.queued, in_flight, false);
                direction.measured += app_events.received;
            }
            if app_events.received > 0 {
                direction.delivered += app_events.received;
                direction.last_delivery = now;
            }
        }
        if app_events.opened && c.initial_rtt.is_none() {
            c.initial_rtt = Some(now.since(c.start));
        }
        self.flush(frame.owner, side, &mut out);
        self.out = out;
        self.notify_app(frame.owner, side, &app_events);
    }

    /// The port by which a side sends is that of its node's device: what passes there now and, where `paces`, how fast it may
    /// send. A socket's pacing rate is set as frames come back.
    #[inline]
    fn ask_device(&mut self, connection: u32, side: u8, paces: bool) {
        let c = &mut self.connections[connection as usize];
        if let Some(device) = self.scenario.nodes[c.nodes[usize::from(side)]].device.as_ref()
            && let Some(device) = &self.ports[device.link].device
        {
            let sender = &mut c.ends[usize::from(side)].sender;
            if paces {
                sender.pace(device.gate.pace(self.now));
            }
            sender.admit(device.gate.admission(self.now, flow_hash(connection, side, Kind::Tcp)));
        }
    }

    // ------------------------------------------------------------------------------------------
    //   endpoints

    /// Sends what an endpoint wrote, and arms its next deadline.
    pub(super) fn flush(&mut self, connection: u32, side: u8, out: &mut Vec<Frame>) {
        let now = self.now;
        let node = self.connections[connection as usize].nodes[usize::from(side)];
        for frame in out.iter() {
            let c = &mut self.connections[connection as usize];
            let direction = &mut c.directions[usize::from(side)];
            if frame.payload() > 0 && direction.first_data.is_none() {
                direction.first_data = Some(now);
            }
            direction.wire_bytes += u64::from(frame.bytes);
            self.send(node, frame);
        }
        out.clear();
        self.arm_endpoint(connection, side);
    }

    #[inline]
    pub(super) fn arm_endpoint(&mut self, connection: u32, side: u8) {
        let end = &mut self.connections[connection as usize].ends[usize::from(side)];
        let Some(at) = end.next_wakeup() else { return };
        if end.armed.is_some_and(|armed| armed <= at && armed > self.now) {
            return;
        }
        end.armed = Some(at);
        self.events.push(at.max(self.now), Target::Endpoint(connection * 2 + u32::from(side)));
    }

    pub(super) fn on_endpoint_timer(&mut self, id: u32) {
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
        self.ask_device(connection, side, false);
        let end = &mut self.connections[connection as usize].ends[usize::from(side)];
        let mut out = std::mem::take(&mut self.out);
        let app_events = end.on_timer(self.now, &mut out);
        self.flush(connection, side, &mut out);
        self.out = out;
        self.notify_app(connection, side, &app_events);
    }

    pub(super) fn push_endpoint(&mut self, connection: u32, side: u8) {
        self.ask_device(connection, side, false);
        let mut out = std::mem::take(&mut self.out);
        self.connections[connection as usize].ends[usize::from(side)].push(self.now, &mut out);
        self.flush(connection, side, &mut out);
        self.out = out;
    }
}
