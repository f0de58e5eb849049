//! Losses that come in bursts.
//!
//! signal: none · model: Gilbert's and Elliott's two states, each with its own loss probability. After
//! each packet the state may change; the bad state lasts 1 / `leave` packets on average · action: the
//! packet is lost, after it used the medium.
//!
//! Sources: Gilbert, "Capacity of a burst-noise channel", BSTJ 1960; Elliott, "Estimates of error rates
//! for codes on burst-noise channels", BSTJ 1963. No default is published: this one loses 1 % of the
//! packets, four in a row on average.

use super::{Head, LayerControl, Setup, Transit};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "burst_loss";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "losses in bursts: a good and a bad state, each with its own probability";
/// Where it is specified.
pub const SOURCE: &str = "Gilbert 1960; Elliott 1963; tc-netem(8), loss gemodel";

config! {
    /// Transitions and losses of the two states.
    pub struct Config {
        /// Probability after each packet that the good state ends (netem's p).
        enter: f64 = 0.0025, 0.0, 1.0;
        /// Probability after each packet that the bad state ends (netem's r).
        leave: f64 = 0.25, 0.0, 1.0;
        /// Probability of loss in the bad state (netem's 1-h).
        loss_bad: f64 = 1.0, 0.0, 1.0;
        /// Probability of loss in the good state (netem's 1-k).
        loss_good: f64 = 0.0, 0.0, 1.0;
    }
}

/// Gilbert and Elliott's two states for one link.
#[derive(Clone, Debug)]
pub struct BurstLoss {
    config: Config,
    bad: bool,
}

impl BurstLoss {
    /// A link in its good state.
    pub fn new(config: Config, _setup: &Setup) -> BurstLoss {
        BurstLoss { config, bad: false }
    }
}

impl LayerControl for BurstLoss {
    fn on_transit(&mut self, transit: &mut Transit, _head: &Head, rng: &mut Rng) {
        let c = &self.config;
        let (loss, change) = if self.bad { (c.loss_bad, c.leave) } else { (c.loss_good, c.enter) };
        transit.lost |= rng.chance(loss);
        self.bad ^= rng.chance(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;
    use units::{Bytes, Instant};

    fn lost(config: Config, count: usize) -> Vec<bool> {
        let mut layer = BurstLoss::new(config, &Setup::default());
        let mut rng = Rng::new(5, "test");
        let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
        (0..count)
            .map(|_| {
                let now = Instant::ZERO;
                let mut transit =
                    Transit { leaves: now, arrives: now, lost: false, reordered: false };
                layer.on_transit(&mut transit, &head, &mut rng);
                transit.lost
            })
            .collect()
    }

    // The stationary share of the bad state of a two-state chain is enter / (enter + leave).
    #[test]
    fn the_share_of_losses_and_the_mean_length_of_a_burst_are_the_chain_s() {
        let packets = lost(Config { enter: 0.02, leave: 0.25, ..Config::default() }, 200_000);
        let share = packets.iter().filter(|lost| **lost).count() as f64 / packets.len() as f64;
        assert!((share - 0.02 / 0.27).abs() < 0.004, "{share}");
        let bursts = packets.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let length = share * packets.len() as f64 / bursts;
        assert!((length - 4.0).abs() < 0.2, "{length}");
    }

    #[test]
    fn a_good_spell_that_loses_too_does_so_alike_everywhere() {
        let config = Config { enter: 0.0, loss_good: 0.1, ..Config::default() };
        let share = lost(config, 20_000).iter().filter(|lost| **lost).count() as f64 / 20_000.0;
        assert!((share - 0.1).abs() < 0.01, "{share}");
    }
}
