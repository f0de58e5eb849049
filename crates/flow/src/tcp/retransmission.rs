//! Decides for each late segment whether it is a retransmission or reordered, and names the cause of retransmissions.
//!
//! signal: a segment below the highest sequence number seen.
//!
//! model: bytes already in the capture are a
//! retransmission. Otherwise the segment fills a hole, and the order in which it was *sent* decides, by the first of
//! these that is available:
//! 1. IP identification, which Linux counts up per socket; a step back counts up to 2,048 only, since a sender that counts
//!    the packets of all its connections may have passed half of the range;
//! 2. TSval: a retransmission has a newer one than the segment behind the hole;
//! 3. delay: a retransmission cannot arrive sooner than one RTT after the hole was seen;
//! 4. else the segment is ambiguous.
//!
//! action: the counters of [`crate::series::rows::Flow`].
//!
//! Causes of a retransmission:
//! - fast: duplicate ACKs, or SACK above the segment (RFC 5681 section 3.2, RFC 8985 section 6);
//! - timeout: silence for an RTO without such evidence (RFC 6298 section 5), and every retransmission after it up to the
//!   highest byte sent at that time; for the first unacknowledged segment 200 ms are enough, since without evidence
//!   nothing but a timer can have caused it;
//! - tail-loss probe: the last segment alone, sooner than the RTO (RFC 8985 section 7).
//!
//! Tested on pairs of captures from both ends with the log of the relay between them (`tests/truth`): the order of IP
//! identifications was right in 913 of 913 cases; TSval was right in 896, tied in 17, wrong in none.

use units::{Duration, Instant};

use crate::identity::sequence::Pos;

/// Minimum retransmission timeout of Linux (TCP_RTO_MIN). RFC 6298 says 1 s; no known stack waits less than 200 ms.
pub const RTO_MIN: Duration = Duration(200_000_000);

/// Timer of a SYN before the first RTT sample (RFC 6298 section 2.1).
const INITIAL_RTO: Duration = Duration(1_000_000_000);

/// The retransmission timeout by a smoothed RTT and its mean deviation (RFC 6298 section 2.3), with the minimum of Linux.
#[inline]
pub fn timeout(srtt: Duration, rttvar: Duration) -> Duration {
    srtt + RTO_MIN.max(rttvar * 4)
}

/// Timers of Linux count in jiffies, of 10 ms at most (HZ is 100 to 1,000), and may fire up to one early.
const JIFFY: Duration = Duration(10_000_000);

/// Other connections, offload and loss skip some identifications; random ones skip 32,768 on average.
const MAX_STEP: u16 = 2048;

/// Whether the IP identifications of one side show its sending order.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdOrder {
    last: u16,
    good: u16,
    bad: u16,
    /// Identification of the sender's next packet, if it counts them one by one.
    next: u16,
    exact: u16,
    inexact: u16,
}

impl IdOrder {
    /// A new in-order segment carried `id`.
    #[inline]
    pub fn observe(&mut self, id: u16) {
        let step = id.wrapping_sub(self.last);
        self.last = id;
        if (1..=MAX_STEP).contains(&step) {
            self.good = self.good.saturating_add(1);
        } else {
            self.bad = self.bad.saturating_add(1);
        }
    }

    /// A packet of this side, of `segments` on the wire, carried `id`; in order or not.
    #[inline]
    pub fn passed(&mut self, id: u16, segments: u16) {
        if id == self.next {
            self.exact = self.exact.saturating_add(1);
        } else {
            self.inexact = self.inexact.saturating_add(1);
        }
        self.next = id.wrapping_add(segments);
    }

    /// Number of this side's packets that were lost on the way to the capture just before the one with `id`. `None` if
    /// the identifications do not count packets one by one: nine of ten steps of at least 16 must.
    pub fn lost_before(&self, id: u16) -> Option<u16> {
        let counts = self.exact >= 16 && u32::from(self.inexact) * 10 <= u32::from(self.exact);
        Some(id.wrapping_sub(self.next)).filter(|lost| counts && *lost <= MAX_STEP)
    }

    /// Whether there were at least three steps in order, and nine of ten were.
    pub fn usable(&self) -> bool {
        self.good >= 3 && u32::from(self.bad) * 10 <= u32::from(self.good) + 10
    }
}

