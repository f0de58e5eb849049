//! λ and rate of a link that varies, beside [`super::drwa`].
//!
//! signal: bytes and mean RTT of rounds of one RTTmin · model: λ is large enough if the queue runs empty, or to
//! two segments, in one round of seventeen; the rate is the largest of the last seconds, since a window that follows each
//! slow moment is too small for the next fast one · action: λ rises by a quarter after a round without a
//! queue, and falls by a sixty-fourth after any other. The rate rises at once. It falls by a 44th per
//! round, or by a quarter while a large queue shows that the link has become slower.
//!
//! Why: with a constant λ the queue of a steady link is (λ−1) · RTTmin, though an eighth of RTTmin would do. On
//! a drive the law loses rate as soon as λ is smaller than the factor by which the rate grows within a
//! round trip. docs/window-law.md has the ablations.
//!
//! Rounds last one RTTmin and not one RTT, because bytes that arrive say the rate at once, whatever
//! waits in the queue; with a queue of a second the law would decide once a second.
//!
//! Source: this project. The step is the stochastic approximation of a quantile (Robbins and Monro, "A
//! Stochastic Approximation Method", 1951). That a maximum of recent rates says what a varying link
//! can carry is BBR's model (Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016). Every
//! constant was chosen on the tuning half of the links of `unbloat reproduce front`; `bpf/law.h` of the
//! agent computes the same bit for bit.

/// λ counts in units of 1/256 here: the smaller step is a sixty-fourth.
pub const LAMBDA_ONE: u64 = 256;
/// After a round without a queue: from 1.25 to 1.75 in two rounds.
const STEP_UP: u64 = LAMBDA_ONE / 4;
/// After a round with one. The ratio of both steps is the share of rounds without a queue at which λ
/// rests: 4 / (64 + 4).
const STEP_DOWN: u64 = LAMBDA_ONE / 64;
/// A queue of less than this part of RTTmin is none: samples of a path without a queue vary, by the
/// times at which a radio sends if by nothing else.
pub(super) const EMPTY_NUM: u64 = 3;
pub(super) const EMPTY_DEN: u64 = 16;
/// Of a queue in the opposite direction this much is no queue of the flow's own. What is certain of it
/// is a lower bound: in bursts, a quarter. Download beside upload, both held (8 and 2 Mbit/s): 5.7 and
/// 1.41 Mbit/s with 1, 7.1 and 1.43 with 4.
const BESIDE: u64 = 4;
/// Less than this part of RTTmin is an echo that waited for a delayed ACK.
const BESIDE_DEN: u64 = 32;
/// Memory of the rate in rounds: some two seconds at 50 ms, as long as fades of a drive last.
const MEMORY: u64 = 44;
/// The same while the queue is larger than so many RTTmin: the link has become slower, and is not in a
/// short fade. Without it, a step from 10 to 1 Mbit/s has half a second of queue for six seconds.
const MEMORY_LARGE: u64 = 4;
const LARGE: u64 = 3;
/// Rounds of the mean rate: less than a second.
const MEAN: u64 = 8;
/// A round has at least so many segments, unless it lasts one RTT: with two, the pair that a delayed ACK
/// releases would be a rate.
const SEGMENTS: u64 = 4;

/// Nor are so many segments one where a round of one RTTmin carries few (RFC 8289 section 4.4 has the rule for one MTU): a
/// delayed ACK releases two, and the second waits for the first. Without it windows of a slow radio, whose rounds jitter
/// by more than `EMPTY`, stayed at four segments when it became fast again: on ten LTE drives ACK-window rewriting kept
/// 0.69 of the goodput.
const FEW_SEGMENTS: u64 = 2;
/// So many are few: of eight, two are the quarter that the smallest λ allows. On faster links the rule would make the
/// smallest λ a larger one (2 Mbit/s and 50 ms: p95 of the queue of 27 ms, not 8).
const SMALL_SEGMENTS: u64 = 8;

/// Whether a round has ended. Times in µs; `samples`: RTT samples in it.
pub fn round_ends(
    elapsed: u64,
    rtt: u64,
    rtt_min: u64,
    bytes: u64,
    mss: u64,
    samples: u64,
) -> bool {
    elapsed >= rtt || elapsed >= rtt_min && bytes >= SEGMENTS * mss && samples > 0
}

/// The length of a round by the clock of the far end, µs, where ACKs at its end came `sooner_ns` sooner than
/// at its begin; `rtt_us` bounds what a clock that was set can do. ACKs that waited behind the other
/// direction's queue come in bursts (ACK compression; Zhang, Shenker and Clark, SIGCOMM 1991), and the
/// largest rate of seconds would be that of a burst.
pub fn elapsed(elapsed_us: u64, sooner_ns: i64, rtt_us: u64) -> u64 {
    elapsed_us + (sooner_ns.max(0) as u64 / 1_000).min(rtt_us)
}

