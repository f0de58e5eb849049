//! Changes of a port in mid-run: another link, gate, limit of the queue or size of the firmware buffer.
//!
//! signal: the new part or value · model: the packets that a stage holds stay there, also if they are more
//! than the new limit · action: what may move then moves at once.

use alloc::vec::Vec;

use units::{Bytes, Instant};

use super::{Outcome, Port};
use crate::Capacity;
use crate::gate::AnyGate;
use crate::link::Medium;

impl Port {
    /// The link was replaced: its waiting time is void.
    pub fn on_link_changed(&mut self, now: Instant, outcomes: &mut Vec<Outcome>) {
        self.busy_until = now;
        if let Some(device) = &self.device {
            self.link.medium.on_backlog(now, Bytes(device.firmware_bytes));
        }
        self.run(now, outcomes);
    }

    /// Replaces the gate of the device.
    pub fn set_gate(&mut self, now: Instant, gate: AnyGate, outcomes: &mut Vec<Outcome>) {
        if let Some(device) = &mut self.device {
            device.gate = gate;
        }
        self.run(now, outcomes);
    }

    /// Sets the limit of a droptail queue before the link; a device has none there, and keeps its qdisc.
    pub fn set_queue_limit(&mut self, limit: Capacity) {
        if self.device.is_none() {
            self.queue.set_limit(limit);
            self.transparent = self.queue.is_transparent();
        }
    }

    /// Sets the size of the device's firmware buffer.
    pub fn set_firmware_buffer(&mut self, now: Instant, size: Bytes, outcomes: &mut Vec<Outcome>) {
        if let Some(device) = &mut self.device {
            device.buffer = size.0;
        }
        self.run(now, outcomes);
    }
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;
    use crate::aqm::{self, droptail};
    use crate::link::{self, Link};
    use crate::port::{Device, Firmware, Loss, Queue};
    use crate::{Packet, Rng, Settings, Value, gate};

    /// A packet of 1,500 bytes each 12 ms.
    const EACH: u64 = 12_000_000;

    fn droptail(limit: Capacity) -> aqm::Aqm {
        let config = droptail::Config { limit };
        aqm::Aqm::Droptail(droptail::Droptail::new(config, &aqm::Setup::default()))
    }

    /// A port with a link of 1 Mbit/s.
    fn port(queue: Queue) -> Port {
        let fixed = link::TABLE.iter().find(|e| e.name == "fixed").expect("the table has it");
        let mut settings = Settings::defaults(fixed.params);
        assert!(settings.set(fixed.params, "rate", Value::Rate(units::Rate(1_000_000))));
        let link = Link::new(
            (fixed.build)(&settings, &link::Setup::default()),
            Duration::ZERO,
            Vec::new(),
        );
        Port::new(1, queue, link, Rng::new(1, "port"), Rng::new(1, "link"))
    }

    fn phone(firmware: Firmware) -> Port {
        let mut port = port(Queue::Shared(droptail(Capacity::Packets(1_000))));
        let none = gate::TABLE.iter().find(|e| e.name == "none").expect("the table has it");
        let device = Device::new(none.default(&gate::Setup::default()), &firmware);
        port.set_device(Queue::Shared(droptail(Capacity::Packets(1_000))), device);
        port
    }

