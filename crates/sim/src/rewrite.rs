//! ACK-window rewriting: a window law outside the receiver, on the ACKs that a router forwards or
//! that arrive at the sending side.
//!
//! signal: forwarded data and ACKs with their timestamps · model: the RTT is the sum of two halves,
//! each measured from a forwarded timestamp to its echo (at the sending side there is one half
//! only); the ACK number stands for both received and read data · action: the window field of the
//! ACK becomes the smaller of its own and the law's; an advertised right edge is never retracted.

mod agent;

use std::collections::VecDeque;

use algo::rwnd::{Cause, Rwnd, Sample, Setup, WindowControl, drwa};
use units::{Bytes, Duration, Instant};

use crate::frame::{Frame, flags};
use crate::wire::WireParameters;
use agent::Agent;

/// What rewrites windows at one node.
pub enum Node {
    /// The published law, or any other of the table.
    Law(Rewriter),
    /// DRWA as unbloat-agent runs it (`form = "agent"`).
    Agent(Box<Agent>),
}

impl Node {
    /// A node that has seen nothing yet.
    pub fn new(algorithm: scenario::Algorithm, mss: u64, node: usize) -> Node {
        match agent_law(&algorithm) {
            Some(law) => Node::Agent(Box::new(Agent::new(law, node))),
            None => Node::Law(Rewriter::new(algorithm, mss)),
        }
    }

    /// The node sends a TCP frame of its own.
    pub fn on_sent(&mut self, now: Instant, f: &mut Frame, wire: &WireParameters) {
        match self {
            Node::Law(law) if f.payload() > 0 => law.on_sent(now, f),
            Node::Law(_) => {}
            Node::Agent(agent) => agent.on_frame(now, f, wire, true),
        }
    }

    /// A TCP frame arrives; `out`: it leaves by the node's uplink.
    pub fn on_frame(&mut self, now: Instant, f: &mut Frame, wire: &WireParameters, out: bool) {
        match self {
            Node::Law(law) if f.flags & flags::SYN == 0 => law.on_frame(now, f),
            Node::Law(_) => {}
            Node::Agent(agent) => agent.on_frame(now, f, wire, out),
        }
    }

    /// Replaces the law for existing and future flows.
    pub fn switch(&mut self, algorithm: scenario::Algorithm, mss: u64, node: usize) {
        match (self, agent_law(&algorithm)) {
            (Node::Agent(agent), Some(law)) => agent.switch(law),
            (Node::Law(rewriter), None) => rewriter.switch(algorithm),
            (other, _) => *other = Node::new(algorithm, mss, node),
        }
    }
}

/// The agent's law, if the scenario asks for it.
pub(crate) fn agent_law(algorithm: &scenario::Algorithm) -> Option<drwa::Config> {
    let is_drwa = algo::rwnd::TABLE[algorithm.index].name == drwa::NAME;
    let config = is_drwa.then(|| drwa::Config::from_settings(&algorithm.settings));
    config.filter(|config| config.form == drwa::Form::Agent)
}

/// Timestamps of one side that wait for their echo: value, and when it was first forwarded.
#[derive(Debug, Default)]
struct Waiting(VecDeque<(u32, Instant)>);

impl Waiting {
    fn passed(&mut self, value: u32, now: Instant) {
        if value != 0 && self.0.back().is_none_or(|(last, _)| *last < value) {
            self.0.push_back((value, now));
        }
    }

    /// The time since `echo` was forwarded; older values will not be echoed any more.
    fn echoed(&mut self, echo: u32, now: Instant) -> Option<Duration> {
        while let Some(&(value, at)) = self.0.front() {
            if value > echo {
                return None;
            }
            self.0.pop_front();
            if value == echo {
                return Some(now.since(at));
            }
        }
        None
    }
}

/// State for one direction of data.
struct Direction {
    law: Rwnd,
    data_stamps: Waiting,
    ack_stamps: Waiting,
    far: Option<Duration>,
    near: Option<Duration>,
    edge: u64,
    acked: u64,
}

