//! Bursts of ACKs after a silence, and the bursts of data that follow them.
//!
//! A silence is a gap between ACKs of new data, with data in flight, of at least 50 ms and eight times the usual gap.
//! The burst is everything acknowledged in the first quarter of that length after the silence. It counts from eight
//! segments on, and only if its ACKs were late: a window that leaves at once comes back at once, a round trip later,
//! and the silence between is no stall. Late is an RTT (of either half of the path) longer than its minimum by half of
//! the silence. Results: number of bursts, maximum bytes acknowledged by one, maximum bytes that the sender then sent,
//! longest silence.
//!
//! TCP-tracing part 8 describes this pattern at second 22 of its sequence graph: the ACKs "seem to come in as a burst",
//! each followed by a burst of data up to the receive window.

use units::{Bytes, Duration, Instant};

use crate::series::evidence::Burst;

/// Longer than any ACK coalescing of LTE or Wi-Fi, and a considerable part of the jitter buffer of a call.
const MIN_SILENCE_NS: u64 = 50_000_000;
/// A silence is at least this many times the usual gap.
const SILENCE_FACTOR: u64 = 8;
/// ACKs are late from this part of the silence on. Not all of it: the segment that waited longest may be lost, or lack
/// a sample.
const LATE_PART: u64 = 2;
/// Fewer segments are an ordinary stretch ACK.
const MIN_SEGMENTS: u64 = 8;
/// Number of bursts stored for findings. Beyond, those after the longest silences are; counts and maxima cover all.
const MAX_STORED: usize = 32;

#[derive(Clone, Copy, Debug)]
struct OpenBurst {
    start: Instant,
    silence: u64,
    acked: u64,
    released: u64,
    /// The longest RTT of the burst above its minimum, ns; `None` without a sample.
    late: Option<u64>,
}

/// Detects the ACK bursts of one stream.
#[derive(Debug, Default)]
pub struct Bursts {
    last_ack: Option<Instant>,
    usual_gap: u64,
    open: Option<OpenBurst>,
    /// Number of bursts so far.
    pub count: u64,
    /// Maximum bytes acknowledged by one burst.
    pub acked_max: u64,
    /// Maximum bytes sent at once after one burst.
    pub released_max: u64,
    /// Longest silence before one, ns.
    pub silence_max: u64,
    /// The bursts after the longest silences.
    pub longest: Vec<Burst>,
}

impl Bursts {
    /// An ACK acknowledged `bytes` of new data at `now`; `waiting`: data was in flight since the last ACK. Returns the
    /// burst that ended before this ACK.
    #[inline]
    pub fn acked(&mut self, now: Instant, bytes: u64, waiting: bool, mss: u64) -> Option<Burst> {
        let mut ended = None;
        let gap = self.last_ack.map_or(0, |t| now.since(t).as_nanos());
        self.last_ack = Some(now);
        if let Some(open) = &mut self.open {
            if now.since(open.start).as_nanos() <= open.silence / 4 {
                open.acked += bytes;
                return None;
            }
            ended = self.end(mss);
        }
        if waiting
            && gap >= MIN_SILENCE_NS
            && gap >= self.usual_gap * SILENCE_FACTOR
            && self.usual_gap > 0
        {
            self.open =
                Some(OpenBurst { start: now, silence: gap, acked: bytes, released: 0, late: None });
        } else {
            // EWMA with weight 1/8, as for the RTT, so that a silence does not become the usual gap at once.
            self.usual_gap = if self.usual_gap == 0 { gap } else { (self.usual_gap * 7 + gap) / 8 };
        }
        ended
    }

    /// A sample of the RTT, or of one half of it, was longer than its minimum by `late` ns.
    #[inline]
    pub fn measured(&mut self, late: u64) {
        if let Some(open) = &mut self.open {
            open.late = Some(open.late.map_or(late, |longest| longest.max(late)));
        }
    }

