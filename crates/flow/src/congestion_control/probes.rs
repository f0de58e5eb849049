//! What BBR does without any loss: it probes for bandwidth, drains what its Startup queued, and probes for the RTT.
//!
//! model: ProbeBW sends a quarter more for an RTT and lets the queue drain after it (`tcp_bbr.c`: `bbr_pacing_gain`;
//! BBRv3 probes for some rounds, draft-ietf-ccwg-bbr section 5.3.3); ProbeRTT keeps four segments in flight for 200 ms
//! (BBRv3: half a BDP) and then returns to what was in flight; Drain follows Startup's 2.89 BDP. No loss-based sender
//! lowers its bytes in flight without a loss, mark, timeout or idle time.

use super::rounds::{EndedBy, Kind, Round};

/// Rise of a probe: half of BBR's quarter and more, because the peak may fall between two rounds.
const PROBE_RISE: f64 = 1.12;
/// Most of it: BBRv3 may double what is in flight while it probes upwards.
const PROBE_TOP: f64 = 2.3;
/// And in segments: growth by a segment per RTT reaches two in the two rounds of a rise.
const PROBE_SEGMENTS: f64 = 5.0;
/// Return from a probe: to within this of the level before.
const PROBE_RETURN: f64 = 1.07;
/// Rounds from the peak to the return: one at a gain of 0.75, some eight at BBRv3's 0.9.
const RETURN_ROUNDS: usize = 10;
/// How alike the two rounds before a rise are, and the rounds of a level.
const ALIKE: f64 = 0.1;
const LEVEL: f64 = 0.04;
/// Rounds that make a level: BBR's cycle has six at a gain of 1. BIC and CUBIC grow from a shorter one, and cut at the top.
const LEVEL_ROUNDS: usize = 5;
/// Half a BDP (BBRv3's ProbeRTTCwndGain), as a share of what was in flight before.
const HALF: std::ops::RangeInclusive<f64> = 0.4..=0.6;
/// And when the first may come, in microseconds: BBRv3's probes are 5 s apart. Linux' LP halves and doubles in its first second.
const HALF_FROM_US: u64 = 4_500_000;
/// Segments in flight in ProbeRTT (`bbr_cwnd_min_target`), and half of one for segments of unequal size.
const MIN_WINDOW: f64 = 4.5;
/// Window from which a fall to four segments is no chance.
const PROBE_RTT_FROM: f64 = 12.0;
/// Length of ProbeRTT: 200 ms and a round or two at both ends (`bbr_probe_rtt_mode_ms`), in microseconds.
const PROBE_RTT_US: std::ops::RangeInclusive<u64> = 150_000..=700_000;
/// Free rounds with four segments that a loss just before does not explain: a loss-based sender grows by a segment in each.
const FOUR_ROUNDS: usize = 4;
/// Rounds in which the level before that loss is looked for.
const LOSS_ROUNDS: usize = 3;
/// The four segments go round and round. Where a round takes two RTTs and this much more, in microseconds, the sender or its
/// host paused: a scheduler's slice or two.
const PAUSE_US: u64 = 20_000;
/// Share of Startup's peak that remains after Drain, at most: 1 of 2.89 BDP, or of 2 with BBRv3's window.
const DRAINED: f64 = 0.6;

/// Counts of BBR's marks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probes {
    /// Rises by an eighth and more that returned by themselves.
    pub bandwidth: u32,
    /// Times with four segments in flight.
    pub rtt: u32,
    /// Startup was drained without a loss.
    pub drained: bool,
}

fn undisturbed(r: &Round) -> bool {
    r.kind == Kind::Free && r.ended_by == EndedBy::Ack
}

/// Counts what `rounds` show of it.
pub(super) fn probes(rounds: &[Round], mss: f64) -> Probes {
    let w = |i: usize| f64::from(rounds[i].flight) / mss;
    let mut out = Probes::default();
    let mut i = 1;
    while i + 2 < rounds.len() {
        if let Some(end) = bandwidth_probe(rounds, i, &w) {
            out.bandwidth += 1;
            i = end;
        } else if let Some(end) = rtt_probe(rounds, i, &w) {
            out.rtt += 1;
            i = end;
        } else {
            i += 1;
        }
    }
    out.drained = drained(rounds, &w);
    out
}

