//! What was seen of the traffic, in one form whether sockets or a capture told it: each flow of some size with its rate, its RTT idle
//! and loaded, and what held it back. Names and grades are those of `unbloat analyze`.

use std::net::IpAddr;

use serde_json::{Value, json};

/// Delay by queueing (p95) from which a flow counts as bloated: where grade C begins (`docs/findings/bufferbloat.md`).
pub const BLOATED_MS: f64 = 60.0;
/// Less payload than this is no transfer: as the findings have it.
pub const LEAST_BYTES: u64 = 100_000;
/// RTT samples under load below which a p95 is one outlier: as the findings have it.
pub const LEAST_SAMPLES: u64 = 20;

/// Where data goes, seen from this host or, if it is passed on, from those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To here.
    Download,
    /// From here.
    Upload,
}

impl Way {
    /// For `--json`.
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
    /// Its direction.
    pub way: Way,
    /// Neither end is the host: it passes on.
    pub forwarded: bool,
    /// The end here, or behind here.
    pub local: (IpAddr, u16),
    /// The other end.
    pub remote: (IpAddr, u16),
    /// Payload while it was looked at.
    pub bytes: u64,
    /// How long that was.
    pub lasted_s: f64,
    /// Goodput.
    pub rate_bps: f64,
    /// Its rates by second: the ninth tenth over the first.
    pub swing: Option<f64>,
    /// Smallest RTT known of the path.
    pub rtt_min_ms: Option<f64>,
    /// RTT under load: median and p95.
    pub rtt_ms: Option<(f64, f64)>,
    /// How many samples these are.
    pub samples: u64,
    /// By windows instead of acknowledgements and timestamps: an upper bound.
    pub rtt_by_window: bool,
    /// Largest segment.
    pub mss_bytes: u64,
    /// Largest window that its receiver offered.
    pub window_bytes: Option<u64>,
    /// Share of the time in which the window was full, or nearly.
    pub window_share: f64,
    /// Share of the time in which the receiver's application did not read.
    pub unread_share: f64,
    /// The receiver's buffer is as large as it may become.
    pub buffer_full_grown: bool,
    /// Congestion control of its sender.
    pub congestion: Option<String>,
    /// Too small to have filled the queue that it waits in: another flow's.
    pub anothers_queue: bool,
}

impl Flow {
    /// Of which nothing is known but its ends.
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
            anothers_queue: false,
        }
    }

    /// Enough was seen to judge it.
    pub fn told(&self) -> bool {
        self.bytes >= LEAST_BYTES && self.samples >= LEAST_SAMPLES
    }

    /// Queueing delay under load: median and p95.
    pub fn queue_ms(&self) -> Option<(f64, f64)> {
        let (min, (median, p95)) = (self.rtt_min_ms?, self.rtt_ms?);
        Some(((median - min).max(0.0), (p95 - min).max(0.0)))
    }

    /// It waits behind a standing queue of its own making.
    pub fn bloated(&self) -> bool {
        self.told()
            && !self.anothers_queue
            && self.queue_ms().is_some_and(|(_, p95)| p95 >= BLOATED_MS)
    }

    /// Grade of its queueing delay, as everywhere.
    pub fn grade(&self) -> Option<&'static str> {
        self.queue_ms().filter(|_| self.told()).map(|(_, p95)| flow::series::grade::grade(p95))
    }

    /// Bytes of its own that stand in the queue, at the median.
    pub fn queue_bytes(&self) -> Option<f64> {
        Some(self.queue_ms()?.0 / 1e3 * self.rate_bps / 8.0)
    }

    /// What the empty path holds at this rate.
    pub fn bdp_bytes(&self) -> Option<f64> {
        Some(self.rtt_min_ms? / 1e3 * self.rate_bps / 8.0)
    }

    /// For `--json`.
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
            "anothers_queue": self.anothers_queue,
        })
    }
}

/// What the uplink's device carried while sockets were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carried {
    /// Received, all protocols, for whomever.
    pub received_bps: f64,
    /// Of that, payload of this host's own TCP connections, also what lies behind a hole.
    pub own_bps: f64,
    /// Sent.
    pub sent_bps: f64,
    /// What waited in the queue discipline at its root, median.
    pub backlog_bytes: u64,
}

/// A finding of the capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its rule, as `unbloat analyze` names it.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: &'static str,
    /// In words.
    pub text: String,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// From what: `live` or `capture`.
    pub source: &'static str,
    /// In words: how long, of what.
    pub words: String,
    /// How long.
    pub span_s: f64,
    /// Flows with payload, the largest first.
    pub flows: Vec<Flow>,
    /// TCP connections there were.
    pub connections: usize,
    /// The uplink's device; sockets only.
    pub carried: Option<Carried>,
    /// The hosts that the capture was taken at, when they are not this one.
    pub elsewhere: Vec<IpAddr>,
    /// Of the capture, serious ones first.
    pub findings: Vec<Found>,
    /// What was wrong with the source.
    pub warnings: Vec<String>,
}

impl Seen {
    /// Flows that are what is asked for, the largest first.
    pub fn of(&self, way: Way, which: impl Fn(&Flow) -> bool) -> Vec<&Flow> {
        self.flows.iter().filter(|flow| flow.way == way && which(flow)).collect()
    }

    /// For `--json`.
    pub fn to_json(&self) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|f| json!({"rule": f.rule, "severity": f.severity, "text": f.text}))
            .collect();
        json!({
            "source": self.source, "span_s": self.span_s, "connections": self.connections,
            "flows": self.flows.iter().map(Flow::to_json).collect::<Vec<_>>(),
            "device": self.carried.map(|c| json!({
                "received_bps": c.received_bps.round(), "own_bps": c.own_bps.round(), "sent_bps": c.sent_bps.round(), "backlog_bytes_p50": c.backlog_bytes,
            })),
            "of_hosts": self.elsewhere, "findings": findings, "warnings": self.warnings,
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

/// How much rates by second vary: the ninth tenth over the first. The first second is slow start's, the last is not whole.
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
        (flow.rtt_ms, flow.samples) = (Some((80.0, 2_000.0)), LEAST_SAMPLES - 1);
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
