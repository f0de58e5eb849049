//! CoDel: controlled delay.
//!
//! signal: sojourn time of the packet at the head · model: there is a standing queue if the sojourn time
//! was not below `target` for a whole `interval` · action: while there is one, drop (or mark) packets at
//! intervals that shrink with the square root of their number, until the sojourn time is below `target`
//! once. Source: RFC 8289.
//!
//! [`Controller`] is the law alone, for one queue; each queue of FQ-CoDel contains one.
//!
//! Deviations: `interval / sqrt(count)` is computed in double precision; Linux iterates a 16-bit
//! fixed-point value. IEEE 754 rounds a square root exactly, so it is the same on every machine. Marks
//! instead of drops are Linux's (`codel_impl.h`): RFC 8289 leaves ECN to later work. No `ce_threshold`.
//! A backlog that is no standing queue is the link's MTU, as in Linux; RFC 8289 section 5.5 takes the
//! largest packet seen (`maxpacket_`), which is the same once a full packet has passed.

use units::{Bytes, Duration, Instant};

use super::fifo::Fifo;
use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Capacity, Packet, Rng};

/// Name in the table.
pub const NAME: &str = "codel";
/// One-line description for lists and documentation.
pub const ABOUT: &str =
    "drops at the head when the queueing delay has not been below target for an interval";
/// Where it is specified.
pub const SOURCE: &str = "RFC 8289";

config! {
    /// Parameters; their defaults are the published values.
    pub struct Config {
        /// Acceptable sojourn time of a standing queue: 5 ms (RFC 8289 section 4.3).
        target: Duration = Duration::from_millis(5), Duration::from_nanos(1), Duration::from_secs(60);
        /// Time within which it has to be reached: a worst-case round trip, 100 ms (RFC 8289 section 4.3).
        interval: Duration = Duration::from_millis(100), Duration::from_nanos(1), Duration::from_secs(600);
        /// Largest queue. 1,000 packets is Linux's default (`sch_codel.c`).
        limit: Capacity = Capacity::Packets(1_000), Capacity::Packets(1), Capacity::Packets(1 << 40);
        /// Mark packets that can carry a mark instead of dropping them; off by default in Linux's `codel`.
        ecn: bool = false;
    }
}

/// The parameters of the law.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// Acceptable sojourn time of a standing queue.
    pub target: Duration,
    /// Time within which the target has to be reached.
    pub interval: Duration,
    /// A backlog of one packet of this size is no standing queue.
    pub mtu: Bytes,
    /// Mark packets that can carry a mark, instead of dropping them.
    pub ecn: bool,
}

/// The queue that the law controls.
pub trait Source {
    /// Removes the oldest packet.
    fn pop(&mut self) -> Option<Packet>;
    /// Bytes that remain in the queue.
    fn backlog(&self) -> Bytes;
}

impl Source for Fifo {
    #[inline]
    fn pop(&mut self) -> Option<Packet> {
        Fifo::pop(self)
    }
    #[inline]
    fn backlog(&self) -> Bytes {
        self.bytes()
    }
}

/// RFC 8289 section 3.3: the time of the next drop, after drop number `count` at `from`.
#[inline]
pub fn control_law(from: Instant, interval: Duration, count: u32) -> Instant {
    from + Duration((interval.0 as f64 / libm::sqrt(f64::from(count.max(1)))) as u64)
}

