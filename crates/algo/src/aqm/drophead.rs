//! First in, first out; a full queue drops its oldest packets.
//!
//! signal: queue length · model: a capacity in packets or bytes · action: drop packets at the head until
//! the arriving one fits. The sender detects the loss a whole queue earlier than with a drop at the tail.
//!
//! Sources: Lakshman, Neidhardt, Ott: "The drop from front strategy in TCP and in TCP over ATM", 1996;
//! Linux's `pfifo_head_drop`. Deviation: a limit in bytes is possible; a packet larger than the limit is
//! dropped itself.

use units::{Bytes, Instant};

use super::fifo::Fifo;
use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Capacity, Packet, Rng};

/// Name in the table.
pub const NAME: &str = "drophead";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "first in, first out, the oldest dropped when full";
/// Where it is specified.
pub const SOURCE: &str = "Linux sch_fifo.c (pfifo_head_drop)";

config! {
    /// The capacity of the queue.
    pub struct Config {
        /// Packets or bytes that fit the queue. 1,000 packets is Linux's default `txqueuelen`.
        limit: Capacity = Capacity::Packets(1_000), Capacity::Packets(1), Capacity::Packets(1 << 40);
    }
}

/// A queue that drops its oldest packets when full.
#[derive(Clone, Debug)]
pub struct Drophead {
    limit: Capacity,
    queue: Fifo,
}

impl Drophead {
    /// A new, empty queue.
    pub fn new(config: Config, _setup: &Setup) -> Drophead {
        Drophead { limit: config.limit, queue: Fifo::default() }
    }
}

impl QueueDiscipline for Drophead {
    fn enqueue(&mut self, now: Instant, mut packet: Packet, dropped: &mut Dropped, _rng: &mut Rng) {
        packet.enqueued = now;
        while !self.queue.has_space(&packet, self.limit) {
            match self.queue.pop() {
                Some(oldest) => dropped.push((oldest, Drop::Overflow)),
                None => {
                    dropped.push((packet, Drop::Overflow));
                    return;
                }
            }
        }
        self.queue.push(packet);
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
    use alloc::vec::Vec;

    #[test]
    fn the_oldest_packets_are_dropped_for_the_arriving_one() {
        let mut queue =
            Drophead::new(Config { limit: Capacity::Bytes(Bytes(3_000)) }, &Setup::default());
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        for (handle, bytes) in [(0, 1_000), (1, 1_000), (2, 1_000), (3, 1_500), (4, 4_000)] {
            queue.enqueue(
                Instant::ZERO,
                Packet { handle, bytes, ..Packet::default() },
                &mut dropped,
                &mut rng,
            );
        }
        // 3 needs the space of 0 and 1; 4 never fits, although all packets before it are dropped.
        assert_eq!(dropped.iter().map(|(p, _)| p.handle).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!((queue.len(), queue.backlog()), (0, Bytes(0)));
    }
}
