//! Layers of a link: what happens to a packet that the medium has sent.
//!
//! signal: when it left and would arrive · model: one file per effect · action: later, lost, or not before.

use units::{Duration, Instant};

use super::Head;
use crate::Rng;

pub mod arq;
pub mod burst_loss;
pub mod jitter;
pub mod loss;
pub mod outage;
pub mod promotion;

/// The circumstances of a layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Propagation delay of the link: link-layer retransmissions take round trips of it.
    pub delay: Duration,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub struct Transit {
    /// When its last bit leaves; a layer that uses up sending time moves it.
    pub leaves: Instant,
    /// When it arrives.
    pub arrives: Instant,
    /// It does not arrive.
    pub lost: bool,
    /// It may overtake, or be overtaken by, others.
    pub reordered: bool,
}

/// The contract of a layer.
pub trait LayerControl {
    /// The earliest time at which the head may be given to the medium; `None`: any.
    fn not_before(&mut self, _now: Instant, _head: &Head) -> Option<Instant> {
        None
    }
    /// A packet has been sent.
    fn on_transit(&mut self, transit: &mut Transit, head: &Head, rng: &mut Rng);
}

family! {
    /// Any layer of the table.
    pub enum Layer(Setup): LayerControl {
        loss::Loss,
        burst_loss::BurstLoss,
        jitter::Jitter,
        arq::Arq,
        promotion::Promotion,
        outage::Outage,
    }
    changes {
        not_before(now: Instant, head: &Head) -> Option<Instant>;
        on_transit(transit: &mut Transit, head: &Head, rng: &mut Rng);
    }
    asks {}
}
