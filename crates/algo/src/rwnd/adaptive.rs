//! λ and rate of a link that varies, beside [`super::drwa`].
//!
//! signal: bytes and mean RTT of rounds of one RTTmin · model: the queue that a round needs to keep the
//! link busy is the quantile of the link's variation at which the queue is empty in one round of seventeen
//! (what more would carry equals what it would cost); the rate is the largest of the last few seconds,
//! since a window that follows each slow moment is too small for the next fast one · action: λ rises by
//! a quarter after a round without a queue, and falls by a sixty-fourth after any other; the rate
//! rises at once and falls by a 44th per round, by a quarter
//! while a large queue shows that the link has become slower.
//!
//! Why: the law with a constant λ holds (λ−1) · RTTmin of queue on a steady link, which needs an eighth of
//! that, and on a drive it loses rate as soon as λ is smaller than what the rate multiplies by within a
//! round trip. Of both, the memory of the rate is worth more: docs/window-law.md has the ablations.
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
/// After a round without a queue. With an eighth, a link that becomes faster is filled two round trips
/// later.
const STEP_UP: u64 = LAMBDA_ONE / 4;
/// After a round with one. The ratio of both steps is the share of rounds without a queue at which λ
/// rests: 4 / (64 + 4).
const STEP_DOWN: u64 = LAMBDA_ONE / 64;
/// A queue of less than this part of RTTmin is none: samples of a path without a queue vary, by the
/// times at which a radio sends if by nothing else.
const EMPTY_NUM: u64 = 3;
const EMPTY_DEN: u64 = 16;
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

/// λ after a round whose queue was `queue_us` in the mean, before its bounds; not zero.
pub fn lambda(old: u64, queue_us: u64, rtt_min_us: u64) -> u64 {
    let empty = queue_us * EMPTY_DEN <= rtt_min_us * EMPTY_NUM;
    if empty { old + STEP_UP } else { old.saturating_sub(STEP_DOWN).max(1) }
}
