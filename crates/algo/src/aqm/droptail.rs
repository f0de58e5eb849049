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
}
