//! The rate at which the sockets of this host are paced below a gate, so that it need not refuse what they
//! send. Integers only: the agent's eBPF program (`pacing.h`) computes the same, bit for bit.
//!
//! signal: the gate's estimate of the buffer, its limit and the link's rate; the fair share of a flow · model:
//! the buffer drains at the link's rate and fills at the sum of all pacing rates · action: all flows
//! together send what brings the buffer to its limit within [`FILL_NS`]; each flow sends its share of that.
//!
//! Below its limit the sum is above the link's rate, so that it follows a link that has become faster: what
//! drained before its time shows in the next report. Above, it is below the rate, and the queue drains.
//!
//! Source: own. BBR (Cardwell et al., ACM Queue 2016) paces at its estimate of the rate, too, with gains in
//! phases of a round trip. Here the gain follows from the buffer, which the modem reports.
//!
//! Deviations: never below [`LEAST`] and half of the link's rate, because a timer that has been set for a
//! packet stays when the rate rises, and because the rate is an estimate. Before the first estimate of the
//! rate and without reports nothing is paced.

use super::{Share, rate_over};

/// The time in which the buffer comes to its limit.
pub const FILL_NS: u64 = 20_000_000;
/// Lower bound of a flow's rate, bytes per second: a packet every 100 ms, the age of a modem's reports.
pub const LEAST: u64 = 15_000;

/// The pacing rate of a flow, bytes per second; `rate`: of the link, `occupancy` and `limit`: of the buffer
/// below the gate.
#[inline]
pub const fn pace(rate: u64, occupancy: u64, limit: u64, share: Share) -> u64 {
    let all = if occupancy <= limit {
        rate.saturating_add(rate_over(limit - occupancy, FILL_NS))
    } else {
        let slower = rate.saturating_sub(rate_over(occupancy - limit, FILL_NS));
        if slower > rate / 2 { slower } else { rate / 2 }
    };
    let all = if all < u32::MAX as u64 { all } else { u32::MAX as u64 };
    // In 65536ths; an account has 32 bits, and there are 256.
    let part = if share.all > share.fair { (share.fair << 16) / share.all } else { 1 << 16 };
    let own = (all * part) >> 16;
    if own > LEAST { own } else { LEAST }
}
