//! State and counters of the gate, as a line of status and as metrics.

use serde::Serialize;

use crate::cures::figures::{Sample, count, counter, families, gauge, value};
use crate::cures::{Figures, now_ns};
use crate::telemetry::{Grade, State};

/// State of the source of reports.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Telemetry {
    /// A report arrived within the timeout.
    Fresh {
        /// Name of the source.
        source: String,
        /// What the source reports: the modem's buffer, or the driver's.
        grade: &'static str,
    },
    /// No report within the timeout.
    Silent {
        /// Seconds since the last report, or since the beginning.
        for_s: f64,
        /// Why no report arrives: the last error.
        why: String,
    },
}

impl Telemetry {
    pub(super) fn of(state: &State) -> Telemetry {
        match state {
            State::Fresh { source, grade } => {
                let grade = match grade {
                    Grade::Modem => "modem",
                    Grade::Driver => "driver",
                };
                Telemetry::Fresh { source: source.clone(), grade }
            }
            State::Silent { since_ns, why } => {
                let for_s = now_ns().saturating_sub(*since_ns) as f64 / 1e9;
                Telemetry::Silent { for_s, why: why.clone() }
            }
        }
    }
}

/// State and counters of the gate.
#[derive(Clone, Debug, Serialize)]
pub struct GateFigures {
    pub(super) cure: &'static str,
    pub(super) device: String,
    pub(super) telemetry: Telemetry,
    pub(super) reports: u64,
    pub(super) report_age_ms: f64,
    pub(super) reported_bytes: u64,
    pub(super) occupancy_bytes: u64,
    pub(super) limit_bytes: u64,
    pub(super) delay_ms: Option<f64>,
    pub(super) rate_bps: u64,
    pub(super) fair_bytes: u64,
    pub(super) passed: u64,
    pub(super) passed_bytes: u64,
    pub(super) privileged: u64,
    pub(super) refused_own: u64,
    pub(super) refused_forwarded: u64,
    pub(super) unguarded: u64,
    pub(super) paced: Option<PacedFigures>,
}

/// Counters of pacing.
#[derive(Clone, Debug, Serialize)]
pub struct PacedFigures {
    /// The rate of each connection now; 0: none is paced.
    pub(super) rate_bps: u64,
    /// Connections that are watched.
    pub(super) connections: u64,
    /// Times that one of them began to be paced, and was no longer.
    pub(super) paced: u64,
    pub(super) restored: u64,
    /// Bounds that the kernel refused.
    pub(super) refused: u64,
}

impl GateFigures {
    /// The uplink's rate, bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate_bps / 8
    }
}

#[cfg(test)]
impl GateFigures {
    pub(crate) fn example() -> GateFigures {
        GateFigures {
            cure: "gate",
            device: "wwan0".to_owned(),
            telemetry: Telemetry::Fresh { source: "a socket".to_owned(), grade: "modem" },
            reports: 1,
            report_age_ms: 1.0,
            reported_bytes: 1,
            occupancy_bytes: 1,
            limit_bytes: 1,
            delay_ms: Some(20.0),
            rate_bps: 2_000_000,
            fair_bytes: 1,
            passed: 1,
            passed_bytes: 5_000_000_000,
            privileged: 1,
            refused_own: 1,
            refused_forwarded: 1,
            unguarded: 1,
            paced: Some(PacedFigures {
                rate_bps: 2_000_000,
                connections: 1,
                paced: 1,
                restored: 1,
                refused: 1,
            }),
        }
    }
}

