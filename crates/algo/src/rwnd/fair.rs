//! Equal shares for the flows of one host or device, beside [`super::opposite`].
//!
//! signal: rate and smallest RTT of each flow at its decisions · model: flows in one direction share
//! the access link. Each adds itself once per slot of a second; the slot before has the mean rate
//! and mean λ and the smallest RTTmin of all · action: a flow's window follows its rate moved towards the mean by
//! an eighth (β), and all flows allow the same queue.
//!
//! Why: the law multiplies every window at a bottleneck by the same factor, so windows keep their
//! proportions for ever. And each flow allows (λ−1) times its own RTTmin, so of two with different
//! RTTmin the farther one fills the queue until the nearer one has nothing.
//!
//! With w = ((1−β)·rate + β·mean) · (RTTmin + Q) and one Q for all, the only fixed point has equal
//! rates, whatever the RTTs. An increment has that too, but its queue grows with the number of flows,
//! and it takes long where the bandwidth-delay product is large. Here the sum of the windows stays
//! what it was.
//!
//! RTTmin has to be right for this: a latecomer to an address that is still unknown measures it with the
//! others' queue. So the flows of the host empty the queue for newcomers. They do not where the handshake
//! of a newcomer met no flow of this host, or another flow has measured the path to its address: ten
//! short files at once took 1.3 times as long for a queue emptied in vain.
//!
//! What can go wrong, and is bounded: a flow that is limited elsewhere, or by its application, has a
//! smaller rate than the mean. Its window has room for at most `1 + GAIN·β` of its rate, or for two
//! segments more, and the other flows' windows are smaller by at most β, which the queue that λ allows
//! covers (λ > 1 + β).
//!
//! Figures: Jain's index of 24 cases of two to eight flows (`crates/sim/tests/fair.rs`), the smallest;
//! as it is 0.913. Ablations are in docs/window-law.md.
//!
//! Source: this project. The mean as a target is that of processor sharing (Kleinrock 1967); that a
//! multiplicative law alone does not converge is Chiu and Jain, "Analysis of the Increase and Decrease
//! Algorithms", 1989.

use units::Instant;

use super::decided::{Decided, MAX_RTT_US, allowed_us};

/// How long flows add themselves; a flow alone for one slot decides alone. Round trips are shorter.
const SLOT_NS: u64 = 1_000_000_000;
/// The queue is emptied once for all flows that have come within this time.
const DRAIN_EVERY_NS: u64 = 5_000_000_000;
/// The slot of a flow whose smallest RTT is that of the empty path, before it adds itself.
const MET_NO_QUEUE: u64 = u64::MAX;
/// Round trips that this takes: one until smaller windows are in force, one until the queue is gone,
/// one for the samples. Without it: 0.342.
const DRAIN_ROUNDS: u64 = 3;
/// β as a divisor. 0.984, 0.913, 0.719 and 0.620 with 4, 8, 16 and 32: small ones are slow where
/// windows are small, large ones need a larger λ.
const BETA: u64 = 8;
/// The mean counts as at most so many times the flow's own rate more, so that a flow
/// grows no faster than the others give way. 0.913 with 1, 2 and 8.
const GAIN: u64 = 2;

/// What a slot says of all flows together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Slot {
    rates: u64,
    lambdas: u64,
    flows: u64,
    rtt_min_us: u64,
    rtt_max_us: u64,
}

/// What a flow keeps of its place among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// The slot that it has added itself to last.
    slot: u64,
    /// Samples of all flows at its last one.
    samples: u64,
    /// No other flow has had a sample since this host opened it. A flow that ended just before is none:
    /// taken for one, it made 3 MB at 20 Mbit/s take 1.09 times as long.
    pub alone: bool,
}

/// All flows of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shares {
    /// Samples of all flows.
    samples: u64,
    number: u64,
    current: Slot,
    last: Slot,
    /// A flow has come since the queue was emptied last.
    newcomers: bool,
    /// When that began and ends.
    drain_from_ns: u64,
    drain_until_ns: u64,
}

