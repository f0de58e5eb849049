//! The queue of pending events.
//!
//! A heap of four children per node, ordered by time and then by order of insertion, so that a run
//! is the same on every machine.
//!
//! Few entries are alive at a time: packets on a link wait in the link's own queue, of which only
//! the head is here; an endpoint has one entry for its nearest deadline. A deadline that moved away
//! leaves its entry behind: it fires, finds nothing due, and is set again (spurious wake-ups are
//! harmless).

use units::Instant;

/// The part of the simulation that an event wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The link of a port is free again, or its queue may give a packet.
    PortFree(u32),
    /// The first packet on the way over a port's link arrives.
    PortArrival(u32),
    /// A port's gate may open, or its modem reports.
    PortGate(u32),
    /// A deadline of a TCP endpoint.
    Endpoint(u32),
    /// The timer of a flow's application.
    App(u32),
    /// A probe sends its next packet.
    Probe(u32),
    /// A bin of the series ends.
    Bin,
    /// Something of the scenario changes.
    Change(u32),
    /// A bandwidth-probing gate pings.
    GateProbe(u32),
}

/// Time in the upper half, order of insertion in the lower: one number compares in one step,
/// without a branch that could be guessed wrongly. The target rides along.
#[derive(Clone, Copy)]
struct Entry {
    time: u64,
    order: u64,
    target: Target,
}

impl Entry {
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.time) << 64 | u128::from(self.order)
    }
}

/// The pending events.
///
/// What was handed out last keeps its place at the top until something else happens: handling an
/// event mostly adds another, which then takes that place and sinks, instead of climbing up after
/// the last one sank.
#[derive(Default)]
pub struct Events {
    heap: Vec<Entry>,
    /// The top has been handed out.
    taken: bool,
    order: u64,
    /// Events handed out so far.
    pub fired: u64,
}

/// Children per node: their keys fit into a cache line.
const ARITY: usize = 4;

impl Events {
    /// Wakes `target` at `time`.
    #[inline]
    pub fn push(&mut self, time: Instant, target: Target) {
        let entry = Entry { time: time.0, order: self.order, target };
        self.order += 1;
        if std::mem::take(&mut self.taken) {
            self.sink(entry);
            return;
        }
        let mut at = self.heap.len();
        self.heap.push(entry);
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if entry.key() >= self.heap[parent].key() {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = entry;
    }

    /// The next event, if it is not later than `end`.
    #[inline]
    pub fn pop(&mut self, end: Instant) -> Option<(Instant, Target)> {
        if std::mem::take(&mut self.taken) {
            let last = self.heap.pop()?;
            if !self.heap.is_empty() {
                self.sink(last);
            }
        }
        let first = *self.heap.first()?;
        if first.time > end.0 {
            return None;
        }
        self.taken = true;
        self.fired += 1;
        Some((Instant(first.time), first.target))
    }

    /// Puts an entry in the place of the top one. Inlined, so that the entry stays in registers:
    /// written to memory in words and read back in pairs it would stall.
    #[inline(always)]
    fn sink(&mut self, entry: Entry) {
        let heap = self.heap.as_mut_slice();
        let key = entry.key();
        let mut at = 0;
        loop {
            let first = at * ARITY + 1;
            let min = match heap.get(first..).and_then(|children| children.first_chunk::<ARITY>()) {
                // All children are there: two pairs, then their winners.
                Some([a, b, c, d]) => {
                    let (left, low) = if b.key() < a.key() { (1, b.key()) } else { (0, a.key()) };
                    let (right, high) = if d.key() < c.key() { (3, d.key()) } else { (2, c.key()) };
                    first + if high < low { right } else { left }
                }
                None => {
                    let mut min = first;
                    for child in first + 1..heap.len() {
                        if heap[child].key() < heap[min].key() {
                            min = child;
                        }
                    }
                    min
                }
            };
            match heap.get(min) {
                Some(child) if child.key() < key => heap[at] = *child,
                _ => break,
            }
            at = min;
        }
        heap[at] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_equal_times_in_the_order_of_insertion() {
        let mut events = Events::default();
        let mut x = 12_345_u64;
        let mut expected = Vec::new();
        for i in 0..1_000_u32 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let time = (x >> 33) % 50;
            events.push(Instant(time), Target::App(i));
            expected.push((time, i));
        }
        expected.sort_by_key(|(time, _)| *time);
        for (time, i) in expected {
            assert_eq!(events.pop(Instant(100)), Some((Instant(time), Target::App(i))));
        }
        assert_eq!(events.pop(Instant(100)), None);
    }

    #[test]
    fn events_added_while_others_are_handled_come_in_the_same_order_as_from_a_sorted_list() {
        let mut events = Events::default();
        let (mut x, mut added) = (77_u64, 0_u32);
        let mut waiting: Vec<(u64, u32)> = Vec::new();
        let mut add = |events: &mut Events, waiting: &mut Vec<(u64, u32)>, now: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let time = now + (x >> 33) % 20;
            events.push(Instant(time), Target::App(added));
            waiting.push((time, added));
            added += 1;
            x >> 60
        };
        add(&mut events, &mut waiting, 0);
        for step in 0..3_000 {
            let min = waiting.iter().copied().min();
            let got = events.pop(Instant(u64::MAX));
            assert_eq!(got, min.map(|(time, i)| (Instant(time), Target::App(i))));
            waiting.retain(|w| Some(*w) != min);
            let now = min.map_or(0, |(time, _)| time);
            // None to four follow; never so few that all is over early.
            while add(&mut events, &mut waiting, now) % 5 < if step < 1_000 { 3 } else { 1 } {}
            while waiting.len() > 200 {
                let min = waiting.iter().copied().min();
                let got = events.pop(Instant(u64::MAX));
                assert_eq!(got, min.map(|(time, i)| (Instant(time), Target::App(i))));
                waiting.retain(|w| Some(*w) != min);
            }
        }
    }

    #[test]
    fn nothing_behind_the_end_is_handed_out() {
        let mut events = Events::default();
        events.push(Instant(10), Target::Bin);
        assert_eq!(events.pop(Instant(9)), None);
        assert!(events.pop(Instant(10)).is_some());
    }
}