/// Missing bytes, with facts about the segment behind them that was seen first.
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    /// First missing byte.
    pub from: Pos,
    /// End of the missing bytes.
    pub to: Pos,
    /// Time when the hole was seen.
    pub since: Instant,
    /// IP identification of the segment behind it, 0 for none.
    pub ip_id: u16,
    /// TSval of the segment behind it.
    pub tsval: Option<u32>,
}

/// Verdict on a late segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// Lost before the capture and retransmitted.
    Retransmitted,
    /// Overtaken on the path.
    Reordered,
    /// Both are possible.
    Ambiguous,
}

/// Judges a segment that fills `hole` for the first time. `full_rtt` is the minimum RTT of the path.
pub fn judge(
    hole: &Hole,
    now: Instant,
    ip_id: u16,
    tsval: Option<u32>,
    order: IdOrder,
    full_rtt: Option<Duration>,
) -> Late {
    let mut far_step = false;
    if order.usable() && ip_id != 0 && hole.ip_id != 0 && ip_id != hole.ip_id {
        let step = ip_id.wrapping_sub(hole.ip_id);
        if step <= i16::MAX as u16 {
            return Late::Retransmitted;
        }
        // A farther step back is one forward by a sender that counts all its packets: the counter has passed half of its
        // range since.
        if hole.ip_id.wrapping_sub(ip_id) <= MAX_STEP {
            return Late::Reordered;
        }
        far_step = true;
    }
    if let (Some(mine), Some(behind)) = (tsval, hole.tsval)
        && mine != behind
    {
        return if (mine.wrapping_sub(behind) as i32) < 0 {
            Late::Reordered
        } else {
            Late::Retransmitted
        };
    }
    match full_rtt {
        // Nine tenths, because the smallest RTT may contain a delayed ACK.
        Some(rtt) if rtt > Duration::ZERO => {
            if now.since(hole.since) * 10 >= rtt * 9 {
                Late::Retransmitted
            } else if far_step || rtt >= INITIAL_RTO {
                // The smallest RTT may be that of a handshake in which a SYN was lost.
                Late::Ambiguous
            } else {
                Late::Reordered
            }
        }
        _ => Late::Ambiguous,
    }
}

/// Cause of a retransmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Duplicate ACKs, SACK, or RACK.
    Fast,
    /// The retransmission timer, or the recovery after it.
    Timeout,
    /// A tail-loss probe of the sender.
    TailProbe,
}

/// State of the loss recovery of the sender, as far as a capture shows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    phase: Phase,
    /// Highest byte sent when the recovery began: it ends when this byte is acknowledged.
    until: Pos,
    probed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Open,
    Fast,
    Timeout,
}

/// Facts about a retransmission and the moment of it.
#[derive(Clone, Copy, Debug)]
pub struct Retransmission {
    /// First byte retransmitted.
    pub start: Pos,
    /// End of the retransmitted bytes.
    pub end: Pos,
    /// Highest cumulative ACK so far.
    pub una: Pos,
    /// Highest byte sent so far.
    pub max: Pos,
    /// Duplicate ACKs in a row, or SACKed data above the segment.
    pub evidence: bool,
    /// Time since the last data or the last ACK with new information.
    pub silence: Duration,
    /// Smoothed RTT; zero when unknown.
    pub srtt: Duration,
    /// Mean deviation of the RTT (RFC 6298).
    pub rttvar: Duration,
    /// SACK was agreed on, or may have been: a tail-loss probe needs it.
    pub sack: bool,
}

