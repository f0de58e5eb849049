//! Detects token-bucket policers: two lossy intervals at the same rate.
//!
//! signal: bytes delivered and lost per interval of rounds · model: an interval begins and ends with a
//! loss, when the bucket is empty. Two successive intervals that lost a fifth each at the same rate mean
//! a policer · action: that rate replaces the estimate for 48 rounds.
//!
//! Source: Linux `tcp_bbr.c`, the `lt_bw` part; on policers: Flach et al., "An Internet-wide analysis of
//! traffic policing", SIGCOMM 2016.

use units::{Bytes, Instant};

/// Rounds of the shortest interval (`bbr_lt_intvl_min_rtts`); the longest has four times as many.
const MIN_ROUNDS: u64 = 4;
/// Share of the delivered bytes whose loss makes an interval lossy (`bbr_lt_loss_thresh`, 50 / 256).
const LOSSY: f64 = 50.0 / 256.0;
/// Two rates are the same if they differ by at most an eighth (`bbr_lt_bw_ratio`) …
const SAME_RATIO: f64 = 1.0 / 8.0;
/// … or by 4 kbit/s, in bytes per second (`bbr_lt_bw_diff`).
const SAME_DIFFERENCE: f64 = 4_000.0 / 8.0;
/// Rounds for which the policed rate is used (`bbr_lt_bw_max_rtts`).
const MAX_ROUNDS: u64 = 48;

/// The input from one ACK.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    /// Bytes delivered since the beginning.
    pub(super) delivered: Bytes,
    /// Bytes lost since the beginning.
    pub(super) lost: Bytes,
    /// The ACK marks data lost.
    pub(super) losing: bool,
    /// The application limits the sender.
    pub(super) app_limited: bool,
    /// The ACK begins a round.
    pub(super) round_start: bool,
    /// The sender is in the gain cycle: only then do the rounds of use count.
    pub(super) cycling: bool,
}

/// The policer detection of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    in_use: bool,
    sampling: bool,
    /// Bytes per second in the last lossy interval, or the mean of two equal ones; 0: none yet.
    rate: f64,
    rounds: u64,
    since: Instant,
    delivered: Bytes,
    lost: Bytes,
}

impl Policer {
    /// The policed rate, while it is in use.
    #[inline]
    pub(super) fn rate(&self) -> Option<f64> {
        self.in_use.then_some(self.rate)
    }

    /// Returns to the initial state.
    pub(super) fn reset(&mut self) {
        *self = Policer::default();
    }

    fn begin(&mut self, now: Instant, evidence: &Evidence) {
        self.since = now;
        self.delivered = evidence.delivered;
        self.lost = evidence.lost;
        self.rounds = 0;
    }

    /// Takes an ACK into account. True if the use of the policed rate ends now and the gain cycle has
    /// to restart.
    #[inline]
    pub(super) fn on_ack(&mut self, now: Instant, evidence: &Evidence) -> bool {
        if self.in_use {
            if evidence.cycling && evidence.round_start {
                self.rounds += 1;
                if self.rounds >= MAX_ROUNDS {
                    self.reset();
                    return true;
                }
            }
            return false;
        }
        // Before the first loss the bucket still has tokens: that rate would be too high.
        if !self.sampling {
            if !evidence.losing {
                return false;
            }
            self.begin(now, evidence);
            self.sampling = true;
        }
        if evidence.app_limited {
            self.reset();
            return false;
        }
        self.rounds += u64::from(evidence.round_start);
        if self.rounds < MIN_ROUNDS {
            return false;
        }
        if self.rounds > 4 * MIN_ROUNDS {
            self.reset();
            return false;
        }
        if evidence.losing {
            self.end(now, evidence);
        }
        false
    }

    fn end(&mut self, now: Instant, evidence: &Evidence) {
        let delivered = (evidence.delivered - self.delivered).0 as f64;
        let lost = (evidence.lost - self.lost).0 as f64;
        let seconds = now.since(self.since).as_secs_f64();
        // The kernel's clock for this has a resolution of a millisecond.
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
        self.begin(now, evidence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 100 ms that deliver 75,000 bytes and lose `lost` each.
    fn run(policer: &mut Policer, from: u64, rounds: u64, lost: u64) -> bool {
        let mut ended = false;
        for i in from..from + rounds {
            let evidence = Evidence {
                delivered: Bytes(75_000 * i),
                lost: Bytes(lost * i),
                losing: lost > 0,
                app_limited: false,
                round_start: true,
                cycling: true,
            };
            ended |= policer.on_ack(Instant(100_000_000 * i), &evidence);
        }
        ended
    }

    #[test]
    fn two_intervals_that_lose_a_quarter_at_the_same_rate_are_a_policer() {
        let mut policer = Policer::default();
        run(&mut policer, 1, 4, 25_000);
        assert_eq!(policer.rate(), None, "one interval is not enough");
        run(&mut policer, 5, 6, 25_000);
        let rate = policer.rate().expect("two intervals agree");
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
    fn application_limited_intervals_do_not_count() {
        let mut policer = Policer::default();
        run(&mut policer, 1, 5, 25_000);
        let evidence = Evidence { app_limited: true, losing: true, ..Evidence::default() };
        policer.on_ack(Instant(600_000_000), &evidence);
        run(&mut policer, 6, 4, 25_000);
        assert_eq!(policer.rate(), None);
    }
}
