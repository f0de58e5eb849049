//! The window of a direction of data while the opposite direction has a queue, and of a flow that
//! still grows: what the agent adds to the paper's law.
//!
//! signal: the certain queueing in the opposite direction ([`super::path`]), the law's rounds · model:
//! window = rate · (λ · RTTmin + queue in the opposite direction − spare) · action: the window, in
//! place of the law's own.
//!
//! The law alone (rate · λ · RTTmin) would take that queue for the flow's own, and close the window
//! for what it cannot drain. Of the (λ−1) · RTTmin that λ allows, a part is spare, since both
//! directions share the delay. For downloads it is half. For uploads it is all, because their bursts
//! delay the ACKs of downloads, whose link then runs empty: with half, a download beside an upload,
//! both controlled, had 0.80 of its lone rate; with all it has 0.85 to 0.90.
//!
//! Source: this project. `bpf/path.h` of the agent computes the same bit for bit.

use units::Instant;

use super::adaptive::{EMPTY_DEN, EMPTY_NUM, LAMBDA_ONE};
use super::decided::{Decided, MAX_BYTES, MAX_RATE, MAX_RTT_US};
use super::fair::{Share, fair_window};

/// What is known of the opposite direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opposite {
    /// The opposite queue in the current round: sum of samples (µs) and their number.
    sum_us: u64,
    count: u32,
    /// Mean of the opposite queue in the last round, and in the one before.
    mean_us: u32,
    before_us: u32,
    /// What it adds to the window, as time.
    added_us: u32,
    /// The flow's own queue in the last round.
    own_us: u32,
    /// Rate in bytes per second (see [`Opposite::end_round`]).
    rate: u64,
    /// When the round began; 0: none did yet. And the byte count then.
    begun_ns: u64,
    begun_bytes: u64,
}

impl Opposite {
    /// Takes a sample of the opposite queue.
    pub fn sample(&mut self, queue_us: u64) {
        self.sum_us += queue_us;
        self.count += 1;
    }

    /// What the opposite queue adds to the window, as time in µs.
    pub fn added_us(&self) -> u32 {
        self.added_us
    }

    /// The mean of the opposite queue in the last round, µs.
    pub fn mean_us(&self) -> u32 {
        self.mean_us
    }

    /// Ends a round of the law. `bytes`: the direction's byte count so far; `up`: it is an upload.
    ///
    /// Queue: its mean, since a right edge is never retracted, so that of single values only the
    /// largest would count. A queue that grows from round to round is extrapolated, since it is known
    /// one round trip late. One that comes and goes is taken at the mean of two rounds.
    ///
    /// Rate: an average of four rounds, since behind the other direction's queue ACKs come in bursts,
    /// and what ends in one round may have been sent in two. While the flow's own queue is short of
    /// half of what λ allows, the link was not its limit: its rate is what the window allowed. So the
    /// rate does not fall then, and up to a quarter is added to the queue to let it rise.
    ///
    /// Extrapolation and the two rules of the rate apply to queues beyond one RTTmin: with smaller
    /// ones, two laws would react to each other.
    pub fn end_round(&mut self, law: &Decided, now: Instant, bytes: u64, up: bool) {
        if self.begun_ns != 0 {
            self.decide(law, now, bytes, up);
        }
        self.begun_ns = now.0;
        self.begun_bytes = bytes;
        self.sum_us = 0;
        self.count = 0;
    }

