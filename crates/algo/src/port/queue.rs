//! The queue of a port, or one queue for each user.
//!
//! signal: packets, the link's request for one · model: a discipline of [`crate::aqm`], either shared, or
//! one for each user, served by deficit round robin as in base stations · action: the next packet.

use alloc::boxed::Box;
use alloc::vec::Vec;

use units::{Bytes, Instant};

use crate::aqm::{Aqm, Dropped, QueueDiscipline};
use crate::{Capacity, Packet, Rng};

/// The queue or queues in front of a link.
// The large variant is the usual one; a box would cost it a pointer to follow for every packet.
#[allow(clippy::large_enum_variant)]
pub enum Queue {
    /// One queue for all users.
    Shared(Aqm),
    /// One queue for each user, served by deficit round robin.
    PerUser {
        /// The queue that a new user starts with.
        fresh: Box<Aqm>,
        /// Queue and deficit by user.
        users: Vec<(u16, Aqm, i64)>,
        /// Index of the user to serve.
        turn: usize,
    },
}

/// Bytes that one user may send before the next one's turn: a full packet, as in deficit round robin.
const QUANTUM: i64 = 1_514;
/// Largest packet of IPv4 (RFC 791 section 3.1).
const MAX_PACKET: u32 = 65_535;

impl Queue {
    /// Takes an arriving packet.
    #[inline]
    pub fn enqueue(&mut self, now: Instant, packet: Packet, dropped: &mut Dropped, rng: &mut Rng) {
        match self {
            Queue::Shared(queue) => queue.enqueue(now, packet, dropped, rng),
            Queue::PerUser { fresh, users, .. } => {
                let at =
                    users.iter().position(|(user, ..)| *user == packet.host).unwrap_or_else(|| {
                        users.push((packet.host, (**fresh).clone(), QUANTUM));
                        users.len() - 1
                    });
                users[at].1.enqueue(now, packet, dropped, rng);
            }
        }
    }

    /// The next packet, if one may leave.
    #[inline]
    pub fn dequeue(
        &mut self,
        now: Instant,
        dropped: &mut Dropped,
        rng: &mut Rng,
    ) -> Option<Packet> {
        match self {
            Queue::Shared(queue) => queue.dequeue(now, dropped, rng),
            Queue::PerUser { users, turn, .. } => {
                // Two rounds: one with the remaining deficits, one with new ones.
                for _ in 0..2 * users.len() {
                    let at = *turn % users.len();
                    let (_, queue, deficit) = &mut users[at];
                    if !queue.is_empty() && *deficit > 0 {
                        if let Some(packet) = queue.dequeue(now, dropped, rng) {
                            *deficit -= i64::from(packet.bytes);
                            return Some(packet);
                        }
                    } else if *deficit <= 0 {
                        *deficit += QUANTUM;
                    }
                    *turn = (at + 1) % users.len();
                }
                None
            }
        }
    }

    /// Packets in the queue.
    pub fn len(&self) -> usize {
        match self {
            Queue::Shared(queue) => queue.len(),
            Queue::PerUser { users, .. } => users.iter().map(|(_, q, _)| q.len()).sum(),
        }
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in the queue.
    pub fn backlog(&self) -> Bytes {
        match self {
            Queue::Shared(queue) => queue.backlog(),
            Queue::PerUser { users, .. } => {
                users.iter().fold(Bytes::ZERO, |sum, (_, q, _)| sum + q.backlog())
            }
        }
    }

    /// Whether the empty queue returns every packet of any size unchanged and counts nothing: a packet
    /// may then bypass it.
    pub(super) fn is_transparent(&self) -> bool {
        let Queue::Shared(Aqm::Droptail(queue)) = self else { return false };
        queue.fits_alone(MAX_PACKET)
    }

    /// Sets the limit of a droptail queue, or of all users' queues; other disciplines keep theirs.
    pub(super) fn set_limit(&mut self, limit: Capacity) {
        let set = |queue: &mut Aqm| {
            if let Aqm::Droptail(queue) = queue {
                queue.set_limit(limit);
            }
        };
        match self {
            Queue::Shared(queue) => set(queue),
            Queue::PerUser { fresh, users, .. } => {
                set(fresh);
                users.iter_mut().for_each(|(_, queue, _)| set(queue));
            }
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Queue::Shared(queue) => queue.next_wakeup(),
            Queue::PerUser { users, .. } => {
                users.iter().filter_map(|(_, q, _)| q.next_wakeup()).min()
            }
        }
    }
}
