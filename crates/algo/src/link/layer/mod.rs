//! Layers of a link: effects on a packet that the medium has sent.
//!
//! signal: when the packet left and would arrive · model: one file per effect · action: it arrives later,
//! is lost, or may not start before some time.

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
    /// Propagation delay of the link, for the round trips of link-layer retransmissions.
    pub delay: Duration,
}

/// A packet under way on the link.
#[derive(Clone, Copy, Debug)]
pub struct Transit {
    /// When its last bit leaves; a layer that uses airtime moves it.
    pub leaves: Instant,
    /// Time at which it arrives.
    pub arrives: Instant,
    /// The packet is lost.
    pub lost: bool,
    /// It may overtake other packets, or they may overtake it.
    pub reordered: bool,
}

/// The contract of a layer.
pub trait LayerControl {
    /// The earliest time at which the medium may have the head; `None`: any.
    fn not_before(&mut self, _now: Instant, _head: &Head) -> Option<Instant> {
        None
    }
    /// The medium has sent a packet; the layer may change its transit.
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
