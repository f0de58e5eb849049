//! A status for tests.

use super::*;
use crate::cures::trial::Stage;

/// A flow that its window limits.
pub(crate) fn flow(cure: &'static str, remote: &str, rate_bps: u64, rtt_ms: u64) -> FlowStatus {
    FlowStatus {
        cure,
        remote: (remote.parse().unwrap(), 443),
        local_port: 50_000,
        age_ms: 10,
        bytes: 1 << 20,
        rate: rate_bps / 8,
        rtt_us: rtt_ms * 1_000,
        rtt_min_us: 60_000,
        lambda: 320,
        adapts: true,
        wanted: 180_000,
        advertised: 180_000,
        applied: true,
        reapplied: 0,
        gated: false,
    }
}

/// A trial of a cure.
pub(crate) fn trial(cure: &'static str, remote: Option<&str>, state: Stage) -> TrialStatus {
    TrialStatus {
        cure,
        remote: remote.map(|remote| remote.parse().unwrap()),
        remote_port: remote.map(|_| 443),
        local_port: remote.map(|_| 50_000),
        state,
        with_bps: Some(1_000_000),
        without_bps: Some(2_000_000),
    }
}

/// An agent that runs, without cures.
pub(crate) fn status() -> Status {
    Status {
        ok: true,
        state: "on",
        pid: 41,
        version: "1.2\"\\3",
        up_s: 3.5,
        device: Some("wwan0".to_owned()),
        lifted: false,
        uplink: Active { active: "acks", why: "no reports".to_owned() },
        cures: Reports::default(),
        trials: Vec::new(),
        problems: Vec::new(),
        work: BTreeMap::new(),
        other_programs: Vec::new(),
        flags_replaced: 0,
        flows: Vec::new(),
        log: VecDeque::new(),
    }
}
