//! What the agent adds to the law at the receiving host: the queue of uploads, room for growth, and
//! what the host's other connections know.
//!
//! signal: timestamps of the segments that arrive, RTT samples · model: [`super::path`] with one half,
//! since the host is the end of the path; [`super::opposite`] for the window beside an upload's queue;
//! the smallest RTT of all connections to one address, since a latecomer never sees the empty path ·
//! action: the window, in place of the law's own.
//!
//! Source: this project. `bpf/receive.bpf.c` of the agent computes the same bit for bit; a test
//! compares them.

use units::{Duration, Instant};

use super::decided::{Decided, MAX_RTT_US, MIN_RTT_US};
use super::fair::{Member, Share};
use super::opposite::{Opposite, growth_ends, growth_window};
use super::path::{Half, Places};

/// What a segment that has just arrived shows of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// Its sender, in [`Places`].
    pub address: u64,
    /// Its TSval; `None` without timestamps.
    pub stamp: Option<u32>,
    /// The RTT that its echo shows.
    pub rtt: Option<Duration>,
}

/// State of one connection beside that of its law.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receiving {
    half: Half,
    opposite: Opposite,
    /// A queue has stood since the connection began.
    grown: bool,
    target: Option<u64>,
    /// What is known of the host's other downloads, and its place among them.
    share: Option<Share>,
    member: Member,
}

/// The path of a connection that sends: a download that begins beside an upload could not know in which direction
/// the queue stands that it meets.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    half: Half,
    rtt_min_us: u64,
}

impl Default for Measured {
    fn default() -> Measured {
        Measured { half: Half::default(), rtt_min_us: MAX_RTT_US }
    }
}

impl Measured {
    /// Takes an acknowledgment that has arrived.
    pub fn on_arrival(&mut self, now: Instant, arrival: &Arrival, places: &mut Places) {
        (self.rtt_min_us, _) = measure(&mut self.half, now, arrival, self.rtt_min_us, 0, places);
    }
}

/// Splits the round trip's queueing into both directions. `own_us` is the smallest RTT of the connection so far,
/// `round_us` the RTT that counts without timestamps, 0 for none. The smallest RTT of all connections to the address,
/// and whether a round trip has ended.
fn measure(
    half: &mut Half,
    now: Instant,
    arrival: &Arrival,
    own_us: u64,
    round_us: u64,
    places: &mut Places,
) -> (u64, bool) {
    let sample = arrival.rtt.map(|rtt| (rtt.0 / 1_000).max(MIN_RTT_US));
    let own = own_us.min(sample.unwrap_or(u64::MAX));
    let rtt_min = places.minimum(arrival.address, own).max(MIN_RTT_US);
    let rtt_us = match arrival.stamp {
        Some(stamp) => {
            half.clock.tick(now, stamp);
            sample.unwrap_or(0)
        }
        None => round_us,
    };
    if rtt_us > 0 {
        let stamped = arrival.stamp.is_some();
        let known = places.of(arrival.address);
        half.rtt_min_us = rtt_min as u32;
        half.sample(now, rtt_us as u32, stamped, known.as_ref());
        // Loopback has no queue.
        if stamped && rtt_min > MIN_RTT_US {
            places.learn(arrival.address, half, now, true);
        }
    }
    half.received_ns = now.0;
    (rtt_min, rtt_us > 0)
}

impl Receiving {
    /// This host opens the connection, to this address.
    pub fn on_open(&mut self, now: Instant, address: u64, places: &Places) {
        self.member = places.shares[0].open(now, places.has_minimum(address));
    }

    /// Splits the round trip's queueing into both directions. The law gets the smallest RTT of all
    /// connections to this address. Without timestamps the RTT of its last round counts.
    pub fn on_arrival(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        law: &mut Decided,
        places: &mut Places,
    ) {
        let (rtt_min, sampled) =
            measure(&mut self.half, now, arrival, law.rtt_min_us, law.round_rtt_us, places);
        if sampled {
            self.opposite.sample(self.half.away_us.into());
        }
        law.rtt_min_us = rtt_min;
        if law.fair {
            self.share = places.shares[0].take(now, law, &mut self.member);
        }
    }

    /// The law has taken a sample; `ended`: with it a round has ended. `copied`: what the application
    /// has read.
    pub fn on_law(&mut self, law: &Decided, now: Instant, copied: u64, ended: bool) {
        if ended {
            self.opposite.end_round(law, now, copied, false);
        }
        if law.round_rtt_us == 0 {
            return;
        }
        self.grown |=
            growth_ends(law, self.member.alone) || self.share.is_some_and(|share| share.drains);
        let window = self.opposite.window_beside(law, self.share);
        self.target = Some(if self.grown { window } else { growth_window(window, law) });
    }

    /// The opposite direction's queue in the last round, µs.
    pub fn beside_us(&self) -> u32 {
        self.opposite.mean_us()
    }

    /// The window in place of the law's own; `None` before its first decision.
    pub fn target(&self) -> Option<u64> {
        self.target
    }
}
