//! The rate at which the sockets of this host are paced below a gate, so that it need not refuse what they
//! send. Integers only: the agent's eBPF program (`pacing.h`) computes the same, bit for bit.
//!
//! signal: the gate's estimate of the buffer, its limit and the link's rate, with each packet and each
//! report; the fair share of a flow ([`Accounts`]); ACKs without data at the gate · model: the buffer drains
//! at the link's rate and fills at the sum of all pacing rates. An estimate that is 100 ms old is right only
//! while the rate is steady · action: all flows together send what brings the buffer close to its limit
//! within [`FILL_NS`]; each flow sends its share of that. Nothing is paced where the rate is not steady,
//! where it is so low that the gate's limit is a number of packets, and where no bare ACKs come.
//!
//! Bare ACKs show a download. Its queue delays the ACKs of an upload, which come back in trains; the
//! upload's window then leaves in trains, too, and the gate cuts them. An upload alone has an even clock of
//! ACKs and fills the link behind the gate. Pacing would only add the timers' delays to it.
//!
//! Below the level the sum is above the link's rate, so that it follows a link that has become faster: what
//! drained before its time shows in the next report. Above it, it is below the rate, and the queue drains.
//!
//! Source: own. BBR (Cardwell et al., ACM Queue 2016) paces at its estimate of the rate, too, with gains in
//! phases of a round trip. Here the gain follows from the buffer, which the modem reports.
//!
//! Deviations: never below [`LEAST`] and three quarters of the link's rate, because a timer that has been
//! set for a packet stays when the rate rises, and because the rate is an estimate. Before the first estimate
//! of the rate and without reports nothing is paced.

use units::Instant;

use super::accounts::SWEEP_NS;
use super::{Accounts, Share, account, balance, drained, rate_over};

/// The time in which the buffer comes to its level: three bursts of two segments, as the kernel paces, at
/// 2 Mbit/s. With half of it a steady link behind the kernel's gate runs dry now and then.
pub const FILL_NS: u64 = 40_000_000;
/// Lower bound of a flow's rate, bytes per second: a packet every 100 ms, the age of a modem's reports.
pub const LEAST: u64 = 15_000;
/// Weight of a sample in the rate's mean and mean deviation, one in so many: about two thirds of a second.
const STEADY_ONE_IN: u64 = 32;
/// The rate is steady while its mean deviation is at most one part in so many of its mean. On recorded LTE
/// uplinks a quarter paces where it costs up to 5 % of the goodput; an eighth does not.
const DEVIATES_ONE_IN: u64 = 8;
/// The target must drain so many times the gate's floor: with fewer packets than three the floor is much of
/// the limit, and sockets paced by the kernel's own rate lose up to a tenth of the goodput of recorded
/// uplinks below 1 Mbit/s.
const FLOORS: u64 = 3;

/// Bare ACKs of the last tenth of a second, in bytes of an account, that show a download: two of 52 bytes.
const ACKS_BYTES: u64 = 100;

/// The pacing rate of a flow, bytes per second; `rate`: of the link, `occupancy`: of the buffer below the
/// gate, `full`: how much there the gate lets such a flow fill, `part`: the flow's share, in 65536ths.
#[inline]
pub const fn pace(rate: u64, occupancy: u64, full: u64, part: u64) -> u64 {
    // The rest is for packets that nothing paces: ACKs, pings, other hosts.
    let level = full - full / 6;
    let all = if occupancy <= level {
        rate.saturating_add(rate_over(level - occupancy, FILL_NS))
    } else {
        let slower = rate.saturating_sub(rate_over(occupancy - level, FILL_NS));
        let least = rate - rate / 4;
        if slower > least { slower } else { least }
    };
    let all = if all < u32::MAX as u64 { all } else { u32::MAX as u64 };
    let own = (all * part) >> 16;
    if own > LEAST { own } else { LEAST }
}

/// A share in 65536ths.
#[inline]
pub const fn part(share: Share) -> u64 {
    // An account has 32 bits, and there are 256.
    if share.all > share.fair { (share.fair << 16) / share.all } else { 1 << 16 }
}

/// Whether bare ACKs pass, by their account.
#[inline]
pub const fn beside_download(acks: u64, now: u64) -> bool {
    balance(acks, now) >= ACKS_BYTES
}

/// One step of an average towards a sample.
const fn towards(value: u64, sample: u64) -> u64 {
    if sample > value {
        value + (sample - value) / STEADY_ONE_IN
    } else {
        value - (value - sample) / STEADY_ONE_IN
    }
}

/// How steady the link's rate is: its mean and mean deviation, bytes per second. All zero before the first
/// rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Steadiness {
    /// Mean.
    pub mean: u64,
    /// Mean deviation from it; at first as much as the mean, since nothing is known.
    pub deviation: u64,
}

impl Steadiness {
    /// After another sample of the rate.
    pub const fn with(self, rate: u64) -> Steadiness {
        if self.mean == 0 {
            return Steadiness { mean: rate, deviation: rate };
        }
        let mean = towards(self.mean, rate);
        Steadiness { mean, deviation: towards(self.deviation, rate.abs_diff(mean)) }
    }

    /// Whether flows are to be paced.
    pub const fn paces(self, rate: u64, target_ns: u64, floor: u64) -> bool {
        self.mean > 0
            && self.deviation.saturating_mul(DEVIATES_ONE_IN) <= self.mean
            && drained(rate, target_ns) >= floor.saturating_mul(FLOORS)
    }
}

