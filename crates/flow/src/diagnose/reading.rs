//! Functions that all rules share: series from the profile, shares of time, figures as text.

use units::text::{Step, scaled, step};
use units::{Bytes, Duration, Instant, Rate};

use crate::series::evidence::Evidence;
use crate::series::profile::ProfileBin;
use crate::series::rows::{Limit, Severity, Value};

/// Collects the figures of a finding; those that are not finite are left out.
#[derive(Default)]
pub(super) struct Values(pub Vec<(&'static str, Value)>);

impl Values {
    pub fn number(&mut self, key: &'static str, value: impl Into<Option<f64>>) -> &mut Values {
        if let Some(v) = value.into().filter(|v| v.is_finite()) {
            self.0.push((key, Value::Number(v)));
        }
        self
    }
    pub fn text(
        &mut self,
        key: &'static str,
        value: impl Into<Option<&'static str>>,
    ) -> &mut Values {
        if let Some(v) = value.into() {
            self.0.push((key, Value::Text(v.to_owned())));
        }
        self
    }
    pub fn take(&mut self) -> Vec<(&'static str, Value)> {
        std::mem::take(&mut self.0)
    }
}

/// Whether a transfer is long enough to judge its steady state: 100 KB in 30 segments over a second. Smaller ones end
/// in slow start: 10 segments and two doublings carry 100 KB.
pub(super) fn enough_data(e: &Evidence<'_>) -> bool {
    e.flow.bytes.0 >= 100_000 && e.flow.segments() >= 30 && e.flow.active >= Duration::from_secs(1)
}

/// Smallest RTT of the path, ms.
pub(super) fn base_rtt(e: &Evidence<'_>) -> Option<f64> {
    let own = e.flow.rtt_ms.map(|q| q.min);
    match (own, e.path_rtt_ms_min) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Mean queueing delay of each profile bin, ms; NaN without a sample.
pub(super) fn queue_series(e: &Evidence<'_>, base_ms: f64) -> Vec<f64> {
    e.profile
        .bins()
        .iter()
        .map(|b| b.rtt_ms().map_or(f64::NAN, |r| (r - base_ms).max(0.0)))
        .collect()
}

/// Start of the transfer: the beginning of the first bin with data.
pub(super) fn data_start(e: &Evidence<'_>) -> Instant {
    let first = e.profile.bins().iter().position(|b| b.delivered.0 > 0 || b.in_flight_max.0 > 0);
    first.map_or(e.connection.start, |i| e.profile.time_of(i))
}

/// End of profile bin `i`, not beyond the connection: the last bin is rarely full.
pub(super) fn end_of(e: &Evidence<'_>, i: usize) -> Instant {
    e.profile.end_of(i).min(e.connection.end)
}

/// End of the last bin of this kind, where the evidence ends; without one the end of the data.
pub(super) fn end_where(e: &Evidence<'_>, kind: impl Fn(&ProfileBin) -> bool) -> Instant {
    let last = e.profile.bins().iter().rposition(kind);
    last.map_or_else(|| data_end(e), |i| end_of(e, i))
}

/// End of the transfer: of the last bin with data. The connection may be closed minutes later.
pub(super) fn data_end(e: &Evidence<'_>) -> Instant {
    let data = |b: &ProfileBin| b.delivered.0 > 0 || b.in_flight_max.0 > 0;
    e.profile.bins().iter().rposition(data).map_or(e.connection.end, |i| end_of(e, i))
}

/// A moment as text, on the clock of the capture: that of the finding's span, and with as many places.
pub(super) fn clock(e: &Evidence<'_>, at: Instant) -> String {
    format!("{:.1} s", at.since(e.capture_start).as_secs_f64())
}

/// Seconds from the start of the transfer to `at`, for the evidence. Texts use [`clock`].
pub(super) fn seconds_into(e: &Evidence<'_>, at: Instant) -> f64 {
    at.since(data_start(e)).as_secs_f64()
}

/// Share of the judged time under `limit`, 0 … 1.
pub(super) fn share(e: &Evidence<'_>, limit: Limit) -> f64 {
    let all: f64 = e.flow.limit_time.iter().map(|d| d.as_secs_f64()).sum();
    if all > 0.0 { e.flow.limit_time[limit as usize].as_secs_f64() / all } else { 0.0 }
}

/// `part` of `whole`, 0 … 1; 0 of nothing.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Delivered bytes per second in the bins `from .. to`, in bit/s.
pub(super) fn rate_between(e: &Evidence<'_>, from: usize, to: usize) -> Option<f64> {
    let to = to.min(e.profile.bins().len());
    if from >= to {
        return None;
    }
    let bytes: u64 = e.profile.bins()[from..to].iter().map(|b| b.delivered.0).sum();
    let span = e.profile.end_of(to - 1).since(e.profile.time_of(from));
    Bytes(bytes).over(span).map(|r| r.0 as f64)
}

/// The value of rank ⌈q · n⌉ among the finite values.
pub(super) fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut v: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    v.sort_unstable_by(f64::total_cmp);
    let rank = ((q * v.len() as f64).ceil() as usize).clamp(1, v.len().max(1));
    v.get(rank - 1).copied()
}

/// Severity of an added delay by its grade; `None` for A and A+.
pub(super) fn severity_of(grade: &str) -> Option<Severity> {
    match grade {
        "B" => Some(Severity::Info),
        "C" => Some(Severity::Warning),
        "D" | "F" => Some(Severity::Serious),
        _ => None,
    }
}

/// `8.3 ms`, `86 ms`, `2.1 s`; `<0.1 ms` for what is more than nothing.
pub(super) fn ms(value: f64) -> String {
    if value > 0.0 && value < 0.05 {
        return "<0.1 ms".to_owned();
    }
    const STEPS: [Step; 3] =
        [step(9.95, 1.0, 1, " ms"), step(999.5, 1.0, 0, " ms"), step(f64::MAX, 1e3, 1, " s")];
    scaled(value, &STEPS)
}

/// `0.3 s`, `22 s`.
pub(super) fn seconds(value: f64) -> String {
    if value < 9.95 || (value * 10.0).round() % 10.0 != 0.0 && value < 99.95 {
        format!("{value:.1} s")
    } else {
        format!("{value:.0} s")
    }
}

/// `0 %`, `0.05 %`, `4.2 %`, `37 %` of a share 0 … 1.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p < 0.005 => "0 %".to_owned(),
        p if p < 0.995 => format!("{p:.2} %"),
        p if p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// `4.0 Mbit/s` of bits per second.
pub(super) fn rate(bps: f64) -> String {
    Rate(bps.max(0.0) as u64).to_string()
}

/// `1.05 MB`.
pub(super) fn bytes(n: f64) -> String {
    Bytes(n.max(0.0) as u64).to_string()
}

/// `1 time`, `3 times`.
pub(super) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!([ms(8.3), ms(86.4), ms(2_130.0)], ["8.3 ms", "86 ms", "2.1 s"]);
        assert_eq!(
            [seconds(0.3), seconds(10.2), seconds(22.0), seconds(600.0)],
            ["0.3 s", "10.2 s", "22 s", "600 s"]
        );
        assert_eq!(
            [percent(0.0), percent(0.0005), percent(0.042), percent(0.37)],
            ["0 %", "0.05 %", "4.2 %", "37 %"]
        );
        assert_eq!(counted(1, "time", "times"), "1 time");
    }

    #[test]
    fn a_figure_that_is_not_finite_is_no_evidence() {
        let mut v = Values::default();
        v.number("a", f64::NAN).number("b", None).number("c", 1.0).text("d", None);
        assert_eq!(v.take(), [("c", Value::Number(1.0))]);
    }

    #[test]
    fn the_quantile_of_nothing_is_nothing() {
        assert_eq!((quantile(&[], 0.5), quantile(&[f64::NAN], 0.5)), (None, None));
        assert_eq!(quantile(&[3.0, f64::NAN, 1.0, 2.0], 0.5), Some(2.0));
    }
}
