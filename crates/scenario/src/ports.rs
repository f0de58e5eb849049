//! From a link of a scenario to the port that stands before it, as the simulator and the emulator
//! both run it.
//!
//! A port is a queue (or one per user), a device stack where a node has one, and a link. Each has
//! random numbers of its own, from the run's seed and the element's name: another queue leaves the
//! link as it was.

use std::net::Ipv4Addr;

use algo::port::{Device, Outcome, Port, Queue};
use algo::{Rng, aqm, gate};
use units::Instant;

use crate::types::{Changed, QueuePer, Scenario};

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

impl Changed {
    /// The link whose port it concerns; `None`: it concerns no port.
    pub fn link(&self, scenario: &Scenario) -> Option<usize> {
        match self {
            Changed::Link(link, _) | Changed::QueueLimit(link, _) => Some(*link),
            Changed::Gate(node, _) | Changed::FirmwareBuffer(node, _) => {
                Some(scenario.nodes[*node].device.as_ref()?.link)
            }
            Changed::NodeWindow(..) | Changed::Congestion(..) | Changed::Window(..) => None,
        }
    }

    /// Makes the change in the port of that link.
    pub fn apply(&self, port: &mut Port, now: Instant, outcomes: &mut Vec<Outcome>) {
        match self {
            Changed::Link(_, link) => {
                port.link = link.build();
                port.on_link_changed(now, outcomes);
            }
            Changed::QueueLimit(_, limit) => port.set_queue_limit(*limit),
            Changed::Gate(_, gate) => {
                port.set_gate(now, gate.gate(&gate::Setup::default()), outcomes);
            }
            Changed::FirmwareBuffer(_, size) => port.set_firmware_buffer(now, *size, outcomes),
            Changed::NodeWindow(..) | Changed::Congestion(..) | Changed::Window(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use algo::Packet;
    use algo::port::{Loss, Outcome};
    use units::Duration;

    use super::*;
    use crate::{Document, TraceText};

    fn scenario(text: &str, seed: u64) -> Scenario {
        let read = |_: &str| Ok(TraceText(Arc::from("")));
        let document = Document::parse(text).unwrap_or_else(|e| panic!("{e}"));
        document.scenario::<&str, &str>(&[], seed, &read).unwrap_or_else(|e| panic!("{e}")).0
    }

    #[test]
    fn addresses_are_those_of_the_documentation_and_lead_back_to_their_node() {
        assert_eq!(address(0), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(address(254), Ipv4Addr::new(10, 0, 0, 255));
        assert_eq!(address(255), Ipv4Addr::new(10, 0, 1, 0));
        assert!((0..65_535).all(|node| node_at(address(node)) == Some(node)));
        for other in [[10, 0, 0, 0], [10, 1, 0, 1], [11, 0, 0, 1], [127, 0, 0, 1]] {
            assert_eq!(node_at(other.into()), None, "{other:?}");
        }
    }

    /// Two phones that load from one server, over a tower.
    const TWO_PHONES: &str = "
[[node]]
name = \"server\"
[[node]]
name = \"tower\"
[[node]]
name = \"left\"
[[node]]
name = \"right\"
[link]
wire = { from = \"server\", to = \"tower\", rate = \"1 Gbit/s\", delay = \"5 ms\" }
eriw = { from = \"tower\", to = \"server\", rate = \"1 Gbit/s\", delay = \"5 ms\" }
left-down = { from = \"tower\", to = \"left\", rate = \"8 Mbit/s\", delay = \"9 ms\" }
left-up = { from = \"left\", to = \"tower\", rate = \"2 Mbit/s\", delay = \"9 ms\" }
right-down = { from = \"tower\", to = \"right\", rate = \"8 Mbit/s\", delay = \"9 ms\" }
right-up = { from = \"right\", to = \"tower\", rate = \"2 Mbit/s\", delay = \"9 ms\" }
";

    #[test]
    fn the_user_of_packets_is_the_phone_and_not_the_server_of_all() {
        let flow = |from: &str, to: &str| format!("[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\n");
        let text = [TWO_PHONES, &flow("server", "left"), &flow("server", "right")].concat();
        let s = scenario(&text, 1);
        for (a, b, user) in [(0, 2, 2), (2, 0, 2), (0, 3, 3), (3, 0, 3)] {
            assert_eq!(s.user(a, b), user, "{a} and {b}");
        }
        assert_eq!(s.user(2, 3), 2, "of two alike the one named first");
        // The left phone's gate probes the far end of its transfer, though its link ends at the
        // tower; the tower's has none.
        let up = s.links.iter().position(|link| link.name == "left-up").unwrap();
        assert_eq!((s.gate_far(2, up), s.gate_far(1, up)), (0, 1));
    }

    /// Which of 400 packets, sent one at a time, a link loses.
    fn lost(up: &str, seed: u64) -> Vec<u32> {
        let text = format!(
            "[link.up]\nrate = \"8 Mbit/s\"\ndelay = \"1 ms\"\nloss = 0.3\n{up}\n[link.down]\nrate = \"8 Mbit/s\"\ndelay = \"1 ms\"\n"
        );
        let mut port = scenario(&text, seed).port(0);
        let mut outcomes = Vec::new();
        for handle in 0..400 {
            // 1 ms each on the link: none ever waits.
            let now = Instant(u64::from(handle) * 5_000_000);
            port.enqueue(now, Packet { handle, bytes: 1_000, ..Packet::default() }, &mut outcomes);
            port.run(now + Duration::from_millis(1), &mut outcomes);
        }
        let lost = |outcome: &Outcome| match outcome {
            Outcome::Gone(packet, Loss::Link) => Some(packet.handle),
            _ => None,
        };
        outcomes.iter().filter_map(lost).collect()
    }

    #[test]
    fn another_queue_leaves_the_losses_of_the_link_as_they_were() {
        let plain = lost("", 1);
        assert!((80..=160).contains(&plain.len()), "three in ten of 400: {}", plain.len());
        assert_eq!(plain, lost("", 1), "the same seed");
        for queue in ["codel", "fq_codel", "red", "pie"] {
            assert_eq!(plain, lost(&format!("queue = \"{queue}\""), 1), "{queue}");
        }
        assert_ne!(plain, lost("", 2), "another seed");
    }
}
