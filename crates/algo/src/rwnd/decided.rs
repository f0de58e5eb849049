//! What the law has decided, for what is added to it: [`super::opposite`], [`super::fair`],
//! [`super::receiving`]; and the bounds of all of them.

use super::adaptive::LAMBDA_ONE;

/// Largest window (RFC 7323 section 2.3: 2³⁰), and largest count of bytes in a round: products then
/// fit 64 bits.
pub(super) const MAX_BYTES: u64 = 1 << 30;
/// Longer RTTs are measurement errors: 30 s, below 2²⁵ µs.
pub(super) const MAX_RTT_US: u64 = 30_000_000;
/// Upper bound of a rate, 2³² bytes per second: products then fit 64 bits.
pub(super) const MAX_RATE: u64 = 1 << 32;
/// Below a millisecond an RTT is a late host, not a queue: a handshake of 50 µs in a local network
/// would allow 150 µs, and the flow lost four fifths of its rate. Timestamps count milliseconds
/// anyway.
pub const MIN_RTT_US: u64 = 1_000;

/// The law of one flow after its last sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decided {
    /// λ in units of 1/256, at most 4,096.
    pub lambda: u64,
    /// Mean RTT of the last round, µs; zero before its end.
    pub round_rtt_us: u64,
    /// Smallest RTT, µs.
    pub rtt_min_us: u64,
    /// The rate that the window follows, bytes per second.
    pub rate: u64,
    /// The mean rate.
    pub mean: u64,
    /// The law's own window, bytes.
    pub window: u64,
    /// Bytes that every decision adds.
    pub increment: u64,
    /// The smallest window, bytes.
    pub floor: u64,
    /// The largest window, bytes.
    pub max: u64,
    /// Payload of a full segment.
    pub mss: u64,
    /// Flows of one host get equal rates.
    pub fair: bool,
    /// λ and the rate adapt.
    pub adaptive: bool,
}

impl Decided {
    /// A window within the law's bounds, with its increment.
    pub fn bounded(&self, window: u64) -> u64 {
        (window + self.increment).max(self.floor).min(self.max)
    }

    /// The queue that λ allows beside an RTTmin, µs.
    pub fn allowed_us(&self, rtt_min_us: u64) -> u64 {
        allowed_us(rtt_min_us, self.lambda)
    }
}

/// The queue that λ (units of 1/256) allows beside an RTTmin, µs.
pub(super) fn allowed_us(rtt_min_us: u64, lambda: u64) -> u64 {
    rtt_min_us * lambda.saturating_sub(LAMBDA_ONE) / LAMBDA_ONE
}
