//! How the congestion window shows in a flow without loss: by the growth of slow start, and by the ACK clock.
//!
//! signal: bytes acknowledged per round trip; how soon new data follows an acknowledgement · model: in slow start the rate
//! grows by a quarter within three rounds (BBR's full-pipe test), and by more than congestion avoidance adds.
//! A sender whose congestion window is full sends when an ACK arrives; one that waits for its application or for a pacing
//! timer sends at any time between two of them · action: the limits `slow_start` and `congestion_window`.

use units::Instant;

/// Rounds without a quarter more rate that end slow start: BBR's full-pipe test (draft-ietf-ccwg-bbr 5.3.1.2).
const FLAT_ROUNDS: u8 = 3;
/// Segments per round trip by which the bytes of a round trip must grow in slow start. Congestion avoidance adds one; while
/// the window is small that is a quarter and more. Slow start doubles, which adds two from two segments on.
const MORE_SEGMENTS: f64 = 1.5;
/// Acknowledgements that must have released data, for the ACK clock to show.
const CLOCKED_ACKS: f32 = 8.0;
/// Share of a bin's acknowledgements that still counts in the next: about a second of them, as for the queueing delay.
const CLOCK_KEPT: f32 = 0.875;
/// Data that does not depend on the ACKs follows them after half of their distance on average: this share of it is the
/// most that counts as released by them.
const CLOCKED_LAG: f32 = 4.0;

/// Acknowledgements of the bins without a queue, about a second of them, and the data that followed.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckClock {
    acks: f32,
    released: f32,
    lag: f32,
    time: f32,
}

/// Whether the rate still grows as in slow start.
#[derive(Clone, Copy, Debug)]
pub struct SlowStart {
    pub on: bool,
    round_start: Instant,
    round_bytes: u64,
    best: f64,
    /// End of the round of `best`.
    best_at: Instant,
    flat: u8,
}

/// What a round trip and a segment are at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Smoothed RTT, and at least that of the handshake, ns. At the receiver the first sample comes a round trip late.
    pub rtt: u64,
    /// Segment size, bytes.
    pub mss: u32,
}

impl SlowStart {
    /// Slow start from `at` on.
    pub fn begin(at: Instant) -> SlowStart {
        SlowStart { on: true, round_start: at, round_bytes: 0, best: 0.0, best_at: at, flat: 0 }
    }

    /// `bytes` were acknowledged.
    pub fn delivered(&mut self, bytes: u64, at: Instant, round: Round) {
        self.round_bytes += bytes;
        let elapsed = at.since(self.round_start).as_nanos();
        // At least ten milliseconds, because the rate in one RTT of a LAN is noise.
        let rtt = round.rtt.max(10_000_000);
        if elapsed < rtt {
            return;
        }
        let rate = self.round_bytes as f64 / elapsed as f64;
        // Segments per round trip, more than those of the best round, and round trips since then.
        let more = (rate - self.best) * rtt as f64 / f64::from(round.mss.max(1));
        let since = at.since(self.best_at).as_nanos() as f64 / rtt as f64;
        let first = self.best == 0.0;
        if first || rate >= self.best * 1.25 && more > MORE_SEGMENTS * since {
            self.best = rate;
            self.best_at = at;
            self.flat = 0;
        } else {
            self.flat += 1;
            self.on = self.flat < FLAT_ROUNDS;
        }
        self.round_start = at;
        self.round_bytes = 0;
    }
}

impl AckClock {
    /// Adds a bin of `span`: acknowledgements of new data, how many new data followed, and after how long in all, ns.
    pub fn add(&mut self, acks: u32, released: u32, lag: u64, span: u64) {
        for (sum, more) in [
            (&mut self.acks, acks as f32),
            (&mut self.released, released as f32),
            (&mut self.lag, lag as f32),
            (&mut self.time, span as f32),
        ] {
            *sum = *sum * CLOCK_KEPT + more;
        }
    }

    /// Most acknowledgements let new data leave, at once: neither the application nor a pacing timer set its time.
    pub fn shown(&self) -> bool {
        let half = self.released >= CLOCKED_ACKS && self.released * 2.0 >= self.acks;
        // Mean lag and mean distance, both times `released` and `acks`.
        half && self.lag * CLOCKED_LAG * self.acks <= self.time * self.released
    }
}