/// A probe for bandwidth that begins after the round `i`: the round of its return.
fn bandwidth_probe(rounds: &[Round], i: usize, w: &impl Fn(usize) -> f64) -> Option<usize> {
    let base = w(i);
    let within = |j: usize, share: f64| {
        rounds[j].kind != Kind::Limited && (w(j) / base - 1.0).abs() <= share
    };
    if !within(i, 0.0) || !within(i - 1, ALIKE) {
        return None;
    }
    // After a level of some rounds no law of growth rises so steeply: a loss or mark at the top may end it.
    let level = i >= LEVEL_ROUNDS && (i - LEVEL_ROUNDS..i).all(|j| within(j, LEVEL));
    let fits = |j: usize| rounds[j].kind != Kind::Limited && (level || undisturbed(&rounds[j]));
    let up = (i + 1..(i + 3).min(rounds.len()))
        .find(|&j| w(j) >= base * PROBE_RISE && w(j) >= base + PROBE_SEGMENTS)?;
    let mut peak = 0.0_f64;
    for j in i + 1..(up + RETURN_ROUNDS).min(rounds.len()) {
        if !fits(j) {
            return None;
        }
        peak = peak.max(w(j));
        if j > up && w(j) <= base * PROBE_RETURN {
            return (peak <= base * PROBE_TOP && w(j) >= base * 0.9).then_some(j);
        }
    }
    None
}

/// A probe for the RTT that begins in the round `i`: the round of its return.
fn rtt_probe(rounds: &[Round], i: usize, w: &impl Fn(usize) -> f64) -> Option<usize> {
    let low = w(i);
    let four = (2.5..=MIN_WINDOW).contains(&low);
    let half =
        low >= 8.0 && (HALF).contains(&(low / w(i - 1))) && rounds[i].begin_us >= HALF_FROM_US;
    // A loss may come just before four segments.
    let from = if four { i.saturating_sub(LOSS_ROUNDS) } else { i - 1 };
    let level = (from..i).map(w).fold(0.0, f64::max);
    if level < PROBE_RTT_FROM || !(four || half) {
        return None;
    }
    let (mut j, mut kept) = (i, 0);
    while j < rounds.len() && w(j) <= (low * 1.1).max(MIN_WINDOW) {
        let silent = u64::from(rounds[j].span_us) > 2 * u64::from(rounds[j].rtt_us) + PAUSE_US;
        if silent || rounds[j].kind == Kind::Limited || rounds[j].ended_by != EndedBy::Ack {
            return None;
        }
        kept += usize::from(four && rounds[j].kind == Kind::Free);
        j += 1;
    }
    let end = rounds.get(j)?;
    let length = end.begin_us - rounds[i].begin_us;
    // It returns to the level before at once: no slow start, no growth by segments.
    let back = (j..(j + 2).min(rounds.len())).any(|k| w(k) >= if half { 0.9 } else { 0.6 } * level);
    // A loss or mark just before would explain the fall, but not that four segments then stay four.
    let causeless =
        rounds[i - 1].ended_by == EndedBy::Ack && (four || rounds[i].kind == Kind::Free);
    (PROBE_RTT_US.contains(&length) && back && (causeless || kept >= FOUR_ROUNDS)).then_some(j)
}

/// Whether the first fall of the bytes in flight came without a loss, and to a level that then held.
fn drained(rounds: &[Round], w: &impl Fn(usize) -> f64) -> bool {
    let mut top = 0.0_f64;
    for i in 0..rounds.len().min(60) {
        if !undisturbed(&rounds[i]) {
            return false;
        }
        top = top.max(w(i));
        if top >= PROBE_RTT_FROM && w(i) <= top * DRAINED {
            let level = w(i);
            return level >= 8.0
                && i + 4 < rounds.len()
                && (i + 1..i + 5).all(|j| {
                    undisturbed(&rounds[j]) && w(j) >= level * 0.85 && w(j) <= level * 1.35
                });
        }
    }
    false
}
