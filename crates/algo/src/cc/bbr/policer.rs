//! Token-bucket policers: two lossy stretches at the same rate say that the path drops what exceeds it.
//!
//! signal: bytes delivered and lost per stretch of rounds · model: stretches begin and end with a loss, when the bucket
//! is empty; two neighbours that lost a fifth each and agree in rate are a policer · action: that rate replaces the
//! estimate for 48 rounds. Source: Linux `tcp_bbr.c`, the `lt_bw` part; the phenomenon: Flach et al., "An Internet-wide
//! analysis of traffic policing", SIGCOMM 2016.

use units::{Bytes, Instant};

/// Rounds of the shortest stretch (`bbr_lt_intvl_min_rtts`); four times as many are the longest.
const MIN_ROUNDS: u64 = 4;
/// Share of the delivered bytes whose loss makes a stretch lossy (`bbr_lt_loss_thresh`, 50 / 256).
const LOSSY: f64 = 50.0 / 256.0;
/// Two rates agree that differ by at most an eighth (`bbr_lt_bw_ratio`) …
const SAME_RATIO: f64 = 1.0 / 8.0;
/// … or by 4 kbit/s, in bytes per second (`bbr_lt_bw_diff`).
const SAME_DIFFERENCE: f64 = 4_000.0 / 8.0;
/// Rounds for which the rate found is used (`bbr_lt_bw_max_rtts`).
const MAX_ROUNDS: u64 = 48;

/// What one ACK tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// Total delivered.
    pub(super) delivered: Bytes,
    /// Total lost.
    pub(super) lost: Bytes,
    /// Something was marked lost just now.
    pub(super) losing: bool,
    /// The application limits the sender.
    pub(super) app_limited: bool,
    /// A round begins.
    pub(super) round_start: bool,
    /// The gain cycle runs: only then do the rounds of use count.
    pub(super) cycling: bool,
}

/// The policer detection of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    in_use: bool,
    sampling: bool,
    /// Bytes per second of the last lossy stretch, or the mean of the two that agreed; 0: none yet.
    rate: f64,
    rounds: u64,
    since: Instant,
    delivered: Bytes,
    lost: Bytes,
}

impl Policer {
    /// The policed rate, while it is to be used.
    #[inline]
    pub(super) fn rate(&self) -> Option<f64> {
        self.in_use.then_some(self.rate)
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        *self = Policer::default();
    }

    fn begin(&mut self, now: Instant, signs: &Signs) {
        self.since = now;
        self.delivered = signs.delivered;
        self.lost = signs.lost;
        self.rounds = 0;
    }

    /// True when the use of the policed rate ends now and the gain cycle begins anew.
    #[inline]
    pub(super) fn on_signs(&mut self, now: Instant, signs: &Signs) -> bool {
        if self.in_use {
            if signs.cycling && signs.round_start {
                self.rounds += 1;
                if self.rounds >= MAX_ROUNDS {
                    self.reset();
                    return true;
                }
            }
            return false;
        }
        // What comes before the first loss are the bucket's savings: too fast.
        if !self.sampling {
            if !signs.losing {
                return false;
            }
            self.begin(now, signs);
            self.sampling = true;
        }
        if signs.app_limited {
            self.reset();
            return false;
        }
        self.rounds += u64::from(signs.round_start);
        if self.rounds < MIN_ROUNDS {
            return false;
        }
        if self.rounds > 4 * MIN_ROUNDS {
            self.reset();
            return false;
        }
        if signs.losing {
            self.end(now, signs);
        }
        false
    }

    fn end(&mut self, now: Instant, signs: &Signs) {
        let delivered = (signs.delivered - self.delivered).0 as f64;
        let lost = (signs.lost - self.lost).0 as f64;
        let seconds = now.since(self.since).as_secs_f64();
        // Below a millisecond the kernel's clock for this shows nothing.
        if delivered == 0.0 || lost < LOSSY * delivered || seconds < 1e-3 {
            return;
        }
        let rate = delivered / seconds;
        let difference = (rate - self.rate).abs();
        if self.rate > 0.0
            && (difference <= SAME_RATIO * self.rate || difference <= SAME_DIFFERENCE)
        {
            self.rate = (rate + self.rate) / 2.0;
            self.in_use = true;
            self.rounds = 0;
            return;
        }
        self.rate = rate;
        self.begin(now, signs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 100 ms that deliver 75,000 bytes and lose `lost` each.
    fn run(policer: &mut Policer, from: u64, rounds: u64, lost: u64) -> bool {
        let mut ended = false;
        for i in from..from + rounds {
            let signs = Signs {
                delivered: Bytes(75_000 * i),
                lost: Bytes(lost * i),
                losing: lost > 0,
                app_limited: false,
                round_start: true,
                cycling: true,
            };
            ended |= policer.on_signs(Instant(100_000_000 * i), &signs);
        }
        ended
    }

    #[test]
    fn two_stretches_that_lose_a_quarter_at_the_same_rate_are_a_policer() {
        let mut policer = Policer::default();
        run(&mut policer, 1, 4, 25_000);
        assert_eq!(policer.rate(), None, "one stretch is not enough");
        run(&mut policer, 5, 6, 25_000);
        let rate = policer.rate().expect("two stretches agree");
        assert!((rate - 750_000.0).abs() < 1.0, "{rate}");
    }

    #[test]
    fn a_loss_below_a_fifth_is_no_policer() {
        let mut policer = Policer::default();
        run(&mut policer, 1, 60, 10_000);
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn the_policed_rate_is_used_for_48_rounds() {
        let mut policer = Policer::default();
        run(&mut policer, 1, 8, 25_000);
        assert!(policer.rate().is_some());
        assert!(!run(&mut policer, 9, 47, 0));
        assert!(policer.rate().is_some());
        assert!(run(&mut policer, 56, 1, 0));
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn a_sender_without_data_is_not_policed() {
        let mut policer = Policer::default();
        run(&mut policer, 1, 5, 25_000);
        let signs = Signs { app_limited: true, losing: true, ..Signs::default() };
        policer.on_signs(Instant(600_000_000), &signs);
        run(&mut policer, 6, 4, 25_000);
        assert_eq!(policer.rate(), None);
    }
}