/// All directions that pass one node.
pub struct Rewriter {
    algorithm: scenario::Algorithm,
    mss: u64,
    directions: Vec<Option<Direction>>,
}

impl Rewriter {
    /// A node that has seen nothing yet.
    pub fn new(algorithm: scenario::Algorithm, mss: u64) -> Rewriter {
        Rewriter { algorithm, mss, directions: Vec::new() }
    }

    fn direction(&mut self, id: usize) -> &mut Direction {
        if self.directions.len() <= id {
            self.directions.resize_with(id + 1, || None);
        }
        let setup = Setup { mss: Bytes(self.mss), timestamps: true };
        let algorithm = &self.algorithm;
        self.directions[id].get_or_insert_with(|| Direction {
            law: algorithm.window(&setup),
            data_stamps: Waiting::default(),
            ack_stamps: Waiting::default(),
            far: None,
            near: None,
            edge: 0,
            acked: 0,
        })
    }

    /// The node sends data of its own: the far half of the RTT begins, and there is no near one.
    pub fn on_sent(&mut self, now: Instant, f: &Frame) {
        self.direction((f.owner as usize) * 2 + usize::from(f.side))
            .data_stamps
            .passed(f.ts_val, now);
    }

    /// A TCP frame without SYN is forwarded; its window may be lowered.
    pub fn on_frame(&mut self, now: Instant, f: &mut Frame) {
        let base = (f.owner as usize) * 2;
        if f.len > 0 {
            let d = self.direction(base + usize::from(f.side));
            d.data_stamps.passed(f.ts_val, now);
            if let Some(near) = d.ack_stamps.echoed(f.ts_ecr, now) {
                d.near = Some(near);
            }
            return;
        }
        // An ACK of the other side's data.
        let d = self.direction(base + usize::from(1 - f.side));
        d.ack_stamps.passed(f.ts_val, now);
        if let Some(far) = d.data_stamps.echoed(f.ts_ecr, now) {
            d.far = Some(far);
        }
        if f.ack < d.acked {
            return;
        }
        d.acked = f.ack;
        let rtt = d.far.take().map(|far| far + d.near.unwrap_or(Duration::ZERO));
        let mut sample = Sample {
            cause: Cause::Arrived,
            received: Bytes(f.ack),
            copied: Bytes(f.ack),
            out_of_order: Bytes::ZERO,
            right_edge: Bytes(d.edge),
            rtt,
        };
        d.law.on_sample(now, &sample);
        sample.cause = Cause::Copied;
        sample.rtt = None;
        d.law.on_sample(now, &sample);
        let own = f.ack + f.window;
        let wanted = (f.ack + d.law.window().0).max(d.edge);
        let edge = own.min(wanted);
        d.edge = d.edge.max(edge);
        f.window = edge - f.ack;
    }

    /// Replaces the law for existing and future flows.
    pub fn switch(&mut self, algorithm: scenario::Algorithm) {
        let setup = Setup { mss: Bytes(self.mss), timestamps: true };
        for d in self.directions.iter_mut().flatten() {
            d.law = algorithm.window(&setup);
        }
        self.algorithm = algorithm;
    }
}

#[cfg(test)]
mod tests {
    use algo::rwnd::TABLE;
    use algo::{Settings, Value};
    use proptest::prelude::*;

    use super::*;

    const MSS: u64 = 1_448;

    fn law(name: &str, values: &[(&str, Value)]) -> scenario::Algorithm {
        let index = TABLE.iter().position(|entry| entry.name == name).unwrap();
        let mut settings = Settings::defaults(TABLE[index].params);
        for (key, value) in values {
            assert!(settings.set(TABLE[index].params, key, value.clone()), "{key}");
        }
        scenario::Algorithm { index, settings }
    }

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn data(seq: u64, ts: (u32, u32)) -> Frame {
        Frame { side: 0, len: MSS as u32, seq, ts_val: ts.0, ts_ecr: ts.1, ..Frame::default() }
    }