    /// Offers packets with these handles, of hosts by turns.
    fn offer(port: &mut Port, at: u64, handles: core::ops::Range<u32>, hosts: u16) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for handle in handles {
            let host = handle as u16 % hosts;
            let packet = Packet { handle, host, bytes: 1_500, ..Packet::default() };
            port.enqueue(Instant(at), packet, &mut outcomes);
        }
        outcomes
    }

    fn overflowed(outcomes: &[Outcome]) -> Vec<u32> {
        let one = |outcome: &Outcome| match outcome {
            Outcome::Gone(packet, Loss::Overflow) => Some(packet.handle),
            _ => None,
        };
        outcomes.iter().filter_map(one).collect()
    }

    /// Lets everything leave that waits; the handles in order, and when each started.
    fn drain(port: &mut Port, mut now: Instant) -> Vec<(u32, u64)> {
        let mut started = Vec::new();
        while let Some(at) = port.next_free(now) {
            now = at;
            let mut outcomes = Vec::new();
            port.run(now, &mut outcomes);
            assert_eq!(overflowed(&outcomes), []);
            started.extend(outcomes.iter().filter_map(|outcome| match outcome {
                Outcome::Started(packet, _) => Some((packet.handle, now.0)),
                _ => None,
            }));
        }
        started
    }

    #[test]
    fn a_queue_above_its_new_limit_drains_in_full_and_refuses_what_arrives() {
        let mut port = port(Queue::Shared(droptail(Capacity::Packets(10))));
        assert_eq!(overflowed(&offer(&mut port, 0, 0..11, 1)), []);
        port.set_queue_limit(Capacity::Bytes(Bytes(3_000)));
        assert_eq!(overflowed(&offer(&mut port, 1, 11..13, 1)), [11, 12]);
        let order: Vec<(u32, u64)> = (1..11).map(|n| (n, u64::from(n) * EACH)).collect();
        assert_eq!(drain(&mut port, Instant(1)), order);
        // One on the link and two that wait.
        assert_eq!(overflowed(&offer(&mut port, 11 * EACH, 13..17, 1)), [16]);
    }

    #[test]
    fn every_user_has_the_new_limit_and_so_has_one_who_comes_later() {
        let fresh = alloc::boxed::Box::new(droptail(Capacity::Packets(10)));
        let mut port = port(Queue::PerUser { fresh, users: Vec::new(), turn: 0 });
        // Packet 0 is on the link at once: host 0 has two that wait, host 1 has three.
        assert_eq!(overflowed(&offer(&mut port, 0, 0..6, 2)), []);
        port.set_queue_limit(Capacity::Packets(3));
        assert_eq!(overflowed(&offer(&mut port, 1, 6..9, 2)), [7, 8]);
        assert_eq!(overflowed(&offer(&mut port, 1, 2..6, 1_000)), []);
        let mut third = Vec::new();
        for _ in 0..4 {
            third.extend(overflowed(&offer(&mut port, 1, 9..10, 1_000)));
        }
        assert_eq!(third, [9], "host 9 had no packet before");
    }

    #[test]
    fn a_limit_below_the_largest_packet_holds_on_an_idle_link_too() {
        let mut port = port(Queue::Shared(droptail(Capacity::Packets(10))));
        let packet = Packet { bytes: 1_500, ..Packet::default() };
        port.set_queue_limit(Capacity::Bytes(Bytes(1_000)));
        assert!(port.pass(Instant(0), &packet).is_none(), "no way around the queue");
        assert_eq!(overflowed(&offer(&mut port, 0, 0..1, 1)), [0]);
        port.set_queue_limit(Capacity::Packets(1));
        assert!(port.pass(Instant(0), &packet).is_some());
    }

    #[test]
    fn a_phone_keeps_its_qdisc_when_a_limit_is_set() {
        let mut port = phone(Firmware { buffer: Bytes(3_000), ..Firmware::default() });
        port.set_queue_limit(Capacity::Packets(1));
        assert_eq!(overflowed(&offer(&mut port, 0, 0..100, 1)), []);
    }

    #[test]
    fn a_smaller_firmware_buffer_keeps_its_packets_and_takes_none_until_there_is_space() {
        let firmware = Firmware { buffer: Bytes(15_000), ..Firmware::default() };
        let mut port = phone(firmware);
        assert_eq!(overflowed(&offer(&mut port, 0, 0..30, 1)), []);
        let below = |port: &Port| port.device.as_ref().map_or(0, |device| device.firmware_bytes());
        assert_eq!(below(&port), 15_000);
        let (mut outcomes, qdisc) = (Vec::new(), port.queue.len());
        port.set_firmware_buffer(Instant(1), Bytes(6_000), &mut outcomes);
        assert_eq!((outcomes.len(), below(&port), port.queue.len()), (0, 15_000, qdisc));
        // Six packets leave before one enters: ten were there, and five do not fit any more.
        for left in 1..=8 {
            let now = Instant(left * EACH);
            port.run(now, &mut outcomes);
            let filled = 15_000_u64.saturating_sub(left * 1_500).max(6_000);
            assert_eq!(below(&port), filled, "after {left}");
        }
        assert_eq!(overflowed(&outcomes), []);
        let order: Vec<u32> = drain(&mut port, Instant(8 * EACH)).iter().map(|(n, _)| *n).collect();
        assert_eq!(order, (9..30).collect::<Vec<u32>>());
    }

    #[test]
    fn a_larger_firmware_buffer_fills_at_once_though_the_driver_had_stopped_the_queue() {
        let firmware = Firmware { buffer: Bytes(3_000), wake: Bytes(6_000), ..Firmware::default() };
        let mut port = phone(firmware);
        offer(&mut port, 0, 0..30, 1);
        let mut outcomes = Vec::new();
        port.set_firmware_buffer(Instant(1), Bytes(15_000), &mut outcomes);
        let below = port.device.as_ref().map_or(0, |device| device.firmware_bytes());
        assert_eq!(below, 15_000);
        // The mark at which the driver wakes the queue is the given one again: 6,000 bytes are free then.
        for (left, filled) in [(1, 13_500), (2, 12_000), (3, 10_500), (4, 15_000)] {
            port.run(Instant(left * EACH), &mut outcomes);
            let below = port.device.as_ref().map_or(0, |device| device.firmware_bytes());
            assert_eq!(below, filled, "after {left}");
        }
    }
}
