//! A rate that a Markov chain changes, fitted to measured networks.
//!
//! signal: the packet's length · model: a chain whose states are rates, one step a second (or as the entry says);
//! within a step the state's shares, the profile of its tenths, are dealt in random order, so that both the slow and
//! the fast changes of a radio link are there · action: the packet leaves when its bits are served, across as many
//! changes as it takes; one that finds the rate at zero waits in its queue.
//!
//! The chains and how far their figures meet the traces' are in [`super::models`]. Deviations: a chain forgets faster
//! than a drive does (compare the correlations over 10 s there), and the order of the tenths within a second is random,
//! so that outages shorter than a second are scattered.

use units::{Bytes, Instant, Rate};

use super::models::{CHAINS, Model};
use super::service::Service;
use super::{Grants, Head, Medium, Setup, Slot, State};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "markov";
/// One line.
pub const ABOUT: &str = "a Markov chain of rates, fitted to a kind of network";
/// Where it is specified.
pub const SOURCE: &str = "fitted: bench/fit_links.py";

config! {
    /// Which network, and how fast.
    pub struct Config {
        /// The chain.
        model: Model = Model::LteDrive;
        /// Factor on all its rates.
        scale: f64 = 1.0, 0.001, 1000.0;
    }
}

/// A chain.
#[derive(Debug)]
pub struct Chain {
    /// The word for it.
    pub name: &'static str,
    /// What it was fitted to.
    pub about: &'static str,
    /// Milliseconds that a state lasts before the next draw.
    pub step_ms: u64,
    /// How likely each state is over a long time, cumulative, in millionths.
    pub start: &'static [u64],
    /// Its states, the slowest first.
    pub states: &'static [ChainState],
    /// What the trace has; `None`: it is synthetic.
    pub trace: Option<Figures>,
    /// What the chain has.
    pub model: Figures,
}

/// A state of a chain.
#[derive(Debug)]
pub struct ChainState {
    /// Mean rate, kbit/s.
    pub kbps: u64,
    /// Rates of its equal parts in thousandths of the mean, ascending; empty: it has no parts.
    pub shares: &'static [u64],
    /// How likely each state follows, cumulative, in millionths.
    pub successors: &'static [u64],
}

/// Figures of the rates of whole seconds, bit/s.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// How many seconds.
    pub seconds: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation over mean.
    pub cv: f64,
    /// The quantile below which a tenth lies.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// The quantile above which a tenth lies.
    pub p90: f64,
    /// Correlation with one second later.
    pub lag1: f64,
    /// Correlation with ten seconds later.
    pub lag10: f64,
    /// Standard deviation over mean of the tenths of a second, where the trace has them.
    pub cv_tenth: Option<f64>,
}

/// Parts of a step at most.
const PARTS: usize = 10;
/// After so many steps without a packet the state is drawn anew: no chain here remembers a hundred of them.
const FORGOTTEN: u64 = 3_600;

/// See the module text.
#[derive(Clone, Debug)]
pub struct Markov {
    chain: &'static Chain,
    scale: f64,
    state: usize,
    /// The shares of the current step in their order; only the first `parts` count.
    order: [u64; PARTS],
    parts: usize,
    part: usize,
    /// Rate of the current part, bit/s.
    rate: u64,
    /// When it ends; 0: not begun.
    ends: u64,
    service: Service,
}

impl Markov {
    /// A link whose first packet draws its state.
    pub fn new(config: Config, _setup: &Setup) -> Markov {
        // The table is written with one chain for each word; were one missing, the first would stand in.
        let chain = CHAINS.get(config.model as usize).unwrap_or(&CHAINS[0]);
        Markov {
            chain,
            scale: config.scale,
            state: 0,
            order: [1_000; PARTS],
            parts: 1,
            part: 0,
            rate: 0,
            ends: 0,
            service: Service::default(),
        }
    }

    fn step(&self) -> u64 {
        self.chain.step_ms * 1_000_000
    }

    /// Begins a step in a state drawn with these odds.
    fn enter(&mut self, odds: &[u64], rng: &mut Rng) {
        let dice = rng.below(1_000_000);
        self.state = odds.partition_point(|&limit| limit <= dice).min(self.chain.states.len() - 1);
        let shares = self.chain.states[self.state].shares;
        self.parts = shares.len().clamp(1, PARTS);
        if shares.is_empty() {
            self.order[0] = 1_000;
        } else {
            self.order[..self.parts].copy_from_slice(&shares[..self.parts]);
            // Fisher and Yates: every order is equally likely
            for last in (1..self.parts).rev() {
                self.order.swap(last, rng.below(last as u64 + 1) as usize);
            }
        }
        self.begin(0);
    }

