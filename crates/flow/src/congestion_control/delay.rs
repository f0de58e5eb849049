//! What a sender does that answers the delay: it sends less while there is a queue, without a loss or a mark.
//!
//! model: Vegas takes a segment per RTT from the window while more than four of its segments wait (`tcp_vegas.c`); CDG cuts
//! to 0.7 when the delay rises (`tcp_cdg.c`), LP to the half or to one segment (`tcp_lp.c`). No loss-based sender does any of
//! these. BBR also sends less without a loss, but after it sent more for a round, or for 200 ms (`probes`).
//! What keeps a small queue at a level is not counted: so does a sender whose buffer is full.

use super::laws::waiting;
use super::rounds::{EndedBy, Kind, Round};

/// Rounds in sequence that rise by less than this many segments each, before a cut that answers the delay.
const SLOW_ROUNDS: usize = 3;
const SLOW_STEP: f64 = 2.5;
/// What remains after such a cut, at most and at least: CDG keeps 0.7. Less is ProbeRTT, or a sender without data.
const CUT: std::ops::RangeInclusive<f64> = 0.4..=0.9;
/// What LP keeps where the delay rises again within three RTTs (`tcp_lp_pkts_acked`): a segment.
const ONE: f64 = 1.1;
/// Rounds for which it is seen.
const ONE_ROUNDS: usize = 2;
/// Rounds for which it stays below 0.97 of the level before.
const STAYS_ROUNDS: usize = 3;
const STAYS: f64 = 0.97;
/// Window from which a cut is more than the chance of a segment or two, and segments that waited before it.
const CUT_FROM: f64 = 16.0;
const CUT_QUEUED: f64 = 2.0;
/// Cuts without a loss from which they decide.
const MIN_CUTS: u32 = 3;
/// A window that shrinks by a segment per RTT: rounds, the share of them with such a step, and segments that waited before.
const SHRINK_ROUNDS: usize = 20;
const SHRINK_SHARE: f64 = 0.75;
const SHRINK_STEP: std::ops::RangeInclusive<f64> = -1.6..=-0.4;
const SHRINK_QUEUED: f64 = 5.0;

/// Counts of such answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    /// Cuts without a loss.
    pub cuts: u32,
    /// Most rounds in sequence that took a segment each from the window.
    pub shrinking: usize,
}

/// Counts what `rounds` show of it.
pub(super) fn answers(rounds: &[Round], mss: f64) -> Answers {
    let w = |i: usize| f64::from(rounds[i].flight) / mss;
    let rtt_min = rounds.iter().map(|r| r.rtt_us).filter(|us| *us > 0).min().unwrap_or(0);
    let queued = |i: usize| waiting(w(i), rtt_min, rounds[i].rtt_us);
    let calm = |i: usize| rounds[i].kind == Kind::Free && rounds[i].ended_by == EndedBy::Ack;
    let mut out = Answers::default();
    let mut i = SLOW_ROUNDS;
    while i + STAYS_ROUNDS < rounds.len() {
        let around = (i - SLOW_ROUNDS..=i + STAYS_ROUNDS).all(calm);
        let slow = || (i - SLOW_ROUNDS..i).all(|j| (-0.5..=SLOW_STEP).contains(&(w(j + 1) - w(j))));
        let cut = || CUT.contains(&(w(i + 1) / w(i)));
        let stays = || (i + 1..=i + STAYS_ROUNDS).all(|j| w(j) <= STAYS * w(i) && w(j) >= 4.5);
        let one = || (i + 1..=i + ONE_ROUNDS).all(|j| w(j) <= ONE);
        let full = || w(i) >= CUT_FROM && queued(i) >= CUT_QUEUED;
        if around && full() && slow() && (cut() && stays() || one()) {
            out.cuts += 1;
            i += STAYS_ROUNDS;
        }
        i += 1;
    }
    let mut begin = 0;
    while begin < rounds.len() {
        let full = queued(begin) >= SHRINK_QUEUED;
        let (mut end, mut steps) = (begin, 0_u32);
        while end + 1 < rounds.len() && calm(end) && calm(end + 1) {
            let step = w(end + 1) - w(end);
            if !(*SHRINK_STEP.start() - 1.0..=0.1).contains(&step) {
                break;
            }
            end += 1;
            if SHRINK_STEP.contains(&step) {
                steps += 1;
                let long = end - begin;
                if full && f64::from(steps) >= SHRINK_SHARE * long as f64 {
                    out.shrinking = out.shrinking.max(long);
                }
            }
        }
        begin = end + 1;
    }
    out
}

impl Answers {
    /// The evidence, where there is enough of it.
    pub fn evidence(self) -> Option<String> {
        if self.cuts >= MIN_CUTS {
            Some(format!("{} cuts while a queue stood, without a loss", self.cuts))
        } else if self.shrinking >= SHRINK_ROUNDS {
            let rounds = self.shrinking;
            Some(format!(
                "a segment less per RTT for {rounds} RTTs while a queue stood, without a loss"
            ))
        } else {
            None
        }
    }
}
