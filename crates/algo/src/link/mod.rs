//! Links: when a packet has left, and when (or whether) it arrives.
//!
//! signal: the packet at the head of the queue, the backlog behind it · model: a *medium*, which decides when a packet
//! leaves ([`TABLE`]), then a delay, then *layers*, each of which delays or loses what passes ([`layer::TABLE`]) ·
//! action: [`Link::offer`] starts the packet or says when to ask again.
//!
//! Packets arrive in the order in which they left unless a layer says that it reorders.

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
    /// The trace that the scenario names, read beforehand: mahimahi's delivery opportunities in milliseconds.
    pub opportunities: Vec<u64>,
    /// The rate-over-time file that the scenario names, read beforehand.
    pub rates: Vec<(Instant, Rate)>,
}

/// The packet at the head of a queue, offered to the medium.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Length on the IP layer.
    pub bytes: Bytes,
    /// Waiting in the buffer right above the link, this packet included: what a buffer status report tells.
    pub backlog: Bytes,
}

/// What a medium answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// The packet is sent; its last bit leaves then. The medium is busy until then.
    Leaves(Instant),
    /// Nothing can be sent now: ask again then.
    WaitUntil(Instant),
}

/// What a link answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// The packet is sent.
    Start {
        /// When the link is free for the next one.
        leaves: Instant,
        /// When it arrives; `None`: it is lost.
        arrives: Option<Instant>,
    },
    /// Ask again then.
    WaitUntil(Instant),
}

/// What the modem could report of a scheduled uplink since it was last asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Grants {
    /// Granted bytes.
    pub granted: Bytes,
    /// Of them, not filled with data.
    pub padding: Bytes,
}

/// What charts and snapshots show of a link.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct State {
    /// Rate at which it sends now, where that can be said.
    pub rate: Option<Rate>,
    /// Its state by number (of a Markov chain, of a radio resource control machine).
    pub state: Option<u32>,
}

/// The contract of a medium.
pub trait Medium {
    /// The head of the queue wants to go. Called only when the previous packet has left.
    fn offer(&mut self, now: Instant, head: &Head, rng: &mut Rng) -> Slot;
    /// The buffer above the link changed (scheduled links learn of it by buffer status reports).
    fn on_backlog(&mut self, now: Instant, backlog: Bytes);
    /// Grants since the last call; media without a scheduler say what they sent.
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

/// A medium, a delay and layers; see the module text.
#[derive(Clone, Debug)]
pub struct Link {
    /// What decides when a packet leaves.
    pub medium: AnyMedium,
    /// Propagation.
    pub delay: Duration,
    /// What happens on the way, in this order.
    pub layers: Vec<Layer>,
    last_arrival: Instant,
}

impl Link {
    /// The state of an idle link.
    pub fn new(medium: AnyMedium, delay: Duration, layers: Vec<Layer>) -> Link {
        Link { medium, delay, layers, last_arrival: Instant::ZERO }
    }

    /// The head of the queue wants to go: see [`Offer`].
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
