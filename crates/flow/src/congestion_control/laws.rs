//! Cuts and growth: what a loss-based sender did at each loss, and how well the law of Reno and that of CUBIC predict
//! its bytes in flight between two losses.
//!
//! model: Reno adds a segment per RTT (RFC 5681 section 3.1); CUBIC follows `W(t) = C (t − K)³ + W_max` and in its
//! Reno-friendly region adds 3 (1 − β) / (1 + β) of a segment per RTT (RFC 9438 sections 4.2, 4.3)
//! Windows are in segments, times in seconds.

use super::MIN_ROUND;
use super::rounds::{EndedBy, Kind, Round};

/// CUBIC's constants (RFC 9438 section 5; Linux rounds β to 717/1024).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
/// Growth of its Reno-friendly region, segments per RTT: 3 (1 − 0.7) / (1 + 0.7).
const CUBIC_FRIENDLY: f64 = 0.529;
/// A smaller window cannot show a factor: 0.5 and 0.7 of seven segments are a segment and a half apart.
const MIN_SEGMENTS: f64 = 8.0;

/// Segments that wait, above those at which Vegas stops to grow (2, `tcp_vegas.c`).
const QUEUED: f64 = 3.0;
/// Rounds of growth from which an epoch can be compared with a law.
const EPOCH_ROUNDS: usize = 3;

/// One cut: the window before it, and that after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub before: f64,
    pub after: f64,
}

impl Cut {
    pub fn ratio(&self) -> f64 {
        self.after / self.before
    }
}

/// What the growth between cuts shows, over all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    /// RTTs that these rounds lasted, without those that a loss cut short.
    pub rtts: f64,
    /// Segments that the window grew by in them.
    pub segments: f64,
    /// RTTs of these at whose begin `QUEUED` segments waited, and the growth in them: what answers the delay does not grow
    /// there.
    pub queued_rtts: f64,
    pub queued_segments: f64,
    /// Largest growth within one epoch, as a share of the window at its begin.
    pub widest: f64,
    /// Distance between the window and that predicted, as a share of the window before the cut: the mean of each epoch,
    /// the median of them, because an epoch may begin with a recovery that is still under way.
    pub reno_error: f64,
    pub cubic_error: f64,
}

/// The cuts of `rounds`, and the growth after each.
pub(super) fn cuts_and_growth(rounds: &[Round], mss: f64) -> (Vec<Cut>, Growth) {
    let segments = |r: &Round| f64::from(r.flight) / mss;
    let rtt_min = rounds.iter().map(|r| r.rtt_us).filter(|us| *us > 0).min().unwrap_or(0);
    let mut cuts = Vec::new();
    let mut growth = Growth::default();
    let (mut reno_errors, mut cubic_errors) = (Vec::new(), Vec::new());
    // CUBIC's W_max: of the cut before, by which fast convergence judges (RFC 9438 section 4.7).
    let mut last_max = 0.0_f64;
    let mut last_end = 0;
    for (i, round) in rounds.iter().enumerate() {
        if !matches!(round.ended_by, EndedBy::Loss | EndedBy::Mark) {
            if round.ended_by == EndedBy::Timeout {
                last_max = 0.0;
            }
            continue;
        }
        let previous = i.checked_sub(1).map(|p| &rounds[p]).filter(|p| p.kind == Kind::Free);
        let before = segments(round).max(previous.map_or(0.0, segments));
        let w_max = if before < last_max { before * (1.0 + CUBIC_BETA) / 2.0 } else { before };
        last_max = w_max;
        let after = rounds[i + 1..]
            .iter()
            .skip_while(|r| r.kind == Kind::Recovery && r.ended_by == EndedBy::Ack);
        let epoch: Vec<&Round> = after.take_while(|r| r.kind == Kind::Free).collect();
        let (Some(&first), false) = (epoch.first(), round.kind == Kind::Limited) else { continue };
        if before < MIN_SEGMENTS {
            continue;
        }
        let after = epoch.iter().take(2).map(|r| segments(r)).fold(f64::INFINITY, f64::min);
        // Away from the sender the first retransmissions may be seen before the last data that was lost with them: what
        // follows at once and cuts nothing belongs to the same loss.
        let same = !cuts.is_empty() && i <= last_end + 2 && after >= before * 0.95;
        last_end = i + 1 + rounds[i + 1..].iter().take_while(|r| r.kind != Kind::Free).count();
        if !same {
            cuts.push(Cut { before, after });
        }
        // The last round of an epoch ends with the next loss: its window is that of a whole round all the same.
        let w0 = segments(first);
        let k = ((w_max - w0).max(0.0) / CUBIC_C).cbrt();
        let peak = if w0 > w_max { w0 } else { w_max };
        let (mut rtts, mut reno_sum, mut cubic_sum) = (0.0, 0.0, 0.0);
        // The round that a loss ended was not sent to its end: its window may be short of what it would have been.
        let whole = if epoch.len() > 2 { epoch.len() - 2 } else { epoch.len() - 1 };
        for (n, pair) in epoch.windows(2).enumerate() {
            // A round is one round trip, unless it was made longer; so is one without a sample.
            let rtt = f64::from(pair[0].rtt_us) * 1e3;
            let several = rtt > 0.0 && rtt < MIN_ROUND.as_nanos() as f64;
            let step = if several { f64::from(pair[0].span_us) * 1e3 / rtt } else { 1.0 };
            rtts += step;
            let t = pair[1].begin_s() - first.begin_s();
            let now = segments(pair[1]);
            if n < whole {
                growth.rtts += step;
                growth.segments += now - segments(pair[0]);
            }
            if n < whole && waiting(segments(pair[0]), rtt_min, pair[0].rtt_us) >= QUEUED {
                growth.queued_rtts += step;
                growth.queued_segments += now - segments(pair[0]);
            }
            let cubic = (CUBIC_C * (t - k).powi(3) + peak).max(w0 + CUBIC_FRIENDLY * rtts);
            cubic_sum += (now - cubic).abs() / before;
            reno_sum += (now - (w0 + rtts)).abs() / before;
            growth.widest = growth.widest.max(now / w0.max(1.0) - 1.0);
        }
        let pairs = epoch.len() - 1;
        if pairs >= EPOCH_ROUNDS {
            reno_errors.push(reno_sum / pairs as f64);
            cubic_errors.push(cubic_sum / pairs as f64);
        }
    }
    growth.reno_error = median(reno_errors).unwrap_or(f64::INFINITY);
    growth.cubic_error = median(cubic_errors).unwrap_or(f64::INFINITY);
    (cuts, growth)
}

/// Segments of `window` in the queue, as the RTT above its minimum shows them.
pub(super) fn waiting(window: f64, rtt_min: u32, rtt: u32) -> f64 {
    window * (1.0 - f64::from(rtt_min) / f64::from(rtt.max(rtt_min).max(1)))
}

/// The middle of `values`, the upper of two.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