    fn ack(ack: u64, window: u64, ts: (u32, u32)) -> Frame {
        Frame { side: 1, ack, window, ts_val: ts.0, ts_ecr: ts.1, ..Frame::default() }
    }

    #[test]
    fn a_window_above_the_laws_is_lowered_to_it_and_one_below_stays() {
        let fixed = law("fixed", &[("window", Value::Bytes(Bytes(50_000)))]);
        let mut node = Rewriter::new(fixed, MSS);
        for (own, left) in [(200_000, 50_000), (30_000, 30_000), (0, 0)] {
            // A receiver that retracts its own edge is not prevented from it.
            let mut f = ack(0, own, (1, 0));
            node.on_frame(at(10), &mut f);
            assert_eq!(f.window, left, "of {own}");
        }
    }

    #[test]
    fn an_ack_that_is_overtaken_by_a_later_one_passes_as_it_is() {
        let fixed = law("fixed", &[("window", Value::Bytes(Bytes(50_000)))]);
        let mut node = Rewriter::new(fixed, MSS);
        node.on_frame(at(1), &mut ack(10 * MSS, 90_000, (1, 0)));
        let mut late = ack(9 * MSS, 90_000, (1, 0));
        node.on_frame(at(2), &mut late);
        assert_eq!(late.window, 90_000);
    }

    #[test]
    fn directions_are_limited_each_by_itself() {
        let fixed = law("fixed", &[("window", Value::Bytes(Bytes(50_000)))]);
        let mut node = Rewriter::new(fixed, MSS);
        let mut first = ack(1_000_000, 90_000, (1, 0));
        node.on_frame(at(1), &mut first);
        // Another connection, and the other direction of the first: their edges are their own.
        let mut others = [ack(0, 90_000, (1, 0)), ack(0, 90_000, (1, 0))];
        (others[0].owner, others[1].side) = (1, 0);
        for other in &mut others {
            node.on_frame(at(2), other);
            assert_eq!(other.window, 50_000);
        }
    }

    #[test]
    fn both_halves_of_the_round_trip_are_measured_by_their_echoes() {
        let mut waiting = Waiting::default();
        waiting.passed(0, at(0)); // no timestamp
        waiting.passed(5, at(1));
        waiting.passed(5, at(2)); // its first copy counts
        waiting.passed(4, at(3)); // a retransmission of older data
        waiting.passed(9, at(4));
        assert_eq!(waiting.echoed(3, at(10)), None);
        assert_eq!(waiting.echoed(5, at(31)), Some(Duration::from_millis(30)));
        assert_eq!(waiting.echoed(5, at(40)), None, "each is echoed once");
        assert_eq!(waiting.echoed(8, at(50)), None);
        assert_eq!(waiting.echoed(9, at(54)), Some(Duration::from_millis(50)));
    }

    proptest! {
        /// Whatever arrives: the window is never larger than the receiver's own, and the right edge
        /// of what was advertised is not retracted unless the receiver itself retracts it.
        #[test]
        fn no_edge_is_retracted_and_no_window_raised(
            steps in prop::collection::vec((0..40_u64, 0..12_u64, 4_000..400_000_u64, 1..60_u64), 1..120)
        ) {
            let mut node = Rewriter::new(law("drwa", &[]), MSS);
            let (mut now, mut acked, mut edge, mut own_edge) = (0, 0, 0, 0);
            let mut stamp = 1;
            for (gap, segments, window, delay) in steps {
                now += gap;
                stamp += 1;
                for n in 0..segments {
                    node.on_frame(at(now), &mut data(acked + n * MSS, (stamp, stamp - 1)));
                }
                now += delay;
                acked += segments * MSS;
                // A receiver that keeps its own edge.
                own_edge = (acked + window).max(own_edge);
                let mut f = ack(acked, own_edge - acked, (stamp, stamp));
                node.on_frame(at(now), &mut f);
                prop_assert!(f.window <= own_edge - acked);
                prop_assert!(acked + f.window >= edge, "the edge went back");
                edge = acked + f.window;
            }
        }
    }
}