impl Recovery {
    /// The cause of a retransmission, and whether a retransmission timeout has just fired.
    pub fn cause(&mut self, r: Retransmission) -> (Cause, bool) {
        let rto = timeout(r.srtt, r.rttvar);
        // RFC 8985 section 7.2: 2·SRTT, and time for a delayed ACK when only one segment is in flight.
        let lone = r.start <= r.una;
        let probe_after = r.srtt * 2 + if lone { RTO_MIN } else { Duration::ZERO };
        // Kernel timers fire up to a jiffy early against our smoothed figures, never a fifth.
        let timer_ran_out = r.silence * 5 >= rto * 4;
        let any_timer = r.silence + JIFFY >= RTO_MIN;
        let tail = r.end >= r.max;
        let (cause, fired) = match self.phase {
            Phase::Timeout if r.start < self.until => {
                // The timer fires again (back-off) when no answer to the first retransmission came.
                (Cause::Timeout, timer_ran_out && r.start <= r.una && r.silence >= RTO_MIN)
            }
            Phase::Fast if r.start < self.until && !(timer_ran_out && lone) => (Cause::Fast, false),
            // The timer never fires before 2·SRTT; sooner, it was RACK.
            _ if tail
                && !r.evidence
                && !self.probed
                && r.silence >= r.srtt
                && r.silence * 2 <= probe_after.min(rto) * 3 =>
            {
                // Without SACK, or in recovery, no probe is sent (RFC 8985 section 7.2): then the timer of the sender
                // was shorter than our estimate. It never is shorter than any known timer: within less, it is a copy of
                // the packet from another point of the path, or was sent for a reason that is not seen.
                if r.sack && self.phase == Phase::Open {
                    (Cause::TailProbe, false)
                } else if any_timer {
                    (Cause::Timeout, true)
                } else {
                    (Cause::Fast, false)
                }
            }
            _ if r.evidence && !(timer_ran_out && lone) => (Cause::Fast, false),
            _ if timer_ran_out => (Cause::Timeout, true),
            // Nothing informed the sender of a loss, so it was its timer, which then is shorter than our estimate.
            _ if lone && !r.evidence && any_timer => (Cause::Timeout, true),
            _ => (Cause::Fast, false),
        };
        match cause {
            Cause::Fast if self.phase != Phase::Fast => {
                *self = Recovery { phase: Phase::Fast, until: r.max, probed: self.probed };
            }
            Cause::Timeout if self.phase != Phase::Timeout => {
                *self = Recovery { phase: Phase::Timeout, until: r.max, probed: self.probed };
            }
            Cause::TailProbe => self.probed = true,
            _ => {}
        }
        (cause, fired)
    }

    /// Whether data sent before a loss was seen is not acknowledged yet.
    #[inline]
    pub fn is_under_way(&self, una: Pos) -> bool {
        self.phase != Phase::Open && una < self.until
    }