/// The state of the law for one queue (RFC 8289 section 5.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct Controller {
    /// When the sojourn time will have been above target for an interval; `None` while it is below.
    first_above: Option<Instant>,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Controller {
    /// Whether there was a standing queue for an interval, by the packet that was just removed. RFC
    /// 8289 section 5.5.
    #[inline]
    fn stands(&mut self, now: Instant, law: &Law, head: Option<&Packet>, left: Bytes) -> bool {
        let Some(packet) = head else {
            self.first_above = None;
            return false;
        };
        if now.since(packet.enqueued) < law.target || left <= law.mtu {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + law.interval);
                false
            }
            Some(at) => now >= at,
        }
    }

    /// The next packet for the link. RFC 8289 section 5.6.
    #[inline]
    pub fn dequeue<S: Source>(
        &mut self,
        now: Instant,
        law: &Law,
        source: &mut S,
        dropped: &mut Dropped,
        marks: &mut u64,
    ) -> Option<Packet> {
        let head = source.pop();
        let stands = self.stands(now, law, head.as_ref(), source.backlog());
        if self.dropping {
            if !stands {
                self.dropping = false;
                return head;
            }
            return self.drop_on(now, law, source, head, dropped, marks);
        }
        if stands { self.begin(now, law, source, head, dropped, marks) } else { head }
    }

    /// In the drop state: drops all packets that are due, several at once if drops are due faster than
    /// packets leave.
    fn drop_on<S: Source>(
        &mut self,
        now: Instant,
        law: &Law,
        source: &mut S,
        mut head: Option<Packet>,
        dropped: &mut Dropped,
        marks: &mut u64,
    ) -> Option<Packet> {
        while self.dropping && now >= self.drop_next {
            let Some(packet) = head else { break };
            self.count = self.count.saturating_add(1);
            if let Some(marked) = mark(law, packet, marks) {
                self.drop_next = control_law(self.drop_next, law.interval, self.count);
                return Some(marked);
            }
            dropped.push((packet, Drop::Aqm));
            head = source.pop();
            if self.stands(now, law, head.as_ref(), source.backlog()) {
                self.drop_next = control_law(self.drop_next, law.interval, self.count);
            } else {
                self.dropping = false;
            }
        }
        head
    }

    /// Enters the drop state with a first drop.
    fn begin<S: Source>(
        &mut self,
        now: Instant,
        law: &Law,
        source: &mut S,
        head: Option<Packet>,
        dropped: &mut Dropped,
        marks: &mut u64,
    ) -> Option<Packet> {
        let packet = head?;
        let head = match mark(law, packet, marks) {
            Some(marked) => Some(marked),
            None => {
                dropped.push((packet, Drop::Aqm));
                let next = source.pop();
                self.stands(now, law, next.as_ref(), source.backlog());
                next
            }
        };
        self.dropping = true;
        // RFC 8289 section 5.6: begin with the drop rate that controlled the queue less than 16
        // intervals ago. `needed` is the number of drops of the last cycle beyond its beginning.
        let needed = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next) < law.interval * 16;
        self.count = if needed > 1 && recent { needed } else { 1 };
        self.drop_next = control_law(now, law.interval, self.count);
        self.last_count = self.count;
        head
    }

    /// Packets of this queue were dropped because it was full: they count as drops (`fq_codel_drop` in
    /// Linux).
    #[inline]
    pub fn on_overflow(&mut self, packets: u32) {
        self.count = self.count.saturating_add(packets);
    }
}

/// The packet with a mark, if it can carry one and marking is on.
#[inline]
fn mark(law: &Law, packet: Packet, marks: &mut u64) -> Option<Packet> {
    if !(law.ecn && packet.ecn.is_capable()) {
        return None;
    }
    *marks += 1;
    Some(Packet { ecn: crate::Ecn::Marked, ..packet })
}

/// One queue under the CoDel law.
#[derive(Clone, Debug)]
pub struct Codel {
    law: Law,
    limit: Capacity,
    queue: Fifo,
    controller: Controller,
    marks: u64,
}

impl Codel {
    /// A new, empty queue.
    pub fn new(config: Config, setup: &Setup) -> Codel {
        Codel {
            law: Law {
                target: config.target,
                interval: config.interval,
                mtu: setup.mtu,
                ecn: config.ecn,
            },
            limit: config.limit,
            queue: Fifo::default(),
            controller: Controller::default(),
            marks: 0,
        }
    }
}