/// The pacing of one device.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    accounts: Accounts,
    steadiness: Steadiness,
    swept: u64,
    part: u64,
    /// An account of bare ACKs.
    acks: u64,
    /// Bytes per second; 0: nothing is paced.
    pace: u64,
}

impl Pacer {
    /// A packet of a flow passed.
    #[inline]
    pub fn on_passed(&mut self, now: Instant, flow: u32, bytes: u64, bare: bool) {
        self.accounts.on_passed(now, flow, bytes);
        if bare {
            self.acks = account(balance(self.acks, now.0).saturating_add(bytes), now.0);
        }
    }

    /// A report came; `rate`: of the link by it.
    pub fn on_report(&mut self, now: Instant, rate: u64) {
        if now.0.saturating_sub(self.swept) >= SWEEP_NS {
            self.swept = now.0;
            self.part = part(self.accounts.share(now, rate));
            self.steadiness = self.steadiness.with(rate);
        }
    }

    /// After each of both: what the gate knows, and its constants.
    #[inline]
    pub fn decide(
        &mut self,
        now: Instant,
        rate: u64,
        occupancy: u64,
        limit: u64,
        target_ns: u64,
        floor: u64,
    ) {
        let paces =
            beside_download(self.acks, now.0) && self.steadiness.paces(rate, target_ns, floor);
        self.pace = if paces { pace(rate, occupancy, limit, self.part) } else { 0 };
    }

    /// The share of a flow, in 65536ths.
    pub fn part(&self) -> u64 {
        self.part
    }

    /// How steady the rate is.
    pub fn steadiness(&self) -> Steadiness {
        self.steadiness
    }

    /// The rate of each flow, bytes per second.
    pub fn pace(&self) -> Option<u64> {
        (self.pace > 0).then_some(self.pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const ALL: u64 = 1 << 16;
    const RATE: u64 = 250_000;
    const FULL: u64 = 6_000;

    #[test]
    fn an_empty_buffer_is_filled_and_a_full_one_drains() {
        assert_eq!(pace(RATE, 5_000, FULL, ALL), RATE, "at its level");
        assert_eq!(pace(RATE, 0, FULL, ALL), RATE + 125_000);
        assert_eq!(pace(RATE, FULL, FULL, ALL), RATE - 25_000);
        assert_eq!(pace(RATE, 100 * FULL, FULL, ALL), 187_500, "the rate is an estimate");
        assert_eq!(pace(RATE, 5_000, FULL, ALL / 4), RATE / 4);
        assert_eq!(pace(0, FULL, FULL, ALL), LEAST, "an outage");
        assert_eq!(pace(u64::MAX, 0, u64::MAX, ALL), u64::from(u32::MAX));
    }

    #[test]
    fn bare_acks_show_a_download_for_a_moment() {
        let acks = account(104, 0);
        assert!(beside_download(acks, 5 * MS));
        assert!(!beside_download(acks, 50 * MS));
        assert!(!beside_download(account(52, 0), 0));
    }

    #[test]
    fn flows_are_paced_while_the_rate_is_steady_and_not_too_low() {
        let steady = |rates: &[u64]| {
            let from = Steadiness::default();
            rates.iter().cycle().take(200).fold(from, |now, rate| now.with(*rate))
        };
        assert!(!Steadiness::default().with(RATE).paces(RATE, 20 * MS, 1_500), "nothing is known");
        assert!(!Steadiness::default().paces(0, 20 * MS, 0), "nor where the gate has no floor");
        assert!(steady(&[RATE]).paces(RATE, 20 * MS, 1_500));
        assert!(steady(&[RATE, RATE * 11 / 10]).paces(RATE, 20 * MS, 1_500));
        assert!(!steady(&[RATE, RATE * 2]).paces(RATE, 20 * MS, 1_500));
        assert!(!steady(&[100_000]).paces(100_000, 20 * MS, 1_500), "2,000 bytes in 20 ms");
        let jumped = steady(&[RATE]).with(4 * RATE).with(4 * RATE);
        assert!(!jumped.paces(4 * RATE, 20 * MS, 1_500));
        let edge = Steadiness { mean: u64::MAX, deviation: u64::MAX };
        assert!(edge.paces(u64::MAX, u64::MAX, 0), "no number is too large");
    }

    #[test]
    fn the_rates_of_all_flows_follow_a_link_that_becomes_faster() {
        // Three flows on a fluid link whose rate doubles; the estimate is an average of what drained.
        let (mut pacer, mut link, mut rate) = (Pacer::default(), 250_000_u64, 250_000_u64);
        let (mut buffer, mut carried) = (0_u64, 0_u64);
        for ms in 0..6_000_u64 {
            link = if ms < 3_000 { link } else { 500_000 };
            let now = Instant(ms * MS);
            let sent = pacer.pace().unwrap_or(link / 3) / 1_000;
            for flow in 0..3 {
                pacer.on_passed(now, flow, sent, false);
            }
            let drains = (buffer + 3 * sent).min(link / 1_000);
            buffer = buffer + 3 * sent - drains;
            pacer.on_passed(now, 3, 52, true);
            carried += if ms >= 4_000 { drains } else { 0 };
            // An empty buffer shows a lower bound only, as with `hold`.
            let sample = drains * 1_000;
            rate = if buffer == 0 {
                rate.max(rate + (sample.max(rate) - rate) / 80)
            } else {
                rate + (sample.max(rate) - rate) / 80
            };
            pacer.on_report(now, rate);
            pacer.decide(now, rate, buffer, rate / 50, 20 * MS, 1_500);
        }
        assert!(carried > 950_000, "{carried} of 1,000,000 bytes in the last two seconds");
        assert!(buffer <= 10_000, "{buffer}");
    }
}
