//! ACK-window rewriting: a window law outside the receiver, on the ACKs that a router forwards or
//! that arrive at the sending side.
//!
//! signal: forwarded data and ACKs with their timestamps · model: the RTT is the sum of two halves,
//! each measured from a forwarded timestamp to its echo (at the sending side there is one half
//! only); the ACK number stands for both received and read data · action: the window field of the
//! ACK becomes the smaller of its own and the law's; an advertised right edge is never retracted.

use std::collections::VecDeque;

use algo::rwnd::{Cause, Rwnd, Sample, Setup, WindowControl};
use units::{Bytes, Duration, Instant};

use crate::frame::Frame;

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
