//! ACK-window rewriting as unbloat-agent does it, at a node.
//!
//! signal: TCP frames that the node sends, forwards or receives · model: `algo::rwnd::forwarding`,
//! which handles the same segments as the agent's kernel program · action: a smaller window field.
//!
//! A flow is known from its SYNs: one that is older than the law at this node passes unchanged. The
//! agent takes the scales of such a flow from its socket.

use algo::rwnd::drwa;
use algo::rwnd::forwarding::{Config, Flow, Segment};
use algo::rwnd::path::Places;
use units::{Bytes, Duration, Instant};

use crate::frame::{Frame, flags};
use crate::wire::WireParameters;

/// A scenario's law holds from the first round trip on: the lab starts the agent so, too, whose own
/// default waits for 20 KB.
const START: Bytes = Bytes::ZERO;
/// The agent's own.
const PAUSE: Duration = Duration::from_secs(2);

/// All flows that pass one node.
pub struct Agent {
    node: u16,
    config: Config,
    flows: Vec<Flow>,
    places: Places,
}

impl Agent {
    /// A node that has seen nothing yet, with one law for both directions of data.
    pub fn new(law: drwa::Config, node: usize) -> Agent {
        let config = Config {
            down: Some(law.clone()),
            up: Some(law),
            down_start: START,
            up_start: START,
            pause: PAUSE,
            forwarded_only: true,
        };
        Agent { node: node as u16, config, flows: Vec::new(), places: Places::default() }
    }

    /// Another law for all flows that are known, and for all to come.
    pub fn switch(&mut self, law: drwa::Config) {
        self.config.down = Some(law.clone());
        self.config.up = Some(law);
    }

    /// A TCP frame passes; `out`: by the node's uplink.
    pub fn on_frame(&mut self, now: Instant, f: &mut Frame, wire: &WireParameters, out: bool) {
        let id = f.owner as usize;
        if self.flows.len() <= id {
            self.flows.resize_with(id + 1, Flow::default);
        }
        let side = usize::from(f.side);
        let (local, far) = if out {
            (wire.nodes[side] == self.node, wire.nodes[1 - side])
        } else {
            (wire.nodes[1 - side] == self.node, wire.nodes[side])
        };
        let segment = segment(f, wire);
        let field = self.flows[id].on_segment(
            now,
            &self.config,
            &mut self.places,
            far.into(),
            (out, local),
            &segment,
        );
        if let Some(field) = field {
            f.window = u64::from(field) << wire.scale[side];
        }
    }
}

/// A frame as the segment that a capture of it has.
fn segment(f: &Frame, wire: &WireParameters) -> Segment {
    let side = usize::from(f.side);
    let first = |side: usize| wire.isn[side].wrapping_add(1);
    let syn = f.flags & flags::SYN != 0;
    let acks = f.flags & flags::ACK != 0;
    let scale = if syn { 0 } else { wire.scale[side] };
    Segment {
        seq: if syn { wire.isn[side] } else { first(side).wrapping_add(f.seq as u32) },
        ack: if acks { first(1 - side).wrapping_add(f.ack as u32) } else { 0 },
        payload: f.payload(),
        window: (f.window >> scale).min(65_535) as u32,
        stamps: wire.options.1.then_some((f.ts_val, f.ts_ecr)),
        syn,
        fin: f.flags & flags::FIN != 0,
        rst: false,
        acks,
        scale: syn.then_some(wire.scale[side]),
        mss: syn.then_some(wire.mss[side]),
    }
}