    /// The cumulative ACK moved to `una`.
    #[inline]
    pub fn acked(&mut self, una: Pos) {
        self.probed = false;
        if self.phase != Phase::Open && una >= self.until {
            self.phase = Phase::Open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }
    fn hole(ip_id: u16, tsval: Option<u32>) -> Hole {
        Hole { from: 0, to: 100, since: ms(100), ip_id, tsval }
    }
    fn order() -> IdOrder {
        let mut o = IdOrder::default();
        for id in 10..20 {
            o.observe(id);
        }
        o
    }

    #[test]
    fn identification_order_decides_first() {
        assert_eq!(judge(&hole(20, Some(9)), ms(101), 19, Some(9), order(), None), Late::Reordered);
        assert_eq!(
            judge(&hole(20, Some(9)), ms(101), 30, Some(9), order(), None),
            Late::Retransmitted
        );
        assert_eq!(
            judge(&hole(2, None), ms(101), 65_535, None, order(), None),
            Late::Reordered,
            "wraps"
        );
    }

    #[test]
    fn a_far_step_back_may_be_half_of_the_range_forward() {
        let late = |ip_id, ms_later: u64| {
            let rtt = Some(Duration::from_millis(360));
            judge(&hole(40_000, None), ms(100 + ms_later), ip_id, None, order(), rtt)
        };
        assert_eq!(late(40_000 - 2_048, 1_100), Late::Reordered);
        assert_eq!(
            late(40_000 - 2_049, 1_100),
            Late::Retransmitted,
            "more than a round trip later"
        );
        assert_eq!(late(40_000 - 2_049, 100), Late::Ambiguous, "less than one");
        assert_eq!(late(20_000, 1_100), Late::Retransmitted);
        assert_eq!(late(40_010, 100), Late::Retransmitted);
    }

    #[test]
    fn random_identifications_leave_it_to_the_timestamps() {
        let mut o = IdOrder::default();
        for id in [5, 40_000, 7, 60_000, 123] {
            o.observe(id);
        }
        assert!(!o.usable());
        assert_eq!(judge(&hole(20, Some(9)), ms(101), 30, Some(8), o, None), Late::Reordered);
        assert_eq!(judge(&hole(20, Some(9)), ms(101), 10, Some(10), o, None), Late::Retransmitted);
    }

    #[test]
    fn without_either_the_delay_decides_and_without_an_rtt_nothing_does() {
        let o = IdOrder::default();
        let rtt = Some(Duration::from_millis(40));
        assert_eq!(judge(&hole(0, None), ms(110), 0, None, o, rtt), Late::Reordered);
        assert_eq!(judge(&hole(0, None), ms(141), 0, None, o, rtt), Late::Retransmitted);
        assert_eq!(judge(&hole(0, None), ms(141), 0, None, o, None), Late::Ambiguous);
        let slow = Some(Duration::from_millis(1_400));
        assert_eq!(
            judge(&hole(0, None), ms(1_100), 0, None, o, slow),
            Late::Ambiguous,
            "a SYN lost?"
        );
        assert_eq!(judge(&hole(0, None), ms(1_400), 0, None, o, slow), Late::Retransmitted);
    }

    fn retransmission(start: Pos, max: Pos, silence_ms: u64, evidence: bool) -> Retransmission {
        Retransmission {
            start,
            end: start + 100,
            una: 0,
            max,
            evidence,
            silence: Duration::from_millis(silence_ms),
            srtt: Duration::from_millis(40),
            rttvar: Duration::from_millis(5),
            sack: true,
        }
    }

    #[test]
    fn sack_makes_it_fast_and_silence_a_timeout() {
        assert_eq!(
            Recovery::default().cause(retransmission(0, 1000, 1, true)),
            (Cause::Fast, false)
        );
        assert_eq!(
            Recovery::default().cause(retransmission(0, 1000, 250, false)),
            (Cause::Timeout, true)
        );
    }

    #[test]
    fn a_timer_shorter_than_our_estimate_is_a_timeout_unless_acks_informed_the_sender() {
        let slow = |evidence| Retransmission {
            srtt: Duration::from_millis(900),
            end: 100,
            ..retransmission(0, 1000, 600, evidence)
        };
        assert_eq!(Recovery::default().cause(slow(false)), (Cause::Timeout, true));
        assert_eq!(Recovery::default().cause(slow(true)), (Cause::Fast, false));
    }

    #[test]
    fn a_timer_may_fire_a_jiffy_early() {
        let after = |silence_ms| {
            let r = Retransmission {
                srtt: Duration::from_millis(90),
                ..retransmission(0, 1000, silence_ms, false)
            };
            Recovery::default().cause(r)
        };
        assert_eq!(after(191), (Cause::Timeout, true));
        assert_eq!(after(189), (Cause::Fast, false));
    }

    #[test]
    fn without_sack_the_last_segment_is_no_timeout_before_any_timer_can_fire() {
        let after = |silence_ms| {
            let r = Retransmission { sack: false, ..retransmission(900, 1000, silence_ms, false) };
            Recovery::default().cause(Retransmission { srtt: Duration::from_millis(1), ..r })
        };
        assert_eq!(after(2), (Cause::Fast, false), "a copy from another point of the path");
        assert_eq!(after(191), (Cause::Timeout, true));
    }

    #[test]
    fn what_follows_a_timeout_belongs_to_it_until_its_data_is_acked() {
        let mut r = Recovery::default();
        assert_eq!(r.cause(retransmission(0, 1000, 250, false)), (Cause::Timeout, true));
        assert_eq!(r.cause(retransmission(100, 1000, 0, false)), (Cause::Timeout, false));
        r.acked(1000);
        assert_eq!(r.cause(retransmission(1000, 3000, 1, true)).0, Cause::Fast);
    }

    #[test]
    fn the_last_segment_soon_after_is_a_tail_loss_probe_and_the_second_time_a_timeout() {
        let mut r = Recovery::default();
        assert_eq!(r.cause(retransmission(900, 1000, 85, false)), (Cause::TailProbe, false));
        assert_eq!(r.cause(retransmission(0, 1000, 245, false)), (Cause::Timeout, true));
    }
}
