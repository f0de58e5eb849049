//! What happens next.
//!
//! signal: (time, who) · model: a heap of four children per node, ordered by time and then by order of insertion, so
//! that a run is the same on every machine · action: [`Events::pop`].
//!
//! Few entries are alive at a time: packets on a link wait in the link's own queue, of which only the head is here;
//! an endpoint has one entry for its nearest deadline. A deadline that moved away leaves its entry behind: it fires,
//! finds nothing due, and is set again (spurious wake-ups are harmless).

use units::Instant;

/// Who is woken.
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
    /// An application's timer.
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

/// Time, then order of insertion; the target rides along. One number compares in one step.
#[derive(Clone, Copy)]
struct Entry {
    time: u64,
    order: u64,
    target: Target,
}

impl Entry {
    #[inline]
    fn before(&self, other: &Entry) -> bool {
        (self.time, self.order) < (other.time, other.order)
    }
}

/// The pending events.
#[derive(Default)]
pub struct Events {
    heap: Vec<Entry>,
    order: u64,
    /// Events handed out so far.
    pub fired: u64,
}

/// Children per node: a line of cache holds them.
const ARITY: usize = 4;

impl Events {
    /// Wakes `target` at `time`.
    #[inline]
    pub fn push(&mut self, time: Instant, target: Target) {
        let entry = Entry { time: time.0, order: self.order, target };
        self.order += 1;
        let mut at = self.heap.len();
        self.heap.push(entry);
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !entry.before(&self.heap[parent]) {
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
        let first = *self.heap.first()?;
        if first.time > end.0 {
            return None;
        }
        let last = self.heap.pop()?;
        if !self.heap.is_empty() {
            self.sink(last);
        }
        self.fired += 1;
        Some((Instant(first.time), first.target))
    }

    #[inline]
    fn sink(&mut self, entry: Entry) {
        let len = self.heap.len();
        let mut at = 0;
        loop {
            let first = at * ARITY + 1;
            if first >= len {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + ARITY).min(len) {
                if self.heap[child].before(&self.heap[least]) {
                    least = child;
                }
            }
            if !self.heap[least].before(&entry) {
                break;
            }
            self.heap[at] = self.heap[least];
            at = least;
        }
        self.heap[at] = entry;
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
    fn nothing_behind_the_end_is_handed_out() {
        let mut events = Events::default();
        events.push(Instant(10), Target::Bin);
        assert_eq!(events.pop(Instant(9)), None);
        assert!(events.pop(Instant(10)).is_some());
    }
}
