//! First in, first out; what does not fit is dropped.
//!
//! signal: occupancy · model: a capacity in packets or bytes · action: the arriving packet is dropped when it would
//! not fit. The deep buffers of base stations and modems that this project is about are of this kind.

use alloc::collections::VecDeque;

use units::{Bytes, Instant};

use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Capacity, Packet, Rng};

/// Name in the table.
pub const NAME: &str = "droptail";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "first in, first out, dropped when full";
/// Where it is specified.
pub const SOURCE: &str = "Linux sch_fifo.c";

config! {
    /// Its size.
    pub struct Config {
        /// Packets or bytes it holds. 1,000 packets is Linux's default `txqueuelen`.
        limit: Capacity = Capacity::Packets(1_000), Capacity::Packets(1), Capacity::Packets(1 << 40);
    }
}

/// A queue that drops arrivals when full.
#[derive(Clone, Debug)]
pub struct Droptail {
    limit: Capacity,
    queue: VecDeque<Packet>,
    bytes: u64,
}

impl Droptail {
    /// A new, empty queue.
    pub fn new(config: Config, _setup: &Setup) -> Droptail {
        Droptail { limit: config.limit, queue: VecDeque::new(), bytes: 0 }
    }
}

impl QueueDiscipline for Droptail {
    fn enqueue(&mut self, now: Instant, mut packet: Packet, dropped: &mut Dropped, _rng: &mut Rng) {
        packet.enqueued = now;
        let fits = match self.limit {
            Capacity::Packets(n) => (self.queue.len() as u64) < n,
            Capacity::Bytes(b) => self.bytes + u64::from(packet.bytes) <= b.0,
        };
        if fits {
            self.bytes += u64::from(packet.bytes);
            self.queue.push_back(packet);
        } else {
            dropped.push((packet, Drop::Overflow));
        }
    }

    fn dequeue(&mut self, _now: Instant, _dropped: &mut Dropped, _rng: &mut Rng) -> Option<Packet> {
        let packet = self.queue.pop_front()?;
        self.bytes -= u64::from(packet.bytes);
        Some(packet)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn backlog(&self) -> Bytes {
        Bytes(self.bytes)
    }

    fn state(&self) -> State {
        State { packets: self.queue.len() as u64, bytes: Bytes(self.bytes), ..State::default() }
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
        let first = queue.dequeue(Instant(9), &mut dropped, &mut rng).expect("two are held");
        assert_eq!((first.handle, first.enqueued, queue.backlog()), (0, Instant(0), Bytes(1_500)));
    }
}
