//! Which data of this host's sockets a gate without a queue refuses. Integers only: the agent's eBPF
//! program (`gate.h`) decides the same, bit for bit.
//!
//! signal: the gate's estimate of the buffer and its limit; the account of the flow and the fair share
//! ([`Accounts`]); how much longer than on the empty path the flow's round trips are · model: a refused
//! segment stays in its socket, and the socket takes the refusal for congestion (Linux `tcp_enter_cwr`). So a
//! flow below its share, and one that was refused within the last round trip, may fill more · action: the
//! occupancy up to which a segment passes.
//!
//! A flow with a long round trip sends trains of packets with gaps between them: ACKs that waited behind
//! another queue return as a burst. If such trains were refused, the window could never grow to fill the
//! link. So as far as the link is idle on average, occupancy may exceed the limit by what drains in the time
//! by which the round trip is longer.
//!
//! Source: own. Fair shares are those of [`Accounts`]; FQ-CoDel prefers sparse flows, too (RFC 8290
//! section 4.2).
//!
//! Deviations from `gate.h`: forwarded packets, and what is neither data of TCP nor a bare ACK, are not
//! refused here. They pass at four limits there, or are lost.

use units::{Duration, Instant};

use super::accounts::SWEEP_NS;
use super::{Accounts, Share, drained};

/// Nanoseconds of a millisecond.
const NS_PER_MS: u64 = 1_000_000;
/// The link's idle time is averaged over about a second.
const BUSY_NS: u64 = 1_000_000_000;
/// Interval between two samples of that average: packets of a train are closer, and each would add less
/// than one.
const BUSY_STEP_NS: u64 = 10_000_000;
/// A link that is always busy.
pub const BUSY_FULL: u64 = 1 << 24;
/// A refusal takes effect at the sender after a round trip, at least CoDel's interval (RFC 8289 section
/// 3.2), at most what a full buffer in the other direction makes of it.
pub const REACTION_MS: u64 = 100;
const MAX_REACTION_MS: u64 = 3_000;
/// A flow that has passed nothing for half a second may pass one packet: a retransmission after an outage
/// that is refused would double its timer.
const QUIET_BYTES: u64 = 100;
/// Such a packet, and one of a socket with nothing in flight, passes up to this occupancy, whatever the
/// limit: no acknowledgment would make the socket try again.
const ONE_PACKET_LIMIT: u64 = 24_000;
/// A sparse flow's account: two packets, since its socket simply waits.
const SPARSE_BYTES: u64 = 3_000;

/// The average share of time in which the buffer was not empty, in units of [`BUSY_FULL`]; for the last
/// `ns` it was so (`now`) or not.
#[inline]
pub const fn busy(busy: u64, now: bool, ns: u64) -> u64 {
    let share = if ns < BUSY_NS { ns } else { BUSY_NS };
    busy - drained(busy, share) + if now { drained(BUSY_FULL, share) } else { 0 }
}

/// Bytes beyond the limit for a flow whose round trips are so much longer than on the empty path.
#[inline]
pub const fn train(busy: u64, rate: u64, longer_us: u64) -> u64 {
    drained(rate, longer_us.saturating_mul(1_000)).saturating_mul(BUSY_FULL.saturating_sub(busy))
        / BUSY_FULL
}

/// What a segment of data finds at the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The balance of its flow's account, without and with it.
    pub before: u64,
    /// …
    pub after: u64,
    /// The flow was refused within its last round trip: a second refusal would reduce it twice for one cause.
    pub refused_lately: bool,
    /// Its socket has nothing in flight.
    pub alone: bool,
}

/// The occupancy up to which a segment passes. Half a limit more than the limit, because TCP goes back to
/// 0.7 (CUBIC, RFC 9438 section 4.6) or 0.5 of what filled path and limit: with less above the path the link
/// would run empty each time.
#[inline]
pub const fn allowed(limit: u64, fair: u64, segment: Segment) -> u64 {
    if segment.alone || segment.before < QUIET_BYTES {
        return if 4 * limit > ONE_PACKET_LIMIT { 4 * limit } else { ONE_PACKET_LIMIT };
    }
    let sparse = if fair / 2 < SPARSE_BYTES { fair / 2 } else { SPARSE_BYTES };
    if segment.after <= sparse {
        4 * limit
    } else if segment.after <= fair || segment.refused_lately {
        2 * limit
    } else {
        limit + limit / 2
    }
}

/// The time after a refusal within which another one counts as the same cause, ms.
#[inline]
pub const fn reaction_ms(srtt_us: u64) -> u64 {
    let ms = srtt_us / 1_000;
    if ms < REACTION_MS {
        REACTION_MS
    } else if ms > MAX_REACTION_MS {
        MAX_REACTION_MS
    } else {
        ms
    }
}

/// By how much a flow's round trips are longer than on the empty path, µs.
#[inline]
pub const fn longer_us(reaction_ms: u64, rtt_min_us: u64) -> u64 {
    let least = if rtt_min_us < REACTION_MS * 1_000 { rtt_min_us } else { REACTION_MS * 1_000 };
    (reaction_ms * 1_000).saturating_sub(least)
}

/// The state of one device's refusals.
#[derive(Clone, Debug, Default)]
pub struct Refusal {
    accounts: Accounts,
    fair: u64,
    swept: u64,
    busy: u64,
    busy_at: u64,
}

