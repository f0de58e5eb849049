//! Sizes that change in mid-run: the limit of a link's droptail queue, and a firmware buffer.

use algo::{Capacity, Value};
use settings::{Problem, Result, Section};
use units::Bytes;

use crate::family::Family;
use crate::keys;
use crate::types::{Algorithm, Node};

/// The new limit of the queue of link number `link`, where it is a droptail queue before and after.
pub(super) fn limit(
    before: &Algorithm,
    after: &Algorithm,
    link: usize,
    nodes: &[Node],
) -> std::result::Result<Capacity, Problem> {
    let feeds = |node: &&Node| node.device.as_ref().is_some_and(|device| device.link == link);
    if let Some(node) = nodes.iter().find(feeds) {
        return Err(Problem::Contradiction(format!(
            "not used: the device on {} feeds this link; what can change: device.firmware.buffer",
            node.name
        )));
    }
    let entries = Family::Queue.entries();
    let [from, to] = [before, after].map(|queue| &entries[queue.index]);
    let place = to.params.iter().position(|param| param.name == "limit");
    match place.and_then(|place| after.settings.0.get(place)) {
        Some(Value::Capacity(limit)) if (from.name, to.name) == ("droptail", "droptail") => {
            Ok(*limit)
        }
        _ => Err(Problem::Contradiction(format!(
            "{}; what can change: the limit of a droptail queue",
            match from.name == to.name {
                true => format!("a {} queue does not change in mid-run", from.name),
                false => format!("does not change from {} to {} in mid-run", from.name, to.name),
            }
        ))),
    }
}

/// The size of the firmware buffer of a device.
pub(super) fn buffer(device: &Section<'_>) -> Result<Bytes> {
    device.below("firmware", &[keys::FIRMWARE])?.bytes("buffer")
}