    fn decide(&mut self, law: &Decided, now: Instant, bytes: u64, up: bool) {
        let rtt_min = law.rtt_min_us;
        let left = law.allowed_us(rtt_min);
        let length_us = (now.0.saturating_sub(self.begun_ns) / 1_000).max(1);
        let passed = bytes.saturating_sub(self.begun_bytes).min(MAX_BYTES);
        let rate = (passed * 1_000_000 / length_us).min(MAX_RATE);
        let mean = self.sum_us.checked_div(self.count.into()).unwrap_or(0);
        let now_own = law.round_rtt_us.saturating_sub(rtt_min + mean);
        let own = (u64::from(self.own_us) + now_own) / 2;
        self.own_us = now_own.min(MAX_RTT_US) as u32;
        let large = mean.saturating_sub(rtt_min);
        if self.rate == 0 {
            self.rate = rate;
        } else if rate > self.rate || large == 0 || own >= left / 2 {
            self.rate = (3 * self.rate + rate) / 4;
        }
        // The largest rate of seconds bridges what that average does.
        if law.adaptive {
            self.rate = law.rate;
        }
        let (last, before) = (u64::from(self.mean_us), u64::from(self.before_us));
        let mut ahead = if mean > last && last >= before {
            mean + (mean - last).min(large / 2)
        } else {
            (mean + last) / 2
        };
        ahead += large * left.saturating_sub(own) / (4 * left.max(1));
        let spare = if up { left } else { left / 2 };
        self.added_us = ahead.saturating_sub(spare).min(MAX_RTT_US) as u32;
        self.before_us = self.mean_us;
        self.mean_us = mean.min(MAX_RTT_US) as u32;
    }

    /// The window beside other flows of this host, in place of the law's own.
    pub fn window_beside(&self, law: &Decided, share: Option<Share>) -> u64 {
        let Some(share) = share else { return self.window(law) };
        let rate = if self.added_us == 0 { law.mean } else { self.rate };
        fair_window(law, share, rate, self.added_us)
    }

    /// The window in bytes, in place of the law's own.
    pub fn window(&self, law: &Decided) -> u64 {
        if self.added_us == 0 {
            return law.window;
        }
        let us =
            law.rtt_min_us.min(MAX_RTT_US) * law.lambda / LAMBDA_ONE + u64::from(self.added_us);
        law.bounded(self.rate * us / 1_000_000)
    }
}

/// Room for a connection that still grows, in rates of the last round.
///
/// Until a queue stands, in both directions together, the link is not the limit. Slow start doubles its
/// rate in each round trip (RFC 5681), and the last decision is up to one round trip old. So what is in
/// flight may be four times what the last complete round delivered. A window of three times that (λ = 3
/// of downloads, too) cost 6 to 12 ms per transfer at 20 Mbit/s and 60 ms, and one of 1.75 a round trip.
/// So the window has room for five times the rate of the last round: four, and a quarter for rounds that
/// end late.
///
/// Afterwards the law alone decides: in a pause of the opposite direction's queue the rule would let
/// an upload take more than its share. Where the begin was not seen, a standing queue may count as
/// path, and the rule would let it grow.
const GROWTH: u64 = 5;
/// Mean queue of a round, in sixteenths of RTTmin, that ends the growth of a flow beside which no
/// other has had a sample since it was opened. Slow start's own bursts and a radio's jitter are in the mean: with a quarter of what
/// λ allows (1 to 3 sixteenths) 3 MB at 20 Mbit/s took up to 1.1 times as long, and with 3 300 KB took 1.06 times
/// as long where both directions jitter by a third of RTTmin. With 16 the sender of an upload leaves slow start by
/// itself (HyStart), and beside a later download has 1.35 of 2 Mbit/s, not 1.74.
const ALONE: u64 = 7;
/// The same beside other flows, whose queue it is, too: what λ takes for one. With 7 a latecomer of 120 ms fills
/// the queue until its neighbour of 30 ms times out (Jain's index 0.72).
const BESIDE: u64 = EMPTY_NUM;

/// Whether a queue stands that ends the growth. `alone`: see [`super::fair::Member`].
pub fn growth_ends(law: &Decided, alone: bool) -> bool {
    let rtt_min = law.rtt_min_us.min(MAX_RTT_US);
    law.round_rtt_us >= rtt_min + rtt_min * if alone { ALONE } else { BESIDE } / EMPTY_DEN
}

/// The window of a connection that still grows; `window`: what it would be otherwise, in bytes.
pub fn growth_window(window: u64, law: &Decided) -> u64 {
    let rtt_min = law.rtt_min_us.min(MAX_RTT_US);
    window.max((law.rate * rtt_min / 1_000_000 * GROWTH).min(law.max))
}
