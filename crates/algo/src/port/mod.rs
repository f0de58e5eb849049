//! A port: the stages between a node and one of its outgoing links, a phone's modem included.
//!
//! signal: packets to send, the link's answers · model: a queue (or one per user) in front of a link. On a
//! phone it is QCUT's stack: qdisc → gate → firmware buffer → radio, with the modem's late reports ·
//! action: packets start, wait, arrive, or are dropped; each stage's delay is measured.

mod changes;
mod firmware;
mod queue;
mod rows;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use units::{Bytes, Duration, Histogram, Instant};

use crate::aqm::{self, Dropped};
use crate::gate::{AnyGate, Event, Gate};
use crate::link::grants::Level;
use crate::link::{Head, Link, Medium, Offer};
use crate::{Packet, Rng};

pub use firmware::Firmware;
pub use queue::Queue;
pub use rows::{QueueRow, StageRow};

/// Largest TCP acknowledgment without data: an IPv4 header, and a TCP header with all options that it can
/// have. A packet here has no headers to look at; a ping is larger.
const BARE_BYTES: u32 = 80;

/// Gate and firmware buffer of a phone.
pub struct Device {
    /// The gate above the firmware buffer.
    pub gate: AnyGate,
    buffer: u64,
    wake: u64,
    /// The driver has stopped the queue.
    stopped: bool,
    /// Packets in the firmware buffer, with the time they entered.
    firmware: VecDeque<(Packet, Instant)>,
    firmware_bytes: u64,
    /// Time of bare ACKs in the qdisc and in the firmware; they are in the delays of all packets as well.
    acks: [Stage; 2],
    report_every: Duration,
    report_delay: Duration,
    report_batch: Duration,
    level: Level,
    clock_ahead: Duration,
    clock_behind: Duration,
    next_report: Instant,
    /// Reports under way to the kernel.
    reports: VecDeque<(Instant, Event)>,
    /// IP bytes that the link sent since the last probe of the gate.
    pub moved: u64,
    /// Time of the last probe.
    pub moved_since: Instant,
    armed: Option<Instant>,
}

impl Device {
    /// The state of an idle device.
    pub fn new(gate: AnyGate, firmware: &Firmware) -> Device {
        Device {
            gate,
            buffer: firmware.buffer.0,
            wake: firmware.wake.0,
            stopped: false,
            firmware: VecDeque::new(),
            firmware_bytes: 0,
            acks: [Stage::default(), Stage::default()],
            report_every: firmware.report_every.max(Duration(1)),
            report_delay: firmware.report_delay,
            report_batch: firmware.report_batch,
            level: firmware.level,
            clock_ahead: firmware.clock_ahead,
            clock_behind: firmware.clock_behind,
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

    /// Interval of the probes that the gate needs, if any.
    pub fn gate_probe_every(&self) -> Option<Duration> {
        self.gate.probe_every()
    }

    /// Packets in the firmware buffer.
    pub fn firmware_len(&self) -> usize {
        self.firmware.len()
    }
}

/// Delay statistics of one stage of a port.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// Time of packets in the stage, ns, after the warm-up.
    pub delays: Histogram,
    /// The current bin of delays: sum, count and largest.
    pub bin: (u64, u64, u64),
    /// No packet waited in the last bin.
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
    /// Packets offered to the port.
    pub offered: u64,
    /// Packets dropped because a queue was full.
    pub overflowed: u64,
    /// Packets dropped by the queue discipline's AQM.
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

/// An event of a port for its owner (simulator or emulator).
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// A packet left the queue of an operating system with a device (TSQ subtracts it).
    LeftQueue(Packet),
    /// A packet is under way; it arrives at this time.
    Started(Packet, Instant),
    /// A packet is lost: by overflow, by AQM, or on the link.
    Gone(Packet, Loss),
    /// The kernel reads a report of the modem: the input of a gate, or of an agent.
    Reported(Event),
}

/// The fate of a packet at an idle port.
#[derive(Clone, Copy, Debug)]
pub enum Passage {
    /// It is under way; it arrives at this time.
    Started(Instant),
    /// It was lost on the link.
    Lost,
    /// It waits for the link: the port has to be armed.
    Waits,
}

/// How a packet was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// A queue was full.
    Overflow,
    /// The queue discipline's AQM dropped it.
    Aqm,
    /// It was lost on the link.
    Link,
}

