//! A flow under a cure, as `status` shows it.

use algo::rwnd::adaptive::LAMBDA_ONE;
use std::net::IpAddr;

use serde::Serialize;

/// What limits the rate of a flow, as far as its receiver can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The target window of the agent.
    Agent,
    /// The gate on the uplink's device.
    Gate,
    /// The sender, its application, or the path.
    Sender,
    /// No data arrives: the transfer rests or has ended.
    Idle,
}

/// Whether a flow whose last decision is so old is under way, with decisions each round trip. A
/// second more, since an application may read or write in bursts.
pub(crate) fn is_under_way(age_ms: u64, rtt_us: u64) -> bool {
    age_ms <= 1_000 + rtt_us / 500
}

/// The figures of a flow under a cure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Row")]
pub struct FlowStatus {
    /// The cure that reports it, with its direction where it has two.
    pub cure: &'static str,
    /// Address and port of the remote end.
    pub remote: (IpAddr, u16),
    /// Port of this end.
    pub local_port: u16,
    /// Age of the last decision, ms.
    pub age_ms: u64,
    /// Bytes of payload so far.
    pub bytes: u64,
    /// The mean rate, bytes per second.
    pub rate: u64,
    /// Last RTT, µs.
    pub rtt_us: u64,
    /// Smallest RTT, µs.
    pub rtt_min_us: u64,
    /// λ of its law in units of 1/256, and whether it adapts.
    pub lambda: u64,
    /// See `lambda`.
    pub adapts: bool,
    /// Target window of the law, bytes.
    pub wanted: u64,
    /// Advertised window, bytes.
    pub advertised: u64,
    /// Whether the target window is set, and not only computed.
    pub applied: bool,
    /// How often the window was set again because the kernel had changed it.
    pub reapplied: u64,
    /// Whether the gate limits it.
    pub gated: bool,
}

impl FlowStatus {
    /// Bytes in flight, at this rate and RTT.
    pub fn in_flight(&self) -> u64 {
        (u128::from(self.rate_now()) * u128::from(self.rtt_us) / 1_000_000) as u64
    }

    /// Bytes of them that wait in queues.
    pub fn queue(&self) -> u64 {
        let waiting = self.rtt_us.saturating_sub(self.rtt_min_us);
        (u128::from(self.rate_now()) * u128::from(waiting) / 1_000_000) as u64
    }

    /// Whether it fills four fifths of its target window.
    pub fn full(&self) -> bool {
        self.in_flight().saturating_mul(5) >= self.wanted.saturating_mul(4)
    }

    /// Whether data arrives.
    pub fn under_way(&self) -> bool {
        is_under_way(self.age_ms, self.rtt_us)
    }

    /// The law's average rate while data arrives, bytes per second. Else 0: the law has no rounds
    /// in which its average could fall.
    pub fn rate_now(&self) -> u64 {
        if self.under_way() { self.rate } else { 0 }
    }

    /// λ, and why it is that. `algo::rwnd::adaptive` has the bounds.
    pub fn lambda_why(&self) -> &'static str {
        let waiting = self.rtt_us.saturating_sub(self.rtt_min_us);
        match (self.adapts, waiting * 16 > self.rtt_min_us * 3) {
            (false, _) => "as configured",
            (true, true) => "falls: a queue stands",
            (true, false) => "rises: the last round had no queue",
        }
    }

    /// What limits it: a flow that fills a window that is set is limited by it.
    pub fn limit(&self) -> Limit {
        if !self.under_way() {
            return Limit::Idle;
        }
        match (self.gated, self.applied && self.full()) {
            (true, _) => Limit::Gate,
            (false, true) => Limit::Agent,
            (false, false) => Limit::Sender,
        }
    }

    /// Last RTT, ms.
    pub fn rtt_ms(&self) -> f64 {
        self.rtt_us as f64 / 1e3
    }

    /// Smallest RTT, ms.
    pub fn rtt_min_ms(&self) -> f64 {
        self.rtt_min_us as f64 / 1e3
    }
}

/// A flow in the JSON of the status.
#[derive(Serialize)]
struct Row {
    cure: &'static str,
    remote: IpAddr,
    remote_port: u16,
    local_port: u16,
    age_ms: u64,
    bytes: u64,
    rate_bps: u64,
    rtt_ms: f64,
    rtt_min_ms: f64,
    lambda: f64,
    lambda_why: &'static str,
    wanted_bytes: u64,
    advertised_bytes: u64,
    in_flight_bytes: u64,
    queue_bytes: u64,
    limit: Limit,
    applied: bool,
    reapplied: u64,
}

impl From<FlowStatus> for Row {
    fn from(flow: FlowStatus) -> Row {
        Row {
            cure: flow.cure,
            remote: flow.remote.0,
            remote_port: flow.remote.1,
            local_port: flow.local_port,
            age_ms: flow.age_ms,
            bytes: flow.bytes,
            rate_bps: flow.rate_now().saturating_mul(8),
            rtt_ms: flow.rtt_ms(),
            rtt_min_ms: flow.rtt_min_ms(),
            lambda: flow.lambda as f64 / LAMBDA_ONE as f64,
            lambda_why: flow.lambda_why(),
            wanted_bytes: flow.wanted,
            advertised_bytes: flow.advertised,
            in_flight_bytes: flow.in_flight(),
            queue_bytes: flow.queue(),
            limit: flow.limit(),
            applied: flow.applied,
            reapplied: flow.reapplied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_fills_its_window_is_limited_by_it() {
        let mut flow = FlowStatus {
            cure: "receive",
            remote: ("192.0.2.1".parse().unwrap(), 443),
            local_port: 50_000,
            age_ms: 10,
            bytes: 1 << 20,
            rate: 1_000_000,
            rtt_us: 180_000,
            rtt_min_us: 60_000,
            lambda: 320,
            adapts: true,
            wanted: 180_000,
            advertised: 180_000,
            applied: true,
            reapplied: 2,
            gated: false,
        };
        assert_eq!(
            (flow.in_flight(), flow.queue(), flow.limit()),
            (180_000, 120_000, Limit::Agent)
        );
        flow.rtt_us = 60_000;
        assert_eq!((flow.queue(), flow.limit()), (0, Limit::Sender));
        assert_eq!(flow.lambda_why(), "rises: the last round had no queue");
        let json = serde_json::json!(flow);
        assert_eq!(json["lambda"], 1.25);
        assert_eq!((&json["rtt_ms"], &json["limit"]), (&60.0.into(), &"sender".into()));
        flow.gated = true;
        assert_eq!(serde_json::json!(flow)["limit"], "gate");
        flow.age_ms = 1_200;
        assert_eq!(serde_json::json!(flow)["limit"], "idle");
        assert_eq!(serde_json::json!(flow)["rate_bps"], 0);
        flow.rtt_us = 120_000;
        assert_eq!(serde_json::json!(flow)["limit"], "gate", "two round trips later");
    }
}
