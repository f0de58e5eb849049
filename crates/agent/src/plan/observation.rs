//! An observation of the traffic, in one form for sockets and captures: each flow of some size with
//! its rate, its idle and loaded RTT, and what limited it. Names and grades are those of
//! `unbloat analyze`.

use std::net::IpAddr;

use serde_json::{Value, json};

/// Queueing delay (p95) from which a flow counts as bloated: where grade C begins
/// (`docs/findings/bufferbloat.md`).
pub const BLOATED_MS: f64 = 60.0;
/// Minimum payload of a transfer, as in the findings.
pub const MIN_BYTES: u64 = 100_000;
/// Minimum of RTT samples under load, as in the findings: below it a p95 is a single outlier.
pub const MIN_SAMPLES: u64 = 20;

/// Direction of data, seen from this host or, if it is forwarded, from the hosts behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Data towards this host.
    Download,
    /// Data from this host.
    Upload,
}

impl Way {
    /// The value in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Download => "download",
            Way::Upload => "upload",
        }
    }
}

/// Data of one connection, in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Direction of the data.
    pub way: Way,
    /// Neither end is this host: it is forwarded.
    pub forwarded: bool,
    /// The end on this host, or behind it.
    pub local: (IpAddr, u16),
    /// Address and port of the remote end.
    pub remote: (IpAddr, u16),
    /// Payload while it was observed.
    pub bytes: u64,
    /// Time for which it was observed.
    pub lasted_s: f64,
    /// Mean goodput, in bit/s.
    pub rate_bps: f64,
    /// Variation of its rate by second: ninth decile over first decile.
    pub swing: Option<f64>,
    /// Minimum RTT known of the path.
    pub rtt_min_ms: Option<f64>,
    /// RTT under load: median and p95.
    pub rtt_ms: Option<(f64, f64)>,
    /// Number of these samples.
    pub samples: u64,
    /// The RTT is by windows instead of acknowledgments and timestamps: an upper bound.
    pub rtt_by_window: bool,
    /// Maximum segment size, bytes.
    pub mss_bytes: u64,
    /// Largest window that its receiver advertised.
    pub window_bytes: Option<u64>,
    /// Share of the time in which the window was full, or nearly so.
    pub window_share: f64,
    /// Share of the time in which the receiver's application did not read.
    pub unread_share: f64,
    /// The receiver's buffer has reached its maximum.
    pub buffer_full_grown: bool,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// It waits in another flow's queue, being too small to have filled it.
    pub in_others_queue: bool,
}

impl Flow {
    /// A flow of which only the ends are known.
    pub fn new(way: Way, local: (IpAddr, u16), remote: (IpAddr, u16)) -> Flow {
        Flow {
            way,
            forwarded: false,
            local,
            remote,
            bytes: 0,
            lasted_s: 0.0,
            rate_bps: 0.0,
            swing: None,
            rtt_min_ms: None,
            rtt_ms: None,
            samples: 0,
            rtt_by_window: false,
            mss_bytes: 1_448,
            window_bytes: None,
            window_share: 0.0,
            unread_share: 0.0,
            buffer_full_grown: false,
            congestion: None,
            in_others_queue: false,
        }
    }

    /// Whether there is enough data to judge it.
    pub fn judgeable(&self) -> bool {
        self.bytes >= MIN_BYTES && self.samples >= MIN_SAMPLES
    }

    /// Queueing delay under load: median and p95.
    pub fn queue_ms(&self) -> Option<(f64, f64)> {
        let (min, (median, p95)) = (self.rtt_min_ms?, self.rtt_ms?);
        Some(((median - min).max(0.0), (p95 - min).max(0.0)))
    }

    /// Whether it has a standing queue of its own making.
    pub fn bloated(&self) -> bool {
        self.judgeable()
            && !self.in_others_queue
            && self.queue_ms().is_some_and(|(_, p95)| p95 >= BLOATED_MS)
    }

    /// Grade of its queueing delay.
    pub fn grade(&self) -> Option<&'static str> {
        self.queue_ms()
            .filter(|_| self.judgeable())
            .map(|(_, p95)| flow::diagnose::grade::grade(p95))
    }

    /// Its own bytes in the queue, at the median.
    pub fn queue_bytes(&self) -> Option<f64> {
        Some(self.queue_ms()?.0 / 1e3 * self.rate_bps / 8.0)
    }

    /// Bandwidth-delay product of the empty path at this rate.
    pub fn bdp_bytes(&self) -> Option<f64> {
        Some(self.rtt_min_ms? / 1e3 * self.rate_bps / 8.0)
    }

    /// The value in `--json`.
    pub fn to_json(&self) -> Value {
        json!({
            "direction": self.way.name(), "forwarded": self.forwarded,
            "local": self.local.0, "local_port": self.local.1,
            "remote": self.remote.0, "remote_port": self.remote.1,
            "bytes": self.bytes, "span_s": self.lasted_s, "goodput_bps": self.rate_bps.round(),
            "rate_swing": self.swing,
            "rtt_ms_min": self.rtt_min_ms,
            "loaded_rtt_ms_p50": self.rtt_ms.map(|rtt| rtt.0), "loaded_rtt_ms_p95": self.rtt_ms.map(|rtt| rtt.1),
            "rtt_samples": self.samples, "rtt_by_window": self.rtt_by_window,
            "queue_ms_p50": self.queue_ms().map(|q| q.0), "queue_ms_p95": self.queue_ms().map(|q| q.1),
            "queue_bytes": self.queue_bytes().map(f64::round), "bdp_bytes": self.bdp_bytes().map(f64::round),
            "grade": self.grade(),
            "rwnd_bytes_max": self.window_bytes, "window_full_share": self.window_share,
            "unread_share": self.unread_share, "congestion_control": self.congestion,
            "anothers_queue": self.in_others_queue,
        })
    }
}

