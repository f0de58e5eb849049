//! A port: what stands between a node and one of its outgoing links.
//!
//! signal: packets to send, the link's answers · model: a queue (or one per user) in front of a link; on a phone the
//! stack that QCUT draws: qdisc → gate → firmware buffer → air, with the modem's late reports · action: packets start,
//! wait, arrive, or are dropped, and each stage's delay is measured.

mod queue;
mod rows;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use units::{Bytes, Duration, Histogram, Instant};

use crate::aqm::{self, Dropped};
use crate::gate::{AnyGate, Event, Gate};
use crate::link::{Head, Link, Medium, Offer, grants};
use crate::{Packet, Rng};

pub use queue::Queue;
pub use rows::{QueueRow, StageRow};

/// The modem's buffer below the operating system, and what it reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Firmware {
    /// Bytes it holds; the queue above stops when it is full (back-pressure, nothing is dropped here).
    pub buffer: Bytes,
    /// Interval of its reports (5 ms, QCUT section 6).
    pub report_every: Duration,
    /// How old a report is when the kernel reads it (100 ms there).
    pub report_delay: Duration,
}

/// Gate and firmware buffer of a phone.
pub struct Device {
    /// The gate.
    pub gate: AnyGate,
    buffer: u64,
    /// Packets in the firmware buffer, with the time they entered.
    firmware: VecDeque<(Packet, Instant)>,
    firmware_bytes: u64,
    report_every: Duration,
    report_delay: Duration,
    next_report: Instant,
    /// Reports on their way to the kernel.
    reports: VecDeque<(Instant, Event)>,
    /// IP bytes that the link took since the gate was last told.
    pub moved: u64,
    /// Since when.
    pub moved_since: Instant,
    armed: Option<Instant>,
}

impl Device {
    /// An idle device.
    pub fn new(gate: AnyGate, firmware: &Firmware) -> Device {
        Device {
            gate,
            buffer: firmware.buffer.0,
            firmware: VecDeque::new(),
            firmware_bytes: 0,
            report_every: firmware.report_every.max(Duration(1)),
            report_delay: firmware.report_delay,
            next_report: Instant::ZERO,
            reports: VecDeque::new(),
            moved: 0,
            moved_since: Instant::ZERO,
            armed: None,
        }
    }

    /// Bytes in the firmware buffer.
    pub fn firmware_bytes(&self) -> u64 {
        self.firmware_bytes
    }

    /// How often the gate wants to be told of a round trip.
    pub fn gate_probe_every(&self) -> Option<Duration> {
        self.gate.probe_every()
    }

    /// Packets in the firmware buffer.
    pub fn firmware_len(&self) -> usize {
        self.firmware.len()
    }
}

/// What one stage of a port did, since the beginning.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// Time that packets spent in it, ns, after the warm-up.
    pub delays: Histogram,
    /// Since last taken: sum, count and largest.
    pub bin: (u64, u64, u64),
    /// Nobody waited in the last bin.
    pub silent: bool,
    /// Sum of all delays after the warm-up, and their number.
    pub sum: (u128, u64),
}

impl Stage {
    #[inline]
    fn record(&mut self, delay: u64, measured: bool) {
        self.bin.0 += delay;
        self.bin.1 += 1;
        self.bin.2 = self.bin.2.max(delay);
        if measured {
            self.delays.record(delay);
            self.sum.0 += u128::from(delay);
            self.sum.1 += 1;
        }
    }
}

/// Totals of a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Packets that came.
    pub offered: u64,
    /// Packets dropped for want of room.
    pub overflowed: u64,
    /// Packets dropped by the queue discipline's choice.
    pub chosen: u64,
    /// Packets lost on the link.
    pub lost: u64,
    /// Packets that arrived at the other end.
    pub arrived: u64,
    /// IP bytes of them.
    pub bytes: u64,
    /// IP bytes of them after the warm-up.
    pub measured_bytes: u64,
}

