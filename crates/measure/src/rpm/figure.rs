//! Responsiveness of a number of probes: draft-ietf-ippm-responsiveness-09, section 4.3.
//!
//! signal: four kinds of round trips · model: the mean of the lowest 95 % of each kind, of probes that were answered in the last
//! MAD intervals · action: round trips a minute.
//!
//! Deviation: a probe that has waited for longer than any answered one counts with the time that it has waited. Otherwise the
//! worst paths, which answer only the fastest probes, would have the best figures.

use serde::Serialize;

/// TMP: the share of the lowest round trips.
const KEPT: f64 = 0.95;
/// Milliseconds of a minute.
pub const MINUTE_MS: f64 = 60_000.0;

/// A round trip: when it began, and when it ended; seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trip {
    /// When it began.
    pub from_s: f64,
    /// `None`: not yet.
    pub until_s: Option<f64>,
}

/// The four kinds of round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The handshake of TCP, of a connection of its own.
    Tcp,
    /// The handshake of TLS 1.3 on it, which takes one round trip.
    Tls,
    /// A request on it.
    Http,
    /// A request on a connection that carries a load.
    Loaded,
}

/// All round trips of a test.
#[derive(Clone, Debug, Default)]
pub struct Trips {
    kinds: [Vec<Trip>; 4],
}

/// A round trip that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun(Kind, usize);

impl Trips {
    /// Notes the beginning of one.
    pub fn begin(&mut self, kind: Kind, at_s: f64) -> Begun {
        let all = &mut self.kinds[kind as usize];
        all.push(Trip { from_s: at_s, until_s: None });
        Begun(kind, all.len() - 1)
    }

    /// Notes its end.
    pub fn end(&mut self, Begun(kind, at): Begun, at_s: f64) {
        self.kinds[kind as usize][at].until_s = Some(at_s);
    }

    /// The shortest of a kind, ms.
    pub fn least_ms(&self, kind: Kind) -> Option<f64> {
        let took = |trip: &Trip| Some((trip.until_s? - trip.from_s) * 1e3);
        self.kinds[kind as usize].iter().filter_map(took).reduce(f64::min)
    }

    /// Responsiveness at a time, of the probes since another.
    pub fn figure(&self, from_s: f64, until_s: f64) -> Figure {
        let of = |kind: Kind| trimmed(&self.kinds[kind as usize], from_s, until_s);
        let (tcp, tls, http, own) =
            (of(Kind::Tcp), of(Kind::Tls), of(Kind::Http), of(Kind::Loaded));
        Figure {
            tcp_ms: tcp.mean_ms,
            tls_ms: tls.mean_ms,
            http_ms: http.mean_ms,
            loaded_ms: own.mean_ms,
            foreign_probes: http.answered,
            self_probes: own.answered,
            waiting: tcp.waiting + tls.waiting + http.waiting + own.waiting,
        }
    }
}

/// What a number of probes says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Trimmed mean of TCP's handshake, ms.
    pub tcp_ms: Option<f64>,
    /// Of TLS's handshake.
    pub tls_ms: Option<f64>,
    /// Of a request on a new connection.
    pub http_ms: Option<f64>,
    /// Of a request on a connection that carries a load.
    pub loaded_ms: Option<f64>,
    /// Probes with a connection of their own that were answered.
    pub foreign_probes: usize,
    /// Probes on loaded connections that were answered.
    pub self_probes: usize,
    /// Round trips that had waited for longer than any that came to its end, and count with that time.
    pub waiting: usize,
}

impl Figure {
    /// A round trip on a connection of its own, ms.
    pub fn foreign_ms(&self) -> Option<f64> {
        Some((self.tcp_ms? + self.tls_ms? + self.http_ms?) / 3.0)
    }

    /// Round trips a minute by the draft: the mean of both kinds' rates.
    pub fn rpm(&self) -> Option<f64> {
        Some((MINUTE_MS / self.foreign_ms()? + MINUTE_MS / self.loaded_ms?) / 2.0)
    }

    /// As earlier drafts and goresponsiveness have it: the rate of both kinds' mean.
    pub fn rpm_of_mean(&self) -> Option<f64> {
        Some(MINUTE_MS / ((self.foreign_ms()? + self.loaded_ms?) / 2.0))
    }
}

