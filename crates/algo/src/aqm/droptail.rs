//! First in, first out; an arriving packet that does not fit is dropped.
//!
//! signal: queue length · model: a capacity in packets or bytes · action: drop the arriving packet if it
//! does not fit. Source: Linux `sch_fifo.c`. The deep buffers of base stations and modems behind
//! bufferbloat are of this kind.

use units::{Bytes, Instant};

use super::fifo::Fifo;
use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Capacity, Packet, Rng};

/// Name in the table.
pub const NAME: &str = "droptail";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "first in, first out, dropped when full";
/// Where it is specified.
pub const SOURCE: &str = "Linux sch_fifo.c";

config! {
    /// The capacity of the queue.
    pub struct Config {
        /// Packets or bytes that fit the queue. 1,000 packets is Linux's default `txqueuelen`.
        limit: Capacity = Capacity::Packets(1_000), Capacity::Packets(1), Capacity::Packets(1 << 40);
    }
}

/// A queue that drops arrivals when full.
#[derive(Clone, Debug)]
pub struct Droptail {
    limit: Capacity,
    queue: Fifo,
}

impl Droptail {
    /// A new, empty queue.
    pub fn new(config: Config, _setup: &Setup) -> Droptail {
        Droptail { limit: config.limit, queue: Fifo::default() }
    }

    /// Sets another limit. What is in the queue stays there, also if it is more than the new limit;
    /// arriving packets are dropped until there is space again.
    pub fn set_limit(&mut self, limit: Capacity) {
        self.limit = limit;
    }

    /// Whether a packet of so many bytes fits into the empty queue.
    pub fn fits_alone(&self, bytes: u32) -> bool {
        Fifo::default().has_space(&Packet { bytes, ..Packet::default() }, self.limit)
    }
}

impl QueueDiscipline for Droptail {
    fn enqueue(&mut self, now: Instant, mut packet: Packet, dropped: &mut Dropped, _rng: &mut Rng) {
        packet.enqueued = now;
        if self.queue.has_space(&packet, self.limit) {
            self.queue.push(packet);
        } else {
            dropped.push((packet, Drop::Overflow));
        }
    }

    fn dequeue(&mut self, _now: Instant, _dropped: &mut Dropped, _rng: &mut Rng) -> Option<Packet> {
        self.queue.pop()
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn backlog(&self) -> Bytes {
        self.queue.bytes()
    }

    fn state(&self) -> State {
        State { packets: self.queue.len() as u64, bytes: self.queue.bytes(), ..State::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_that_does_not_fit_is_dropped_and_the_others_leave_in_order() {
        let mut queue =
            Droptail::new(Config { limit: Capacity::Bytes(Bytes(3_000)) }, &Setup::default());
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        for handle in 0..3 {
            let packet = Packet { handle, bytes: 1_500, ..Packet::default() };
            queue.enqueue(Instant(u64::from(handle)), packet, &mut dropped, &mut rng);
        }
        assert_eq!(dropped.iter().map(|(p, _)| p.handle).collect::<alloc::vec::Vec<_>>(), [2]);
        let first = queue.dequeue(Instant(9), &mut dropped, &mut rng).expect("two are queued");
        assert_eq!((first.handle, first.enqueued, queue.backlog()), (0, Instant(0), Bytes(1_500)));
    }

    /// Offers packets of 1,500 bytes; the handles of those that were dropped.
    fn offer(queue: &mut Droptail, handles: core::ops::Range<u32>) -> alloc::vec::Vec<u32> {
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        for handle in handles {
            let packet = Packet { handle, bytes: 1_500, ..Packet::default() };
            queue.enqueue(Instant(0), packet, &mut dropped, &mut rng);
        }
        dropped.iter().map(|(packet, _)| packet.handle).collect()
    }

    fn next(queue: &mut Droptail) -> Option<u32> {
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        let packet = queue.dequeue(Instant(1), &mut dropped, &mut rng);
        assert!(dropped.is_empty());
        packet.map(|packet| packet.handle)
    }

    #[test]
    fn a_smaller_limit_drops_no_packet_that_is_queued_and_every_arrival_until_there_is_space() {
        for limit in [Capacity::Bytes(Bytes(3_000)), Capacity::Packets(2)] {
            let mut queue = Droptail::new(Config::default(), &Setup::default());
            assert_eq!(offer(&mut queue, 0..4), []);
            queue.set_limit(limit);
            assert_eq!((queue.len(), queue.backlog()), (4, Bytes(6_000)));
            // Four are queued where two fit: the third to leave makes space for one.
            let mut left = alloc::vec::Vec::new();
            for handle in 4..7 {
                assert_eq!(offer(&mut queue, handle..handle + 1), [handle], "{limit:?}");
                left.extend((handle < 6).then(|| next(&mut queue)).flatten());
            }
            left.extend(next(&mut queue));
            assert_eq!(offer(&mut queue, 7..9), [8], "{limit:?}");
            left.extend(core::iter::from_fn(|| next(&mut queue)));
            assert_eq!(left, [0, 1, 2, 3, 7], "{limit:?}");
        }
    }

    #[test]
    fn a_larger_limit_has_space_at_once() {
        let config = Config { limit: Capacity::Packets(1) };
        let mut queue = Droptail::new(config, &Setup::default());
        assert_eq!(offer(&mut queue, 0..2), [1]);
        queue.set_limit(Capacity::Packets(3));
        assert_eq!(offer(&mut queue, 2..5), [4]);
        let left: alloc::vec::Vec<u32> = core::iter::from_fn(|| next(&mut queue)).collect();
        assert_eq!(left, [0, 2, 3]);
    }

    #[test]
    fn a_packet_fits_alone_by_the_limit_whatever_is_queued() {
        let config = Config { limit: Capacity::Bytes(Bytes(3_000)) };
        let mut queue = Droptail::new(config, &Setup::default());
        assert_eq!(offer(&mut queue, 0..2), []);
        assert_eq!([3_000, 3_001].map(|bytes| queue.fits_alone(bytes)), [true, false]);
        queue.set_limit(Capacity::Packets(1));
        assert!(queue.fits_alone(3_001));
    }
}
