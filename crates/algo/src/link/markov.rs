//! A rate that a Markov chain changes, fitted to measured networks.
//!
//! signal: the packet's length · model: a chain whose states are rates, with one step per second (or
//! as the entry says). Within a step, the state's shares (the profile of its tenths) come in random
//! order: the link has the slow and the fast changes of a radio link · action: the packet leaves
//! when its bits are served, across as many changes as that takes. A packet that finds the rate at
//! zero waits in its queue.
//!
//! Source: `bench/fit_links.py` fits the chains; `models.txt` lists their figures beside those of
//! the traces. Deviations: a chain forgets faster than a drive does (see the correlation over 10 s
//! there); the order of the tenths within a second is random, so outages shorter than a second are
//! scattered.

use units::{Bytes, Instant, Rate};

use super::chain::{CERTAIN, CHAINS, Chain, MAX_PARTS, Model};
use super::service::Service;
use super::{Grants, Head, Medium, Setup, Slot, State};
use crate::Rng;

/// Name in the table.
pub const NAME: &str = "markov";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "a Markov chain of rates, fitted to a kind of network";
/// Where it is specified.
pub const SOURCE: &str = "fitted: bench/fit_links.py";

config! {
    /// The network, and a factor on its rates.
    pub struct Config {
        /// The network whose chain is used.
        model: Model = Model::LteDrive;
        /// Factor on all its rates.
        scale: f64 = 1.0, 0.001, 1000.0;
    }
}

/// After this many steps without a packet, the state is drawn again: no chain here remembers a
/// hundred of them.
const MEMORY_STEPS: u64 = 3_600;

/// The Markov link; times are nanoseconds since the start.
#[derive(Clone, Debug)]
pub struct Markov {
    chain: &'static Chain,
    scale: f64,
    state: usize,
    /// The shares of the current step in their random order; only the first `parts` count.
    order: [u64; MAX_PARTS],
    parts: usize,
    part: usize,
    /// Rate of the current part, bit/s.
    rate: u64,
    /// When the current part ends; 0: no step has begun.
    ends: u64,
    service: Service,
}

