//! Links: when a packet has left, and when (or whether) it arrives.
//!
//! signal: the packet at the head of the queue, and the backlog · model: a *medium* decides when a packet
//! leaves ([`TABLE`]); then comes a delay, then *layers*, each of which delays or loses packets
//! ([`layer::TABLE`]) · action: [`Link::offer`] starts the packet or returns when to call again.
//!
//! Packets arrive in the order in which they left, unless a layer reorders them.

use alloc::vec::Vec;

use units::{Bytes, Duration, Instant, Rate};

use crate::Rng;

mod chain;
pub mod fixed;
pub mod grants;
pub mod layer;
pub mod markov;
pub mod parse;
pub mod rates;
mod service;
pub mod trace;

use layer::{Layer, LayerControl};

/// The circumstances of one link.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The trace of the scenario, already read: mahimahi's delivery opportunities in milliseconds.
    pub opportunities: Vec<u64>,
    /// The rate-over-time file of the scenario, already read.
    pub rates: Vec<(Instant, Rate)>,
}

/// The packet at the head of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Length on the IP layer.
    pub bytes: Bytes,
    /// Bytes in the buffer right above the link, including this packet: the value of a buffer status
    /// report.
    pub backlog: Bytes,
}

/// A medium's answer to [`Medium::offer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// The packet is sent; its last bit leaves at this time. The medium is busy until then.
    Leaves(Instant),
    /// The packet cannot be sent now: call again at this time.
    WaitUntil(Instant),
}

/// A link's answer to [`Link::offer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// The packet is sent.
    Start {
        /// When the link is free for the next one.
        leaves: Instant,
        /// When it arrives; `None`: it is lost.
        arrives: Option<Instant>,
    },
    /// The packet cannot be sent now: call again at this time.
    WaitUntil(Instant),
}

/// Grants of a scheduled uplink since the last call, as a modem could report them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Grants {
    /// Bytes granted by the base station.
    pub granted: Bytes,
    /// Bytes of them that carried padding.
    pub padding: Bytes,
    /// Bytes in the buffer that are in no block yet, now: what a buffer status report counts. `None`: the medium
    /// sends whole packets, and the buffer contains what has not left.
    pub waiting: Option<Bytes>,
}

/// What charts and snapshots show of a link.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct State {
    /// Current sending rate, if the medium has one.
    pub rate: Option<Rate>,
    /// Number of its state (of a Markov chain, of a radio resource control machine).
    pub state: Option<u32>,
}

/// The contract of a medium.
pub trait Medium {
    /// Offers the head of the queue. Called only after the previous packet has left.
    fn offer(&mut self, now: Instant, head: &Head, rng: &mut Rng) -> Slot;
    /// The buffer above the link changed (scheduled links use it in buffer status reports).
    fn on_backlog(&mut self, now: Instant, backlog: Bytes);
    /// Grants since the last call; media without a scheduler return the bytes sent.
    fn take_grants(&mut self, now: Instant) -> Grants;
    /// The state that charts and snapshots show.
    fn state(&self, now: Instant) -> State;
}

family! {
    /// Any medium of the table.
    pub enum AnyMedium(Setup): Medium {
        fixed::Fixed,
        trace::Trace,
        rates::Rates,
        markov::Markov,
        grants::Scheduled,
    }
    changes {
        offer(now: Instant, head: &Head, rng: &mut Rng) -> Slot;
        on_backlog(now: Instant, backlog: Bytes);
        take_grants(now: Instant) -> Grants;
    }
    asks {
        state(now: Instant) -> State;
    }
}

/// A link: a medium, a delay and layers.
#[derive(Clone, Debug)]
pub struct Link {
    /// Decides when a packet leaves.
    pub medium: AnyMedium,
    /// Propagation delay of the link.
    pub delay: Duration,
    /// Effects on packets under way, in this order.
    pub layers: Vec<Layer>,
    last_arrival: Instant,
}

impl Link {
    /// The state of an idle link.
    pub fn new(medium: AnyMedium, delay: Duration, layers: Vec<Layer>) -> Link {
        Link { medium, delay, layers, last_arrival: Instant::ZERO }
    }

    /// Offers the head of the queue; the answer is an [`Offer`].
    #[inline]
    pub fn offer(&mut self, now: Instant, head: &Head, rng: &mut Rng) -> Offer {
        for layer in &mut self.layers {
            if let Some(later) = layer.not_before(now, head)
                && later > now
            {
                return Offer::WaitUntil(later);
            }
        }
        let leaves = match self.medium.offer(now, head, rng) {
            Slot::Leaves(at) => at,
            Slot::WaitUntil(at) => return Offer::WaitUntil(at),
        };
        let mut transit =
            layer::Transit { leaves, arrives: leaves + self.delay, lost: false, reordered: false };
        for layer in &mut self.layers {
            layer.on_transit(&mut transit, head, rng);
        }
        if transit.lost {
            return Offer::Start { leaves: transit.leaves, arrives: None };
        }
        if !transit.reordered {
            transit.arrives = transit.arrives.max(self.last_arrival);
            self.last_arrival = transit.arrives;
        }
        Offer::Start { leaves: transit.leaves, arrives: Some(transit.arrives) }
    }
}
