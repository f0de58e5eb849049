//! The closed bins of the last second, by which a bin's limit is decided.
//!
//! signal: the bins as they close · model: a queue that stands for a second delays even the fastest round trip in it ·
//! action: bytes, the smallest RTT and the smallest lower bound of the RTT in that second.

/// Lower bounds of the RTT in a second that show a standing queue.
const MIN_BOUNDS: u32 = 2;

/// One bin of the last second.
#[derive(Clone, Copy, Debug)]
pub struct Second {
    /// Minimum RTT, ns.
    pub rtt_min: u64,
    /// Smallest lower bound of the RTT (ns), and number of them.
    pub bound: u64,
    pub bounds: u32,
    pub delivered: u64,
}

impl Second {
    const EMPTY: Second = Second { rtt_min: u64::MAX, bound: u64::MAX, bounds: 0, delivered: 0 };
}

/// The closed bins of the last second.
#[derive(Clone, Debug)]
pub struct LastSecond {
    /// Of each bin.
    pub bins: Box<[Second]>,
    next: usize,
    pub filled: usize,
    pub sum: u64,
}

impl LastSecond {
    /// A second of `bins`, all empty.
    pub fn of(bins: usize) -> LastSecond {
        let bins = vec![Second::EMPTY; bins].into_boxed_slice();
        LastSecond { bins, next: 0, filled: 0, sum: 0 }
    }

    /// Adds a closed bin, for the oldest one.
    pub fn push(&mut self, second: Second) {
        let bin = &mut self.bins[self.next];
        self.sum = self.sum + second.delivered - bin.delivered;
        *bin = second;
        self.next = (self.next + 1) % self.bins.len();
        self.filled = (self.filled + 1).min(self.bins.len());
    }
    /// Whether a whole second is over.
    pub fn full(&self) -> bool {
        self.filled == self.bins.len()
    }
    /// Smallest RTT of the second, ns.
    pub fn rtt_min(&self) -> Option<u64> {
        self.bins.iter().map(|bin| bin.rtt_min).min().filter(|m| *m != u64::MAX)
    }
    /// Lower bound of all round trips of data that was sent again. One alone may contain a delayed ACK.
    pub fn rtt_bound(&self) -> Option<u64> {
        let count: u32 = self.bins.iter().map(|bin| bin.bounds).sum();
        self.bins.iter().map(|bin| bin.bound).min().filter(|_| count >= MIN_BOUNDS)
    }
}
