//! Delay that varies from packet to packet.
//!
//! signal: none · model: a random extra delay for each packet, never negative · action: the packet arrives
//! later by that delay. By default packets stay in order, as on a radio bearer: a packet that would
//! overtake arrives together with the one before. With `reorder` each has its own delay, as with netem's
//! jitter.
//!
//! No standard value is published: the defaults are those of a good radio link, to be set by the scenario.

use units::{Duration, Instant};

use super::{Head, LayerControl, Setup, Transit};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "jitter";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "each packet is delayed by a random time, in order by default";
/// Where it is specified.
pub const SOURCE: &str = "tc-netem(8), delay TIME JITTER distribution";

choice! {
    /// Distribution of the extra delay around its mean.
    pub enum Distribution {
        /// Uniform within mean ± spread.
        Uniform = "uniform",
        /// Standard deviation = spread, cut off at zero.
        Normal = "normal",
        /// A tail of mean `spread` above mean − spread.
        Exponential = "exponential",
    }
}

config! {
    /// The distribution of the delay, and whether packets may overtake.
    pub struct Config {
        /// Mean of the extra delay.
        mean: Duration = Duration::from_millis(5), Duration::ZERO, Duration::from_secs(60);
        /// Spread of the extra delay: half the width, standard deviation or mean of the tail.
        spread: Duration = Duration::from_millis(5), Duration::ZERO, Duration::from_secs(60);
        /// Distribution of the extra delay.
        distribution: Distribution = Distribution::Uniform;
        /// Packets may overtake each other.
        reorder: bool = false;
    }
}

/// The random extra delay of one link.
#[derive(Clone, Debug)]
pub struct Jitter {
    config: Config,
    last: Instant,
}

impl Jitter {
    /// The jitter of one link.
    pub fn new(config: Config, _setup: &Setup) -> Jitter {
        Jitter { config, last: Instant::ZERO }
    }

    fn draw(&self, rng: &mut Rng) -> Duration {
        let (mean, spread) = (self.config.mean.0 as f64, self.config.spread.0 as f64);
        let extra = match self.config.distribution {
            Distribution::Uniform => mean + spread * (2.0 * rng.uniform() - 1.0),
            Distribution::Normal => mean + spread * rng.normal(),
            Distribution::Exponential => mean - spread + rng.exponential(spread),
        };
        // The cast makes a negative number zero.
        Duration(extra as u64)
    }
}

impl LayerControl for Jitter {
    fn on_transit(&mut self, transit: &mut Transit, _head: &Head, rng: &mut Rng) {
        transit.arrives = transit.arrives + self.draw(rng);
        if self.config.reorder {
            transit.reordered = true;
        } else {
            transit.arrives = transit.arrives.max(self.last);
            self.last = transit.arrives;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;
    use units::Bytes;

    fn arrivals(config: Config, gap: Duration, count: u64) -> Vec<Duration> {
        let mut layer = Jitter::new(config, &Setup::default());
        let mut rng = Rng::new(3, "test");
        let head = Head { bytes: Bytes(1_500), backlog: Bytes(1_500) };
        (0..count)
            .map(|n| {
                let leaves = Instant::ZERO + gap * n;
                let mut transit =
                    Transit { leaves, arrives: leaves, lost: false, reordered: false };
                layer.on_transit(&mut transit, &head, &mut rng);
                assert!(!transit.lost && transit.arrives >= leaves);
                Duration(transit.arrives.0)
            })
            .collect()
    }

    #[test]
    fn packets_stay_in_order_by_default() {
        let gap = Duration::from_micros(100);
        let ordered = arrivals(Config::default(), gap, 1_000);
        assert!(ordered.is_sorted());
        let free = arrivals(Config { reorder: true, ..Config::default() }, gap, 1_000);
        assert!(!free.is_sorted());
    }

    #[test]
    fn mean_and_spread_of_each_distribution_are_the_ones_asked_for() {
        let mean = Duration::from_millis(20);
        let spread = Duration::from_millis(4);
        for (distribution, deviation) in [
            (Distribution::Uniform, 4.0 / 1.732),
            (Distribution::Normal, 4.0),
            (Distribution::Exponential, 4.0),
        ] {
            let config = Config { mean, spread, distribution, reorder: true };
            let delays = arrivals(config, Duration::ZERO, 20_000);
            let n = delays.len() as f64;
            let average = delays.iter().map(|d| d.as_millis_f64()).sum::<f64>() / n;
            let variance =
                delays.iter().map(|d| (d.as_millis_f64() - average).powi(2)).sum::<f64>() / n;
            assert!((average - 20.0).abs() < 0.15, "{distribution:?} {average}");
            assert!(
                (variance.sqrt() / deviation - 1.0).abs() < 0.05,
                "{distribution:?} {}",
                variance.sqrt()
            );
        }
    }
}
