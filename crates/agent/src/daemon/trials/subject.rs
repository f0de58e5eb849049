//! The subject of a trial: a cure, or one flow of a cure; and its name in the log.

use crate::cures::address;
use crate::kernel::layouts::acks::FlowKey;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Windows of this host's sockets.
    Receive,
    /// The gate, or the shaper in its place.
    Gate,
    /// Windows of one forwarded flow.
    Flow([u32; 4], [u32; 4], u16, u16, u32),
}

impl Key {
    pub(super) fn of(flow: &FlowKey) -> Key {
        Key::Flow(flow.inside, flow.outside, flow.inside_port, flow.outside_port, flow.vlan)
    }

    pub(super) fn flow(&self) -> Option<FlowKey> {
        match *self {
            Key::Flow(inside, outside, inside_port, outside_port, vlan) => {
                Some(FlowKey { inside, outside, inside_port, outside_port, vlan })
            }
            _ => None,
        }
    }

    /// Name of the cure; trials of one cure take turns.
    pub(super) fn cure(&self) -> &'static str {
        match self {
            Key::Receive => "receive",
            Key::Gate => "gate",
            Key::Flow(..) => "acks",
        }
    }

    pub(super) fn words(&self) -> String {
        match self.flow() {
            None if *self == Key::Gate => "the gate of the uplink".to_owned(),
            None => "windows of this host's downloads".to_owned(),
            Some(flow) => format!(
                "windows between {}:{} and {}:{}",
                address(flow.inside),
                u16::from_be(flow.inside_port),
                address(flow.outside),
                u16::from_be(flow.outside_port)
            ),
        }
    }

    /// Which key of the configuration makes it milder.
    pub(super) fn milder(&self) -> &'static str {
        match self {
            Key::Receive => "receive.lambda",
            Key::Gate => "uplink.target",
            Key::Flow(..) => "uplink.lambda or forward.lambda",
        }
    }
}
