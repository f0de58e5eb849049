//! The clock of a modem beside that of its host, from what both saw: bytes that the host sent, bytes in the modem's buffer.
//!
//! signal: packets of a capture at the host; samples of the modem's buffer, and blocks that left it · model: what entered
//! the buffer is its change plus what left, and what entered is what the host sent a moment before · action: the offset at
//! which both curves have the same shape, in pieces of ten seconds; a line through the pieces is offset and skew.
//!
//! Curves are compared within a second, each less its own line. So neither bytes of headers, which the modem adds, nor a
//! steady rate of bytes that are not in the capture move the offset. The time of the driver between capture and modem is
//! part of the offset. The search is in three steps: rates in bins of 10 ms at every offset, curves at the best of them,
//! and then each piece by itself.

use crate::timeline::{Moved, Occupancy};

mod curves;

use curves::{BIN_NS, Curves, Window};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;
/// Longest capture: more would take minutes.
const MAX_SPAN_NS: i64 = 24 * 3_600 * SECOND;
/// Offsets of the coarse search that are looked at more closely.
const CANDIDATES: usize = 8;
/// Offsets closer than this are one.
const ONE_NS: i64 = 30 * MS;
/// A piece with an offset of its own: clocks that differ by 100 ppm are 1 ms apart.
const PIECE_NS: i64 = 10 * SECOND;
/// Of clocks: quartz has less than 100 ppm.
const MAX_SKEW: f64 = 200e-6;
/// Steps of the search on curves: as samples are, and the finest that they show.
const STEPS_NS: [i64; 2] = [MS, MS / 10];
/// What the offset must explain of the shape of what entered the buffer: by packets of another upload it is below 0.3.
const MIN_EXPLAINED: f64 = 0.5;
/// An offset that explains so much of what the best one does is as good.
const AS_GOOD: f64 = 0.9;
/// Seconds in which the buffer must have been in use.
const MIN_WINDOWS: usize = 5;
/// Half of the distance of samples, and 2 ms that the newest sample of a record may be older than it.
const MIN_UNCERTAINTY_NS: i64 = 2 * MS + MS / 2;

/// The host's clock as a line over the modem's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostClock {
    /// Time of the modem at which the offset holds: the middle of the log.
    pub at_ns: i64,
    /// Host less modem then, ns.
    pub offset_ns: i64,
    /// How much faster the host's clock runs, parts of 1; `None`: the log is too short.
    pub skew: Option<f64>,
    /// The offset is known to so many ns, with 95 %.
    pub uncertainty_ns: i64,
    /// The part of the shape of what entered the buffer that the host's packets explain.
    pub explained: f64,
}

impl HostClock {
    /// The host's time of a time of the modem, ns.
    pub fn host_ns(&self, modem_ns: i64) -> i64 {
        let since = modem_ns.saturating_sub(self.at_ns);
        let drift = self.skew.map_or(0, |skew| (since as f64 * skew).round() as i64);
        modem_ns.saturating_add(self.offset_ns).saturating_add(drift)
    }
}

/// Why there is no offset.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoOffset {
    /// The log has no samples, or the buffer was hardly used.
    #[error("the log has bytes in the buffer in {0} s only, and {MIN_WINDOWS} s are needed")]
    Unused(usize),
    /// The host sent nothing.
    #[error("the capture has no packet that its host sent")]
    NothingSent,
    /// Its packets are days apart.
    #[error("the capture is longer than {} hours: cut it to the time of the log", MAX_SPAN_NS / SECOND / 3_600)]
    TooLong,
    /// No offset fits.
    #[error(
        "no offset of the clocks explains the modem's buffer by the packets of the capture (the best one {:.0} % of it): \
         they are not of the same time, or others use the modem as well", .0 * 100.0
    )]
    Unexplained(f64),
    /// Several fit.
    #[error(
        "offsets of the clocks {:.3} s apart explain the modem's buffer as well as each other: the traffic repeats itself",
        *.0 as f64 / 1e9
    )]
    Ambiguous(i64),
}

