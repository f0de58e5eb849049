//! The fair share of each flow that passes a gate. Integers only: the agent's eBPF program (`gate.h`)
//! computes the same, bit for bit.
//!
//! signal: bytes that each flow has passed lately · model: one account per flow that decays with a
//! half-life of 100 ms, and the max-min fair share of all accounts · action: that share, as a part of all.
//! Source: max-min fairness by progressive filling (Bertsekas and Gallager, *Data Networks*, section 6.5.2);
//! flows that share an account share its treatment, as in FQ-CoDel (RFC 8290 section 4.1.1).
//!
//! Deviation: three rounds from below and not as many as there are flows. Stopping early gives a share that
//! is too small.

use units::Instant;

use super::drained;

/// Accounts: a sweep over all of them costs microseconds.
pub const FLOWS: usize = 256;
/// Half-life of an account: several round trips of a mobile network, so that it does not follow the gaps
/// between bursts.
const HALF_LIFE_MS: u32 = 100;
/// Balance of an account at a constant rate: rate · this (100 ms / ln 2). An account that is updated every
/// few milliseconds decays linearly each time, and has up to 200 ms of its rate.
const MEMORY_NS: u64 = 144_270_000;
/// An account below this belongs to a flow that has ended.
const ENDED_BYTES: u64 = 64;
/// Interval between two sweeps of the accounts, and two samples of the rate: that of the rate's average.
pub(super) const SWEEP_NS: u64 = 20_000_000;
/// Rounds after the first.
const ROUNDS: usize = 3;

/// The balance of an account in bytes. An account has bytes in the upper half and time in ms in the lower
/// half, so that the eBPF program can read it at once without a lock.
#[inline]
pub const fn balance(account: u64, now: u64) -> u64 {
    let bytes = account >> 32;
    let age = ((now / 1_000_000) as u32).wrapping_sub(account as u32);
    // Time from another processor's clock.
    if (age as i32) < 0 {
        return bytes;
    }
    if age >= 32 * HALF_LIFE_MS {
        return 0;
    }
    let bytes = bytes >> (age / HALF_LIFE_MS);
    // Within a half-life the decay is linear.
    bytes - bytes * (age % HALF_LIFE_MS) as u64 / (2 * HALF_LIFE_MS) as u64
}

/// An account of so many bytes.
#[inline]
pub const fn account(bytes: u64, now: u64) -> u64 {
    let bytes = if bytes < u32::MAX as u64 { bytes } else { u32::MAX as u64 };
    bytes << 32 | ((now / 1_000_000) as u32) as u64
}

/// The accounts of one device.
#[derive(Clone, Debug)]
pub struct Accounts([u64; FLOWS]);

/// The fair share of a flow, and what all flows have together; both in bytes of an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Of one flow.
    pub fair: u64,
    /// Of all: at least what the link moves, since an idle link has its whole rate to share.
    pub all: u64,
}

impl Default for Accounts {
    fn default() -> Accounts {
        Accounts([0; FLOWS])
    }
}

impl Accounts {
    /// A packet of a flow passed.
    #[inline]
    pub fn on_passed(&mut self, now: Instant, flow: u32, bytes: u64) {
        let place = &mut self.0[flow as usize % FLOWS];
        *place = account(balance(*place, now.0).saturating_add(bytes), now.0);
    }

    /// The balance of a flow's account now, bytes.
    pub fn balance(&self, now: Instant, flow: u32) -> u64 {
        balance(self.0[flow as usize % FLOWS], now.0)
    }

    /// The fair share now.
    pub fn share(&self, now: Instant, rate: u64) -> Share {
        share(self.0.iter().map(|one| balance(*one, now.0)), rate)
    }
}

/// The fair share of these balances on a link of so many bytes per second: flows below it keep theirs, the
/// others divide the rest.
pub fn share(balances: impl Iterator<Item = u64> + Clone, rate: u64) -> Share {
    let mut share = Share::default();
    for _ in 0..=ROUNDS {
        let (mut below, mut above, first) = (0, 0, share.fair == 0);
        for bytes in balances.clone().filter(|bytes| *bytes >= ENDED_BYTES) {
            if bytes > share.fair {
                above += 1;
                share.all += if first { bytes } else { 0 };
            } else {
                below += bytes;
            }
        }
        share.all = share.all.max(drained(rate, MEMORY_NS));
        share.fair = share.fair.max(share.all.saturating_sub(below) / u64::max(above, 1));
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_balance_halves_in_a_tenth_of_a_second_and_is_gone_after_three() {
        let one = account(10_000, 7 * MS);
        let after = |ms: u64| balance(one, (7 + ms) * MS);
        assert_eq!((after(0), after(50), after(100), after(200)), (10_000, 7_500, 5_000, 2_500));
        assert_eq!(after(3_200), 0);
        assert_eq!(balance(one, 6 * MS), 10_000, "the clock of another processor");
    }

    #[test]
    fn a_balance_at_a_constant_rate_is_what_the_rate_moves_in_its_memory() {
        let (mut accounts, rate) = (Accounts::default(), 250_000);
        for packet in 0..1_000 {
            accounts.on_passed(Instant(packet * 6 * MS), 3, 1_500);
        }
        let found = accounts.share(Instant(6_000 * MS), rate);
        assert!(
            (drained(rate, MEMORY_NS)..drained(rate, 205 * MS)).contains(&found.all),
            "{found:?}"
        );
        assert_eq!(found.fair, found.all, "it is alone");
    }

    #[test]
    fn flows_below_the_share_keep_theirs_and_the_others_divide_the_rest() {
        let of = |balances: &[u64]| share(balances.iter().copied(), 0);
        assert_eq!(of(&[3_000, 3_000, 3_000]), Share { fair: 3_000, all: 9_000 });
        assert_eq!(of(&[1_000, 7_000, 7_000]), Share { fair: 7_000, all: 15_000 });
        assert_eq!(of(&[10, 6_000]), Share { fair: 6_000, all: 6_000 }, "it has ended");
        assert_eq!(of(&[]), Share::default());
        let idle = share([].iter().copied(), 1_000_000);
        assert_eq!((idle.fair, idle.all), (144_270, 144_270), "an idle link has all to share");
    }
}
