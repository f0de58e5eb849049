//! Strict priority bands.
//!
//! signal: [`Packet::class`] · model: one drop-tail queue (band) per class, each with its own limit ·
//! action: serve the lowest band with a packet; a full band drops only its own arrivals. Source: Linux
//! `sch_prio.c`. An urgent band can starve the others; comparisons include it for that reason (ACKs and
//! interactive traffic before an upload).

use alloc::vec::Vec;

use units::{Bytes, Instant};

use super::fifo::Fifo;
use super::{Drop, Dropped, QueueDiscipline, Setup, State};
use crate::{Capacity, Packet, Rng};

/// Name in the table.
pub const NAME: &str = "prio";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "strict priority bands by class, each a drop-tail queue";
/// Where it is specified.
pub const SOURCE: &str = "Linux sch_prio.c";

config! {
    /// The number of bands, and their limits.
    pub struct Config {
        /// Bands; a class beyond the last one goes into the last. 3 is the default of Linux's `prio`.
        bands: u64 = 3, 1, 16;
        /// Packets or bytes that fit each band. 1,000 packets is Linux's default `txqueuelen`.
        limit: Capacity = Capacity::Packets(1_000), Capacity::Packets(1), Capacity::Packets(1 << 40);
        /// Packets that fit single bands, instead of `limit`, from band 0 on.
        limits: Vec<f64> = Vec::new();
    }
}

/// The bands of one queue.
#[derive(Clone, Debug)]
pub struct Prio {
    bands: Vec<(Fifo, Capacity)>,
    packets: usize,
    bytes: u64,
}

impl Prio {
    /// A set of empty bands.
    pub fn new(config: Config, _setup: &Setup) -> Prio {
        // At least one band, at most one for each class.
        let count = config.bands.clamp(1, 256) as usize;
        let limit = |band: usize| match config.limits.get(band) {
            Some(packets) => Capacity::Packets(packets.max(1.0) as u64),
            None => config.limit,
        };
        Prio {
            bands: (0..count).map(|b| (Fifo::default(), limit(b))).collect(),
            packets: 0,
            bytes: 0,
        }
    }
}

impl QueueDiscipline for Prio {
    fn enqueue(&mut self, now: Instant, mut packet: Packet, dropped: &mut Dropped, _rng: &mut Rng) {
        packet.enqueued = now;
        let last = self.bands.len() - 1;
        let (queue, limit) = &mut self.bands[usize::from(packet.class).min(last)];
        if queue.has_space(&packet, *limit) {
            queue.push(packet);
            self.packets += 1;
            self.bytes += u64::from(packet.bytes);
        } else {
            dropped.push((packet, Drop::Overflow));
        }
    }

    fn dequeue(&mut self, _now: Instant, _dropped: &mut Dropped, _rng: &mut Rng) -> Option<Packet> {
        let packet = self.bands.iter_mut().find_map(|(queue, _)| queue.pop())?;
        self.packets -= 1;
        self.bytes -= u64::from(packet.bytes);
        Some(packet)
    }

    fn len(&self) -> usize {
        self.packets
    }

    fn backlog(&self) -> Bytes {
        Bytes(self.bytes)
    }

    fn state(&self) -> State {
        State { packets: self.packets as u64, bytes: Bytes(self.bytes), ..State::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(queue: &mut Prio, classes: &[u8]) -> Dropped {
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        for (i, &class) in classes.iter().enumerate() {
            let packet = Packet { handle: i as u32, bytes: 100, class, ..Packet::default() };
            queue.enqueue(Instant::ZERO, packet, &mut dropped, &mut rng);
        }
        dropped
    }

    #[test]
    fn the_most_urgent_band_leaves_first_and_an_unknown_class_last() {
        let mut queue = Prio::new(Config::default(), &Setup::default());
        offer(&mut queue, &[2, 7, 0, 1, 0]);
        let (mut dropped, mut rng) = (Dropped::new(), Rng::new(1, "test"));
        let order: Vec<u32> =
            core::iter::from_fn(|| queue.dequeue(Instant::ZERO, &mut dropped, &mut rng))
                .map(|p| p.handle)
                .collect();
        assert_eq!(order, [2, 4, 3, 0, 1]);
    }

    #[test]
    fn a_full_band_drops_its_own_arrivals_and_no_others() {
        let config = Config { limits: alloc::vec![1.0, 2.0], ..Config::default() };
        let mut queue = Prio::new(config, &Setup::default());
        let dropped = offer(&mut queue, &[0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(dropped.iter().map(|(p, _)| p.handle).collect::<Vec<_>>(), [1, 4]);
    }
}
