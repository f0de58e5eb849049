//! CAKE's virtual clock: when the next packet may leave at the shaped rate.
//!
//! The time has a fraction, so that rounding errors of single packets do not change the rate.

use units::{Duration, Instant, Rate};

/// `cake_set_rate`: the smallest shaped rate, 64 byte/s; with less, no packet would ever leave.
const MIN_BPS: u64 = 512;
/// A time with a fraction in 2⁻³² ns.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Clock {
    pub at: Instant,
    fraction: u32,
}

impl Clock {
    #[inline]
    pub fn starting(at: Instant) -> Clock {
        Clock { at, fraction: 0 }
    }

    /// Advances by `bytes`; `cost` is the time of a byte in 2⁻³² ns.
    #[inline]
    pub fn after(self, bytes: u64, cost: u64) -> Clock {
        let sum = u128::from(bytes) * u128::from(cost) + u128::from(self.fraction);
        Clock {
            at: self.at + Duration(u64::try_from(sum >> 32).unwrap_or(u64::MAX)),
            fraction: (sum & u128::from(u32::MAX)) as u32,
        }
    }

    #[inline]
    pub fn not_before(&mut self, now: Instant) {
        if self.at < now {
            *self = Clock::starting(now);
        }
    }
}

/// Time of a byte in 2⁻³² ns; at [`MIN_BPS`], shifted by a tin's threshold, it still fits.
pub(super) fn byte_cost(rate: Rate) -> u64 {
    ((8_000_000_000_u128 << 32) / u128::from(rate.0.max(MIN_BPS))) as u64
}