/// What the world has to do after a port moved.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// A packet left the queue of an operating system with a device (TSQ counts it off).
    LeftQueue(Packet),
    /// A packet is on its way; it arrives then.
    Started(Packet, Instant),
    /// A packet is gone: by overflow, by choice, or on the link.
    Gone(Packet, Loss),
    /// The kernel reads a report of the modem: what a gate, or an agent, learns of it.
    Reported(Event),
}

/// What became of a packet that met an idle port.
#[derive(Clone, Copy, Debug)]
pub enum Passage {
    /// It is on its way; it arrives then.
    Started(Instant),
    /// It was lost on the link.
    Lost,
    /// The link asked to wait: the port has to be armed.
    Waits,
}

/// How a packet was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// No room in a queue.
    Overflow,
    /// The queue discipline's choice.
    Aqm,
    /// On the link.
    Link,
}

/// See the module text.
///
/// What every packet touches comes first and together: a network of a thousand flows has thousands of ports, of which
/// each one has left the cache when its next packet comes.
#[repr(C)]
pub struct Port {
    /// No device, and a queue that an idle link's packets may pass by.
    transparent: bool,
    /// Where the link leads.
    pub to: usize,
    busy_until: Instant,
    /// The packet that the link would not take yet.
    waiting: Option<(Packet, Instant)>,
    armed: Option<Instant>,
    /// Packets on the way, in order of arrival.
    pub pipe: VecDeque<(Instant, u32)>,
    /// Totals.
    pub counters: Counters,
    /// Statistics count from here.
    pub measured_from: Instant,
    /// Gate and firmware, on a phone; boxed, because they are large and most ports have none.
    pub device: Option<Box<Device>>,
    /// Queue delays.
    pub queued: Stage,
    /// The queue.
    pub queue: Queue,
    /// The link.
    pub link: Link,
    rng: Rng,
    /// The link's own dice: whatever stands in front of it, the same seed makes the same link.
    weather: Rng,
    dropped: Dropped,
    /// Firmware delays.
    pub firmware: Stage,
}

impl Port {
    /// An idle port.
    pub fn new(to: usize, queue: Queue, link: Link, rng: Rng, weather: Rng) -> Port {
        Port {
            to,
            transparent: queue.is_transparent(),
            queue,
            device: None,
            link,
            pipe: VecDeque::new(),
            rng,
            weather,
            busy_until: Instant::ZERO,
            waiting: None,
            armed: None,
            queued: Stage::default(),
            firmware: Stage::default(),
            counters: Counters::default(),
            dropped: Dropped::new(),
            measured_from: Instant::ZERO,
        }
    }

    /// Packets held before the link.
    pub fn held(&self) -> usize {
        let firmware = self.device.as_ref().map_or(0, |d| d.firmware_len());
        self.queue.len() + firmware + usize::from(self.waiting.is_some())
    }

    /// The device that stands before the link, and its qdisc.
    pub fn set_device(&mut self, queue: Queue, device: Device) {
        self.transparent = false;
        self.queue = queue;
        self.device = Some(Box::new(device));
    }

    /// A packet meets a port where nothing waits and the link is free: most packets at most ports. What [`Port::enqueue`]
    /// would do, without the queue; `None` where that has to be asked.
    #[inline]
    pub fn pass(&mut self, now: Instant, packet: &Packet) -> Option<Passage> {
        if !self.transparent
            || now < self.busy_until
            || self.waiting.is_some()
            || !self.queue.is_empty()
        {
            return None;
        }
        self.counters.offered += 1;
        let head =
            Head { bytes: Bytes(u64::from(packet.bytes)), backlog: Bytes(u64::from(packet.bytes)) };
        match self.link.offer(now, &head, &mut self.weather) {
            Offer::Start { leaves, arrives } => {
                self.busy_until = leaves;
                self.queued.record(0, now >= self.measured_from);
                if arrives.is_none() {
                    self.counters.lost += 1;
                }
                Some(arrives.map_or(Passage::Lost, Passage::Started))
            }
            Offer::WaitUntil(at) => {
                self.busy_until = at;
                self.waiting = Some((Packet { enqueued: now, ..*packet }, now));
                Some(Passage::Waits)
            }
        }
    }