impl QueueDiscipline for Codel {
    fn enqueue(&mut self, now: Instant, mut packet: Packet, dropped: &mut Dropped, _rng: &mut Rng) {
        packet.enqueued = now;
        if self.queue.has_space(&packet, self.limit) {
            self.queue.push(packet);
        } else {
            dropped.push((packet, Drop::Overflow));
        }
    }

    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped, _rng: &mut Rng) -> Option<Packet> {
        self.controller.dequeue(now, &self.law, &mut self.queue, dropped, &mut self.marks)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn backlog(&self) -> Bytes {
        self.queue.bytes()
    }

    fn state(&self) -> State {
        State {
            packets: self.queue.len() as u64,
            bytes: self.queue.bytes(),
            probability: None,
            marks: self.marks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;

    fn packet(ecn: Ecn) -> Packet {
        Packet { bytes: 1_000, ecn, ..Packet::default() }
    }

    /// Serves one packet each millisecond from `from` for `ms`, with `waiting` always in the queue at `delay` ms of
    /// age, and returns when packets were dropped (or, with ECN, marked).
    fn serve(codel: &mut Codel, from: u64, ms: u64, delay: u64, ecn: Ecn) -> Vec<u64> {
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        let mut at = Vec::new();
        for t in from..from + ms {
            while codel.len() < 40 {
                codel.enqueue(
                    Instant((t - delay.min(t)) * MS),
                    packet(ecn),
                    &mut dropped,
                    &mut rng,
                );
            }
            // The law is about sojourn times only, so the test sets them directly.
            let marks = codel.marks;
            codel.dequeue(Instant(t * MS), &mut dropped, &mut rng);
            at.extend(core::iter::repeat_n(t, dropped.len() + (codel.marks - marks) as usize));
            dropped.clear();
        }
        at
    }

    // RFC 8289 section 3.3: from the first drop on, drop n + 1 comes interval / sqrt(n) after drop n.
    #[test]
    fn drops_follow_the_inverse_square_root_of_their_number() {
        let mut codel = Codel::new(Config::default(), &Setup::default());
        let at = serve(&mut codel, 1_000, 2_000, 50, Ecn::NotCapable);
        // Above target at 1,000 ms, hence the first drop one interval later.
        let mut expected = alloc::vec![1_100.0];
        for n in 1..at.len() {
            expected.push(expected[n - 1] + 100.0 / (n as f64).sqrt());
        }
        assert!(at.len() > 30, "{at:?}");
        for (at, expected) in at.iter().zip(&expected) {
            assert!(
                (*at as f64 - expected).abs() <= 1.0,
                "dropped at {at} ms, the law says {expected}"
            );
        }
    }

    // RFC 8289 section 3.3.
    #[test]
    fn the_control_law_is_the_interval_over_the_root_of_the_count() {
        let interval = Duration::from_millis(100);
        assert_eq!(control_law(Instant(7), interval, 1), Instant(7) + interval);
        assert_eq!(control_law(Instant(0), interval, 4), Instant(50 * MS));
        assert_eq!(control_law(Instant(0), interval, 10_000), Instant(MS));
    }

    // RFC 8289 section 5.5: a queue of one MTU or a sojourn that is below target once is no standing queue.
    #[test]
    fn one_packet_below_target_restarts_the_interval() {
        let mut codel = Codel::new(Config::default(), &Setup::default());
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        assert!(serve(&mut codel, 1_000, 99, 50, Ecn::NotCapable).is_empty());
        // Everything old leaves at once, then one fresh packet does.
        while codel.len() > 1 {
            codel.dequeue(Instant(1_099 * MS), &mut dropped, &mut rng);
        }
        assert!(serve(&mut codel, 1_100, 99, 50, Ecn::NotCapable).is_empty());
        assert_eq!(dropped.len(), 0);
    }

    // RFC 8289 section 5.6: re-entry within 16 intervals begins at the drop count that the last cycle needed.
    #[test]
    fn a_queue_that_comes_back_soon_is_met_at_the_rate_that_controlled_it() {
        let run = |pause: u64| {
            let mut codel = Codel::new(Config::default(), &Setup::default());
            let first = serve(&mut codel, 1_000, 1_000, 50, Ecn::NotCapable);
            let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
            while codel.dequeue(Instant(2_000 * MS), &mut dropped, &mut rng).is_some() {}
            let before = first.len() + dropped.len();
            serve(&mut codel, 2_000 + pause, 101, 50, Ecn::NotCapable);
            (before as u32, codel.controller.count)
        };
        let (drops, count) = run(100);
        assert_eq!(count, drops - 1, "the first cycle began at 1");
        assert_eq!(run(1_800).1, 1, "16 intervals have passed");
    }

    // RFC 8289 section 5.5: `bytes() <= maxpacket`.
    #[test]
    fn the_last_packets_are_not_dropped_however_old_they_are() {
        let mut codel = Codel::new(Config::default(), &Setup::default());
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        for t in 0..50 {
            codel.enqueue(Instant(0), packet(Ecn::NotCapable), &mut dropped, &mut rng);
            codel.enqueue(Instant(0), packet(Ecn::NotCapable), &mut dropped, &mut rng);
            let now = Instant((1_000 + 100 * t) * MS);
            assert!(codel.dequeue(now, &mut dropped, &mut rng).is_some());
            assert!(codel.dequeue(now, &mut dropped, &mut rng).is_some());
        }
        assert!(dropped.is_empty());
    }

    #[test]
    fn with_ecn_the_same_times_bring_marks_and_no_packet_is_lost() {
        let config = Config { ecn: true, ..Config::default() };
        let mut codel = Codel::new(config.clone(), &Setup::default());
        let marks = serve(&mut codel, 1_000, 1_000, 50, Ecn::Capable0);
        let drops =
            serve(&mut Codel::new(config, &Setup::default()), 1_000, 1_000, 50, Ecn::NotCapable);
        assert_eq!(marks, drops);
        assert_eq!(codel.state().marks, marks.len() as u64);
    }
}