impl Markov {
    /// A link whose first packet draws its state.
    pub fn new(config: Config, _setup: &Setup) -> Markov {
        // A test compares the words of `Model` with the chains of `models.txt`.
        let chain = &CHAINS[config.model as usize];
        Markov {
            chain,
            scale: config.scale,
            state: 0,
            order: [1_000; MAX_PARTS],
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

    /// Begins a step in a state drawn with these cumulative probabilities.
    fn enter(&mut self, probabilities: &[u64], rng: &mut Rng) {
        let drawn = rng.below(CERTAIN);
        self.state = probabilities.partition_point(|&limit| limit <= drawn);
        let shares = self.chain.states()[self.state].shares();
        self.parts = shares.len().max(1);
        if shares.is_empty() {
            self.order[0] = 1_000;
        } else {
            self.order[..self.parts].copy_from_slice(shares);
            // Fisher and Yates: every order is equally likely.
            for last in (1..self.parts).rev() {
                self.order.swap(last, rng.below(last as u64 + 1) as usize);
            }
        }
        self.begin(0);
    }

    fn begin(&mut self, part: usize) {
        self.part = part;
        let mean = self.chain.states()[self.state].kbps as f64 * self.scale;
        self.rate = (mean * self.order[part] as f64 + 0.5) as u64;
        self.ends = self.ends.saturating_add(self.step() / self.parts as u64);
    }

    fn advance(&mut self, rng: &mut Rng) {
        if self.part + 1 < self.parts {
            self.begin(self.part + 1);
        } else {
            self.enter(&self.chain.states()[self.state].successors, rng);
        }
    }

    /// Moves to the part of the step that `now` lies in.
    fn seek(&mut self, now: u64, rng: &mut Rng) {
        let behind = now.saturating_sub(self.ends) / self.step();
        if self.ends == 0 || behind > MEMORY_STEPS {
            self.ends = now / self.step() * self.step();
            self.enter(&self.chain.start, rng);
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
        Grants { granted: self.service.take_sent(), padding: Bytes::ZERO, waiting: None }
    }

    /// Rate and state at the last packet.
    fn state(&self, _now: Instant) -> State {
        State { rate: (self.ends > 0).then_some(Rate(self.rate)), state: Some(self.state as u32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::chain::MODELS;
    use crate::{Setting, Unit};
    use std::string::{String, ToString};
    use std::vec::Vec;

    /// Figures of the rates of whole seconds, bit/s; columns as in `models.txt`.
    #[derive(Debug)]
    struct Figures {
        mean: f64,
        cv: f64,
        p10: f64,
        p50: f64,
        p90: f64,
        lag1: f64,
        /// Coefficient of variation of the tenths, if the seconds have parts.
        cv_tenth: Option<f64>,
    }

    /// The values of all lines of `models.txt` with this key.
    fn lines(text: &'static str, key: &str) -> Vec<&'static str> {
        text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).collect()
    }

    fn parsed(line: &str) -> Figures {
        let columns: Vec<Option<f64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        let column = |i: usize| columns[i].unwrap();
        Figures {
            mean: column(1),
            cv: column(2),
            p10: column(3),
            p50: column(4),
            p90: column(5),
            lag1: column(6),
            cv_tenth: columns[8],
        }
    }

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
            mean: average,
            cv: variance.sqrt() / average,
            p10: quantile(0.1),
            p50: quantile(0.5),
            p90: quantile(0.9),
            lag1: lag(1),
            cv_tenth: (tenths.len() > rates.len()).then_some(spread),
        }
    }

    #[test]
    fn every_word_has_its_chain() {
        let Unit::Choice(words) = Model::UNIT else { panic!("a choice") };
        assert_eq!(words.to_vec(), lines(MODELS, "chain"));
        assert_eq!(words.len(), CHAINS.len());
    }

    /// The numbers that the parser of `chain.rs` read, written as `models.txt` has them.
    #[test]
    fn the_parser_reads_every_number() {
        let spaced =
            |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<String>>().join(" ");
        let mut steps = Vec::new();
        let mut starts = Vec::new();
        let mut states = Vec::new();
        for chain in &CHAINS {
            let count = chain.states().len();
            steps.push(chain.step_ms.to_string());
            starts.push(spaced(&chain.start[..count]));
            for state in chain.states() {
                let (shares, next) = (spaced(state.shares()), spaced(&state.successors[..count]));
                states.push(std::format!("{}; {shares}; {next}", state.kbps));
            }
        }
        assert_eq!(steps, lines(MODELS, "step"));
        assert_eq!(starts, lines(MODELS, "start"));
        assert_eq!(states, lines(MODELS, "state"));
    }

    #[test]
    fn every_chain_is_one() {
        for (chain, name) in CHAINS.iter().zip(lines(MODELS, "chain")) {
            let last = chain.states().len() - 1;
            let is_cumulative = |p: &[u64]| p.is_sorted() && p[last] == CERTAIN;
            assert!(is_cumulative(&chain.start), "{name}");
            assert!(chain.states().is_sorted_by_key(|state| state.kbps));
            for state in chain.states() {
                assert!(is_cumulative(&state.successors), "{name}");
                let shares = state.shares();
                assert!(shares.is_empty() || shares.len() == MAX_PARTS);
                assert!(chain.step_ms * 1_000_000 % shares.len().max(1) as u64 == 0);
                // The shares of a state average to its rate.
                let total: u64 = shares.iter().sum();
                assert!(
                    shares.is_empty() || total.abs_diff(1_000 * MAX_PARTS as u64) <= 10,
                    "{total}"
                );
            }
        }
    }

    // 20,000 s of chains that remember some ten seconds: two thousand independent samples, a few
    // per cent of error.
    #[test]
    fn every_chain_has_the_mean_quantiles_and_correlation_of_its_trace() {
        for (index, section) in MODELS.split("\nchain ").skip(1).enumerate() {
            let measured = figures(&seconds(&mut link(index, 1.0), 20_000));
            let trace = lines(section, "trace").first().map(|line| parsed(line));
            let model = parsed(lines(section, "model")[0]);
            for expected in trace.iter().chain([&model]) {
                let context =
                    std::format!("{section}\nexpected {expected:?}\nmeasured {measured:?}");
                let ratio = |a: f64, b: f64| (a / b - 1.0).abs();
                assert!(ratio(measured.mean, expected.mean) < 0.10, "mean of {context}");
                // Where outages make up nearly a tenth, the 10 % quantile rises from zero to a
                // seventh of the mean within three per cent of the ranks. Hence the second bound.
                let bound = (0.25 * expected.p10).max(0.10 * expected.mean);
                assert!((measured.p10 - expected.p10).abs() < bound, "10 % quantile of {context}");
                assert!(ratio(measured.p50, expected.p50) < 0.15, "median of {context}");
                assert!(ratio(measured.p90, expected.p90) < 0.25, "90 % quantile of {context}");
                assert!((measured.lag1 - expected.lag1).abs() < 0.10, "correlation of {context}");
                assert!(ratio(measured.cv, expected.cv) < 0.15, "deviation of {context}");
            }
            // Classes of seconds lose some of the variation of the trace's tenths.
            if let (Some(trace), Some(tenth)) = (trace.and_then(|t| t.cv_tenth), measured.cv_tenth)
            {
                assert!((0.8..=1.1).contains(&(tenth / trace)), "{section} {tenth} {trace}");
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
    fn after_a_long_idle_time_the_state_is_drawn_again_and_the_steps_keep_their_grid() {
        let mut sleeper = link(0, 1.0);
        let mut rng = Rng::new(2, "test");
        for now in [5_500_000_000, 5_600_000_000, 86_400_250_000_000, 1_000_000_000_000_000_000] {
            sleeper.seek(now, &mut rng);
            assert!(sleeper.ends > now && sleeper.ends - now <= 100_000_000);
            assert_eq!(sleeper.ends % 100_000_000, 0);
        }
    }
}
