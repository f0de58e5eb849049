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

use algo::Packet;
use algo::port::{Outcome, Passage, Port, QueueRow};
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
        let changes = scenario.changes.iter().flat_map(|change| {
            let at = Instant(change.at.0);
            let own = change.what.iter().filter(|what| what.link(scenario) == Some(index));
            own.map(move |what| (at, what.clone()))
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
            what.apply(&mut self.port, now, &mut self.outcomes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Decided, ms, packet, scenario};
    use algo::port::Loss;
    use proptest::prelude::*;

    /// Runs a direction over arrivals and to the end; what it decided, and when each packet was
    /// handed over at the far end.
    fn run(scenario: &Scenario, arrivals: &[(Instant, u32)]) -> (Decided, Vec<(Instant, u32)>) {
        let mut direction = LinkDirection::new(scenario, 0);
        let (mut decided, mut delivered) = (Decided::default(), Vec::new());
        for (handle, (at, bytes)) in arrivals.iter().enumerate() {
            direction.arrive(*at, packet(handle as u32, *bytes), &mut decided);
        }
        // Long after the run: nothing may be left.
        direction.advance(ms(60_000.0), &mut decided);
        delivered.extend(std::iter::from_fn(|| direction.depart(ms(120_000.0))));
        (decided, delivered)
    }

    const PLAIN: &str = "rate = \"8 Mbit/s\"\ndelay = \"10 ms\"\nqueue = { kind = \"droptail\", limit = \"2 packets\" }";

    #[test]
    fn a_packet_arrives_after_the_queue_its_own_bits_and_the_delay() {
        // 1,000 bytes last 1 ms at 8 Mbit/s; two come together, one finds the link idle, and one
        // of 500 bytes comes while it is busy.
        let arrivals = [(ms(0.0), 1_000), (ms(0.0), 1_000), (ms(5.0), 1_000), (ms(5.25), 500)];
        let (decided, delivered) = run(&scenario(PLAIN), &arrivals);
        assert_eq!(delivered, [(ms(11.0), 0), (ms(12.0), 1), (ms(16.0), 2), (ms(16.5), 3)]);
        let starts: Vec<_> = decided.started.iter().map(|(at, handle, _)| (*at, *handle)).collect();
        assert_eq!(starts, [(ms(0.0), 0), (ms(1.0), 1), (ms(5.0), 2), (ms(6.0), 3)]);
    }

    #[test]
    fn a_full_queue_drops_what_comes_last() {
        let arrivals: Vec<_> = (0..5).map(|_| (ms(3.0), 1_000)).collect();
        let (decided, delivered) = run(&scenario(PLAIN), &arrivals);
        // One on the link and two that wait.
        assert_eq!(delivered, [(ms(14.0), 0), (ms(15.0), 1), (ms(16.0), 2)]);
        let overflow = |handle| (ms(3.0), handle, Loss::Overflow);
        assert_eq!(decided.gone, [overflow(3), overflow(4)]);
    }

    #[test]
    fn a_slower_rate_holds_from_its_time_on() {
        let text = format!(
            "{PLAIN}\n[[change]]\nat = \"20 ms\"\n\"link.up.rate\" = \"800 kbit/s\"\n\"link.up.delay\" = \"1 ms\"\n"
        );
        let (_, delivered) = run(&scenario(&text), &[(ms(1.0), 1_000), (ms(30.0), 1_000)]);
        assert_eq!(delivered, [(ms(12.0), 0), (ms(41.0), 1)]);
    }

    #[test]
    fn a_queue_above_its_new_limit_drains_and_drops_what_comes() {
        let text = "rate = \"8 Mbit/s\"\ndelay = \"10 ms\"\nqueue = { kind = \"droptail\", limit = \"5 packets\" }\n\
             [[change]]\nat = \"20 ms\"\n\"link.up.queue.limit\" = \"2 KB\"\n";
        // At 20 ms five wait. From 20.5 ms on one of 1,000 bytes leaves each ms.
        // One that arrives at 23.75 ms fits, and one at 24.75 ms.
        let mut arrivals = vec![(ms(19.5), 1_000); 6];
        arrivals.extend([21.0, 22.0, 23.0, 23.75, 24.0, 24.75].map(|at| (ms(at), 1_000)));
        let (decided, delivered) = run(&scenario(text), &arrivals);
        let gone: Vec<_> = decided.gone.iter().map(|(_, handle, _)| *handle).collect();
        assert_eq!(gone, [6, 7, 8, 10]);
        let handles: Vec<_> = delivered.iter().map(|(_, handle)| *handle).collect();
        assert_eq!(handles, [0, 1, 2, 3, 4, 5, 9, 11]);
    }

    #[test]
    fn a_smaller_firmware_buffer_drains_to_its_size_and_loses_no_packet() {
        let text = "rate = \"8 Mbit/s\"\ndelay = \"10 ms\"\n[device]\nfirmware = { buffer = \"8 KB\" }\n\
             [[change]]\nat = \"20 ms\"\n\"device.firmware.buffer\" = \"3 KB\"\n";
        let mut direction = LinkDirection::new(&scenario(text), 0);
        let mut decided = Decided::default();
        for handle in 0..30 {
            direction.arrive(ms(19.5), packet(handle, 1_000), &mut decided);
        }
        let mut below = Vec::new();
        for at in [19.75, 20.25, 21.75, 24.75, 30.75, 46.75, 49.75] {
            direction.advance(ms(at), &mut decided);
            below.push(direction.port().device.as_ref().expect("a phone").firmware_bytes());
        }
        assert_eq!(below, [8_000, 8_000, 6_000, 3_000, 3_000, 2_000, 0]);
        let handles: Vec<_> = decided.started.iter().map(|(_, handle, _)| *handle).collect();
        assert_eq!((handles, decided.gone.len()), ((0..30).collect(), 0));
    }

    #[test]
    fn a_trace_sends_at_its_opportunities_and_begins_again_at_its_end() {
        // Opportunities of 1,504 bytes at 2, 4, 4 and 10 ms, then at 12, 14, 14, 20 …
        let text = "trace = \"made.up\"\ndelay = \"10 ms\"";
        let arrivals = [
            (ms(0.0), 1_500),
            (ms(0.0), 1_500),
            (ms(0.0), 1_500),
            (ms(5.0), 1_500),
            (ms(5.0), 1_500),
        ];
        let (_, delivered) = run(&scenario(text), &arrivals);
        let times: Vec<_> = delivered.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [12.0, 14.0, 14.0, 20.0, 22.0].map(ms));
    }

    #[test]
    fn bins_follow_each_other_without_gaps_up_to_the_end() {
        // Half as fast again as the link, so that some packets always wait.
        let arrivals: Vec<_> = (0..180).map(|n| (ms(f64::from(n)), 1_500)).collect();
        let (decided, _) = run(&scenario(PLAIN), &arrivals);
        let begins: Vec<_> = decided.bins.iter().map(|row| row.t).collect();
        assert_eq!(begins, [0.0, 50.0, 100.0, 150.0].map(ms));
        let drops: Vec<_> = decided.bins.iter().map(|row| row.drops).collect();
        assert!(drops.is_sorted() && drops[3] == decided.gone.len() as u64, "{drops:?}");
    }

    proptest! {
        /// Every packet either arrives once or is gone once; a link that keeps order delivers in
        /// the order of arrival and never faster than its rate, and none arrives before its bits
        /// and the delay.
        #[test]
        fn packets_are_conserved_and_never_early(
            gaps in prop::collection::vec((0..3_000_000_u64, 40..1_500_u32), 1..120)
        ) {
            let mut at = 0;
            let arrivals: Vec<_> = gaps
                .iter()
                .map(|(gap, bytes)| {
                    at += gap;
                    (Instant(at), *bytes)
                })
                .collect();
            let (decided, delivered) = run(&scenario(PLAIN), &arrivals);
            let mut fates: Vec<u32> = delivered.iter().map(|(_, handle)| *handle).collect();
            prop_assert!(fates.is_sorted(), "order is kept");
            fates.extend(decided.gone.iter().map(|(_, handle, _)| *handle));
            fates.sort_unstable();
            prop_assert_eq!(fates, (0..arrivals.len() as u32).collect::<Vec<_>>());
            let mut last = Instant::ZERO;
            for (at, handle) in delivered {
                let (arrived, bytes) = arrivals[handle as usize];
                // 8 Mbit/s is a byte each 1,000 ns.
                let bits = u64::from(bytes) * 1_000;
                prop_assert!(at.0 >= arrived.0 + bits + 10_000_000);
                prop_assert!(at.0 >= last.0 + bits, "two packets share the link");
                last = at;
            }
        }
    }
}