/// What a flow knows of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Mean rate of all flows, bytes per second.
    pub mean: u64,
    /// Mean λ of all, in units of 1/256.
    pub lambda: u64,
    /// Smallest RTTmin of all, µs.
    pub rtt_min_us: u64,
    /// The queue is being emptied.
    pub drains: bool,
}

impl Shares {
    /// This host opens a connection, whose path is `known` if an earlier connection has measured it.
    pub fn open(&self, now: Instant, known: bool) -> Member {
        let others = match (now.0 / SLOT_NS + 1).wrapping_sub(self.number) {
            0 => self.current.flows + self.last.flows,
            1 => self.current.flows,
            _ => 0,
        };
        let slot = if known || others == 0 { MET_NO_QUEUE } else { 0 };
        Member { slot, samples: self.samples, alone: true }
    }

    /// A sample of a flow. What it knows of the others; `None` if there are none.
    pub fn take(&mut self, now: Instant, law: &Decided, member: &mut Member) -> Option<Share> {
        member.alone &= member.samples == self.samples;
        self.samples += 1;
        member.samples = self.samples;
        let number = now.0 / SLOT_NS + 1;
        if number != self.number {
            self.last = if number == self.number + 1 { self.current } else { Slot::default() };
            self.current = Slot::default();
            self.number = number;
        }
        if member.slot != number && law.round_rtt_us > 0 {
            self.newcomers |= member.slot == 0;
            member.slot = number;
            let rtt_min_us = law.rtt_min_us;
            let slot = &mut self.current;
            if slot.flows == 0 || rtt_min_us < slot.rtt_min_us {
                slot.rtt_min_us = rtt_min_us;
            }
            slot.rtt_max_us = slot.rtt_max_us.max(law.round_rtt_us);
            slot.rates += law.mean;
            slot.lambdas += law.lambda;
            slot.flows += 1;
        }
        let Slot { rates, lambdas, flows, rtt_min_us, rtt_max_us } = self.last;
        if flows < 2 {
            return None;
        }
        let rests = self.drain_from_ns == 0 || now.0 - self.drain_from_ns >= DRAIN_EVERY_NS;
        if self.newcomers && rests {
            self.newcomers = false;
            self.drain_from_ns = now.0;
            self.drain_until_ns = now.0 + DRAIN_ROUNDS * rtt_max_us * 1_000;
        }
        let drains = now.0 < self.drain_until_ns;
        Some(Share { mean: rates / flows, lambda: lambdas / flows, rtt_min_us, drains })
    }
}

/// The window beside other flows. `rate`: the flow's own, bytes per second; `added_us`: the time that
/// the queue of the opposite direction adds.
pub fn fair_window(law: &Decided, share: Share, rate: u64, added_us: u32) -> u64 {
    let rtt_min = law.rtt_min_us.min(MAX_RTT_US);
    if share.drains {
        // Half a bandwidth-delay product, since a newcomer's is too large by the queue that it met:
        // 0.787 with a whole one, 0.913 with three quarters.
        return law.bounded(rate * rtt_min / 1_000_000 / 2);
    }
    let queue = allowed_us(share.rtt_min_us.min(rtt_min), share.lambda);
    let us = rtt_min + queue + u64::from(added_us);
    let own = rate * us / 1_000_000;
    let towards = share.mean.min(rate + GAIN * rate);
    let mut window = (rate * (BETA - 1) + towards) / BETA * us / 1_000_000;
    // Less than a segment more would never be sent, nor less than the two that Linux sends at once,
    // where forwarded windows end with a pair (0.926 without).
    if share.mean > rate && own < BETA * law.mss {
        window = window.max(own + law.mss);
    } else if share.mean > rate + rate / 4 {
        window = window.max(own + 2 * law.mss);
    }
    law.bounded(window)
}