    /// A packet wants to go.
    #[inline]
    pub fn enqueue(&mut self, now: Instant, packet: Packet, outcomes: &mut Vec<Outcome>) {
        self.counters.offered += 1;
        let mut packet = packet;
        packet.enqueued = now;
        self.queue.enqueue(now, packet, &mut self.dropped, &mut self.rng);
        if !self.dropped.is_empty() {
            self.report_drops(outcomes);
        }
        if self.device.is_some() || now >= self.busy_until {
            self.run(now, outcomes);
        }
    }

    fn report_drops(&mut self, outcomes: &mut Vec<Outcome>) {
        for (packet, why) in self.dropped.drain(..) {
            let loss = match why {
                aqm::Drop::Overflow => {
                    self.counters.overflowed += 1;
                    Loss::Overflow
                }
                aqm::Drop::Aqm => {
                    self.counters.chosen += 1;
                    Loss::Aqm
                }
            };
            outcomes.push(Outcome::Gone(packet, loss));
        }
    }

    /// Reports that are due are written and read, then whatever can move now does: in this order, whichever of the two the
    /// port was woken for.
    pub fn run(&mut self, now: Instant, outcomes: &mut Vec<Outcome>) {
        self.hear(now, outcomes);
        loop {
            let fed = self.device.is_some() && self.feed(now, outcomes);
            let started = now >= self.busy_until && self.start(now, outcomes);
            if !fed && !started {
                return;
            }
        }
    }

    /// Queue → gate → firmware; whether anything moved.
    fn feed(&mut self, now: Instant, outcomes: &mut Vec<Outcome>) -> bool {
        let measured = now >= self.measured_from;
        let mut moved = false;
        while let Some(device) = &mut self.device {
            // Back-pressure: a full modem takes nothing, so nothing is dropped below the queue.
            if device.firmware_bytes >= device.buffer || !device.gate.open(now) {
                break;
            }
            let Some(packet) = self.queue.dequeue(now, &mut self.dropped, &mut self.rng) else {
                break;
            };
            let bytes = u64::from(packet.bytes);
            device.gate.on_event(now, &Event::Passed { bytes: Bytes(bytes) });
            device.firmware_bytes += bytes;
            device.firmware.push_back((packet, now));
            self.link.medium.on_backlog(now, Bytes(device.firmware_bytes));
            self.queued.record(now.since(packet.enqueued).0, measured);
            outcomes.push(Outcome::LeftQueue(packet));
            moved = true;
        }
        self.report_drops(outcomes);
        moved
    }

    /// The head goes on the link, if the link takes it.
    fn start(&mut self, now: Instant, outcomes: &mut Vec<Outcome>) -> bool {
        let measured = now >= self.measured_from;
        let (packet, since) = match self.waiting.take() {
            Some(waiting) => waiting,
            None => match &mut self.device {
                Some(device) => match device.firmware.front() {
                    Some(front) => *front,
                    None => return false,
                },
                None => {
                    let packet = self.queue.dequeue(now, &mut self.dropped, &mut self.rng);
                    if !self.dropped.is_empty() {
                        self.report_drops(outcomes);
                    }
                    let Some(packet) = packet else { return false };
                    (packet, packet.enqueued)
                }
            },
        };
        let bytes = u64::from(packet.bytes);
        let backlog = match &self.device {
            Some(device) => device.firmware_bytes,
            None => self.queue.backlog().0 + bytes,
        };
        let head = Head { bytes: Bytes(bytes), backlog: Bytes(backlog) };
        let (leaves, arrives) = match self.link.offer(now, &head, &mut self.weather) {
            Offer::Start { leaves, arrives } => (leaves, arrives),
            Offer::WaitUntil(at) => {
                self.busy_until = at;
                if self.device.is_none() {
                    self.waiting = Some((packet, since));
                }
                return false;
            }
        };
        self.busy_until = leaves;
        if let Some(device) = &mut self.device {
            device.firmware.pop_front();
            device.firmware_bytes -= bytes;
            device.moved += bytes;
            device.gate.on_event(now, &Event::Completed { bytes: Bytes(bytes) });
            self.link.medium.on_backlog(now, Bytes(device.firmware_bytes));
            self.firmware.record(leaves.since(since).0, measured);
        } else {
            self.queued.record(now.since(since).0, measured);
        }
        match arrives {
            Some(at) => outcomes.push(Outcome::Started(packet, at)),
            None => {
                self.counters.lost += 1;
                outcomes.push(Outcome::Gone(packet, Loss::Link));
            }
        }
        true
    }