    fn begin(&mut self, part: usize) {
        self.part = part;
        let mean = self.chain.states[self.state].kbps as f64 * self.scale;
        self.rate = (mean * self.order[part] as f64 + 0.5) as u64;
        self.ends = self.ends.saturating_add(self.step() / self.parts as u64);
    }

    fn advance(&mut self, rng: &mut Rng) {
        if self.part + 1 < self.parts {
            self.begin(self.part + 1);
        } else {
            self.enter(self.chain.states[self.state].successors, rng);
        }
    }

    /// Moves to the part that holds at `now`.
    fn seek(&mut self, now: u64, rng: &mut Rng) {
        let behind = now.saturating_sub(self.ends) / self.step();
        if self.ends == 0 || behind > FORGOTTEN {
            self.ends = now / self.step() * self.step();
            self.enter(self.chain.start, rng);
        }
        while now >= self.ends && self.ends < u64::MAX {
            self.advance(rng);
        }
    }
}

impl Medium for Markov {
    #[inline]
    fn offer(&mut self, now: Instant, head: &Head, rng: &mut Rng) -> Slot {
        self.seek(now.0, rng);
        if self.rate == 0 {
            return Slot::WaitUntil(Instant(self.ends));
        }
        let mut work = self.service.start(head.bytes);
        let mut at = now.0;
        loop {
            match self.service.run(work, self.rate, self.ends.saturating_sub(at)) {
                Ok(needed) => return Slot::Leaves(Instant(at.saturating_add(needed))),
                Err(_) if self.ends == u64::MAX => return Slot::Leaves(Instant(u64::MAX)),
                Err(left) => work = left,
            }
            at = self.ends;
            self.advance(rng);
        }
    }

    fn on_backlog(&mut self, _now: Instant, _backlog: Bytes) {}

    fn take_grants(&mut self, _now: Instant) -> Grants {
        Grants { granted: self.service.take_sent(), padding: Bytes::ZERO }
    }

