//! The largest window that the sender can have known, in captures beside the receiver without timestamps.
//!
//! signal: the right edges of ACKs with the times at which they passed, and new data · model: an ACK needs the smallest
//! RTT of the path until data sent with it comes back. So the sender knew at most the edge of the newest ACK that passed
//! an RTT before. Data beyond that edge shows that the RTT is shorter: the first ACK that permits the data had reached the
//! sender (the second estimator of the DRWA paper). Where that contradicts the RTT measured otherwise, as after a host
//! that answered the handshake late, no RTT is assumed at all: the sender may know every ACK that has passed · action: the window is
//! full where even this largest edge leaves no room. That is a lower bound of the time: behind a queue the edge that the
//! sender knew is older.

use std::collections::VecDeque;

use units::{Duration, Instant};

use crate::identity::sequence::Pos;

/// ACKs that raised the right edge and may still be unknown to the sender: four seconds of them at one per millisecond.
const MAX_EDGES: usize = 4096;

/// Right edges on their way to the sender.
#[derive(Debug, Default)]
pub struct WindowBound {
    edges: VecDeque<(Instant, Pos)>,
    /// The smallest RTT that data showed from above.
    shown: Option<Duration>,
}

impl WindowBound {
    /// An ACK raised the right edge to `edge`.
    pub fn raised(&mut self, now: Instant, edge: Pos) {
        if self.edges.len() >= MAX_EDGES
            && let Some((permitted, _)) = self.edges.pop_front()
            && let Some(oldest) = self.edges.front_mut()
        {
            // As if it had passed earlier: the RTT that it shows is longer, and less time counts as full.
            oldest.0 = permitted;
        }
        self.edges.push_back((now, edge));
    }

    /// New data up to `end` passes. `path` is the smallest RTT measured otherwise. Returns the largest right edge that the
    /// sender can have known, if that is known.
    pub fn known_at_most(&mut self, end: Pos, now: Instant, path: Option<Duration>) -> Option<Pos> {
        while self.edges.front().is_some_and(|(_, edge)| *edge < end) {
            self.edges.pop_front();
        }
        let (permitted, _) = *self.edges.front()?;
        let shown = self.shown.unwrap_or(Duration(u64::MAX)).min(now.since(permitted));
        self.shown = Some(shown);
        let rtt = match path {
            Some(path) if shown * 5 >= path * 4 => path.min(shown),
            _ => Duration::ZERO,
        };
        let known = self.edges.partition_point(|(at, _)| *at + rtt <= now);
        self.edges.get(known.checked_sub(1)?).map(|(_, edge)| *edge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Option<Duration> = Some(Duration::from_millis(40));

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    #[test]
    fn the_sender_knows_nothing_that_passed_less_than_a_round_trip_ago() {
        let mut w = WindowBound::default();
        w.raised(ms(0), 4_000);
        w.raised(ms(10), 5_000);
        w.raised(ms(30), 6_000);
        assert_eq!(w.known_at_most(3_000, ms(45), PATH), Some(4_000));
        assert_eq!(w.known_at_most(3_500, ms(50), PATH), Some(5_000));
        assert_eq!(w.known_at_most(5_500, ms(70), PATH), Some(6_000));
    }

    #[test]
    fn a_round_trip_a_little_shorter_than_measured_is_taken_from_the_data() {
        let mut w = WindowBound::default();
        w.raised(ms(0), 4_000);
        w.raised(ms(3), 5_000);
        assert_eq!(w.known_at_most(4_500, ms(38), PATH), Some(5_000), "35 ms");
        w.raised(ms(5), 6_000);
        assert_eq!(w.known_at_most(4_600, ms(39), PATH), Some(5_000));
        assert_eq!(w.known_at_most(4_700, ms(40), PATH), Some(6_000));
    }

    #[test]
    fn where_data_contradicts_the_measured_round_trip_every_ack_may_be_known() {
        let mut w = WindowBound::default();
        w.raised(ms(0), 4_000);
        w.raised(ms(10), 5_000);
        w.raised(ms(11), 6_000);
        assert_eq!(w.known_at_most(4_500, ms(12), PATH), Some(6_000), "2 ms");
        w.raised(ms(90), 7_000);
        assert_eq!(w.known_at_most(5_900, ms(90), PATH), Some(7_000), "from then on");
        assert_eq!(WindowBound::default().known_at_most(1, ms(1), None), None);
    }

    #[test]
    fn beyond_the_maximum_the_oldest_edges_are_dropped() {
        let mut w = WindowBound::default();
        for n in 0..=MAX_EDGES as u64 {
            w.raised(ms(n), 1_000 + n as Pos);
        }
        assert_eq!(w.edges.len(), MAX_EDGES);
        assert_eq!(w.edges.front(), Some(&(ms(0), 1_001)), "with the time of the older one");
    }
}
