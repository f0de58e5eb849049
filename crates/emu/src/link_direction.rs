//! One direction of a link without a clock: packets in, decisions out.
//!
//! signal: packets with their time of arrival, and the time up to which the direction advances ·
//! model: the [`Port`] of the scenario (queue, gate, firmware, link), woken exactly when it asks,
//! however late the caller is; changes of the scenario at their times · action: [`Outcome`]s passed
//! to a [`Sink`], packets handed out when they arrive at the far end.
//!
//! What happens depends on the arrivals alone. A caller that wakes 50 µs late delivers late, but
//! the next packet's time is counted from when this one was due: rates are exact over any longer
//! time, and a log of arrivals is enough to make the same decisions again.

use std::collections::VecDeque;

use algo::port::{Outcome, Passage, Port, QueueRow};
use algo::{Packet, gate};
use scenario::{Changed, Scenario};
use units::{Bytes, Duration, Instant};

/// Receives the decisions of a direction.
pub trait Sink {
    /// Something was decided at `now`.
    fn decided(&mut self, now: Instant, outcome: &Outcome);
    /// A bin of the series is over.
    fn bin(&mut self, row: QueueRow);
}

/// A link with the queue or device stack before it, driven by its own due times.
pub struct LinkDirection {
    index: usize,
    port: Port,
    now: Instant,
    changes: VecDeque<(Instant, Changed)>,
    bin: Duration,
    bin_began: Instant,
    end: Instant,
    /// When the port has to be run next, and its modem.
    free_at: Option<Instant>,
    gate_at: Option<Instant>,
    outcomes: Vec<Outcome>,
}

impl LinkDirection {
    /// The link of a scenario with this index, idle.
    pub fn new(scenario: &Scenario, index: usize) -> LinkDirection {
        let port = scenario.port(index);
        let own = |what: &Changed| match what {
            Changed::Link(link, _) => *link == index,
            Changed::Gate(node, _) => {
                scenario.nodes[*node].device.as_ref().is_some_and(|d| d.link == index)
            }
            Changed::NodeWindow(..) | Changed::Congestion(..) | Changed::Window(..) => false,
        };
        let changes = scenario.changes.iter().flat_map(|change| {
            let at = Instant(change.at.0);
            change.what.iter().filter(|what| own(what)).map(move |what| (at, what.clone()))
        });
        let mut direction = LinkDirection {
            index,
            port,
            now: Instant::ZERO,
            changes: changes.collect(),
            bin: scenario.bin,
            bin_began: Instant::ZERO,
            end: Instant(scenario.duration.0),
            free_at: None,
            gate_at: None,
            outcomes: Vec::new(),
        };
        direction.rearm();
        direction
    }

    /// The port, for its counters.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Bytes that wait before the link.
    pub fn waiting(&self) -> Bytes {
        let firmware = self.port.device.as_ref().map_or(0, |device| device.firmware_bytes());
        self.port.queue.backlog() + Bytes(firmware)
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// When something is due next: a decision, a bin, or a packet's arrival at the far end.
    pub fn next_due(&self) -> Option<Instant> {
        let arrival = self.port.pipe.front().map(|(at, _)| *at);
        [self.next_step(), arrival].into_iter().flatten().min()
    }

    fn next_step(&self) -> Option<Instant> {
        let change = self.changes.front().map(|(at, _)| *at);
        let bin = (self.bin_began < self.end).then(|| self.bin_end());
        [self.free_at, self.gate_at, change, bin].into_iter().flatten().min()
    }

    fn bin_end(&self) -> Instant {
        (self.bin_began + self.bin).min(self.end)
    }

    /// Lets everything happen that is due by `to`, in the order of its times.
    pub fn advance(&mut self, to: Instant, sink: &mut impl Sink) {
        while let Some(at) = self.next_step()
            && at <= to
        {
            // Never back in time: what was asked for late happens now.
            self.now = self.now.max(at);
            self.step(sink);
        }
        self.now = self.now.max(to);
    }

    /// One thing that is due. A change comes before what waits for the link, a bin's end after
    /// everything of its time.
    fn step(&mut self, sink: &mut impl Sink) {
        let now = self.now;
        if let Some((at, _)) = self.changes.front()
            && *at <= now
            && let Some((_, what)) = self.changes.pop_front()
        {
            self.change(now, what);
        } else if [self.free_at, self.gate_at].into_iter().flatten().any(|at| at <= now) {
            self.port.run(now, &mut self.outcomes);
        } else {
            let began = self.bin_began;
            self.bin_began = self.bin_end();
            self.port.take_bin(self.index, began, |row| sink.bin(row));
            return;
        }
        self.report(now, sink);
        self.rearm();
    }

    fn change(&mut self, now: Instant, what: Changed) {
        match what {
            Changed::Link(_, link) => {
                self.port.link = link.build();
                self.port.on_link_changed(now, &mut self.outcomes);
            }
            Changed::Gate(_, gate) => {
                let gate = gate.gate(&gate::Setup::default());
                self.port.set_gate(now, gate, &mut self.outcomes);
            }
            Changed::NodeWindow(..) | Changed::Congestion(..) | Changed::Window(..) => {}
        }
    }

    /// A packet arrives at `now`, not before anything that has happened already.
    pub fn arrive(&mut self, now: Instant, packet: Packet, sink: &mut impl Sink) {
        self.advance(now, sink);
        let now = self.now;
        match self.port.pass(now, &packet) {
            Some(Passage::Started(at)) => {
                self.port.push_pipe(at, packet.handle);
                sink.decided(now, &Outcome::Started(packet, at));
            }
            Some(Passage::Lost) => {
                sink.decided(now, &Outcome::Gone(packet, algo::port::Loss::Link));
            }
            Some(Passage::Waits) => {}
            None => {
                self.port.enqueue(now, packet, &mut self.outcomes);
                self.report(now, sink);
            }
        }
        self.rearm();
    }

    /// How often the gate needs a round trip measured.
    pub fn probe_every(&self) -> Option<Duration> {
        self.port.device.as_ref()?.gate_probe_every()
    }

    /// A probe of the gate came back at `now` after `rtt`.
    pub fn probed(&mut self, now: Instant, rtt: Duration, sink: &mut impl Sink) {
        self.advance(now, sink);
        let now = self.now;
        self.port.on_probe(now, rtt, &mut self.outcomes);
        self.report(now, sink);
        self.rearm();
    }

    /// The next packet that has arrived at the far end by `now`: when it was due, and its handle.
    pub fn depart(&mut self, now: Instant) -> Option<(Instant, u32)> {
        let &(at, handle) = self.port.pipe.front()?;
        if at > now {
            return None;
        }
        self.port.pipe.pop_front();
        Some((at, handle))
    }

    /// A packet of so many IP bytes was handed over at the far end.
    pub fn count(&mut self, at: Instant, bytes: u64) {
        let counters = &mut self.port.counters;
        counters.arrived += 1;
        counters.bytes += bytes;
        if at >= self.port.measured_from {
            counters.measured_bytes += bytes;
        }
    }

    fn report(&mut self, now: Instant, sink: &mut impl Sink) {
        for outcome in self.outcomes.drain(..) {
            if let Outcome::Started(packet, at) = outcome {
                self.port.push_pipe(at, packet.handle);
            }
            sink.decided(now, &outcome);
        }
    }

    fn rearm(&mut self) {
        self.free_at = self.port.next_free(self.now);
        self.gate_at = self.port.next_gate(self.now);
    }
}
