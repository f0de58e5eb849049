//! Counters and times of DRWA on this host's sockets, as a line of status and as metrics.

use serde::Serialize;

use crate::cures::Figures;
use crate::cures::figures::{
    ACKS, CONNECTIONS, DECISIONS, Label, Sample, WINDOWS, count, counter, families, gauge, value,
};
use crate::kernel::layouts::ReceiveCounters;

/// Counters and times of this cure.
#[derive(Debug, Default, Serialize)]
pub struct ReceiveFigures {
    connections: u64,
    acks: u64,
    decisions: u64,
    applied: u64,
    reapplied: u64,
    refused: u64,
    lifted: u64,
    raised: u64,
    withheld: u64,
    walk_ms: f64,
}

impl ReceiveFigures {
    pub(super) fn new(counters: &ReceiveCounters, walk_ms: f64) -> ReceiveFigures {
        let c = counters;
        ReceiveFigures {
            connections: c.sockets,
            acks: c.samples,
            decisions: c.decisions,
            applied: c.applied,
            reapplied: c.reapplied,
            refused: c.refused,
            lifted: c.lifted,
            raised: c.raised,
            withheld: c.withheld,
            walk_ms,
        }
    }
}

#[cfg(test)]
impl ReceiveFigures {
    pub(crate) fn example() -> ReceiveFigures {
        ReceiveFigures { acks: 1_000, reapplied: 2, walk_ms: 3.0, ..ReceiveFigures::default() }
    }
}

const RECEIVE: &[Label] = &[("cure", "receive")];
families! {
    BUFFERS = counter("unbloat_buffers", "",
        "Buffers that the rate term made larger, or did not, for want of memory.");
    WALK = gauge("unbloat_walk_seconds", "seconds",
        "How long the last walk over existing connections took.");
}

impl Figures for ReceiveFigures {
    fn line(&self) -> String {
        format!(
            "{} connections, {} ACKs, {} decisions, clamp set {} times ({} again)",
            self.connections, self.acks, self.decisions, self.applied, self.reapplied
        )
    }

    fn samples(&self) -> Vec<Sample> {
        vec![
            count(CONNECTIONS, RECEIVE, self.connections),
            count(ACKS, RECEIVE, self.acks),
            count(DECISIONS, RECEIVE, self.decisions),
            count(WINDOWS, &[("cure", "receive"), ("done", "applied")], self.applied),
            count(WINDOWS, &[("cure", "receive"), ("done", "reapplied")], self.reapplied),
            count(WINDOWS, &[("cure", "receive"), ("done", "lifted")], self.lifted),
            count(WINDOWS, &[("cure", "receive"), ("done", "refused")], self.refused),
            count(BUFFERS, &[("done", "raised")], self.raised),
            count(BUFFERS, &[("done", "withheld")], self.withheld),
            value(WALK, &[], self.walk_ms * 1e-3),
        ]
    }
}
