//! A flow under a cure, as `status` shows it.

pub mod metrics;

pub mod table;

use std::net::IpAddr;

use serde_json::{Value, json};

/// Who holds a flow back, as far as its receiver can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The window that the agent wants.
    Agent,
    /// The sender, its application, or the path.
    Sender,
}

/// What is known of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatus {
    /// Which cure tells.
    pub cure: &'static str,
    /// The other end.
    pub remote: (IpAddr, u16),
    /// Port here.
    pub local_port: u16,
    /// How long ago this was decided.
    pub age_ms: u64,
    /// Bytes of payload so far.
    pub bytes: u64,
    /// Average of the law, bytes per second.
    pub rate: u64,
    /// RTT now, µs.
    pub rtt_us: u64,
    /// Smallest RTT, µs.
    pub rtt_min_us: u64,
    /// Window that the law wants.
    pub wanted: u64,
    /// Window on offer.
    pub advertised: u64,
    /// Set, or only looked at.
    pub applied: bool,
    /// How often the kernel had moved the clamp.
    pub reapplied: u64,
}

impl FlowStatus {
    /// What is under way, at this rate and RTT.
    pub fn in_flight(&self) -> u64 {
        (u128::from(self.rate) * u128::from(self.rtt_us) / 1_000_000) as u64
    }

    /// What of it stands in queues.
    pub fn queue(&self) -> u64 {
        let waiting = self.rtt_us.saturating_sub(self.rtt_min_us);
        (u128::from(self.rate) * u128::from(waiting) / 1_000_000) as u64
    }

    /// Who holds it back: a flow that fills four fifths of a window that is set is held by it.
    pub fn limit(&self) -> Limit {
        match self.applied && self.in_flight().saturating_mul(5) >= self.wanted.saturating_mul(4) {
            true => Limit::Agent,
            false => Limit::Sender,
        }
    }

    /// For `--json` and the control socket.
    pub fn to_json(&self) -> Value {
        json!({
            "cure": self.cure,
            "remote": self.remote.0,
            "remote_port": self.remote.1,
            "local_port": self.local_port,
            "age_ms": self.age_ms,
            "bytes": self.bytes,
            "rate_bps": self.rate.saturating_mul(8),
            "rtt_ms": self.rtt_us as f64 / 1e3,
            "rtt_min_ms": self.rtt_min_us as f64 / 1e3,
            "wanted_bytes": self.wanted,
            "advertised_bytes": self.advertised,
            "in_flight_bytes": self.in_flight(),
            "queue_bytes": self.queue(),
            "limit": match self.limit() { Limit::Agent => "agent", Limit::Sender => "sender" },
            "applied": self.applied,
            "reapplied": self.reapplied,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_fills_its_window_is_held_by_it() {
        let mut flow = FlowStatus {
            cure: "receive",
            remote: ("192.0.2.1".parse().unwrap(), 443),
            local_port: 50_000,
            age_ms: 10,
            bytes: 1 << 20,
            rate: 1_000_000,
            rtt_us: 180_000,
            rtt_min_us: 60_000,
            wanted: 180_000,
            advertised: 180_000,
            applied: true,
            reapplied: 2,
        };
        assert_eq!(
            (flow.in_flight(), flow.queue(), flow.limit()),
            (180_000, 120_000, Limit::Agent)
        );
        flow.rtt_us = 60_000;
        assert_eq!((flow.queue(), flow.limit()), (0, Limit::Sender));
        assert_eq!(flow.to_json()["rtt_ms"], 60.0);
    }
}
