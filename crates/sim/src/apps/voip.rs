//! Voice over UDP, both ways, scored by the E-model.
//!
//! signal: delay and loss of the packets that arrived · model: ITU-T G.107 with its default values
//! and G.711 with packet-loss concealment (G.113 appendix I: Ie 0, Bpl 25.1): R = 93.2 − Id −
//! Ie,eff; a packet that comes later than the jitter buffer can wait is lost to it · action: MOS
//! per ten seconds, and for the whole call.

use units::{Duration, Instant};

/// Basic rating with all of G.107's defaults: Ro − Is.
const BASE: f64 = 93.2;
/// Robustness of G.711 with concealment against random loss (G.113 appendix I).
const BPL: f64 = 25.1;
/// Time that a score covers: long enough for a few hundred packets.
const WINDOW: Duration = Duration::from_secs(10);

/// MOS of a mouth-to-ear delay (ms) and a share of lost packets (G.107 clauses 7.4, 7.5 and annex B).
pub fn mos(d: f64, loss: f64) -> f64 {
    // Clause 7.4's Idd in the simplification that Cole and Rosenbluth derived for echo-free calls:
    // flat to 177.3 ms.
    let delay_impairment = 0.024 * d + if d > 177.3 { 0.11 * (d - 177.3) } else { 0.0 };
    let percent = loss * 100.0;
    let loss_impairment = 95.0 * percent / (percent + BPL);
    let r = BASE - delay_impairment - loss_impairment;
    if r <= 0.0 {
        1.0
    } else if r >= 100.0 {
        4.5
    } else {
        (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0)
    }
}

/// One direction of a call.
#[derive(Clone, Debug)]
pub struct Voice {
    every: Duration,
    jitter_buffer: Duration,
    /// Smallest delay so far: the jitter buffer counts from there.
    base: Option<Duration>,
    sent: u64,
    in_time: u64,
    window_from: Instant,
    total: (u64, u64),
}

impl Voice {
    /// A call that has not begun.
    pub fn new(every: Duration, jitter_buffer: Duration) -> Voice {
        Voice {
            every,
            jitter_buffer,
            base: None,
            sent: 0,
            in_time: 0,
            window_from: Instant::ZERO,
            total: (0, 0),
        }
    }

    /// A packet was sent; the score of a window that is complete.
    pub fn on_sent(&mut self, now: Instant) -> Option<f64> {
        let score = if self.sent > 0 && now.since(self.window_from) >= WINDOW {
            let score = self.score(self.sent, self.in_time);
            self.total = (self.total.0 + self.sent, self.total.1 + self.in_time);
            self.sent = 0;
            self.in_time = 0;
            Some(score)
        } else {
            None
        };
        if self.sent == 0 {
            self.window_from = now;
        }
        self.sent += 1;
        score
    }

    /// A packet arrived after `delay`.
    pub fn on_arrived(&mut self, delay: Duration) {
        let base = *self.base.get_or_insert(delay);
        self.base = Some(base.min(delay));
        if delay <= base + self.jitter_buffer {
            self.in_time += 1;
        }
    }

    fn score(&self, sent: u64, in_time: u64) -> f64 {
        // Mouth to ear: the network, the jitter buffer, and the packet that had to be filled first.
        let delay = self.base.unwrap_or(Duration::from_secs(1)) + self.jitter_buffer + self.every;
        // Packets on the way at the end of a window count as in time with the next one: the share
        // stays below 1.
        let loss = 1.0 - (in_time.min(sent) as f64 / sent.max(1) as f64);
        mos(delay.as_millis_f64(), loss)
    }

    /// MOS of the whole call; `None` where nothing was sent.
    pub fn total(&self) -> Option<f64> {
        let (sent, in_time) = (self.total.0 + self.sent, self.total.1 + self.in_time);
        (sent > 0).then(|| self.score(sent, in_time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_line_scores_above_four_and_delay_and_loss_cost() {
        // G.107 table B.1: R = 93.2 is "very satisfied", about 4.4.
        let perfect = mos(0.0, 0.0);
        assert!((4.40..4.42).contains(&perfect), "{perfect}");
        assert!(mos(150.0, 0.0) > 4.2);
        assert!(mos(600.0, 0.0) < 2.9);
        // R = 93.2 − 2.4 − 95 · 10 / 35.1 = 63.7
        assert!((3.25..3.35).contains(&mos(100.0, 0.1)));
        assert_eq!(mos(5_000.0, 0.5), 1.0);
    }

    #[test]
    fn a_packet_later_than_the_jitter_buffer_is_lost() {
        let ms = Duration::from_millis;
        let mut voice = Voice::new(ms(20), ms(60));
        for i in 0..100 {
            voice.on_sent(Instant::ZERO + ms(20) * i);
            // Every tenth packet comes 61 ms later than the fastest.
            voice.on_arrived(if i % 10 == 9 { ms(101) } else { ms(40) });
        }
        assert_eq!(voice.total(), Some(mos(120.0, 0.1)));
        assert_eq!(Voice::new(ms(20), ms(60)).total(), None);
    }
}