/// The mean rate after a round: beside other flows a window follows it, since the largest rates of
/// two that share a link say little of their shares. Of 24 cases of `unbloat reproduce fairness` 19 are
/// fair with the largest, 24 with the mean.
pub fn mean(old: u64, new: u64) -> u64 {
    if old == 0 { new } else { (old * (MEAN - 1) + new) / MEAN }
}

/// What of an RTT is not the flow's own queue, where `beside_us` of the opposite direction's is certain, µs.
pub fn beside(beside_us: u64, rtt_min_us: u64) -> u64 {
    BESIDE * beside_us.saturating_sub(rtt_min_us / BESIDE_DEN)
}

/// The rate after a round that carried `new`, bytes per second; `old` is zero before the first.
pub fn rate(old: u64, new: u64, queue_us: u64, rtt_min_us: u64) -> u64 {
    let memory = if queue_us > LARGE * rtt_min_us { MEMORY_LARGE } else { MEMORY };
    if new >= old { new } else { (old * (memory - 1) + new) / memory }
}

/// λ after a round whose queue was `queue_us` in the mean, before its bounds; not zero. `rate`: of the round, bytes per
/// second; `mss`: payload of a full segment.
pub fn lambda(old: u64, queue_us: u64, rtt_min_us: u64, rate: u64, mss: u64) -> u64 {
    let few = rate * queue_us / 1_000_000 <= FEW_SEGMENTS * mss
        && rate * rtt_min_us / 1_000_000 < SMALL_SEGMENTS * mss;
    let empty = queue_us * EMPTY_DEN <= rtt_min_us * EMPTY_NUM || few;
    if empty { old + STEP_UP } else { old.saturating_sub(STEP_DOWN).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// λ after so many rounds with these queues by turns, µs, of an RTTmin of 60 ms.
    fn after(rounds: usize, queues_us: &[u64]) -> u64 {
        let mut found = LAMBDA_ONE * 3 / 2;
        for queue in queues_us.iter().cycle().take(rounds) {
            found = lambda(found, *queue, 60_000, 1_000_000, 1_448)
                .clamp(LAMBDA_ONE * 5 / 4, LAMBDA_ONE * 7 / 4);
        }
        found
    }

    #[test]
    fn lambda_falls_where_a_queue_stands_and_rises_where_none_does() {
        assert_eq!(after(100, &[30_000]), LAMBDA_ONE * 5 / 4);
        assert_eq!(after(100, &[5_000]), LAMBDA_ONE * 7 / 4);
        // One round of three without a queue is more than one of seventeen, one of forty is less.
        assert!(after(120, &[5_000, 30_000, 30_000]) > LAMBDA_ONE * 3 / 2);
        let mut seldom = [30_000; 40];
        seldom[0] = 5_000;
        assert!(after(400, &seldom) < LAMBDA_ONE * 3 / 2);
    }

    #[test]
    fn a_queue_of_two_segments_is_none_where_a_round_carries_few() {
        let after = |rate: u64, queue_us| lambda(LAMBDA_ONE, queue_us, 60_000, rate, 1_000);
        let (up, down) = (LAMBDA_ONE + STEP_UP, LAMBDA_ONE - STEP_DOWN);
        // 2,000 bytes in 20 ms; in 60 ms 6 segments.
        assert_eq!((after(100_000, 20_000), after(100_000, 20_020)), (up, down));
        // 8 segments in 60 ms.
        assert_eq!((after(133_332, 15_000), after(133_334, 15_000)), (up, down));
    }

    #[test]
    fn the_rate_rises_at_once_and_falls_slowly_unless_a_large_queue_stands() {
        assert_eq!(rate(0, 1_000, 0, 60_000), 1_000);
        assert_eq!(rate(1_000, 5_000, 0, 60_000), 5_000);
        let rounds = |queue_us| {
            let (mut found, mut count) = (1_000_000, 0);
            while found > 500_000 {
                found = rate(found, 100_000, queue_us, 60_000);
                count += 1;
            }
            count
        };
        assert_eq!((rounds(180_000), rounds(180_001)), (36, 3));
    }

    #[test]
    fn a_burst_of_acks_is_as_long_as_its_data_took_to_arrive() {
        assert_eq!(elapsed(10_000, 50_000_000, 200_000), 60_000);
        assert_eq!(elapsed(60_000, -50_000_000, 200_000), 60_000);
        // A clock that was set counts for one RTT at most.
        assert_eq!(elapsed(10_000, i64::MAX, 200_000), 210_000);
    }
}