    /// When the port has to be run again: only where something waits for the link or the queue.
    pub fn next_free(&self, now: Instant) -> Option<Instant> {
        let waits = match &self.device {
            Some(device) => device.firmware_len() > 0,
            None => self.waiting.is_some() || !self.queue.is_empty(),
        };
        let mut next = None;
        if waits && self.busy_until > now {
            next = Some(self.busy_until);
        }
        if !self.transparent
            && !self.queue.is_empty()
            && let Some(at) = self.queue.next_wakeup()
            && at > now
        {
            // A shaper whose time has come waits for the link or the modem, which have their own wake-ups.
            next = Some(next.map_or(at, |n: Instant| n.min(at)));
        }
        next
    }

    /// Arms the wake-up for [`Port::next_free`]; the time to wake at, where none earlier is set.
    #[inline]
    pub fn arm(&mut self, now: Instant) -> Option<Instant> {
        let at = self.next_free(now)?;
        if self.armed.is_some_and(|armed| armed <= at && armed > now) {
            return None;
        }
        self.armed = Some(at);
        Some(at)
    }

    /// Puts a packet on the way; the time of an event for it, where it is the next to arrive.
    #[inline]
    pub fn push_pipe(&mut self, at: Instant, handle: u32) -> Option<Instant> {
        let sorted = self.pipe.back().is_none_or(|(last, _)| *last <= at);
        if sorted {
            self.pipe.push_back((at, handle));
            (self.pipe.len() == 1).then_some(at)
        } else {
            // A layer that reorders.
            let place = self.pipe.partition_point(|(t, _)| *t <= at);
            self.pipe.insert(place, (at, handle));
            (place == 0).then_some(at)
        }
    }

    // ------------------------------------------------------------------------------------------ gate and modem

    /// The time of the next report, of one on its way, or of a gate that opens by itself; `None`: no device.
    pub fn next_gate(&self, now: Instant) -> Option<Instant> {
        let device = self.device.as_ref()?;
        let soon = Instant(now.0 + 1);
        // A modem reports when it is idle, too: that is how the kernel knows.
        let mut next = device.next_report.max(soon);
        if let Some((at, _)) = device.reports.front() {
            next = next.min(*at);
        }
        if !self.queue.is_empty()
            && !device.gate.open(now)
            && let Some(at) = device.gate.next_wakeup(now)
        {
            next = next.min(at.max(soon));
        }
        Some(next)
    }

    /// Arms the wake-up for [`Port::next_gate`]; the time to wake at, where none earlier is set.
    pub fn arm_gate(&mut self, now: Instant) -> Option<Instant> {
        let at = self.next_gate(now)?;
        let device = self.device.as_mut()?;
        if device.armed.is_some_and(|armed| armed <= at && armed > now) {
            return None;
        }
        device.armed = Some(at);
        Some(at)
    }

