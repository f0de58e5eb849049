//! A device that always has data to send: gate, firmware buffer, uplink, and the modem's reports 100 ms
//! late. Packets of 1,500 bytes enter the firmware while the gate is open and the buffer has space; the
//! result is their number and their time in the firmware.

use std::collections::VecDeque;

use algo::Rng;
use algo::gate::{AnyGate, Event, Gate};
use algo::link::grants::reported;
use algo::link::{AnyMedium, Head, Medium, Slot};
use units::{Bytes, Duration, Instant, Rate};

pub const PACKET: Bytes = Bytes(1_500);
/// The modem writes a report every 5 ms, and the kernel reads them about 100 ms later (QCUT section 6): those of
/// 100 ms together (fitted, as in `link/grants.rs`), each 100 ms old on average, give or take a twentieth of the way.
const REPORT_EVERY: Duration = Duration::from_millis(5);
const REPORT_AGE_NS: u64 = 100_000_000;
pub const REPORT_BATCH: Duration = Duration::from_millis(100);
/// Delay of a probe over an empty link.
const BASE: Duration = Duration::from_millis(25);

/// Packets that left between two calls.
#[derive(Clone, Copy, Default, Debug)]
pub struct Departures {
    pub packets: u64,
    /// Sum over the packets of their time in the firmware.
    pub stayed: Duration,
}

impl Departures {
    pub fn delay_ms(&self) -> f64 {
        self.stayed.as_millis_f64() / self.packets.max(1) as f64
    }
    pub fn rate(&self, span: Duration) -> Rate {
        (PACKET * self.packets).over(span).unwrap_or_default()
    }
}

pub struct Testbed {
    pub gate: AnyGate,
    pub link: AnyMedium,
    pub now: Instant,
    pub seen: Departures,
    /// Whether the source has data.
    pub sending: bool,
    /// Span of the reports that reach the kernel together.
    pub batch: Duration,
    buffer: Bytes,
    fifo: VecDeque<Instant>,
    /// The head is in transmission until this time.
    leaving: Option<Instant>,
    /// When to offer the head to the link again.
    ask: Option<Instant>,
    reports: VecDeque<(Instant, Event)>,
    next_report: Instant,
    next_probe: Option<Instant>,
    moved: Bytes,
    rng: Rng,
}

impl Testbed {
    pub fn new(gate: AnyGate, link: AnyMedium, buffer: Bytes) -> Testbed {
        let next_probe = gate.probe_every().map(|every| Instant::ZERO + every);
        Testbed {
            gate,
            link,
            now: Instant::ZERO,
            seen: Departures::default(),
            sending: true,
            batch: REPORT_BATCH,
            buffer,
            fifo: VecDeque::new(),
            leaving: None,
            ask: None,
            reports: VecDeque::new(),
            // Off the beat of the transmission intervals.
            next_report: Instant(3_100_000),
            next_probe,
            moved: Bytes::ZERO,
            // The name seeds the golden curves.
            rng: Rng::new(1, "bed"),
        }
    }

    pub fn buffered(&self) -> Bytes {
        PACKET * self.fifo.len() as u64
    }

    /// Runs to `until`; returns the packets that left since the last call.
    pub fn run(&mut self, until: Instant) -> Departures {
        loop {
            self.settle();
            let next = self.next_event();
            if next >= until {
                self.now = until;
                return core::mem::take(&mut self.seen);
            }
            self.now = next;
            self.report();
        }
    }

    /// Moves all packets that can move now.
    fn settle(&mut self) {
        loop {
            if self.leaving.is_some_and(|at| at <= self.now) {
                self.leave();
            }
            while self.sending
                && self.buffered() + PACKET <= self.buffer
                && self.gate.open(self.now)
            {
                self.fifo.push_back(self.now);
                self.gate
                    .on_event(self.now, &Event::Passed { bytes: PACKET, flow: 0, bare: false });
                self.link.on_backlog(self.now, self.buffered());
                self.ask.get_or_insert(self.now);
            }
            if self.fifo.is_empty()
                || self.leaving.is_some()
                || self.ask.is_none_or(|at| at > self.now)
            {
                return;
            }
            let head = Head { bytes: PACKET, backlog: self.buffered() };
            match self.link.offer(self.now, &head, &mut self.rng) {
                Slot::Leaves(at) => {
                    self.leaving = Some(at);
                    self.ask = None;
                    if at > self.now {
                        return;
                    }
                }
                Slot::WaitUntil(at) => {
                    assert!(at > self.now, "the link never waits for zero time");
                    self.ask = Some(at);
                    return;
                }
            }
        }
    }

    fn leave(&mut self) {
        self.leaving = None;
        let came = self.fifo.pop_front().expect("only a packet that is there leaves");
        self.seen.packets += 1;
        self.seen.stayed += self.now.since(came);
        self.moved += PACKET;
        self.link.on_backlog(self.now, self.buffered());
        self.gate.on_event(self.now, &Event::Completed { bytes: PACKET });
        self.ask = (!self.fifo.is_empty()).then_some(self.now);
    }

    fn next_event(&self) -> Instant {
        let wakeup = match self.gate.next_wakeup(self.now) {
            Some(at) if self.sending && at > self.now => Some(at),
            _ => None,
        };
        let report = self.reports.front().map(|(at, _)| *at);
        let ask = if self.leaving.is_none() { self.ask } else { None };
        [Some(self.next_report), self.next_probe, report, self.leaving, ask, wakeup]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.next_report)
    }

    /// Processes reports and probes that are due.
    fn report(&mut self) {
        let now = self.now;
        if now >= self.next_report {
            let grants = self.link.take_grants(now);
            let report = Event::Report {
                at: now,
                occupancy: reported(grants.waiting.unwrap_or(self.buffered())),
                granted: grants.granted,
                padding: grants.padding,
            };
            let after = self.reports.back().map_or(now, |(at, _)| *at);
            let handed = Instant(now.0.next_multiple_of(self.batch.0.max(1)));
            let way = REPORT_AGE_NS - self.batch.0 / 2;
            let read = handed + Duration(way - way / 20 + self.rng.below(way / 10 + 1));
            self.reports.push_back((read.max(after), report));
            self.next_report = now + REPORT_EVERY;
        }
        while self.reports.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, report)) = self.reports.pop_front() {
                self.gate.on_event(now, &report);
            }
        }
        if self.next_probe.is_some_and(|at| at <= now) {
            let span = self.gate.probe_every().expect("a probed gate has an interval");
            let rate = self.link.state(now).rate.unwrap_or(Rate(1));
            let delay = BASE + self.buffered() / rate;
            let moved = core::mem::take(&mut self.moved);
            self.gate.on_event(now, &Event::Probe { delay, moved, span });
            self.next_probe = Some(now + span);
        }
    }
}