families! {
    PASSED_PACKETS = counter("unbloat_gate_passed_packets", "packets",
        "Packets that passed the gate.");
    PASSED_BYTES = counter("unbloat_gate_passed_bytes", "bytes", "Bytes that passed the gate.");
    PRIVILEGED = counter("unbloat_gate_privileged_packets", "packets",
        "Packets that passed above the limit, for being thin, sparse or bare.");
    UNGUARDED = counter("unbloat_gate_unguarded_packets", "packets",
        "Packets that passed an open gate: no reports, or no lease.");
    REFUSED = counter("unbloat_gate_refused_packets", "packets",
        "Packets refused: to sockets of this host, which wait and send again, or to others, which \
         lose them.");
    REPORTS = counter("unbloat_gate_reports", "", "Reports of the modem or driver.");
    FRESH = gauge("unbloat_gate_reports_fresh", "", "1 while reports come.");
    AGE = gauge("unbloat_gate_report_age_seconds", "seconds",
        "Age of the last report when it arrived.");
    REPORTED = gauge("unbloat_gate_reported_bytes", "bytes",
        "Bytes below the operating system, as last reported.");
    OCCUPANCY = gauge("unbloat_gate_occupancy_bytes", "bytes",
        "Bytes below the operating system, as the gate reckons since.");
    LIMIT = gauge("unbloat_gate_limit_bytes", "bytes", "Bytes that may lie there.");
    FAIR = gauge("unbloat_gate_fair_bytes", "bytes", "One flow's fair part of them.");
    DELAY = gauge("unbloat_gate_delay_seconds", "seconds",
        "How long what lies there takes to drain.");
    PACED = counter("unbloat_gate_paced_connections", "",
        "Connections of this host that were watched, times that one began or ended to be paced, and \
         bounds that the kernel refused.");
    PACED_RATE = gauge("unbloat_gate_paced_rate_bytes_per_second", "bytes_per_second",
        "The rate at which each connection of this host is paced; 0: none is.");
    RATE = gauge("unbloat_gate_rate_bytes_per_second", "bytes_per_second",
        "The uplink's rate, as the gate reckons.");
}

impl Figures for GateFigures {
    fn line(&self) -> String {
        let below = match &self.telemetry {
            Telemetry::Fresh { grade, .. } => grade,
            Telemetry::Silent { why, .. } => return format!("open, without reports: {why}"),
        };
        let waits = match (self.occupancy_bytes, self.delay_ms) {
            (0, _) => format!("nothing waits in the {below}"),
            (bytes, Some(ms)) => format!(
                "{:.1} KB wait in the {below}, {ms:.0} ms at {:.2} Mbit/s",
                bytes as f64 / 1e3,
                self.rate_bps as f64 / 1e6
            ),
            (bytes, None) => format!("{:.1} KB wait in the {below}", bytes as f64 / 1e3),
        };
        let paced = match &self.paced {
            Some(paced) if paced.rate_bps > 0 => {
                format!("; connections are paced at {:.2} Mbit/s", paced.rate_bps as f64 / 1e6)
            }
            _ => String::new(),
        };
        format!(
            "{waits}; refused {} packets of this host, {} of others{paced}",
            self.refused_own, self.refused_forwarded
        )
    }

    fn samples(&self) -> Vec<Sample> {
        let fresh = matches!(self.telemetry, Telemetry::Fresh { .. });
        let mut samples = vec![
            count(PASSED_PACKETS, &[], self.passed),
            count(PASSED_BYTES, &[], self.passed_bytes),
            count(PRIVILEGED, &[], self.privileged),
            count(UNGUARDED, &[], self.unguarded),
            count(REFUSED, &[("whose", "own")], self.refused_own),
            count(REFUSED, &[("whose", "forwarded")], self.refused_forwarded),
            count(REPORTS, &[], self.reports),
            count(FRESH, &[], fresh.into()),
            value(AGE, &[], self.report_age_ms * 1e-3),
            count(REPORTED, &[], self.reported_bytes),
            count(OCCUPANCY, &[], self.occupancy_bytes),
            count(LIMIT, &[], self.limit_bytes),
            count(FAIR, &[], self.fair_bytes),
        ];
        samples.extend(self.delay_ms.map(|ms| value(DELAY, &[], ms * 1e-3)));
        samples.extend(self.paced.iter().flat_map(PacedFigures::samples));
        samples.push(value(RATE, &[], self.rate_bps as f64 / 8.0));
        samples
    }
}

impl PacedFigures {
    fn samples(&self) -> [Sample; 5] {
        [
            value(PACED_RATE, &[], self.rate_bps as f64 / 8.0),
            count(PACED, &[("event", "watched")], self.connections),
            count(PACED, &[("event", "began")], self.paced),
            count(PACED, &[("event", "ended")], self.restored),
            count(PACED, &[("event", "refused")], self.refused),
        ]
    }
}