    /// As the last packet found it.
    fn state(&self, _now: Instant) -> State {
        State { rate: (self.ends > 0).then_some(Rate(self.rate)), state: Some(self.state as u32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Setting, Unit};
    use std::vec::Vec;

    fn link(index: usize, scale: f64) -> Markov {
        let model = Model::from_value(&crate::Value::Choice(index)).unwrap();
        Markov::new(Config { model, scale }, &Setup::default())
    }

    /// The parts of so many seconds, as the link goes through them.
    fn seconds(link: &mut Markov, count: usize) -> Vec<Vec<f64>> {
        let mut rng = Rng::new(11, "test");
        let mut at = 0;
        (0..count)
            .map(|second| {
                let mut parts = Vec::new();
                while at < (second as u64 + 1) * 1_000_000_000 {
                    link.seek(at, &mut rng);
                    parts.push(link.rate as f64);
                    at = link.ends;
                }
                parts
            })
            .collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn figures(seconds: &[Vec<f64>]) -> Figures {
        let rates: Vec<f64> = seconds.iter().map(|parts| mean(parts)).collect();
        let average = mean(&rates);
        let variance = mean(&rates.iter().map(|x| (x - average).powi(2)).collect::<Vec<_>>());
        let lag = |n: usize| {
            let products =
                rates.iter().zip(&rates[n..]).map(|(x, y)| (x - average) * (y - average));
            mean(&products.collect::<Vec<_>>()) / variance
        };
        let tenths: Vec<f64> = seconds.iter().flatten().copied().collect();
        let spread = mean(&tenths.iter().map(|x| (x - average).powi(2)).collect::<Vec<_>>()).sqrt()
            / average;
        let mut sorted = rates.clone();
        sorted.sort_by(f64::total_cmp);
        let quantile = |share: f64| sorted[(share * sorted.len() as f64) as usize];
        Figures {
            seconds: rates.len() as u64,
            mean: average,
            cv: variance.sqrt() / average,
            p10: quantile(0.1),
            p50: quantile(0.5),
            p90: quantile(0.9),
            lag1: lag(1),
            lag10: lag(10),
            cv_tenth: (tenths.len() > rates.len()).then_some(spread),
        }
    }

    #[test]
    fn every_word_has_its_chain() {
        let Unit::Choice(words) = Model::UNIT else { panic!("a choice") };
        assert_eq!(words.to_vec(), CHAINS.iter().map(|chain| chain.name).collect::<Vec<_>>());
    }

    #[test]
    fn every_chain_is_one() {
        for chain in CHAINS {
            let is_cumulative = |odds: &[u64]| {
                odds.len() == chain.states.len()
                    && odds.is_sorted()
                    && odds.last() == Some(&1_000_000)
            };
            assert!(is_cumulative(chain.start), "{}", chain.name);
            assert!(chain.states.is_sorted_by_key(|state| state.kbps));
            for state in chain.states {
                assert!(is_cumulative(state.successors), "{}", chain.name);
                assert!(state.shares.is_empty() || state.shares.len() == PARTS);
                assert!(chain.step_ms * 1_000_000 % state.shares.len().max(1) as u64 == 0);
                // the shares of a state average to its rate
                let total: u64 = state.shares.iter().sum();
                assert!(
                    state.shares.is_empty() || total.abs_diff(1_000 * PARTS as u64) <= 10,
                    "{total}"
                );
            }
        }
    }

    // 20,000 s of chains that remember some ten seconds: two thousand independent looks, a few per cent of error.
    #[test]
    fn every_chain_has_the_mean_quantiles_and_correlation_of_its_trace() {
        for (index, chain) in CHAINS.iter().enumerate() {
            let got = figures(&seconds(&mut link(index, 1.0), 20_000));
            for wanted in chain.trace.iter().chain([&chain.model]) {
                let context = std::format!("{}\nwanted {wanted:?}\ngot    {got:?}", chain.name);
                assert!((got.mean / wanted.mean - 1.0).abs() < 0.10, "mean of {context}");
                // Where outages make up nearly a tenth, the 10 % quantile rises from nothing to a seventh of the mean
                // within three per cent of the ranks; there a tenth of the mean is what it can be held to.
                let is_near = |a: f64, b: f64| (a - b).abs() < (0.25 * b).max(0.10 * wanted.mean);
                assert!(is_near(got.p10, wanted.p10), "10 % quantile of {context}");
                assert!((got.p50 / wanted.p50 - 1.0).abs() < 0.15, "median of {context}");
                assert!((got.p90 / wanted.p90 - 1.0).abs() < 0.25, "90 % quantile of {context}");
                assert!((got.lag1 - wanted.lag1).abs() < 0.10, "correlation of {context}");
                assert!((got.cv / wanted.cv - 1.0).abs() < 0.15, "deviation of {context}");
            }
            // the tenths: between those of the trace and what classes must lose of them
            if let (Some(trace), Some(tenth)) = (chain.trace.and_then(|t| t.cv_tenth), got.cv_tenth)
            {
                assert!((0.8..=1.1).contains(&(tenth / trace)), "{} {tenth} {trace}", chain.name);
            }
        }
    }

    #[test]
    fn a_saturating_sender_gets_the_rate_that_the_chain_has() {
        let mut sent = link(0, 2.0);
        let mut rng = Rng::new(11, "test");
        let (mut now, mut bytes) = (Instant::ZERO, 0);
        while now < Instant(20_000_000_000) {
            let head = Head { bytes: Bytes(1_200), backlog: Bytes(1_200) };
            match sent.offer(now, &head, &mut rng) {
                Slot::Leaves(at) => {
                    bytes += 1_200;
                    now = at;
                }
                Slot::WaitUntil(at) => {
                    assert!(at > now);
                    now = at;
                }
            }
        }
        let rates: Vec<f64> =
            seconds(&mut link(0, 2.0), 20).iter().map(|parts| mean(parts)).collect();
        assert!((bytes as f64 * 8.0 / 20.0 / mean(&rates) - 1.0).abs() < 0.002);
        assert_eq!(sent.take_grants(now).granted, Bytes(bytes));
    }

    #[test]
    fn after_a_long_idle_time_the_state_is_drawn_anew_and_the_steps_keep_their_grid() {
        let mut sleeper = link(0, 1.0);
        let mut rng = Rng::new(2, "test");
        for now in [5_500_000_000, 5_600_000_000, 86_400_250_000_000, 1_000_000_000_000_000_000] {
            sleeper.seek(now, &mut rng);
            assert!(sleeper.ends > now && sleeper.ends - now <= 100_000_000);
            assert_eq!(sleeper.ends % 100_000_000, 0);
        }
    }
}