impl Refusal {
    /// A packet passed; `occupancy`: before it.
    pub fn on_passed(&mut self, now: Instant, flow: u32, bytes: u64, occupancy: u64) {
        self.sample(now, occupancy);
        self.accounts.on_passed(now, flow, bytes);
    }

    /// A report came; `rate`: of the link by it.
    pub fn on_report(&mut self, now: Instant, rate: u64, occupancy: u64) {
        self.sample(now, occupancy);
        if now.0.saturating_sub(self.swept) >= SWEEP_NS {
            self.swept = now.0;
            let Share { fair, .. } = self.accounts.share(now, rate);
            // An eighth below the exact one, so that flows that are even all count as above it.
            self.fair = fair - fair / 8;
        }
    }

    fn sample(&mut self, now: Instant, occupancy: u64) {
        let passed = now.0.saturating_sub(self.busy_at);
        if passed >= BUSY_STEP_NS {
            self.busy = busy(self.busy, occupancy > 0, passed);
            self.busy_at = now.0;
        }
    }

    /// What the data of a flow meet now.
    pub fn admission(
        &self,
        now: Instant,
        flow: u32,
        rate: u64,
        occupancy: u64,
        limit: u64,
    ) -> Admission {
        let before = self.accounts.balance(now, flow);
        Admission { rate, occupancy, limit, fair: self.fair, busy: self.busy, before }
    }
}

/// The gate as the segments of one flow find it at one time; each that passes counts for the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    rate: u64,
    occupancy: u64,
    limit: u64,
    fair: u64,
    busy: u64,
    before: u64,
}

impl Admission {
    /// Whether a segment of so many bytes passes. `srtt`: smoothed RTT of its connection; `rtt_min`: smallest;
    /// `refused_at`: when it was refused last, but for repetitions; `alone`: it has nothing in flight.
    pub fn passes(
        &mut self,
        now: Instant,
        bytes: u64,
        (srtt, rtt_min): (Duration, Duration),
        refused_at: &mut Option<Instant>,
        alone: bool,
    ) -> bool {
        let reaction = reaction_ms(srtt.0 / 1_000);
        let since_ms = |at: Instant| (now.0 / NS_PER_MS).saturating_sub(at.0 / NS_PER_MS);
        let segment = Segment {
            before: self.before,
            after: self.before + bytes,
            refused_lately: refused_at.is_some_and(|at| since_ms(at) < reaction),
            alone,
        };
        let longer = longer_us(reaction, rtt_min.0 / 1_000);
        let most = allowed(self.limit, self.fair, segment) + train(self.busy, self.rate, longer);
        let passes = self.occupancy <= most;
        if passes {
            self.occupancy += bytes;
            self.before = segment.after;
        } else if !segment.refused_lately {
            *refused_at = Some(now);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 6_000;
    const FAIR: u64 = 20_000;

    fn segment(before: u64) -> Segment {
        Segment { before, after: before + 1_500, refused_lately: false, alone: false }
    }

    #[test]
    fn a_flow_above_its_share_passes_least() {
        assert_eq!(allowed(LIMIT, FAIR, segment(30_000)), 9_000);
        assert_eq!(allowed(LIMIT, FAIR, segment(10_000)), 12_000, "below its share");
        assert_eq!(allowed(LIMIT, FAIR, segment(1_000)), 24_000, "sparse");
        let lately = Segment { refused_lately: true, ..segment(30_000) };
        assert_eq!(allowed(LIMIT, FAIR, lately), 12_000);
        let alone = Segment { alone: true, ..segment(30_000) };
        assert_eq!(allowed(LIMIT, FAIR, alone), 24_000);
        assert_eq!(allowed(0, FAIR, alone), ONE_PACKET_LIMIT, "whatever the limit");
    }

    #[test]
    fn an_idle_link_takes_trains_and_a_busy_one_none() {
        assert_eq!(train(0, 250_000, 100_000), 25_000);
        assert_eq!(train(BUSY_FULL, 250_000, 100_000), 0);
        let mut share = 0;
        for _ in 0..200 {
            share = busy(share, true, 10_000_000);
        }
        assert!((BUSY_FULL * 8 / 10..BUSY_FULL).contains(&share), "{share}: two seconds");
    }

    #[test]
    fn segments_pass_until_the_buffer_is_full_and_again_when_it_has_drained() {
        let mut refusal = Refusal::default();
        // The link is busy, and the flow's account is full.
        for ms in 0..3_000_u64 {
            refusal.on_passed(Instant(ms * 1_000_000), 1, 250, 1);
            refusal.on_report(Instant(ms * 1_000_000), 250_000, 1);
        }
        let now = Instant(3_000_000_000);
        let rtt = (Duration::from_millis(60), Duration::from_millis(60));
        let passed = |occupancy| {
            let mut admission = refusal.admission(now, 1, 250_000, occupancy, LIMIT);
            (0..20).take_while(|_| admission.passes(now, 1_500, rtt, &mut None, false)).count()
        };
        // One and a half limits, a train of 40 ms of an idle share of a twentieth, and the last on top.
        assert!((7..=8).contains(&passed(0)), "{}", passed(0));
        assert_eq!(passed(20_000), 0);
    }
}
