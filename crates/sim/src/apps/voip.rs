//! Voice over UDP, both ways, scored by the E-model.
//!
//! signal: delay and loss of the packets that arrived · model: ITU-T G.107 with its default values
//! and G.711 with packet-loss concealment (G.113 appendix I: Ie 0, Bpl 25.1): R = 93.2 − Id −
//! Ie,eff; a packet that comes after its playout is lost; the delay is the mean of the playout
//! delays in use · action: MOS per ten seconds, and for the whole call.

use scenario::JitterBuffer;
use units::{Duration, Instant};

use super::playout::Playout;

/// Basic rating with all of G.107's defaults: Ro − Is.
const BASE: f64 = 93.2;
/// Robustness of G.711 with concealment against random loss (G.113 appendix I).
const BPL: f64 = 25.1;
/// Time that a score covers: long enough for a few hundred packets.
const WINDOW: Duration = Duration::from_secs(10);
/// Playout delay where no packet ever arrived: any does, as all is lost.
const SILENCE: Duration = Duration::from_secs(1);

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

/// Packets of a span of time.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    sent: u64,
    arrived: u64,
    in_time: u64,
    /// Sum of the playout delays of what arrived, in time or not.
    playout_ms: f64,
}

impl Count {
    fn with(self, other: Count) -> Count {
        Count {
            sent: self.sent + other.sent,
            arrived: self.arrived + other.arrived,
            in_time: self.in_time + other.in_time,
            playout_ms: self.playout_ms + other.playout_ms,
        }
    }
}

/// One direction of a call.
#[derive(Clone, Debug)]
pub struct Voice {
    every: Duration,
    playout: Playout,
    /// Playout delay of the packet that came last.
    last_playout: Option<Duration>,
    window: Count,
    window_from: Instant,
    before: Count,
}

impl Voice {
    /// A call that has not begun.
    pub fn new(every: Duration, jitter_buffer: JitterBuffer) -> Voice {
        Voice {
            every,
            playout: Playout::new(jitter_buffer),
            last_playout: None,
            window: Count::default(),
            window_from: Instant::ZERO,
            before: Count::default(),
        }
    }

    /// A packet was sent; the score of a window that is complete.
    pub fn on_sent(&mut self, now: Instant) -> Option<f64> {
        let score = if self.window.sent > 0 && now.since(self.window_from) >= WINDOW {
            let score = self.score(self.window);
            self.before = self.before.with(self.window);
            self.window = Count::default();
            Some(score)
        } else {
            None
        };
        if self.window.sent == 0 {
            self.window_from = now;
        }
        self.window.sent += 1;
        score
    }

    /// A packet arrived after `delay`.
    pub fn on_arrived(&mut self, delay: Duration) {
        let due = self.playout.on_arrived(delay);
        self.last_playout = Some(due);
        self.window.arrived += 1;
        self.window.playout_ms += due.as_millis_f64();
        self.window.in_time += u64::from(delay <= due);
    }

    fn score(&self, count: Count) -> f64 {
        let playout_ms = if count.arrived > 0 {
            count.playout_ms / count.arrived as f64
        } else {
            self.last_playout.unwrap_or(SILENCE).as_millis_f64()
        };
        // Packets on the way at the end of a window count as in time with the next one: the share
        // stays below 1.
        let loss = 1.0 - (count.in_time.min(count.sent) as f64 / count.sent.max(1) as f64);
        // Mouth to ear: the playout, and the packet that had to be filled first.
        mos(playout_ms + self.every.as_millis_f64(), loss)
    }

    /// MOS of the whole call; `None` where nothing was sent.
    pub fn total(&self) -> Option<f64> {
        let all = self.before.with(self.window);
        (all.sent > 0).then(|| self.score(all))
    }
}

/// (time, MOS) of each ten seconds, and of the whole call: from the times of sending, in order, and
/// (time, delay) of each arrival. The lab scores its packets so.
pub fn scores(
    every: Duration,
    jitter_buffer: JitterBuffer,
    sent: &[Instant],
    mut arrived: Vec<(Instant, Duration)>,
) -> (Vec<(Instant, f64)>, Option<f64>) {
    arrived.sort_by_key(|(at, _)| *at);
    let mut coming = arrived.into_iter().peekable();
    let mut call = Voice::new(every, jitter_buffer);
    let mut windows = Vec::new();
    for &now in sent {
        while let Some((_, delay)) = coming.next_if(|(at, _)| *at <= now) {
            call.on_arrived(delay);
        }
        windows.extend(call.on_sent(now).map(|score| (now, score)));
    }
    coming.for_each(|(_, delay)| call.on_arrived(delay));
    (windows, call.total())
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

    fn ms(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    const ADAPTIVE: JitterBuffer = JitterBuffer::Adaptive { least: Duration::from_millis(20) };

    /// MOS of packets with these delays.
    fn scored(buffer: JitterBuffer, delays_ms: impl Iterator<Item = u64>) -> f64 {
        let mut voice = Voice::new(ms(20), buffer);
        for (i, delay) in delays_ms.enumerate() {
            voice.on_sent(Instant::ZERO + ms(20) * i as u64);
            voice.on_arrived(ms(delay));
        }
        voice.total().unwrap_or(0.0)
    }

    #[test]
    fn a_packet_later_than_a_fixed_buffer_is_lost() {
        let fixed = JitterBuffer::Fixed(ms(60));
        // Every tenth packet comes 61 ms later than the fastest.
        let score = scored(fixed, (0..100).map(|i| if i % 10 == 9 { 101 } else { 40 }));
        assert!((score - mos(120.0, 0.1)).abs() < 1e-12);
        assert_eq!(Voice::new(ms(20), fixed).total(), None);
    }

    #[test]
    fn a_queue_of_100_ms_that_stands_costs_its_delay_and_no_packet() {
        // One packet finds the path of 50 ms empty, then the queue stands.
        let queue = |i: u64| if i == 0 { 50 } else { 150 };
        let score = scored(ADAPTIVE, (0..3_000).map(queue));
        assert!((score - scored(ADAPTIVE, (0..3_000).map(|_| 150))).abs() < 0.02, "{score}");
        assert!((4.2..4.35).contains(&score), "{score}");
        // A fixed buffer of 60 ms loses all but the first.
        assert!(scored(JitterBuffer::Fixed(ms(60)), (0..3_000).map(queue)) < 1.2);
    }

    #[test]
    fn scores_of_times_are_those_of_the_calls_own_events() {
        let sent: Vec<Instant> = (0..1_000).map(|i| Instant::ZERO + ms(20) * i).collect();
        let delay = |i: usize| ms(50 + (i as u64 * 37) % 90);
        // In any order: arrivals are sorted.
        let arrived = sent.iter().enumerate().rev().map(|(i, at)| (*at + delay(i), delay(i)));
        let (windows, total) = scores(ms(20), ADAPTIVE, &sent, arrived.collect());
        assert_eq!(windows.len(), 1);
        assert_eq!(windows[0].0, sent[500]);
        assert!(total.is_some_and(|score| (2.0..4.4).contains(&score)), "{total:?}");
    }
}