    /// The sender sent `bytes` of payload.
    #[inline]
    pub fn sent(&mut self, now: Instant, bytes: u64) {
        if let Some(open) = &mut self.open
            && now.since(open.start).as_nanos() <= open.silence / 4
        {
            open.released += bytes;
        }
    }

    /// Ends the open burst; returns it if it counts.
    pub fn end(&mut self, mss: u64) -> Option<Burst> {
        let open = self.open.take()?;
        let in_time = open.late.is_some_and(|late| late * LATE_PART < open.silence);
        if open.acked < MIN_SEGMENTS * mss || in_time {
            return None;
        }
        self.count += 1;
        self.acked_max = self.acked_max.max(open.acked);
        self.released_max = self.released_max.max(open.released);
        self.silence_max = self.silence_max.max(open.silence);
        let burst = Burst {
            time: open.start,
            silence: Duration(open.silence),
            acked: Bytes(open.acked),
            released: Bytes(open.released),
        };
        if self.longest.len() < MAX_STORED {
            self.longest.push(burst);
        } else if let Some(shortest) = self.longest.iter_mut().min_by_key(|b| b.silence)
            && shortest.silence < burst.silence
        {
            *shortest = burst;
        }
        Some(burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_after_a_silence_are_one_burst_and_release_another() {
        let mut b = Bursts::default();
        let mut t = 0u64;
        for _ in 0..50 {
            t += 5_000_000;
            assert!(b.acked(Instant(t), 2_896, true, 1448).is_none());
        }
        t += 400_000_000;
        for _ in 0..30 {
            b.acked(Instant(t), 2_896, true, 1448);
            b.sent(Instant(t), 5_792);
            t += 100_000;
        }
        t += 300_000_000;
        let burst = b.acked(Instant(t), 1448, true, 1448).expect("the burst has ended");
        assert_eq!(burst.silence, Duration::from_millis(400));
        assert_eq!(burst.acked, Bytes(30 * 2_896));
        assert_eq!(burst.released, Bytes(30 * 5_792));
        assert_eq!(b.count, 1);
    }

    #[test]
    fn a_window_that_comes_back_a_round_trip_later_is_no_stall() {
        // Thirty segments in 30 ms, then nothing until they are acknowledged: a round trip of 600 ms without a queue.
        let bursts = |late: Option<u64>| {
            let mut b = Bursts::default();
            for round in 0..10u64 {
                for i in 0..30u64 {
                    b.acked(Instant((round * 600 + i) * 1_000_000), 1_448, true, 1_448);
                    if let Some(late) = late {
                        b.measured(late);
                    }
                }
            }
            b.end(1_448);
            b.count
        };
        assert_eq!(bursts(Some(20_000_000)), 0, "each ACK one round trip after its segment");
        assert!(bursts(Some(570_000_000)) >= 8, "each ACK as late as the silence is long");
        assert!(bursts(None) >= 8, "without a sample");
    }

    #[test]
    fn beyond_the_maximum_the_bursts_after_the_longest_silences_are_stored() {
        let mut b = Bursts::default();
        let mut t = 0u64;
        let count = MAX_STORED as u64 + 8;
        for i in 1..=count {
            // Short gaps first, so that the next silence stands out from them.
            for _ in 0..20 {
                t += 1_000_000;
                b.acked(Instant(t), 14_480, true, 1448);
            }
            t += 100_000_000 + i * 1_000_000;
            b.acked(Instant(t), 14_480, true, 1448);
        }
        b.end(1448);
        assert_eq!(b.count, count);
        let mut silences: Vec<u64> = b.longest.iter().map(|x| x.silence.as_nanos()).collect();
        silences.sort_unstable();
        assert_eq!(silences.len(), MAX_STORED);
        assert_eq!(silences[0], (100 + 9) * 1_000_000);
    }

    #[test]
    fn steady_acks_are_no_burst() {
        let mut b = Bursts::default();
        for i in 1..1000u64 {
            assert!(b.acked(Instant(i * 60_000_000), 1448, true, 1448).is_none());
        }
        assert_eq!(b.count, 0);
    }
}