/// The queue, the optional device and the link of one direction.
///
/// The fields that every packet uses come first and together: a network of a thousand flows has
/// thousands of ports, and each has left the CPU cache when its next packet arrives.
#[repr(C)]
pub struct Port {
    /// No device, and a queue that packets may bypass while the link is idle.
    transparent: bool,
    /// Index of the node at the end of the link.
    pub to: usize,
    busy_until: Instant,
    /// The packet that waits for the link, and since when.
    waiting: Option<(Packet, Instant)>,
    armed: Option<Instant>,
    /// Packets under way, in order of arrival.
    pub pipe: VecDeque<(Instant, u32)>,
    /// The event that is armed for the first of them; a packet that overtakes arms an earlier one.
    pub arrival: Instant,
    /// Totals of this port.
    pub counters: Counters,
    /// End of the warm-up: statistics count from here.
    pub measured_from: Instant,
    /// Gate and firmware, on a phone; boxed, because they are large and most ports have none.
    pub device: Option<Box<Device>>,
    /// Delay statistics of the queue.
    pub queued: Stage,
    /// The queue or queues.
    pub queue: Queue,
    /// The link behind them.
    pub link: Link,
    rng: Rng,
    /// The link's own random numbers: with any queue in front of it, the same seed makes the same link.
    link_rng: Rng,
    dropped: Dropped,
    /// Delay statistics of the firmware buffer.
    pub firmware: Stage,
}

