//! Measuring traffic: the scenario's probes, and the pings of a gate that probes.
//!
//! Each packet has a row in the results, which is filled in when it comes back.

use scenario::ProbeKind;

use super::{Simulation, Tap};
use crate::events::Target;
use crate::frame::{Frame, Kind};
use crate::record::ProbeRow;

impl<T: Tap> Simulation<'_, T> {
    pub(super) fn on_probe_timer(&mut self, index: usize) {
        let spec = &self.scenario.probes[index];
        let state = &mut self.probes[index];
        let row = ProbeRow { probe: index, t: self.now, rtt: None, owd: None, lost: false };
        state.rows.push(self.results.probes.len());
        self.results.probes.push(row);
        let frame = Frame {
            kind: match spec.kind {
                ProbeKind::Ping => Kind::Ping,
                ProbeKind::Isochronous => Kind::Isochronous,
            },
            host: state.host,
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

    pub(super) fn on_gate_probe(&mut self, port: u32) {
        let Some((there, _)) = self.gate_routes[port as usize] else { return };
        let Some(every) =
            self.ports[port as usize].device.as_ref().and_then(|d| d.gate_probe_every())
        else {
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
}
