//! Growth: what a loss-based sender did between two losses, and how well the law of Reno and that of CUBIC predict it.
//!
//! model: Reno adds a segment per RTT (RFC 5681 section 3.1); CUBIC follows `W(t) = C (t − K)³ + W_max` and in its
//! Reno-friendly region adds 3 (1 − β) / (1 + β) of a segment per RTT (RFC 9438 sections 4.2, 4.3); Hybla adds more than
//! Reno where the RTT is above 25 ms, H-TCP a second after a loss (`tcp_hybla.c`, `tcp_htcp.c`)
//! Windows are in segments, times in seconds.

use super::MIN_ROUND;
use super::cuts::{Cut, median};
use super::rounds::{EndedBy, Kind, Round};

/// CUBIC's constants (RFC 9438 section 5; Linux rounds β to 717/1024).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
/// Growth of its Reno-friendly region, segments per RTT: 3 (1 − 0.7) / (1 + 0.7).
const CUBIC_FRIENDLY: f64 = 0.529;
/// A smaller window cannot show a factor: 0.5 and 0.7 of seven segments are a segment and a half apart.
const MIN_SEGMENTS: f64 = 8.0;

/// Segments that wait, above those at which Vegas stops to grow (2, `tcp_vegas.c`), by half of one.
const QUEUED: f64 = 2.5;
/// Rounds of growth from which an epoch can be compared with a law.
const EPOCH_ROUNDS: usize = 3;
/// Segments ahead of Reno's window that Reno never is: it adds one for each window that was acknowledged, and no more.
const AHEAD: f64 = 0.95;
/// Steps of an epoch in which the acknowledgements are still uneven from the recovery.
const UNSETTLED: usize = 2;
/// Steps after them that make a slope.
const SETTLED: usize = 4;

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
    /// Epochs that can be compared with a law, and those of them in which the window was ahead of Reno's.
    pub epochs: usize,
    pub ahead_of_reno: usize,
    /// Segments per RTT of an epoch after its unsettled begin, the median of them. `None`: all were too short.
    pub steady: Option<f64>,
}

/// The errors and slopes of epochs, one of each.
#[derive(Default)]
struct Epochs {
    reno_errors: Vec<f64>,
    cubic_errors: Vec<f64>,
    slopes: Vec<f64>,
}

/// The cuts of `rounds`, and the growth after each.
pub(super) fn cuts_and_growth(rounds: &[Round], mss: f64) -> (Vec<Cut>, Growth) {
    let segments = |r: &Round| f64::from(r.flight) / mss;
    let rtt_min = rounds.iter().map(|r| r.rtt_us).filter(|us| *us > 0).min().unwrap_or(0);
    let mut cuts = Vec::new();
    let mut growth = Growth::default();
    let mut epochs = Epochs::default();
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
        if epoch.is_empty() || round.kind == Kind::Limited || before < MIN_SEGMENTS {
            continue;
        }
        let after = epoch.iter().take(2).map(|r| segments(r)).fold(f64::INFINITY, f64::min);
        // Away from the sender the first retransmissions may be seen before the last data that was lost with them: what
        // follows at once and cuts nothing belongs to the same loss.
        let same = !cuts.is_empty() && i <= last_end + 2 && after >= before * 0.95;
        last_end = i + 1 + rounds[i + 1..].iter().take_while(|r| r.kind != Kind::Free).count();
        if !same {
            let rtt = round.rtt_us.max(previous.map_or(0, |p| p.rtt_us));
            let path = before - waiting(before, rtt_min, rtt);
            cuts.push(Cut { before, after, path, pressed: epoch.len() == 1 });
        }
        growth.add(&epoch, mss, rtt_min, (before, w_max), &mut epochs);
    }
    growth.epochs = epochs.reno_errors.len();
    growth.steady = median(epochs.slopes);
    growth.reno_error = median(epochs.reno_errors).unwrap_or(f64::INFINITY);
    growth.cubic_error = median(epochs.cubic_errors).unwrap_or(f64::INFINITY);
    (cuts, growth)
}

impl Growth {
    /// Adds the rounds of one epoch, after a cut from the window `before`, of which CUBIC remembers `w_max`.
    fn add(
        &mut self,
        epoch: &[&Round],
        mss: f64,
        rtt_min: u32,
        (before, w_max): (f64, f64),
        epochs: &mut Epochs,
    ) {
        let segments = |r: &Round| f64::from(r.flight) / mss;
        let w0 = segments(epoch[0]);
        let k = ((w_max - w0).max(0.0) / CUBIC_C).cbrt();
        let peak = if w0 > w_max { w0 } else { w_max };
        let (mut rtts, mut reno_sum, mut cubic_sum) = (0.0, 0.0, 0.0);
        // The first round may still be one of the recovery: the second is Reno's base as well.
        let (mut ahead, mut base) = (0.0_f64, w0);
        let (mut settled, mut settled_rtts, mut grown) = (0, 0.0, 0.0);
        // The last round of an epoch ends with the next loss, and was not sent to its end: its window may be short of what
        // it would have been.
        let whole = if epoch.len() > 2 { epoch.len() - 2 } else { epoch.len() - 1 };
        for (n, pair) in epoch.windows(2).enumerate() {
            // A round is one round trip, unless it was made longer; so is one without a sample.
            let rtt = f64::from(pair[0].rtt_us) * 1e3;
            let several = rtt > 0.0 && rtt < MIN_ROUND.as_nanos() as f64;
            let step = if several { f64::from(pair[0].span_us) * 1e3 / rtt } else { 1.0 };
            rtts += step;
            let t = pair[1].begin_s() - epoch[0].begin_s();
            let (was, now) = (segments(pair[0]), segments(pair[1]));
            if n < whole {
                self.rtts += step;
                self.segments += now - was;
                if ahead_of_path(was, rtt_min, pair[0].rtt_us) >= QUEUED {
                    self.queued_rtts += step;
                    self.queued_segments += now - was;
                }
                if n == 0 {
                    base = w0.max(now - rtts);
                }
                ahead = ahead.max(now - rtts - base);
                if n >= UNSETTLED {
                    settled += 1;
                    settled_rtts += step;
                    grown += now - was;
                }
            }
            let cubic = (CUBIC_C * (t - k).powi(3) + peak).max(w0 + CUBIC_FRIENDLY * rtts);
            cubic_sum += (now - cubic).abs() / before;
            reno_sum += (now - (w0 + rtts)).abs() / before;
            self.widest = self.widest.max(now / w0.max(1.0) - 1.0);
        }
        let pairs = epoch.len() - 1;
        if pairs >= EPOCH_ROUNDS {
            epochs.reno_errors.push(reno_sum / pairs as f64);
            epochs.cubic_errors.push(cubic_sum / pairs as f64);
            self.ahead_of_reno += usize::from(ahead >= AHEAD);
            if settled >= SETTLED {
                epochs.slopes.push(grown / settled_rtts);
            }
        }
    }
}

/// Segments of `window` that wait, as Vegas counts them: by the window that would make this rate at the smallest RTT
/// (`tcp_vegas.c`: `diff`).
fn ahead_of_path(window: f64, rtt_min: u32, rtt: u32) -> f64 {
    window * (f64::from(rtt.max(rtt_min)) / f64::from(rtt_min.max(1)) - 1.0)
}

/// Segments of `window` in the queue, as the RTT above its minimum shows them.
pub(super) fn waiting(window: f64, rtt_min: u32, rtt: u32) -> f64 {
    window * (1.0 - f64::from(rtt_min) / f64::from(rtt.max(rtt_min).max(1)))
}