/// Fits the host's clock to the modem's. All three are in the order of time.
pub fn fit(sent: &[Moved], samples: &[Occupancy], left: &[Moved]) -> Result<HostClock, NoOffset> {
    let curves = Curves::of(sent, samples, left);
    let windows = &curves.entered.windows;
    if windows.len() < MIN_WINDOWS {
        return Err(NoOffset::Unused(windows.len()));
    }
    let [Some(earliest), Some(latest)] = [sent.first(), sent.last()] else {
        return Err(NoOffset::NothingSent);
    };
    if latest.at_ns.saturating_sub(earliest.at_ns) > MAX_SPAN_NS {
        return Err(NoOffset::TooLong);
    }
    let (first, end) = curves.busiest();
    let offset_ns = curves.only_offset(&windows[first..end])?;
    let clock = curves.line(first, offset_ns);
    match clock.explained {
        explained if explained < MIN_EXPLAINED => Err(NoOffset::Unexplained(explained)),
        _ => Ok(clock),
    }
}

impl Curves {
    /// The offset at which the windows fit, by all offsets at which they overlap the capture.
    fn only_offset(&self, windows: &[Window]) -> Result<i64, NoOffset> {
        let mut found: Vec<(f64, i64)> = self
            .candidates(windows)
            .into_iter()
            .map(|offset_ns| self.refined(windows, offset_ns, ONE_NS))
            .collect();
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        let Some(&(explained, offset_ns)) = found.first() else {
            return Err(NoOffset::NothingSent);
        };
        if explained < MIN_EXPLAINED {
            return Err(NoOffset::Unexplained(explained.max(0.0)));
        }
        let other =
            found.iter().find(|(_, other_ns)| other_ns.abs_diff(offset_ns) > 2 * ONE_NS as u64);
        match other {
            Some((as_well, other_ns)) if *as_well >= AS_GOOD * explained => {
                Err(NoOffset::Ambiguous((other_ns - offset_ns).abs()))
            }
            _ => Ok(offset_ns),
        }
    }

    /// Offsets at which the rates in bins are most alike.
    fn candidates(&self, windows: &[Window]) -> Vec<i64> {
        let [Some(first), Some(last)] = [windows.first(), windows.last()] else {
            return Vec::new();
        };
        let begin_ns = self.begin_ns(*first);
        let span_ns = self.entered.at_ns[last.1 - 1] - begin_ns;
        let rates = self.entered.rates(begin_ns, (span_ns / BIN_NS + 1) as usize);
        // The capture may begin or end within the span: it is taken as silent before and after.
        let bins = rates.len();
        let sent_begin_ns = self.sent.at_ns[0] - bins as i64 * BIN_NS;
        let sent = self.sent.rates(sent_begin_ns, bins);
        let (mut sum, mut squares) = (vec![0.0], vec![0.0]);
        for (place, rate) in sent.iter().enumerate() {
            sum.push(sum[place] + rate);
            squares.push(squares[place] + rate * rate);
        }
        let alike = |lag: usize| {
            let over = |sums: &[f64]| sums[lag + bins] - sums[lag];
            let variance = over(&squares) - over(&sum).powi(2) / bins as f64;
            let product: f64 = rates.iter().zip(&sent[lag..]).map(|(a, b)| a * b).sum();
            if variance > 0.0 { product / variance.sqrt() } else { 0.0 }
        };
        let mut lags: Vec<(f64, usize)> =
            (0..sent.len().saturating_sub(bins)).map(|lag| (alike(lag), lag)).collect();
        lags.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut chosen: Vec<usize> = Vec::new();
        for (_, lag) in lags {
            if chosen.len() == CANDIDATES {
                break;
            }
            if chosen.iter().all(|one| one.abs_diff(lag) as i64 * BIN_NS > ONE_NS) {
                chosen.push(lag);
            }
        }
        chosen.into_iter().map(|lag| sent_begin_ns + lag as i64 * BIN_NS - begin_ns).collect()
    }