    /// Reports that are due are written and delivered.
    fn hear(&mut self, now: Instant, outcomes: &mut Vec<Outcome>) {
        let Some(device) = &mut self.device else { return };
        if now >= device.next_report {
            let grants = self.link.medium.take_grants(now);
            let event = Event::Report {
                at: now,
                // What leaves the modem is a level of the buffer status report, not a number of bytes.
                occupancy: grants::reported(Bytes(device.firmware_bytes)),
                granted: grants.granted,
                padding: grants.padding,
            };
            // Reports do not come on the clock: a constant delay would tie the kernel's sampling to their phase.
            let delay = device.report_delay.0;
            let jitter = self.rng.below(delay / 10 + 1);
            let due = Instant(now.0 + delay - delay / 20 + jitter);
            let due = due.max(device.reports.back().map_or(due, |(at, _)| *at));
            device.reports.push_back((due, event));
            // On the grid, so that a pause does not move it.
            let every = device.report_every.0;
            device.next_report = Instant((now.0 / every + 1) * every);
        }
        while let Some((at, event)) = device.reports.front().copied() {
            if at > now {
                break;
            }
            device.reports.pop_front();
            device.gate.on_event(now, &event);
            outcomes.push(Outcome::Reported(event));
        }
    }

    /// The link is another one now: what it was waiting for is void.
    pub fn on_link_changed(&mut self, now: Instant, outcomes: &mut Vec<Outcome>) {
        self.busy_until = now;
        if let Some(device) = &self.device {
            self.link.medium.on_backlog(now, Bytes(device.firmware_bytes));
        }
        self.run(now, outcomes);
    }

    /// Another gate takes over.
    pub fn set_gate(&mut self, now: Instant, gate: AnyGate, outcomes: &mut Vec<Outcome>) {
        if let Some(device) = &mut self.device {
            device.gate = gate;
        }
        self.run(now, outcomes);
    }

    /// A probe of the gate came back after `rtt`.
    pub fn on_probe(&mut self, now: Instant, rtt: Duration, outcomes: &mut Vec<Outcome>) {
        let Some(device) = &mut self.device else { return };
        let event = Event::Probe {
            // cake-autorate takes half the RTT for the one-way delay.
            delay: Duration(rtt.0 / 2),
            moved: Bytes(core::mem::take(&mut device.moved)),
            span: now.since(device.moved_since),
        };
        device.moved_since = now;
        device.gate.on_event(now, &event);
        self.run(now, outcomes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Settings, Value, gate, link};

    /// An entry of a table, by default but for its rate.
    fn built<T, S: Default>(table: &[Entry<T, S>], name: &str, rate: Option<u64>) -> T {
        let entry = table.iter().find(|e| e.name == name).expect("the table has it");
        let mut settings = Settings::defaults(entry.params);
        if let Some(bps) = rate {
            assert!(settings.set(entry.params, "rate", Value::Rate(units::Rate(bps))));
        }
        (entry.build)(&settings, &S::default())
    }

    #[test]
    fn a_shaper_whose_time_has_come_does_not_wake_a_port_that_waits_for_the_modem() {
        let medium = built(link::TABLE, "fixed", Some(100_000));
        let link = Link::new(medium, Duration::from_millis(10), Vec::new());
        let plain = Queue::Shared(built(aqm::TABLE, "droptail", None));
        let mut port = Port::new(1, plain, link, Rng::new(1, "port"), Rng::new(1, "link"));
        let firmware = Firmware {
            buffer: Bytes(3_000),
            report_every: Duration::from_millis(5),
            report_delay: Duration::from_millis(100),
        };
        let shaper = Queue::Shared(built(aqm::TABLE, "cake", Some(8_000_000)));
        port.set_device(shaper, Device::new(built(gate::TABLE, "none", None), &firmware));
        let mut outcomes = Vec::new();
        for _ in 0..10 {
            port.enqueue(
                Instant::ZERO,
                Packet { bytes: 1_500, ..Packet::default() },
                &mut outcomes,
            );
        }
        // The shaper lets a packet go every 1.5 ms; the modem, full after two, sends one every 120 ms.
        let mut now = Instant::ZERO;
        let mut turns = 0;
        while let Some(at) = port.next_free(now)
            && turns < 100
        {
            assert!(at > now);
            now = at;
            port.run(now, &mut outcomes);
            turns += 1;
        }
        assert!(turns < 30, "{turns}");
        assert_eq!(port.held(), 0);
    }
}