/// The draft's word for a figure.
pub fn band(rpm: f64) -> &'static str {
    match rpm {
        rpm if rpm < 300.0 => "poor",
        rpm if rpm < 1000.0 => "fair",
        rpm if rpm < 6000.0 => "good",
        _ => "excellent",
    }
}

struct Trimmed {
    mean_ms: Option<f64>,
    answered: usize,
    waiting: usize,
}

fn trimmed(trips: &[Trip], from_s: f64, until_s: f64) -> Trimmed {
    let mut ms: Vec<f64> = trips
        .iter()
        .filter_map(|trip| {
            Some((trip.until_s.filter(|end| (from_s..until_s).contains(end))?, trip))
        })
        .map(|(end, trip)| (end - trip.from_s) * 1e3)
        .collect();
    let (answered, slowest) = (ms.len(), ms.iter().copied().fold(0.0, f64::max));
    ms.extend(
        trips
            .iter()
            .filter(|trip| trip.from_s < until_s && trip.until_s.is_none_or(|end| end >= until_s))
            .map(|trip| (until_s - trip.from_s) * 1e3)
            .filter(|age| *age > slowest),
    );
    let waiting = ms.len() - answered;
    ms.sort_by(f64::total_cmp);
    let kept = ((ms.len() as f64 * KEPT) as usize).max(1).min(ms.len());
    let mean_ms = (kept > 0).then(|| ms[..kept].iter().sum::<f64>() / kept as f64);
    Trimmed { mean_ms, answered, waiting }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes that each take so long, ms, one after the other.
    fn probed(each: [&[f64]; 4]) -> Trips {
        let mut trips = Trips::default();
        for (kind, all) in [Kind::Tcp, Kind::Tls, Kind::Http, Kind::Loaded].into_iter().zip(each) {
            for (n, ms) in all.iter().enumerate() {
                let begun = trips.begin(kind, n as f64 * 0.01);
                trips.end(begun, n as f64 * 0.01 + ms / 1e3);
            }
        }
        trips
    }

    fn near(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-6 * b)
    }

    #[test]
    fn the_drafts_formula_and_that_of_earlier_ones() {
        let figure = probed([&[60.0], &[60.0], &[60.0], &[20.0]]).figure(0.0, 10.0);
        // (60000 / 60 + 60000 / 20) / 2, and 60000 / ((60 + 20) / 2)
        assert!(near(figure.rpm(), 2000.0) && near(figure.rpm_of_mean(), 1500.0));
        assert_eq!((figure.foreign_probes, figure.self_probes, figure.waiting), (1, 1, 0));
    }

    #[test]
    fn the_mean_is_of_the_lowest_95_percent() {
        let mut own = [10.0; 100];
        own[..5].fill(1e3);
        let figure = probed([&[10.0], &[10.0], &[10.0], &own]).figure(0.0, 10.0);
        assert!(near(figure.loaded_ms, 10.0));
        own[5] = 1e3;
        let more = probed([&[10.0], &[10.0], &[10.0], &own]).figure(0.0, 10.0);
        assert!(near(more.loaded_ms, (94.0 * 10.0 + 1e3) / 95.0));
    }

    #[test]
    fn only_what_ended_in_the_time_counts() {
        let figure = probed([&[10.0, 30.0], &[10.0], &[10.0], &[10.0]]).figure(0.02, 0.05);
        assert!(near(figure.tcp_ms, 30.0), "the first had ended before");
        assert_eq!(figure.rpm(), None, "no probe of the other kinds");
    }

    #[test]
    fn a_probe_that_still_waits_counts_once_it_is_the_slowest() {
        let mut trips = probed([&[10.0], &[10.0], &[10.0], &[100.0, 100.0]]);
        trips.begin(Kind::Loaded, 0.5);
        let early = trips.figure(0.0, 0.55);
        assert!(near(early.loaded_ms, 100.0) && early.waiting == 0, "it may come at once");
        let late = trips.figure(0.0, 0.9);
        assert_eq!((late.self_probes, late.waiting), (2, 1));
        let alone = trips.figure(0.7, 0.9);
        assert!(near(alone.loaded_ms, 400.0), "and is never left out where it is the only one");
    }

    #[test]
    fn the_bands_of_the_draft() {
        assert_eq!([299.0, 300.0, 1000.0, 6000.0].map(band), ["poor", "fair", "good", "excellent"]);
    }
}