    /// The offset within `around_ns` of another at which curves fit best, and what it explains.
    fn refined(&self, windows: &[Window], offset_ns: i64, around_ns: i64) -> (f64, i64) {
        let (mut best, mut around_ns) = ((f64::MIN, offset_ns), around_ns);
        for step_ns in STEPS_NS {
            let middle_ns = best.1;
            for step in -around_ns / step_ns..=around_ns / step_ns {
                let offset_ns = middle_ns + step * step_ns;
                let explained = self.explained(windows, |at_ns| at_ns + offset_ns);
                if explained > best.0 {
                    best = (explained, offset_ns);
                }
            }
            around_ns = step_ns;
        }
        best
    }

    /// Offset and skew from the offsets of pieces, which are looked for forwards and backwards from the first one.
    fn line(&self, first: usize, offset_ns: i64) -> HostClock {
        let windows = &self.entered.windows;
        let begin_ns = self.begin_ns(windows[first]);
        let number = |window: &Window| (self.begin_ns(*window) - begin_ns).div_euclid(PIECE_NS);
        let pieces: Vec<&[Window]> = windows.chunk_by(|a, b| number(a) == number(b)).collect();
        let start = pieces.iter().position(|piece| number(&piece[0]) >= 0).unwrap_or(0);
        let (back, forth) = pieces.split_at(start);
        let mut points = Vec::new();
        for way in [forth.iter().collect::<Vec<_>>(), back.iter().rev().collect()] {
            let mut near = (begin_ns, offset_ns);
            for piece in way {
                let at_ns = self
                    .begin_ns(piece[0])
                    .midpoint(self.entered.at_ns[piece[piece.len() - 1].1 - 1]);
                let drift_ns = (MAX_SKEW * near.0.abs_diff(at_ns) as f64) as i64;
                let (explained, offset_ns) = self.refined(piece, near.1, drift_ns + 3 * MS);
                if explained >= MIN_EXPLAINED {
                    near = (at_ns, offset_ns);
                    points.push(near);
                }
            }
        }
        let at_ns =
            self.entered.at_ns[0].midpoint(self.entered.at_ns[self.entered.at_ns.len() - 1]);
        let (skew, offset_ns, spread_ns) = theil_sen(&points, at_ns, offset_ns);
        let mut clock = HostClock { at_ns, offset_ns, skew, uncertainty_ns: 0, explained: 0.0 };
        clock.uncertainty_ns = MIN_UNCERTAINTY_NS + spread_ns;
        clock.explained = self.explained(windows, |at_ns| clock.host_ns(at_ns)).max(0.0);
        clock
    }
}

/// Skew, offset at `at_ns`, and twice the standard error of the offset at either end of the line; a line needs three points.
fn theil_sen(points: &[(i64, i64)], at_ns: i64, alone_ns: i64) -> (Option<f64>, i64, i64) {
    let mut slopes = Vec::new();
    for (place, a) in points.iter().enumerate() {
        for b in points[..place].iter().filter(|b| b.0 != a.0) {
            slopes.push((a.1 - b.1) as f64 / (a.0 - b.0) as f64);
        }
    }
    if points.len() < 3 {
        let offsets: Vec<f64> = points.iter().map(|point| point.1 as f64).collect();
        let spread_ns = (MAX_SKEW * PIECE_NS as f64) as i64 * 2;
        return (None, median(offsets).map_or(alone_ns, |offset| offset as i64), spread_ns);
    }
    let skew = median(slopes).unwrap_or(0.0);
    // Relative to one of the offsets, which are too large for the digits of a float.
    let base_ns = points[0].1;
    let at_middle =
        |point: &(i64, i64)| (point.1 - base_ns) as f64 - skew * (point.0 - at_ns) as f64;
    let offsets: Vec<f64> = points.iter().map(at_middle).collect();
    let offset = median(offsets.clone()).unwrap_or(0.0);
    let deviations = offsets.iter().map(|one| (one - offset).abs()).collect();
    // 1.4826 makes a standard deviation of a median deviation; at its ends a line is known half as well as in the middle.
    let error = 2.0 * 1.4826 * median(deviations).unwrap_or(0.0) / (points.len() as f64).sqrt();
    (Some(skew), base_ns + offset.round() as i64, (2.0 * error).round() as i64)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    Some(if values.len() % 2 == 1 { upper } else { values[values.len() / 2 - 1].midpoint(upper) })
}