/// Traffic of the uplink's device while sockets were observed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceTraffic {
    /// Received rate, all protocols, of all hosts.
    pub received_bps: f64,
    /// Of that, payload of this host's own TCP connections, also data beyond a hole.
    pub own_bps: f64,
    /// Sent rate of the device, bit/s.
    pub sent_bps: f64,
    /// Median backlog of the queue discipline at its root.
    pub backlog_bytes: u64,
}

/// A finding of `unbloat analyze` in the capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureFinding {
    /// Name of its rule.
    pub rule: &'static str,
    /// Severity of the finding.
    pub severity: &'static str,
    /// The finding as a sentence.
    pub text: String,
}

/// Where traffic was observed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Place {
    /// At this host.
    #[default]
    Here,
    /// At another host, with these addresses.
    Elsewhere(Vec<IpAddr>),
    /// In a capture that holds no address of this host and does not show whose it is.
    Unknown,
}

impl Place {
    fn name(&self) -> &'static str {
        match self {
            Place::Here => "here",
            Place::Elsewhere(_) => "elsewhere",
            Place::Unknown => "unknown",
        }
    }
}

/// The traffic that was observed.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Source: `live` or `capture`.
    pub source: &'static str,
    /// Description: source and time.
    pub words: String,
    /// Length of the observation.
    pub span_s: f64,
    /// Flows with payload, the largest first.
    pub flows: Vec<Flow>,
    /// Number of TCP connections.
    pub connections: usize,
    /// Traffic of the uplink's device; only for sockets.
    pub carried: Option<DeviceTraffic>,
    /// Whose traffic it is.
    pub place: Place,
    /// Number of transfers of [`MIN_BYTES`] or more that are left out, because it is unknown which end is near.
    pub undecided: usize,
    /// Findings of the capture, serious ones first.
    pub findings: Vec<CaptureFinding>,
    /// Problems with the source.
    pub warnings: Vec<String>,
}

impl Observation {
    /// Flows of a direction that satisfy a condition, the largest first.
    pub fn of(&self, way: Way, which: impl Fn(&Flow) -> bool) -> Vec<&Flow> {
        self.flows.iter().filter(|flow| flow.way == way && which(flow)).collect()
    }

    /// The value in `--json`.
    pub fn to_json(&self) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|f| json!({"rule": f.rule, "severity": f.severity, "text": f.text}))
            .collect();
        let of_hosts: &[IpAddr] =
            if let Place::Elsewhere(hosts) = &self.place { hosts } else { &[] };
        json!({
            "source": self.source, "span_s": self.span_s, "connections": self.connections,
            "flows": self.flows.iter().map(Flow::to_json).collect::<Vec<_>>(),
            "device": self.carried.map(|c| json!({
                "received_bps": c.received_bps.round(), "own_bps": c.own_bps.round(), "sent_bps": c.sent_bps.round(), "backlog_bytes_p50": c.backlog_bytes,
            })),
            "place": self.place.name(), "of_hosts": of_hosts, "undecided": self.undecided, "findings": findings, "warnings": self.warnings,
        })
    }
}

/// A quantile of a list; `None` of an empty one.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut ordered: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    ordered.sort_by(f64::total_cmp);
    let at = (q * ordered.len() as f64) as usize;
    ordered.get(at.min(ordered.len().saturating_sub(1))).copied()
}

/// Variation of rates by second: ninth decile over first decile. The first second belongs to slow
/// start, the last one is incomplete.
pub fn swing(rates: &[f64]) -> Option<f64> {
    let inner = rates.get(1..rates.len().saturating_sub(1)).filter(|inner| inner.len() >= 4)?;
    let (low, high) = (quantile(inner, 0.1)?, quantile(inner, 0.9)?);
    (high > 0.0).then(|| high / low.max(high / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flows_queue_and_grade_follow_from_its_rtts() {
        let end = ("192.0.2.1".parse().unwrap(), 443);
        let mut flow = Flow::new(Way::Download, end, end);
        (flow.bytes, flow.samples, flow.rate_bps) = (8_000_000, 50, 8e6);
        (flow.rtt_min_ms, flow.rtt_ms) = (Some(60.0), Some((1_560.0, 2_060.0)));
        assert_eq!(flow.queue_ms(), Some((1_500.0, 2_000.0)));
        assert_eq!(
            (flow.grade(), flow.queue_bytes(), flow.bdp_bytes()),
            (Some("F"), Some(1_500_000.0), Some(60_000.0))
        );
        assert!(flow.bloated());
        flow.rtt_ms = Some((80.0, 119.0));
        assert!(!flow.bloated());
        (flow.rtt_ms, flow.samples) = (Some((80.0, 2_000.0)), MIN_SAMPLES - 1);
        assert!(!flow.bloated() && flow.grade().is_none(), "a p95 of few samples is an outlier");
    }

    #[test]
    fn rates_vary_by_their_tenths_without_the_ends() {
        assert_eq!(swing(&[0.1, 8.0, 8.0, 8.0, 8.0, 2.0]), Some(1.0));
        assert_eq!(swing(&[1.0, 2.0, 8.0, 2.0, 8.0, 1.0]), Some(4.0));
        assert_eq!(swing(&[1.0, 2.0, 3.0]), None);
        assert_eq!((quantile(&[], 0.5), quantile(&[3.0, 1.0, 2.0], 0.5)), (None, Some(2.0)));
    }
}
