//! The fitted Markov chains of [`super::markov`]: read from `models.txt` by the compiler.
//!
//! `python3 -m bench.fit_links` writes `models.txt` from measured traces; the head of that file
//! describes its lines. The parser below is a `const fn`: the numbers are in the program as plain
//! arrays, nothing is parsed at run time, and a damaged file does not compile. The lines `about`,
//! `trace` and `model` are for readers and tests; the parser skips them.

/// The text of the data file.
pub(super) const MODELS: &str = include_str!("models.txt");

/// Equal parts of a step, at most: a second's tenths, the finest resolution of the traces.
pub(super) const MAX_PARTS: usize = 10;

/// States of a chain, at most: the generator's twelve classes, and one for outages.
const MAX_STATES: usize = 13;

/// Probabilities are cumulative, in millionths.
pub(super) const CERTAIN: u64 = 1_000_000;

choice! {
    /// The network that a chain was fitted to, in the order of `models.txt`.
    pub enum Model {
        /// LTE while driving, downlink (mahimahi, AT&T).
        LteDrive = "lte-drive",
        /// LTE while driving, uplink (mahimahi, AT&T).
        LteDriveUp = "lte-drive.up",
        /// UMTS while driving, downlink (mahimahi, T-Mobile).
        UmtsDrive = "umts-drive",
        /// UMTS while driving, uplink (mahimahi, T-Mobile).
        UmtsDriveUp = "umts-drive.up",
        /// EV-DO while driving, downlink (mahimahi, Verizon).
        EvdoDrive = "evdo-drive",
        /// EV-DO while driving, uplink (mahimahi, Verizon).
        EvdoDriveUp = "evdo-drive.up",
        /// 5G while driving, downlink (UCC's 5G set).
        FiveGDrive = "5g-drive",
        /// 5G standing still, downlink (UCC's 5G set).
        FiveGStatic = "5g-static",
        /// HSDPA in a bus, downlink (Norway 3G set).
        HsdpaBus = "hsdpa-bus",
        /// Synthetic, fitted to no trace: a WiFi station on a channel busy with other stations.
        WifiBusy = "wifi-busy",
    }
}

/// A Markov chain whose states are rates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// Milliseconds that a state lasts before the next draw.
    pub step_ms: u64,
    /// Probability of each state over a long time, cumulative.
    pub start: [u64; MAX_STATES],
    states: [ChainState; MAX_STATES],
    count: usize,
}

/// One state of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainState {
    /// Mean rate of the state, kbit/s.
    pub kbps: u64,
    /// Probability that each state follows, cumulative.
    pub successors: [u64; MAX_STATES],
    shares: [u64; MAX_PARTS],
    parts: usize,
}

impl Chain {
    /// The states, the slowest first.
    pub fn states(&self) -> &[ChainState] {
        &self.states[..self.count]
    }
}

impl ChainState {
    /// Rates of the equal parts of a step in thousandths of the mean, ascending; empty where the
    /// trace resolves nothing within a step.
    pub fn shares(&self) -> &[u64] {
        &self.shares[..self.parts]
    }
}

/// The chains, in the order of [`Model`].
pub(super) static CHAINS: [Chain; count_chains(MODELS.as_bytes())] = parse(MODELS.as_bytes());

// ------------------------------------------------------------------------------------------ parser

/// The first line of `text` without its line feed, and what follows it.
const fn next_line(text: &[u8]) -> (&[u8], &[u8]) {
    let mut end = 0;
    while end < text.len() && text[end] != b'\n' {
        end += 1;
    }
    let (line, rest) = text.split_at(end);
    match rest.split_first() {
        Some((_, rest)) => (line, rest),
        None => (line, rest),
    }
}

/// What follows `key` and a blank, where the line begins so.
const fn after_key<'a>(line: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let key = key.as_bytes();
    if line.len() <= key.len() || line[key.len()] != b' ' {
        return None;
    }
    let mut i = 0;
    while i < key.len() {
        if line[i] != key[i] {
            return None;
        }
        i += 1;
    }
    Some(line.split_at(key.len() + 1).1)
}

/// Reads numbers up to the end of the field (`;` or the end of the line) into `into`; how many, and
/// what follows the field.
const fn numbers<'a>(mut text: &'a [u8], into: &mut [u64]) -> (usize, &'a [u8]) {
    let mut count = 0;
    let mut is_inside = false;
    while let Some((byte, rest)) = text.split_first() {
        text = rest;
        match *byte {
            digit @ b'0'..=b'9' => {
                if !is_inside {
                    into[count] = 0;
                    count += 1;
                }
                is_inside = true;
                into[count - 1] = into[count - 1] * 10 + (digit - b'0') as u64;
            }
            b' ' => is_inside = false,
            b';' => break,
            _ => panic!("models.txt: fields are numbers, blanks and semicolons"),
        }
    }
    (count, text)
}

const fn count_chains(mut text: &[u8]) -> usize {
    let mut count = 0;
    while !text.is_empty() {
        let (line, rest) = next_line(text);
        text = rest;
        count += after_key(line, "chain").is_some() as usize;
    }
    count
}

const fn parse<const N: usize>(mut text: &[u8]) -> [Chain; N] {
    // Unused places of the probabilities are certain, so that a search never passes them.
    const NO_STATE: ChainState =
        ChainState { kbps: 0, successors: [CERTAIN; MAX_STATES], shares: [0; MAX_PARTS], parts: 0 };
    let empty = Chain {
        step_ms: 0,
        start: [CERTAIN; MAX_STATES],
        states: [NO_STATE; MAX_STATES],
        count: 0,
    };
    let mut chains = [empty; N];
    let mut begun = 0;
    while !text.is_empty() {
        let (line, rest) = next_line(text);
        text = rest;
        if after_key(line, "chain").is_some() {
            begun += 1;
        } else if let Some(value) = after_key(line, "step") {
            let mut step = [0];
            numbers(value, &mut step);
            chains[begun - 1].step_ms = step[0];
        } else if let Some(values) = after_key(line, "start") {
            numbers(values, &mut chains[begun - 1].start);
        } else if let Some(fields) = after_key(line, "state") {
            let chain = &mut chains[begun - 1];
            let state = &mut chain.states[chain.count];
            let mut kbps = [0];
            let (_, fields) = numbers(fields, &mut kbps);
            state.kbps = kbps[0];
            let (parts, fields) = numbers(fields, &mut state.shares);
            state.parts = parts;
            numbers(fields, &mut state.successors);
            chain.count += 1;
        }
    }
    chains
}