impl Port {
    /// The state of an idle port.
    pub fn new(to: usize, queue: Queue, link: Link, rng: Rng, link_rng: Rng) -> Port {
        Port {
            to,
            transparent: queue.is_transparent(),
            queue,
            device: None,
            link,
            pipe: VecDeque::new(),
            arrival: Instant::ZERO,
            rng,
            link_rng,
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

    /// Packets before the link.
    pub fn waiting_packets(&self) -> usize {
        let firmware = self.device.as_ref().map_or(0, |d| d.firmware_len());
        self.queue.len() + firmware + usize::from(self.waiting.is_some())
    }

    /// Adds a device between queue and link, with a new queue above it.
    pub fn set_device(&mut self, queue: Queue, device: Device) {
        self.transparent = false;
        self.queue = queue;
        self.device = Some(Box::new(device));
    }

    /// The fast path for an idle port, the case of most packets: the same as [`Port::enqueue`], but
    /// without the queue. `None`: use [`Port::enqueue`].
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
        match self.link.offer(now, &head, &mut self.link_rng) {
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

    /// Enqueues a packet, and starts it if the link is free.
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

    /// Processes due reports first, then moves all packets that can move: the order is the same for
    /// both kinds of wake-up.
    pub fn run(&mut self, now: Instant, outcomes: &mut Vec<Outcome>) {
        self.process_reports(now, outcomes);
        loop {
            let fed = self.device.is_some() && self.feed(now, outcomes);
            let started = now >= self.busy_until && self.start(now, outcomes);
            if !fed && !started {
                return;
            }
        }
    }

    /// Queue → gate → firmware; returns whether a packet moved.
    fn feed(&mut self, now: Instant, outcomes: &mut Vec<Outcome>) -> bool {
        let measured = now >= self.measured_from;
        let mut moved = false;
        while let Some(device) = &mut self.device {
            // Back-pressure: a full modem accepts no packet, so no packet is dropped below the queue.
            device.stopped = device.firmware_bytes >= device.buffer
                || device.stopped
                    && device.firmware_bytes > device.buffer.saturating_sub(device.wake);
            if device.stopped || !device.gate.open(now) {
                break;
            }
            let Some(packet) = self.queue.dequeue(now, &mut self.dropped, &mut self.rng) else {
                break;
            };
            let bytes = u64::from(packet.bytes);
            device.gate.on_event(
                now,
                &Event::Passed {
                    bytes: Bytes(bytes),
                    flow: packet.flow_hash,
                    bare: packet.bytes <= BARE_BYTES,
                },
            );
            device.firmware_bytes += bytes;
            device.firmware.push_back((packet, now));
            self.link.medium.on_backlog(now, Bytes(device.firmware_bytes));
            self.queued.record(now.since(packet.enqueued).0, measured);
            if packet.bytes <= BARE_BYTES {
                device.acks[0].record(now.since(packet.enqueued).0, measured);
            }
            outcomes.push(Outcome::LeftQueue(packet));
            moved = true;
        }
        self.report_drops(outcomes);
        moved
    }

    /// Starts the head on the link, if the link is ready.
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
        let (leaves, arrives) = match self.link.offer(now, &head, &mut self.link_rng) {
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
            if packet.bytes <= BARE_BYTES {
                device.acks[1].record(leaves.since(since).0, measured);
            }
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

    /// When to run the port again, if a packet waits for the link or the queue.
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
            // A shaper that is due waits for the link or the modem, which have their own wake-ups.
            next = Some(next.map_or(at, |n: Instant| n.min(at)));
        }
        next
    }

    /// Arms the wake-up for [`Port::next_free`]; returns its time, unless an earlier one is armed.
    #[inline]
    pub fn arm(&mut self, now: Instant) -> Option<Instant> {
        let at = self.next_free(now)?;
        if self.armed.is_some_and(|armed| armed <= at && armed > now) {
            return None;
        }
        self.armed = Some(at);
        Some(at)
    }

    /// Puts a packet under way; returns the time of its event if it is the next to arrive.
    #[inline]
    pub fn push_pipe(&mut self, at: Instant, handle: u32) -> Option<Instant> {
        let sorted = self.pipe.back().is_none_or(|(last, _)| *last <= at);
        if sorted {
            self.pipe.push_back((at, handle));
            (self.pipe.len() == 1).then_some(at)
        } else {
            // A layer has reordered it.
            let place = self.pipe.partition_point(|(t, _)| *t <= at);
            self.pipe.insert(place, (at, handle));
            (place == 0).then_some(at)
        }
    }

    // ------------------------------------------------------------------------------------------ gate and modem

    /// The time of the next report, of one under way, or of a gate that opens by itself; `None`: no
    /// device.
    pub fn next_gate(&self, now: Instant) -> Option<Instant> {
        let device = self.device.as_ref()?;
        let soon = Instant(now.0 + 1);
        // An idle modem reports, too: the kernel has to know that it is idle.
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

    /// Arms the wake-up for [`Port::next_gate`]; returns its time, unless an earlier one is armed.
    pub fn arm_gate(&mut self, now: Instant) -> Option<Instant> {
        let at = self.next_gate(now)?;
        let device = self.device.as_mut()?;
        if device.armed.is_some_and(|armed| armed <= at && armed > now) {
            return None;
        }
        device.armed = Some(at);
        Some(at)
    }

    /// Writes and delivers the reports that are due.
    fn process_reports(&mut self, now: Instant, outcomes: &mut Vec<Outcome>) {
        let Some(device) = &mut self.device else { return };
        if now >= device.next_report {
            let grants = self.link.medium.take_grants(now);
            let stamp = (now + device.clock_ahead).0.saturating_sub(device.clock_behind.0);
            // 36.321 section 5.4.5: what is left after the block was built; a packet's part that was sent does not
            // count.
            let waiting = grants.waiting.unwrap_or(Bytes(device.firmware_bytes));
            let event = Event::Report {
                at: Instant(stamp),
                // A buffer status report has a level, not a number of bytes.
                occupancy: device.level.read(waiting),
                granted: grants.granted,
                padding: grants.padding,
            };
            // Random delay: with a constant one the kernel would always sample at the same phase.
            // A batch is handed over at its end: its reports have then waited for half of it on average.
            let (batch, mean) = (device.report_batch.0, device.report_delay.0);
            let handed = if batch == 0 { now.0 } else { now.0.next_multiple_of(batch) };
            let delay = mean.saturating_sub(batch / 2);
            let jitter = self.rng.below(delay / 10 + 1);
            let due = Instant(handed + delay - delay / 20 + jitter);
            let due = due.max(device.reports.back().map_or(due, |(at, _)| *at));
            device.reports.push_back((due, event));
            // On a fixed grid, which a pause does not move.
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

    /// A probe of the gate returned after `rtt`.
    pub fn on_probe(&mut self, now: Instant, rtt: Duration, outcomes: &mut Vec<Outcome>) {
        let Some(device) = &mut self.device else { return };
        let event = Event::Probe {
            // cake-autorate uses half the RTT as the one-way delay.
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
        let firmware = Firmware { buffer: Bytes(3_000), ..Firmware::default() };
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
        assert_eq!(port.waiting_packets(), 0);
    }

    /// A port of a phone whose modem sends a packet of 1,500 bytes each 12 ms, with `packets` to send.
    fn phone(firmware: &Firmware, packets: u32) -> (Port, Vec<Outcome>) {
        let medium = built(link::TABLE, "fixed", Some(1_000_000));
        let link = Link::new(medium, Duration::ZERO, Vec::new());
        let queue = || Queue::Shared(built(aqm::TABLE, "droptail", None));
        let mut port = Port::new(1, queue(), link, Rng::new(1, "port"), Rng::new(1, "link"));
        port.set_device(queue(), Device::new(built(gate::TABLE, "none", None), firmware));
        let mut outcomes = Vec::new();
        for i in 0..packets {
            let bytes = if i == 1 { 52 } else { 1_500 };
            port.enqueue(Instant::ZERO, Packet { bytes, ..Packet::default() }, &mut outcomes);
        }
        (port, outcomes)
    }

    #[test]
    fn reports_of_a_batch_reach_the_kernel_together_and_are_as_old_on_average() {
        let ages = |batch| {
            let report_batch = Duration::from_millis(batch);
            let (mut port, mut outcomes) =
                phone(&Firmware { report_batch, ..Firmware::default() }, 0);
            let (mut now, mut ages, mut times) = (Instant::ZERO, Vec::new(), Vec::new());
            while now < Instant(10_000_000_000) {
                now = port.next_gate(now).expect("a modem reports");
                outcomes.clear();
                port.run(now, &mut outcomes);
                for outcome in &outcomes {
                    if let Outcome::Reported(Event::Report { at, .. }) = outcome {
                        ages.push(now.since(*at).0 as f64 / 1e6);
                        times.push(now);
                    }
                }
            }
            times.dedup();
            let least = ages.iter().copied().fold(f64::MAX, f64::min);
            (ages.iter().sum::<f64>() / ages.len() as f64, least, times.len())
        };
        let ((alone, youngest, _), (together, least, times)) = (ages(0), ages(100));
        assert!((95.0..105.0).contains(&alone) && youngest >= 95.0, "{alone} {youngest}");
        assert!((95.0..105.0).contains(&together), "{together}");
        assert!((47.0..53.0).contains(&least), "{least}");
        // Hundred batches; the way of each report varies by some milliseconds, in which later ones catch up.
        assert!(times < 1_000, "{times}");
    }

    #[test]
    fn a_clock_that_is_ahead_makes_reports_look_younger() {
        let clock_ahead = Duration::from_millis(50);
        let (mut port, mut outcomes) = phone(&Firmware { clock_ahead, ..Firmware::default() }, 0);
        port.run(Instant(1_000_000_000), &mut outcomes);
        outcomes.clear();
        port.run(Instant(1_110_000_000), &mut outcomes);
        let stamp = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Reported(Event::Report { at, .. }) => Some(*at),
            _ => None,
        });
        assert_eq!(stamp, Some(Instant(1_050_000_000)));
    }

    #[test]
    fn a_driver_wakes_a_stopped_queue_at_its_lower_mark() {
        let firmware =
            Firmware { buffer: Bytes(15_000), wake: Bytes(7_500), ..Firmware::default() };
        let (mut port, mut outcomes) = phone(&firmware, 100);
        let below = |port: &Port| port.device.as_ref().map_or(0, |device| device.firmware_bytes());
        let full = below(&port);
        assert!((15_000..16_500).contains(&full), "{full}");
        let (mut now, mut least) = (Instant::ZERO, full);
        while let Some(at) = port.next_free(now)
            && port.queue.len() > 20
        {
            now = at;
            let before = port.queue.len();
            port.run(now, &mut outcomes);
            // It passes nothing until half is free, then all that fits.
            assert!(port.queue.len() == before || below(&port) >= 15_000, "{}", below(&port));
            least = least.min(below(&port));
        }
        assert!((7_500..9_100).contains(&least), "{least}");
    }

    #[test]
    fn acks_without_data_have_delays_of_their_own() {
        let (mut port, mut outcomes) = phone(&Firmware::default(), 10);
        let mut now = Instant::ZERO;
        while let Some(at) = port.next_free(now) {
            now = at;
            port.run(now, &mut outcomes);
        }
        let rows = port.stages(0, Duration::from_secs(1));
        let count = |stage: &str| {
            let row = rows.iter().find(|row| row.stage == stage)?;
            row.delay_ms.map(|delay| delay.count)
        };
        assert_eq!((count("firmware"), count("firmware_acks")), (Some(10), Some(1)));
        assert_eq!((count("qdisc"), count("qdisc_acks")), (Some(10), Some(1)));
    }
}
