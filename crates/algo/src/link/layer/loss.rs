//! Random loss, independent for each packet.
//!
//! signal: none · model: a probability (Bernoulli) · action: the packet is lost, after it used the medium.
//! Source: tc-netem(8).

use super::{Head, LayerControl, Setup, Transit};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "loss";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "each packet is lost with the same probability";
/// Where it is specified.
pub const SOURCE: &str = "tc-netem(8), loss random";

config! {
    /// The probability of a loss.
    pub struct Config {
        /// Probability that a packet is lost.
        rate: f64 = 0.01, 0.0, 1.0;
    }
}

/// Independent random loss on one link.
#[derive(Clone, Debug)]
pub struct Loss {
    rate: f64,
}

impl Loss {
    /// The random loss of one link.
    pub fn new(config: Config, _setup: &Setup) -> Loss {
        Loss { rate: config.rate }
    }
}

impl LayerControl for Loss {
    fn on_transit(&mut self, transit: &mut Transit, _head: &Head, rng: &mut Rng) {
        transit.lost |= rng.chance(self.rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Bytes, Instant};

    #[test]
    fn the_share_of_lost_packets_is_the_probability() {
        let mut layer = Loss::new(Config { rate: 0.1 }, &Setup::default());
        let mut rng = Rng::new(1, "test");
        let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
        let lost = (0..10_000)
            .filter(|_| {
                let now = Instant::ZERO;
                let mut transit =
                    Transit { leaves: now, arrives: now, lost: false, reordered: false };
                layer.on_transit(&mut transit, &head, &mut rng);
                transit.lost
            })
            .count();
        // four standard deviations of a binomial distribution
        assert!((880..=1_120).contains(&lost), "{lost}");
    }
}
