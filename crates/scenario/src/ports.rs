//! From a link of a scenario to the port that stands before it, as the simulator and the emulator
//! both run it.
//!
//! A port is a queue (or one per user), a device stack where a node has one, and a link. Each has
//! random numbers of its own, from the run's seed and the element's name: another queue leaves the
//! link as it was.

use std::net::Ipv4Addr;

use algo::port::{Device, Port, Queue};
use algo::{Rng, aqm, gate};
use units::Instant;

use crate::types::{QueuePer, Scenario};

/// The IPv4 address of a node, in simulated captures and in the lab: 10.0.0.1 is node 0.
pub fn address(node: usize) -> Ipv4Addr {
    let n = node + 1;
    Ipv4Addr::new(10, 0, (n >> 8) as u8, n as u8)
}

/// The node with an address; `None`: no node has it.
pub fn node_at(address: Ipv4Addr) -> Option<usize> {
    match address.octets() {
        [10, 0, x, y] => (usize::from(x) << 8 | usize::from(y)).checked_sub(1),
        _ => None,
    }
}

impl Scenario {
    /// The port in front of a link, idle.
    pub fn port(&self, index: usize) -> Port {
        let link = &self.links[index];
        let aqm = link.queue.queue(&aqm::Setup::default());
        let queue = match link.queue_per {
            QueuePer::Link => Queue::Shared(aqm),
            QueuePer::User => Queue::PerUser { fresh: Box::new(aqm), users: Vec::new(), turn: 0 },
        };
        let [port, weather] = ["port", "link"]
            .map(|element| Rng::new(self.seed, &format!("{element}.{}", link.name)));
        let mut port = Port::new(link.to, queue, link.build(), port, weather);
        let device = self.nodes.iter().filter_map(|n| n.device.as_ref()).find(|d| d.link == index);
        if let Some(device) = device {
            let qdisc = Queue::Shared(device.qdisc.queue(&aqm::Setup::default()));
            let gate = device.gate.gate(&gate::Setup::default());
            port.set_device(qdisc, Device::new(gate, &device.firmware));
        }
        port.measured_from = Instant(self.warmup.0);
        port
    }

    /// The user that packets between two nodes belong to, where users have queues of their own. It
    /// is the end that takes part in fewer transfers and probes, since a server serves many users;
    /// of two alike the one named first.
    pub fn user(&self, a: usize, b: usize) -> usize {
        let parts = |node: usize| {
            let flows = self.flows.iter().filter(|f| f.from == node || f.to == node).count();
            let probes = self.probes.iter().filter(|p| p.from == node || p.to == node).count();
            flows + probes
        };
        let (low, high) = (a.min(b), a.max(b));
        if parts(high) < parts(low) { high } else { low }
    }

    /// The far end that a gate on this node's link probes: that of the first transfer that leaves
    /// or reaches the node, else the link's.
    pub fn gate_far(&self, node: usize, link: usize) -> usize {
        let far = self.flows.iter().find_map(|f| match (f.from == node, f.to == node) {
            (true, _) => Some(f.to),
            (_, true) => Some(f.from),
            _ => None,
        });
        far.unwrap_or(self.links[link].to)
    }
}
